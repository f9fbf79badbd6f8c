//! Permissions, ACLs, set-id bits and extended attributes through a real mount. Most of it takes root and a second user.

use room::FileSystem as _;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::common::{Mount, as_nobody, is_root, ok, ok_as_nobody, sh};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// File capabilities, version 2: CAP_NET_RAW permitted.
const NET_RAW: [u8; 20] = [0, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn mode(mount: &Mount, name: &str) -> u32 {
    fs::symlink_metadata(mount.path(name)).unwrap().mode() & 0o7777
}

/// A mount whose root everybody may write.
fn open_mount() -> Option<Mount> {
    if !is_root() {
        return None;
    }
    let mount = Mount::new()?;
    fs::set_permissions(mount.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    Some(mount)
}

#[test]
fn the_kernel_checks_permissions_for_other_users() {
    let Some(mount) = open_mount() else { return };
    ok(
        &mount,
        "echo secret > file && chmod 600 file && mkdir -m 700 dir && touch dir/x && echo a > ro && chmod 644 ro",
    );
    for refused in [
        "cat file",
        "ls dir",
        "cat dir/x",
        "echo b > ro",
        "rm -f dir/x",
        "chmod 777 ro",
        "chown 65534 ro",
    ] {
        assert!(!as_nobody(&mount, refused).status.success(), "{refused}");
    }
    ok_as_nobody(
        &mount,
        "cat ro && echo mine > own && chmod 600 own && rm own",
    );
}

#[test]
fn the_sticky_bit_keeps_others_files() {
    let Some(mount) = open_mount() else { return };
    ok(&mount, "mkdir d && chmod 1777 d && touch d/root");
    assert!(!as_nobody(&mount, "rm -f d/root").status.success());
    assert!(!as_nobody(&mount, "mv d/root d/other").status.success());
    ok_as_nobody(&mount, "touch d/mine && rm d/mine");
}

#[test]
fn a_set_group_id_directory_hands_its_group_down() {
    let Some(mount) = open_mount() else { return };
    ok(
        &mount,
        "mkdir d && chgrp 4242 d && chmod 2777 d && touch d/f && mkdir d/sub",
    );
    assert_eq!(fs::metadata(mount.path("d/f")).unwrap().gid(), 4242);
    assert_eq!(fs::metadata(mount.path("d/sub")).unwrap().gid(), 4242);
    assert_eq!(mode(&mount, "d/sub") & 0o2000, 0o2000);
    // Who is not in the group does not get its set-group-id bit on a program.
    ok_as_nobody(&mount, "touch d/g && chmod 2755 d/g");
    assert_eq!(mode(&mount, "d/g") & 0o2000, 0);
}

#[test]
fn set_id_bits_go_when_an_ordinary_user_changes_the_file() {
    let Some(mount) = open_mount() else { return };
    for change in [
        "printf x >> f",
        "truncate -s 1 f",
        "dd if=/dev/zero of=f bs=4096 count=1 oflag=direct conv=notrunc status=none",
        "fallocate -l 8192 f",
        "sh -c ': > f'",
    ] {
        ok(&mount, "printf 0123456789 > f && chmod 6777 f");
        assert_eq!(mode(&mount, "f"), 0o6777);
        let out = as_nobody(&mount, change);
        assert!(
            out.status.success(),
            "{change}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        assert_eq!(mode(&mount, "f"), 0o777, "{change}");
        assert_eq!(
            mount
                .room
                .as_ref()
                .unwrap()
                .lookup(room::InodeNo::ROOT, b"f")
                .unwrap()
                .mode,
            0o777,
            "{change}"
        );
        ok(&mount, "rm f");
    }
    // Root's own writes keep them; a change of owner does not, by any user.
    ok(&mount, "printf 0 > f && chmod 6777 f && printf x >> f");
    assert_eq!(mode(&mount, "f"), 0o6777);
    ok(&mount, "chown 65534 f");
    assert_eq!(mode(&mount, "f"), 0o777);
    ok(&mount, "mkdir d && chmod 2755 d && chown 65534 d");
    assert_eq!(
        mode(&mount, "d"),
        0o2755,
        "a directory keeps its set-group-id bit"
    );
}

/// What each change of each file's data, by each kind of caller, leaves of its mode: as on the file system beside the mount. With file
/// capabilities, which nobody keeps, root lost set-ID bits that it may keep.
#[test]
fn set_id_bits_go_as_on_other_file_systems() {
    const MODES: [u32; 8] = [
        0o2666, 0o2676, 0o4666, 0o6666, 0o6676, 0o6766, 0o6777, 0o2766,
    ];
    const GROUP: u32 = 4242;
    const CHANGES: [&str; 10] = [
        "write", "append", "truncate", "open", "direct", "allocate", "keep", "punch", "zero",
        "copy",
    ];
    const SCRIPT: &str = r#"
import ctypes, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def allocate(path, mode):
    fd = os.open(path, os.O_RDWR)
    if libc.fallocate(fd, mode, ctypes.c_long(0), ctypes.c_long(8192)):
        raise OSError(ctypes.get_errno(), path)
    os.close(fd)
def write(path, flags, data, direct=False):
    fd = os.open(path, os.O_RDWR | flags)
    os.writev(fd, [data])
    os.close(fd)
def copy(path):
    source, fd = os.open("source", os.O_RDONLY), os.open(path, os.O_RDWR)
    assert os.copy_file_range(source, fd, 4096, 0, 0) == 4096
    os.close(fd)
changes = {
    "write": lambda path: write(path, 0, b"x"),
    "append": lambda path: write(path, os.O_APPEND, b"x"),
    "truncate": lambda path: os.truncate(path, 100),
    "open": lambda path: os.close(os.open(path, os.O_RDWR | os.O_TRUNC)),
    "direct": lambda path: write(path, os.O_DIRECT, mmap.mmap(-1, 4096)),
    "allocate": lambda path: allocate(path, 0),
    "keep": lambda path: allocate(path, 1),
    "punch": lambda path: allocate(path, 3),
    "zero": lambda path: allocate(path, 16),
    "copy": lambda path: copy(path),
}
for path in sorted(os.listdir(".")):
    change = changes.get(path.split("-")[0])
    if change:
        change(path)
"#;
    let Some(mount) = open_mount() else { return };
    let plain = mount.plain();
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o777)).unwrap();
    let callers: [(&str, &[&str]); 7] = [
        (
            "another user",
            &["--reuid=65534", "--regid=65534", "--clear-groups"],
        ),
        (
            "a member",
            &["--reuid=65534", "--regid=4242", "--clear-groups"],
        ),
        (
            "a member by a further group",
            &["--reuid=65534", "--regid=65534", "--groups=4,4242"],
        ),
        (
            "the owner",
            &["--reuid=4243", "--regid=65534", "--clear-groups"],
        ),
        ("root", &[]),
        (
            "root without the privilege",
            &["--clear-groups", "--bounding-set=-fsetid"],
        ),
        (
            "a user with the privilege",
            &[
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "--inh-caps=+fsetid",
                "--ambient-caps=+fsetid",
            ],
        ),
    ];
    let after = |dir: &std::path::Path, options: &[&str], capable: bool| -> Vec<(String, u32)> {
        let names = || {
            CHANGES
                .iter()
                .flat_map(|change| MODES.map(|mode| (format!("{change}-{mode:o}"), mode)))
        };
        fs::write(dir.join("source"), [7; 8192]).unwrap();
        for (name, mode) in names() {
            let path = dir.join(name);
            fs::write(&path, [1; 8192]).unwrap();
            std::os::unix::fs::chown(&path, Some(4243), Some(GROUP)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            if capable {
                rustix::fs::setxattr(&path, "security.capability", &NET_RAW, XattrFlags::empty())
                    .unwrap();
            }
        }
        let out = std::process::Command::new("setpriv")
            .args(options)
            .args(["/usr/bin/python3", "-c", SCRIPT])
            .current_dir(dir)
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "{options:?} in {}: {}",
            dir.display(),
            String::from_utf8_lossy(&out.stderr)
        );
        let left = |name: &String| {
            let path = dir.join(name);
            let mode = fs::metadata(&path).unwrap().mode() & 0o7777;
            let capability = rustix::fs::getxattr(&path, "security.capability", &mut [0u8; 64]);
            assert_eq!(capability, Err(Errno::NODATA), "{}", path.display());
            fs::remove_file(&path).unwrap();
            mode
        };
        names()
            .map(|(name, _)| (name.clone(), left(&name)))
            .collect()
    };
    let mut differences = Vec::new();
    for ((who, options), capable) in callers.iter().flat_map(|c| [(c, false), (c, true)]) {
        let mounted = after(&mount.path(""), options, capable);
        for (one, other) in mounted.iter().zip(after(&plain, options, capable)) {
            if *one != other {
                differences.push(format!(
                    "{who} ({capable}): {}: {:o}, not {:o}",
                    one.0, one.1, other.1
                ));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

/// A change of owner or group, by root and by the owner.
#[test]
fn set_id_bits_go_with_a_change_of_owner_as_on_other_file_systems() {
    let Some(mount) = open_mount() else { return };
    let plain = mount.plain();
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o777)).unwrap();
    let script = "
        for mode in 2666 2676 6666 6766 6777; do
            touch f$mode; chown 65534:4242 f$mode; chmod $mode f$mode
            $1 chown $2 f$mode; stat -c %a f$mode; rm f$mode
        done";
    for (by, to) in [
        ("", "4243"),
        ("", ":4244"),
        ("", "65534:4242"),
        (
            "setpriv --reuid=65534 --regid=65534 --clear-groups",
            ":65534",
        ),
        (
            "setpriv --reuid=65534 --regid=65534 --groups=4242,4244",
            ":4244",
        ),
    ] {
        let run = |dir: &std::path::Path| {
            std::process::Command::new("sh")
                .args(["-ec", script, "sh", by, to])
                .current_dir(dir)
                .output()
                .unwrap()
        };
        let (mounted, beside) = (run(&mount.path("")), run(&plain));
        assert!(
            mounted.status.success(),
            "{}",
            String::from_utf8_lossy(&mounted.stderr)
        );
        assert_eq!(
            String::from_utf8(mounted.stdout).unwrap(),
            String::from_utf8(beside.stdout).unwrap(),
            "{by} chown {to}"
        );
    }
}

/// `chown` of neither owner nor group is allowed to everybody, and reaches the mount as what the kernel sends before a write.
#[test]
fn a_change_of_owner_that_changes_nothing_leaves_a_directory_its_bits() {
    let Some(mount) = open_mount() else { return };
    ok(&mount, "mkdir d && chgrp 4242 d && chmod 6777 d");
    let nothing = "python3 -c 'import os; os.chown(\"d\", -1, -1)'";
    ok_as_nobody(&mount, nothing);
    assert_eq!(mode(&mount, "d"), 0o6777);
    ok(&mount, nothing);
    assert_eq!(mode(&mount, "d"), 0o6777);
}

#[test]
fn a_write_takes_file_capabilities_away() {
    let Some(mount) = open_mount() else { return };
    fs::write(mount.path("f"), b"x").unwrap();
    fs::set_permissions(mount.path("f"), fs::Permissions::from_mode(0o777)).unwrap();
    rustix::fs::setxattr(
        mount.path("f"),
        "security.capability",
        &NET_RAW,
        XattrFlags::empty(),
    )
    .unwrap();
    let get = || {
        let mut buf = [0u8; 64];
        rustix::fs::getxattr(mount.path("f"), "security.capability", &mut buf)
    };
    assert_eq!(get(), Ok(20));
    ok(&mount, "chown 65534 f");
    assert_eq!(get(), Err(Errno::NODATA));
}

#[test]
fn the_umask_applies_unless_a_default_acl_does() {
    let Some(mount) = open_mount() else { return };
    ok(&mount, "umask 027; touch f; mkdir d; mkfifo p");
    assert_eq!(
        (mode(&mount, "f"), mode(&mount, "d"), mode(&mount, "p")),
        (0o640, 0o750, 0o640)
    );
    ok(
        &mount,
        "mkdir a && setfacl -d -m u::rwx,g::rwx,o::r-x,u:65534:rwx,m::rwx a && umask 077 && touch a/f && mkdir a/d",
    );
    assert_eq!(mode(&mount, "a/f"), 0o664);
    assert_eq!(mode(&mount, "a/d"), 0o775);
    let acl = ok(&mount, "getfacl -cEn a/d/../f a/d 2>/dev/null");
    assert!(acl.contains("user:65534:rwx"), "{acl}");
    assert!(acl.contains("default:user:65534:rwx"), "{acl}");
}

#[test]
fn acls_are_enforced_kept_and_follow_the_mode() {
    let Some(mount) = open_mount() else { return };
    ok(&mount, "echo secret > f && chmod 600 f");
    assert!(!as_nobody(&mount, "cat f").status.success());
    ok(&mount, "setfacl -m u:65534:r f");
    ok_as_nobody(&mount, "cat f");
    assert_eq!(mode(&mount, "f"), 0o640, "the group bits show the mask");
    ok(&mount, "chmod g= f");
    assert!(
        !as_nobody(&mount, "cat f").status.success(),
        "chmod took the mask away"
    );
    ok(&mount, "chmod g=r f");
    ok_as_nobody(&mount, "cat f");
    let before = ok(&mount, "getfacl -n f");
    let mount = mount.again();
    assert_eq!(ok(&mount, "getfacl -n f"), before);
    ok_as_nobody(&mount, "cat f");
    ok(&mount, "setfacl -b f");
    assert!(!as_nobody(&mount, "cat f").status.success());
}

#[test]
fn extended_attributes_are_probed_sized_created_and_replaced() {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("f");
    fs::write(&path, b"").unwrap();
    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
    let mut buf = [0u8; 16];
    let get = |name: &str, buf: &mut [u8]| rustix::fs::getxattr(&path, name, buf);
    assert_eq!(get("user.a", &mut buf), Err(Errno::NODATA));
    assert_eq!(set("user.a", b"1", XattrFlags::REPLACE), Err(Errno::NODATA));
    set("user.a", b"value", XattrFlags::CREATE).unwrap();
    assert_eq!(set("user.a", b"2", XattrFlags::CREATE), Err(Errno::EXIST));
    let path_c = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a null pointer with a length of zero asks for the length.
    let length =
        unsafe { libc::getxattr(path_c.as_ptr(), c"user.a".as_ptr(), std::ptr::null_mut(), 0) };
    assert_eq!(length, 5);
    assert_eq!(get("user.a", &mut buf[..4]), Err(Errno::RANGE));
    assert_eq!(get("user.a", &mut buf), Ok(5));
    assert_eq!(&buf[..5], b"value");
    set("user.empty", b"", XattrFlags::empty()).unwrap();
    assert_eq!(get("user.empty", &mut buf), Ok(0));
    let mut list = [0u8; 64];
    assert_eq!(
        rustix::fs::listxattr(&path, &mut list[..3]),
        Err(Errno::RANGE)
    );
    let n = rustix::fs::listxattr(&path, &mut list).unwrap();
    assert_eq!(&list[..n], b"user.a\0user.empty\0");
    let large = vec![7u8; 64 << 10];
    set("user.large", &large, XattrFlags::empty()).unwrap();
    let mut back = vec![0u8; 64 << 10];
    assert_eq!(get("user.large", &mut back), Ok(64 << 10));
    assert!(back == large);
    rustix::fs::removexattr(&path, "user.a").unwrap();
    assert_eq!(rustix::fs::removexattr(&path, "user.a"), Err(Errno::NODATA));
}

/// The kernel leaves it to the file system who may change attributes of this kind.
#[test]
fn no_system_attributes_but_access_lists_can_be_set() {
    let Some(mount) = open_mount() else { return };
    ok(&mount, "echo secret > f && chmod 600 f");
    let change = |call: &str| {
        format!(
            "python3 -c '
import errno, os
try: os.{call}
except OSError as e: print(errno.errorcode[e.errno])'"
        )
    };
    for call in [
        "setxattr(\"f\", \"system.other\", b\"1\")",
        "removexattr(\"f\", \"system.other\")",
        "setxattr(\"f\", \"system.posix_acl_other\", b\"1\")",
    ] {
        assert_eq!(ok_as_nobody(&mount, &change(call)), "ENOTSUP\n", "{call}");
        assert_eq!(ok(&mount, &change(call)), "ENOTSUP\n", "{call}");
    }
    ok(&mount, "setfacl -m u:65534:r f");
    ok_as_nobody(&mount, "cat f");
}

/// Local file systems remove an access list that is not there without an error; it was ENODATA.
#[test]
fn an_access_list_that_is_not_there_can_be_removed() {
    let Some(mount) = open_mount() else { return };
    ok(&mount, "mkdir d && touch d/f");
    for (path, kind) in [("d", "access"), ("d", "default"), ("d/f", "access")] {
        let name = format!("system.posix_acl_{kind}");
        rustix::fs::removexattr(mount.path(path), name.as_str()).unwrap();
    }
}

#[test]
fn trusted_attributes_are_roots_alone() {
    let Some(mount) = open_mount() else { return };
    fs::write(mount.path("f"), b"").unwrap();
    for name in ["trusted.t", "user.u"] {
        rustix::fs::setxattr(mount.path("f"), name, b"1", XattrFlags::empty()).unwrap();
    }
    let list = "python3 -c 'import os; print(os.listxattr(\"f\"))'";
    assert_eq!(ok(&mount, list), "['trusted.t', 'user.u']\n");
    assert_eq!(ok_as_nobody(&mount, list), "['user.u']\n");
    assert!(
        !as_nobody(
            &mount,
            "python3 -c 'import os; os.getxattr(\"f\", \"trusted.t\")'"
        )
        .status
        .success()
    );
}

#[test]
fn a_set_user_id_program_runs_as_its_owner_on_roots_mount() {
    let Some(mount) = open_mount() else { return };
    ok(
        &mount,
        "cp /usr/bin/id id && chown 4243 id && chmod 4755 id",
    );
    assert_eq!(ok_as_nobody(&mount, "./id -u"), "4243\n");
}

#[test]
fn a_read_only_mount_refuses_every_change() {
    let options = mount::MountOptions {
        read_only: true,
        ..Default::default()
    };
    let Some(mount) = Mount::with(options) else {
        return;
    };
    let out = sh(&mount, "echo x > f");
    assert!(!out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("Read-only file system"));
    ok(&mount, "ls -la");
}

#[test]
fn a_label_that_a_file_has_is_returned_whether_the_kernel_uses_labels_or_not() {
    const NAME: &str = "security.selinux";
    let filesystems = std::fs::read_to_string("/proc/filesystems").unwrap();
    if filesystems.contains("selinuxfs") {
        eprintln!("skipped: SELinux answers for the mount");
        return;
    }
    let Some(mount) = open_mount() else { return };
    ok(&mount, "touch plain labelled");
    let get = |mount: &Mount, name: &str| {
        let mut buffer = [0; 64];
        let len = rustix::fs::lgetxattr(mount.path(name), NAME, &mut buffer)?;
        Ok(buffer[..len].to_vec())
    };
    assert_eq!(get(&mount, "plain"), Err(Errno::OPNOTSUPP));
    let label = b"system_u:object_r:tmp_t:s0\0";
    rustix::fs::setxattr(mount.path("labelled"), NAME, label, XattrFlags::empty()).unwrap();
    assert_eq!(get(&mount, "labelled").as_deref(), Ok(&label[..]));
    assert_eq!(get(&mount, "plain"), Err(Errno::NODATA));
    let mount = mount.again();
    assert_eq!(get(&mount, "labelled").as_deref(), Ok(&label[..]));
    assert_eq!(get(&mount, "plain"), Err(Errno::NODATA));
}
