//! Reencryption: nothing is lost, whatever cuts it off, and cryptsetup goes on with ours as we do with its.

use std::ops::ControlFlow;
use std::sync::Arc;

use device::Device;
use volume::crypt::CryptOptions;
use volume::luks::{
    self, FormatOptions, Limits, Luks, LuksError, Progress, ReencryptOptions, RestoreRefusal,
};

use crate::common::*;
use crate::power::{device_of, images};

const LEN: usize = 384 << 10;
const RESUME: &str =
    "reencrypt --resume-only --force-offline-reencrypt --batch-mode --key-file key img";

/// A volume with known contents, whose place for a journal holds a quarter of them.
pub(crate) fn volume() -> (Arc<dyn Device>, Vec<u8>) {
    let device = memory((1 << 20) + LEN);
    let options = FormatOptions {
        data_offset: Some(1 << 20),
        keyslots_size: Some(2 * 131_072 + (128 << 10)),
        sector_size: Some(512),
        ..cheap()
    };
    luks::format(Arc::clone(&device), None, &options, PASS).unwrap();
    let plain = noise(5, LEN);
    contents(&device, None, PASS).write_at(&plain, 0).unwrap();
    (device, plain)
}

pub(crate) fn cheaply() -> ReencryptOptions {
    ReencryptOptions {
        kdf: Some(PBKDF2),
        ..ReencryptOptions::default()
    }
}

pub(crate) fn begin(device: &Arc<dyn Device>, options: &ReencryptOptions) -> luks::Result<Luks> {
    let mut luks = read(device);
    luks.begin_reencryption(None, &[PASS], options, &Limits::default())?;
    Ok(luks)
}

/// Goes on, to the end or for some steps.
pub(crate) fn go_on(luks: &mut Luks, mut steps: usize) -> luks::Result<bool> {
    luks.reencrypt(
        None,
        PASS,
        &Limits::default(),
        &mut |Progress { done, total }| {
            assert!(done <= total);
            steps -= 1;
            if steps == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        },
    )
}

#[test]
fn a_reencrypted_volume_has_its_contents_and_another_key_cipher_and_sector_size() {
    for (cipher, key_len, sector_size) in [
        (None, None, None),
        (Some("aes-cbc-essiv:sha256"), Some(32), Some(512)),
        (Some("xchacha20,aes-adiantum-plain64"), Some(32), Some(4096)),
    ] {
        let (device, plain) = volume();
        let (old_key, _) = read(&device).unlock(PASS, &Limits::default()).unwrap();
        let before = all(&*device);
        let options = ReencryptOptions {
            cipher: cipher.map(Into::into),
            key_len,
            sector_size,
            ..cheaply()
        };
        let mut luks = begin(&device, &options).unwrap();
        assert!(luks.is_reencrypting());
        assert!(matches!(
            luks.unlock(PASS, &Limits::default()),
            Err(LuksError::Reencrypting)
        ));
        assert!(go_on(&mut luks, usize::MAX).unwrap());
        assert!(!luks.is_reencrypting());
        assert!(all(&contents(&device, None, PASS)) == plain, "{cipher:?}");
        let luks = read(&device);
        assert!(matches!(
            luks.check_key(old_key.expose()),
            Err(LuksError::WrongKey)
        ));
        let dump = luks.dump();
        assert_eq!(
            (
                dump.keyslots.len(),
                dump.digests.len(),
                dump.requirements.len()
            ),
            (1, 1, 0)
        );
        assert_eq!(
            dump.segments[0].cipher.as_deref(),
            cipher.or(Some("aes-xts-plain64"))
        );
        // No sector of the data is as it was, and the old header opens nothing any more.
        let after = all(&*device);
        let same = (1 << 20..after.len()).step_by(512);
        assert_eq!(
            same.filter(|at| after[*at..at + 512] == before[*at..at + 512])
                .count(),
            0
        );
        let mut image = after;
        image[..0x8000].copy_from_slice(&before[..0x8000]);
        assert!(
            read(&device_of(&image))
                .unlock(PASS, &Limits::default())
                .is_err()
        );
    }
}

