//! Two clients on one file system: what one makes the other sees, permissions hold, and a revoked right is gone.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use super::cluster::{Cluster, Shape};
use super::common::{listing, make_tree, noise};

#[test]
fn files_of_one_client_are_seen_by_the_other_in_every_set_up() {
    for protection in ["secure", "private"] {
        let Some(mut cluster) = Cluster::start(Shape {
            protection,
            ..Shape::default()
        }) else {
            return;
        };
        let (one, other) = (cluster.mountpoint(0), cluster.mountpoint(1));
        let tree = one.join("tree");
        make_tree(&tree);
        let wanted = listing(&tree);
        assert_eq!(listing(&other.join("tree")), wanted);
        // Closed by one, opened by the other: seen, whatever was read before.
        for round in 0..5 {
            let bytes = noise(300_000 + round * 7, round as u64);
            fs::write(one.join("back and forth"), &bytes).unwrap();
            assert_eq!(fs::read(other.join("back and forth")).unwrap(), bytes);
            fs::write(other.join("back and forth"), &bytes[..1000]).unwrap();
            assert_eq!(
                fs::read(one.join("back and forth")).unwrap(),
                &bytes[..1000]
            );
        }
        fs::rename(other.join("tree"), other.join("moved")).unwrap();
        assert_eq!(listing(&one.join("moved")), wanted);
        cluster.restart_all();
        assert_eq!(listing(&other.join("moved")), wanted);
    }
}

