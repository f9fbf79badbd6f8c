//! Sender, receiver, their pipe and commands on snapshots killed at random moments and bytes.
//!
//! Each round changes a room a little, starts one command on it or on its replica, and kills one of the processes. Then the room and
//! the replica are opened by the library: each must be one whole moment that there was, with sound snapshots, and all of its
//! data must be readable. The replica never goes back. Often the command then runs once more, to its end: it must succeed, and
//! the replica must be what the room is.
//!
//! `STRONGROOM_KILLS` and `STRONGROOM_SEED` set the number of kills and the seed. The seed decides what is done and which part of
//! a command's usual time passes before the kill.
#![allow(unreachable_pub)]

mod act;
mod place;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::common::random::{choices, number, seed};
use act::{Act, Victim};
use place::Place;

/// Kills in `make test`.
const KILLS: u64 = 24;

#[test]
fn what_a_kill_leaves_of_room_and_replica_is_one_moment() {
    let seed = seed();
    let kills = number("STRONGROOM_KILLS").unwrap_or(KILLS);
    eprintln!("seed {seed}: repeat with STRONGROOM_SEED={seed} STRONGROOM_KILLS={kills}");
    let began = Instant::now();
    let mut place = Place::new(seed);
    let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let (mut done, mut round, mut ended) = (0, 0, 0);
    while done < kills {
        let mut random = choices(seed, round, 1);
        let (act, victim) = Act::draw(&mut random, place.can_mount);
        place.story = format!("seed {seed}, round {round}: {act:?}, {victim:?} killed");
        place.change(&mut random);
        let killed = place.act(act, victim, &mut random);
        place.verify();
        // What was killed goes on, or begins again; and the replica is not left behind for long.
        if random.u64(..3) == 0 {
            place.act(act, Victim::None, &mut random);
            place.verify();
            ended += 1;
        }
        if act.sends() && random.u64(..6) == 0 {
            place.catch_up();
        }
        let count = counts.entry(format!("{act:?}, {victim:?}")).or_default();
        count.0 += u64::from(killed);
        count.1 += 1;
        done += u64::from(killed);
        round += 1;
        assert!(
            round < 20 * kills + 100,
            "commands end before they are killed"
        );
        if round % 100 == 0 {
            eprintln!("{round} rounds, {done} kills, {:?}", began.elapsed());
        }
    }
    place.catch_up();
    for (what, (killed, rounds)) in counts {
        eprintln!("{killed:5} kills in {rounds:5} rounds: {what}");
    }
    let seconds = began.elapsed().max(Duration::from_millis(1)).as_secs_f64();
    eprintln!(
        "{done} kills in {round} rounds, {ended} commands run again to their end, {:.2} kills a second; moments of the replica: {}",
        done as f64 / seconds,
        place.moments_seen()
    );
}
