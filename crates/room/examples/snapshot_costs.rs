//! What snapshots cost a room: their creation beside writers, work and listing with many of them, deletion, sending and receiving.
//!
//! `cargo run --release -p strongroom-room --example snapshot_costs -- [DIR [FILES [SNAPSHOTS [MIB [PART...]]]]]`
//!
//! By default 10,000 files, 100 snapshots, a file of 64 MiB, and all parts: `creation`, `work`, `replica`. Ratios compare with a room
//! without snapshots, or with a plain copy, by turns in one run; each number is a median.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use room::{
    Argon2Cost, Credential, FileKind, FileSystem, InodeNo, NewCredential, NewFile, NewRoom,
    NewSnapshot, OpenOptions, Room, Secret, SendRequest, Snapshots as _,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const BLOCK: u64 = 4096;
/// Of each measurement; the median is printed.
const ROUNDS: usize = 9;
/// Of each operation in two rooms by turns.
const TURNS: usize = 90;
const WRITERS: u64 = 4;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let base = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |n| n.parse());
    let (files, snapshots, mib) = (number(10_000)?, number(100)?, number(64)?);
    let chosen: Vec<String> = arguments.collect();
    let parts = ["creation", "work", "replica"];
    if let Some(unknown) = chosen.iter().find(|part| !parts.contains(&part.as_str())) {
        return Err(format!("no part {unknown}: there are {}", parts.join(", ")).into());
    }
    let has = |part: &str| chosen.is_empty() || chosen.iter().any(|chosen| chosen == part);
    let dir = base.join(format!("strongroom-snapshots-{}", std::process::id()));
    fs::create_dir(&dir)?;
    let run = || -> Outcome<()> {
        if has("creation") {
            creation(&dir.join("creation"), files)?;
        }
        if has("work") {
            many(&dir, files, snapshots, mib)?;
        }
        if has("replica") {
            replica(&dir.join("send"), mib)?;
        }
        Ok(())
    };
    let result = run();
    fs::remove_dir_all(&dir)?;
    result
}

/// A room, and what opens it again.
struct Place(PathBuf);

impl Place {
    fn options(&self) -> OpenOptions {
        OpenOptions::with_state_dir(self.0.join("state"))
    }

    fn create(dir: &Path) -> Outcome<(Self, Room)> {
        fs::create_dir(dir)?;
        let place = Self(dir.to_owned());
        let mut new = NewRoom::with_credential(NewCredential::Passphrase {
            secret: Secret::from(b"costs".to_vec()),
            cost: Argon2Cost::LEAST,
        });
        new.open = place.options();
        let room = Room::create(&dir.join("room"), new)?;
        Ok((place, room))
    }

    fn open(&self) -> Outcome<Room> {
        let credential = Credential::Passphrase(Secret::from(b"costs".to_vec()));
        Ok(Room::open(
            &self.0.join("room"),
            &credential,
            self.options(),
        )?)
    }
}

fn make(room: &Room, parent: InodeNo, name: &str, kind: FileKind) -> Outcome<InodeNo> {
    let made = room.make(parent, name.as_bytes(), &NewFile::of_kind(kind))?;
    Ok(made.no)
}

/// Files of one block in directories of 1,000.
fn fill(room: &Room, files: u64) -> Outcome<Vec<InodeNo>> {
    let (mut parent, mut all) = (InodeNo::ROOT, Vec::new());
    for i in 0..files {
        if i % 1000 == 0 {
            let name = format!("directory {i}");
            parent = make(room, InodeNo::ROOT, &name, FileKind::Directory)?;
        }
        let file = make(room, parent, &format!("file {i}"), FileKind::Regular)?;
        room.write(file, 0, &i.to_le_bytes())?;
        all.push(file);
    }
    room.sync()?;
    Ok(all)
}

