//! Idle, slow and too many peers, and what they cost.

use crate::common;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use crate::common::raw::{self, Request, boot_and_epoch, connect, take};
use crate::common::{BLOCKS, Disk};
use device::MemoryDevice;
use netdisk::server::Config;
use netdisk::*;

/// A limit that is waited for; on a busy machine, an honest request still takes less.
const SHORT: Duration = Duration::from_secs(1);

fn disk(config: Config) -> Disk {
    let disk = Disk::with(Arc::new(MemoryDevice::new(4 << 20)), config);
    disk.admin().set_groups(&[GroupId(1)]).unwrap();
    disk
}

/// Waits for the end of a connection. A disk that does not end it fails the test by the socket's own timeout.
fn ends(mut socket: std::net::TcpStream) {
    let mut rest = Vec::new();
    match socket.read_to_end(&mut rest) {
        Ok(_) => (),
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => (),
        Err(e) => panic!("the connection did not end: {e}"),
    }
}

/// Waits for something that happens soon.
fn until(happened: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !happened() {
        assert!(start.elapsed() < common::LONG);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn who_says_nothing_or_half_of_something_is_cut_off() {
    let disk = disk(Config {
        first_request_max: SHORT,
        transfer_max: SHORT,
        ..Config::default()
    });
    let to = disk.server.local_addr();
    ends(connect(to));
    let mut socket = connect(to);
    socket.write_all(b"SNDq").unwrap();
    ends(socket);
    // One that was authentic, and then stops in the middle of a payload.
    let capability = disk.capability(1, Mode::ReadWrite, &[(0, 8)]);
    let at = boot_and_epoch(to, &capability);
    let request = Request::write(&capability, at, 0, vec![1; 8192]);
    let mut socket = connect(to);
    let bytes = request.bytes();
    socket.write_all(&bytes[..bytes.len() - 1]).unwrap();
    ends(socket);
    assert_eq!(disk.contents()[..8192], [0; 8192]);
    assert!(disk.server.metrics().connections_cut >= 3);
}

#[test]
fn a_handshake_that_never_ends_is_cut_off() {
    let disk = disk(Config {
        protection: Protection::Private,
        first_request_max: SHORT,
        ..Config::default()
    });
    ends(connect(disk.server.local_addr()));
    // A record of TLS that announces 16 KiB, of which a byte comes now and then.
    let mut socket = connect(disk.server.local_addr());
    let mut bytes = vec![22, 3, 1, 0x40, 0];
    bytes.resize(1000, 1);
    let mut cut = false;
    for byte in bytes {
        cut = socket.write_all(&[byte]).is_err();
        if cut {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(cut);
}

#[test]
fn an_authenticated_client_may_be_idle() {
    let disk = disk(Config {
        first_request_max: SHORT,
        transfer_max: SHORT,
        ..Config::default()
    });
    let to = disk.server.local_addr();
    let capability = disk.capability(1, Mode::ReadWrite, &[(0, 8)]);
    let at = boot_and_epoch(to, &capability);
    let mut socket = connect(to);
    for _ in 0..2 {
        let request = Request::read(&capability, at, 0, 1);
        let reply = raw::ask(&mut socket, &request.bytes()).unwrap();
        assert_eq!(reply.reason(), None);
        // Longer than both limits.
        std::thread::sleep(SHORT * 2);
    }
}

#[test]
fn who_does_not_take_his_replies_is_cut_off_and_others_are_served() {
    let disk = disk(Config {
        transfer_max: SHORT,
        payload_bytes_max: 1 << 20,
        ..Config::default()
    });
    let to = disk.server.local_addr();
    let capability = disk.capability(1, Mode::Read, &[(0, BLOCKS)]);
    let at = boot_and_epoch(to, &capability);
    let mut greedy = connect(to);
    for _ in 0..64 {
        let request = Request::read(&capability, at, 0, 256);
        if greedy.write_all(&request.bytes()).is_err() {
            break;
        }
    }
    let ticket = disk.ticket(2, Mode::Read, &[(0, BLOCKS)]);
    let mut out = vec![1; 1 << 20];
    disk.client().read(&ticket, 0, &mut out).unwrap();
    assert!(out.iter().all(|byte| *byte == 0));
    // The kernel may drop such a connection without a word to the peer: what counts is that its place is free.
    until(|| disk.server.metrics().connections == 0);
    drop(greedy);
}

#[test]
fn no_more_connections_are_taken_than_allowed_and_a_place_is_free_again_afterwards() {
    let disk = disk(Config {
        connections_max: 2,
        ..Config::default()
    });
    let to = disk.server.local_addr();
    let capability = disk.capability(1, Mode::Read, &[(0, 8)]);
    until(|| disk.server.metrics().connections == 0);
    let at = boot_and_epoch(to, &capability);
    until(|| disk.server.metrics().connections == 0);
    let ask = |socket: &mut std::net::TcpStream| {
        let request = Request::read(&capability, at, 0, 1);
        let _ = socket.write_all(&request.bytes());
        take(socket).map(|reply| reply.reason())
    };
    let (mut one, mut two) = (connect(to), connect(to));
    assert_eq!(ask(&mut one), Some(None));
    assert_eq!(ask(&mut two), Some(None));
    let mut three = connect(to);
    assert_eq!(ask(&mut three), Some(Some(Reason::Busy)));
    assert_eq!(disk.server.metrics().connections_refused, 1);
    drop((one, three));
    until(|| disk.server.metrics().connections <= 1);
    assert_eq!(ask(&mut connect(to)), Some(None));
}
