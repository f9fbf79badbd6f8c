//! Maps of sparse files, in the four forms that GNU tar wrote (GNU tar manual, "Storing Sparse Files"): its old format's headers,
//! and the pax forms 0.0 (records), 0.1 (one record), 1.0 (numbers before the data).

use std::io::Read;

use super::{BLOCK, MAX_RANGES, pax};

const BAD: &str = "the map of a sparse file is not what it must be";
const LARGE: &str = "the map of a sparse file has more than 1048576 ranges";

/// Ranges as offset and length, being gathered.
#[derive(Debug, Default)]
pub(super) struct Map(Vec<(u64, u64)>);

impl Map {
    pub(super) fn push(&mut self, offset: u64, len: u64) -> Result<(), &'static str> {
        if self.0.len() >= MAX_RANGES {
            return Err(LARGE);
        }
        self.0.push((offset, len));
        Ok(())
    }

    /// First byte and end of each range, none empty, in order, within `size`, and of `stored` bytes together.
    pub(super) fn checked(self, size: u64, stored: u64) -> Result<Vec<(u64, u64)>, &'static str> {
        let (mut found, mut before, mut sum) = (Vec::new(), 0, 0_u64);
        for (offset, len) in self.0 {
            let end = offset.checked_add(len).ok_or(BAD)?;
            if offset < before || end > size {
                return Err(BAD);
            }
            before = end;
            sum += len;
            if len > 0 {
                found.push((offset, end));
            }
        }
        if sum != stored {
            return Err(BAD);
        }
        Ok(found)
    }

    /// Form 0.1: "offset,length,offset,length".
    pub(super) fn listed(text: &[u8]) -> Result<Self, &'static str> {
        let mut map = Self::default();
        let mut numbers = text.split(|b| *b == b',').map(pax::number);
        while let Some(offset) = numbers.next() {
            let len = numbers.next().flatten().ok_or(BAD)?;
            map.push(offset.ok_or(BAD)?, len)?;
        }
        Ok(map)
    }

    /// Form 1.0: how many, then offset and length of each, a number a line, in whole blocks. Returns how many bytes they took too.
    pub(super) fn before_data(
        read: &mut dyn Read,
        stored: u64,
    ) -> std::io::Result<Result<(Self, u64), &'static str>> {
        let mut lines = Lines {
            read,
            left: stored,
            block: [0; BLOCK],
            at: BLOCK,
            took: 0,
        };
        let mut map = Self::default();
        let Some(count) = lines.number()? else {
            return Ok(Err(BAD));
        };
        if count > MAX_RANGES as u64 {
            return Ok(Err(LARGE));
        }
        for _ in 0..count {
            let (Some(offset), Some(len)) = (lines.number()?, lines.number()?) else {
                return Ok(Err(BAD));
            };
            if let Err(why) = map.push(offset, len) {
                return Ok(Err(why));
            }
        }
        Ok(Ok((map, lines.took)))
    }
}

struct Lines<'r> {
    read: &'r mut dyn Read,
    /// Bytes that are the member's still.
    left: u64,
    block: [u8; BLOCK],
    at: usize,
    took: u64,
}

impl Lines<'_> {
    fn number(&mut self) -> std::io::Result<Option<u64>> {
        let mut digits = Vec::new();
        loop {
            if self.at == BLOCK {
                if self.left < BLOCK as u64 {
                    return Ok(None);
                }
                self.read.read_exact(&mut self.block)?;
                self.left -= BLOCK as u64;
                self.took += BLOCK as u64;
                self.at = 0;
            }
            let byte = self.block[self.at];
            self.at += 1;
            match byte {
                b'\n' => return Ok(pax::number(&digits)),
                _ if digits.len() == 20 => return Ok(None),
                _ => digits.push(byte),
            }
        }
    }
}

/// Form 1.0 of a map, in whole blocks.
pub(super) fn written(ranges: &[(u64, u64)], size: u64) -> Vec<u8> {
    // A file that ends in a hole has an empty range at its end, so that the map includes its length too, as GNU tar does.
    let last = ranges.last().is_none_or(|(_, end)| *end < size);
    let mut out = format!("{}\n", ranges.len() + usize::from(last));
    for (start, end) in ranges {
        out.push_str(&format!("{start}\n{}\n", end - start));
    }
    if last {
        out.push_str(&format!("{size}\n0\n"));
    }
    let mut out = out.into_bytes();
    out.resize(out.len().next_multiple_of(BLOCK), 0);
    out
}
