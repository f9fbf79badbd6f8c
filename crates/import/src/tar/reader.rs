//! Reading a stream, member by member, without ever going back.

use std::io::{self, Read};

use ::tar::Header;

use super::sparse::Map;
use super::{BLOCK, MAX_EXTENSION, Member, MemberKind, inside, pax};
use crate::{Error, Result};

/// What is read behind the end of a stream, in bytes: so that who writes it is not cut off while it fills its last record, and that
/// what follows is noticed.
const AFTER_END: u64 = 1 << 20;

/// A stream being read.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    /// Bytes of the stream that were read.
    position: u64,
    /// Bytes of the present member's data that were not.
    left: u64,
    /// What fills the last block of the present member's data.
    padding: u64,
    /// Where the data that is left belongs: ranges in order, the first being read.
    ranges: std::collections::VecDeque<(u64, u64)>,
    /// Records that hold for all members that follow.
    global: Vec<(Vec<u8>, Vec<u8>)>,
    ended: bool,
    has_more: bool,
}

/// What headers before a member's own say of it.
#[derive(Default)]
struct Extended {
    records: Vec<(Vec<u8>, Vec<u8>)>,
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    /// Bytes of all of them.
    len: u64,
    /// Whether a member must follow that they are of.
    awaits: bool,
}

impl Extended {
    /// The last record of a key: the later of two counts.
    fn get(&self, key: &str) -> Option<&[u8]> {
        self.records
            .iter()
            .rev()
            .find(|(name, _)| name == key.as_bytes())
            .map(|(_, value)| value.as_slice())
    }

    fn number(&self, key: &str) -> Result<Option<u64>> {
        self.get(key)
            .map(|text| pax::number(text).ok_or_else(|| bad(format!("{key} is not a number"))))
            .transpose()
    }
}

fn bad(why: impl Into<String>) -> Error {
    Error::Damaged(format!("tar stream: {}", why.into()))
}

impl<R: Read> Reader<R> {
    /// A stream from its start.
    pub fn new(from: R) -> Self {
        Self {
            from,
            position: 0,
            left: 0,
            padding: 0,
            ranges: Default::default(),
            global: Vec::new(),
            ended: false,
            has_more: false,
        }
    }

    /// Bytes of the stream that were read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether members follow soon behind the end of the stream: of another stream, or of this one, where a block of it was lost.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// The next member; what was not read of the data of the one before is skipped. `None`: the stream is over.
    pub fn next_member(&mut self) -> Result<Option<Member>> {
        if self.ended {
            return Ok(None);
        }
        self.skip(self.left.saturating_add(self.padding))?;
        (self.left, self.padding) = (0, 0);
        self.ranges.clear();
        let mut extended = Extended {
            records: self.global.clone(),
            ..Extended::default()
        };
        loop {
            let Some(header) = self.header()? else {
                self.ended = true;
                return match extended.awaits {
                    true => Err(self.ends(io::ErrorKind::UnexpectedEof.into())),
                    false => Ok(None),
                };
            };
            let size = header
                .entry_size()
                .map_err(|e| bad(format!("a header's size: {e}")))?;
            let kind = header.as_bytes()[156];
            extended.awaits |= matches!(kind, b'x' | b'X' | b'L' | b'K');
            match kind {
                b'x' | b'X' => {
                    let data = self.extension(size, &mut extended)?;
                    extended.records.extend(pax::records(&data).map_err(bad)?);
                }
                b'g' => {
                    let data = self.extension(size, &mut extended)?;
                    let records = pax::records(&data).map_err(bad)?;
                    // Behind those of earlier ones, before the member's own.
                    let at = self.global.len();
                    extended.records.splice(at..at, records.iter().cloned());
                    self.global.extend(records);
                    let len: usize = self.global.iter().map(|(k, v)| k.len() + v.len()).sum();
                    if len as u64 > MAX_EXTENSION {
                        return Err(bad("its global headers are too long"));
                    }
                }
                b'L' => extended.path = Some(self.long_name(size, &mut extended)?),
                b'K' => extended.target = Some(self.long_name(size, &mut extended)?),
                // A volume's label.
                b'V' => {}
                b'M' => {
                    return Err(bad(
                        "it goes on from another volume; join the volumes first",
                    ));
                }
                kind => return self.member(&header, kind, size, &extended).map(Some),
            }
        }
    }

