//! A disk, its clients and its metadata server, as they are meant to be used.

use crate::common;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::raw::{self, Request};
use crate::common::{BLOCKS, Disk, LONG};
use device::{AroundMemory, Device, MemoryDevice};
use netdisk::server::{Config, FilterSize, ServeError, Server};
use netdisk::*;

const ALL: [Protection; 3] = [Protection::Open, Protection::Secure, Protection::Private];

#[test]
fn what_was_written_is_read_in_every_set_up() {
    for protection in ALL {
        let disk = Disk::new(protection);
        disk.admin().set_groups(&[GroupId(1)]).unwrap();
        let client = disk.client();
        let ticket = disk.ticket(1, Mode::ReadWrite, &[(0, BLOCKS)]);
        for (start, blocks) in [(0, 1), (3, 16), (BLOCKS - 256, 256)] {
            let data: Vec<u8> = (0..blocks * 4096).map(|i| (i / 7 + 1) as u8).collect();
            let boot = client.write(&ticket, start, &data).unwrap();
            let mut back = vec![0; data.len()];
            client.read(&ticket, start, &mut back).unwrap();
            assert!(back == data, "{protection:?} {start}+{blocks}");
            assert_eq!(client.flush(&ticket).unwrap(), boot);
            assert_eq!(
                &disk.contents()[start as usize * 4096..][..data.len()],
                data
            );
        }
        let status = disk.admin().status().unwrap();
        assert_eq!((status.id, status.blocks), (disk.keys.id, BLOCKS));
        assert_eq!(status.groups, [GroupId(1)]);
        assert_eq!(status.boot, disk.server.incarnation());
        assert!(status.clock.abs_diff(common::now()) < 60);
    }
}

/// Memory that counts flushes, and fails them on request.
#[derive(Debug)]
struct Flushed {
    memory: MemoryDevice,
    flushes: AtomicU64,
    /// Writes that no flush has followed.
    pending: AtomicU64,
    fails: AtomicBool,
}

impl AroundMemory for Flushed {
    fn memory(&self) -> &MemoryDevice {
        &self.memory
    }
    fn write(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.pending.fetch_add(1, Ordering::SeqCst);
        self.memory.write_at(buf, offset)
    }
    fn sync(&self) -> io::Result<()> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(io::Error::other("fails on request"));
        }
        self.flushes.fetch_add(1, Ordering::SeqCst);
        self.pending.store(0, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn a_durable_write_is_flushed_before_it_is_answered_and_fails_with_its_flush() {
    for protection in ALL {
        let device = Arc::new(Flushed {
            memory: MemoryDevice::new(4 << 20),
            flushes: AtomicU64::new(0),
            pending: AtomicU64::new(0),
            fails: AtomicBool::new(false),
        });
        let disk = Disk::on(device.clone(), protection);
        disk.admin().set_groups(&[GroupId(1)]).unwrap();
        let client = disk.client();
        let ticket = disk.ticket(1, Mode::Write, &[(8, 16)]);
        let flushes = || device.flushes.load(Ordering::SeqCst);
        let pending = || device.pending.load(Ordering::SeqCst);
        let before = flushes();
        let boot = client.write(&ticket, 8, &[5; 4096]).unwrap();
        assert_eq!((flushes(), pending()), (before, 1), "{protection:?}");
        let durable = client.write_durable(&ticket, 9, &[6; 8192]).unwrap();
        // What was written before is durable with it.
        assert_eq!((flushes(), pending()), (before + 1, 0), "{protection:?}");
        assert_eq!(durable, boot);
        assert_eq!(disk.contents()[9 * 4096..][..8192], [6; 8192]);
        let done = disk.server.metrics().done;
        assert!(done.contains(&("write_durable", 1)), "{done:?}");

        if protection != Protection::Open {
            let outside = client.write_durable(&ticket, 23, &[7; 8192]).unwrap_err();
            assert!(matches!(outside, DiskError::NotAllowed(_)), "{outside}");
            let reader = disk.ticket(2, Mode::Read, &[(8, 16)]);
            let refused = client.write_durable(&reader, 8, &[7; 4096]).unwrap_err();
            assert!(matches!(refused, DiskError::NotAllowed(_)), "{refused}");
        }
        device.fails.store(true, Ordering::SeqCst);
        let failed = client.write_durable(&ticket, 9, &[8; 4096]).unwrap_err();
        assert!(matches!(failed, DiskError::Storage(_)), "{failed}");
        // What was acknowledged without a flush may be gone.
        assert_ne!(disk.server.incarnation(), boot);
    }
}

#[test]
fn many_threads_share_a_client_and_each_has_its_own_blocks() {
    for protection in ALL {
        let disk = Disk::new(protection);
        disk.admin().set_groups(&[GroupId(1)]).unwrap();
        let client = disk.client();
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let (client, disk) = (&client, &disk);
                scope.spawn(move || {
                    let ticket =
                        disk.ticket(thread as u32, Mode::ReadWrite, &[(thread * 100, 100)]);
                    for round in 0..50u64 {
                        let blocks = 1 + (round % 3) as usize * 16;
                        let data = vec![(thread * 50 + round) as u8; blocks * 4096];
                        client.write(&ticket, thread * 100, &data).unwrap();
                        let mut back = vec![0; data.len()];
                        client.read(&ticket, thread * 100, &mut back).unwrap();
                        assert!(back == data);
                    }
                });
            }
        });
        assert_eq!(disk.server.metrics().in_flight, 0);
    }
}

