//! Anything at all on the wire: the disk goes on, its blocks stay, its memory does not grow.

mod common;

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use common::raw::{self, Request, boot_and_epoch};
use common::{BLOCKS, Disk};
use device::MemoryDevice;
use fastrand::Rng;
use netdisk::server::Config;
use netdisk::*;

/// Resident bytes of this process.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// A request with something wrong in it, or one that was done before; where the next message begins stays clear.
fn mutated(random: &mut Rng, good: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = good[random.usize(..good.len())].clone();
    // Operation, lengths and range stay: the head must parse, so that what follows is judged.
    let mut somewhere = |random: &mut Rng| {
        let at = random.usize(..bytes.len() - 24);
        let at = if at < 48 { at + 8 } else { at + 24 };
        bytes[at] ^= random.u8(..);
    };
    match random.usize(..8) {
        0 => (),
        1..=3 => somewhere(random),
        4..=6 => (0..=random.usize(..20)).for_each(|_| somewhere(random)),
        _ => random.fill(&mut bytes[8..56]),
    }
    bytes
}

/// Something that is no message, or not a whole one.
fn nonsense(random: &mut Rng, good: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = good[random.usize(..good.len())].clone();
    match random.usize(..4) {
        0 => {
            let len = random.usize(..600);
            bytes = vec![0; len];
            random.fill(&mut bytes);
        }
        1 => bytes.truncate(random.usize(..bytes.len())),
        2 => bytes.insert(random.usize(..raw::HEAD), random.u8(..)),
        _ => random.fill(&mut bytes[4..72]),
    }
    bytes
}

fn anything_at_all(messages: usize, seed: u64) {
    println!("seed {seed}");
    let disk = Disk::with(
        Arc::new(MemoryDevice::new(4 << 20)),
        Config {
            first_request_max: Duration::from_secs(2),
            transfer_max: Duration::from_secs(2),
            ..Config::default()
        },
    );
    disk.admin().set_groups(&[GroupId(1)]).unwrap();
    let to = disk.server.local_addr();
    let capability = disk.capability(1, Mode::ReadWrite, &[(0, 8), (100, 8)]);
    let ticket = disk.ticket(1, Mode::ReadWrite, &[(0, 8), (100, 8)]);
    disk.client().write(&ticket, 0, &[7; 8 * 4096]).unwrap();
    let before = disk.contents();
    let at = boot_and_epoch(to, &capability);
    // Originals that were done once, so that an unchanged copy is a replay and changes nothing either.
    let good: Vec<Vec<u8>> = [
        Request::write(&capability, at, 0, vec![7; 4096]),
        Request::read(&capability, at, 1, 2),
        Request::new(raw::FLUSH, &capability, at),
        Request::management(raw::STATUS, at, Vec::new()),
        Request::set_groups(at, 1, &[1]),
    ]
    .iter()
    .map(|request| {
        let bytes = request.bytes();
        let replies = raw::send_all(to, &bytes);
        assert_eq!(replies[0].reason(), None);
        bytes
    })
    .collect();

    let mut random = Rng::with_seed(seed);
    let mut sent = 0;
    let mut baseline = None;
    while sent < messages {
        let mut socket = raw::connect(to);
        // Several on a connection; then what the disk ends it for.
        let mut all = Vec::new();
        let some = 1 + random.usize(..40);
        for _ in 0..some {
            all.extend(mutated(&mut random, &good));
        }
        all.extend(nonsense(&mut random, &good));
        sent += some + 1;
        let _ = socket.write_all(&all);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut replies = Vec::new();
        let _ = socket.read_to_end(&mut replies);
        if sent > messages / 4 && baseline.is_none() {
            baseline = Some(resident());
        }
    }
    let grown = resident().saturating_sub(baseline.unwrap());
    println!("{sent} messages, {} KiB more resident", grown >> 10);
    assert!(grown < 32 << 20, "{grown} bytes more");
    assert!(disk.contents() == before, "blocks were changed");
    assert_eq!(disk.admin().status().unwrap().groups, [GroupId(1)]);
    let metrics = disk.server.metrics();
    println!("{:?}", metrics.refused);
    let judged: u64 = metrics.refused.iter().map(|(_, count)| count).sum();
    assert!(
        judged > messages as u64 * 9 / 10,
        "only {judged} were judged"
    );
    for reason in [
        Reason::Malformed,
        Reason::StaleBoot,
        Reason::StaleEpoch,
        Reason::NotAuthentic,
        Reason::Replayed,
    ] {
        assert!(metrics.refused_for(reason) > 0, "never {}", reason.name());
    }
    // It still does what it should.
    let all = disk.ticket(2, Mode::ReadWrite, &[(0, BLOCKS)]);
    disk.client().write(&all, 50, &[9; 4096]).unwrap();
    disk.client().flush(&all).unwrap();
}

#[test]
fn a_hundred_thousand_random_messages_change_nothing() {
    anything_at_all(100_000, 0x5EED_0001);
}

#[test]
#[ignore = "a minute: for the soak"]
fn a_million_random_messages_change_nothing() {
    anything_at_all(1_000_000, 0x5EED_0002);
}
