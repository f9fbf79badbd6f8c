//! Kills of the process that serves a room which is full and emptied again all the time.
//!
//! 1. "No space" is the only error a call may get before the kill. What it was the answer to may have been done or not.
//! 2. What was acknowledged as durable is there after the kill, and the room opens by itself, however full its disk is.
//! 3. What is removed makes room: at the end everything goes on without an error.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;

use super::common::random::{choices, number, seed};
use super::common::setting::{available, on_a_disk};
use super::common::{Sandbox, noise};
use super::room::Place;
use super::story::{Journal, Story};
use super::versions::{FILES, Orders};

/// The variable through which a process of this program becomes a writer of this trial.
const ORDERS: &str = "STRONGROOM_KILL_FULL_WRITER";
const NO_SPACE: i32 = Errno::NOSPC.raw_os_error();
/// Rounds in `make test`.
const ROUNDS: u64 = 4;
const WRITERS: u64 = 2;
/// MiB: many times what the writers keep.
const DISK: u64 = 40;
/// How often the room is full before the kill, at most.
const FILLS: u64 = 3;
/// The latest kill, in milliseconds after the room was full.
const LATEST_MS: u64 = 250;

/// Not a test: what the test below starts as its writers.
#[test]
#[ignore = "a part of the other test, which starts it"]
fn full_writer_process() {
    if let Ok(line) = std::env::var(ORDERS)
        && let Err(why) = super::versions::work(&Orders::parse(&line))
    {
        panic!("{why}");
    }
}

#[test]
fn what_was_acknowledged_survives_kills_in_a_room_that_is_full_again_and_again() {
    if let Some(sandbox) = place() {
        trial(sandbox);
    }
}

/// The memory of a process is there until its last thread has ended, and with it the rings. A thread that waited for the mount when the
/// process was killed waited for ever, and the room stayed locked.
#[test]
fn the_same_with_requests_over_io_uring() {
    if super::common::enable_uring::offered().is_none() {
        return;
    }
    if let Some(mut sandbox) = place() {
        sandbox.over_io_uring = true;
        trial(sandbox);
    }
}

fn place() -> Option<Sandbox> {
    if !super::common::can_mount() || !super::common::is_root() {
        return None;
    }
    on_a_disk(DISK)
}

fn trial(sandbox: Sandbox) {
    let seed = seed();
    let rounds = number("STRONGROOM_KILL_ROUNDS").unwrap_or(ROUNDS);
    eprintln!("seed {seed}: repeat with STRONGROOM_SEED={seed} STRONGROOM_KILL_ROUNDS={rounds}");
    let mut place = Place::new(sandbox);
    place.start();
    let mut filled = 0;
    for round in 0..rounds {
        let mut random = choices(seed, round, 0);
        let (fills, moment) = (random.u64(..FILLS), random.u64(..LATEST_MS));
        let moment = Duration::from_millis(moment);
        let story = format!("seed {seed}, round {round}: killed {moment:?} after it was full");
        let orders: Vec<Orders> = (0..WRITERS)
            .map(|writer| orders(&place, seed, round, writer))
            .collect();
        // Under an earlier kill any error was right.
        let earlier: Vec<usize> = orders
            .iter()
            .map(|orders| Story::read(&orders.journal).0.len())
            .collect();
        let mut writers: Vec<Child> = orders
            .iter()
            .map(|orders| {
                let part = "full::full_writer_process";
                place.start_part(part, (ORDERS, orders.line()), orders.writer)
            })
            .collect();
        let filler = Filler::begin(&place.mountpoint());
        place.until(&story, "the room is full", || filler.filled() > fills);
        std::thread::sleep(moment);
        for (orders, earlier) in orders.iter().zip(earlier) {
            let recorded = Story(Story::read(&orders.journal).0.split_off(earlier)).errors();
            if recorded.keys().any(|error| *error != NO_SPACE) {
                place.fail(&format!("{story}: errors before the kill: {recorded:?}"));
            }
        }
        place.kill();
        place.end_writers(&mut writers, &story);
        filled += filler
            .end()
            .unwrap_or_else(|why| place.fail(&format!("{story}: {why}")));
        place.detach();
        if random.u64(..3) == 0 {
            place.start_and_kill(Duration::from_millis(random.u64(..40)));
        }
        place.keep_copy();
        place.start();
        for orders in &orders {
            Journal::append(&orders.journal).killed();
            judge(&place, orders, &story);
        }
        place.check_mounted(&story);
    }
    let (acknowledged, refused) = end(&mut place, seed, rounds);
    eprintln!(
        "{rounds} rounds, full {filled} times, {refused} operations refused, {acknowledged} acknowledged as durable: nothing lost"
    );
}