#[test]
fn a_reencryption_survives_a_kill_at_every_write() {
    let (device, plain) = volume();
    let check = |name: &str, image: &[u8]| {
        let device = device_of(image);
        let mut luks = read(&device);
        if luks.is_reencrypting() {
            assert!(go_on(&mut luks, usize::MAX).unwrap(), "{name}");
        }
        assert!(all(&contents(&device, None, PASS)) == plain, "{name}");
    };
    let all_images = images(&all(&*device), |device| {
        let mut luks = begin(&device, &cheaply()).unwrap();
        assert!(go_on(&mut luks, usize::MAX).unwrap());
    });
    assert!(all_images.len() > 60, "{}", all_images.len());
    for (name, image) in &all_images {
        check(name, image);
    }
    // And a kill while it recovers from a kill in the middle.
    let (name, middle) = &all_images[all_images.len() / 2];
    for (second, image) in images(middle, |device| {
        go_on(&mut read(&device), 2).unwrap();
    }) {
        check(&format!("{name}, then {second}"), &image);
    }
}

/// The header without a requirement came first, and a wipe that did not follow it was never made up for.
#[test]
fn the_old_key_is_gone_from_every_image_whose_header_says_that_all_is_done() {
    let (device, plain) = volume();
    let before = all(&*device);
    let mut luks = begin(&device, &cheaply()).unwrap();
    assert!(!go_on(&mut luks, 2).unwrap());
    let dump = luks.dump();
    let mut slots = dump.keyslots.iter();
    let journal = slots.find(|slot| slot.kind == "reencrypt").unwrap().area;
    let (start, end) = (
        journal.offset as usize,
        (journal.offset + journal.size) as usize,
    );
    let last_part = &before[before.len() - (end - start)..];
    let is_wiped = |name: &str, image: &[u8]| {
        let mut with_old_header = image.to_vec();
        with_old_header[..0x8000].copy_from_slice(&before[..0x8000]);
        let opened = read(&device_of(&with_old_header)).unlock(PASS, &Limits::default());
        assert!(opened.is_err(), "{name}: the old key is there");
        let kept = image[start..end].iter().zip(last_part);
        let kept = kept.filter(|(now, old)| now == old).count();
        assert!(kept < (end - start) / 100, "{name}: the journal is there");
    };
    let (mut ended, mut without_old_key) = (0, 0);
    for (name, image) in images(&all(&*device), |device| {
        assert!(go_on(&mut read(&device), usize::MAX).unwrap());
    }) {
        let device = device_of(&image);
        let mut luks = read(&device);
        if luks.is_reencrypting() {
            let old = luks.dump().keyslots[0].area;
            let range = old.offset as usize..(old.offset + old.size) as usize;
            without_old_key += usize::from(image[range.clone()] != before[range]);
            assert!(go_on(&mut luks, usize::MAX).unwrap(), "{name}");
        } else {
            is_wiped(&name, &image);
            ended += 1;
        }
        is_wiped(&name, &all(&*device));
        assert!(all(&contents(&device, None, PASS)) == plain, "{name}");
        assert_eq!(read(&device).dump().keyslots.len(), 1, "{name}");
    }
    assert!(ended > 2, "{ended}");
    assert!(without_old_key > 2, "{without_old_key}");
}

/// The slots of the old key are those of the new one, and were to be wiped at the end.
#[test]
fn a_reencryption_that_keeps_the_key_is_left_to_cryptsetup() {
    if !have("cryptsetup") {
        return;
    }
    let (device, plain) = volume();
    let dir = Dir::new();
    dir.file("img", &all(&*device));
    dir.run(
        "cryptsetup",
        "reencrypt --init-only --force-offline-reencrypt --batch-mode --key-file key --keep-key --sector-size 4096 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 img",
    );
    let before = all(&*dir.open("img"));
    let error = go_on(&mut read(&dir.open("img")), usize::MAX).unwrap_err();
    assert!(error.to_string().contains("keeps the key"), "{error}");
    assert!(all(&*dir.open("img")) == before, "nothing was written");
    dir.run("cryptsetup", RESUME);
    assert!(all(&contents(&dir.open("img"), None, PASS)) == plain);
}

