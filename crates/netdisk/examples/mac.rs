//! What a MAC costs at the sizes of the protocol's messages: HMAC-SHA-256 (aws-lc-rs), keyed BLAKE3, and GMAC under a key that
//! keyed BLAKE3 derives from a head for one message only.
//!
//! `cargo run --release -p strongroom-netdisk --example mac`. Rounds are interleaved; the medians are printed.

use std::hint::black_box;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 31;
/// Nanoseconds of this thread's own time, so that other work on the machine counts little.
const ROUND: u64 = 5_000_000;

fn main() {
    println!(
        "{:>8}  {:>16}  {:>16}  {:>16}",
        "bytes", "HMAC-SHA-256 ns", "keyed BLAKE3 ns", "one-time GMAC ns"
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, &[7; 32]);
    for len in [104, 256, 4096, 65536] {
        let data = vec![5u8; len];
        let (mut sha, mut blake, mut gmac) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            sha.push(nanoseconds(|| {
                black_box(hmac::sign(&key, black_box(&data)));
            }));
            blake.push(nanoseconds(|| {
                black_box(blake3::keyed_hash(&[7; 32], black_box(&data)));
            }));
            gmac.push(nanoseconds(|| {
                black_box(one_time_gmac(black_box(&[5; 72]), black_box(&data)));
            }));
        }
        println!(
            "{len:>8}  {:>16.0}  {:>16.0}  {:>16.0}",
            median(&mut sha),
            median(&mut blake),
            median(&mut gmac)
        );
    }
}

fn one_time_gmac(head: &[u8; 72], payload: &[u8]) -> [u8; 16] {
    let key = blake3::keyed_hash(&[7; 32], head);
    // Of the right length.
    let key = UnboundKey::new(&AES_256_GCM, key.as_bytes()).expect("32 bytes");
    let nonce = Nonce::assume_unique_for_key([0; 12]);
    let tag = LessSafeKey::new(key)
        .seal_in_place_separate_tag(nonce, Aad::from(payload), &mut [])
        .expect("nothing to encrypt");
    tag.as_ref().try_into().expect("16 bytes")
}

fn nanoseconds(mut work: impl FnMut()) -> f64 {
    let start = own_time();
    let mut done = 0;
    while own_time() - start < ROUND {
        for _ in 0..64 {
            work();
        }
        done += 64;
    }
    (own_time() - start) as f64 / f64::from(done)
}

fn own_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