/// Makes space, and has the writers work on without an error. Returns how many operations were ever acknowledged as durable,
/// and how many refused for want of space.
fn end(place: &mut Place, seed: u64, rounds: u64) -> (u64, u64) {
    let story = format!("seed {seed}, at the end");
    let filling = place.mountpoint().join(FILLING);
    if filling.exists() {
        std::fs::remove_dir_all(filling).unwrap();
    }
    File::open(place.mountpoint()).unwrap().sync_all().unwrap();
    place.until(&story, "space is free again", || {
        available(&place.mountpoint()) > 8 << 20
    });
    let (mut acknowledged, mut refused) = (0, 0);
    for writer in 0..WRITERS {
        let orders = orders(place, seed, rounds, writer);
        let before = Story::read(&orders.journal);
        let part = "full::full_writer_process";
        let mut child = [place.start_part(part, (ORDERS, orders.line()), writer)];
        place.until(&story, "the writer goes on", || {
            Story::read(&orders.journal).acknowledged() > before.acknowledged() + 5
        });
        File::create(&orders.stop).unwrap();
        place.end_writers(&mut child, &story);
        let after = Story::read(&orders.journal);
        if after.errors() != before.errors() {
            place.fail(&format!(
                "{story}: writer {writer} still gets errors: {:?}, earlier {:?}",
                after.errors(),
                before.errors()
            ));
        }
        judge(place, &orders, &story);
        acknowledged += after.acknowledged();
        refused += after.errors().get(&NO_SPACE).unwrap_or(&0);
    }
    place.end(&[]);
    (acknowledged, refused)
}

fn orders(place: &Place, seed: u64, round: u64, writer: u64) -> Orders {
    let stop = place.journal(writer).with_extension("stop");
    let _ = std::fs::remove_file(&stop);
    Orders {
        root: place.mountpoint(),
        journal: place.journal(writer),
        stop,
        seed,
        writer,
        round,
        sync_names: true,
    }
}

/// Everything that succeeded and was not lost by a kill must be there.
fn judge(place: &Place, orders: &Orders, story: &str) {
    let recorded = Story::read(&orders.journal);
    for file in 0..FILES {
        if let Err(why) = recorded.judge_at(&orders.root, orders.seed, orders.writer, file, true) {
            place.fail(&format!("{story}: {why}"));
        }
    }
}

/// The directory that is filled.
const FILLING: &str = "filling";

/// A thread that fills the room until there is no space, removes what it wrote, and begins again.
struct Filler {
    filled: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<std::io::Result<()>>,
}

impl Filler {
    fn begin(root: &Path) -> Self {
        let (filled, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (count, stopped, dir) = (filled.clone(), stop.clone(), root.join(FILLING));
        let thread = std::thread::spawn(move || {
            let piece = noise(1 << 20, 1);
            while !stopped.load(Ordering::SeqCst) {
                match fill(&dir, &piece) {
                    Err(e) if e.kind() == ErrorKind::StorageFull => {
                        count.fetch_add(1, Ordering::SeqCst);
                        match std::fs::remove_dir_all(&dir) {
                            // There was no space for the directory itself.
                            Err(e) if e.kind() == ErrorKind::NotFound => {}
                            other => other?,
                        }
                    }
                    other => return other,
                }
            }
            Ok(())
        });
        Self {
            filled,
            stop,
            thread,
        }
    }

    fn filled(&self) -> u64 {
        self.filled.load(Ordering::SeqCst)
    }

    /// Ends it after the kill. How often the room was full, or why it ended before.
    fn end(self) -> Result<u64, String> {
        self.stop.store(true, Ordering::SeqCst);
        let gone = [
            Errno::NOTCONN,
            Errno::CONNABORTED,
            Errno::IO,
            Errno::CANCELED,
        ]
        .map(|e| e.raw_os_error());
        match self.thread.join().unwrap() {
            Err(e) if !e.raw_os_error().is_some_and(|e| gone.contains(&e)) => {
                Err(format!("filling and emptying the room: {e}"))
            }
            _ => Ok(self.filled.load(Ordering::SeqCst)),
        }
    }
}

/// Writes until there is an error.
fn fill(dir: &Path, piece: &[u8]) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    for number in 0.. {
        let mut file = File::create(dir.join(number.to_string()))?;
        file.write_all(piece)?;
        file.sync_all()?;
    }
    Ok(())
}
