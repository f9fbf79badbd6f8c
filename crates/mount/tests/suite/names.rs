//! Names, links, directories and attributes through a real mount.

use room::FileSystem as _;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};

use crate::common::{Mount, is_root, ok, sh};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, RenameFlags, StatxFlags, Timespec, Timestamps,
};

#[test]
fn a_tree_is_the_same_after_mounting_again() {
    let Some(mount) = Mount::new() else { return };
    ok(
        &mount,
        "mkdir -p a/b/c && echo hello > a/b/c/file && ln -s ../b/c/file a/link && ln a/b/c/file a/hard &&
         mkfifo a/pipe && chmod 640 a/b/c/file && touch -d '2001-02-03 04:05:06.789012345' a/b/c/file",
    );
    let list = "find . -printf '%p %y %m %n %s %T@ %l\n' | sort; cat a/hard";
    let before = ok(&mount, list);
    let mount = mount.again();
    assert_eq!(ok(&mount, list), before);
    assert!(before.contains("981173106.789012345"), "{before}");
}

#[test]
fn every_kind_of_file_can_be_made() {
    if !is_root() {
        return;
    }
    let Some(mount) = Mount::new() else { return };
    ok(
        &mount,
        "mknod null c 1 3 && mknod disk b 253 70000 && mkfifo pipe",
    );
    let _socket = std::os::unix::net::UnixListener::bind(mount.path("socket")).unwrap();
    let meta = |name: &str| fs::symlink_metadata(mount.path(name)).unwrap();
    assert!(meta("null").file_type().is_char_device());
    assert_eq!(meta("null").rdev(), rustix::fs::makedev(1, 3));
    assert!(meta("disk").file_type().is_block_device());
    assert_eq!(meta("disk").rdev(), rustix::fs::makedev(253, 70000));
    assert!(meta("pipe").file_type().is_fifo());
    assert!(meta("socket").file_type().is_socket());
    ok(&mount, "echo x > null");
}

#[test]
fn an_unlinked_file_lives_as_long_as_it_is_open() {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("file");
    fs::write(&path, b"before").unwrap();
    let mut file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before");
    file.write_all(b" after").unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().len(), 12);
    let no = room::InodeNo(file.metadata().unwrap().ino());
    let room = mount.room.clone().unwrap();
    assert!(room.attributes(no).is_ok());
    drop(file);
    ok(&mount, "sync -f . ; true");
    // The kernel forgets it soon after the last close.
    let gone = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        room.attributes(no).is_err()
    });
    assert!(gone, "an unlinked file is deleted when nobody has it open");
}

#[test]
fn a_directory_removed_while_open_is_empty() {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("dir");
    fs::create_dir(&path).unwrap();
    let dir = fs::File::open(&path).unwrap();
    fs::remove_dir(&path).unwrap();
    assert_eq!(dir.metadata().unwrap().nlink(), 0);
    let names = rustix::fs::Dir::read_from(&dir)
        .unwrap()
        .filter_map(Result::ok);
    assert_eq!(
        names
            .filter(|e| e.file_name() != c"." && e.file_name() != c"..")
            .count(),
        0
    );
    assert!(rustix::fs::mkdirat(&dir, "sub", Mode::RWXU).is_err());
}

#[test]
fn rename_replaces_refuses_and_exchanges() {
    let Some(mount) = Mount::new() else { return };
    let [a, b] = ["a", "b"].map(|n| mount.path(n));
    let rename = |flags| rustix::fs::renameat_with(CWD, &a, CWD, &b, flags);
    fs::write(&a, b"A").unwrap();
    fs::write(&b, b"B").unwrap();
    assert_eq!(
        rename(RenameFlags::NOREPLACE),
        Err(rustix::io::Errno::EXIST)
    );
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!(
        (fs::read(&a).unwrap(), fs::read(&b).unwrap()),
        (b"B".to_vec(), b"A".to_vec())
    );
    assert_eq!(rename(RenameFlags::WHITEOUT), Err(rustix::io::Errno::INVAL));
    rename(RenameFlags::empty()).unwrap();
    assert!(!a.exists());
    assert_eq!(fs::read(&b).unwrap(), b"B");
    ok(
        &mount,
        "mkdir -p d/e && ! mv d d/e/f 2>/dev/null && mkdir x && mv -T d/e x && test -d x && ! test -e d/e",
    );
    assert_eq!(fs::metadata(mount.path("d")).unwrap().nlink(), 2);
}

