//! Measures files of 4 KiB that are created and synced one after the other, in a new room in a bucket.
//!
//! `cargo run --release -p strongroom-bucket --example synced_files -- DIRECTORY COUNT s3://BUCKET/PREFIX [LOG]`: the directory is for the
//! cache; the store's variables are those of `strongroom`, the log's place is that of `--log`. `memory` in the place of the bucket is a
//! store in memory. The room stays there.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::memory::InMemory;
use room::{NewCredential, NewRoom, OpenOptions, Room};
use strongroom_bucket::{BucketStorage, LogPlace, ObjectStore, Options, Place};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, count, place, log @ ..] = &arguments[..] else {
        return Err("which directory, how many files, which bucket, which log?".into());
    };
    let (dir, count) = (PathBuf::from(dir), count.parse::<u64>()?);
    let place = match &place[..] {
        "memory" => None,
        place => Some(Place::parse(place)?),
    };
    let store: Arc<dyn ObjectStore> = match &place {
        Some(place) => place.store()?,
        None => Arc::new(InMemory::new()),
    };
    let (bucket, prefix) = match &place {
        Some(place) => (place.bucket(), place.prefix()),
        None => ("memory", "measured"),
    };
    let mut options = Options::default();
    if let [log] = log {
        options.log = Some(LogPlace::parse(log)?.open(bucket)?);
    }
    let storage = BucketStorage::create(store, prefix, &dir, options)?;
    let storage = Arc::new(storage);
    let mut new = NewRoom::with_credential(NewCredential::RawKey(vec![7; 32].into()));
    new.open = OpenOptions::with_state_dir(dir.join("state"));
    let room = Room::create_on(storage.clone(), new)?;

    let content: Vec<u8> = (0..4096_u32).map(|n| (n * n) as u8).collect();
    let mut times = Vec::new();
    let begin = Instant::now();
    for n in 0..count {
        let began = Instant::now();
        let path = format!("/file-{n}");
        room.write_file(&path, &content)?;
        room.open_file(&path)?.sync()?;
        times.push(began.elapsed());
    }
    let all = begin.elapsed();
    times.sort();
    let percentile = |percent: usize| {
        let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        times.get(at).copied().unwrap_or_default()
    };
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    println!(
        "{count} files of 4 KiB created and synced in {:.2} s: {:.0} a second; p50 {:.2} ms, p99 {:.2} ms; {}",
        all.as_secs_f64(),
        count as f64 / all.as_secs_f64(),
        ms(percentile(50)),
        ms(percentile(99)),
        storage.requests(),
    );
    room.close()?;
    Ok(())
}