fn snapshot(room: &Room, name: &str) -> Outcome<()> {
    room.create_snapshot(name, NewSnapshot::default())?;
    Ok(())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Creating snapshots while four threads write, and how long one of these waits.
fn creation(dir: &Path, files: u64) -> Outcome<()> {
    let (_, room) = Place::create(dir)?;
    let all = fill(&room, files)?;
    let (mut created, mut waited) = (Vec::new(), [0f64; 2]);
    for (with, waited) in [false, true].into_iter().zip(&mut waited) {
        let stop = AtomicBool::new(false);
        let (room, all, stop) = (&room, &all, &stop);
        let write = |seed: u64| -> room::Result<Duration> {
            let (mut random, mut longest) = (Rng::with_seed(seed + 1), Duration::ZERO);
            let mut block = vec![0; BLOCK as usize];
            while !stop.load(Ordering::Relaxed) {
                random.fill(&mut block);
                let file = all[random.usize(..all.len())];
                let start = Instant::now();
                room.write(file, 0, &block)?;
                longest = longest.max(start.elapsed());
                // Programs do something between their writes.
                std::thread::sleep(Duration::from_micros(200));
            }
            Ok(longest)
        };
        std::thread::scope(|scope| -> Outcome<()> {
            let writers: Vec<_> = (0..WRITERS)
                .map(|i| scope.spawn(move || write(i)))
                .collect();
            let mut work = || -> Outcome<()> {
                for i in 0..100 {
                    let start = Instant::now();
                    if with {
                        snapshot(room, &format!("s{i}"))?;
                        created.push(ms(start.elapsed()));
                    }
                    std::thread::sleep(Duration::from_millis(40).saturating_sub(start.elapsed()));
                }
                Ok(())
            };
            let done = work();
            stop.store(true, Ordering::Relaxed);
            for writer in writers {
                let longest = writer.join().map_err(|_| "a writer ended early")??;
                *waited = waited.max(ms(longest));
            }
            done
        })?;
    }
    created.sort_by(f64::total_cmp);
    println!(
        "creation, {files} files, {WRITERS} writers: median {:.1} ms, p99 {:.1} ms, longest {:.1} ms; \
         longest write {:.1} ms, without snapshots {:.1} ms",
        created[created.len() / 2],
        created[created.len() * 99 / 100 - 1],
        created[created.len() - 1],
        waited[1],
        waited[0],
    );
    room.close()?;
    Ok(())
}

/// A room with files, and one of many blocks, of which 1 % change at a time.
struct Work {
    place: Place,
    room: Room,
    files: Vec<InodeNo>,
    large: InodeNo,
    blocks: u64,
    random: Rng,
    made: u64,
}

impl Work {
    fn create(dir: &Path, files: u64, mib: u64) -> Outcome<Self> {
        let (place, room) = Place::create(dir)?;
        let files = fill(&room, files)?;
        let large = make(&room, InodeNo::ROOT, "large", FileKind::Regular)?;
        let mut random = Rng::with_seed(7);
        let mut piece = vec![0; 1 << 20];
        for i in 0..mib {
            random.fill(&mut piece);
            room.write(large, i << 20, &piece)?;
        }
        room.sync()?;
        Ok(Self {
            place,
            room,
            files,
            large,
            blocks: mib * 256,
            random,
            made: 0,
        })
    }

    /// One block in a hundred, one file in a hundred; returns the bytes of data.
    fn change(&mut self) -> Outcome<u64> {
        let mut block = vec![0; BLOCK as usize];
        for _ in 0..self.blocks / 100 {
            self.random.fill(&mut block);
            let at = self.random.u64(..self.blocks) * BLOCK;
            self.room.write(self.large, at, &block)?;
        }
        for _ in 0..self.files.len() / 100 {
            let file = self.random.usize(..self.files.len());
            self.room.write(self.files[file], 0, &block[..100])?;
        }
        self.room.sync()?;
        Ok((self.blocks / 100) * BLOCK)
    }

    fn create_files(&mut self) -> Outcome<()> {
        let parent = make(
            &self.room,
            InodeNo::ROOT,
            &format!("new {}", self.made),
            FileKind::Directory,
        )?;
        self.made += 1;
        for i in 0..500 {
            make(&self.room, parent, &format!("file {i}"), FileKind::Regular)?;
        }
        Ok(())
    }

    fn read_blocks(&mut self) -> Outcome<()> {
        let mut block = vec![0; BLOCK as usize];
        for _ in 0..500 {
            let at = self.random.u64(..self.blocks) * BLOCK;
            self.room.read(self.large, at, &mut block)?;
        }
        Ok(())
    }

    fn overwrite(&mut self) -> Outcome<()> {
        let block = vec![self.made as u8; BLOCK as usize];
        for _ in 0..500 {
            let at = self.random.u64(..self.blocks) * BLOCK;
            self.room.write(self.large, at, &block)?;
        }
        Ok(())
    }

    fn write_and_sync(&mut self) -> Outcome<()> {
        let block = vec![self.made as u8; BLOCK as usize];
        for _ in 0..20 {
            let at = self.random.u64(..self.blocks) * BLOCK;
            self.room.write(self.large, at, &block)?;
            self.room.fsync(self.large)?;
        }
        Ok(())
    }

    /// The same closed and opened, with the seconds that the latter took.
    fn reopened(self) -> Outcome<(Self, f64)> {
        self.room.close()?;
        let start = Instant::now();
        let room = self.place.open()?;
        Ok((Self { room, ..self }, start.elapsed().as_secs_f64()))
    }
}

/// Every name below the root with its attributes.
fn list(tree: &dyn FileSystem) -> Outcome<u64> {
    let mut seen = 0;
    for (entry, _) in tree.read_dir(InodeNo::ROOT, 0, usize::MAX)? {
        if entry.kind != FileKind::Directory {
            continue;
        }
        let mut after = 0;
        loop {
            let names = tree.read_dir(entry.inode, after, 512)?;
            let Some((last, _)) = names.last() else { break };
            after = last.cookie;
            seen += names.len() as u64;
        }
    }
    Ok(seen)
}

/// Two rooms with the same changes, one with a snapshot before each.
fn many(dir: &Path, files: u64, snapshots: u64, mib: u64) -> Outcome<()> {
    let mut rooms = [
        Work::create(&dir.join("none"), files, mib)?,
        Work::create(&dir.join("many"), files, mib)?,
    ];
    let mut changed = [Vec::new(), Vec::new()];
    for i in 0..snapshots {
        snapshot(&rooms[1].room, &format!("s{i}"))?;
        for (work, changed) in rooms.iter_mut().zip(&mut changed) {
            let start = Instant::now();
            work.change()?;
            changed.push(start.elapsed().as_secs_f64());
        }
    }
    let half = changed[0].len() / 2;
    let [none, with] = changed.map(|times| median(times[half..].to_vec()));
    println!(
        "{snapshots} snapshots, {files} files and {mib} MiB, 1 % changed after each (ratio: speed of none / of many)"
    );
    row("change 1 %", none, with);
    type Operation = fn(&mut Work) -> Outcome<()>;
    let operations: [(&str, Operation); 4] = [
        ("500 creations", Work::create_files),
        ("500 reads of 4 KiB", Work::read_blocks),
        ("500 writes of 4 KiB", Work::overwrite),
        ("20 writes of 4 KiB, each synced", Work::write_and_sync),
    ];
    for (name, operation) in operations {
        let mut times = [Vec::new(), Vec::new()];
        for turn in 0..TURNS {
            // The one that comes second finds caches and processors otherwise: each is it half of the time.
            for which in [turn % 2, 1 - turn % 2] {
                let work = &mut rooms[which];
                // Each first change since a snapshot keeps something.
                if turn % 3 == 0 && which == 1 {
                    snapshot(&work.room, &format!("{name} {turn}"))?;
                }
                work.room.sync()?;
                let start = Instant::now();
                operation(work)?;
                times[which].push(start.elapsed().as_secs_f64());
            }
        }
        turns(name, &times);
    }
    let [mut none, mut with] = rooms;
    let (mut times_none, mut times_with) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let time;
        (none, time) = none.reopened()?;
        times_none.push(time);
        let time;
        (with, time) = with.reopened()?;
        times_with.push(time);
    }
    row("opening", median(times_none), median(times_with));
    views(&with)?;
    deletion(&mut with, snapshots)?;
    none.room.close()?;
    with.room.close()?;
    Ok(())
}

