//! Directories into rooms.

use super::{import, nothing_is_left, state, taken_out};
use crate::common::{Sandbox, is_root, listing, make_tree, words};

#[test]
fn a_directory_comes_whole_and_again_only_what_is_new() {
    let s = Sandbox::with_room();
    make_tree(&s.path("tree"));
    let before = state(&s.path("tree"));
    let report = import(&s, &["tree", "room:/a/b"]);
    assert_eq!(report["different"], 0);
    assert_eq!(report["present"], 0);
    let out = taken_out(&s, "room:/a/b");
    assert_eq!(listing(&s.path("tree")), listing(&out));
    nothing_is_left(&out);
    assert_eq!(state(&s.path("tree")), before, "the source was changed");
    std::fs::write(s.path("tree/new"), "new").unwrap();
    let again = import(&s, &["tree", "room:/a/b"]);
    assert_eq!(again["bytes"], 3, "{again}");
    assert_eq!(again["present"], 9, "{again}");
    assert_eq!(
        listing(&s.path("tree")),
        listing(&taken_out(&s, "room:/a/b"))
    );
}

#[test]
fn a_directory_comes_into_a_mounted_room() {
    let s = Sandbox::with_room();
    make_tree(&s.path("tree"));
    if !s.mount() {
        return;
    }
    s.ok(["import", "tree", "room:/t"]);
    assert_eq!(listing(&s.path("tree")), listing(&s.path("mnt/t")));
    let again = s.ok(["import", "tree", "room:/t", "--json"]);
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["bytes"], 0, "{again}");
    s.umount();
    assert_eq!(listing(&s.path("tree")), listing(&taken_out(&s, "room:/t")));
}

#[test]
fn owners_devices_and_set_id_bits_are_kept_where_root_imports() {
    if !is_root() {
        return;
    }
    let s = Sandbox::with_room();
    let tree = s.path("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("theirs"), "x").unwrap();
    std::os::unix::fs::chown(tree.join("theirs"), Some(1234), Some(5678)).unwrap();
    std::fs::set_permissions(
        tree.join("theirs"),
        std::os::unix::fs::PermissionsExt::from_mode(0o6755),
    )
    .unwrap();
    let made = std::process::Command::new("mknod")
        .args(["null", "c", "1", "3"])
        .current_dir(&tree)
        .status();
    if !made.is_ok_and(|made| made.success()) {
        eprintln!("skipped: devices, which cannot be made here");
    }
    s.with_pass(["import", "tree", "room"]);
    assert_eq!(listing(&tree), listing(&taken_out(&s, "room:/")));
}

#[test]
fn what_the_room_has_of_its_own_is_not_replaced_unasked() {
    let s = Sandbox::with_room();
    make_tree(&s.path("tree"));
    std::fs::write(s.path("own"), "the room's own").unwrap();
    s.with_pass(["cp", "own", "room:/small"]);
    s.with_pass(["mkdir", "room:/sparse"]);
    let said = s.fails(1, ["import", "tree", "room"]);
    assert!(
        said.contains("small is there already and differs"),
        "{said}"
    );
    assert!(said.contains("/sparse is a directory"), "{said}");
    assert!(said.contains("2 files failed"), "{said}");
    assert_eq!(s.with_pass(["cat", "room:/small"]), "the room's own");
    // The others came.
    assert_eq!(s.with_pass(["cat", "room:/sub/link"]), "the room's own");
    s.with_pass(["rm", "-r", "room:/sparse"]);
    s.with_pass(["import", "tree", "room", "--overwrite"]);
    let out = taken_out(&s, "room:/");
    assert_eq!(listing(&s.path("tree")), listing(&out));
    nothing_is_left(&out);
}

#[test]
fn overwriting_finds_other_contents_of_the_same_size_and_time() {
    let s = Sandbox::with_room();
    std::fs::create_dir(s.path("tree")).unwrap();
    let write = |text: &str| {
        std::fs::write(s.path("tree/f"), text).unwrap();
        let file = std::fs::File::open(s.path("tree/f")).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000))
            .unwrap();
    };
    write("one");
    s.with_pass(["import", "tree", "room"]);
    write("two");
    // It looks the same, so it is not copied; the comparison finds it.
    let said = s.fails(1, ["import", "tree", "room"]);
    assert!(
        said.contains("room:/f: differs from its source: contents"),
        "{said}"
    );
    assert_eq!(s.with_pass(["cat", "room:/f"]), "one");
    s.with_pass(["import", "tree", "room", "--overwrite"]);
    assert_eq!(s.with_pass(["cat", "room:/f"]), "two");
}

#[test]
fn rooms_and_what_holds_the_room_are_no_sources() {
    let s = Sandbox::with_room();
    s.ok(words(
        "create other --passphrase-file pass --kdf-memory 8 --kdf-passes 1",
    ));
    assert!(s.fails(2, ["import", "other", "room"]).contains("cp -r"));
    assert!(s.fails(2, ["import", "other:/", "room"]).contains("cp -r"));
    let around = s.path("").display().to_string();
    assert!(
        s.fails(2, ["import", &around, "room"])
            .contains("holds the room itself")
    );
    s.fails(1, ["import", "nothing", "room"]);
    s.fails(10, ["import", "mnt", "nothing"]);
    s.fails(2, ["import", "room"]);
    assert!(
        s.fails(
            2,
            ["import", "mnt", "room", "--source-passphrase-file", "pass"]
        )
        .contains("needs no key")
    );
}
