//! The metadata server allows and refuses what the kernel does: the same operations, by the same users, on a room and on a
//! directory of a local file system, and the same owners and modes after each.
//!
//! What the server is looser in is left out: an owner reads and writes his own file whatever its mode, and who may run a file
//! may read it.

mod common;

use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use common::{Raw, World, to_link, to_rename};
use fastrand::Rng;
use metadata_proto::rpc::*;
use room::{FileKind, Inode, InodeNo, SetAttr, SetTime, XattrMode};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags};

/// Becoming another user, for one thread, as far as files go.
mod sys {
    #![allow(unsafe_code)]

    pub(super) fn become_user(uid: u32, gids: &[u32]) {
        // SAFETY: the list of groups is valid for its length, and all three calls change this thread alone.
        unsafe {
            // From root's to another's and back: only root sets groups.
            libc::syscall(libc::SYS_setfsuid, 0);
            let set = libc::syscall(libc::SYS_setgroups, gids.len(), gids.as_ptr());
            assert_eq!(set, 0);
            libc::syscall(libc::SYS_setfsgid, libc::c_long::from(gids[0] as i32));
            libc::syscall(libc::SYS_setfsuid, libc::c_long::from(uid as i32));
        }
    }
}

const USERS: [(&str, u32, &[u32]); 4] = [
    ("root", 0, &[0]),
    ("alice", 1000, &[1000, 50]),
    ("bob", 1001, &[1001, 50, 51]),
    ("carol", 1002, &[1002, 51]),
];
const GROUPS: [u32; 6] = [0, 50, 51, 1000, 1001, 1002];
const DIRECTORIES: [&str; 3] = ["d0", "d1", "d2"];
const FILES: [&str; 3] = ["a", "b", "c"];
/// Of each seed; `STRONGROOM_POLICY_STEPS` sets another number, as `make soak` does.
const STEPS: usize = 600;

type Place = (&'static str, &'static str);

