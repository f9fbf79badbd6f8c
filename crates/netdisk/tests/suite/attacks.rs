//! An attacker with the wire in hand, and one with a capability of his own. Whatever he sends, the disk's blocks stay as they
//! are, and each attack is refused for its own reason.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use crate::common::raw::{self, Request, ask, boot_and_epoch, connect, send_all};
use crate::common::relay::Relay;
use crate::common::{BLOCKS, Disk, LONG, now};
use device::MemoryDevice;
use netdisk::server::{Config, FilterSize};
use netdisk::*;

/// A connection, plain or inside TLS.
trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// A disk with group 1 valid, capability 9 revoked, and data in its blocks.
struct Target {
    disk: Disk,
    before: Vec<u8>,
}

impl Target {
    fn new() -> Self {
        Self::with(Config::default())
    }

    fn with(config: Config) -> Self {
        let disk = Disk::with(Arc::new(MemoryDevice::new(4 << 20)), config);
        disk.admin().set_groups(&[GroupId(1)]).unwrap();
        disk.admin().revoke(GroupId(1), &[CapabilityId(9)]).unwrap();
        let ticket = disk.ticket(1, Mode::Write, &[(0, BLOCKS)]);
        let data: Vec<u8> = (0..4096 * 8).map(|i| (i / 4096 + 1) as u8).collect();
        disk.client().write(&ticket, 0, &data).unwrap();
        let before = disk.contents();
        Self { disk, before }
    }

    fn at(&self) -> ([u8; 16], u64) {
        boot_and_epoch(self.disk.server.local_addr(), &self.capability())
    }

    /// An honest one: blocks 2 to 5.
    fn capability(&self) -> Capability {
        self.disk.capability(2, Mode::ReadWrite, &[(2, 4)])
    }

    /// An honest write under it.
    fn write(&self) -> Request {
        Request::write(&self.capability(), self.at(), 3, vec![0xEE; 8192])
    }

    #[track_caller]
    fn is_as_before(&self) {
        assert!(self.disk.contents() == self.before, "blocks were changed");
    }

    /// The reason with which bytes are refused, and whether the refusal was signed.
    #[track_caller]
    fn refusal(&self, bytes: &[u8]) -> (Option<Reason>, bool) {
        let counted = self.disk.server.metrics();
        let replies = send_all(self.disk.server.local_addr(), bytes);
        let [reply] = &replies[..] else {
            panic!("{} replies", replies.len());
        };
        if let Some(reason) = reply.reason() {
            let after = self.disk.server.metrics();
            assert_eq!(after.refused_for(reason), counted.refused_for(reason) + 1);
        }
        (reply.reason(), reply.signed)
    }

    #[track_caller]
    fn refuses(&self, request: &Request, reason: Reason, signed: bool) {
        assert_eq!(self.refusal(&request.bytes()), (Some(reason), signed));
        self.is_as_before();
    }
}

#[test]
fn an_honest_request_is_done_so_that_what_follows_can_fail() {
    let target = Target::new();
    let request = target.write();
    assert_eq!(target.refusal(&request.bytes()), (None, true));
    assert_eq!(target.disk.contents()[3 * 4096..5 * 4096], [0xEE; 8192]);
}

#[test]
fn what_is_not_of_the_protocol_is_malformed() {
    let target = Target::new();
    let good = target.write();
    for change in [
        |r: &mut Request| r.op = 99,
        |r: &mut Request| r.op = 0,
        |r: &mut Request| r.blocks = 0,
        |r: &mut Request| r.blocks = u32::MAX,
        |r: &mut Request| r.payload = vec![1; 4096],
        |r: &mut Request| r.payload = vec![1; (1 << 20) + 4096],
        |r: &mut Request| r.capability.truncate(64),
        |r: &mut Request| r.capability.clear(),
        |r: &mut Request| r.capability.extend([0; 1100]),
        |r: &mut Request| r.op = raw::SET_GROUPS,
    ] {
        let mut request = good.clone();
        change(&mut request);
        target.refuses(&request, Reason::Malformed, false);
    }
    // Capabilities of a wrong form inside a request of the right one.
    for at in [0, 1, 2, 3] {
        let mut request = good.clone();
        request.capability[at] = 0xFF;
        request.secret = raw::secret(&raw::KEY, &request.capability);
        target.refuses(&request, Reason::Malformed, false);
    }
}

