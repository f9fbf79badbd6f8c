//! Names, directories and attributes: they are the same in every snapshot of a replica.

use crate::common::{credential, pattern, sound};
use fastrand::Rng;
use room::{FileKind, FileSystem as _, NewFile, Room, Snapshots as _, XattrMode};

use super::*;

#[test]
fn a_file_that_gets_its_name_after_a_snapshot_has_its_data_in_a_replica() {
    let pair = Pair::new();
    let room = pair.place.create();
    let new = NewFile::of_kind(FileKind::Regular);
    let no = room.create_tmpfile(ROOT, &new).unwrap().no;
    room.write(no, 0, &pattern(1, 50_000)).unwrap();
    snapshot(&room, "one");
    pair.receive(&stream(&room, None, "one")).unwrap();
    Room::settle_replica(&pair.target(), &credential(), pair.options()).unwrap();
    room.link(no, ROOT, b"named").unwrap();
    snapshot(&room, "two");
    pair.receive(&stream(&room, Some("one"), "two")).unwrap();
    let replica = pair.replica();
    assert!(contents(&replica, "named") == pattern(1, 50_000));
    sound(&replica);
}

/// A kill trial found it: what a deleted snapshot still kept of a file that is in neither moment was sent, and opening the
/// replica failed from then on.
#[test]
fn a_file_that_only_a_deleted_snapshot_saw_is_not_sent() {
    let pair = Pair::new();
    drop(pair.place.create());
    let room = Room::open(&pair.place.room_dir(), &credential(), pair.options()).unwrap();
    file(&room, "a", &pattern(1, 50_000));
    snapshot(&room, "one");
    pair.receive(&stream(&room, None, "one")).unwrap();
    let short = file(&room, "short", &pattern(2, 50_000));
    room.set_xattr(short, b"user.x", b"y", XattrMode::Any, false)
        .unwrap();
    snapshot(&room, "between");
    room.remove_xattr(short, b"user.x").unwrap();
    room.unlink(ROOT, b"short").unwrap();
    file(&room, "b", &pattern(3, 50_000));
    room.tend().unwrap();
    snapshot(&room, "two");
    // What it kept is there until the next tending.
    room.delete_snapshot("between").unwrap();
    pair.receive(&stream(&room, Some("one"), "two")).unwrap();
    let replica = pair.replica();
    sound(&replica);
    assert!(walk(&replica) == walk(&*room.snapshot("two").unwrap()));
}

/// Everything below the root, as text by path.
fn walk(fs: &dyn room::FileSystem) -> std::collections::BTreeMap<String, String> {
    let mut all = std::collections::BTreeMap::new();
    let mut left = vec![(ROOT, String::new())];
    while let Some((dir, path)) = left.pop() {
        for (entry, inode) in fs.read_dir(dir, 0, 10_000).unwrap() {
            let name = format!("{path}/{}", String::from_utf8(entry.name).unwrap());
            let xattrs: Vec<_> = fs
                .xattr_names(inode.no)
                .unwrap()
                .into_iter()
                .map(|name| (name.clone(), fs.xattr(inode.no, &name).unwrap()))
                .collect();
            let mut data = vec![0; inode.size as usize];
            if inode.kind == FileKind::Regular {
                fs.read(inode.no, 0, &mut data).unwrap();
            }
            let facts = (
                (inode.no, inode.kind, inode.mode, inode.nlink, inode.size),
                (
                    inode.uid,
                    inode.mtime,
                    inode.ctime,
                    inode.btime,
                    inode.parent,
                ),
                (inode.target, inode.flags, xattrs),
                data.iter()
                    .fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte)),
            );
            if inode.kind == FileKind::Directory {
                left.push((inode.no, name.clone()));
            }
            assert!(all.insert(name, format!("{facts:?}")).is_none());
        }
    }
    all
}

