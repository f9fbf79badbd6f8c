//! Mount options that programs notice: access times, synchronous changes.

use room::FileSystem as _;
use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use crate::common::{Mount, as_nobody, for_all_users, is_root, ok, ok_as_nobody};
use mount::{AccessTimes, MountOptions, Synchronous};
use rustix::fs::{Advice, fadvise};

fn atime(path: &Path) -> (i64, i64) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.atime(), meta.atime_nsec())
}

/// Reads a file by a request to the room, not from the kernel's cache.
fn read(path: &Path) {
    let file = fs::File::open(path).unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    std::io::copy(&mut &file, &mut std::io::sink()).unwrap();
}

fn with_access_times(access_times: AccessTimes, directories: bool) -> Option<Mount> {
    let mount = Mount::with(MountOptions {
        access_times,
        directory_access_times: directories,
        ..MountOptions::default()
    })?;
    // Written later than created, whatever the clocks of the kernel and the room are.
    ok(
        &mount,
        "mkdir d && : > f && ln -s f l && sleep 0.1 && echo text > f && : > d/g && sync f",
    );
    Some(mount)
}

/// The clock of access times is finer than this.
fn tick() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Whether a first and a second read of a file, of a directory and of a link move the access time.
fn moved(mount: &Mount) -> [(bool, bool); 3] {
    let twice = |name: &str, read: &dyn Fn(&Path)| {
        let path = mount.path(name);
        let once = || {
            let before = atime(&path);
            tick();
            read(&path);
            atime(&path) != before
        };
        tick();
        (once(), once())
    };
    [
        twice("f", &read),
        twice("d", &|path| {
            assert_eq!(fs::read_dir(path).unwrap().count(), 1)
        }),
        twice("l", &|path| drop(fs::read_link(path).unwrap())),
    ]
}

#[test]
fn access_times_are_those_of_relatime_by_default() {
    let Some(mount) = with_access_times(AccessTimes::Relative, true) else {
        return;
    };
    let [file, directory, _] = moved(&mount);
    assert_eq!(file, (true, false), "file");
    assert_eq!(directory, (true, false), "directory");
}

#[test]
fn with_noatime_no_read_moves_an_access_time() {
    let Some(mount) = with_access_times(AccessTimes::Never, true) else {
        return;
    };
    assert_eq!(moved(&mount), [(false, false); 3]);
    // It is still a time that can be set.
    ok(&mount, "touch -a -d '2001-02-03 04:05:06 UTC' f");
    assert_eq!(atime(&mount.path("f")).0, 981_173_106);
    assert!(mount_line(&mount).contains("noatime"), "the mount table");
}

#[test]
fn with_strictatime_every_read_moves_the_access_time() {
    let Some(mount) = with_access_times(AccessTimes::Strict, true) else {
        return;
    };
    let [file, directory, _] = moved(&mount);
    assert_eq!(file, (true, true), "file");
    assert_eq!(directory, (true, true), "directory");
    assert!(!mount_line(&mount).contains("relatime"), "the mount table");
}

#[test]
fn with_nodiratime_only_directories_are_spared() {
    let Some(mount) = with_access_times(AccessTimes::Strict, false) else {
        return;
    };
    let [file, directory, _] = moved(&mount);
    assert_eq!(file, (true, true), "file");
    assert_eq!(directory, (false, false), "directory");
    assert!(mount_line(&mount).contains("nodiratime"), "the mount table");
}

fn mount_line(mount: &Mount) -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let at = mount.path("");
    let line = table.lines().find(|l| l.contains(at.to_str().unwrap()));
    line.unwrap().to_owned()
}

/// A mount by root let every user in, and honoured set-ID bits and device nodes of a room, whose bytes may come from anywhere.
#[test]
fn a_mount_by_root_is_for_root_and_grants_nothing_unless_asked() {
    if !is_root() {
        return;
    }
    let Some(mount) = Mount::with(MountOptions::default()) else {
        return;
    };
    let make = "cp /usr/bin/id id && chown 4243 id && chmod 4755 id && mknod null c 1 3 && chmod 666 null && chmod 755 .";
    ok(&mount, make);
    let line = mount_line(&mount);
    assert!(line.contains("nosuid") && line.contains("nodev"), "{line}");
    assert!(!line.contains("allow_other"), "{line}");
    let out = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "ls"])
        .arg(mount.path(""))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("denied"), "{said}");
    assert!(
        fs::File::open(mount.path("null")).is_err(),
        "a device node works"
    );
    drop(mount);

    let Some(mount) = Mount::with(for_all_users()) else {
        return;
    };
    ok(&mount, make);
    assert_eq!(ok_as_nobody(&mount, "./id -u"), "4243\n");
    assert!(as_nobody(&mount, ": <null").status.success());
}

