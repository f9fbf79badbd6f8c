//! Two clients on one file system: what one makes the other sees, permissions hold, and a right that was taken away is gone.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use super::cluster::{Cluster, Shape};
use super::common::{can_mount, is_root, listing, make_tree, noise};

#[test]
fn files_of_one_client_are_seen_by_the_other_in_every_set_up() {
    if !can_mount() || !is_root() {
        return;
    }
    for protection in ["secure", "private"] {
        let mut cluster = Cluster::start(Shape {
            protection,
            ..Shape::default()
        });
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
    if !can_mount() || !is_root() {
        return;
    }
    let cluster = Cluster::start(Shape {
        clients: &["root", "ada", "bob"],
        ..Shape::default()
    });
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
fn a_right_that_is_taken_away_is_gone_though_the_file_is_open() {
    if !can_mount() || !is_root() {
        return;
    }
    let cluster = Cluster::start(Shape {
        clients: &["ada", "bob", "root"],
        ..Shape::default()
    });
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
    // Far behind what the kernel read ahead. The descriptor is open: only a disk that refuses stands in the way.
    let read = std::os::unix::fs::FileExt::read_exact_at(&open, &mut some, 6 << 20);
    assert!(read.is_err(), "read with a capability that was revoked");
    drop(open);
    assert!(fs::File::open(at(1).join("report")).is_err());
    mode(0o644);
    assert_eq!(fs::read(at(1).join("report")).unwrap(), bytes);
}