#[test]
fn requests_for_another_boot_or_epoch_are_stale_and_the_disk_signs_that() {
    let target = Target::new();
    let good = target.write();
    let boot = Request {
        boot: [1; 16],
        ..good.clone()
    };
    target.refuses(&boot, Reason::StaleBoot, true);
    for epoch in [good.epoch + 1, good.epoch + 2, u64::MAX] {
        let request = Request {
            epoch,
            ..good.clone()
        };
        target.refuses(&request, Reason::StaleEpoch, true);
    }
    let forged = Request {
        boot: [1; 16],
        secret: [1; 32],
        ..good
    };
    target.refuses(&forged, Reason::StaleBoot, false);
}

#[test]
fn capabilities_of_another_disk_group_or_time_and_revoked_ones_are_refused() {
    let target = Target::new();
    let at = target.at();
    let write = |capability: &Capability| Request::write(capability, at, 3, vec![0xEE; 4096]);
    let honest = target.capability();

    let mut other = honest.clone();
    other.disk = DiskId([1; 16]);
    let mut request = write(&other);
    target.refuses(&request, Reason::WrongDisk, true);
    request.secret = raw::secret(&[9; 32], &request.capability);
    target.refuses(&request, Reason::WrongDisk, false);

    let mut other = honest.clone();
    other.group = GroupId(2);
    target.refuses(&write(&other), Reason::UnknownGroup, true);

    let mut other = honest.clone();
    other.id = CapabilityId(9);
    target.refuses(&write(&other), Reason::Revoked, true);

    let mut other = honest;
    other.expires = now() - 1;
    target.refuses(&write(&other), Reason::Expired, true);
}

#[test]
fn forged_widened_and_other_clients_capabilities_are_not_authentic() {
    let target = Target::new();
    let good = target.write();
    let forged = Request {
        secret: [1; 32],
        ..good.clone()
    };
    target.refuses(&forged, Reason::NotAuthentic, false);
    let honest = target.capability();
    let mut wider = honest.clone();
    wider.extents[0].blocks += 1;
    let mut more = honest.clone();
    more.extents.push(BlockExtent {
        start: 100,
        blocks: 1,
    });
    let mut later = honest.clone();
    later.expires += 1;
    let mut another = honest.clone();
    another.client = ClientId(8);
    let mut sibling = honest.clone();
    sibling.id = CapabilityId(3);
    for altered in [wider, more, later, another, sibling] {
        let request = Request {
            capability: raw::capability(&altered),
            ..good.clone()
        };
        target.refuses(&request, Reason::NotAuthentic, false);
    }
}

#[test]
fn a_capability_is_good_for_its_own_mode_and_blocks_only() {
    let target = Target::new();
    let at = target.at();
    let with = |mode, extents: &[(u64, u64)]| target.disk.capability(2, mode, extents);
    let reads = with(Mode::Read, &[(2, 4)]);
    let writes = with(Mode::Write, &[(2, 4)]);
    target.refuses(
        &Request::write(&reads, at, 3, vec![1; 4096]),
        Reason::ModeNotAllowed,
        true,
    );
    target.refuses(
        &Request::new(raw::FLUSH, &reads, at),
        Reason::ModeNotAllowed,
        true,
    );
    target.refuses(
        &Request::read(&writes, at, 3, 1),
        Reason::ModeNotAllowed,
        true,
    );
    for (start, blocks) in [(1, 1), (1, 2), (5, 2), (6, 1), (u64::MAX, 1), (0, 256)] {
        let payload = vec![1; blocks * 4096];
        target.refuses(
            &Request::write(&writes, at, start, payload),
            Reason::OutsideCapability,
            true,
        );
        target.refuses(
            &Request::read(&reads, at, start, blocks as u32),
            Reason::OutsideCapability,
            true,
        );
    }
    let beyond = with(Mode::ReadWrite, &[(BLOCKS - 1, 10)]);
    target.refuses(
        &Request::write(&beyond, at, BLOCKS, vec![1; 4096]),
        Reason::OutsideDisk,
        true,
    );
    target.refuses(
        &Request::read(&beyond, at, BLOCKS - 1, 2),
        Reason::OutsideDisk,
        true,
    );
}

