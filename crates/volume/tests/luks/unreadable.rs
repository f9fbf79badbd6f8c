//! Sectors that cannot be read any more: what is whole beside them still opens the volume.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex};

use device::{AroundMemory, Device, MemoryDevice};
use volume::luks::{self, CopyState, Limits, Luks, LuksError};
use volume::{Credential, Format, OpenOptions};
use zeroize::Zeroizing;

use crate::common::*;

const COPY: u64 = 0x4000;

const SECTOR: u64 = 512;

/// Memory of which some sectors cannot be read until they are written over, as on a disk that has spare ones.
#[derive(Debug)]
struct Worn {
    memory: MemoryDevice,
    /// Their numbers.
    lost: Mutex<BTreeSet<u64>>,
}

impl AroundMemory for Worn {
    fn memory(&self) -> &MemoryDevice {
        &self.memory
    }

    fn read(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = (offset + buf.len() as u64).div_ceil(SECTOR);
        match self.lost.lock().unwrap().range(offset / SECTOR..end).next() {
            Some(_) => Err(io::Error::other("a sector cannot be read")),
            None => self.memory.read_at(buf, offset),
        }
    }

    fn write(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let whole = offset.div_ceil(SECTOR)..(offset + buf.len() as u64) / SECTOR;
        let mut lost = self.lost.lock().unwrap();
        lost.retain(|sector| !whole.contains(sector));
        self.memory.write_at(buf, offset)
    }
}

/// The device with the sectors at these bytes lost.
fn without_sectors(image: &[u8], at: &[u64]) -> Arc<dyn Device> {
    let memory = MemoryDevice::new(image.len());
    memory.write_at(image, 0).unwrap();
    Arc::new(Worn {
        memory,
        lost: Mutex::new(at.iter().map(|at| at / SECTOR).collect()),
    })
}

#[test]
fn a_copy_of_the_header_that_cannot_be_read_keeps_nobody_from_the_data() {
    let (device, _) = small(&cheap());
    let plain = noise(3, 256 << 10);
    contents(&device, None, PASS).write_at(&plain, 0).unwrap();
    let image = all(&*device);
    for (place, at) in [(0, 0), (0, 512), (0, 5120), (1, COPY), (1, COPY + 5120)] {
        let worn = without_sectors(&image, &[at]);
        assert_eq!(
            volume::recognise(&*worn).unwrap(),
            Some(Format::Luks2),
            "{at}"
        );
        let credential = Credential::Passphrase(Zeroizing::new(PASS.to_vec()));
        let options = OpenOptions::default();
        let opened = volume::open(Arc::clone(&worn), None, &credential, options).unwrap();
        assert!(all(&*opened) == plain, "{at}");

        let mut luks = read(&worn);
        let copies = luks.copies().unwrap();
        assert!(matches!(copies[place], CopyState::Damaged(_)), "{at}");
        assert_eq!(copies[1 - place], CopyState::Good);
        assert!(luks.dump().to_string().contains("cannot be read"));
        let backup = luks::backup_header(&worn).unwrap();
        let backup = luks::read_backup(&backup).unwrap();
        assert!(backup.unlock(PASS, &Limits::default()).is_ok(), "{at}");

        // Writing over it is what a disk repairs a sector by.
        luks.set_label("repaired", "").unwrap();
        let repaired = read(&worn);
        assert_eq!(
            repaired.copies().unwrap(),
            &[CopyState::Good, CopyState::Good]
        );
        assert_eq!(repaired.dump().label, "repaired");
        assert!(all(&contents(&worn, None, PASS)) == plain, "{at}");
    }
}

#[test]
fn a_key_slot_that_cannot_be_read_keeps_no_other_from_opening() {
    for options in [cheap(), cheap_luks1()] {
        let (device, mut luks) = small(&options);
        let (key, _) = luks.unlock(PASS, &Limits::default()).unwrap();
        luks.add_key(&key, b"second", &PBKDF2, None).unwrap();
        let first = luks.dump().keyslots[0].area;
        let worn = without_sectors(&all(&*device), &[first.offset + 512]);
        let luks = read(&worn);
        let (_, slot) = luks.unlock(b"second", &Limits::default()).unwrap();
        assert_eq!(slot, 1);
        // That a passphrase is wrong nobody knows while a slot was not tried.
        let error = luks.unlock(PASS, &Limits::default()).unwrap_err();
        assert!(matches!(error, LuksError::Io { .. }), "{error}");
    }
}

#[test]
fn a_device_that_reads_nothing_is_a_failure_of_the_device() {
    let (device, _) = small(&cheap());
    let image = all(&*device);
    let every: Vec<u64> = (0..image.len() as u64).step_by(512).collect();
    let dead = without_sectors(&image, &every);
    assert!(matches!(
        Luks::read(Arc::clone(&dead)),
        Err(LuksError::Io { .. })
    ));
    assert!(volume::recognise(&*dead).is_err());
}

/// What a backup is for could not be done: the header that could not be read was to be compared first, also by force.
#[test]
fn a_backup_is_put_back_by_force_over_a_header_that_cannot_be_read() {
    for options in [cheap(), cheap_luks1()] {
        let (device, _) = small(&options);
        let plain = noise(4, 256 << 10);
        contents(&device, None, PASS).write_at(&plain, 0).unwrap();
        let backup = luks::backup_header(&device).unwrap();
        let image = all(&*device);
        let worn = without_sectors(&image, &[0, COPY]);
        let error = luks::restore_header(&worn, &backup, false).unwrap_err();
        assert!(error.to_string().contains("force"), "{error}");
        assert!(
            Luks::read(Arc::clone(&worn)).is_err(),
            "nothing was written"
        );
        luks::restore_header(&worn, &backup, true).unwrap();
        assert!(all(&contents(&worn, None, PASS)) == plain);
    }
}
