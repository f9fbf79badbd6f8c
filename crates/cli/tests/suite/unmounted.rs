//! Every command on a room that nobody has open, through the real program.

use crate::common;
use crate::common::{CHEAP, Sandbox, listing, make_tree, words};
use serde_json::Value;

#[test]
fn a_tree_copied_in_and_out_is_the_same_in_every_attribute() {
    let s = Sandbox::with_room();
    make_tree(&s.path("tree"));
    s.with_pass(["cp", "-r", "tree", "room:/"]);
    s.with_pass(["cp", "-a", "room:/tree", "out"]);
    assert_eq!(listing(&s.path("tree")), listing(&s.path("out")));
    // Holes stay holes, on both sides.
    let allocated =
        |path| std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(path).unwrap()) * 512;
    assert!(allocated(s.path("out/sparse")) < 1 << 20);
    let stat: Value =
        serde_json::from_str(&s.with_pass(["stat", "--json", "room:/tree/sparse"])).unwrap();
    assert_eq!(stat["size"], 100 << 20);
    assert!(stat["allocated"].as_u64().unwrap() < 1 << 20, "{stat}");
}

#[test]
fn the_commands_of_a_shell_do_what_they_do_there() {
    let s = Sandbox::with_room();
    std::fs::write(s.path("f"), "one\n").unwrap();
    s.with_pass(["mkdir", "-p", "room:/a/b", "room:/a/b"]);
    s.with_pass(["mkdir", "room:/c"]);
    s.with_pass(["cp", "f", "room:/a/b/"]);
    s.with_pass(["cp", "room:/a/b/f", "room:/c/g"]);
    s.with_pass(["ln", "room:/c/g", "room:/c/h"]);
    s.with_pass(["ln", "-s", "../c/g", "room:/a/s"]);
    assert_eq!(s.with_pass(["cat", "room:/a/s", "room:/c/h"]), "one\none\n");
    assert_eq!(s.with_pass(["ls", "room:"]), "a\nc\n");
    assert_eq!(
        s.with_pass(["ls", "room:/c", "room:/a"]),
        "/c:\ng\nh\n/a:\nb\ns\n"
    );
    assert_eq!(
        s.with_pass(["tree", "room"]),
        "/\n├── a\n│   ├── b\n│   │   └── f\n│   └── s -> ../c/g\n└── c\n    ├── g\n    └── h\n\n3 directories, 4 files\n"
    );
    s.with_pass(["mv", "room:/c/h", "room:/a/b/f"]);
    assert_eq!(
        s.with_pass(["ls", "-R", "room:/a"]),
        "/a:\nb\ns\n\n/a/b:\nf\n"
    );
    s.with_pass(["mv", "room:/a", "out"]);
    assert_eq!(std::fs::read_to_string(s.path("out/b/f")).unwrap(), "one\n");
    s.with_pass(["mv", "out/b", "room:/c/"]);
    assert!(!s.path("out/b").exists());
    assert_eq!(s.with_pass(["ls", "room:/c"]), "b\ng\n");
    s.with_pass(["rm", "-r", "room:/c"]);
    s.with_pass(["rm", "-f", "room:/c"]);
    assert_eq!(s.with_pass(["ls", "room:"]), "");
}

#[test]
fn a_replaced_file_is_replaced_whole_and_no_clobber_leaves_it() {
    let s = Sandbox::with_room();
    std::fs::write(s.path("long"), "a long first version").unwrap();
    std::fs::write(s.path("short"), "short").unwrap();
    s.with_pass(["cp", "long", "room:/f"]);
    s.with_pass(["cp", "-n", "short", "room:/f"]);
    assert_eq!(s.with_pass(["cat", "room:/f"]), "a long first version");
    s.with_pass(["cp", "short", "room:/f"]);
    assert_eq!(s.with_pass(["cat", "room:/f"]), "short");
    assert_eq!(s.with_pass(["ls", "-a", "room:"]), "f\n");
}

#[test]
fn reports_have_the_same_fields_every_time() {
    let s = Sandbox::with_room();
    std::fs::write(s.path("f"), vec![7; 10_000]).unwrap();
    s.with_pass(["cp", "f", "room:/f"]);
    let fields = |args: &[&str]| {
        let text = s.with_pass(args.iter().chain(&["--json"]));
        let value: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
            .join(" ")
    };
    let file = "accessed allocated born changed gid inode kind links mode modified name size uid";
    let with = |extra: &str| {
        let mut all: Vec<_> = file.split(' ').chain(extra.split(' ')).collect();
        all.sort_unstable();
        all.join(" ")
    };
    assert_eq!(fields(&["ls", "room:"]), with("directory"));
    assert_eq!(fields(&["tree", "room:"]), with("path"));
    assert_eq!(fields(&["stat", "room:/f"]), with("flags xattrs"));
    assert_eq!(fields(&["du", "room:"]), "bytes files path");
    assert_eq!(
        fields(&["df", "room"]),
        "available free inodes live reserved room snapshots stored total"
    );
    assert_eq!(
        fields(&["info", "room"]),
        "created format generation id key_epoch rekeying room segments slots snapshots space suite verified"
    );
    assert_eq!(fields(&["key", "list", "room"]), "slots verified");
    assert_eq!(fields(&["cp", "f", "room:/g"]), "bytes files");
    let snapshot = "automatic created exclusive name number";
    assert_eq!(fields(&["snapshot", "create", "room", "s"]), snapshot);
    assert_eq!(fields(&["snapshot", "list", "room"]), snapshot);
    assert_eq!(fields(&["snapshot", "show", "room", "s"]), snapshot);
    s.with_pass(["mv", "room:/g", "room:/h"]);
    assert_eq!(
        fields(&["snapshot", "diff", "room", "s"]),
        "bytes_after bytes_before change from kind path"
    );
    assert_eq!(
        fields(&["snapshot", "restore", "room", "s", "/g"]),
        "before bytes files"
    );
    assert_eq!(fields(&["snapshot", "policy", "show", "room"]), "policy");
    assert_eq!(fields(&["header", "backup", "room", "h"]), "bytes file");
}