#[test]
fn nobody_manages_a_disk_with_a_capabilitys_secret() {
    let target = Target::new();
    let at = target.at();
    let honest = Request::set_groups(at, 1, &[7]);
    for secret in [target.write().secret, [0; 32], raw::KEY] {
        let request = Request {
            secret,
            ..honest.clone()
        };
        target.refuses(&request, Reason::NotAuthentic, false);
    }
    assert_eq!(target.disk.admin().status().unwrap().groups, [GroupId(1)]);
    assert_eq!(target.refusal(&honest.bytes()), (None, true));
    assert_eq!(target.disk.admin().status().unwrap().groups, [GroupId(7)]);
    target.disk.admin().set_groups(&[GroupId(1)]).unwrap();
    target.refuses(&honest, Reason::Replayed, true);
    assert_eq!(target.disk.admin().status().unwrap().groups, [GroupId(1)]);
}

#[test]
fn a_disk_is_taken_by_one_room_with_the_management_key_alone() {
    let mut target = Target::new();
    let claim = |at, room: u8, next: u8| {
        let ids = [[room; 16], [next; 16]].concat();
        Request::management(raw::CLAIM, at, ids)
    };
    let at = target.at();
    let of_a_client = Request {
        secret: target.write().secret,
        ..claim(at, 1, 1)
    };
    target.refuses(&of_a_client, Reason::NotAuthentic, false);
    assert_eq!(target.refusal(&claim(at, 1, 1).bytes()), (None, true));
    target.refuses(&claim(at, 2, 2), Reason::OtherRoom, true);
    target.refuses(&claim(at, 2, 0), Reason::OtherRoom, true);
    let admin = target.disk.admin();
    assert!(matches!(admin.claim([2; 16]), Err(DiskError::OtherRoom)));
    admin.claim([1; 16]).unwrap();
    // For longer than its server lives.
    target.disk.restart();
    let admin = target.disk.admin();
    assert!(matches!(admin.claim([2; 16]), Err(DiskError::OtherRoom)));
    admin.release([1; 16]).unwrap();
    admin.claim([2; 16]).unwrap();
}

#[test]
fn a_request_with_any_bit_flipped_is_not_done_and_takes_no_nonce() {
    let target = Target::new();
    let good = target.write().bytes();
    let heads = raw::HEAD + 80;
    let bits = (0..heads * 8).chain((heads * 8..good.len() * 8).step_by(997));
    for bit in bits {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        for reply in send_all(target.disk.server.local_addr(), &bytes) {
            assert!(reply.reason().is_some(), "bit {bit}");
        }
        if bit % 64 == 0 {
            target.is_as_before();
        }
    }
    target.is_as_before();
    // None of them was taken for it: the original is still new.
    assert_eq!(target.refusal(&good), (None, true));
}

#[test]
fn a_payload_of_another_request_is_not_authentic() {
    let target = Target::new();
    let mut one = target.write();
    one.payload = vec![0xDD; 8192];
    let mut mixed = target.write().bytes();
    let at = mixed.len() - 8192;
    mixed[at..].copy_from_slice(&one.payload);
    assert_eq!(
        target.refusal(&mixed),
        (Some(Reason::PayloadNotAuthentic), true)
    );
    target.is_as_before();
}

