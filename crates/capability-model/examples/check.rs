//! Checks the protocol with every rule, within bounds, and says how many states there were.
//!
//!     cargo run --release -p strongroom-capability-model --example check -- secure 2 2 1 1 1 1
//!
//! The numbers: requests of the honest client, requests of the metadata server, the attacker's forgeries, restarts of the disk, ends
//! of epochs, steps of time.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use capability_model::{Bounds, Protocol, Setup};
use stateright::{Checker, DiscoveryClassification, Model};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let setup = match arguments.next().as_deref() {
        Some("secure") => Setup::Secure,
        Some("private") => Setup::Private,
        _ => return usage(),
    };
    let numbers: Vec<u8> = arguments.filter_map(|text| text.parse().ok()).collect();
    let [requests, orders, forgeries, restarts, epochs, ticks] = numbers[..] else {
        return usage();
    };
    let bounds = Bounds {
        requests,
        orders,
        forgeries,
        restarts,
        epochs,
        ticks,
    };
    let began = Instant::now();
    let checker = Protocol::new(setup, bounds)
        .checker()
        .threads(2)
        .timeout(Duration::from_secs(3600))
        .spawn_bfs()
        .join();
    let whole = if checker.is_done() {
        "all"
    } else {
        "stopped after"
    };
    println!(
        "{setup:?}, {bounds:?}: {whole} {} states, {} s",
        checker.unique_state_count(),
        began.elapsed().as_secs()
    );
    let failed: Vec<_> = checker
        .discoveries()
        .into_iter()
        .filter(|(name, _)| {
            matches!(
                checker.discovery_classification(name),
                DiscoveryClassification::Counterexample
            )
        })
        .collect();
    for (name, attack) in &failed {
        println!("FAILED: {name}");
        for action in attack.clone().into_actions() {
            println!("    {action:?}");
        }
    }
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn usage() -> ExitCode {
    eprintln!("check secure|private REQUESTS ORDERS FORGERIES RESTARTS EPOCHS TICKS");
    ExitCode::from(2)
}
