//! The room through the library beside plain files, in one run and in turns: what the encryption costs without FUSE.
//!
//! `cargo run --release -p strongroom-room --example beside_plain [DIR]`. Rates are medians of the rounds with their
//! spread; ratios are room to plain, above 1 where the room is faster. Both sides end with their data durable: the big
//! plain file by fsync, the small ones by one syncfs, the room by one sync.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use room::{Argon2Cost, FileSystem as _, NewCredential, NewRoom, OpenOptions, Room, Secret};

const SEQUENTIAL: usize = 512 << 20;
const CALL: usize = 1 << 20;
const SMALL_FILES: usize = 700;
const ROUNDS: usize = 7;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let base = std::env::args()
        .nth(1)
        .map_or_else(std::env::temp_dir, Into::into);
    let dir = base.join(format!("strongroom-throughput-{}", std::process::id()));
    fs::create_dir(&dir)?;
    let result = measure(&dir);
    fs::remove_dir_all(&dir)?;
    result
}

fn measure(dir: &Path) -> Outcome<()> {
    let data: Vec<u8> = noise(CALL);
    let mut rows: Vec<(&str, Vec<f64>, Vec<f64>)> = [
        "1 MiB sequential write, durable, MiB/s",
        "1 MiB sequential read, cold, MiB/s",
        "1 MiB sequential read, warm, MiB/s",
        "700 files of 4 KiB, write, files/s",
        "700 files of 4 KiB, read, files/s",
    ]
    .map(|name| (name, Vec::new(), Vec::new()))
    .into();
    for round in 0..ROUNDS {
        let place = dir.join(format!("round-{round}"));
        fs::create_dir(&place)?;
        let plain = plain_round(&place.join("plain"), &data)?;
        let room = room_round(&place.join("room"), &place.join("state"), &data)?;
        for ((_, a, b), (p, r)) in rows.iter_mut().zip(plain.into_iter().zip(room)) {
            a.push(p);
            b.push(r);
        }
        fs::remove_dir_all(&place)?;
    }
    println!("{:<42} {:>22} {:>22}  ratio", "", "plain", "room");
    for (name, plain, room) in rows {
        let ratios: Vec<f64> = plain.iter().zip(&room).map(|(p, r)| r / p).collect();
        println!(
            "{name:<42} {:>22} {:>22}  {}",
            spread(&plain, 0),
            spread(&room, 0),
            spread(&ratios, 2)
        );
    }
    Ok(())
}

fn plain_round(dir: &Path, data: &[u8]) -> Outcome<Vec<f64>> {
    fs::create_dir(dir)?;
    let mut rates = Vec::new();
    let path = dir.join("big");
    let mut file = File::create_new(&path)?;
    rates.push(rate(SEQUENTIAL >> 20, || {
        for _ in 0..SEQUENTIAL / CALL {
            file.write_all(data)?;
        }
        Ok(file.sync_all()?)
    })?);
    let file = File::open(&path)?;
    let mut buf = vec![0; CALL];
    drop_caches();
    for _ in 0..2 {
        rates.push(rate(SEQUENTIAL >> 20, || {
            for at in 0..SEQUENTIAL / CALL {
                file.read_exact_at(&mut buf, (at * CALL) as u64)?;
            }
            Ok(())
        })?);
    }
    rates.push(rate(SMALL_FILES, || {
        for i in 0..SMALL_FILES {
            let mut file = File::create_new(dir.join(i.to_string()))?;
            file.write_all(&data[..4096])?;
        }
        Ok(rustix::fs::syncfs(File::open(dir)?)?)
    })?);
    rates.push(rate(SMALL_FILES, || {
        for i in 0..SMALL_FILES {
            assert_eq!(fs::read(dir.join(i.to_string()))?.len(), 4096);
        }
        Ok(())
    })?);
    Ok(rates)
}

fn room_round(dir: &Path, state: &Path, data: &[u8]) -> Outcome<Vec<f64>> {
    let secret = Secret::from(b"throughput".to_vec());
    let mut new = NewRoom::with_credential(NewCredential::Passphrase {
        secret,
        cost: Argon2Cost::LEAST,
    });
    new.open = OpenOptions {
        state_dir: Some(state.to_owned()),
        ..OpenOptions::default()
    };
    let room = Room::create(dir, new)?;
    let mut rates = Vec::new();
    let big = room.open_or_make_file("/big")?.inode();
    rates.push(rate(SEQUENTIAL >> 20, || {
        for at in 0..SEQUENTIAL / CALL {
            room.write(big, (at * CALL) as u64, data)?;
        }
        Ok(room.sync()?)
    })?);
    let mut buf = vec![0; CALL];
    drop_caches();
    for _ in 0..2 {
        rates.push(rate(SEQUENTIAL >> 20, || {
            for at in 0..SEQUENTIAL / CALL {
                assert_eq!(room.read(big, (at * CALL) as u64, &mut buf)?, CALL);
            }
            Ok(())
        })?);
    }
    assert!(buf == data, "what was read is not what was written");
    rates.push(rate(SMALL_FILES, || {
        for i in 0..SMALL_FILES {
            room.write_file(format!("/{i}"), &data[..4096])?;
        }
        Ok(room.sync()?)
    })?);
    rates.push(rate(SMALL_FILES, || {
        for i in 0..SMALL_FILES {
            assert_eq!(room.read_file(format!("/{i}"))?.len(), 4096);
        }
        Ok(())
    })?);
    room.close()?;
    Ok(rates)
}

fn rate(amount: usize, work: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    let start = Instant::now();
    work()?;
    Ok(amount as f64 / start.elapsed().as_secs_f64())
}

/// Only root can; without it, cold is warm, and the two rows say so by being alike.
fn drop_caches() {
    rustix::fs::sync();
    let _ = fs::write("/proc/sys/vm/drop_caches", "3");
}

fn spread(values: &[f64], digits: usize) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, mid, high) = (
        sorted[0],
        sorted[sorted.len() / 2],
        sorted[sorted.len() - 1],
    );
    format!("{mid:.digits$} ({low:.digits$}-{high:.digits$})")
}

fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(1).fill(&mut bytes);
    bytes
}
