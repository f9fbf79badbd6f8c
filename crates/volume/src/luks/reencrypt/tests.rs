//! Records of a reencryption that a holder of the keys made up.

use device::MemoryDevice;

use super::*;
use crate::luks::{FormatOptions, format};

const PASS: &[u8] = b"pass";
const KDF: KdfOptions = KdfOptions::Pbkdf2 {
    hash: Hash::Sha256,
    iterations: 1000,
};

/// A reencryption that has just begun, of sectors of 4096 bytes, with what `change` makes of its progress and its JSON, under the
/// digest of both keys.
fn forged(change: impl FnOnce(&mut Run, &mut Value, &dyn Device)) -> Luks {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(3 << 20));
    let options = FormatOptions {
        kdf: Some(KDF),
        data_offset: Some(2 << 20),
        sector_size: Some(4096),
        ..FormatOptions::default()
    };
    let mut luks = format(Arc::clone(&device), None, &options, PASS).unwrap();
    let options = ReencryptOptions {
        kdf: Some(KDF),
        ..ReencryptOptions::default()
    };
    luks.begin_reencryption(None, &[PASS], &options, &Limits::default())
        .unwrap();
    let Header::V2(header) = &luks.header else {
        unreachable!()
    };
    let mut run = Run::of(header).unwrap();
    run.measure(device.len()).unwrap();
    let key = |digest| luks.unlock_for(digest, PASS, &Limits::default()).unwrap();
    let (old, new) = (key(run.old_digest), key(run.new_digest));
    let mut next = v2::Header::clone(header);
    let slot = run.slot.to_string();
    let mut area = next.json["keyslots"][&slot]["area"].clone();
    change(&mut run, &mut area, &*device);
    next.json["keyslots"][&slot]["area"] = area;
    next.json = run.at(&next);
    let json = run.vouched(&next, &old, &new).unwrap();
    next.write(&*device, json).unwrap();
    Luks::read(device).unwrap()
}

fn is_refused(mut luks: Luks) {
    let mut steps = 0;
    let ended = luks.reencrypt(None, PASS, &Limits::default(), &mut |_| {
        steps += 1;
        match steps {
            100 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    assert!(matches!(ended, Err(LuksError::Malformed(_))), "{ended:?}");
    assert_eq!(steps, 0);
}

/// Nothing fitted into the journal, and steps of nothing went on for ever.
#[test]
fn a_journal_that_holds_no_sector_is_refused() {
    is_refused(forged(|_, area, _| area["size"] = "2048".into()));
}

/// The cipher was given a part of a sector.
#[test]
fn checksums_of_less_than_a_sector_are_refused() {
    is_refused(forged(|run, area, device| {
        area["type"] = "checksum".into();
        area["hash"] = "sha256".into();
        area["sector_size"] = 512.into();
        run.hot = Some(4096);
        let mut part = [0; 4096];
        device.read_at(&mut part, run.old.0).unwrap();
        for (block, at) in part.chunks(512).zip((run.area.offset..).step_by(32)) {
            let sum = digest::digest(&digest::SHA256, block);
            device.write_at(sum.as_ref(), at).unwrap();
        }
    }));
}
