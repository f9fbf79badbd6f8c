//! rsync and tar: what they copied into a room, they find there as they put it.

use std::path::Path;
use std::process::Command;

use super::common::{Sandbox, is_root, make_tree, noise, words};
use super::{done, mount_again, room_for, succeeded};

/// One of everything, and many small files besides.
fn make_source(s: &Sandbox) {
    let tree = s.path("tree");
    std::fs::create_dir(&tree).unwrap();
    make_tree(&tree);
    for dir in 0..10 {
        std::fs::create_dir(tree.join(format!("many-{dir}"))).unwrap();
        for file in 0..40 {
            let len = (file * 997 + dir * 131) % 20_000;
            std::fs::write(
                tree.join(format!("many-{dir}/{file}")),
                noise(len, (dir * 40 + file) as u64),
            )
            .unwrap();
        }
    }
}

/// What rsync would still do, comparing contents, links, attributes and lists.
fn left_to_do(s: &Sandbox, from: &str, to: &str) -> String {
    let args = [
        "-aHAXSc",
        "--numeric-ids",
        "--delete",
        "--dry-run",
        "--itemize-changes",
        from,
        to,
    ];
    done(&s.path(""), "rsync", args)
}

#[test]
fn rsync_has_nothing_to_do_after_a_round_trip() {
    let Some(s) = room_for(&["rsync"]) else {
        return;
    };
    make_source(&s);
    for (from, to) in [
        ("tree/", "mnt/copy/"),
        ("mnt/copy/", "mnt/second/"),
        ("mnt/second/", "back/"),
    ] {
        done(&s.path(""), "rsync", ["-aHAXS", "--numeric-ids", from, to]);
        assert_eq!(left_to_do(&s, from, to), "", "{from} to {to}");
    }
    mount_again(&s);
    for to in ["mnt/copy/", "mnt/second/", "back/"] {
        assert_eq!(left_to_do(&s, "tree/", to), "", "{to} after mounting again");
    }
    // The comparison sees a difference.
    std::fs::write(s.path("mnt/copy/small"), "a few sords\n").unwrap();
    assert!(left_to_do(&s, "tree/", "mnt/copy/").contains("small"));
    // And a copy over what is there changes just that.
    done(
        &s.path(""),
        "rsync",
        [
            "-aHAXSc",
            "--inplace",
            "--numeric-ids",
            "tree/",
            "mnt/copy/",
        ],
    );
    assert_eq!(left_to_do(&s, "tree/", "mnt/copy/"), "");
}

#[test]
fn tar_finds_no_difference_after_a_round_trip() {
    let Some(s) = room_for(&["tar"]) else { return };
    make_source(&s);
    let here = s.path("");
    let tar = |dir: &Path, args: &[&str]| {
        let mut command = Command::new("tar");
        command.args(words(
            "--xattrs --xattrs-include=* --acls --sparse --numeric-owner",
        ));
        if is_root() {
            command.arg("--same-owner");
        }
        succeeded(command.args(args).current_dir(dir))
    };
    tar(&here, &["-cf", "mnt/archive.tar", "-C", "tree", "."]);
    std::fs::create_dir(s.path("mnt/out")).unwrap();
    tar(&here, &["-xpf", "mnt/archive.tar", "-C", "mnt/out"]);
    mount_again(&s);
    // --compare says each difference and ends with 1.
    for place in ["tree", "mnt/out"] {
        assert_eq!(
            tar(&here, &["--compare", "-f", "mnt/archive.tar", "-C", place]),
            "",
            "{place}"
        );
    }
    std::fs::write(s.path("mnt/out/many-3/7"), "other").unwrap();
    let compared = Command::new("tar")
        .args(["--compare", "-f", "mnt/archive.tar", "-C", "mnt/out"])
        .current_dir(&here)
        .output()
        .unwrap();
    assert!(
        !compared.status.success(),
        "the comparison sees no difference"
    );
}
