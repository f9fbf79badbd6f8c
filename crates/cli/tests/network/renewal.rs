//! Keys that are renewed while everything runs.

use super::cluster::{Cluster, Shape};
use super::common::{noise, words};
use super::process::until;

#[test]
fn keys_of_disks_and_users_are_renewed_under_a_running_server() {
    let Some(mut cluster) = Cluster::start(Shape {
        protection: "private",
        ..Shape::small()
    }) else {
        return;
    };
    let root = cluster.mountpoint(0);
    let mut number = 0;
    let mut works = |when: &str| {
        number += 1;
        let bytes = noise(300_000, number);
        let path = root.join(format!("file{number}"));
        std::fs::write(&path, &bytes).unwrap_or_else(|e| panic!("{when}: {e}"));
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{when}");
    };
    works("at first");
    let shown = cluster.ok(&["disk", "key", "show", "--key", "disk0.key"]);
    assert!(shown.contains("certificate  ends 20"), "{shown}");

    // The disk's: it is restarted with its new file, which has the keys before; then the metadata server is given its part.
    cluster.ok(&words("disk key rotate --key disk0.key --key-out new.key"));
    cluster.stop_disk(0);
    std::fs::rename(cluster.path("new.key"), cluster.path("disk0.key")).unwrap();
    cluster.start_disk(0);
    works("with the metadata server's part from before");
    let address = cluster.disk_address(0);
    cluster.ok(&[
        "disk",
        "add",
        "room",
        "disk0",
        &address,
        "--key",
        "new.key.add",
    ]);
    works("with the new part");
    let listed = cluster.ok(&["disk", "list", "room"]);
    assert!(listed.contains("private"), "{listed}");

    // The user's: the identity before ends at once.
    let listed = cluster.ok(&["user", "list", "room"]);
    assert!(listed.contains("1 key: ends 20"), "{listed}");
    cluster.ok(&words(
        "user renew room root --out new.identity --replaces root.identity --now",
    ));
    until("the replaced identity is refused", || {
        std::fs::write(root.join("refused"), b"x").is_err()
    });
    cluster.kill_client(0);
    std::fs::rename(cluster.path("new.identity"), cluster.path("root.identity")).unwrap();
    cluster.start_client(0);
    works("with the new identity");
    for file in 1..number {
        let path = root.join(format!("file{file}"));
        assert_eq!(std::fs::read(path).unwrap(), noise(300_000, file));
    }
}
