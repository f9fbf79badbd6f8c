//! What a decrypted device promises, against a plain model of it.

use std::thread;

use device::MemoryDevice;

use super::*;

const LEN: u64 = 96 << 10;

fn cipher(sector_size: usize) -> SectorCipher {
    SectorCipher::new("aes-xts-plain64", &[9; 64], sector_size).unwrap()
}

fn options() -> CryptOptions {
    CryptOptions::default()
}

/// A device of `len` bytes that begins at byte 4096 of the one below.
fn volume(sector_size: usize, len: u64, options: CryptOptions) -> (Arc<MemoryDevice>, CryptDevice) {
    let below = Arc::new(MemoryDevice::new(len as usize + 8192));
    let at = Extent {
        offset: 4096,
        len,
        iv_offset: 11,
    };
    let device = CryptDevice::new(below.clone(), cipher(sector_size), at, options).unwrap();
    (below, device)
}

#[test]
fn any_writes_and_reads_are_those_of_a_plain_device() {
    for (sector, len) in [
        (512, LEN),
        (2048, LEN),
        (4096, LEN),
        (4096, 3 * PIECE as u64),
    ] {
        let (below, device) = volume(sector, len, options());
        let mut model = vec![0; len as usize];
        device.write_zeros(0, len).unwrap();
        let mut random = fastrand::Rng::with_seed(sector as u64);
        for round in 0..400_u32 {
            let offset = random.u64(..len);
            let most = (len - offset).min(if round % 8 == 0 { len } else { 6000 });
            let size = random.u64(..=most);
            let range = offset as usize..(offset + size) as usize;
            match random.u64(..4) {
                0 => {
                    device.write_zeros(offset, size).unwrap();
                    model[range].fill(0);
                }
                1 => {
                    let mut got = vec![0xee; size as usize];
                    device.read_at(&mut got, offset).unwrap();
                    assert!(got == model[range], "sector {sector}, round {round}");
                }
                _ => {
                    let data: Vec<u8> = (0..size).map(|i| (i as u8) ^ round as u8).collect();
                    device.write_at(&data, offset).unwrap();
                    model[range].copy_from_slice(&data);
                }
            }
        }
        let mut all = vec![0; len as usize];
        device.read_at(&mut all, 0).unwrap();
        assert!(all == model);

        // The device below holds the ciphertext of the whole, at its offset and nowhere else.
        let contents = below.contents();
        cipher(sector).encrypt(&mut model, 11);
        assert!(contents[4096..4096 + len as usize] == model[..]);
        assert!(contents[..4096].iter().all(|&b| b == 0));
        assert!(contents[4096 + len as usize..].iter().all(|&b| b == 0));
    }
}

#[test]
fn writers_of_parts_of_one_sector_all_land() {
    let (_, device) = volume(4096, LEN, options());
    device.write_zeros(0, LEN).unwrap();
    let writers = 8;
    thread::scope(|scope| {
        for writer in 0..writers {
            let device = &device;
            scope.spawn(move || {
                for round in 0..200_u64 {
                    // Its own 64 bytes of each sector in turn.
                    let sector = round % (LEN / 4096);
                    let part = [writer as u8 + 1; 64];
                    device.write_at(&part, sector * 4096 + writer * 64).unwrap();
                }
            });
        }
    });
    for sector in 0..LEN / 4096 {
        let mut got = vec![0; 64 * writers as usize];
        device.read_at(&mut got, sector * 4096).unwrap();
        for (writer, part) in got.chunks(64).enumerate() {
            assert!(
                part.iter().all(|&b| b == writer as u8 + 1),
                "sector {sector}, writer {writer}"
            );
        }
    }
}

#[test]
fn a_whole_sector_is_not_lost_to_a_part_written_beside_it() {
    let (_, device) = volume(4096, 8192, options());
    for round in 0..300_u32 {
        let fill = (round % 200) as u8 + 1;
        device.write_zeros(0, 8192).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| device.write_at(&[fill; 4096], 0).unwrap());
            // Reads the sector before the whole write, or after it.
            scope.spawn(|| device.write_at(&[0xff; 8], 100).unwrap());
        });
        let mut got = vec![0; 4096];
        device.read_at(&mut got, 0).unwrap();
        assert!(
            got[..100].iter().chain(&got[108..]).all(|&b| b == fill),
            "round {round}"
        );
    }
}

#[test]
fn what_leaves_the_device_is_refused_and_changes_nothing() {
    let (below, device) = volume(512, LEN, options());
    let before = below.contents();
    for (offset, len) in [(LEN, 1), (LEN - 1, 2), (u64::MAX, 1), (0, LEN + 1)] {
        let mut buf = vec![0; len as usize];
        let error = device.read_at(&mut buf, offset).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let error = device.write_at(&buf, offset).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(device.write_zeros(offset, len).is_err());
        assert!(device.discard(offset, len).is_err());
        assert!(device.prefetch(offset, len).is_err());
    }
    device.read_at(&mut [], LEN).unwrap();
    device.write_at(&[], LEN).unwrap();
    assert!(below.contents() == before);
}

#[test]
fn contents_that_are_not_whole_sectors_or_leave_the_device_are_refused() {
    let below: Arc<dyn Device> = Arc::new(MemoryDevice::new(8192));
    for (offset, len) in [
        (0, 100),
        (0, 512),
        (4096, 8192),
        (u64::MAX, 4096),
        (8193, 0),
    ] {
        let at = Extent {
            offset,
            len,
            iv_offset: 0,
        };
        let error = CryptDevice::new(below.clone(), cipher(4096), at, options()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn a_read_only_volume_takes_no_change() {
    let read_only = CryptOptions {
        read_only: true,
        ..options()
    };
    let (_, asked) = volume(512, LEN, read_only);
    let at = Extent {
        offset: 0,
        len: 8192,
        iv_offset: 0,
    };
    let below = Arc::new(MemoryDevice::read_only(vec![0; 8192]));
    let inherited = CryptDevice::new(below, cipher(512), at, options()).unwrap();
    for device in [asked, inherited] {
        assert!(device.is_read_only());
        for error in [
            device.write_at(&[1], 0).unwrap_err(),
            device.write_zeros(0, 1).unwrap_err(),
            device.discard(0, 512).unwrap_err(),
        ] {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        }
    }
}

#[test]
fn discards_go_down_only_when_allowed_and_never_read_as_zeros() {
    let (below, device) = volume(4096, LEN, options());
    device.write_at(&[7; 8192], 0).unwrap();
    let before = below.contents();
    device.discard(0, LEN).unwrap();
    assert!(below.contents() == before);

    let (below, device) = volume(
        4096,
        LEN,
        CryptOptions {
            allow_discards: true,
            ..options()
        },
    );
    device.write_at(&[7; 16384], 0).unwrap();
    let before = below.contents();
    device.discard(1, 12288).unwrap();
    let after = below.contents();
    // Whole sectors of the range only.
    assert!(after[4096..8192] == before[4096..8192]);
    assert!(after[8192..16384].iter().all(|&b| b == 0));
    assert!(after[16384..20480] == before[16384..20480]);
    assert!(!device.discards_to_zeros());
    let status = device.status(4096, 8192).unwrap();
    assert!(status.allocated && !status.zeros);
    let mut got = vec![0; 4096];
    device.read_at(&mut got, 4096).unwrap();
    assert!(
        got.iter().any(|&b| b != 0),
        "zeros below are not zeros here"
    );
}
