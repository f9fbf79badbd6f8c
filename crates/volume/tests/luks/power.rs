//! The power is lost between any two writes of a change, and within them: the old state opens, or the new one.
//!
//! A change is recorded on a device; the images it could have left are put together from the record: all writes up to a
//! point; of those since the last flush only the last; the last torn.

use std::io;
use std::sync::{Arc, Mutex};

use device::{Device, MemoryDevice};
use volume::luks::{self, Limits, Luks, LuksError, Result, Version, VolumeKey};

use crate::common::*;

#[derive(Debug, Clone)]
enum Step {
    Write(u64, Vec<u8>),
    Flush,
}

/// Memory that remembers what was done to it.
#[derive(Debug)]
struct Recorder {
    memory: MemoryDevice,
    steps: Mutex<Vec<Step>>,
}

impl Device for Recorder {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.memory.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut steps = self.steps.lock().unwrap();
        steps.push(Step::Write(offset, buf.to_vec()));
        self.memory.write_at(buf, offset)
    }
    fn flush(&self) -> io::Result<()> {
        self.steps.lock().unwrap().push(Step::Flush);
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        panic!("nothing here discards")
    }
    fn write_zeros(&self, _: u64, _: u64) -> io::Result<()> {
        panic!("nothing here zeros")
    }
    fn len(&self) -> u64 {
        self.memory.len()
    }
    fn discards_to_zeros(&self) -> bool {
        false
    }
    fn is_read_only(&self) -> bool {
        false
    }
}

pub(crate) fn device_of(image: &[u8]) -> Arc<dyn Device> {
    let memory = MemoryDevice::new(image.len());
    memory.write_at(image, 0).unwrap();
    Arc::new(memory)
}

/// Every image that a loss of power could leave of a change, with a name; the whole change is the last.
pub(crate) fn images(
    before: &[u8],
    change: impl FnOnce(Arc<dyn Device>),
) -> Vec<(String, Vec<u8>)> {
    let memory = MemoryDevice::new(before.len());
    memory.write_at(before, 0).unwrap();
    let recorder = Arc::new(Recorder {
        memory,
        steps: Mutex::default(),
    });
    change(Arc::clone(&recorder) as Arc<dyn Device>);
    let steps = recorder.steps.lock().unwrap().clone();
    let put = |image: &mut Vec<u8>, offset: u64, bytes: &[u8]| {
        image[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
    };
    let mut found = vec![("nothing".into(), before.to_vec())];
    let (mut all, mut durable) = (before.to_vec(), before.to_vec());
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Flush => durable.clone_from(&all),
            Step::Write(offset, bytes) => {
                // Within a header's first sector and behind it, within its JSON, and in the middle.
                for cut in [300, 512, 4096 + 512, bytes.len() / 2 + 256] {
                    if cut < bytes.len() {
                        let mut torn = all.clone();
                        put(&mut torn, *offset, &bytes[..cut]);
                        found.push((format!("{cut} bytes of step {number}"), torn));
                    }
                }
                let mut alone = durable.clone();
                put(&mut alone, *offset, bytes);
                put(&mut all, *offset, bytes);
                found.push((format!("step {number} before those it followed"), alone));
                found.push((format!("up to step {number}"), all.clone()));
            }
        }
    }
    assert!(
        matches!(steps.last(), Some(Step::Flush)),
        "the end is durable"
    );
    found
}

fn unlock(image: &[u8], pass: &[u8]) -> Result<(VolumeKey, u8)> {
    Luks::read(device_of(image))?.unlock(pass, &Limits::default())
}

/// Images to begin from, by name: whole, and with either copy of the header damaged.
fn beginnings(version: Version) -> Vec<(&'static str, Vec<u8>, VolumeKey)> {
    let options = match version {
        Version::Luks1 => cheap_luks1(),
        Version::Luks2 => cheap(),
    };
    let (device, mut luks) = small(&options);
    let (key, _) = luks.unlock(PASS, &Limits::default()).unwrap();
    luks.add_key(&key, b"second", &PBKDF2, None).unwrap();
    let whole = all(&*device);
    let mut beginnings = vec![("whole", whole.clone(), key.clone())];
    if version == Version::Luks2 {
        for (name, at) in [
            ("first copy damaged", 4200),
            ("second copy damaged", 0x4000 + 4200),
        ] {
            let mut image = whole.clone();
            image[at] ^= 1;
            beginnings.push((name, image, key.clone()));
        }
    }
    beginnings
}

/// After any loss of power one of these passphrases opens the volume, to its own key.
fn check(
    what: &str,
    before: &[u8],
    key: &VolumeKey,
    passes: &[&[u8]],
    change: impl FnOnce(&mut Luks),
) {
    let images = images(before, |device| change(&mut Luks::read(device).unwrap()));
    assert!(images.len() > 3, "{what}: nothing was written");
    for (name, image) in &images {
        let opened = passes.iter().find_map(|pass| unlock(image, pass).ok());
        let Some((found, _)) = opened else {
            panic!(
                "{what}: {name}: {:?}",
                unlock(image, passes[0]).map(|(_, slot)| slot)
            );
        };
        assert_eq!(found.expose(), key.expose(), "{what}: {name}");
    }
}

