//! What the fuzz target for CoreStorage tries, and what must hold whatever the bytes are: numbers stay within their bounds, and
//! accepted segments are within the disk.
//!
//! A fuzzer cannot guess a checksum: an input of 512 bytes is a header, any other blocks of metadata of up to 8192 bytes each, put
//! behind right ones.

use std::sync::Arc;

use device::{Device, MemoryDevice};

use super::header::{Header, LEN, with_checksum};
use super::metadata::{BLOCK, Metadata, Newest, keep};
use super::segments::Segments;

/// Blocks of one input.
const BLOCKS: usize = 8;

/// A header, or decrypted metadata.
pub fn metadata(bytes: &[u8]) {
    if let Ok(header) = <[u8; LEN]>::try_from(bytes) {
        let _ = Header::parse(&with_checksum(header));
        return;
    }
    let mut newest = Newest::new();
    for part in bytes.chunks(BLOCK).take(BLOCKS) {
        let mut block = [0; BLOCK];
        block[..part.len()].copy_from_slice(part);
        if keep(&mut newest, &with_checksum(block)).is_err() {
            return;
        }
    }
    let Ok(metadata) = Metadata::of(&newest) else {
        return;
    };
    let header = Header {
        block_size: 4096,
        metadata_at: [1; 4],
        key: Default::default(),
    };
    let disk = Arc::new(MemoryDevice::new(48 * 4096));
    if let Ok(pieces) = Segments::new(disk, &header, &metadata) {
        assert!(pieces.len() >= metadata.bytes);
        let mut all = vec![0; pieces.len().min(1 << 20) as usize];
        assert!(pieces.read_at(&mut all, 0).is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::seeds;
    use super::*;
    use crate::corpus;

    #[test]
    fn every_file_of_the_corpus_holds() {
        corpus::each("filevault", metadata);
    }

    #[test]
    #[ignore = "rewrites the corpus's seeds: cargo test -p strongroom-volume -- --ignored seeds"]
    fn seeds_are_written() {
        corpus::replace_seeds("filevault", seeds());
    }
}