/// An image whose header says that a part is being written.
pub(crate) fn cut_off_within_a_part() -> Vec<u8> {
    let (device, _) = volume();
    let images = images(&all(&*device), |device| {
        let mut luks = begin(&device, &cheaply()).unwrap();
        go_on(&mut luks, 2).unwrap();
    });
    let mut within = images.into_iter().map(|(_, image)| image).filter(|image| {
        let dump = read(&device_of(image)).dump();
        let mut flags = dump.segments.iter().flat_map(|s| &s.flags);
        flags.any(|flag| flag == "in-reencryption") && dump.copies == ["good", "good"]
    });
    within.next_back().unwrap()
}

#[test]
fn key_slots_without_a_passphrase_go_only_on_request() {
    let (device, plain) = volume();
    let mut luks = read(&device);
    let (key, _) = luks.unlock(PASS, &Limits::default()).unwrap();
    luks.add_key(&key, b"second", &PBKDF2, None).unwrap();
    let error = begin(&device, &cheaply()).unwrap_err().to_string();
    assert!(error.contains("key slots 1 would be lost"), "{error}");
    luks.remove_key(1).unwrap();
    let error = read(&device)
        .begin_reencryption(None, &[PASS, b"wrong"], &cheaply(), &Limits::default())
        .unwrap_err();
    assert!(matches!(error, LuksError::WrongPassphrase));
    assert!(!read(&device).is_reencrypting());
    assert!(all(&contents(&device, None, PASS)) == plain);
}

#[test]
fn what_a_stranger_says_of_a_reencryption_is_refused() {
    let (device, _) = volume();
    let mut luks = begin(&device, &cheaply()).unwrap();
    go_on(&mut luks, 1).unwrap();
    assert!(luks.is_reencrypting());
    let wrong = luks.reencrypt(None, b"wrong", &Limits::default(), &mut |_| {
        ControlFlow::Continue(())
    });
    assert!(matches!(wrong, Err(LuksError::WrongPassphrase)));
    // The cipher it ends with is another than the keys vouch for.
    let image = all(&*device);
    for (from, to, expected) in [
        (
            "\"encryption\":\"aes-xts-plain64\"",
            "\"encryption\":\"aes-cbc-plain64\"",
            "",
        ),
        ("\"backup-final\"", "\"backup-other\"", "backup-final"),
        ("\"forward\"", "\"abcdefg\"", "backwards"),
    ] {
        let mut image = image.clone();
        for start in [0, 0x4000] {
            let text = String::from_utf8_lossy(&image[start + 4096..start + 0x4000]).into_owned();
            assert!(text.contains(from), "{from}: {text}");
            let text = text.replace(from, to);
            image[start + 4096..start + 0x4000].copy_from_slice(&text.as_bytes()[..0x3000]);
            crate::malformed::sign(&mut image[start..start + 0x4000]);
        }
        let device = device_of(&image);
        let result = go_on(&mut read(&device), usize::MAX);
        let error = result.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(all(&*device) == image, "nothing was written");
    }
}