#[derive(Debug, Clone)]
enum Step {
    Mkdir(&'static str, u16),
    Create(Place, u16),
    Unlink(Place),
    Rmdir(&'static str),
    Rename(Place, Place),
    RenameDirectory(&'static str, &'static str),
    Link(Place, Place),
    Chmod(Place, u16),
    Chown(Place, Option<u32>, Option<u32>),
    Truncate(Place),
    Open(Place, bool),
    SetXattr(Place),
    GetXattr(Place),
    SetList(Place, Vec<u8>),
    List(&'static str),
    Stat(Place),
    Touch(Place, bool),
}

fn list(dice: &mut Rng, bits: usize) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    let mut entry = |tag: u16, id: u32, dice: &mut Rng| {
        let permissions = match bits {
            8 => dice.u16(..8),
            // Without execution.
            _ => (dice.usize(..4) << 1) as u16,
        };
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    };
    let none = u32::MAX;
    entry(0x01, none, dice);
    if dice.bool() {
        entry(0x02, dice.choice([1000, 1001, 1002]).unwrap(), dice);
    }
    entry(0x04, none, dice);
    if dice.bool() {
        entry(0x08, dice.choice([50, 51]).unwrap(), dice);
    }
    entry(0x10, none, dice);
    entry(0x20, none, dice);
    value
}

fn step(dice: &mut Rng) -> Step {
    let directory = dice.choice(DIRECTORIES).unwrap();
    let place = (directory, dice.choice(FILES).unwrap());
    let other = (
        dice.choice(DIRECTORIES).unwrap(),
        dice.choice(FILES).unwrap(),
    );
    let special = [0, 0, 0o1000, 0o2000, 0o3000][dice.usize(..5)];
    let directory_mode = (dice.u16(..512)) | 0o100 | special;
    let file_mode = (dice.u16(..512) & 0o666) | [0, 0, 0o2000, 0o4000][dice.usize(..4)];
    // A directory, or a file in one.
    let any = if dice.usize(..3) == 0 {
        (directory, "")
    } else {
        place
    };
    let any_mode = if any.1.is_empty() {
        directory_mode
    } else {
        file_mode
    };
    match dice.usize(..24) {
        // The kernel itself takes set-id bits from what mkdir asks for.
        0 => Step::Mkdir(directory, directory_mode & !0o6000),
        1..=4 => Step::Create(place, file_mode),
        5 => Step::Unlink(place),
        6 => Step::Rmdir(directory),
        7 | 8 => Step::Rename(place, other),
        9 => Step::RenameDirectory(directory, other.0),
        10 => Step::Link(place, other),
        11 | 12 => Step::Chmod(any, any_mode),
        13 | 14 => {
            let (uid, gid) = (dice.choice(USERS).unwrap().1, dice.choice(GROUPS).unwrap());
            match dice.usize(..3) {
                0 => Step::Chown(any, Some(uid), None),
                1 => Step::Chown(any, None, Some(gid)),
                _ => Step::Chown(any, Some(uid), Some(gid)),
            }
        }
        15 => Step::Truncate(place),
        16 | 17 => Step::Open(place, dice.bool()),
        18 => Step::SetXattr(any),
        19 => Step::GetXattr(any),
        20 => {
            let bits = if any.1.is_empty() { 8 } else { 4 };
            Step::SetList(any, list(dice, bits))
        }
        21 => Step::List(directory),
        22 => Step::Stat(place),
        _ => Step::Touch(any, dice.bool()),
    }
}

fn by_kernel(root: &Path, step: &Step) -> std::io::Result<()> {
    let at = |(directory, file): Place| root.join(directory).join(file);
    match step {
        Step::Mkdir(d, mode) => std::fs::DirBuilder::new()
            .mode(u32::from(*mode))
            .create(root.join(d)),
        Step::Create(p, mode) => std::fs::File::options()
            .write(true)
            .create_new(true)
            .mode(u32::from(*mode))
            .open(at(*p))
            .map(drop),
        Step::Unlink(p) => std::fs::remove_file(at(*p)),
        Step::Rmdir(d) => std::fs::remove_dir(root.join(d)),
        Step::Rename(a, b) => std::fs::rename(at(*a), at(*b)),
        Step::RenameDirectory(a, b) => std::fs::rename(root.join(a), root.join(b).join("sub")),
        Step::Link(a, b) => std::fs::hard_link(at(*a), at(*b)),
        Step::Chmod(p, mode) => {
            std::fs::set_permissions(at(*p), std::fs::Permissions::from_mode(u32::from(*mode)))
        }
        Step::Chown(p, uid, gid) => std::os::unix::fs::chown(at(*p), *uid, *gid),
        Step::Truncate(p) => std::fs::File::options()
            .write(true)
            .open(at(*p))
            .and_then(|f| f.set_len(0)),
        Step::Open(p, write) => std::fs::File::options()
            .read(!write)
            .write(*write)
            .open(at(*p))
            .map(drop),
        Step::SetXattr(p) => Ok(rustix::fs::setxattr(
            at(*p),
            "user.x",
            b"v",
            XattrFlags::empty(),
        )?),
        Step::GetXattr(p) => {
            let mut value = [0u8; 16];
            Ok(rustix::fs::getxattr(at(*p), "user.x", &mut value).map(drop)?)
        }
        Step::SetList(p, value) => Ok(rustix::fs::setxattr(
            at(*p),
            "system.posix_acl_access",
            value,
            XattrFlags::empty(),
        )?),
        Step::List(d) => std::fs::read_dir(root.join(d)).map(drop),
        Step::Stat(p) => std::fs::symlink_metadata(at(*p)).map(drop),
        Step::Touch(p, now) => {
            let time = Timespec {
                tv_sec: 1_000_000,
                tv_nsec: if *now { UTIME_NOW } else { 0 },
            };
            let times = Timestamps {
                last_access: Timespec {
                    tv_sec: 0,
                    tv_nsec: if *now { UTIME_NOW } else { UTIME_OMIT },
                },
                last_modification: time,
            };
            Ok(rustix::fs::utimensat(
                CWD,
                at(*p),
                &times,
                AtFlags::empty(),
            )?)
        }
    }
}

fn find(who: &Raw, (directory, file): Place) -> Reply<Inode> {
    let found = who.lookup(InodeNo::ROOT, directory)?;
    if file.is_empty() {
        return Ok(found);
    }
    who.lookup(found.no, file)
}

fn by_server(who: &Raw, step: &Step) -> Reply<()> {
    let root = InodeNo::ROOT;
    let parent = |d: &str| who.lookup(root, d).map(|inode| inode.no);
    let set = |p: Place, set: SetAttr| who.set(find(who, p)?.no, set).map(drop);
    match step {
        Step::Mkdir(d, mode) => who.make(root, d, FileKind::Directory, *mode).map(drop),
        Step::Create(p, mode) => who
            .make(parent(p.0)?, p.1, FileKind::Regular, *mode)
            .map(drop),
        Step::Unlink(p) => who.unlink(parent(p.0)?, p.1).map(drop),
        Step::Rmdir(d) => {
            let name = d.as_bytes().to_vec();
            who.change(Change::Rmdir { parent: root, name }).map(drop)
        }
        Step::Rename(a, b) => who
            .change(to_rename(parent(a.0)?, a.1, parent(b.0)?, b.1))
            .map(drop),
        Step::RenameDirectory(a, b) => who.change(to_rename(root, *a, parent(b)?, "sub")).map(drop),
        Step::Link(a, b) => who
            .change(to_link(find(who, *a)?.no, parent(b.0)?, b.1))
            .map(drop),
        Step::Chmod(p, mode) => who.chmod(find(who, *p)?.no, *mode).map(drop),
        Step::Chown(p, uid, gid) => set(*p, SetAttr::owner(*uid, *gid)),
        Step::Truncate(p) => set(*p, SetAttr::size(0)),
        Step::Open(p, write) => {
            let no = find(who, *p)?.no;
            who.open(no, !write, *write)?;
            who.close(no)
        }
        Step::SetXattr(p) => who
            .change(Change::SetXattr {
                no: find(who, *p)?.no,
                name: b"user.x".to_vec(),
                value: b"v".to_vec(),
                mode: XattrMode::Any,
                drop_setgid: false,
            })
            .map(drop),
        Step::GetXattr(p) => {
            let no = find(who, *p)?.no;
            who.ask(|c, x, s| async move { c.xattr(x, s, no, b"user.x".to_vec()).await })
                .unwrap()
                .map(drop)
        }
        Step::SetList(p, value) => who
            .change(Change::SetXattr {
                no: find(who, *p)?.no,
                name: b"system.posix_acl_access".to_vec(),
                value: value.clone(),
                mode: XattrMode::Any,
                drop_setgid: false,
            })
            .map(drop),
        Step::List(d) => {
            let no = parent(d)?;
            who.ask(|c, x, s| async move { c.read_dir(x, s, no, 0, 10).await })
                .unwrap()
                .map(drop)
        }
        Step::Stat(p) => find(who, *p).map(drop),
        Step::Touch(p, now) => {
            let time = if *now {
                SetTime::Now
            } else {
                SetTime::at(1_000_000, 0)
            };
            set(
                *p,
                SetAttr {
                    atime: now.then_some(time),
                    mtime: Some(time),
                    ..SetAttr::default()
                },
            )
        }
    }
}

/// Where the server is looser than the kernel.
fn looser(who: &Raw, root: &Raw, step: &Step) -> bool {
    match step {
        Step::Open(p, _) | Step::Truncate(p) => {
            find(root, *p).is_ok_and(|inode| inode.uid == who.welcome.uid)
        }
        _ => false,
    }
}

fn states(root_dir: &Path, root: &Raw) -> Vec<String> {
    let mut differences = Vec::new();
    for d in DIRECTORIES {
        for f in ["", "a", "b", "c", "sub"] {
            let path: PathBuf = if f.is_empty() {
                root_dir.join(d)
            } else {
                root_dir.join(d).join(f)
            };
            let kernel = std::fs::symlink_metadata(&path)
                .ok()
                .map(|m| (m.mode() & 0o7777, m.uid(), m.gid()));
            let server = find(root, (d, f))
                .ok()
                .map(|i| (u32::from(i.mode), i.uid, i.gid));
            if kernel != server {
                differences.push(format!(
                    "{d}/{f} (mode, owner, group): kernel {kernel:?}, server {server:?}"
                ));
            }
        }
    }
    differences
}

fn campaign(seed: u64) {
    let world = World::new(1);
    let clients: Vec<Raw> = USERS
        .iter()
        .map(|(name, uid, gids)| world.client(name, *uid, gids))
        .collect();
    let base = tempfile::Builder::new()
        .tempdir_in(if Path::new("/dev/shm").is_dir() {
            "/dev/shm"
        } else {
            "/tmp"
        })
        .unwrap();
    let dir = base.path().to_owned();
    // Everybody makes directories in the root, and only his own go away.
    let open = std::fs::Permissions::from_mode(0o1777);
    std::fs::set_permissions(&dir, open).unwrap();
    clients[0].chmod(InodeNo::ROOT, 0o1777).unwrap();
    let mut dice = Rng::with_seed(seed);
    let (mut done, mut denied) = (0, 0);
    let steps = std::env::var("STRONGROOM_POLICY_STEPS")
        .map_or(STEPS, |steps| steps.parse().expect("a number"));
    for n in 0..steps {
        let user = dice.usize(..USERS.len());
        let step = step(&mut dice);
        let who = &clients[user];
        if looser(who, &clients[0], &step) {
            continue;
        }
        let kernel = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    sys::become_user(USERS[user].1, USERS[user].2);
                    by_kernel(&dir, &step)
                })
                .join()
                .unwrap()
        });
        let server = by_server(who, &step);
        let said = format!(
            "seed {seed}, step {n}, {}: {step:?}: kernel {kernel:?}, server {server:?}",
            USERS[user].0
        );
        assert_eq!(kernel.is_ok(), server.is_ok(), "{said}");
        match &kernel {
            Ok(()) => done += 1,
            Err(e) => {
                let refused = matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM));
                denied += usize::from(refused);
            }
        }
        let differences = states(&dir, &clients[0]);
        assert!(differences.is_empty(), "{said}: {differences:?}");
    }
    // A check that could not fail would be none.
    assert!(done > steps / 20, "{done} done");
    assert!(denied > steps / 20, "{denied} denied");
}

#[test]
fn users_may_do_what_the_kernel_lets_them_do() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only root becomes other users");
        return;
    }
    rustix::process::umask(rustix::fs::Mode::empty());
    for seed in [1, 2, 3] {
        campaign(seed);
    }
}
