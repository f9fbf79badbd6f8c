//! Connections that keep others out: by their number, by doing nothing, and with what is not good any more.
//!
//! Each peer has a loopback address of its own, as machines in a network have.

use crate::common;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::raw::{self, Request, boot_and_epoch, connect};
use crate::common::{BLOCKS, Disk, LONG};
use device::MemoryDevice;
use netdisk::server::{Config, TimeSource};
use netdisk::*;
use rustix::net::{AddressFamily, SocketType};

/// Longer than a test: who is cut off is cut off for another reason.
const NEVER: Duration = Duration::from_secs(600);
/// A limit that is waited for; an honest request takes less on a busy machine too.
const CUT_OFF: Duration = Duration::from_secs(5);

fn disk(config: Config) -> Disk {
    let disk = Disk::with(Arc::new(MemoryDevice::new(4 << 20)), config);
    disk.admin().set_groups(&[GroupId(1)]).unwrap();
    disk
}

/// A connection from 127.0.0.`last`.
fn connect_from(last: u8, to: SocketAddr) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
    rustix::net::connect(&socket, &to).unwrap();
    let socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

/// Waits for something that happens soon.
fn until(happened: impl Fn() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_open(socket: &mut TcpStream) -> bool {
    socket.set_nonblocking(true).unwrap();
    let got = socket.read(&mut [0]);
    socket.set_nonblocking(false).unwrap();
    got.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
}

/// What a client and the metadata server do, each on a new connection.
fn others_are_served(disk: &Disk) {
    let mut out = vec![1; 4096];
    let ticket = disk.ticket(9, Mode::Read, &[(0, BLOCKS)]);
    disk.client().read(&ticket, 0, &mut out).unwrap();
    assert_eq!(disk.admin().status().unwrap().groups, [GroupId(1)]);
    disk.admin().revoke(GroupId(1), &[CapabilityId(8)]).unwrap();
}

#[test]
fn connections_that_say_nothing_give_way_to_others() {
    for protection in [Protection::Secure, Protection::Private] {
        let disk = disk(Config {
            protection,
            waiting_max: 16,
            connections_max: 16,
            first_request_max: NEVER,
            ..Config::default()
        });
        let to = disk.server.local_addr();
        let flood: Vec<_> = (0..64).map(|_| connect_from(2, to)).collect();
        others_are_served(&disk);
        // From many addresses too.
        let more: Vec<_> = (10..74).map(|last| connect_from(last, to)).collect();
        others_are_served(&disk);
        until(|| disk.server.metrics().connections_refused >= 64);
        drop((flood, more));
    }
}

#[test]
fn connections_with_capabilities_that_are_not_good_do_not_count_as_clients() {
    let disk = disk(Config {
        connections_max: 8,
        waiting_max: 8,
        first_request_max: NEVER,
        ..Config::default()
    });
    let to = disk.server.local_addr();
    let mut expired = disk.capability(1, Mode::Read, &[(0, 8)]);
    expired.expires = common::now() - 10;
    let revoked = disk.capability(2, Mode::Read, &[(0, 8)]);
    disk.admin().revoke(GroupId(1), &[CapabilityId(2)]).unwrap();
    let at = boot_and_epoch(to, &disk.capability(3, Mode::Read, &[(0, 8)]));
    let mut idle = Vec::new();
    for n in 0..32 {
        let (capability, reason) = match n % 2 {
            0 => (&expired, Reason::Expired),
            _ => (&revoked, Reason::Revoked),
        };
        let mut socket = connect_from(2 + n / 8, to);
        let request = Request::read(capability, at, 0, 1);
        // Each is authentic, and refused; or it gave way before it was answered.
        if let Some(reply) = raw::ask(&mut socket, &request.bytes()) {
            assert_eq!(reply.reason(), Some(reason));
        }
        idle.push(socket);
    }
    others_are_served(&disk);
}

#[test]
fn a_request_of_the_metadata_server_that_somebody_repeats_proves_nothing() {
    let disk = disk(Config {
        first_request_max: CUT_OFF,
        ..Config::default()
    });
    let to = disk.server.local_addr();
    let at = boot_and_epoch(to, &disk.capability(1, Mode::Read, &[(0, 8)]));
    let request = Request::management(raw::STATUS, at, Vec::new()).bytes();
    let reply = raw::ask(&mut connect(to), &request).unwrap();
    assert_eq!(reply.reason(), None);
    let mut socket = connect(to);
    let reply = raw::ask(&mut socket, &request).unwrap();
    assert_eq!(reply.reason(), Some(Reason::Replayed));
    // And is cut off like everybody who proves nothing.
    assert_eq!(socket.read(&mut [0]).unwrap(), 0);
}

#[test]
fn an_idle_connection_is_cut_off_when_its_capability_is_revoked() {
    let disk = disk(Config {
        first_request_max: CUT_OFF,
        ..Config::default()
    });
    let to = disk.server.local_addr();
    let served = |id| {
        let capability = disk.capability(id, Mode::Read, &[(0, 8)]);
        let at = boot_and_epoch(to, &capability);
        let mut socket = connect(to);
        let reply = raw::ask(&mut socket, &Request::read(&capability, at, 0, 1).bytes());
        assert_eq!(reply.unwrap().reason(), None);
        socket
    };
    let (mut one, mut two) = (served(1), served(2));
    disk.admin().revoke(GroupId(1), &[CapabilityId(1)]).unwrap();
    assert_eq!(one.read(&mut [0]).unwrap(), 0);
    assert!(is_open(&mut two));
}

#[test]
fn a_client_and_an_address_have_their_share_of_connections() {
    let disk = disk(Config {
        connections_max: 8,
        connections_per_address: 4,
        connections_per_client: 2,
        ..Config::default()
    });
    let to = disk.server.local_addr();
    let at = boot_and_epoch(to, &disk.capability(1, Mode::Read, &[(0, 8)]));
    let mut kept = Vec::new();
    let mut ask = |client: u64, last: u8| {
        let mut capability = disk.capability(client as u32, Mode::Read, &[(0, 8)]);
        capability.client = ClientId(client);
        let mut socket = connect_from(last, to);
        let request = Request::read(&capability, at, 0, 1);
        let reply = raw::ask(&mut socket, &request.bytes()).unwrap();
        kept.push(socket);
        reply.reason()
    };
    assert_eq!(ask(1, 2), None);
    assert_eq!(ask(1, 3), None);
    assert_eq!(ask(1, 4), Some(Reason::Busy));
    assert_eq!(ask(2, 2), None);
    assert_eq!(ask(3, 2), None);
    assert_eq!(ask(4, 2), None);
    assert_eq!(ask(5, 2), Some(Reason::Busy));
    assert_eq!(ask(5, 5), None);
    assert_eq!(ask(6, 5), None);
    assert_eq!(ask(7, 5), None);
    assert_eq!(ask(8, 6), Some(Reason::Busy));
    // With all places of clients taken, the metadata server still has its own.
    disk.admin().status().unwrap();
    disk.admin().revoke(GroupId(1), &[CapabilityId(1)]).unwrap();
}

/// Requests that announce a payload and do not send it hold memory: not the metadata server's.
#[test]
fn payloads_that_do_not_come_do_not_keep_the_metadata_server_waiting() {
    let disk = disk(Config {
        payload_bytes_max: 1 << 20,
        transfer_max: NEVER,
        ..Config::default()
    });
    let to = disk.server.local_addr();
    let capability = disk.capability(1, Mode::ReadWrite, &[(0, BLOCKS)]);
    let at = boot_and_epoch(to, &capability);
    let mut half = connect(to);
    let bytes = Request::write(&capability, at, 0, vec![1; 1 << 20]).bytes();
    half.write_all(&bytes[..bytes.len() - 1]).unwrap();
    let admin = Admin::new(disk.address(), disk.key(), LONG);
    admin.status().unwrap();
    let many: Vec<_> = (10..100_000).map(CapabilityId).collect();
    admin.revoke(GroupId(1), &many).unwrap();
}

/// What others are served while somebody at 127.0.0.2 holds as much memory as he gets.
fn others_move_data(disk: &Disk) {
    let ticket = disk.ticket(9, Mode::ReadWrite, &[(0, BLOCKS)]);
    let (client, mut data) = (disk.client(), vec![3; 1 << 20]);
    for _ in 0..20 {
        client.write(&ticket, 256, &data[..64 << 10]).unwrap();
        client.write(&ticket, 256, &data).unwrap();
        client.read(&ticket, 256, &mut data).unwrap();
    }
    assert!(data.iter().all(|byte| *byte == 3));
}

/// A client with 16 connections, which took its replies at 35 KB/s each, held all memory for payloads: others were refused as busy.
#[test]
fn a_client_that_takes_its_replies_slowly_leaves_memory_to_others() {
    let disk = disk(Config {
        payload_bytes_max: 8 << 20,
        transfer_max: NEVER,
        ..Config::default()
    });
    let to = disk.server.local_addr();
    let mut capability = disk.capability(1, Mode::Read, &[(0, BLOCKS)]);
    capability.client = ClientId(66);
    let at = boot_and_epoch(to, &capability);
    let mut greedy: Vec<_> = (0..4)
        .map(|_| {
            let mut socket = connect_from(2, to);
            for _ in 0..16 {
                let request = Request::read(&capability, at, 0, 256);
                socket.write_all(&request.bytes()).unwrap();
            }
            socket.set_nonblocking(true).unwrap();
            socket
        })
        .collect();
    until(|| disk.server.metrics().connections >= 4);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Enough for the disk's kernel to see that somebody is there: one that takes nothing for ten seconds is cut off.
            while !done.load(Ordering::SeqCst) {
                for socket in &mut greedy {
                    let _ = socket.read(&mut [0; 16 << 10]);
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        let others = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            others_move_data(&disk);
            // Another client at the same address, too.
            let other = disk.capability(2, Mode::Read, &[(0, BLOCKS)]);
            let request = Request::read(&other, at, 0, 256);
            let reply = raw::ask(&mut connect_from(2, to), &request.bytes()).unwrap();
            assert_eq!(reply.reason(), None);
        }));
        done.store(true, Ordering::SeqCst);
        others.unwrap();
    });
}