fn row(name: &str, none: f64, with: f64) {
    println!(
        "  {name}: {:.2} ms without, {:.2} ms with, {:.2}",
        none * 1e3,
        with * 1e3,
        none / with
    );
}

/// Also the quartiles of the turns' ratios, as half of a turn may meet a commit.
fn turns(name: &str, [none, with]: &[Vec<f64>; 2]) {
    let mut ratios: Vec<f64> = none.iter().zip(with).map(|(a, b)| a / b).collect();
    ratios.sort_by(f64::total_cmp);
    let [none, with] = [none, with].map(|times| median(times.clone()));
    println!(
        "  {name}: {:.2} ms without, {:.2} ms with, {:.2}; of a turn {:.2} to {:.2}",
        none * 1e3,
        with * 1e3,
        none / with,
        ratios[ratios.len() / 4],
        ratios[ratios.len() * 3 / 4],
    );
}

/// Listing and reading in the oldest and the newest snapshot.
fn views(work: &Work) -> Outcome<()> {
    let names = work.room.snapshots()?;
    let views = [
        work.room.snapshot(&names[0].name)?,
        work.room.snapshot(&names[names.len() - 1].name)?,
    ];
    let trees: [(&str, &dyn FileSystem); 3] = [
        ("the room", &work.room),
        ("the oldest", &*views[0]),
        ("the newest", &*views[1]),
    ];
    let mut times = [const { [const { Vec::new() }; 2] }; 3];
    let mut piece = vec![0; 128 << 10];
    for _ in 0..ROUNDS {
        for ((_, tree), times) in trees.iter().zip(&mut times) {
            let start = Instant::now();
            let seen = list(*tree)?;
            times[0].push(start.elapsed().as_secs_f64() * 1e6 / seen as f64);
            let start = Instant::now();
            for offset in (0..work.blocks * BLOCK).step_by(piece.len()) {
                tree.read(work.large, offset, &mut piece)?;
            }
            let bytes = (work.blocks * BLOCK) as f64;
            times[1].push(bytes / start.elapsed().as_secs_f64() / 1e6);
        }
    }
    for ((name, _), [listed, read]) in trees.iter().zip(times) {
        println!(
            "  {name}: listed at {:.2} µs a name, read at {:.0} MB/s",
            median(listed),
            median(read)
        );
    }
    Ok(())
}

