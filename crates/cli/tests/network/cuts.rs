//! The network cut between any two, for a while, under load.

use std::time::{Duration, Instant};

use super::cluster::{Cluster, SERVER, Shape, client, disk};
use super::common::{can_mount, is_root};
use super::process::PATIENCE;
use super::{number, seed};

/// Seconds of a cut in `make test`: longer than the leases of this test's cluster.
const SECONDS: u64 = 10;

#[test]
fn a_cut_between_any_two_loses_nothing_and_hangs_nobody() {
    if !can_mount() || !is_root() {
        return;
    }
    let seed = seed();
    let time = Duration::from_secs(number("STRONGROOM_NET_CUT_SECONDS").unwrap_or(SECONDS));
    let mut cluster = Cluster::start(Shape::default());
    if !cluster.net.can_cut() {
        eprintln!("skipped: nothing can be cut here");
        return;
    }
    let pairs = [
        (client(0), disk(0)),
        (client(1), SERVER.to_owned()),
        (SERVER.to_owned(), disk(1)),
    ];
    for (round, (one, other)) in (0..).zip(pairs) {
        let story = format!("seed {seed}: {one} and {other} cut off for {time:?}");
        let mut writers: Vec<_> = (0..2)
            .map(|client| cluster.start_writer(client, seed, round))
            .collect();
        for writer in &mut writers {
            writer.goes_on(5);
        }
        cluster.net.cut(&one, &other);
        // Calls meanwhile end, one way or the other.
        let began = Instant::now();
        while began.elapsed() < time {
            let asked = Instant::now();
            let _ = std::fs::read_dir(cluster.mountpoint(round as usize % 2)).map(Iterator::count);
            assert!(asked.elapsed() < PATIENCE, "{story}: a call hung");
            std::thread::sleep(Duration::from_millis(100));
        }
        cluster.net.join(&one, &other);
        for writer in &mut writers {
            writer.goes_on(10);
        }
        for (number, writer) in writers.into_iter().enumerate() {
            let told = writer.stop();
            eprintln!(
                "{story}: writer {number}: {} operations, {} durable, errors {:?}",
                told.0.len(),
                told.acknowledged(),
                told.errors()
            );
            for through in 0..2 {
                if let Err(why) = cluster.judge(seed, number, through, false) {
                    panic!("{story}: {why}");
                }
            }
        }
    }
    cluster.restart_all();
    for writer in 0..2 {
        if let Err(why) = cluster.judge(seed, writer, 1 - writer, false) {
            panic!("seed {seed}, after everything was started anew: {why}");
        }
    }
}