#[test]
fn cryptsetup_ends_what_was_begun_here_wherever_it_was_cut_off_until_the_old_key_is_wiped() {
    if !have("cryptsetup") {
        return;
    }
    let (device, plain) = volume();
    let before = all(&*device);
    let old = read(&device).dump().keyslots[0].area;
    let old = old.offset as usize..(old.offset + old.size) as usize;
    let cut = images(&before, |device| {
        let mut luks = begin(&device, &cheaply()).unwrap();
        assert!(go_on(&mut luks, usize::MAX).unwrap());
    });
    // It wants the old key, also where nothing is left to decrypt.
    let (running, wiped): (Vec<_>, Vec<_>) = cut
        .iter()
        .filter(|(_, image)| read(&device_of(image)).is_reencrypting())
        .partition(|(_, image)| image[old.clone()] == before[old.clone()]);
    let mut repaired = 0;
    // It takes cryptsetup a second each.
    for (name, image) in running.iter().step_by(running.len() / 6) {
        let dir = Dir::new();
        dir.file("img", image);
        // A part that was cut off in the middle is for its `repair`, which takes it from the journal.
        let dump = read(&device_of(image)).dump();
        let mut flags = dump.segments.iter().flat_map(|segment| &segment.flags);
        if flags.any(|flag| flag == "in-reencryption") {
            dir.run("cryptsetup", "repair --batch-mode --key-file key img");
            repaired += 1;
        }
        // Repairing the last part ends it.
        if read(&dir.open("img")).is_reencrypting() {
            dir.run("cryptsetup", RESUME);
        }
        assert!(
            all(&contents(&dir.open("img"), None, PASS)) == plain,
            "{name}"
        );
    }
    assert!(repaired > 1);
    // There it leaves the data alone, and it ends here.
    for (name, image) in wiped.iter().step_by(wiped.len() / 3) {
        let dir = Dir::new();
        dir.file("img", image);
        dir.try_run("cryptsetup", "repair --batch-mode --key-file key img");
        assert!(
            !dir.try_run("cryptsetup", RESUME).status.success(),
            "{name}"
        );
        let device = dir.open("img");
        assert!(all(&*device)[1 << 20..] == image[1 << 20..], "{name}");
        assert!(go_on(&mut read(&device), usize::MAX).unwrap(), "{name}");
        assert!(all(&contents(&device, None, PASS)) == plain, "{name}");
    }
}

#[test]
fn what_cryptsetup_began_ends_here_and_what_ended_here_opens_there() {
    if !have("cryptsetup") {
        return;
    }
    for resilience in ["checksum", "journal", "none"] {
        let (device, plain) = volume();
        let dir = Dir::new();
        dir.file("img", &all(&*device));
        dir.run(
            "cryptsetup",
            &format!("reencrypt --init-only --force-offline-reencrypt --batch-mode --key-file key --resilience {resilience} --pbkdf pbkdf2 --pbkdf-force-iterations 1000 img"),
        );
        {
            let mut luks = read(&dir.open("img"));
            assert!(luks.is_reencrypting());
            assert!(!go_on(&mut luks, 1).unwrap());
        }
        let mut luks = read(&dir.open("img"));
        assert!(go_on(&mut luks, usize::MAX).unwrap());
        assert!(
            all(&contents(luks.device(), None, PASS)) == plain,
            "{resilience}"
        );
        drop(luks);
        dir.run("cryptsetup", "open --test-passphrase --key-file key img");
    }
}

/// A backup made before a reencryption opens another key than the data is under; one made during it says that less is
/// done than is.
#[test]
fn a_backup_of_before_or_within_a_reencryption_is_put_back_by_force_only() {
    let (device, plain) = volume();
    let refusal = |backup: &[u8]| {
        let before = all(&*device);
        let error = luks::restore_header(&device, backup, false).unwrap_err();
        assert!(all(&*device) == before, "nothing was written");
        match error {
            LuksError::Restore(refusal) => refusal,
            other => panic!("{other}"),
        }
    };
    let before = luks::backup_header(&device).unwrap();
    let mut luks = begin(&device, &cheaply()).unwrap();
    assert!(!go_on(&mut luks, 1).unwrap());
    let within = luks::backup_header(&device).unwrap();
    assert!(!go_on(&mut luks, 1).unwrap());
    let requirement = || "online-reencrypt-v2".to_owned();
    let device_requires = RestoreRefusal::DeviceRequires(requirement());
    assert_eq!(refusal(&within), device_requires);
    assert_eq!(refusal(&before), device_requires);
    assert!(go_on(&mut luks, usize::MAX).unwrap());
    assert_eq!(refusal(&before), RestoreRefusal::OtherKey);
    assert_eq!(
        refusal(&within),
        RestoreRefusal::BackupRequires(requirement())
    );
    assert!(all(&contents(&device, None, PASS)) == plain);

    // One of afterwards comes back, and one of before by force.
    let after = luks::backup_header(&device).unwrap();
    luks::restore_header(&device, &after, false).unwrap();
    assert!(all(&contents(&device, None, PASS)) == plain);
    luks::restore_header(&device, &before, true).unwrap();
    assert!(all(&contents(&device, None, PASS)) != plain);
}