#[test]
fn names_have_up_to_255_bytes_of_anything() {
    let Some(mount) = Mount::new() else { return };
    use std::os::unix::ffi::OsStrExt;
    let odd: Vec<u8> = (1..=255u8).filter(|b| *b != b'/').chain([b'x']).collect();
    let path = mount.path("").join(std::ffi::OsStr::from_bytes(&odd));
    assert_eq!(odd.len(), 255);
    fs::write(&path, b"1").unwrap();
    assert_eq!(
        fs::read_dir(mount.path(""))
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path(),
        path
    );
    let long = "n".repeat(256);
    assert_eq!(
        fs::write(mount.path(&long), b"")
            .unwrap_err()
            .raw_os_error(),
        Some(libc::ENAMETOOLONG)
    );
    assert_eq!(
        fs::metadata(mount.path(&long)).unwrap_err().raw_os_error(),
        Some(libc::ENAMETOOLONG)
    );
}

#[test]
fn a_file_without_a_name_can_be_given_one() {
    let Some(mount) = Mount::new() else { return };
    let open = |flags| {
        rustix::fs::open(
            mount.path(""),
            OFlags::TMPFILE | OFlags::RDWR | flags,
            Mode::RUSR | Mode::WUSR,
        )
    };
    let fd = open(OFlags::empty()).unwrap();
    rustix::io::write(&fd, b"text").unwrap();
    assert_eq!(rustix::fs::fstat(&fd).unwrap().st_nlink, 0);
    let proc = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    rustix::fs::linkat(
        CWD,
        proc.as_str(),
        CWD,
        mount.path("named"),
        AtFlags::SYMLINK_FOLLOW,
    )
    .unwrap();
    assert_eq!(fs::read(mount.path("named")).unwrap(), b"text");
    assert_eq!(rustix::fs::fstat(&fd).unwrap().st_nlink, 1);
    drop(fd);
    let fd = open(OFlags::EXCL).unwrap();
    let proc = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    assert!(
        rustix::fs::linkat(
            CWD,
            proc.as_str(),
            CWD,
            mount.path("never"),
            AtFlags::SYMLINK_FOLLOW
        )
        .is_err()
    );
    drop(fd);
    let mount = mount.again();
    assert_eq!(fs::read(mount.path("named")).unwrap(), b"text");
}

#[test]
fn times_before_1970_and_in_2400_are_kept_to_the_nanosecond() {
    let Some(mount) = Mount::new() else { return };
    for (secs, nanos) in [
        (-1, 1),
        (-2_208_988_800, 999_999_999),
        (13_569_465_600, 123_456_789),
        (0, 0),
    ] {
        let path = mount.path(&format!("t{secs}"));
        fs::write(&path, b"x").unwrap();
        let at = Timespec {
            tv_sec: secs,
            tv_nsec: nanos,
        };
        rustix::fs::utimensat(
            CWD,
            &path,
            &Timestamps {
                last_access: at,
                last_modification: at,
            },
            AtFlags::empty(),
        )
        .unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (secs, nanos));
        assert_eq!((meta.atime(), meta.atime_nsec()), (secs, nanos));
    }
    let list = |m: &Mount| ok(m, "stat -c '%n %y %x' t*");
    let before = list(&mount);
    let mount = mount.again();
    assert_eq!(list(&mount), before);
}

#[test]
fn the_time_of_birth_is_reported_and_stays() {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("file");
    let before = std::time::SystemTime::now();
    fs::write(&path, b"x").unwrap();
    let birth = || {
        let stat = rustix::fs::statx(
            CWD,
            &path,
            AtFlags::empty(),
            StatxFlags::BTIME | StatxFlags::BASIC_STATS,
        )
        .unwrap();
        assert!(StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME));
        (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec)
    };
    let first = birth();
    let secs = before
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs() as i64;
    assert!(
        (secs - 1..secs + 10).contains(&first.0),
        "{first:?} against {secs}"
    );
    ok(
        &mount,
        "touch -d 1999-01-01 file && echo more >> file && chmod 600 file",
    );
    assert_eq!(birth(), first);
}