/// Somebody who records one request to write, and sends its head again without the payload, held all memory for payloads.
#[test]
fn recorded_heads_whose_payloads_do_not_come_leave_memory_to_others() {
    let disk = disk(Config {
        payload_bytes_max: 8 << 20,
        first_request_max: NEVER,
        transfer_max: NEVER,
        ..Config::default()
    });
    let to = disk.server.local_addr();
    let capability = disk.capability(1, Mode::ReadWrite, &[(0, BLOCKS)]);
    let at = boot_and_epoch(to, &capability);
    let recorded = Request::write(&capability, at, 0, vec![1; 1 << 20]).bytes();
    let reply = raw::ask(&mut connect(to), &recorded).unwrap();
    assert_eq!(reply.reason(), None);
    let held: Vec<_> = (0..32)
        .map(|_| {
            let mut socket = connect_from(2, to);
            socket.write_all(&recorded[..raw::HEAD + 80]).unwrap();
            // More than the disk's kernel takes on its own: it has begun to receive the payload, if it has memory for it.
            socket
                .write_all(&recorded[raw::HEAD + 80..][..32 << 10])
                .unwrap();
            socket
        })
        .collect();
    others_move_data(&disk);
    drop(held);
}

/// A clock that the test sets.
#[derive(Debug, Default)]
struct SetTime {
    date: AtomicU64,
    running: AtomicU64,
}