    /// Reads the next bytes of the present member's data, up to `buf.len()`; returns where in the file they belong, and how many.
    /// `None`: it has no more.
    pub fn read_data(&mut self, buf: &mut [u8]) -> Result<Option<(u64, usize)>> {
        let Some(range) = self.ranges.front_mut() else {
            return Ok(None);
        };
        let len = usize::try_from(range.1 - range.0)
            .unwrap_or(usize::MAX)
            .min(buf.len());
        let at = range.0;
        range.0 += len as u64;
        if range.0 == range.1 {
            self.ranges.pop_front();
        }
        self.fill(&mut buf[..len])?;
        self.left -= len as u64;
        Ok(Some((at, len)))
    }

    fn member(
        &mut self,
        header: &Header,
        kind: u8,
        header_size: u64,
        extended: &Extended,
    ) -> Result<Member> {
        let stored = extended.number("size")?.unwrap_or(header_size);
        let name = extended
            .get("GNU.sparse.name")
            .or(extended.get("path"))
            .or(extended.path.as_deref())
            .map_or_else(|| header.path_bytes().into_owned(), <[u8]>::to_vec);
        let (path, mut cut) = inside(&name);
        if name.contains(&0) || name.is_empty() {
            return Err(bad("a member's name is empty or has a NUL"));
        }
        let target = extended
            .get("linkpath")
            .or(extended.target.as_deref())
            .map_or_else(
                || header.link_name_bytes().unwrap_or_default().into_owned(),
                <[u8]>::to_vec,
            );
        let device = || {
            let number = |field: io::Result<Option<u32>>| field.ok().flatten().unwrap_or(0);
            (number(header.device_major()), number(header.device_minor()))
        };
        // Only files (and what is not known here) have data behind the header; GNU's old incremental dumps have names there.
        let has_data = !matches!(kind, b'1'..=b'6');
        self.left = if has_data { stored } else { 0 };
        self.padding = self.left.wrapping_neg() % BLOCK as u64;
        let kind = match kind {
            0 | b'0' | b'7' if name.ends_with(b"/") => MemberKind::Directory,
            0 | b'0' | b'7' | b'S' => self.file(header, kind, stored, extended)?,
            b'1' => {
                let (target, was_cut) = inside(&target);
                cut |= was_cut;
                MemberKind::HardLink(target)
            }
            b'2' => MemberKind::Symlink(target),
            b'3' => MemberKind::CharDevice(device().0, device().1),
            b'4' => MemberKind::BlockDevice(device().0, device().1),
            b'5' | b'D' => MemberKind::Directory,
            b'6' => MemberKind::Fifo,
            other => MemberKind::Other(other),
        };
        let small = |key: &str, field: io::Result<u64>| -> Result<u32> {
            let value = match extended.number(key)? {
                Some(value) => value,
                None => field.map_err(|e| bad(format!("{key}: {e}")))?,
            };
            u32::try_from(value).map_err(|_| bad(format!("{key} {value} is too large")))
        };
        let moment = |key: &str| -> Result<Option<_>> {
            extended
                .get(key)
                .map(|text| pax::moment(text).ok_or_else(|| bad(format!("{key} is no time"))))
                .transpose()
        };
        let mtime = match moment("mtime")? {
            Some(mtime) => mtime,
            // Of GNU's format, before 1970: in two's complement.
            None => (header.mtime().unwrap_or(0).cast_signed(), 0),
        };
        let xattrs = extended
            .records
            .iter()
            .filter_map(|(key, value)| {
                let name = key.strip_prefix(b"SCHILY.xattr.")?;
                Some((pax::unescape(name), value.clone()))
            })
            .collect();
        let acl = |key| extended.get(key).map(<[u8]>::to_vec);
        Ok(Member {
            path,
            cut,
            kind,
            mode: (header.mode().map_err(|e| bad(format!("mode: {e}")))? & 0o7777) as u16,
            uid: small("uid", header.uid())?,
            gid: small("gid", header.gid())?,
            mtime,
            atime: moment("atime")?,
            xattrs,
            acls: pax::ACLS.map(acl),
        })
    }