#[test]
fn a_large_directory_is_listed_whole_while_names_vanish() {
    let Some(mount) = Mount::new() else { return };
    const FILES: usize = 20_000;
    let dir = mount.path("dir");
    fs::create_dir(&dir).unwrap();
    for i in 0..FILES {
        fs::File::create(dir.join(format!("file-{i:05}"))).unwrap();
    }
    // Every third name is removed on the way; the others must each be seen exactly once.
    let mut seen = std::collections::HashSet::new();
    for (count, entry) in fs::read_dir(&dir).unwrap().enumerate() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(seen.insert(name), "seen twice");
        if count % 50 == 0 {
            let gone = FILES - 1 - count / 3 * 3 % FILES;
            let _ = fs::remove_file(dir.join(format!("file-{gone:05}")));
        }
    }
    let left: std::collections::HashSet<_> = fs::read_dir(&dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        left.iter().all(|n| seen.contains(n)),
        "a name that stayed was not seen"
    );
    assert!(left.len() < FILES);
    ok(&mount, "rm -r dir");
    assert!(!dir.exists());
}

/// Callers of a listing take 32 KiB at a time, or much less, and names have up to 255 bytes.
#[test]
fn a_listing_shows_each_name_once_however_much_is_taken_at_a_time() {
    let Some(mount) = Mount::new() else { return };
    let dir = mount.path("d");
    fs::create_dir(&dir).unwrap();
    let mut names: Vec<String> = (0..1200_usize)
        .map(|i| format!("{i:0width$}", width = 4 + i * 37 % 252))
        .collect();
    for name in &names {
        fs::write(dir.join(name), b"").unwrap();
    }
    names.extend([".".into(), "..".into()]);
    names.sort();
    for taken in [288, 1000, 4096, 10_000, 32_768, 1 << 20] {
        let open = fs::File::open(&dir).unwrap();
        let mut buffer = vec![std::mem::MaybeUninit::uninit(); taken];
        let mut entries = RawDir::new(&open, &mut buffer);
        let mut listed = Vec::new();
        while let Some(entry) = entries.next() {
            listed.push(entry.unwrap().file_name().to_str().unwrap().to_owned());
        }
        listed.sort();
        assert!(listed == names, "{taken} bytes at a time");
    }
}

/// Lists a directory of `count` names and does `change` to each name as it comes. How often each name came, and in which order.
fn list_while(
    mount: &Mount,
    dir: &str,
    count: usize,
    mut change: impl FnMut(&std::path::Path, &str),
) -> Vec<String> {
    let dir = mount.path(dir);
    fs::create_dir(&dir).unwrap();
    for i in 0..count {
        fs::write(dir.join(i.to_string()), b"").unwrap();
    }
    let mut seen = Vec::new();
    for entry in fs::read_dir(&dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(seen.len() < 20 * count, "the listing does not end");
        change(&dir, &name);
        seen.push(name);
    }
    seen
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|i| i.to_string()).collect()
}

/// Each rename gave a new position at the end of the directory: 500 names made a listing of 10,000 and more.
#[test]
fn a_listing_shows_each_name_once_while_names_are_renamed() {
    let Some(mount) = Mount::new() else { return };
    let back_and_forth = |dir: &std::path::Path, name: &str| {
        fs::rename(dir.join(name), dir.join("TMP")).unwrap();
        fs::rename(dir.join("TMP"), dir.join(name)).unwrap();
    };
    assert_eq!(list_while(&mount, "a", 500, back_and_forth), numbers(500));
    // To another name, for good: shown under one of the two.
    let for_good = |dir: &std::path::Path, name: &str| {
        let other: usize = name.parse().unwrap();
        let other = (other + 250) % 500;
        let (from, to) = (dir.join(other.to_string()), dir.join(format!("0{other}")));
        if from.exists() {
            fs::rename(from, to).unwrap();
        }
    };
    let seen = list_while(&mount, "b", 500, for_good);
    let mut seen: Vec<usize> = seen.iter().map(|name| name.parse().unwrap()).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..500).collect::<Vec<_>>());
    // As editors save: the name is there all the time.
    let save = |dir: &std::path::Path, name: &str| {
        let other = (name.parse::<usize>().unwrap() + 250) % 500;
        for saved in [name.to_owned(), other.to_string()] {
            fs::write(dir.join("TMP"), b"new").unwrap();
            fs::rename(dir.join("TMP"), dir.join(saved)).unwrap();
        }
    };
    assert_eq!(list_while(&mount, "c", 500, save), numbers(500));
    let exchange = |dir: &std::path::Path, name: &str| {
        let other = (name.parse::<usize>().unwrap() + 1) % 500;
        let (one, other) = (dir.join(name), dir.join(other.to_string()));
        rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
    };
    assert_eq!(list_while(&mount, "d", 500, exchange), numbers(500));
}

