//! Keys of a disk that were renewed: both are accepted for a while, then only the new ones.

use crate::common;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{BLOCKS, Disk, LONG};
use device::MemoryDevice;
use netdisk::server::{Config, TimeSource};
use netdisk::*;

/// The present date, and a running time that the test sets.
#[derive(Debug, Default)]
struct SetTime(AtomicU64);

impl TimeSource for SetTime {
    fn date(&self) -> Duration {
        Duration::from_secs(common::now())
    }

    fn running(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

fn renewed(protection: Protection) {
    let time = Arc::new(SetTime::default());
    let mut disk = Disk::with(
        Arc::new(MemoryDevice::new(4 << 20)),
        Config {
            protection,
            time: time.clone(),
            ..Config::default()
        },
    );
    let (old_key, old_address) = (disk.key(), disk.address());
    let generated = KeyFile::generate().unwrap();
    let present = std::mem::replace(&mut disk.keys, generated);
    disk.keys = present.renewed(Duration::from_secs(1000)).unwrap();
    disk.restart();
    let (new_key, new_address) = (disk.key(), disk.address());
    assert_ne!(old_address.certificate, new_address.certificate);
    let ask = |key: &DiskKey, address: &DiskAddress| {
        let admin = Admin::new(address.clone(), key.clone(), LONG);
        admin.set_groups(&[GroupId(1)])?;
        let ticket = key.ticket(disk.capability(1, Mode::Read, &[(0, BLOCKS)]));
        let client = DiskClient::new(address.clone(), LONG);
        client.read(&ticket, 0, &mut [0; 4096])
    };
    // A metadata server and clients of before, and of now; or those who know the address of before and were given capabilities of now.
    ask(&old_key, &old_address).unwrap();
    ask(&new_key, &new_address).unwrap();
    ask(&new_key, &old_address).unwrap();
    // One connection goes on over the end.
    let lasting = Admin::new(old_address.clone(), old_key.clone(), LONG);
    lasting.status().unwrap();
    time.0.store(2000, Ordering::SeqCst);
    let refused = lasting.status();
    assert!(
        matches!(refused, Err(DiskError::NotAuthentic)),
        "{refused:?}"
    );
    let refused = ask(&old_key, &old_address);
    assert!(
        matches!(refused, Err(DiskError::NotAuthentic)),
        "{refused:?}"
    );
    ask(&new_key, &new_address).unwrap();
    // A capability of before that a connection has used is not accepted from memory.
    let ticket = old_key.ticket(disk.capability(1, Mode::Read, &[(0, BLOCKS)]));
    let client = DiskClient::new(new_address, LONG);
    let refused = client.read(&ticket, 0, &mut [0; 4096]);
    assert!(
        matches!(refused, Err(DiskError::NotAuthentic)),
        "{refused:?}"
    );
}

#[test]
fn renewed_keys_are_accepted_beside_those_before_until_these_end() {
    renewed(Protection::Secure);
}

#[test]
fn renewed_certificates_are_shown_to_the_clients_that_know_them() {
    renewed(Protection::Private);
}