#[test]
fn half_a_request_is_not_done() {
    let target = Target::new();
    let good = target.write().bytes();
    for len in (0..good.len()).step_by(97).chain([good.len() - 1]) {
        assert!(send_all(target.disk.server.local_addr(), &good[..len]).is_empty());
    }
    target.is_as_before();
    assert_eq!(target.refusal(&good), (None, true));
}

#[test]
fn a_captured_write_never_lands_again_whatever_restarted() {
    let mut target = Target::with(Config {
        filter: FilterSize {
            bits_log2: 13,
            epoch_max: LONG,
        },
        ..Config::default()
    });
    let relay = Relay::before(target.disk.server.local_addr());
    let mut address = target.disk.address();
    address.address = relay.address.to_string();
    let client = DiskClient::new(address, LONG);
    let ticket = target.disk.ticket(2, Mode::ReadWrite, &[(2, 4)]);
    client.write(&ticket, 2, &[0xEE; 4096]).unwrap();
    let captured = relay.last_request();
    assert_eq!(captured[5], raw::WRITE);
    client.write(&ticket, 2, &[0x11; 4096]).unwrap();
    target.before = target.disk.contents();

    let refused = |target: &Target, reason| {
        assert_eq!(target.refusal(&captured), (Some(reason), true));
        target.is_as_before();
    };
    refused(&target, Reason::Replayed);
    let epoch = target.at().1;
    let past = |target: &Target, epoch: u64| {
        while target.disk.server.metrics().epoch < epoch {
            client.read(&ticket, 2, &mut [0; 4096]).unwrap();
        }
    };
    past(&target, epoch + 1);
    refused(&target, Reason::Replayed);
    past(&target, epoch + 2);
    refused(&target, Reason::StaleEpoch);

    target.disk.restart();
    refused(&target, Reason::StaleBoot);
    target.disk.admin().set_groups(&[GroupId(1)]).unwrap();
    refused(&target, Reason::StaleBoot);
    target
        .disk
        .admin()
        .revoke(GroupId(1), &[CapabilityId(2)])
        .unwrap();
    refused(&target, Reason::StaleBoot);
}

#[test]
fn a_write_that_somebody_held_back_never_lands_after_a_revocation_or_two_epochs() {
    let target = Target::with(Config {
        filter: FilterSize {
            bits_log2: 13,
            epoch_max: LONG,
        },
        ..Config::default()
    });
    let held = [target.write(), target.write()].map(|request| request.bytes());
    let other = target.disk.ticket(3, Mode::Read, &[(0, 8)]);
    target
        .disk
        .admin()
        .revoke(GroupId(1), &[CapabilityId(2)])
        .unwrap();
    assert_eq!(target.refusal(&held[0]), (Some(Reason::Revoked), true));
    let client = target.disk.client();
    let until = target.disk.server.metrics().epoch + 2;
    while target.disk.server.metrics().epoch < until {
        client.read(&other, 0, &mut [0; 4096]).unwrap();
    }
    assert_eq!(target.refusal(&held[1]), (Some(Reason::StaleEpoch), true));
    target.is_as_before();
}

/// A way to the disk whose next request of operation `op` somebody keeps. The disk gets noise instead, so the metadata server
/// asks again on another connection.
fn keeps_one(relay: &Relay, op: u8) -> Arc<Mutex<Option<Vec<u8>>>> {
    let kept: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
    let keeps = kept.clone();
    relay.on_request(move |request| {
        let mut kept = keeps.lock().unwrap();
        if request[5] == op && kept.is_none() {
            *kept = Some(request.clone());
            request[0] = 0;
        }
    });
    kept
}