#[test]
fn each_user_may_do_what_the_files_permissions_say() {
    let Some(cluster) = Cluster::start(Shape::of(&["root", "ada", "bob"])) else {
        return;
    };
    let at = |client: usize| cluster.mountpoint(client);
    fs::set_permissions(at(0), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(at(1).join("mine"), b"ada's own").unwrap();
    let meta = fs::metadata(at(0).join("mine")).unwrap();
    assert_eq!(
        (meta.uid(), meta.gid()),
        (1001, 1001),
        "the user is the certificate's"
    );
    let set = |client: usize, name: &str, mode| {
        fs::set_permissions(at(client).join(name), fs::Permissions::from_mode(mode))
    };
    set(1, "mine", 0o600).unwrap();
    // This process is root: only the server says no.
    let denied = |result: std::io::Result<()>| {
        let error = result.expect_err("bob may not");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    };
    denied(fs::read(at(2).join("mine")).map(drop));
    denied(fs::write(at(2).join("mine"), b"bob's"));
    denied(fs::remove_file(at(2).join("mine")));
    denied(set(2, "mine", 0o666));
    set(1, "mine", 0o644).unwrap();
    assert_eq!(fs::read(at(2).join("mine")).unwrap(), b"ada's own");
    denied(fs::write(at(2).join("mine"), b"bob's"));
    let acl = Command::new("setfacl")
        .args(["-m", "u:1002:rw"])
        .arg(at(1).join("mine"))
        .output();
    if acl.is_ok_and(|done| done.status.success()) {
        fs::write(at(2).join("mine"), b"written by bob, whom the list names").unwrap();
    }
    assert!(
        fs::read(at(1).join("mine"))
            .unwrap()
            .starts_with(b"written by bob")
    );
}

#[test]
fn a_revoked_right_is_gone_though_the_file_is_open() {
    let Some(cluster) = Cluster::start(Shape::of(&["ada", "bob", "root"])) else {
        return;
    };
    let at = |client: usize| cluster.mountpoint(client);
    fs::set_permissions(at(2), fs::Permissions::from_mode(0o1777)).unwrap();
    let bytes = noise(8 << 20, 3);
    fs::write(at(0).join("report"), &bytes).unwrap();
    let mode = |mode| {
        fs::set_permissions(at(0).join("report"), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o644);
    let mut open = fs::File::open(at(1).join("report")).unwrap();
    let mut some = vec![0; 4096];
    std::io::Read::read_exact(&mut open, &mut some).unwrap();
    assert_eq!(some, bytes[..4096]);
    mode(0o600);
    // Far behind what the kernel read ahead. The descriptor is open: only the refusal of a disk prevents the read.
    let read = std::os::unix::fs::FileExt::read_exact_at(&open, &mut some, 6 << 20);
    assert!(read.is_err(), "read with a capability that was revoked");
    drop(open);
    assert!(fs::File::open(at(1).join("report")).is_err());
    mode(0o644);
    assert_eq!(fs::read(at(1).join("report")).unwrap(), bytes);
}

/// Names that were created while a directory was read were listed too, and so the listing did not end.
#[test]
fn a_listing_ends_and_shows_each_name_once_while_names_change() {
    const NAMES: usize = 400;
    let Some(cluster) = Cluster::start(Shape::default()) else {
        return;
    };
    let (one, other) = (cluster.mountpoint(0), cluster.mountpoint(1));
    fs::create_dir(one.join("elsewhere")).unwrap();
    let list_while = |dir: &str, change: &mut dyn FnMut(&Path, &str)| {
        let dir = one.join(dir);
        fs::create_dir(&dir).unwrap();
        for name in 0..NAMES {
            File::create(dir.join(name.to_string())).unwrap();
        }
        let mut seen: Vec<String> = Vec::new();
        for entry in fs::read_dir(&dir).unwrap() {
            assert!(seen.len() < 3 * NAMES, "the listing does not end");
            let name = entry.unwrap().file_name().into_string().unwrap();
            change(&dir, &name);
            seen.push(name);
        }
        let names: Vec<String> = (0..NAMES).map(|name| name.to_string()).collect();
        assert!(seen == names, "{dir:?}: {seen:?}");
    };
    list_while("renamed", &mut |dir, name| {
        fs::rename(dir.join(name), dir.join("TMP")).unwrap();
        fs::rename(dir.join("TMP"), dir.join(name)).unwrap();
    });
    // By the other client, through which the same names are seen.
    list_while("moved", &mut |_, name| {
        let (name, out) = (
            other.join("moved").join(name),
            other.join("elsewhere").join(name),
        );
        fs::rename(&name, &out).unwrap();
        fs::rename(&out, &name).unwrap();
    });
    let mut new = NAMES;
    list_while("created", &mut |_, _| {
        File::create(other.join("created").join(new.to_string())).unwrap();
        new += 1;
    });
    let count = |at: &Path| fs::read_dir(at.join("created")).unwrap().count();
    assert_eq!((count(&one), count(&other)), (new, new));
}

/// The flags of one client's file hold for all, also where the file was open before.
#[test]
fn flags_hold_for_every_client_also_for_what_was_open_before() {
    let Some(mut cluster) = Cluster::start(Shape::default()) else {
        return;
    };
    let (one, other) = (cluster.mountpoint(0), cluster.mountpoint(1));
    let set = |name: &str, flags| ioctl_setflags(File::open(one.join(name)).unwrap(), flags);
    let denied = |result: std::io::Result<()>, what: &str| {
        let error = result.expect_err(what);
        assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{what}: {error}");
    };
    let text = noise(10_000, 3);
    for name in ["log", "fixed"] {
        fs::write(one.join(name), &text).unwrap();
    }
    let open = |name: &str| OpenOptions::new().write(true).open(other.join(name));
    let (log, fixed) = (open("log").unwrap(), open("fixed").unwrap());
    // What a client wrote before it sets the flag counts.
    let mut appending = OpenOptions::new()
        .append(true)
        .open(one.join("log"))
        .unwrap();
    appending.write_all(b"before\n").unwrap();
    set("log", IFlags::APPEND).unwrap();
    set("fixed", IFlags::IMMUTABLE).unwrap();
    let flags = ioctl_getflags(File::open(other.join("log")).unwrap()).unwrap();
    assert_eq!(flags, IFlags::APPEND);

    let over = |file: &File, at| file.write_all_at(b"other", at).and(file.sync_all());
    denied(over(&fixed, 0), "a write to an immutable file");
    denied(over(&log, 0), "a write over what is stored");
    denied(open("log").map(drop), "an open not to append");
    denied(open("fixed").map(drop), "an open of an immutable file");
    denied(
        fs::remove_file(other.join("log")),
        "removing an append-only file",
    );
    denied(
        fs::rename(other.join("fixed"), other.join("x")),
        "moving an immutable file",
    );
    appending.write_all(b"after\n").unwrap();
    appending.sync_all().unwrap();
    let mut others = OpenOptions::new()
        .append(true)
        .open(other.join("log"))
        .unwrap();
    others.write_all(b"other\n").unwrap();
    others.sync_all().unwrap();
    drop((log, fixed, appending, others));

    let expected = [&text[..], b"before\nafter\nother\n"].concat();
    let same = |at: &Path| {
        assert!(fs::read(at.join("log")).unwrap() == expected);
        assert!(fs::read(at.join("fixed")).unwrap() == text);
    };
    same(&one);
    cluster.restart_all();
    same(&one);
    same(&other);
    for name in ["log", "fixed"] {
        set(name, IFlags::empty()).unwrap();
        fs::remove_file(other.join(name)).unwrap();
    }
}
