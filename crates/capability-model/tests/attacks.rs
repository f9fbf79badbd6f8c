//! With every rule no property fails; without one, the checker finds the attack that the rule is there for.

use std::collections::BTreeSet;

use capability_model::{Bounds, Check, Protocol, Setup};
use stateright::{Checker, HasDiscoveries, Model};

const FORGED: &str = "a block is written only by a holder of its grant";
const REPEATED: &str = "a request acts at most once";
const LATE: &str = "a request acts only in the epoch in which it was signed, or in the next";
const REVOKED: &str = "nothing acts after its revocation has returned";
const MANAGED: &str = "only the metadata server manages the disk";
const ORDER: &str = "the metadata server's changes act in the order in which they were signed";
const MISREAD: &str = "a reader gets what the disk had while it read";
const SEEN: &str = "nobody sees which blocks are used";
const LEARNT: &str = "Eve learns no secret of Alice's";

const NONE: Bounds = Bounds {
    requests: 0,
    orders: 0,
    forgeries: 0,
    restarts: 0,
    epochs: 0,
    ticks: 0,
};

/// What each rule is there for, with the least that the attack needs.
fn attacks(setup: Setup) -> Vec<(Check, &'static str, Bounds)> {
    let forgery = Bounds {
        forgeries: 1,
        ..NONE
    };
    let revocation = Bounds {
        requests: 1,
        orders: 1,
        ..NONE
    };
    let expiry = Bounds {
        requests: 1,
        ticks: 2,
        ..NONE
    };
    let restart = Bounds {
        orders: 2,
        forgeries: 1,
        restarts: 1,
        ..NONE
    };
    let repeated = Bounds {
        orders: 3,
        restarts: 1,
        ..NONE
    };
    let both = [
        (Check::RequestMac, FORGED, forgery),
        (Check::Coverage, FORGED, forgery),
        (Check::Mode, FORGED, forgery),
        (Check::SecretsInTls, FORGED, forgery),
        (Check::ManagementKey, MANAGED, forgery),
        (Check::Revocation, REVOKED, revocation),
        (Check::SecondLook, REVOKED, revocation),
        (Check::Drain, REVOKED, revocation),
        (Check::Group, REVOKED, restart),
        (Check::FreshGroup, REVOKED, restart),
        (Check::Sequence, ORDER, repeated),
        (Check::Expiry, REVOKED, expiry),
        (Check::SteadyClock, REVOKED, expiry),
        (Check::ExpiryMargin, REVOKED, expiry),
    ];
    // TLS stops these in the private set-up already.
    let secure = [
        (
            Check::PayloadTag,
            FORGED,
            Bounds {
                requests: 1,
                ..forgery
            },
        ),
        (
            Check::ReplayFilter,
            REPEATED,
            Bounds {
                requests: 1,
                ..NONE
            },
        ),
        (
            Check::Epoch,
            REPEATED,
            Bounds {
                requests: 1,
                epochs: 2,
                ..NONE
            },
        ),
        (
            Check::Boot,
            LATE,
            Bounds {
                orders: 1,
                restarts: 1,
                ..NONE
            },
        ),
        (
            Check::SignedReplies,
            LATE,
            Bounds {
                requests: 2,
                epochs: 2,
                ..forgery
            },
        ),
        (
            Check::ReplyNonce,
            MISREAD,
            Bounds {
                requests: 3,
                ..NONE
            },
        ),
    ];
    let private = [
        (
            Check::MessagesInTls,
            SEEN,
            Bounds {
                requests: 1,
                ..NONE
            },
        ),
        (
            Check::Certificate,
            SEEN,
            Bounds {
                requests: 1,
                ..NONE
            },
        ),
    ];
    match setup {
        Setup::Secure => both.into_iter().chain(secure).collect(),
        Setup::Private => both.into_iter().chain(private).collect(),
    }
}

fn attack_is_found(setup: Setup, check: Check, property: &'static str, bounds: Bounds) {
    let checker = Protocol::new(setup, bounds)
        .without(check)
        .checker()
        .finish_when(HasDiscoveries::AllOf(BTreeSet::from([property])))
        .spawn_bfs()
        .join();
    let attack = checker.discovery(property);
    println!(
        "{setup:?} without {check:?}: {} states",
        checker.unique_state_count()
    );
    let attack = attack.unwrap_or_else(|| {
        panic!("{setup:?} without {check:?}: nothing found against: {property}")
    });
    for action in attack.into_actions() {
        println!("    {action:?}");
    }
}

#[test]
fn each_rule_of_the_secure_set_up_stops_an_attack() {
    for (check, property, bounds) in attacks(Setup::Secure) {
        attack_is_found(Setup::Secure, check, property, bounds);
    }
}

#[test]
fn each_rule_of_the_private_set_up_stops_an_attack() {
    for (check, property, bounds) in attacks(Setup::Private) {
        attack_is_found(Setup::Private, check, property, bounds);
    }
}

#[test]
fn with_every_rule_nothing_is_found() {
    let most = Bounds {
        requests: 1,
        orders: 1,
        forgeries: 1,
        restarts: 1,
        epochs: 1,
        ticks: 1,
    };
    for setup in [Setup::Secure, Setup::Private] {
        let reads = Bounds {
            requests: 3,
            ..NONE
        };
        let changes = Bounds {
            orders: 4,
            restarts: 1,
            ..NONE
        };
        for bounds in [most, reads, changes] {
            let checker = Protocol::new(setup, bounds).checker().spawn_bfs().join();
            println!(
                "{setup:?}, {bounds:?}: {} states",
                checker.unique_state_count()
            );
            for property in [
                FORGED, REPEATED, LATE, REVOKED, MANAGED, ORDER, MISREAD, SEEN, LEARNT,
            ] {
                checker.assert_no_discovery(property);
            }
        }
    }
}

/// A model in which nothing can happen would have every property.
#[test]
fn what_the_protocol_is_for_is_reached() {
    let bounds = Bounds {
        requests: 2,
        orders: 2,
        restarts: 1,
        ..NONE
    };
    let wanted = [
        "a revocation returns while the disk runs",
        "a write succeeds after a restart",
        "a read succeeds",
    ];
    for setup in [Setup::Secure, Setup::Private] {
        let checker = Protocol::new(setup, bounds)
            .checker()
            .finish_when(HasDiscoveries::AllOf(BTreeSet::from(wanted)))
            .spawn_bfs()
            .join();
        for property in wanted {
            checker.assert_any_discovery(property);
        }
    }
}
