//! A digest of a file's contents that does not depend on where its holes are: equal contents, equal digest.
//!
//! BLAKE3 over the pieces of 64 KiB that are not all zeros, each behind its number (u64, little-endian), and at the end the
//! length in bytes. So a file of a tebibyte with little in it takes little time.

use crate::tree::{Fault, ReadFile};

/// Bytes of a piece.
const PIECE: usize = 64 << 10;
/// Bytes read at once.
const READ: usize = 1 << 20;

/// What contents come to.
pub(crate) type Digest = [u8; 32];

/// A digest under way, of data in the order of its places.
#[derive(Debug)]
pub(crate) struct Digester {
    hash: blake3::Hasher,
    piece: Vec<u8>,
    /// The number of the piece that is being filled.
    number: u64,
}

impl Digester {
    pub(crate) fn new() -> Self {
        Self {
            hash: blake3::Hasher::new(),
            piece: Vec::with_capacity(PIECE),
            number: 0,
        }
    }

    /// The next bytes, at `offset`; what is between them and those before is zeros.
    pub(crate) fn data(&mut self, mut offset: u64, mut data: &[u8]) {
        while !data.is_empty() {
            let number = offset / PIECE as u64;
            if number != self.number {
                self.end_piece();
                self.number = number;
            }
            let within = (offset % PIECE as u64) as usize;
            let len = data.len().min(PIECE - within);
            self.piece.resize(within, 0);
            self.piece.extend_from_slice(&data[..len]);
            offset += len as u64;
            data = &data[len..];
        }
    }

    fn end_piece(&mut self) {
        while self.piece.last() == Some(&0) {
            self.piece.pop();
        }
        if !self.piece.is_empty() {
            self.piece.resize(PIECE, 0);
            self.hash.update(&self.number.to_le_bytes());
            self.hash.update(&self.piece);
            self.piece.clear();
        }
    }

    /// The digest of a file of this many bytes.
    pub(crate) fn end(mut self, size: u64) -> Digest {
        self.end_piece();
        self.hash.update(&size.to_le_bytes());
        self.hash.finalize().into()
    }
}

/// The digest of a file's first `size` bytes.
pub(crate) fn of(file: &dyn ReadFile, size: u64) -> Result<Digest, Fault> {
    let mut digest = Digester::new();
    let mut buf = vec![0; READ];
    let mut at = 0;
    while at < size {
        let Some((start, end)) = file.next_data(at)? else {
            break;
        };
        let end = end.min(size);
        at = start;
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(READ).min(READ);
            let got = file.read_at(&mut buf[..want], at)?;
            if got == 0 {
                return Ok(digest.end(at));
            }
            digest.data(at, &buf[..got]);
            at += got as u64;
        }
    }
    Ok(digest.end(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(pieces: &[(u64, &[u8])], size: u64) -> Digest {
        let mut digest = Digester::new();
        for (at, data) in pieces {
            digest.data(*at, data);
        }
        digest.end(size)
    }

    #[test]
    fn holes_and_pieces_do_not_matter_and_contents_do() {
        let mut data = vec![0; 300_000];
        data[10] = 1;
        data[65_535] = 2;
        data[200_000] = 3;
        let whole = digest(&[(0, &data)], 300_000);
        assert_eq!(
            digest(&[(10, &data[10..65_536]), (200_000, &[3])], 300_000),
            whole
        );
        assert_eq!(
            digest(&[(0, &data[..70_000]), (70_000, &data[70_000..])], 300_000),
            whole
        );
        assert_ne!(digest(&[(0, &data)], 300_001), whole);
        assert_ne!(
            digest(&[(10, &[1]), (65_535, &[2]), (200_001, &[3])], 300_000),
            whole
        );
        assert_ne!(
            digest(&[(10, &[1]), (65_535, &[2]), (265_536, &[3])], 300_000),
            whole
        );
        assert_ne!(digest(&[], 0), digest(&[], 1));
    }
}