    /// A regular file: whether it is sparse, and where its data belongs.
    fn file(
        &mut self,
        header: &Header,
        kind: u8,
        stored: u64,
        extended: &Extended,
    ) -> Result<MemberKind> {
        let real_size = match extended.number("GNU.sparse.realsize")? {
            Some(size) => Some(size),
            None => extended.number("GNU.sparse.size")?,
        };
        let (map, size) = if kind == b'S' {
            self.old_sparse(header)?
        } else if let (Some(b"1"), Some(size)) = (extended.get("GNU.sparse.major"), real_size) {
            let (map, took) = Map::before_data(&mut self.from, stored)
                .map_err(|e| self.ends(e))?
                .map_err(bad)?;
            self.position += took;
            self.left -= took;
            (map, size)
        } else if let (Some(list), Some(size)) = (extended.get("GNU.sparse.map"), real_size) {
            (Map::listed(list).map_err(bad)?, size)
        } else if let Some(size) = real_size {
            // Form 0.0: each range in two records, one behind the other.
            let mut map = Map::default();
            let mut offset = None;
            for (key, value) in &extended.records {
                let number = || pax::number(value).ok_or_else(|| bad("the map of a sparse file"));
                match (key.as_slice(), offset) {
                    (b"GNU.sparse.offset", _) => offset = Some(number()?),
                    (b"GNU.sparse.numbytes", Some(at)) => {
                        map.push(at, number()?).map_err(bad)?;
                        offset = None;
                    }
                    _ => {}
                }
            }
            (map, size)
        } else {
            if stored > 0 {
                self.ranges.push_back((0, stored));
            }
            return Ok(MemberKind::File {
                size: stored,
                data: None,
            });
        };
        let ranges = map.checked(size, self.left).map_err(bad)?;
        self.ranges = ranges.iter().copied().collect();
        Ok(MemberKind::File {
            size,
            data: Some(ranges),
        })
    }

    /// GNU's old form: four ranges in the header, more in blocks of their own behind it.
    fn old_sparse(&mut self, header: &Header) -> Result<(Map, u64)> {
        let sparse = |e: io::Error| bad(format!("the map of a sparse file: {e}"));
        let gnu = header
            .as_gnu()
            .ok_or_else(|| bad("a sparse file in a format that has none"))?;
        let mut map = Map::default();
        let mut more = gnu.is_extended();
        for range in gnu.sparse.iter().filter(|range| !range.is_empty()) {
            let (at, len) = (
                range.offset().map_err(sparse)?,
                range.length().map_err(sparse)?,
            );
            map.push(at, len).map_err(bad)?;
        }
        while more {
            let mut next = ::tar::GnuExtSparseHeader::new();
            self.fill(next.as_mut_bytes())?;
            for range in next.sparse.iter().filter(|range| !range.is_empty()) {
                let (at, len) = (
                    range.offset().map_err(sparse)?,
                    range.length().map_err(sparse)?,
                );
                map.push(at, len).map_err(bad)?;
            }
            more = next.is_extended();
        }
        Ok((map, gnu.real_size().map_err(sparse)?))
    }