/// One random change of a tree; what cannot be done is not.
fn change_tree(room: &Room, r: &mut Rng) {
    let mut dirs = vec![ROOT];
    let mut at = 0;
    while at < dirs.len() && dirs.len() < 20 {
        for (_, inode) in room.read_dir(dirs[at], 0, 1000).unwrap() {
            if inode.kind == FileKind::Directory {
                dirs.push(inode.no);
            }
        }
        at += 1;
    }
    let dir = dirs[r.usize(..dirs.len())];
    let other = dirs[r.usize(..dirs.len())];
    let name = format!("n{}", r.u64(..5));
    let other_name = format!("n{}", r.u64(..5));
    let (name, other_name) = (name.as_bytes(), other_name.as_bytes());
    let there = room.lookup(dir, name).ok();
    let attribute = format!("user.a{}", r.u64(..3));
    let _ = match (r.u64(..12), there) {
        (0 | 1, None) => room
            .make(dir, name, &NewFile::of_kind(FileKind::Directory))
            .map(drop),
        (2 | 3, None) => room
            .make(dir, name, &NewFile::of_kind(FileKind::Regular))
            .and_then(|inode| room.write(inode.no, 0, &pattern(r.u64(..), 9000)).map(drop)),
        (4, None) => {
            let mut new = NewFile::of_kind(FileKind::Symlink);
            new.target = b"somewhere".to_vec();
            room.make(dir, name, &new).map(drop)
        }
        (0, Some(_)) => room.rmdir(dir, name),
        (1, Some(_)) => room.unlink(dir, name),
        (2 | 3, Some(_)) => room.rename(dir, name, other, other_name, room::RenameMode::Replace),
        (4, Some(_)) => room.rename(dir, name, other, other_name, room::RenameMode::Exchange),
        (5, Some(inode)) => room.link(inode.no, other, other_name).map(drop),
        (6 | 7, Some(inode)) => room.set_xattr(
            inode.no,
            attribute.as_bytes(),
            &pattern(r.u64(..), 20),
            room::XattrMode::Any,
            false,
        ),
        (8, Some(inode)) => room.remove_xattr(inode.no, attribute.as_bytes()),
        (9, Some(inode)) => {
            let mode = room::SetAttr {
                mode: Some(0o600 + r.u16(..64)),
                ..room::SetAttr::default()
            };
            room.set_attributes(inode.no, &mode).map(drop)
        }
        (_, Some(inode)) if inode.kind == FileKind::Regular => {
            let at = r.u64(..40_000);
            room.write(inode.no, at, &pattern(r.u64(..), 5000))
                .map(drop)
        }
        _ => Ok(()),
    };
}

#[test]
fn trees_are_the_same_in_every_snapshot() {
    let seeds = match std::env::var("STRONGROOM_MODEL_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => vec![1, 2, 3],
    };
    for seed in seeds {
        let mut r = Rng::with_seed(seed);
        let pair = Pair::new();
        let room = pair.place.create();
        let mut sent: Option<String> = None;
        for turn in 0..25 {
            for _ in 0..1 + r.u64(..60) {
                change_tree(&room, &mut r);
            }
            let name = format!("s{turn}");
            snapshot(&room, &name);
            if r.u64(..4) == 0 {
                let all = room.snapshots().unwrap();
                let nth = &all[r.usize(..all.len())].name;
                if Some(nth) != sent.as_ref() && *nth != name {
                    room.delete_snapshot(nth).unwrap();
                }
            }
            if r.bool() {
                pair.receive(&stream(&room, sent.as_deref(), &name))
                    .unwrap();
                sent = Some(name);
                if r.u64(..4) == 0 {
                    Room::settle_replica(&pair.target(), &credential(), pair.options()).unwrap();
                }
                let replica = pair.replica();
                assert_eq!(walk(&replica), walk(&room), "seed {seed}, turn {turn}");
                let there = replica.snapshots().unwrap();
                assert_eq!(there, room.snapshots().unwrap());
                for snapshot in there {
                    assert_eq!(
                        walk(&*replica.snapshot(&snapshot.name).unwrap()),
                        walk(&*room.snapshot(&snapshot.name).unwrap()),
                        "seed {seed}, turn {turn}, {}",
                        snapshot.name
                    );
                }
                sound(&replica);
            }
        }
    }
}