#[test]
fn a_detached_header_reencrypts_its_data() {
    let (header, data) = (memory(1 << 20), memory(64 << 10));
    let options = FormatOptions {
        keyslots_size: Some(900 << 10),
        data_offset: None,
        ..cheap()
    };
    let plain = noise(9, 64 << 10);
    luks::format(Arc::clone(&header), Some(&*data), &options, PASS).unwrap();
    contents(&header, Some(&data), PASS)
        .write_at(&plain, 0)
        .unwrap();
    let mut luks = read(&header);
    let passes: [&[u8]; 1] = [PASS];
    luks.begin_reencryption(Some(&*data), &passes, &cheaply(), &Limits::default())
        .unwrap();
    let mut on = |_| ControlFlow::Continue(());
    assert!(matches!(
        luks.reencrypt(None, PASS, &Limits::default(), &mut on),
        Err(LuksError::DataElsewhere)
    ));
    assert!(
        luks.reencrypt(Some(Arc::clone(&data)), PASS, &Limits::default(), &mut on)
            .unwrap()
    );
    let (key, _) = luks.unlock(PASS, &Limits::default()).unwrap();
    let volume = luks
        .open(Some(data), &key, CryptOptions::default())
        .unwrap();
    assert!(all(&volume) == plain);
}

#[test]
fn what_cryptsetup_left_in_the_middle_of_a_part_is_recovered_here() {
    if !have("cryptsetup") {
        return;
    }
    for resilience in ["checksum", "journal"] {
        let dir = Dir::new();
        let plain = noise(11, 4 << 20);
        dir.file("img", &vec![0; plain.len()]);
        dir.file("hdr", &vec![0; 1 << 20]);
        let options = FormatOptions {
            keyslots_size: Some(900 << 10),
            data_offset: None,
            sector_size: Some(4096),
            ..cheap()
        };
        {
            let (header, data) = (dir.open("hdr"), dir.open("img"));
            luks::format(Arc::clone(&header), Some(&*data), &options, PASS).unwrap();
            contents(&header, Some(&data), PASS)
                .write_at(&plain, 0)
                .unwrap();
        }
        // A limit on the length of files kills it while it writes behind that: 1.5 MiB and a page, in KiB.
        let script = format!(
            "ulimit -f 1540; exec cryptsetup reencrypt --force-offline-reencrypt --batch-mode --header hdr --key-file key --resilience {resilience} --pbkdf pbkdf2 --pbkdf-force-iterations 1000 img"
        );
        dir.file("script", script.as_bytes());
        let killed = dir.try_run("bash", "script");
        assert!(!killed.status.success());
        let (header, data) = (dir.open("hdr"), dir.open("img"));
        let mut luks = read(&header);
        assert!(luks.is_reencrypting(), "{killed:?}");
        let dump = luks.dump();
        let mut flags = dump.segments.iter().flat_map(|segment| &segment.flags);
        assert!(flags.any(|flag| flag == "in-reencryption"), "{dump}");
        let mut on = |_| ControlFlow::Continue(());
        luks.reencrypt(Some(Arc::clone(&data)), PASS, &Limits::default(), &mut on)
            .unwrap();
        assert!(
            all(&contents(&header, Some(&data), PASS)) == plain,
            "{resilience}"
        );
    }
}