#[test]
fn a_slot_of_two_factors_is_added_used_and_removed() {
    let s = Sandbox::with_room();
    std::fs::write(s.path("keyfile"), common::noise(5000, 3)).unwrap();
    std::fs::write(s.path("second"), "another long passphrase\n").unwrap();
    let new = words("--new-key-file keyfile --new-passphrase-file second");
    s.with_pass([&["key", "add", "room"], &new[..], &CHEAP].concat());
    let list: Value = serde_json::from_str(&s.ok(["key", "list", "room", "--json"])).unwrap();
    assert_eq!(list["slots"][1]["kind"], "passphrase-and-key-file");
    let both = ["--key-file", "keyfile", "--passphrase-file", "second"];
    assert_eq!(s.ok([&["ls", "room"], &both[..]].concat()), "");
    // Either one alone is a credential of another kind.
    for alone in [&both[..2], &both[2..]] {
        assert_eq!(s.run([&["ls", "room"], alone].concat()).code, 3);
    }
    let typed = ["ls", "room", "--key-file", "keyfile", "--ask-passphrase"];
    let ran = s.run_with_input(typed, b"another long passphrase\n");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(s.run_with_input(typed, b"another\n").code, 3);
    if common::can_mount() {
        let options = "key-file=keyfile,passphrase-file=second";
        s.ok(["mount", "room", "mnt", "-o", options]);
        // The keys of a mounted room are changed by its process, which is sent both.
        s.ok([&["key", "remove", "room", "0"], &both[..]].concat());
        s.umount();
    } else {
        s.ok([&["key", "remove", "room", "0"], &both[..]].concat());
    }
    s.fails(3, ["ls", "room"]);
    s.ok([&["rekey", "room"], &both[..]].concat());
    assert_eq!(s.ok([&["ls", "room"], &both[..]].concat()), "");
    let change = ["--new-passphrase-file", "pass"];
    s.ok([&["key", "change", "room"], &both[..], &change, &CHEAP].concat());
    assert_eq!(s.with_pass(["ls", "room"]), "");
    // A new room may need both from its beginning.
    let create = words("create new --key-file keyfile --passphrase-file second");
    s.ok([&create[..], &CHEAP].concat());
    assert_eq!(s.ok([&["ls", "new"], &both[..]].concat()), "");
}