#[test]
fn a_restarted_disk_refuses_every_request_until_its_groups_are_known_again() {
    for protection in [Protection::Secure, Protection::Private] {
        let mut disk = Disk::new(protection);
        let (client, admin) = (disk.client(), disk.admin());
        let ticket = disk.ticket(1, Mode::ReadWrite, &[(0, 4)]);
        let mut block = [0; 4096];
        let refused = client.read(&ticket, 0, &mut block).unwrap_err();
        assert!(matches!(refused, DiskError::UnknownGroup), "{refused}");
        admin.set_groups(&[GroupId(1)]).unwrap();
        let boot = client.write(&ticket, 0, &[7; 4096]).unwrap();
        disk.restart();
        let refused = client.read(&ticket, 0, &mut block).unwrap_err();
        assert!(matches!(refused, DiskError::UnknownGroup), "{refused}");
        admin.set_groups(&[GroupId(1)]).unwrap();
        client.read(&ticket, 0, &mut block).unwrap();
        assert_eq!(block, [7; 4096]);
        // The server's process was ended, and nothing that it had acknowledged was lost.
        assert_eq!(client.flush(&ticket).unwrap(), boot);
    }
}

#[test]
fn a_call_waits_for_a_disk_that_comes_back_and_fails_after_its_timeout() {
    let mut disk = Disk::new(Protection::Secure);
    disk.admin().set_groups(&[GroupId(1)]).unwrap();
    let ticket = disk.ticket(1, Mode::ReadWrite, &[(0, 4)]);
    let client = disk.client();
    client.write(&ticket, 0, &[7; 4096]).unwrap();
    disk.server.stop(LONG).unwrap();
    let hasty = DiskClient::new(disk.address(), Duration::from_millis(50));
    assert!(matches!(
        hasty.read(&ticket, 0, &mut [0; 4096]),
        Err(DiskError::Unreachable(_))
    ));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| client.read(&ticket, 0, &mut [0; 4096]));
        disk.restart();
        assert!(matches!(
            waiting.join().unwrap(),
            Err(DiskError::UnknownGroup)
        ));
    });
}

