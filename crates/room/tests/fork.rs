//! A process that was forked from the one that opened a room leaves the room alone, whatever it calls and however it ends.
//!
//! Before it was looked at, the end of a [`Room`] in a child committed what the parent had not, unlocked the room under the
//! parent, and waited for a thread that the child does not have.
#![allow(missing_docs, unsafe_code)]

mod common;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use common::{Place, sound};
use room::{
    Credential, Error, Fallocate, FileSystem as _, InodeNo, NewCredential, NewFile, NewRoom,
    RenameMode, Room, SetAttr, XattrMode,
};

/// Held by each test: a child that opens a room waits for ever for SQLite's locks that other threads of its parent held at the fork.
static ALONE: Mutex<()> = Mutex::new(());

/// Forks; what the child does, which ends with it.
fn fork(child: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child takes no lock that a thread of this process may have held, which is what is tested; the allocator's are
    // the C library's care.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: a child that waits for ever is ended by this.
        unsafe { libc::alarm(300) };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        // SAFETY: it ends this process, whose memory nobody needs.
        unsafe { libc::_exit(i32::from(done.is_err())) }
    }
    pid
}

#[track_caller]
fn wait(pid: libc::pid_t) {
    let mut status = 0;
    // SAFETY: the status has a place, and the child is ours.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "the child failed or was ended");
}

/// A copy of the value that the child drops as its own. In this process it is the original alone that counts.
fn childs<T>(original: &T) -> T {
    // SAFETY: called in a child only, which never uses or drops the original and ends with `_exit`.
    unsafe { std::ptr::read(original) }
}

fn bytes_below(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            all.extend(bytes_below(&path));
        } else {
            all.insert(path.display().to_string(), std::fs::read(&path).unwrap());
        }
    }
    all
}

#[track_caller]
fn refused<T>(result: room::Result<T>) {
    let opener = std::os::unix::process::parent_id();
    match result {
        Err(Error::Forked { opener: named }) => assert_eq!(named, opener),
        Err(other) => panic!("refused otherwise: {other}"),
        Ok(_) => panic!("not refused"),
    }
}

#[test]
fn a_fork_is_refused_by_name_and_its_end_touches_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new();
    let mut new = NewRoom::with_credential(NewCredential::RawKey(vec![7; 32].into()));
    new.open = place.options_without_thread();
    let room = Room::create(&place.room_dir(), new).unwrap();
    room.write_file("/durable", b"by a sync").unwrap();
    room.sync().unwrap();
    // Not durable: what a commit of the child would make of it.
    room.write_file("/pending", &[5; 100_000]).unwrap();
    let mut file = room.open_file("/durable").unwrap();
    let no = file.inode();
    let before = bytes_below(place.dir.path());

    let pid = fork(|| {
        let (room, mut file) = (childs(&room), childs(&file));
        refused(room.write_file("/pending", b"the child's"));
        refused(room.write(no, 0, b"the child's"));
        refused(room.write_cached(no, 0, b"the child's"));
        refused(room.read_file("/durable"));
        refused(room.read(no, 0, &mut [0; 4]));
        refused(room.lookup(InodeNo::ROOT, b"durable"));
        refused(room.attributes(no));
        refused(room.read_dir(InodeNo::ROOT, 0, 10));
        refused(room.set_attributes(no, &SetAttr::default()));
        let regular = NewFile::of_kind(room::FileKind::Regular);
        refused(room.make(InodeNo::ROOT, b"made", &regular));
        refused(room.make_dir("/dir", true));
        refused(room.link(no, InodeNo::ROOT, b"link"));
        let onto = (InodeNo::ROOT, b"moved".as_slice());
        refused(room.rename(
            InodeNo::ROOT,
            b"durable",
            onto.0,
            onto.1,
            RenameMode::Replace,
        ));
        refused(room.unlink(InodeNo::ROOT, b"durable"));
        refused(room.fallocate(no, Fallocate::PunchHole, 0, 4096));
        refused(room.copy_range(no, 0, no, 4096, 4096));
        refused(room.set_xattr(no, b"user.a", b"b", XattrMode::Create, false));
        refused(room.sync());
        refused(room.fsync(no));
        refused(room.begin());
        refused(room.complete());
        refused(room.tend());
        refused(room.space());
        refused(room.info());
        refused(room.check(false, true, &|_, _| true));
        refused(room.compact(100, &|_, _| true));
        refused(room.rekey(&Credential::RawKey(vec![7; 32].into()), &|_, _| true));
        refused(room.backup(&place.dir.path().join("backup"), &|_, _| true));
        refused(room.add_slot(NewCredential::RawKey(vec![8; 32].into()), "child"));
        refused(room.set_note("child", b"was here"));
        refused(room.commit_or_list());
        assert!(file.write(b"the child's").is_err());
        assert!(file.read(&mut [0; 4]).is_err());
        refused(file.sync());
        room.hold(no);
        room.release(no, 1);
        room.touch_atime(no);
        drop(file);
        refused(room.close());
    });
    wait(pid);
    wait(fork(|| drop((childs(&room), childs(&file)))));
    // In the order in which a program may well do it: the last file after its room.
    wait(fork(|| {
        let file = childs(&file);
        drop(childs(&room));
        drop(file);
    }));

    assert!(bytes_below(place.dir.path()) == before, "the child wrote");
    // The parent's lock is held, and its room works.
    let again = Room::open(
        &place.room_dir(),
        &Credential::RawKey(vec![7; 32].into()),
        place.options(),
    );
    assert!(matches!(again, Err(Error::InUse { .. })), "{again:?}");
    file.write_all(b"by the parent").unwrap();
    file.sync().unwrap();
    drop(file);
    room.close().unwrap();
    let key = Credential::RawKey(vec![7; 32].into());
    let room = Room::open(&place.room_dir(), &key, place.options()).unwrap();
    assert_eq!(room.read_file("/durable").unwrap(), b"by the parent");
    assert_eq!(room.read_file("/pending").unwrap(), [5; 100_000]);
    sound(&room);
}

/// The child's calls come before any lock: those that other threads of the parent held at the fork stay held in the child.
#[test]
fn a_fork_in_the_middle_of_other_threads_work_waits_for_none_of_them() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new();
    let mut room = place.create();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for n in 0..2 {
            let (room, stop) = (&room, &stop);
            scope.spawn(move || {
                let path = format!("/busy {n}");
                for round in 0_u64.. {
                    room.write_file(&path, &round.to_le_bytes()).unwrap();
                    room.sync().unwrap();
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                }
            });
        }
        for _ in 0..50 {
            wait(fork(|| {
                let room = childs(&room);
                refused(room.write_file("/busy 0", b"the child's"));
                refused(room.sync());
                drop(room);
            }));
        }
        stop.store(true, Ordering::SeqCst);
    });
    // A child may open the room once its parent closed it.
    room.close().unwrap();
    wait(fork(|| {
        let room = place.open();
        room.write_file("/child", b"its own opening").unwrap();
        room.close().unwrap();
    }));
    room = place.open();
    assert_eq!(room.read_file("/child").unwrap(), b"its own opening");
    sound(&room);
}
