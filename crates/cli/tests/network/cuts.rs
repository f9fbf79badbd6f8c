//! The network cut between any two, for a while, under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::cluster::{Cluster, SERVER, Shape, client, disk};
use super::process::TIMEOUT;
use super::{number, seed};

/// Seconds of a cut in `make test`: longer than the leases of this test's cluster.
const SECONDS: u64 = 10;

#[test]
fn a_cut_between_any_two_loses_nothing_and_hangs_nobody() {
    let seed = seed();
    let time = Duration::from_secs(number("STRONGROOM_NET_CUT_SECONDS").unwrap_or(SECONDS));
    let Some(mut cluster) = Cluster::start(Shape::default()) else {
        return;
    };
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
        // Somebody asks meanwhile, again and again: each call ends, at the latest soon after the two see each other again.
        let (said, heard) = std::sync::mpsc::channel();
        let joined = Arc::new(AtomicBool::new(false));
        let (over, at) = (joined.clone(), cluster.mountpoint(round as usize % 2));
        let asking = std::thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                let _ = std::fs::read_dir(&at).map(Iterator::count);
                std::thread::sleep(Duration::from_millis(100));
            }
            let last = std::fs::read_dir(&at).map(Iterator::count);
            let _ = said.send(last);
        });
        std::thread::sleep(time);
        cluster.net.join(&one, &other);
        joined.store(true, Ordering::SeqCst);
        match heard.recv_timeout(TIMEOUT * 2) {
            Ok(last) => assert!(last.is_ok(), "{story}: afterwards: {last:?}"),
            Err(_) => panic!("{story}: a call hangs"),
        }
        asking.join().unwrap();
        for writer in &mut writers {
            writer.goes_on(10);
        }
        for (number, writer) in writers.into_iter().enumerate() {
            let recorded = writer.stop();
            eprintln!(
                "{story}: writer {number}: {} operations, {} durable, errors {:?}",
                recorded.0.len(),
                recorded.acknowledged(),
                recorded.errors()
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
            panic!("seed {seed}, after everything was restarted: {why}");
        }
    }
}
