//! The serving process killed at random moments, under load from several processes.
//!
//! Each round the room is mounted by a child of its own; writers, each a process, work on it and keep a journal outside it of
//! the answers that they got; at a random moment the child is killed. Then the room must open by itself and hold exactly what
//! it may hold, which `judge` decides by a model that follows the same plan; a check that reads every unit must find nothing.
//! The next round goes on with what was found.
//!
//! A round may also kill the process while it opens the room after the last kill, or while it ends; have a compaction,
//! a check, a sync, a change of keys or a rekey going on; or kill such a command at work on a room that is not mounted.
//!
//! [`full`] kills in a room without space. There, the writers and the judge are those of the trials of shared storage, because they know that
//! an operation may fail.
//!
//! `STRONGROOM_KILL_ROUNDS` and `STRONGROOM_SEED` set rounds and seed. The seed decides what is done and when the kill
//! comes, though not how far the writers were by then.
#![allow(missing_docs, unreachable_pub)]

mod attend;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod full;
mod journal;
mod judge;
mod model;
#[path = "../network/pages.rs"]
mod pages;
mod plan;
mod room;
#[allow(dead_code)]
#[path = "../network/story.rs"]
mod story;
#[path = "../network/writer.rs"]
mod versions;
mod writer;

use std::time::{Duration, Instant};

use attend::Attendant;
use common::Sandbox;
use common::random::{choices, number, seed};
use common::setting::{by_the_kernel, through_fusermount3};
use journal::{Journaled, now};
use judge::{Found, judge, one_moment};
use model::Tree;
use room::Place;
use writer::Orders;

/// Rounds in `make test`, of a mount by the kernel directly and through `fusermount3`.
const ROUNDS: u64 = 8;
const ROUNDS_ELSEWHERE: u64 = 4;
const WRITERS: u64 = 4;
/// The latest kill, in milliseconds after all writers were at work.
const LATEST_MS: u64 = 250;

/// Not a test: what the test below starts as its writers.
#[test]
#[ignore = "a part of the other test, which starts it"]
fn writer_process() {
    if let Some(orders) = room::orders() {
        writer::work(&orders);
    }
}

/// How a round ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Killed,
    /// Signalled to end, and killed meanwhile.
    KilledEnding,
    /// And once more while the room is opened again.
    KilledTwice,
}

#[test]
fn what_was_acknowledged_survives_a_kill_at_any_moment() {
    by_the_kernel(|s| trial(s, ROUNDS));
}

#[test]
fn what_was_acknowledged_survives_a_kill_of_a_mount_through_fusermount3() {
    through_fusermount3(|s| trial(s, ROUNDS_ELSEWHERE));
}

fn trial(sandbox: Sandbox, rounds: u64) {
    let seed = seed();
    let rounds = number("STRONGROOM_KILL_ROUNDS").unwrap_or(rounds);
    eprintln!("seed {seed}: repeat with STRONGROOM_SEED={seed} STRONGROOM_KILL_ROUNDS={rounds}");
    let mut place = Place::new(sandbox);
    let began = Instant::now();
    let (mut ops, mut acknowledged, mut kills) = (0, 0, 0);
    place.start();
    let mut trees = place.make_roots(WRITERS);
    for round in 0..rounds {
        let mut random = choices(seed, round, 0);
        let moment = Duration::from_millis(5 + random.u64(..LATEST_MS));
        let end = match random.u64(..8) {
            0 => End::KilledEnding,
            1 | 2 => End::KilledTwice,
            _ => End::Killed,
        };
        let attendant = Attendant::draw(&mut random);
        let story = format!(
            "seed {seed}, round {round}: {attendant:?} alongside, {end:?} after {moment:?}"
        );
        let mut writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                place.start_writer(&Orders {
                    root: place.mountpoint(),
                    journal: place.journal(writer),
                    seed,
                    round,
                    writer,
                })
            })
            .collect();
        let attending = place.attend(attendant);
        place.await_writers(WRITERS);
        std::thread::sleep(moment);
        attending.stop();
        let killed = now();
        if end == End::KilledEnding {
            place.signal_end();
            std::thread::sleep(Duration::from_millis(random.u64(..30)));
        }
        place.kill();
        let gone = now();
        place.end_writers(&mut writers, &story);
        let mut floor = attending.last_sync();
        place.detach();
        kills += 1;
        if end == End::KilledTwice {
            place.start_and_kill(Duration::from_millis(random.u64(..40)));
            kills += 1;
        }
        if random.u64(..6) == 0 {
            kills += place.kill_a_command(&mut random);
        }
        place.keep_copy();
        if random.u64(..4) == 0 {
            place.check_unmounted(&story);
        }
        place.start();
        let mut all: Vec<Found> = Vec::new();
        for (writer, base) in (0..WRITERS).zip(&mut trees) {
            let found = Tree::read(&place.mountpoint(), writer);
            let journal = Journaled::read(&place.journal(writer));
            let this = judge::Round {
                seed,
                round,
                writer,
                base,
                journal: &journal,
                killed,
                gone,
            };
            let judged = judge(this, &found)
                .unwrap_or_else(|why| place.fail(&format!("{story}, writer {writer}: {why}")));
            floor = floor.max(judged.floor);
            (ops, acknowledged) = (ops + judged.ops, acknowledged + judged.acknowledged);
            all.push(judged);
            *base = found;
        }
        if !one_moment(&all, floor) {
            place.fail(&format!(
                "{story}: the writers' files are not of one moment after {floor}: {all:#?}"
            ));
        }
        place.check_mounted(&story);
        if round % 100 == 99 {
            eprintln!(
                "{} rounds, {:.2} a second",
                round + 1,
                (round + 1) as f64 / began.elapsed().as_secs_f64()
            );
        }
    }
    place.end(&trees);
    eprintln!(
        "{rounds} rounds, {kills} kills, {ops} operations, {acknowledged} acknowledged as durable: nothing lost, nothing mixed; \
         {:.2} rounds a second",
        rounds as f64 / began.elapsed().as_secs_f64()
    );
    // In a few rounds on a slow machine it may be that no kill comes after a sync; in many it may not.
    assert!(
        rounds < 100 || acknowledged > rounds,
        "too little was acknowledged"
    );
}
