//! Writes or reads whole files of a directory for a while, and reports how much that was: one of the clients whose throughput
//! `scripts/bench-network.sh` adds up.
//!
//! `files write|read DIRECTORY SIZE COUNT FROM SECONDS`: `COUNT` files of `SIZE` bytes (a multiple of 4096), one after another and
//! again, in requests of 64 KiB, from the moment `FROM` (seconds of CLOCK_REALTIME, so that all clients begin together) on.
//! A write ends with `fsync` and `close`; what is read is compared. Prints one JSON object.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bench::data::{BLOCK, Content, Data};

const REQUEST: usize = 64 << 10;
const SEED: u64 = 5;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, directory, size, count, from, seconds] = &arguments[..] else {
        return Err("write: files write|read DIRECTORY SIZE COUNT FROM SECONDS".into());
    };
    let size: usize = size.parse()?;
    let (count, from): (u64, f64) = (count.parse()?, from.parse()?);
    let time = Duration::from_secs_f64(seconds.parse()?);
    if size == 0 || !size.is_multiple_of(BLOCK) || count == 0 {
        return Err("there must be files, of a multiple of 4096 bytes".into());
    }
    let one = match what.as_str() {
        "write" => write,
        "read" => read,
        _ => return Err(format!("'{what}' is neither write nor read").into()),
    };
    let mut bytes = vec![0; size];
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    std::thread::sleep(Duration::from_secs_f64(from).saturating_sub(now));
    let began = Instant::now();
    let (mut files, mut slowest) = (0_u64, Duration::ZERO);
    // Each file once at least: what is read later was written.
    while files < count || began.elapsed() < time {
        let since = Instant::now();
        one(Path::new(directory), files % count, &mut bytes)?;
        slowest = slowest.max(since.elapsed());
        files += 1;
    }
    println!(
        "{{\"files\": {files}, \"bytes\": {}, \"seconds\": {:.3}, \"slowest_ms\": {:.1}}}",
        files * size as u64,
        began.elapsed().as_secs_f64(),
        slowest.as_secs_f64() * 1e3
    );
    Ok(())
}

fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("file-{number:05}"))
}

fn write(directory: &Path, number: u64, bytes: &mut [u8]) -> Result<()> {
    Data::new(SEED, number, Content::Unique).fill(0, bytes, |_| 0);
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path(directory, number))?;
    for request in bytes.chunks(REQUEST) {
        file.write_all(request)?;
    }
    file.sync_all()?;
    Ok(())
}

fn read(directory: &Path, number: u64, bytes: &mut [u8]) -> Result<()> {
    let path = path(directory, number);
    let mut file = File::open(&path)?;
    for request in bytes.chunks_mut(REQUEST) {
        file.read_exact(request)?;
    }
    Data::new(SEED, number, Content::Unique)
        .check(0, bytes, |_| 0)
        .map_err(|wrong| format!("{}: wrong from byte {} on", path.display(), wrong.offset).into())
}
