//! What the fuzz target for streams tries, and what must hold whatever the bytes are.
//!
//! A stream that is refused leaves the replica the moment that it was; one that is taken leaves the moment that is reported.
//!
//! A fuzzer cannot guess digests: every input is tried as it is, and with the right ones.

use storage::testing::MemoryStorage;

use super::stream::{self, BLOCK_AT, DATA, END, HEAD_LEN, PREAMBLE};
use super::{MomentId, ReplicaStatus, receive_on};
use crate::blocks::BLOCK;

#[cfg(test)]
#[path = "../../../../fuzz/corpus.rs"]
mod corpus;

const DIGEST_LEN: usize = 32;

/// A stream, received into an empty directory and into a replica.
pub fn stream(bytes: &[u8]) {
    for text in [bytes, &rechained(bytes)] {
        one(&MemoryStorage::new(), text);
        let replica = MemoryStorage::new();
        let whole = stream::sample([0; 16], [1; 16]);
        receive_on(&replica, &mut &whole[..], &|_, _| true).expect("the sample is received");
        one(&replica, text);
    }
}

fn moment(storage: &MemoryStorage) -> Option<MomentId> {
    let status = ReplicaStatus::of_storage(storage, "replica".as_ref());
    status.expect("a replica stays one").moment
}

fn one(storage: &MemoryStorage, mut text: &[u8]) {
    let before = moment(storage);
    let received = receive_on(storage, &mut text, &|_, _| true);
    let expected = match &received {
        Ok(report) => Some(report.moment),
        Err(e) => {
            assert!(!e.to_string().chars().any(char::is_control), "{e:?}");
            before
        }
    };
    assert_eq!(moment(storage), expected);
}

/// The same frames with right digests: data in whole blocks at the beginning of a segment, and an end that counts what is before it.
fn rechained(bytes: &[u8]) -> Vec<u8> {
    let mut out = PREAMBLE.to_vec();
    let mut chain: [u8; 32] = blake3::hash(&PREAMBLE).into();
    let (mut frames, mut data) = (0_u64, 0_u64);
    let mut rest = bytes.get(PREAMBLE.len()..).unwrap_or_default();
    while let Some((head, left)) = rest.split_at_checked(HEAD_LEN) {
        let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let (payload, left) = left.split_at(len.min(left.len()));
        rest = left.get(DIGEST_LEN..).unwrap_or_default();
        let mut payload = payload.to_vec();
        match head[0] {
            DATA if payload.len() > BLOCK_AT + 4 => {
                payload[BLOCK_AT + 1..BLOCK_AT + 4].fill(0);
                let sealed = payload.len() - BLOCK_AT - 4;
                payload.resize(BLOCK_AT + 4 + sealed.next_multiple_of(BLOCK as usize), 0x5a);
                data += (payload.len() - BLOCK_AT - 4) as u64;
            }
            END => payload = [frames.to_le_bytes(), data.to_le_bytes()].concat(),
            _ => {}
        }
        chain = stream::put_frame(&mut out, &chain, head[0], &[&payload]).expect("a vector");
        frames += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stream_of_the_corpus_leaves_one_moment() {
        corpus::each("stream", stream);
    }

    #[test]
    fn right_digests_change_nothing_of_a_good_stream() {
        for since in [[0; 16], [1; 16]] {
            let good = stream::sample(since, [2; 16]);
            assert_eq!(rechained(&good), good);
        }
    }

    #[test]
    #[ignore = "rewrites the seeds of fuzz/corpus/stream"]
    fn make_seeds() {
        let whole = stream::sample([0; 16], [2; 16]);
        let part = stream::sample([1; 16], [2; 16]);
        let with = |at: usize, byte: u8| {
            let mut bytes = part.clone();
            bytes[at] = byte;
            bytes
        };
        corpus::replace_seeds(
            "stream",
            [
                ("whole", whole.clone()),
                ("part", part.clone()),
                ("same-moment", stream::sample([0; 16], [1; 16])),
                ("cut", part[..part.len() / 2].to_vec()),
                ("twice", [&part[..], &part[..]].concat()),
                ("other-frame", with(PREAMBLE.len(), 2)),
                ("newer", with(8, 2)),
            ],
        );
    }
}