impl TimeSource for SetTime {
    fn date(&self) -> Duration {
        Duration::from_secs(self.date.load(Ordering::SeqCst))
    }

    fn running(&self) -> Duration {
        Duration::from_secs(self.running.load(Ordering::SeqCst))
    }
}

#[test]
fn a_clock_that_is_set_back_does_not_prolong_a_capability() {
    let time = Arc::new(SetTime::default());
    time.date.store(common::now(), Ordering::SeqCst);
    let disk = disk(Config {
        time: time.clone(),
        ..Config::default()
    });
    let ticket = disk.ticket(1, Mode::Read, &[(0, BLOCKS)]);
    let client = disk.client();
    let mut out = vec![0; 4096];
    client.read(&ticket, 0, &mut out).unwrap();
    // It expires in an hour. Somebody sets the machine's date back by a day, and two hours pass.
    time.date.fetch_sub(86_400, Ordering::SeqCst);
    time.running.fetch_add(7_200, Ordering::SeqCst);
    let refused = client.read(&ticket, 0, &mut out);
    assert!(matches!(refused, Err(DiskError::Expired)), "{refused:?}");
    // The metadata server reckons with the disk's own clock.
    let clock = disk.admin().status().unwrap().clock;
    assert!(clock > ticket.capability.expires);
    // Set forward: nothing expires early.
    time.date.fetch_add(10 * 86_400, Ordering::SeqCst);
    assert_eq!(disk.admin().status().unwrap().clock, clock);
}
