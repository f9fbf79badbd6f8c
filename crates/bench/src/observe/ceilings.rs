//! What no storage here can exceed: copying memory, the raw device, the shortest durable write. Measured, not assumed.
//!
//! Each takes the best of several tries: a ceiling that is too high lets a false number pass now and then, one that is too low
//! rejects an honest number.
//!
//! It opens devices for reading only. What it writes goes to a file it is handed.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::clock::{Clock, SystemClock};

/// The ceilings of one store; `None` where one could not be measured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ceilings {
    /// Copying memory with all processors, bytes a second.
    pub memory_copy: Option<f64>,
    /// Reading the raw device, direct, large and deep, bytes a second.
    pub device_read: Option<f64>,
    /// Writing over a file on it, direct, large and deep, bytes a second.
    pub device_write: Option<f64>,
    /// Shortest time in which 4 KiB written over a file there were durable, nanoseconds.
    pub sync_ns: Option<u64>,
}

const MIB: usize = 1 << 20;
/// Alignment that direct I/O wants at most.
const ALIGNMENT: usize = 4096;
/// Calls in flight.
const DEPTH: usize = 4;
/// Durable writes tried.
const SYNCS: u32 = 24;
const COPY_ROUNDS: u32 = 8;
const COPIES: u32 = 64;

/// Copying memory, bytes a second: the best of several rounds, all processors at once, in pieces of 1 MiB that caches may well hold.
/// Whatever moves bytes from one place to another at least once cannot be faster.
pub fn memory_copy() -> f64 {
    let threads = thread::available_parallelism().map_or(1, |count| count.get());
    let barrier = Barrier::new(threads);
    thread::scope(|scope| {
        let copies: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let from = vec![0x5a_u8; MIB];
                    let mut to = vec![0_u8; MIB];
                    barrier.wait();
                    let best = (0..COPY_ROUNDS).map(|_| {
                        let began = SystemClock.raw_ns();
                        for _ in 0..COPIES {
                            to.copy_from_slice(std::hint::black_box(&from));
                            std::hint::black_box(&mut to);
                        }
                        rate(u64::from(COPIES) * MIB as u64, began)
                    });
                    best.fold(0.0, f64::max)
                })
            })
            .collect();
        copies.into_iter().filter_map(|copy| copy.join().ok()).sum()
    })
}

/// Reading `path` (a block device or a file) from its start, direct, in pieces of 1 MiB, several at once, bytes a second: the
/// better of two halves of `budget_bytes`.
///
/// # Errors
/// `path` cannot be opened for direct reading, or read; or it is shorter than a piece.
pub fn device_read(path: &Path, budget_bytes: u64) -> io::Result<f64> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)?;
    // A block device's length is not in its metadata.
    let length = io::Seek::seek(&mut &file, io::SeekFrom::End(0))?;
    moved(length, budget_bytes, |at, piece| {
        file.read_exact_at(piece, at)
    })
}

/// Writing over `file` in pieces of 1 MiB, several at once, bytes a second: the better of two halves of `budget_bytes`. Its bytes
/// are lost. `file` must be open with O_DIRECT, and hold data already: what is measured is the device, not allocation.
///
/// # Errors
/// The file cannot be written, or is shorter than a piece.
pub fn file_write(file: &File, budget_bytes: u64) -> io::Result<f64> {
    let length = file.metadata()?.len();
    moved(length, budget_bytes, |at, piece| {
        file.write_all_at(piece, at)
    })
}

/// Moves `budget_bytes` in pieces, going round in `length`, and answers the better of two halves.
fn moved(
    length: u64,
    budget_bytes: u64,
    call: impl Fn(u64, &mut [u8]) -> io::Result<()> + Sync,
) -> io::Result<f64> {
    let pieces = length / MIB as u64;
    if pieces == 0 {
        return Err(io::Error::other(
            "shorter than 1 MiB: no rate can be measured",
        ));
    }
    let mut best: f64 = 0.0;
    let next = AtomicU64::new(0);
    for half in 1..=2 {
        let end = budget_bytes / MIB as u64 * half / 2;
        let from = next.load(Ordering::Relaxed).min(end);
        next.store(from, Ordering::Relaxed);
        let began = SystemClock.raw_ns();
        thread::scope(|scope| {
            let workers: Vec<_> = (0..DEPTH)
                .map(|_| {
                    scope.spawn(|| {
                        let mut buffer = vec![0_u8; MIB + ALIGNMENT];
                        let piece = aligned(&mut buffer, MIB);
                        loop {
                            let number = next.fetch_add(1, Ordering::Relaxed);
                            if number >= end {
                                return Ok(());
                            }
                            call(number % pieces * MIB as u64, piece)?;
                        }
                    })
                })
                .collect();
            workers.into_iter().try_for_each(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("panicked")))
            })
        })?;
        best = best.max(rate((end - from) * MIB as u64, began));
    }
    Ok(best)
}

/// The shortest time in which `file` took 4 KiB over its first bytes and had them durable, nanoseconds. Those bytes are lost.
///
/// # Errors
/// The file cannot be written or synced.
pub fn sync_ns(file: &File) -> io::Result<u64> {
    let mut buffer = vec![0_u8; 2 * ALIGNMENT];
    let piece = aligned(&mut buffer, ALIGNMENT);
    let mut least = u64::MAX;
    for turn in 0..SYNCS {
        piece.fill(turn as u8);
        let began = SystemClock.raw_ns();
        file.write_all_at(piece, 0)?;
        file.sync_data()?;
        least = least.min(SystemClock.raw_ns() - began);
    }
    Ok(least)
}

fn rate(bytes: u64, began_ns: u64) -> f64 {
    let took = SystemClock.raw_ns().saturating_sub(began_ns).max(1);
    bytes as f64 * 1e9 / took as f64
}

/// The part of `buffer` that starts at an aligned address.
fn aligned(buffer: &mut [u8], length: usize) -> &mut [u8] {
    let from = buffer.as_ptr().align_offset(ALIGNMENT);
    &mut buffer[from..from + length]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_can_be_measured_on_a_file() {
        assert!(memory_copy() > 1e6);
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
        std::fs::write(file.path(), vec![1; 4 * MIB]).expect("written");
        let direct = OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(file.path())
            .expect("opened for direct writing");
        assert!(file_write(&direct, 8 * MIB as u64).expect("written") > 0.0);
        assert!(device_read(file.path(), 8 * MIB as u64).expect("read") > 0.0);
        assert!(sync_ns(&direct).expect("synced") > 0);
    }

    #[test]
    fn what_is_too_short_has_no_rate() {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
        assert!(device_read(file.path(), MIB as u64).is_err());
    }
}
