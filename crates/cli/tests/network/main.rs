//! Shared storage with the real program: disks, a metadata server and clients, each a process on a machine of its own (a
//! network namespace where the tests run as root, else this machine).
//!
//! What is acknowledged is judged by [`story`]: each writer is a process that journals, outside the mount, what it began and the
//! answers that it got; the state found later, through either client and after everything was restarted, must be between the two.
//!
//! `STRONGROOM_NET_ROUNDS` and `STRONGROOM_SEED` set rounds and seed of the trials, `STRONGROOM_NET_CUT_SECONDS` how long the
//! network is cut; `scripts/soak/network.sh` sets them higher.
#![allow(missing_docs, unreachable_pub)]

mod audit;
mod backup;
mod buckets;
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod copies;
mod cuts;
mod kills;
mod limits;
mod measuring;
mod names;
mod net;
mod pages;
mod removal;
mod renewal;
mod replicas;
mod sharing;
mod snapshots;
mod story;
mod writer;

use common::process;
use common::random::{self, number};

/// The variable through which a process of this program becomes a writer.
const ORDERS: &str = "STRONGROOM_NET_WRITER";

/// Not a test: what the trials start as their writers.
#[test]
#[ignore = "a part of other tests, which start it"]
fn writer_process() {
    if let Ok(line) = std::env::var(ORDERS)
        && let Err(why) = writer::work(&writer::Orders::parse(&line))
    {
        panic!("{why}");
    }
}

/// The seed of a trial; printed, and set to run it again.
fn seed() -> u64 {
    let seed = random::seed();
    eprintln!("seed {seed}: repeat with STRONGROOM_SEED={seed}");
    seed
}
