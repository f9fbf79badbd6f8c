//! How much the owners of files may have: what is counted, and what is refused.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use crate::common::{Place, pattern};
use room::{
    Error, Fallocate, FileKind, FileSystem as _, Inode, InodeNo, NewFile, Quota, RenameMode, Room,
    SetAttr, Used,
};

const BLOCK: u64 = 4096;
const ADA: u32 = 1001;
const BOB: u32 = 1002;

fn file(uid: u32) -> NewFile {
    NewFile {
        kind: FileKind::Regular,
        mode: 0o644,
        umask: 0,
        uid,
        gid: uid,
        rdev: 0,
        target: Vec::new(),
    }
}

fn make(room: &Room, name: &str, uid: u32) -> InodeNo {
    let made = room.make(InodeNo::ROOT, name.as_bytes(), &file(uid));
    made.unwrap().no
}

fn limit(room: &Room, owner: u32, bytes: Option<u64>, files: Option<u64>) {
    let quotas = HashMap::from([(owner, Quota { bytes, files })]);
    room.set_quotas(quotas).unwrap();
}

fn used(room: &Room, owner: u32) -> Used {
    room.used_by(owner).unwrap().0
}

/// What the files of a room add up to, by owner.
fn counted(room: &Room) -> BTreeMap<u32, Used> {
    let mut sums: BTreeMap<u32, Used> = BTreeMap::new();
    let mut add = |inode: &Inode| {
        let sum = sums.entry(inode.uid).or_default();
        sum.bytes += inode.blocks * BLOCK;
        sum.files += 1;
    };
    add(&room.attributes(InodeNo::ROOT).unwrap());
    let mut names = room.read_dir(InodeNo::ROOT, 0, 10_000).unwrap();
    names.sort_by_key(|(entry, _)| entry.inode);
    names.dedup_by_key(|(entry, _)| entry.inode);
    names.iter().for_each(|(_, inode)| add(inode));
    sums
}

fn is_refused<T: std::fmt::Debug>(result: room::Result<T>) {
    assert!(matches!(result, Err(Error::QuotaExceeded)), "{result:?}");
}

#[test]
fn nothing_is_counted_before_there_is_a_limit() {
    let (_place, room) = Place::with_room();
    make(&room, "f", ADA);
    assert_eq!(room.used_by(ADA), None);
    limit(&room, BOB, Some(0), None);
    assert_eq!(used(&room, ADA), Used { bytes: 0, files: 1 });
}

#[test]
fn an_owner_gets_no_more_than_the_limit_and_others_are_not_concerned() {
    let (_place, room) = Place::with_room();
    let (ada, bob) = (make(&room, "ada", ADA), make(&room, "bob", BOB));
    limit(&room, ADA, Some(10 * BLOCK), Some(2));
    let data = pattern(1, 64 << 10);
    room.write(ada, 0, &data[..10 * BLOCK as usize]).unwrap();
    room.fsync(ada).unwrap();
    assert_eq!(used(&room, ADA).bytes, 10 * BLOCK);
    is_refused(room.write(ada, 10 * BLOCK, b"one more"));
    // What is there can be written over, and cut off.
    room.write(ada, 0, &data[1..=10 * BLOCK as usize]).unwrap();
    room.write(bob, 0, &data).unwrap();
    room.fsync(bob).unwrap();
    is_refused(room.copy_range(bob, 0, ada, 10 * BLOCK, BLOCK));
    let allocate = Fallocate::Allocate { keep_size: true };
    is_refused(room.fallocate(ada, allocate, 0, 11 * BLOCK));
    // Counted by what is stored, not by each chunk that could be.
    is_refused(room.fallocate(ada, allocate, 0, i64::MAX as u64));
    assert_eq!(room.copy_range(bob, 0, ada, 0, BLOCK).unwrap(), BLOCK);
    let to_ada = SetAttr {
        uid: Some(ADA),
        ..SetAttr::default()
    };
    is_refused(room.set_attributes(bob, &to_ada));
    assert_eq!(room.attributes(bob).unwrap().uid, BOB);
    room.set_attributes(ada, &SetAttr::size(BLOCK)).unwrap();
    assert_eq!(used(&room, ADA).bytes, BLOCK);
    room.write(ada, BLOCK, &data[..9 * BLOCK as usize]).unwrap();
    // Files are counted, whatever they hold.
    make(&room, "second", ADA);
    is_refused(room.make(InodeNo::ROOT, b"third", &file(ADA)));
    is_refused(room.create_tmpfile(InodeNo::ROOT, &file(ADA)));
    assert!(matches!(
        room.lookup(InodeNo::ROOT, b"third"),
        Err(Error::NotFound)
    ));
    room.unlink(InodeNo::ROOT, b"second").unwrap();
    room.tend().unwrap();
    make(&room, "third", ADA);
    // A limit below what there is refuses only what makes it more.
    limit(&room, ADA, Some(0), Some(0));
    room.write(ada, 0, b"as long as before").unwrap();
    is_refused(room.write(ada, 100 * BLOCK, b"more"));
    room.set_quotas(HashMap::new()).unwrap();
    room.write(ada, 100 * BLOCK, b"more").unwrap();
}

