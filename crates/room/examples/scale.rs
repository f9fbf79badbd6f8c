//! Opening time and memory at a few files and at a million: neither may follow the number of files. And how large a catalog is.
//!
//! `cargo run --release -p strongroom-room --example scale [DIR [FILES]]`

use std::fs;
use std::path::Path;
use std::time::Instant;

use room::{
    Argon2Cost, Credential, FileKind, FileSystem as _, InodeNo, NewCredential, NewFile, NewRoom,
    OpenOptions, Room, Secret,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let base = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let files: u64 = arguments.next().map_or(Ok(1_000_000), |n| n.parse())?;
    let dir = base.join(format!("strongroom-scale-{}", std::process::id()));
    fs::create_dir(&dir)?;
    let result = [10, files]
        .into_iter()
        .try_for_each(|files| measure(&dir.join(files.to_string()), files));
    fs::remove_dir_all(&dir)?;
    result
}

fn measure(dir: &Path, files: u64) -> Outcome<()> {
    fs::create_dir(dir)?;
    let secret = Secret::from(b"scale".to_vec());
    let options = OpenOptions::with_state_dir(dir.join("state"));
    let mut new = NewRoom::with_credential(NewCredential::Passphrase {
        secret: secret.clone(),
        cost: Argon2Cost::LEAST,
    });
    new.open = options.clone();
    let start = Instant::now();
    let room = Room::create(&dir.join("room"), new)?;
    let mut parent = InodeNo::ROOT;
    for i in 0..files {
        if i % 10_000 == 0 {
            let name = format!("directory {i}");
            parent = room
                .make(
                    InodeNo::ROOT,
                    name.as_bytes(),
                    &NewFile::of_kind(FileKind::Directory),
                )?
                .no;
        }
        let file = room
            .make(
                parent,
                format!("file {i}").as_bytes(),
                &NewFile::of_kind(FileKind::Regular),
            )?
            .no;
        room.write(file, 0, &i.to_le_bytes())?;
    }
    room.close()?;
    let filled = start.elapsed();
    let credential = Credential::Passphrase(secret);
    let mut opened = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        let room = Room::open(&dir.join("room"), &credential, options.clone())?;
        opened.push(start.elapsed());
        room.close()?;
    }
    opened.sort();
    for name in ["catalog.db", "catalog.db-pages"] {
        let bytes = fs::metadata(dir.join("room").join(name))?.len();
        println!("{name}: {:.1} bytes a file", bytes as f64 / files as f64);
    }
    let room = Room::open(&dir.join("room"), &credential, options)?;
    let start = Instant::now();
    let mut seen = 0;
    for (entry, _) in room.read_dir(InodeNo::ROOT, 0, usize::MAX)? {
        let mut after = 0;
        loop {
            let names = room.read_dir(entry.inode, after, 512)?;
            let Some((last, _)) = names.last() else { break };
            after = last.cookie;
            for (entry, _) in &names {
                room.attributes(entry.inode)?;
            }
            seen += names.len() as u64;
        }
    }
    let listed = start.elapsed();
    room.close()?;
    println!(
        "{files} files: made in {filled:.1?}, opened in {:.1?} (median of 5), {seen} listed in {listed:.1?}, {}",
        opened[2],
        peak_memory()?
    );
    Ok(())
}

fn peak_memory() -> Outcome<String> {
    let status = fs::read_to_string("/proc/self/status")?;
    Ok(status
        .lines()
        .find(|l| l.starts_with("VmHWM"))
        .unwrap_or("VmHWM unknown")
        .replace('\t', " "))
}