    /// The next header; `None` at the end: two blocks of zeros, one, or nothing more.
    fn header(&mut self) -> Result<Option<Header>> {
        let mut header = Header::new_old();
        let block = header.as_mut_bytes();
        let mut got = 0;
        while got < BLOCK {
            match self.from.read(&mut block[got..]) {
                Ok(0) => break,
                Ok(len) => got += len,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.ends(e)),
            }
        }
        let start = self.position;
        self.position += got as u64;
        if got == 0 && start > 0 {
            return Ok(None);
        }
        if start == 0 {
            refuse_compressed(&block[..got])?;
        }
        if got < BLOCK {
            return Err(bad(format!("it ends within a header, at byte {start}")));
        }
        if block.iter().all(|b| *b == 0) {
            let mut rest = Vec::new();
            (&mut self.from)
                .take(AFTER_END)
                .read_to_end(&mut rest)
                .map_err(|e| self.ends(e))?;
            self.has_more = rest.chunks_exact(BLOCK).any(|block| {
                let mut header = Header::new_old();
                header.as_mut_bytes().copy_from_slice(block);
                is_summed(&header)
            });
            return Ok(None);
        }
        if !is_summed(&header) {
            return Err(bad(format!(
                "at byte {start} is no header: it is damaged, or no tar stream at all"
            )));
        }
        Ok(Some(header))
    }

    fn extension(&mut self, size: u64, extended: &mut Extended) -> Result<Vec<u8>> {
        extended.len = extended.len.saturating_add(size);
        if extended.len > MAX_EXTENSION {
            return Err(Error::TooLarge(format!(
                "the extended headers of a member have more than {MAX_EXTENSION} bytes"
            )));
        }
        let mut data = vec![0; size as usize];
        self.fill(&mut data)?;
        self.skip(size.wrapping_neg() % BLOCK as u64)?;
        Ok(data)
    }

    fn long_name(&mut self, size: u64, extended: &mut Extended) -> Result<Vec<u8>> {
        let mut name = self.extension(size, extended)?;
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        name.truncate(end);
        Ok(name)
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<()> {
        self.from.read_exact(buf).map_err(|e| self.ends(e))?;
        self.position += buf.len() as u64;
        Ok(())
    }

    fn skip(&mut self, len: u64) -> Result<()> {
        let skipped =
            io::copy(&mut (&mut self.from).take(len), &mut io::sink()).map_err(|e| self.ends(e))?;
        self.position += skipped;
        if skipped < len {
            return Err(self.ends(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(())
    }

    fn ends(&self, e: io::Error) -> Error {
        if e.kind() == io::ErrorKind::UnexpectedEof {
            bad(format!(
                "it ends within a member, after byte {}; it was cut short",
                self.position
            ))
        } else {
            Error::Io {
                path: "tar stream".into(),
                source: e,
            }
        }
    }
}

/// Whether a header's sum is that of its bytes.
fn is_summed(header: &Header) -> bool {
    let sum = |signed: bool| -> i64 {
        header
            .as_bytes()
            .iter()
            .enumerate()
            .map(|(at, byte)| match (at, signed) {
                (148..156, _) => i64::from(b' '),
                (_, true) => i64::from(*byte as i8),
                (_, false) => i64::from(*byte),
            })
            .sum()
    };
    let recorded = header.cksum().map(i64::from).unwrap_or(-1);
    // Some old programs summed signed bytes.
    recorded == sum(false) || recorded == sum(true)
}

fn refuse_compressed(first: &[u8]) -> Result<()> {
    for (magic, word) in [
        (b"\x1f\x8b".as_slice(), "gzip -d"),
        (b"\xfd7zXZ\0", "xz -d"),
        (b"BZh", "bzip2 -d"),
        (b"\x28\xb5\x2f\xfd", "zstd -d"),
    ] {
        if first.starts_with(magic) {
            return Err(bad(format!(
                "it is compressed: decompress it on the way, as in: {word} <FILE | strongroom import --tar - ROOM"
            )));
        }
    }
    if first.is_empty() {
        return Err(bad("it is empty"));
    }
    Ok(())
}
