//! What the fuzz target for segment headers tries, and what must hold whatever the bytes are.
//!
//! 1. A header passes only when it is, to the byte, the one that was written for this segment.
//! 2. Behind a right code it is judged by the facts in it, in the order the format gives.
//! 3. A file's name leads to a segment only when it is the name of that segment's file.
//!
//! A fuzzer cannot guess a message authentication code: every input is tried as it is, and with the right code.

use seal::{BLOCK_LEN, MAC_LEN, RoomId, UNIT_LEN};

use crate::header::{HeaderProblem, check, encode};
use crate::{Keyring, SegmentId, SegmentNo, file_name, parse_file_name, testkeys};

#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;

const MAC_AT: usize = BLOCK_LEN - MAC_LEN;

/// The segment that the catalog knows.
const ID: SegmentId = SegmentId {
    no: SegmentNo(7),
    key_epoch: 1,
    salt: [0x5a; 32],
};

thread_local! {
    /// Before and after a rekey.
    static KEYRINGS: [Keyring; 2] = [testkeys::keyring(), testkeys::rekeyed()];
}

/// The first block of a segment's file, zeros behind what is given; and a name in the segments' directory.
pub fn segment_header(bytes: &[u8]) {
    if let Ok(name) = std::str::from_utf8(bytes)
        && let Some(no) = parse_file_name(name)
    {
        assert_eq!(file_name(no), format!("{}/{name}", crate::SEGMENTS_DIR));
    }
    let mut block = [0; BLOCK_LEN];
    let len = bytes.len().min(BLOCK_LEN);
    block[..len].copy_from_slice(&bytes[..len]);
    KEYRINGS.with(|keyrings| {
        for keyring in keyrings {
            one(block, keyring);
        }
    });
}

fn one(mut block: [u8; BLOCK_LEN], keyring: &Keyring) {
    let written = encode(&ID, keyring).expect("the keyrings have epoch 1");
    let verdict = check(&block, &ID, keyring);
    assert_eq!(verdict.is_ok(), block == written);
    if let Err(problem) = verdict {
        assert!(!problem.to_string().chars().any(char::is_control));
    }

    let Some((_, key)) = keyring.keys(number(&block, 40)) else {
        return;
    };
    let mac = key.mac(&block[..MAC_AT]);
    block[MAC_AT..].copy_from_slice(&mac);
    assert_eq!(check(&block, &ID, keyring), judged(&block, keyring));
}

/// The verdict on a header with the right code, worked out from the format's table.
fn judged(block: &[u8; BLOCK_LEN], keyring: &Keyring) -> Result<(), HeaderProblem> {
    let wide = |at: usize| u64::from(number(block, at)) | u64::from(number(block, at + 4)) << 32;
    let room: [u8; 16] = std::array::from_fn(|at| block[16 + at]);
    Err(if !block.starts_with(b"SRSEGMNT") {
        HeaderProblem::NotASegment
    } else if number(block, 8) != 1 {
        HeaderProblem::NewerFormat {
            found: number(block, 8),
        }
    } else if room != *keyring.room().as_bytes() {
        HeaderProblem::OtherRoom(RoomId::from_bytes(room))
    } else if wide(32) != 7 {
        HeaderProblem::OtherSegment(SegmentNo(wide(32)))
    } else if number(block, 40) != 1 {
        HeaderProblem::Differs("key epoch")
    } else if block[48..80] != ID.salt {
        HeaderProblem::Differs("salt")
    } else if block[44] != 1 {
        HeaderProblem::Differs("suite")
    } else if number(block, 12) != UNIT_LEN as u32 {
        HeaderProblem::Differs("unit length")
    } else {
        return Ok(());
    })
}

fn number(block: &[u8; BLOCK_LEN], at: usize) -> u32 {
    (0..4).fold(0, |sum, byte| {
        sum | u32::from(block[at + byte]) << (8 * byte)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_segment_header_of_the_corpus_is_judged_as_the_format_says() {
        corpus::each("segment_header", segment_header);
    }

    #[test]
    #[ignore = "rewrites the seeds of fuzz/corpus/segment_header"]
    fn make_seeds() {
        let (keyring, rekeyed) = (testkeys::keyring(), testkeys::rekeyed());
        let good = encode(&ID, &keyring).unwrap();
        let of = |id: SegmentId, keyring: &Keyring| encode(&id, keyring).unwrap().to_vec();
        let with = |at: usize, byte: u8| {
            let mut block = good;
            block[at] = byte;
            // The rest is zeros up to the code.
            block[..80].to_vec()
        };
        let (no, key_epoch) = (SegmentNo(u64::MAX), 2);
        corpus::replace_seeds(
            "segment_header",
            [
                ("good", good.to_vec()),
                ("unsigned", good[..80].to_vec()),
                ("another-segment", of(SegmentId { no, ..ID }, &keyring)),
                ("another-epoch", of(SegmentId { key_epoch, ..ID }, &rekeyed)),
                (
                    "another-salt",
                    of(
                        SegmentId {
                            salt: [1; 32],
                            ..ID
                        },
                        &keyring,
                    ),
                ),
                ("another-room", of(ID, &testkeys::keyring_of([9; 16]))),
                ("newer", with(8, 2)),
                ("another-suite", with(44, 2)),
                ("another-unit", with(13, 0x20)),
                ("name", b"00000000000000000042".to_vec()),
            ],
        );
    }
}