#[test]
fn keys_are_added_changed_and_removed_and_the_last_one_stays() {
    let s = Sandbox::with_room();
    std::fs::write(s.path("raw"), [9; 32]).unwrap();
    std::fs::write(s.path("hex"), format!("{}\n", "09".repeat(32))).unwrap();
    std::fs::write(s.path("keyfile"), common::noise(5000, 3)).unwrap();
    std::fs::write(s.path("new"), "another long passphrase").unwrap();
    s.with_pass(words("key add room --new-raw-key-file raw --label robot"));
    s.with_pass(
        ["key", "add", "room", "--new-key-file", "keyfile"]
            .iter()
            .chain(&CHEAP),
    );
    assert_eq!(s.ok(["ls", "room", "--raw-key-file", "hex"]), "");
    assert_eq!(s.ok(["ls", "room", "--key-file", "keyfile"]), "");
    let list = s.ok(["key", "list", "room", "--json"]);
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list["verified"], false);
    let kinds: Vec<_> = list["slots"]
        .as_array()
        .unwrap()
        .iter()
        .map(|slot| slot["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["passphrase", "raw-key", "key-file"]);
    assert_eq!(list["slots"][1]["label"], "robot");

    s.with_pass(
        ["key", "change", "room", "--new-passphrase-file", "new"]
            .iter()
            .chain(&CHEAP),
    );
    assert_eq!(
        s.fails(3, ["ls", "room"]),
        "strongroom: room: this passphrase does not open this room\n"
    );
    // What failed: the slot that was opened with went without a word, also where the others' keys were lost long ago.
    let own = ["key", "remove", "room", "0", "--passphrase-file", "new"];
    for mounted in [false, true] {
        if mounted {
            if !common::can_mount() {
                break;
            }
            s.ok(["mount", "room", "mnt", "--passphrase-file", "new"]);
        }
        let refused = s.run(own);
        assert_eq!(refused.code, 1, "{}", refused.err);
        assert!(
            refused.err.ends_with(
                "room: key slot 0 is the one that was opened just now: give a credential that stays, so that it is \
                 sure the room still opens, or --force\n"
            ),
            "{}",
            refused.err
        );
        if mounted {
            s.umount();
        }
    }
    s.ok(["key", "remove", "room", "1", "--passphrase-file", "new"]);
    s.ok(["key", "remove", "room", "2", "--passphrase-file", "new"]);
    let last = s.run(own);
    assert_eq!(
        (last.code, last.err.contains("last one")),
        (1, true),
        "{}",
        last.err
    );
    assert_eq!(s.ok(["ls", "room", "--passphrase-file", "new"]), "");
}

#[test]
fn secrets_come_from_standard_input_a_line_each() {
    let s = Sandbox::empty();
    let created = s.run_with_input(["create", "room"].iter().chain(&CHEAP), b"first\nsecond\n");
    assert_eq!(created.code, 0, "{}", created.err);
    let changed = s.run_with_input(
        ["key", "change", "room"].iter().chain(&CHEAP),
        b"first\nsecond\n",
    );
    assert_eq!(changed.code, 0, "{}", changed.err);
    assert_eq!(
        s.run_with_input(["ls", "room", "--passphrase-file", "-"], b"second")
            .code,
        0
    );
    assert_eq!(s.run_with_input(["ls", "room"], b"first\n").code, 3);
    let nothing = s.run_with_input(["ls", "room"], b"");
    assert_eq!(
        (nothing.code, nothing.err.contains("--passphrase-file")),
        (2, true),
        "{}",
        nothing.err
    );
}

#[test]
fn a_header_is_backed_up_and_put_back() {
    let s = Sandbox::with_room();
    s.with_pass(["header", "backup", "room", "saved"]);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(s.path("saved")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    assert!(
        s.fails(1, ["header", "backup", "room", "saved"])
            .contains("exists")
    );
    for name in ["header.json", "header.backup.json"] {
        std::fs::write(s.path("room").join(name), "rubbish").unwrap();
    }
    let lost = s.fails(6, ["ls", "room"]);
    assert!(lost.contains("header restore"), "{lost}");
    s.with_pass(["header", "restore", "room", "saved"]);
    assert_eq!(s.with_pass(["ls", "room"]), "");
}

#[test]
fn completions_and_manual_pages_are_made_for_every_command() {
    let s = Sandbox::empty();
    for shell in ["bash", "zsh", "fish"] {
        assert!(s.ok(["completions", shell]).contains("umount"), "{shell}");
    }
    assert!(s.ok(["man"]).contains("strongroom"));
    s.ok(["man", "pages"]);
    for page in [
        "strongroom.1",
        "strongroom-mount.1",
        "strongroom-key-add.1",
        "strongroom-header-restore.1",
        "strongroom-serve-nbd.1",
        "strongroom-volume-key-add.1",
    ] {
        assert!(s.path("pages").join(page).exists(), "{page}");
    }
    assert!(!s.path("pages/strongroom-serve-mount.1").exists());
}

#[test]
fn age_and_ssh_recipients_open_the_room_with_their_identities() {
    use seal::age::secrecy::ExposeSecret;
    let s = Sandbox::empty();
    let identity = seal::age::x25519::Identity::generate();
    std::fs::write(s.path("id"), identity.to_string().expose_secret()).unwrap();
    let other = seal::age::x25519::Identity::generate();
    std::fs::write(s.path("other"), other.to_string().expose_secret()).unwrap();
    s.ok([
        "create",
        "room",
        "--recipient",
        &identity.to_public().to_string(),
    ]);
    std::fs::write(s.path("f"), "for one alone").unwrap();
    s.ok(["cp", "f", "room:/", "--identity", "id"]);
    assert_eq!(
        s.ok(["cat", "room:/f", "--identity", "id"]),
        "for one alone"
    );
    assert_eq!(s.run(["cat", "room:/f", "--identity", "other"]).code, 3);
    assert_eq!(s.run(["cat", "room:/f", "--identity", "f"]).code, 2);
    assert_eq!(
        s.run(["create", "second", "--recipient", "age1nonsense"])
            .code,
        2
    );
    let made = std::process::Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(s.path("ssh"))
        .status();
    if made.is_ok_and(|made| made.success()) {
        let public = std::fs::read_to_string(s.path("ssh.pub")).unwrap();
        s.ok([
            "key",
            "add",
            "room",
            "--identity",
            "id",
            "--new-recipient",
            public.trim(),
        ]);
        assert_eq!(
            s.ok(["cat", "room:/f", "--identity", "ssh"]),
            "for one alone"
        );
        let list = s.ok(["key", "list", "room", "--json"]);
        assert!(list.contains("ssh-ed25519"), "{list}");
    }
}
