//! How fast a room is from Rust: what the other languages' `ladder` is compared with. `scripts/bench-bindings.sh` runs all.
//!
//!     ladder DIRECTORY SOURCE [CALLS]
//!
//! Creates a room in DIRECTORY (which must not exist) and prints one line of JSON:
//!
//! - `write_MiB_s`: 8 files of 2 MiB written by calls of that many bytes, each file synced at its end;
//! - `call_ns`, `stat_ns`: one of CALLS (200,000) reads of 1 byte of a warm file of 1 MiB at scattered places, after as many to warm
//!   up, and of as many stats by path;
//! - `copy_MiB_s`: the file SOURCE copied in by calls of 1 MiB, and synced.

use std::error::Error;
use std::fs;
use std::io::Read;
use std::time::{Duration, Instant};

use embed::{Key, OpenMode, OpenOptions, Secret, Session};

const MIB: usize = 1 << 20;
const SIZES: [usize; 8] = [
    1 << 20,
    512 << 10,
    128 << 10,
    64 << 10,
    8 << 10,
    4 << 10,
    1 << 10,
    256,
];
const FILE: usize = 2 * MIB;
const FILES: usize = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (dir, source, calls) = match &arguments[..] {
        [dir, source] => (dir, source, 200_000_u32),
        [dir, source, calls] => (dir, source, calls.parse()?),
        _ => return Err("usage: ladder DIRECTORY SOURCE [CALLS]".into()),
    };
    let key = Key::Raw(Secret::from(vec![7; 32]));
    let room = Session::create(dir, key, None, OpenOptions::default())?;

    let data: Vec<u8> = (0..MIB).map(|i| (i * 31 % 251) as u8).collect();
    let mut rungs = Vec::new();
    for size in SIZES {
        let began = Instant::now();
        for n in 0..FILES {
            let file = room.open_file(format!("/ladder-{size}-{n}"), OpenMode::WRITE)?;
            for _ in 0..FILE / size {
                file.write(&data[..size])?;
            }
            file.sync()?;
        }
        rungs.push(format!(
            "\"{size}\":{:.2}",
            rate(FILE * FILES, began.elapsed())
        ));
    }

    let file = room.open_file(
        "/warm",
        OpenMode {
            read: true,
            ..OpenMode::WRITE
        },
    )?;
    file.write(&data)?;
    room.sync()?;
    let mut byte = [0];
    let mut place = 1_u32;
    let mut scattered = || {
        place = place.wrapping_mul(1_103_515_245).wrapping_add(12345);
        u64::from(place >> 8) % MIB as u64
    };
    for _ in 0..calls {
        file.read_at(scattered(), &mut byte)?;
    }
    let began = Instant::now();
    for _ in 0..calls {
        file.read_at(scattered(), &mut byte)?;
    }
    let call_ns = began.elapsed().as_nanos() / u128::from(calls.max(1));
    let began = Instant::now();
    for _ in 0..calls {
        room.stat("/warm", true)?;
    }
    let stat_ns = began.elapsed().as_nanos() / u128::from(calls.max(1));

    let mut from = fs::File::open(source)?;
    let mut buffer = vec![0; MIB];
    let mut copied = 0;
    let began = Instant::now();
    let to = room.open_file("/copy", OpenMode::WRITE)?;
    loop {
        let n = from.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        to.write(&buffer[..n])?;
        copied += n;
    }
    to.sync()?;
    let copy = rate(copied, began.elapsed());
    room.close()?;

    println!(
        "{{\"language\":\"rust\",\"write_MiB_s\":{{{}}},\"call_ns\":{call_ns},\"stat_ns\":{stat_ns},\"copy_MiB_s\":{copy:.2}}}",
        rungs.join(",")
    );
    Ok(())
}

fn rate(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / MIB as f64 / time.as_secs_f64().max(1e-9)
}
