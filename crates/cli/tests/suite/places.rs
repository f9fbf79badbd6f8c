//! How rooms and the files in them are named: by directory, by mountpoint, by paths below it.

use crate::common;
use crate::common::setting::{PLACE, with_a_store_over_tls};
use crate::common::{CHEAP, Ran, Sandbox, can_mount};

fn with_file() -> Sandbox {
    let s = Sandbox::with_room();
    s.with_pass(["mkdir", "room:/d"]);
    s.with_pass(["cp", "pass", "room:/d/f"]);
    s
}

#[test]
fn a_mountpoint_names_the_room_that_is_mounted_there() {
    let s = with_file();
    std::fs::create_dir_all(s.path("mnt")).unwrap();
    if !s.mount() {
        return;
    }
    std::os::unix::fs::symlink("mnt", s.path("link")).unwrap();
    assert_eq!(s.ok(["ls", "mnt"]), "d\n");
    assert_eq!(s.ok(["ls", "link"]), "d\n");
    assert_eq!(s.ok(["ls", "mnt/d"]), "f\n");
    assert_eq!(s.ok(["ls", "mnt:/d"]), "f\n");
    assert_eq!(
        s.ok(["cat", "mnt/d/f"]),
        std::fs::read_to_string(s.path("pass")).unwrap()
    );
    assert_eq!(s.ok(["tree", "mnt"]).lines().next(), Some("/"));
    let info = s.ok(["info", "mnt"]);
    let room = s.path("room").canonicalize().unwrap();
    assert!(
        info.contains(&format!("room        {}\n", room.display())),
        "{info}"
    );
    assert!(s.ok(["key", "list", "mnt"]).contains("passphrase"));
    s.ok(["df", "mnt"]);
    s.ok(["sync", "mnt"]);
    s.ok(["check", "mnt"]);
    s.ok(["compact", "mnt"]);
    s.ok(["backup", "mnt", "copy"]);
    s.with_pass(["header", "backup", "mnt", "saved"]);
    s.ok(["cp", "pass", "mnt:/g"]);
    assert!(s.path("mnt/g").exists());
    s.umount();
    assert_eq!(s.with_pass(["ls", "copy"]), "d\n");
    // Nothing is mounted there any more.
    assert!(s.fails(10, ["ls", "mnt"]).contains("mnt: not a room"));
}

/// What failed: `rm -r room:/link/` removed what is in the directory that the link leads to, and `rm -r room:/d/..` all that is in
/// the room. Below a mountpoint, `rm mnt/link` removed the file that the link leads to.
#[test]
fn nothing_is_removed_by_way_of_a_link_or_of_dots() {
    let s = with_file();
    s.with_pass(["cp", "pass", "room:/g"]);
    s.with_pass(["ln", "-s", "d", "room:/to d"]);
    s.with_pass(["ln", "-s", "g", "room:/to g"]);
    let names = ["/:", "d", "g", "to d", "to g", "", "/d:", "f", ""].join("\n");
    let refused = |room: &str| {
        for (path, code, why) in [
            ("/to d/", 1, "not a directory"),
            ("/g/", 1, "not a directory"),
            ("/d/..", 2, "name the directory itself"),
            ("/d/../", 2, "name the directory itself"),
            ("/..", 2, "name the directory itself"),
            ("/.", 2, "the root of a room"),
        ] {
            let err = s.fails(code, ["rm", "-r", &format!("{room}{path}")]);
            assert!(err.contains(why), "{path}: {err}");
            assert_eq!(s.with_pass(["ls", "-R", "room"]), names, "{path}");
        }
        let err = s.fails(1, ["mv", &format!("{room}/to d/"), "out"]);
        assert!(err.contains("is a symbolic link"), "{err}");
        assert_eq!(s.with_pass(["ls", "-R", "room"]), names);
        assert!(!s.path("out").exists());
    };
    refused("room:");
    if s.mount() {
        refused("room:");
        refused("mnt:");
        for (path, code) in [("mnt/to d/", 1), ("mnt/d/..", 2)] {
            s.fails(code, ["rm", "-r", path]);
            assert_eq!(s.ok(["ls", "-R", "room"]), names, "{path}");
        }
        let stat = s.ok(["stat", "--json", "mnt/to g"]);
        assert!(stat.contains("\"kind\":\"symlink\""), "{stat}");
        assert_eq!(s.ok(["ls", "mnt/to d"]), "f\n");
        s.ok(["mkdir", "mnt/new"]);
        s.ok(["rm", "-r", "mnt/to g", "mnt/to d", "mnt/new"]);
        s.umount();
    } else {
        s.with_pass(["rm", "-r", "room:/to g", "room:/to d"]);
    }
    let left = ["/:", "d", "g", "", "/d:", "f", ""].join("\n");
    assert_eq!(s.with_pass(["ls", "-R", "room"]), left);
}

