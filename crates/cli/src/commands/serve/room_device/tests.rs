use device::{Device, Extent};
use room::{Credential, NewCredential, NewRoom, OpenOptions, Room, Secret};
use std::sync::Arc;

use super::RoomDevice;

const LEN: u64 = 4 << 20;

fn key() -> Secret {
    Secret::from(&[7; 32][..])
}

fn device(dir: &std::path::Path) -> RoomDevice {
    let room = Room::open(
        &dir.join("room"),
        &Credential::RawKey(key()),
        OpenOptions::with_state_dir(dir.join("state")),
    )
    .unwrap();
    let no = room.resolve("/disk".as_ref(), true).unwrap();
    RoomDevice::new(Arc::new(room), no, false).unwrap()
}

fn with_disk(dir: &std::path::Path) -> RoomDevice {
    let mut new = NewRoom::with_credential(NewCredential::RawKey(key()));
    new.open.state_dir = Some(dir.join("state"));
    let room = Room::create(&dir.join("room"), new).unwrap();
    let file = room.open_or_make_file("/disk").unwrap();
    file.set_len(LEN).unwrap();
    drop(file);
    room.close().unwrap();
    device(dir)
}

/// Random writes, zeros, discards and reads against a plain array; the room is opened again in between.
#[test]
fn a_file_of_a_room_does_what_an_array_does() {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = with_disk(dir.path());
    let mut model = vec![0; LEN as usize];
    let mut random = fastrand::Rng::with_seed(0x5eed);
    let mut next = |below: u64| random.u64(..below);
    for step in 0..600 {
        let offset = next(LEN);
        let len = next(70_000).min(LEN - offset);
        let range = offset as usize..(offset + len) as usize;
        match next(8) {
            0 => {
                disk.write_zeros(offset, len).unwrap();
                model[range].fill(0);
            }
            1 => {
                disk.discard(offset, len).unwrap();
                model[range].fill(0);
            }
            2..5 => {
                let data = vec![step as u8; len as usize];
                disk.write_at(&data, offset).unwrap();
                model[range].copy_from_slice(&data);
            }
            5 if len > 0 => {
                let extent = disk.status(offset, len).unwrap();
                assert!((1..=len).contains(&extent.len));
                let reported = &model[range][..extent.len as usize];
                assert!(
                    !extent.zeros || reported.iter().all(|b| *b == 0),
                    "{extent:?}"
                );
            }
            _ => {
                let mut back = vec![1; len as usize];
                disk.read_at(&mut back, offset).unwrap();
                assert!(back == model[range], "step {step}, {offset}+{len}");
            }
        }
        if step % 150 == 149 {
            disk.flush().unwrap();
            drop(disk);
            disk = device(dir.path());
        }
    }
    let mut back = vec![1; LEN as usize];
    disk.read_at(&mut back, 0).unwrap();
    assert!(back == model);
}

#[test]
fn holes_are_reported_and_nothing_leaves_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let disk = with_disk(dir.path());
    disk.write_at(&[1; 8192], 1 << 20).unwrap();
    disk.flush().unwrap();
    let hole = |len| Extent {
        len,
        allocated: false,
        zeros: true,
    };
    assert_eq!(disk.status(0, LEN).unwrap(), hole(1 << 20));
    assert_eq!(
        disk.status(1 << 20, LEN - (1 << 20)).unwrap(),
        Extent::data(8192)
    );
    let rest = (1 << 20) + 8192;
    assert_eq!(disk.status(rest, LEN - rest).unwrap(), hole(LEN - rest));
    assert!(disk.write_at(&[1; 2], LEN - 1).is_err());
    assert!(disk.write_at(&[1; 2], u64::MAX).is_err());
    assert!(disk.read_at(&mut [1; 2], LEN - 1).is_err());
    assert!(disk.discard(LEN - 1, 2).is_err());
    assert_eq!(disk.len(), LEN);
}