/// The metadata server's `discard` was held back, repeated and answered, and the blocks were written by somebody else: for this
/// metadata server, or for one that was started since.
#[test]
fn a_discard_that_somebody_held_back_frees_nothing_after_its_repetition() {
    let target = Target::new();
    let disk = &target.disk;
    let relay = Relay::before(disk.server.local_addr());
    let mut through = disk.address();
    through.address = relay.address.to_string();
    let freed = [BlockExtent {
        start: 2,
        blocks: 4,
    }];
    let ticket = disk.ticket(4, Mode::Write, &[(2, 4)]);
    for restarted in [false, true] {
        let admin = Admin::new(through.clone(), disk.key(), LONG);
        // Then it knows the disk's boot, epoch and sequence, and what it signs is good.
        admin.discard(&freed).unwrap();
        let kept = keeps_one(&relay, raw::DISCARD);
        admin.discard(&freed).unwrap();
        if restarted {
            let later = disk.admin();
            later.set_groups(&[GroupId(1)]).unwrap();
        }
        disk.client().write(&ticket, 2, &[0xEE; 4 * 4096]).unwrap();
        let before = disk.contents();
        let held = kept.lock().unwrap().take().unwrap();
        let replies = send_all(disk.server.local_addr(), &held);
        assert!(disk.contents() == before, "newer data was discarded");
        assert_eq!(replies[0].reason(), Some(Reason::OutOfSequence));
        assert!(replies[0].signed);
    }
}

/// Also inside TLS, where what was held back comes on the connection that it was sealed for.
#[test]
fn a_change_that_arrives_after_a_later_one_is_refused() {
    for protection in [Protection::Secure, Protection::Private] {
        let disk = Disk::new(protection);
        let to = disk.server.local_addr();
        let connect: &dyn Fn() -> Box<dyn Stream> = match protection {
            Protection::Private => &|| {
                let hash = &disk.keys.certificate_hash;
                Box::new(raw::connect_privately(to, hash))
            },
            _ => &|| Box::new(raw::connect(to)),
        };
        let (mut early, mut late) = (connect(), connect());
        let status = Request::management(raw::STATUS, ([0; 16], 0), Vec::new());
        let stale = ask(&mut late, &status.bytes()).unwrap();
        let sets = |group, sequence| Request {
            tagged: protection != Protection::Private,
            ..Request::set_groups((stale.boot, stale.epoch), sequence, &[group])
        };
        let held = sets(1, 0);
        for (group, sequence) in [(1, 0), (2, 1)] {
            let request = sets(group, sequence);
            assert_eq!(ask(&mut late, &request.bytes()).unwrap().reason(), None);
        }
        // It would make a group valid again whose revocations are forgotten.
        let reply = ask(&mut early, &held.bytes()).unwrap();
        assert_eq!(disk.admin().status().unwrap().groups, [GroupId(2)]);
        assert_eq!(reply.reason(), Some(Reason::OutOfSequence));
        assert!(reply.is_authentic(&held));
        assert_eq!(reply.payload, 2_u32.to_le_bytes());
        // Nor is one accepted whose turn has not come: it could be kept until then.
        let reply = ask(&mut late, &sets(3, 3).bytes()).unwrap();
        assert_eq!(reply.reason(), Some(Reason::OutOfSequence));
    }
}

#[test]
fn requests_of_one_connection_are_each_judged_alone() {
    let target = Target::new();
    let mut socket = connect(target.disk.server.local_addr());
    let good = target.write();
    let mut forged = good.clone();
    forged.secret = [3; 32];
    let reply = ask(&mut socket, &forged.bytes()).unwrap();
    assert_eq!(reply.reason(), Some(Reason::NotAuthentic));
    let reply = ask(&mut socket, &good.bytes()).unwrap();
    assert_eq!(reply.reason(), None);
    assert!(reply.is_authentic(&good));
    let reply = ask(&mut socket, &good.bytes()).unwrap();
    assert_eq!(reply.reason(), Some(Reason::Replayed));
    let again = Request {
        nonce: raw::fresh(),
        ..good
    };
    assert_eq!(ask(&mut socket, &again.bytes()).unwrap().reason(), None);
}