#[test]
fn adding_removing_and_changing_keys_survives_power_loss_at_every_write() {
    for version in [Version::Luks2, Version::Luks1] {
        for (name, image, key) in beginnings(version) {
            let what = |change: &str| format!("{version:?}, {name}: {change}");
            check(&what("add"), &image, &key, &[PASS], |luks| {
                luks.add_key(&key, b"third", &PBKDF2, None).unwrap();
            });
            check(&what("remove"), &image, &key, &[b"second"], |luks| {
                luks.remove_key(0).unwrap();
            });
            // Whatever is lost, the passphrase that stays opens; and of the one that changes, the old or the new.
            check(&what("change"), &image, &key, &[b"second"], |luks| {
                luks.change_key(&key, 0, b"third", &PBKDF2).unwrap();
            });
            check(&what("change"), &image, &key, &[PASS, b"third"], |luks| {
                luks.change_key(&key, 0, b"third", &PBKDF2).unwrap();
            });
            check(&what("convert"), &image, &key, &[PASS], |luks| {
                luks.convert_kdf(0, PASS, &PBKDF2, &Limits::default())
                    .unwrap();
            });
            check(&what("UUID"), &image, &key, &[PASS], |luks| {
                luks.set_uuid("11111111-2222-4333-8444-555555555555")
                    .unwrap();
            });
        }
    }
}

#[test]
fn the_only_key_of_a_volume_survives_power_loss_at_every_write_of_its_change() {
    for options in [cheap(), cheap_luks1()] {
        let (device, luks) = small(&options);
        let (key, _) = luks.unlock(PASS, &Limits::default()).unwrap();
        let image = all(&*device);
        check("change", &image, &key, &[PASS, b"new"], |luks| {
            luks.change_key(&key, 0, b"new", &PBKDF2).unwrap();
        });
    }
}

#[test]
fn settings_survive_power_loss_at_every_write_and_are_old_or_new() {
    for (name, image, key) in beginnings(Version::Luks2) {
        check(name, &image, &key, &[PASS], |luks| {
            luks.resize(None, Some(8192)).unwrap()
        });
        let images = images(&image, |device| {
            Luks::read(device).unwrap().set_label("new", "").unwrap();
        });
        for (step, image) in &images {
            let label = Luks::read(device_of(image)).unwrap().dump().label;
            assert!(
                label.is_empty() || label == "new",
                "{name}: {step}: {label}"
            );
        }
        let last = Luks::read(device_of(&images.last().unwrap().1)).unwrap();
        assert_eq!(last.dump().label, "new");
        assert_eq!(last.dump().copies, ["good", "good"]);
    }
}

#[test]
fn a_volume_being_made_is_there_wholly_or_not_at_all_after_power_loss() {
    for options in [cheap(), cheap_luks1()] {
        // In the place of an older one, whose secrets must not outlive the new header.
        let (device, older) = small(&cheap());
        drop(older);
        let before = all(&*device);
        let (mut absent, mut opened) = (0, false);
        for (name, image) in images(&before, |device| {
            luks::format(device, None, &options, b"new")
                .map(drop)
                .unwrap();
        }) {
            opened = unlock(&image, b"new").is_ok();
            if opened {
                assert!(unlock(&image, PASS).is_err(), "{name}");
            } else if matches!(
                Luks::read(device_of(&image)),
                Err(LuksError::NotLuks | LuksError::Damaged(_))
            ) {
                absent += 1;
            }
        }
        assert!(opened);
        assert!(absent > 3);
    }
}

#[test]
fn a_backup_being_put_back_can_be_put_back_again_after_power_loss() {
    for version in [Version::Luks2, Version::Luks1] {
        for (name, image, key) in beginnings(version) {
            let backup = luks::backup_header(&device_of(&image)).unwrap();
            let device = device_of(&image);
            let mut luks = read(&device);
            luks.change_key(&key, 0, b"new", &PBKDF2).unwrap();
            luks.remove_key(1).unwrap();
            let changed = all(&*device);
            let all_images = images(&changed, |device| {
                luks::restore_header(&device, &backup, false)
                    .map(drop)
                    .unwrap();
            });
            let (_, last) = all_images.last().unwrap();
            assert_eq!(unlock(last, PASS).unwrap().0.expose(), key.expose());
            assert!(unlock(last, b"new").is_err());
            for (step, image) in &all_images {
                let device = device_of(image);
                luks::restore_header(&device, &backup, false)
                    .map(drop)
                    .unwrap();
                let opened = unlock(&all(&*device), b"second").unwrap().0;
                assert_eq!(opened.expose(), key.expose(), "{version:?} {name} {step}");
            }
        }
    }
}

#[test]
fn what_a_removed_passphrase_opened_is_gone_from_the_device() {
    for options in [cheap(), cheap_luks1()] {
        let (device, mut luks) = small(&options);
        let (key, _) = luks.unlock(PASS, &Limits::default()).unwrap();
        luks.add_key(&key, b"second", &PBKDF2, None).unwrap();
        let header = all(&*device);
        let area = luks.dump().keyslots[0].area;
        luks.remove_key(0).unwrap();
        // The old header over what is there now: had any of the material stayed, all of it would be needed.
        let mut image = all(&*device);
        let (start, end) = (area.offset as usize, (area.offset + area.size) as usize);
        let kept = (start..end).filter(|at| image[*at] == header[*at]).count();
        assert!(kept < (end - start) / 100, "{kept} bytes are as they were");
        let headers = if options.version == Version::Luks1 {
            592
        } else {
            0x8000
        };
        image[..headers].copy_from_slice(&header[..headers]);
        assert!(unlock(&image, PASS).is_err());
        assert!(unlock(&image, b"second").is_ok());
    }
}