/// A room that commits only when it is asked, so that what is durable was made so by the mount option.
fn with_synchronous(synchronous: Synchronous) -> Option<Mount> {
    let options = MountOptions {
        synchronous,
        write_back_interval: None,
        ..MountOptions::default()
    };
    let mount = Mount::with_opened(options, |open| open.commit_interval_ms = 0)?;
    ok(&mount, "echo old > f && mkdir d && sync f");
    Some(mount)
}

#[test]
fn on_a_synchronous_mount_every_change_is_durable_when_it_returns() {
    let Some(mount) = with_synchronous(Synchronous::All) else {
        return;
    };
    let mut file = fs::OpenOptions::new()
        .write(true)
        .open(mount.path("f"))
        .unwrap();
    use std::io::Write;
    file.write_all(b"new").unwrap();
    // Not closed: closing would be a reason to write back.
    let (_dir, durable) = mount.durable();
    assert_eq!(durable.read_file("/f").unwrap(), b"new\n", "a write");
    let direct = fs::OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(mount.path("f"))
        .unwrap();
    // Aligned whatever the kernel asks for.
    let block = vec![b'd'; 8192];
    let from = block.as_ptr().align_offset(4096);
    std::os::unix::fs::FileExt::write_all_at(&direct, &block[from..from + 4096], 0).unwrap();
    let (_dir, durable) = mount.durable();
    assert_eq!(
        durable.read_file("/f").unwrap(),
        [b'd'; 4096],
        "a direct write"
    );
    fs::File::create(mount.path("f"))
        .unwrap()
        .set_len(7)
        .unwrap();
    fs::set_permissions(
        mount.path("f"),
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();
    rustix::fs::setxattr(
        mount.path("f"),
        "user.note",
        b"x",
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
    let (_dir, durable) = mount.durable();
    let inode = durable
        .attributes(durable.resolve(Path::new("/f"), true).unwrap())
        .unwrap();
    assert_eq!((inode.size, inode.mode), (7, 0o600));
    assert_eq!(durable.xattr(inode.no, b"user.note").unwrap(), b"x");
    names_are_durable(&mount, true);
    assert!(mount_line(&mount).contains("sync"), "the mount table");
}

#[test]
fn with_dirsync_changes_of_names_are_durable_and_others_are_not() {
    let Some(mount) = with_synchronous(Synchronous::Names) else {
        return;
    };
    names_are_durable(&mount, true);
    fs::write(mount.path("f"), b"new").unwrap();
    let (_dir, durable) = mount.durable();
    assert_eq!(durable.read_file("/f").unwrap(), b"old\n");
}

#[test]
fn without_either_nothing_is_durable_before_it_is_asked_for() {
    let Some(mount) = with_synchronous(Synchronous::Off) else {
        return;
    };
    names_are_durable(&mount, false);
}

/// Makes one change of each kind, and looks for it in what is durable.
fn names_are_durable(mount: &Mount, expected: bool) {
    let root = mount.path("");
    let is_there = |what: &str, path: &str, there: bool| {
        let (_dir, durable) = mount.durable();
        let found = durable.resolve(Path::new(path), false).is_ok();
        assert_eq!(found == there, expected, "{what}");
    };
    fs::File::create(root.join("made")).unwrap();
    is_there("create", "/made", true);
    fs::create_dir(root.join("dir")).unwrap();
    is_there("mkdir", "/dir", true);
    symlink("f", root.join("soft")).unwrap();
    is_there("symlink", "/soft", true);
    fs::hard_link(root.join("f"), root.join("hard")).unwrap();
    is_there("link", "/hard", true);
    fs::rename(root.join("f"), root.join("moved")).unwrap();
    is_there("rename", "/moved", true);
    fs::remove_dir(root.join("d")).unwrap();
    is_there("rmdir", "/d", false);
    fs::rename(root.join("moved"), root.join("f")).unwrap();
    is_there("rename back", "/moved", !expected);
}