#[test]
fn epochs_that_pass_are_not_noticed_by_who_asks() {
    let config = Config {
        filter: FilterSize {
            bits_log2: 13,
            epoch_max: LONG,
        },
        ..Config::default()
    };
    let disk = Disk::with(Arc::new(MemoryDevice::new(4 << 20)), config);
    disk.admin().set_groups(&[GroupId(1)]).unwrap();
    let ticket = disk.ticket(1, Mode::Read, &[(0, 4)]);
    let (busy, idle) = (disk.client(), disk.client());
    idle.read(&ticket, 0, &mut [0; 4096]).unwrap();
    for _ in 0..5000 {
        busy.read(&ticket, 0, &mut [0; 4096]).unwrap();
    }
    idle.read(&ticket, 0, &mut [0; 4096]).unwrap();
    let metrics = disk.server.metrics();
    assert!(metrics.epoch > 8, "{}", metrics.epoch);
    assert_eq!(metrics.refused_for(Reason::StaleEpoch), 1);
}

#[test]
fn space_is_freed_by_the_metadata_server() {
    let disk = Disk::new(Protection::Secure);
    let admin = disk.admin();
    admin.set_groups(&[GroupId(1)]).unwrap();
    let ticket = disk.ticket(1, Mode::ReadWrite, &[(0, 8)]);
    disk.client().write(&ticket, 0, &[1; 8 * 4096]).unwrap();
    let extent = |start, blocks| BlockExtent { start, blocks };
    admin.discard(&[extent(1, 1), extent(3, 2)]).unwrap();
    let contents = disk.contents();
    let left: Vec<u8> = (0..8).map(|block| contents[block * 4096]).collect();
    assert_eq!(left, [1, 0, 1, 0, 0, 1, 1, 1]);
    assert!(matches!(
        admin.discard(&[extent(BLOCKS, 1)]),
        Err(DiskError::NotAllowed(_))
    ));
}

/// Each change is for one sequence of the disk, so all but one of those that are sent at once are sent again.
#[test]
fn changes_by_many_threads_on_several_ways_are_all_done() {
    const EACH: u64 = 20;
    let mut disk = Disk::new(Protection::Secure);
    let ways = [disk.admin(), disk.admin()];
    for _ in 0..2 {
        ways[0].set_groups(&[GroupId(1)]).unwrap();
        std::thread::scope(|scope| {
            for way in ways.iter().cycle().take(8) {
                scope.spawn(|| {
                    for start in 0..EACH {
                        way.discard(&[BlockExtent { start, blocks: 1 }]).unwrap();
                    }
                });
            }
        });
        let done = disk.server.metrics().done;
        assert!(done.contains(&("discard", 8 * EACH)), "{done:?}");
        // What they know of the sequence is of another boot then, and higher.
        disk.restart();
    }
}

/// A metadata server that was stopped, overtaken by another one, and woken.
#[test]
fn an_overtaken_metadata_server_frees_nothing_and_sets_no_groups() {
    let mut disk = Disk::new(Protection::Secure);
    let (first, second) = (disk.admin().of(Writer(3)), disk.admin().of(Writer(5)));
    let freed = [BlockExtent {
        start: 0,
        blocks: 8,
    }];
    assert!(matches!(
        first.discard(&freed),
        Err(DiskError::UnknownGroup)
    ));
    first
        .set_groups_of(first.lifetime().unwrap(), &[GroupId(1)])
        .unwrap();
    first.discard(&freed).unwrap();
    second.set_groups(&[GroupId(2)]).unwrap();
    assert!(matches!(first.discard(&freed), Err(DiskError::Overtaken)));
    for groups in [&[GroupId(1)][..], &[]] {
        assert!(matches!(
            first.set_groups(groups),
            Err(DiskError::Overtaken)
        ));
    }
    assert_eq!(first.status().unwrap().groups, [GroupId(2)]);
    second.discard(&freed).unwrap();
    // A restarted disk has forgotten that. A server that was the only one before the restart has to make sure again.
    let before = first.lifetime().unwrap();
    disk.restart();
    assert!(matches!(
        first.set_groups_of(before, &[GroupId(1)]),
        Err(DiskError::Unreachable(_))
    ));
    assert!(matches!(
        first.discard(&freed),
        Err(DiskError::UnknownGroup)
    ));
    assert_ne!(first.lifetime().unwrap(), before);
}

