//! Kill -9 of a client, of the metadata server, of a disk, at random moments under load.

use std::time::Duration;

use super::cluster::{Cluster, Shape, Writer};
use super::{number, seed};
use fastrand::Rng;

/// Rounds in `make test`.
const ROUNDS: u64 = 6;
/// The latest kill, milliseconds after everybody was at work.
const LATEST_MS: u64 = 700;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Client(usize),
    Server,
    Disk(usize),
    /// The server and a disk at once.
    ServerAndDisk(usize),
}

impl Victim {
    fn draw(random: &mut Rng, round: u64) -> Self {
        let of_two = random.usize(..2);
        // The first rounds have one of each, so that a few rounds say something.
        match if round < 3 { round } else { random.u64(..7) } {
            0 | 3 => Self::Server,
            1 | 4 => Self::Disk(of_two),
            2 | 5 => Self::Client(of_two),
            _ => Self::ServerAndDisk(of_two),
        }
    }
}

#[test]
fn what_was_acknowledged_survives_a_kill_of_anybody_at_any_moment() {
    let seed = seed();
    let rounds = number("STRONGROOM_NET_ROUNDS").unwrap_or(ROUNDS);
    let Some(mut cluster) = Cluster::start(Shape::default()) else {
        return;
    };
    let mut random = Rng::with_seed(seed);
    for round in 0..rounds {
        let victim = Victim::draw(&mut random, round);
        let moment = Duration::from_millis(5 + random.u64(..LATEST_MS));
        let down = Duration::from_millis(random.u64(..1500));
        let story = format!(
            "seed {seed}, round {round}: {victim:?} killed after {moment:?}, back after {down:?}"
        );
        let mut writers: Vec<Option<Writer>> = (0..2)
            .map(|client| Some(cluster.start_writer(client, seed, round)))
            .collect();
        for writer in writers.iter_mut().flatten() {
            writer.goes_on(5);
        }
        std::thread::sleep(moment);
        if let Victim::Client(number) = victim {
            cluster.kill_client(number);
            writers[number].take().unwrap().abandoned();
            std::thread::sleep(down);
            cluster.start_client(number);
            judge(&cluster, seed, number, number, true, &story);
            writers[number] = Some(cluster.start_writer(number, seed, round));
        } else {
            if matches!(victim, Victim::Server | Victim::ServerAndDisk(_)) {
                cluster.kill_server();
            }
            if let Victim::Disk(number) | Victim::ServerAndDisk(number) = victim {
                cluster.kill_disk(number);
            }
            std::thread::sleep(down);
            if let Victim::Disk(number) | Victim::ServerAndDisk(number) = victim {
                cluster.start_disk(number);
            }
            if matches!(victim, Victim::Server | Victim::ServerAndDisk(_)) {
                cluster.start_server();
            }
        }
        for writer in writers.iter_mut().flatten() {
            writer.goes_on(10);
        }
        for (number, writer) in writers.into_iter().enumerate() {
            let recorded = writer.unwrap().stop();
            eprintln!(
                "{story}: writer {number}: {} operations, {} durable, errors {:?}",
                recorded.0.len(),
                recorded.acknowledged(),
                recorded.errors()
            );
            // Through both clients; the writers still run, so that everything that succeeded is there.
            judge(&cluster, seed, number, number, true, &story);
            judge(&cluster, seed, number, 1 - number, true, &story);
        }
    }
    cluster.restart_all();
    for writer in 0..2 {
        judge(
            &cluster,
            seed,
            writer,
            1 - writer,
            true,
            "after everything was restarted",
        );
    }
    cluster.check_audit();
}

fn judge(cluster: &Cluster, seed: u64, writer: usize, through: usize, lived: bool, story: &str) {
    if let Err(why) = cluster.judge(seed, writer, through, lived) {
        panic!("{story}: {why}");
    }
}
