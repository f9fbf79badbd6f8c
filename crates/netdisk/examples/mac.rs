//! What a MAC costs: HMAC-SHA-256 (aws-lc-rs) against keyed BLAKE3, at the sizes of the protocol's messages.
//!
//! `cargo run --release -p strongroom-netdisk --example mac`. Rounds are interleaved; the medians are printed.

use std::hint::black_box;

use aws_lc_rs::hmac;
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 31;
/// Nanoseconds of this thread's own time, so that other work on the machine counts little.
const ROUND: u64 = 5_000_000;

fn main() {
    println!(
        "{:>8}  {:>16}  {:>16}",
        "bytes", "HMAC-SHA-256 ns", "keyed BLAKE3 ns"
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, &[7; 32]);
    for len in [104, 256, 4096, 65536] {
        let data = vec![5u8; len];
        let (mut sha, mut blake) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            sha.push(nanoseconds(|| {
                black_box(hmac::sign(&key, black_box(&data)));
            }));
            blake.push(nanoseconds(|| {
                black_box(blake3::keyed_hash(&[7; 32], black_box(&data)));
            }));
        }
        println!(
            "{len:>8}  {:>16.0}  {:>16.0}",
            median(&mut sha),
            median(&mut blake)
        );
    }
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