/// Names that come while a directory is listed have positions behind all others, and were listed too.
#[test]
fn a_listing_ends_while_names_are_created() {
    let Some(mount) = Mount::new() else { return };
    let again = |dir: &std::path::Path, name: &str| {
        fs::remove_file(dir.join(name)).unwrap();
        fs::write(dir.join(name), b"").unwrap();
    };
    assert_eq!(list_while(&mount, "a", 500, again), numbers(500));
    fs::create_dir(mount.path("elsewhere")).unwrap();
    let out_and_in = |dir: &std::path::Path, name: &str| {
        let out = dir.parent().unwrap().join("elsewhere").join(name);
        fs::rename(dir.join(name), &out).unwrap();
        fs::rename(&out, dir.join(name)).unwrap();
    };
    assert_eq!(list_while(&mount, "b", 500, out_and_in), numbers(500));
    let mut n = 500;
    let another = |dir: &std::path::Path, _: &str| {
        fs::write(dir.join(n.to_string()), b"").unwrap();
        n += 1;
    };
    assert_eq!(list_while(&mount, "c", 500, another), numbers(500));
    // From the start again, the new ones are there.
    let mut dir = rustix::fs::Dir::new(
        rustix::fs::open(mount.path("c"), OFlags::RDONLY, Mode::empty()).unwrap(),
    )
    .unwrap();
    let count = |dir: &mut rustix::fs::Dir| dir.filter_map(Result::ok).count();
    assert_eq!(count(&mut dir), 1002);
    fs::write(mount.path("c/late"), b"").unwrap();
    dir.rewind();
    assert_eq!(count(&mut dir), 1003);
}

/// A position is the room's, not the mount's or an open directory's: NFS goes on with it long after.
#[test]
fn a_position_in_a_listing_outlives_the_mount() {
    let Some(mount) = Mount::new() else { return };
    for i in 0..300 {
        fs::write(mount.path(&i.to_string()), b"").unwrap();
    }
    let rest = |mount: &Mount, position: u64, count: usize| {
        let dir = rustix::fs::open(mount.path(""), OFlags::RDONLY, Mode::empty()).unwrap();
        rustix::fs::seek(&dir, rustix::fs::SeekFrom::Start(position)).unwrap();
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut entries = rustix::fs::RawDir::new(&dir, &mut buffer);
        let mut names = Vec::new();
        let mut position = position;
        while names.len() < count
            && let Some(entry) = entries.next()
        {
            let entry = entry.unwrap();
            position = entry.next_entry_cookie();
            names.push(entry.file_name().to_str().unwrap().to_owned());
        }
        (names, position)
    };
    // Two of these are the directory and its parent.
    let (_, position) = rest(&mount, 0, 102);
    fs::rename(mount.path("7"), mount.path("renamed, and seen")).unwrap();
    fs::rename(mount.path("200"), mount.path("renamed, not seen")).unwrap();
    let mount = mount.again();
    let mut expected = numbers(300)[100..].to_vec();
    expected[100] = "renamed, not seen".to_owned();
    assert_eq!(rest(&mount, position, 1000).0, expected);
}