#[test]
fn an_unprotected_disk_listens_on_loopback_only() {
    let device: Arc<dyn device::Device> = Arc::new(MemoryDevice::new(4 << 20));
    let keys = KeyFile::generate().unwrap();
    Store::init(&*device, keys.id, false).unwrap();
    let start = |open_to_all| {
        let store = Store::open(device.clone(), Surroundings::default()).unwrap();
        let config = Config {
            listen: "0.0.0.0:0".into(),
            protection: Protection::Open,
            open_to_all,
            ..Config::default()
        };
        Server::start(config, store, &keys)
    };
    assert!(matches!(start(false), Err(ServeError::OpenToOthers(_))));
    start(true).unwrap();
}

#[test]
fn a_disk_with_another_certificate_or_identity_is_not_spoken_with() {
    let disk = Disk::new(Protection::Private);
    let short = Duration::from_millis(300);
    let mut address = disk.address();
    address.certificate = Some([0; 32]);
    let refused = Admin::new(address, disk.key(), short).status().unwrap_err();
    assert!(matches!(refused, DiskError::Unreachable(_)), "{refused}");
    let mut address = disk.address();
    address.id = DiskId([9; 16]);
    let refused = Admin::new(address, disk.key(), LONG).status().unwrap_err();
    assert!(matches!(refused, DiskError::WrongDisk), "{refused}");
    let wrong = DiskKey::new([1; 32]);
    let refused = Admin::new(disk.address(), wrong, LONG)
        .status()
        .unwrap_err();
    assert!(matches!(refused, DiskError::NotAuthentic), "{refused}");
}

#[test]
fn the_private_set_up_shows_nothing_of_a_message() {
    use std::io::{Read, Write};
    let disk = Disk::new(Protection::Private);
    disk.admin().set_groups(&[GroupId(1)]).unwrap();
    // A plain client gets nothing but the end of the connection.
    let mut socket = std::net::TcpStream::connect(disk.server.local_addr()).unwrap();
    socket
        .write_all(&[b"SNDq".as_slice(), &[1; 400]].concat())
        .unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    assert!(!answer.windows(3).any(|some| some == b"SND"));
}

#[test]
fn another_implementation_of_tls_and_protocol_is_understood_in_the_private_set_up() {
    let disk = Disk::new(Protection::Private);
    disk.admin().set_groups(&[GroupId(1)]).unwrap();
    let capability = disk.capability(1, Mode::ReadWrite, &[(0, BLOCKS)]);
    let to = disk.server.local_addr();
    let mut socket = raw::connect_privately(to, &disk.keys.certificate_hash);
    let mut ask = |mut request: Request| {
        request.tagged = false;
        let reply = raw::ask(&mut socket, &request.bytes()).unwrap();
        assert!(reply.is_authentic(&request));
        reply
    };
    let reported = ask(Request::read(&capability, ([0; 16], 0), 0, 1));
    let at = (reported.boot, reported.epoch);
    for blocks in [1, 4, 16, 256] {
        let data: Vec<u8> = (0..blocks * 4096).map(|i| (i / 11 + 1) as u8).collect();
        let written = ask(Request::write(&capability, at, 7, data.clone()));
        assert_eq!(written.reason(), None);
        let read = ask(Request::read(&capability, at, 7, blocks as u32));
        assert!(read.payload == data);
    }
    // What is inside TLS needs its capability all the same.
    let mut forged = Request::write(&capability, at, 7, vec![9; 4096]);
    forged.tagged = false;
    forged.secret[0] ^= 1;
    let refused = raw::ask(&mut socket, &forged.bytes()).unwrap();
    assert_eq!(refused.reason(), Some(Reason::NotAuthentic));
    let again = Request::read(&capability, at, 7, 1);
    let (first, second) = (again.bytes(), again.bytes());
    assert_eq!(raw::ask(&mut socket, &first).unwrap().reason(), None);
    let replayed = raw::ask(&mut socket, &second).unwrap();
    assert_eq!(replayed.reason(), Some(Reason::Replayed));
    assert!(
        !disk
            .contents()
            .windows(4096)
            .any(|block| block == [9; 4096])
    );
}