/// Half of the snapshots in a random order.
fn deletion(work: &mut Work, snapshots: u64) -> Outcome<()> {
    // Those of the measurements before stay, and hold what changed then.
    let mut names: Vec<String> = (0..snapshots).map(|i| format!("s{i}")).collect();
    for i in (1..names.len()).rev() {
        names.swap(i, work.random.u64(..i as u64 + 1) as usize);
    }
    work.room.tend()?;
    let before = work.room.held_by_snapshots()?;
    let live = work.room.space()?.live;
    let start = Instant::now();
    for name in &names[..names.len() / 2] {
        work.room.delete_snapshot(name)?;
    }
    let named = start.elapsed();
    work.room.tend()?;
    let done = start.elapsed();
    let said = before - work.room.held_by_snapshots()?;
    let freed = live - work.room.space()?.live;
    let report = work.room.check(true, false, &|_, _| true)?;
    println!(
        "  {} deleted in {:.2} s, the commands {:.2} s; freed {freed} bytes, {said} said; check --read-data: {} findings",
        names.len() / 2,
        done.as_secs_f64(),
        named.as_secs_f64(),
        report.findings.len() + report.lost.len()
    );
    Ok(())
}

/// Sending 1 % of changed blocks, and receiving beside a plain copy of the same stream.
fn replica(dir: &Path, mib: u64) -> Outcome<()> {
    let mut work = Work::create(dir, 1000, mib * 4)?;
    snapshot(&work.room, "0")?;
    let (stream, copy) = (dir.join("stream"), dir.join("copy"));
    let send = |work: &Work, since: Option<String>, to: &str| -> Outcome<(u64, f64)> {
        let request = SendRequest {
            to: to.into(),
            since,
            ..SendRequest::default()
        };
        let start = Instant::now();
        let mut out = fs::File::create(&stream)?;
        let report = work.room.send(&request, &mut out, &|_, _| true)?;
        Ok((report.sent, start.elapsed().as_secs_f64()))
    };
    let (whole, whole_time) = send(&work, None, "0")?;
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..5 {
        let target = dir.join(format!("replica{round}"));
        let start = Instant::now();
        let file = fs::File::open(&stream)?;
        room::receive(
            &target,
            &mut std::io::BufReader::new(file),
            &work.place.options(),
            &|_, _| true,
        )?;
        times[0].push(start.elapsed().as_secs_f64());
        let start = Instant::now();
        plain_copy(&stream, &copy)?;
        times[1].push(start.elapsed().as_secs_f64());
        if round > 0 {
            fs::remove_dir_all(&target)?;
        }
    }
    let [received, copied] = times.map(median);
    println!(
        "whole stream of {:.0} MB: sent at {:.0} MB/s, received at {:.0} MB/s, {:.2} of a copy",
        whole as f64 / 1e6,
        whole as f64 / whole_time / 1e6,
        whole as f64 / received / 1e6,
        copied / received
    );
    let changed = work.change()?;
    snapshot(&work.room, "1")?;
    let (sent, time) = send(&work, Some("0".into()), "1")?;
    println!(
        "increment: {sent} bytes for {changed} changed, {:.3}; {:.1} ms, {:.3} of the whole",
        (sent as f64 - f64::from(64 << 10)) / changed as f64,
        time * 1e3,
        time / whole_time
    );
    work.room.close()?;
    Ok(())
}

/// As `cp`, and durable as a replica is.
fn plain_copy(from: &Path, to: &Path) -> Outcome<()> {
    let (mut from, mut out) = (fs::File::open(from)?, fs::File::create(to)?);
    let mut piece = vec![0; 1 << 20];
    loop {
        match from.read(&mut piece)? {
            0 => break,
            n => out.write_all(&piece[..n])?,
        }
    }
    out.sync_all()?;
    Ok(())
}