#[test]
fn a_directory_lists_itself_its_parent_and_the_kinds_of_its_names() {
    let Some(mount) = Mount::new() else { return };
    ok(
        &mount,
        "mkdir -p d/sub && touch d/file && ln -s nowhere d/link",
    );
    let dir = fs::File::open(mount.path("d")).unwrap();
    let mut kinds: Vec<_> = rustix::fs::Dir::read_from(&dir)
        .unwrap()
        .map(|e| e.unwrap())
        .map(|e| {
            (
                e.file_name().to_str().unwrap().to_owned(),
                e.file_type(),
                e.ino(),
            )
        })
        .collect();
    kinds.sort_by(|a, b| a.0.cmp(&b.0));
    let ino = |name: &str| fs::symlink_metadata(mount.path(name)).unwrap().ino();
    assert_eq!(
        kinds,
        [
            (".".to_owned(), FileType::Directory, ino("d")),
            ("..".to_owned(), FileType::Directory, ino("")),
            ("file".to_owned(), FileType::RegularFile, ino("d/file")),
            ("link".to_owned(), FileType::Symlink, ino("d/link")),
            ("sub".to_owned(), FileType::Directory, ino("d/sub")),
        ]
    );
    assert_eq!(fs::metadata(mount.path("d")).unwrap().nlink(), 3);
}

#[test]
fn attributes_follow_at_once_what_happens_to_a_file() {
    let Some(mount) = Mount::new() else { return };
    let meta = |name: &str| fs::metadata(mount.path(name)).unwrap();
    ok(&mount, "echo 12345 > a");
    assert_eq!(meta("a").len(), 6);
    let root = meta("");
    std::thread::sleep(std::time::Duration::from_millis(20));
    ok(&mount, "ln a b");
    assert_eq!((meta("a").nlink(), meta("b").nlink()), (2, 2));
    assert!(meta("").mtime_nsec() != root.mtime_nsec() || meta("").mtime() != root.mtime());
    ok(&mount, "rm a");
    assert_eq!(meta("b").nlink(), 1);
    ok(&mount, "truncate -s 1000000 b");
    assert_eq!(meta("b").len(), 1_000_000);
    fs::set_permissions(mount.path("b"), fs::Permissions::from_mode(0o4711)).unwrap();
    assert_eq!(meta("b").mode() & 0o7777, 0o4711);
    let before = meta("b");
    std::thread::sleep(std::time::Duration::from_millis(20));
    ok(&mount, "printf x >> b");
    let after = meta("b");
    assert!((after.mtime(), after.mtime_nsec()) > (before.mtime(), before.mtime_nsec()));
    assert_eq!(after.len(), 1_000_001);
    drop(
        fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(mount.path("b"))
            .unwrap(),
    );
    assert_eq!(meta("b").len(), 0);
    // A name that was missed is found once it exists.
    assert!(!mount.path("late").exists());
    fs::write(mount.path("late"), b"").unwrap();
    assert!(mount.path("late").exists());
}

#[test]
fn statfs_reports_the_space_of_the_storage_below() {
    let Some(mount) = Mount::new() else { return };
    let here = rustix::fs::statvfs(mount.path("")).unwrap();
    let below = rustix::fs::statvfs(mount.room_dir()).unwrap();
    let bytes = |v: &rustix::fs::StatVfs, blocks: u64| blocks * v.f_frsize;
    assert_eq!((here.f_bsize, here.f_namemax), (4096, 255));
    assert_eq!(bytes(&here, here.f_blocks), bytes(&below, below.f_blocks));
    let (a, b) = (bytes(&here, here.f_bavail), bytes(&below, below.f_bavail));
    assert!(a.abs_diff(b) < (2 << 30), "{a} available here, {b} below");
    assert!(here.f_files > here.f_ffree);
}

#[test]
fn files_are_created_exclusively_and_with_the_requested_mode() {
    let Some(mount) = Mount::new() else { return };
    let make = || {
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o400)
            .open(mount.path("ro"))
    };
    let mut file = make().unwrap();
    file.write_all(b"written although read-only: it was open")
        .unwrap();
    assert_eq!(
        make().unwrap_err().kind(),
        std::io::ErrorKind::AlreadyExists
    );
    assert_eq!(
        fs::metadata(mount.path("ro")).unwrap().mode() & 0o777,
        0o400
    );
    drop(file);
    assert!(sh(&mount, "umask 077; mkdir d; touch d/f; stat -c %a d d/f").stdout == b"700\n600\n");
}
