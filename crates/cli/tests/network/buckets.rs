//! Disks whose blocks are in a bucket: killed, and gone on with elsewhere, under load.

use std::time::Duration;

use rustix::process::Signal;

use super::cluster::{Cluster, SPARE, Shape, disk};
use super::common::noise;
use super::common::random::number;
use super::common::setting::versitygw;
use super::process::TIMEOUT;
use super::seed;
use fastrand::Rng;

/// Kills in `make test`.
const ROUNDS: u64 = 4;
/// The latest kill, milliseconds after everybody was at work.
const LATEST_MS: u64 = 700;

fn cluster() -> Option<Cluster> {
    versitygw()?;
    Cluster::start(Shape {
        in_bucket: true,
        ..Shape::default()
    })
}

fn judge(cluster: &Cluster, seed: u64, story: &str) {
    for (writer, through) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        if let Err(why) = cluster.judge(seed, writer, through, true) {
            panic!("{story}: {why}");
        }
    }
}

#[test]
fn a_killed_disk_goes_on_with_another_cache_and_nothing_acknowledged_is_lost() {
    let Some(mut cluster) = cluster() else {
        return;
    };
    let seed = seed();
    let rounds = number("STRONGROOM_NET_ROUNDS").unwrap_or(ROUNDS);
    let mut random = Rng::with_seed(seed);
    let marker = noise(64 << 10, seed);
    std::fs::write(cluster.mountpoint(0).join("marker"), &marker).unwrap();
    for round in 0..rounds {
        let moment = Duration::from_millis(5 + random.u64(..LATEST_MS));
        let (killed, down) = (round as usize % 2, random.u64(..1500));
        let elsewhere = round % 4 != 1;
        let story = format!(
            "seed {seed}, round {round}: disk {killed} killed after {moment:?}, another cache: {elsewhere}"
        );
        let mut writers: Vec<_> = (0..2)
            .map(|client| cluster.start_writer(client, seed, round))
            .collect();
        for writer in &mut writers {
            writer.goes_on(5);
        }
        std::thread::sleep(moment);
        cluster.kill_disk(killed);
        std::thread::sleep(Duration::from_millis(down));
        match elsewhere {
            true => assert!(cluster.take_disk_over(killed, &disk(killed)).is_none()),
            // The same cache: nobody else can have it.
            false => cluster.start_disk(killed),
        }
        for writer in &mut writers {
            writer.goes_on(10);
        }
        for writer in writers {
            let recorded = writer.stop();
            eprintln!(
                "{story}: {} operations, {} durable, errors {:?}",
                recorded.0.len(),
                recorded.acknowledged(),
                recorded.errors()
            );
            assert!(
                recorded.errors().is_empty(),
                "{story}: {:?}",
                recorded.errors()
            );
        }
        judge(&cluster, seed, &story);
    }
    cluster.restart_all();
    judge(&cluster, seed, "after everything was restarted");
    let kept = std::fs::read(cluster.mountpoint(1).join("marker")).unwrap();
    assert!(kept == marker);
    // What was written, anywhere: not as it was, and not the server's names.
    for place in ["store", "disk0.cache0", "disk1.cache1"] {
        assert!(
            !cluster.is_in_files(place, &marker[..32]),
            "plaintext in {place}"
        );
        assert!(!cluster.is_in_files(place, b"marker"), "a name in {place}");
    }
    cluster.check_audit();
}

#[test]
fn a_disk_that_slept_while_another_took_its_place_ends_without_an_answer() {
    let Some(mut cluster) = cluster() else {
        return;
    };
    let seed = seed();
    let mut writers: Vec<_> = (0..2)
        .map(|client| cluster.start_writer(client, seed, 0))
        .collect();
    for writer in &mut writers {
        writer.goes_on(5);
    }
    cluster.disk(0).signal(Signal::STOP);
    let mut asleep = cluster.take_disk_over(0, SPARE).expect("it is only asleep");
    for writer in &mut writers {
        writer.goes_on(20);
    }
    asleep.signal(Signal::CONT);
    let ended = asleep.wait(TIMEOUT).expect("it ends by itself");
    assert_eq!(ended.code(), Some(4), "{}", asleep.said());
    let said = asleep.said();
    assert!(said.contains("another writer has taken over"), "{said}");
    for writer in &mut writers {
        writer.goes_on(5);
    }
    for writer in writers {
        let recorded = writer.stop();
        assert!(recorded.errors().is_empty(), "{:?}", recorded.errors());
    }
    judge(&cluster, seed, "after a take-over");
    cluster.restart_all();
    judge(&cluster, seed, "after everything was restarted");
}
