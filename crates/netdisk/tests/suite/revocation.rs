//! A revocation returns when no request under what it revokes is running or can begin.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Disk, LONG};
use device::{AroundMemory, Device, MemoryDevice};
use netdisk::*;
use parking_lot::{Condvar, Mutex};

/// Memory whose writes of 0x99 stop in the middle until they are let go.
#[derive(Debug)]
struct Slow {
    memory: MemoryDevice,
    stopped: Mutex<bool>,
    go: Mutex<bool>,
    changed: Condvar,
    done: AtomicBool,
}

impl Slow {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            memory: MemoryDevice::new(4 << 20),
            stopped: Mutex::new(false),
            go: Mutex::new(false),
            changed: Condvar::new(),
            done: AtomicBool::new(false),
        })
    }

    fn wait_until_stopped(&self) {
        let mut stopped = self.stopped.lock();
        while !*stopped {
            assert!(!self.changed.wait_for(&mut stopped, LONG).timed_out());
        }
    }

    fn let_go(&self) {
        *self.go.lock() = true;
        self.changed.notify_all();
    }
}

impl AroundMemory for Slow {
    fn memory(&self) -> &MemoryDevice {
        &self.memory
    }
    fn write(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if buf[0] == 0x99 {
            *self.stopped.lock() = true;
            self.changed.notify_all();
            let mut go = self.go.lock();
            while !*go {
                assert!(!self.changed.wait_for(&mut go, LONG).timed_out());
            }
            self.memory.write_at(buf, offset)?;
            self.done.store(true, Ordering::SeqCst);
            return Ok(());
        }
        self.memory.write_at(buf, offset)
    }
}

/// Revokes while a write is in the middle of the device.
fn drains(revoke: impl Fn(&Admin) -> Result<(), DiskError> + Sync, reason: fn(&DiskError) -> bool) {
    let slow = Slow::new();
    let disk = Disk::on(slow.clone(), Protection::Secure);
    let admin = disk.admin();
    admin.set_groups(&[GroupId(1)]).unwrap();
    let ticket = disk.ticket(5, Mode::Write, &[(0, 4)]);
    let (writer, other) = (disk.client(), disk.client());
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| writer.write(&ticket, 0, &[0x99; 4096]));
        slow.wait_until_stopped();
        let revoking = scope.spawn(|| {
            revoke(&admin).unwrap();
            slow.done.load(Ordering::SeqCst)
        });
        // The revocation has begun when the capability is refused.
        let refused = loop {
            match other.write(&ticket, 1, &[1; 4096]) {
                Ok(_) => std::thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert!(reason(&refused), "{refused}");
        // Time for a revocation that does not wait to return; the test holds without it.
        std::thread::sleep(Duration::from_millis(100));
        assert!(!revoking.is_finished());
        slow.let_go();
        writing.join().unwrap().unwrap();
        assert!(revoking.join().unwrap(), "it returned before the write");
    });
    assert!(reason(&writer.write(&ticket, 0, &[1; 4096]).unwrap_err()));
}

#[test]
fn revoking_a_capability_waits_for_its_write() {
    drains(
        |admin| admin.revoke(GroupId(1), &[CapabilityId(4), CapabilityId(5)]),
        |error| matches!(error, DiskError::Revoked),
    );
}

#[test]
fn dropping_a_group_waits_for_its_writes() {
    drains(
        |admin| admin.set_groups(&[GroupId(2)]),
        |error| matches!(error, DiskError::UnknownGroup),
    );
}

#[test]
fn a_client_whose_right_was_revoked_fails_on_its_old_connection_and_on_a_new_one() {
    for protection in [Protection::Secure, Protection::Private] {
        let disk = Disk::new(protection);
        disk.admin().set_groups(&[GroupId(1)]).unwrap();
        let client = disk.client();
        let (taken, kept) = (
            disk.ticket(1, Mode::ReadWrite, &[(0, 4)]),
            disk.ticket(2, Mode::ReadWrite, &[(0, 4)]),
        );
        client.write(&taken, 0, &[1; 4096]).unwrap();
        disk.admin().revoke(GroupId(1), &[CapabilityId(1)]).unwrap();
        for client in [&client, &disk.client()] {
            for _ in 0..4 {
                let refused = client.read(&taken, 0, &mut [0; 4096]).unwrap_err();
                assert!(matches!(refused, DiskError::Revoked), "{refused}");
                let refused = client.write(&taken, 0, &[2; 4096]).unwrap_err();
                assert!(matches!(refused, DiskError::Revoked), "{refused}");
            }
            client.read(&kept, 0, &mut [0; 4096]).unwrap();
        }
        assert_eq!(disk.contents()[..4096], [1; 4096]);
    }
}

#[test]
fn every_bit_of_a_group_can_be_revoked_at_once() {
    let disk = Disk::new(Protection::Secure);
    let admin = disk.admin();
    admin.set_groups(&[GroupId(1)]).unwrap();
    let all: Vec<_> = (0..CAPABILITIES_PER_GROUP).map(CapabilityId).collect();
    admin.revoke(GroupId(1), &all).unwrap();
    let client = disk.client();
    for id in [0, 1, 63, 64, CAPABILITIES_PER_GROUP - 1] {
        let ticket = disk.ticket(id, Mode::Read, &[(0, 1)]);
        let refused = client.read(&ticket, 0, &mut [0; 4096]).unwrap_err();
        assert!(matches!(refused, DiskError::Revoked), "{id}: {refused}");
    }
    let beyond = CapabilityId(CAPABILITIES_PER_GROUP);
    assert!(admin.revoke(GroupId(1), &[beyond]).is_err());
}