#[test]
fn a_room_alone_is_its_root_everywhere() {
    let s = with_file();
    s.with_pass(["cp", "pass", "room"]);
    assert_eq!(s.with_pass(["ls", "room"]), "d\npass\n");
    std::fs::write(s.path("more"), "more").unwrap();
    s.with_pass(["mv", "more", "room"]);
    assert_eq!(s.with_pass(["ls", "room:"]), "d\nmore\npass\n");
    s.with_pass(["cp", "-r", "room", "out"]);
    assert!(s.path("out/d/f").exists() && !s.path("out/header.json").exists());
    // A directory is no room because it has a file of that name.
    std::fs::create_dir(s.path("web")).unwrap();
    std::fs::write(s.path("web/header.json"), "{}").unwrap();
    s.with_pass(["cp", "-r", "web", "room"]);
    assert_eq!(s.with_pass(["cat", "room:/web/header.json"]), "{}");
}

#[test]
fn a_shared_file_system_is_no_room_and_the_hint_says_what_to_do() {
    let s = with_file();
    for args in [
        &["ls", "strongroom://10.0.0.1:7420/"][..],
        &["ls", "strongroom://10.0.0.1:7420/papers"],
        &["cp", "pass", "strongroom://10.0.0.1:7420/papers"],
        &["info", "strongroom://10.0.0.1:7420/"],
    ] {
        let err = s.fails(2, args);
        assert!(
            err.contains("strongroom mount strongroom://10.0.0.1:7420/ MOUNTPOINT --identity FILE"),
            "{err}"
        );
        assert!(!err.contains("strongroom create"), "{err}");
    }
    // A room may be called so.
    std::fs::rename(s.path("room"), s.path("strongroom")).unwrap();
    assert_eq!(s.with_pass(["ls", "strongroom://d"]), "f\n");
}

#[test]
fn suggested_commands_can_be_pasted() {
    let s = Sandbox::empty();
    std::fs::create_dir(s.path("my room")).unwrap();
    for (args, code, hint) in [
        (
            &["ls", "no room"][..],
            10,
            "no room: there is no room here; make one with: strongroom create 'no room'",
        ),
        (
            &["create", "no dir/room"],
            1,
            "no dir/room: no dir does not exist; make it first with: mkdir -p 'no dir'",
        ),
    ] {
        assert_eq!(s.fails(code, args), format!("strongroom: {hint}\n"));
    }
    s.ok(["create", "my room", "--passphrase-file", "pass"]
        .iter()
        .chain(&common::CHEAP));
    let err = s.fails(1, ["create", "my room"]);
    assert!(
        err.contains("strongroom mount 'my room' MOUNTPOINT"),
        "{err}"
    );
    if can_mount() {
        let ran = s.run(["mount", "my room", "my mount"]);
        assert!(ran.err.contains("mkdir 'my mount'"), "{}", ran.err);
    }
}

#[test]
fn a_store_may_have_a_certificate_of_an_authority_of_its_own() {
    with_a_store_over_tls(|s| {
        let known = |args: &[&str]| {
            let mut command = s.command(args);
            let done = command.env("AWS_CA_BUNDLE", s.path("certificates/ca.pem"));
            let ran: Ran = done.output().unwrap().into();
            assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        };
        let key = ["--passphrase-file", "pass", "--store-timeout", "5"];
        let create = |cache| [&["create", PLACE, "--cache", cache][..], &key, &CHEAP].concat();
        let refused = s.run(create("elsewhere"));
        assert_ne!(refused.code, 0);
        assert!(refused.err.contains("certificate"), "{}", refused.err);
        known(&create("room"));
        // What serves a mount is confined, and reads the file all the same.
        if can_mount() {
            known(&[&["mount", PLACE, "mnt", "--cache", "room"][..], &key].concat());
            std::fs::write(s.path("mnt/f"), "in").unwrap();
            known(&["umount", "mnt"]);
        }
        known(&[&["ls", PLACE, "--cache", "room"][..], &key].concat());
    });
}

#[test]
fn only_a_store_over_tls_needs_certificates_of_the_system() {
    let s = Sandbox::empty();
    let list = |endpoint| -> Ran {
        let mut command = s.command([
            "ls",
            PLACE,
            "--passphrase-file",
            "pass",
            "--store-timeout",
            "1",
        ]);
        command
            .env("AWS_ENDPOINT_URL", endpoint)
            .env("AWS_ACCESS_KEY_ID", "key")
            .env("AWS_SECRET_ACCESS_KEY", "secret")
            .env("SSL_CERT_FILE", "/dev/null")
            .env_remove("SSL_CERT_DIR")
            .env_remove("AWS_CA_BUNDLE");
        command.output().unwrap().into()
    };
    // Nobody listens there.
    let plain = list("http://127.0.0.1:9").err;
    assert!(plain.contains("127.0.0.1:9"), "{plain}");
    let tls = list("https://127.0.0.1:9").err;
    assert!(
        tls.contains("no CA certificates") && tls.contains("AWS_CA_BUNDLE"),
        "{tls}"
    );
}
