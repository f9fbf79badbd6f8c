//! Several targets of one room.

use super::{Serving, have, ok};
use crate::common::{Sandbox, words};

/// The second target found the room in use, by the process that had opened it for the first.
#[test]
fn files_of_one_room_are_served_together() {
    if !have(&["nbdinfo", "nbdcopy"]) {
        return;
    }
    let sandbox = Sandbox::with_room();
    for (name, len) in [("a", 1 << 20), ("b", 2 << 20)] {
        std::fs::write(sandbox.path(name), vec![0; len]).unwrap();
        sandbox.with_pass(["cp", name, &format!("room:/{name}")]);
    }
    std::os::unix::fs::symlink("room", sandbox.path("other-name")).unwrap();
    let args = words("--listen 127.0.0.1:0 --passphrase-file pass room:/a other-name:/b");
    let serving = Serving::start_of(&sandbox, &args, 2);
    let uri = |i: usize| serving.said[i].rsplit_once(' ').unwrap().1;
    for (i, len) in [(0, 1 << 20), (1, 2 << 20)] {
        assert_eq!(ok("nbdinfo", &["--size", uri(i)]).trim(), len.to_string());
    }
    std::fs::write(sandbox.path("new"), vec![7; 2 << 20]).unwrap();
    let new = sandbox.path("new");
    ok("nbdcopy", &["--flush", new.to_str().unwrap(), uri(1)]);
    assert_eq!(serving.stop(), Some(0));
    sandbox.with_pass(["cp", "room:/a", "room:/b", "."]);
    assert!(std::fs::read(sandbox.path("a")).unwrap() == vec![0; 1 << 20]);
    assert!(std::fs::read(sandbox.path("b")).unwrap() == vec![7; 2 << 20]);
}

#[test]
fn an_address_without_tls_is_not_called_one_with_it() {
    let sandbox = Sandbox::empty();
    std::fs::write(sandbox.path("a.img"), vec![1; 8192]).unwrap();
    std::fs::write(sandbox.path("keys"), format!("a:{}\n", "1a".repeat(32))).unwrap();
    for (tls, scheme) in [
        ("off", "nbd://"),
        ("allow", "nbds://"),
        ("require", "nbds://"),
    ] {
        let args = [
            "--listen",
            "127.0.0.1:0",
            "--tls",
            tls,
            "--tls-psk",
            "keys",
            "a.img",
        ];
        let serving = Serving::start(&sandbox, &args);
        assert!(
            serving.uri().starts_with(scheme),
            "{tls}: {}",
            serving.uri()
        );
    }
}