#[test]
fn the_accounts_are_what_the_files_add_up_to_after_whatever_was_done() {
    let place = Place::new();
    let mut room = place.create();
    limit(&room, 9, Some(0), None);
    let seed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64;
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut next = |below: u64| random.u64(..below);
    let data = pattern(seed, 1 << 20);
    for step in 0..1500_u64 {
        let name = format!("f{}", next(8));
        let no = room.resolve(Path::new(&format!("/{name}")), false);
        let owner = [ADA, BOB][next(2) as usize];
        let (Ok(no), what) = (no, next(10)) else {
            make(&room, &name, owner);
            continue;
        };
        let offset = next(600) * 2048;
        match what {
            0..3 => {
                let len = next(1 + data.len() as u64 / 4) as usize;
                room.write(no, offset, &data[..len]).unwrap();
            }
            3 => {
                room.set_attributes(no, &SetAttr::size(offset)).unwrap();
            }
            4 => {
                let set = SetAttr {
                    uid: Some(owner),
                    ..SetAttr::default()
                };
                room.set_attributes(no, &set).unwrap();
            }
            5 => room.unlink(InodeNo::ROOT, name.as_bytes()).unwrap(),
            6 => {
                let to = format!("f{}", next(8));
                let replaced = room.rename(
                    InodeNo::ROOT,
                    name.as_bytes(),
                    InodeNo::ROOT,
                    to.as_bytes(),
                    RenameMode::Replace,
                );
                replaced.unwrap();
            }
            7 => {
                let from = room.resolve(Path::new(&format!("/f{}", next(8))), false);
                let offset = offset / BLOCK * BLOCK;
                if let Ok(from) = from
                    && from != no
                {
                    room.copy_range(from, 0, no, offset, next(300) * BLOCK)
                        .unwrap();
                }
            }
            8 => {
                let what = match next(3) {
                    0 => Fallocate::Allocate { keep_size: true },
                    1 => Fallocate::PunchHole,
                    _ => Fallocate::ZeroRange { keep_size: false },
                };
                room.fallocate(no, what, offset, 1 + next(1 << 20)).unwrap();
            }
            _ if next(4) == 0 => {
                room.close().unwrap();
                room = place.open();
                limit(&room, 9, Some(0), None);
            }
            _ => room.sync().unwrap(),
        }
        if step % 50 == 0 {
            room.sync().unwrap();
            room.tend().unwrap();
            for (owner, sum) in counted(&room) {
                assert_eq!(used(&room, owner), sum, "owner {owner} after step {step}");
            }
        }
    }
}
