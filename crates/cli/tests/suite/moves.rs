//! `mv` and `cp`: nothing is replaced that was just copied, and nothing is removed that was not.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use crate::common::{CHEAP, Sandbox, can_mount};

fn put(s: &Sandbox, path: &str, contents: &str) {
    fs::write(s.path("new"), contents).unwrap();
    s.with_pass(["cp", "new", &format!("room:{path}")]);
}

/// Files `f` with other contents in two directories of a room.
fn two_of_one_name() -> Sandbox {
    let s = Sandbox::with_room();
    s.with_pass(["mkdir", "room:/x", "room:/y", "room:/z"]);
    put(&s, "/x/f", "of x");
    put(&s, "/y/f", "of y");
    s
}

#[test]
fn of_two_sources_with_one_name_the_second_stays() {
    for to in ["out", "room:/z", "other:/"] {
        let s = two_of_one_name();
        fs::create_dir(s.path("out")).unwrap();
        s.with_pass(["create", "other"].iter().chain(&CHEAP));
        let err = s.fails(1, ["mv", "room:/x/f", "room:/y/f", to]);
        assert!(err.contains("another of the sources"), "{err}");
        assert_eq!(s.with_pass(["cat", "room:/y/f"]), "of y");
        let moved = match to {
            "out" => fs::read_to_string(s.path("out/f")).unwrap(),
            to => s.with_pass(["cat", &format!("{}/f", to.trim_end_matches('/'))]),
        };
        assert_eq!(moved, "of x");
        assert_eq!(s.with_pass(["ls", "room:/x"]), "");
    }
}

#[test]
fn directories_with_one_name_are_merged_but_for_files_with_one_name() {
    let s = two_of_one_name();
    s.with_pass(["mkdir", "room:/x/d", "room:/y/d"]);
    for path in ["/x/d/f", "/y/d/f", "/y/d/g"] {
        put(&s, path, path);
    }
    fs::create_dir(s.path("out")).unwrap();
    let args = ["mv", "room:/x/d", "room:/y/d", "out"];
    s.fails(1, args);
    let read = |path: &str| fs::read_to_string(s.path(path)).unwrap();
    assert_eq!(
        (read("out/d/f"), read("out/d/g")),
        ("/x/d/f".into(), "/y/d/g".into())
    );
    // All of a source goes, or nothing.
    assert_eq!(
        s.with_pass(["ls", "-R", "room:/x", "room:/y/d"])
            .matches('f')
            .count(),
        2
    );
    assert_eq!(s.with_pass(["cat", "room:/y/d/f"]), "/y/d/f");
}

#[test]
fn a_file_that_is_named_in_two_ways_is_known_as_one() {
    let s = two_of_one_name();
    if !s.mount() {
        return;
    }
    for (from, to) in [
        ("room:/x", "mnt/"),
        ("mnt/x", "room:/"),
        ("mnt/x/f", "room:/x/f"),
        ("room:/x/f", "mnt/x"),
    ] {
        let err = s.fails(1, ["mv", from, to]);
        assert!(err.contains("are the same file"), "{err}");
        assert_eq!(fs::read_to_string(s.path("mnt/x/f")).unwrap(), "of x");
    }
    // Into itself, by a path that does not show it.
    fs::create_dir(s.path("mnt/x/below")).unwrap();
    symlink("x/below", s.path("mnt/link")).unwrap();
    for (from, to) in [
        ("room:/x", "mnt/link"),
        ("mnt/x", "room:/link"),
        ("room:/x", "room:/link"),
    ] {
        let err = s.fails(1, ["cp", "-r", from, to]);
        assert!(err.contains("a directory cannot go into itself"), "{err}");
        fs::remove_dir_all(s.path("mnt/x/below/x")).unwrap();
    }
    // Another name of a file is no reason not to move it.
    fs::hard_link(s.path("mnt/x/f"), s.path("mnt/x/g")).unwrap();
    s.ok(["mv", "room:/x/f", "mnt/x/g"]);
    assert_eq!(fs::read_to_string(s.path("mnt/x/g")).unwrap(), "of x");
}

#[test]
fn a_directory_does_not_go_into_a_room_that_it_holds() {
    let s = Sandbox::with_room();
    fs::create_dir(s.path("docs")).unwrap();
    fs::write(s.path("docs/letter"), "dear").unwrap();
    fs::rename(s.path("room"), s.path("docs/room")).unwrap();
    for command in [&["mv"][..], &["cp", "-r"]] {
        let args = ["docs", "docs/room:/"];
        let err = s.fails(1, command.iter().chain(&args));
        assert!(err.contains("holds the room itself"), "{err}");
    }
    assert_eq!(s.with_pass(["ls", "docs/room:/"]), "");
    s.with_pass(["mv", "docs/letter", "docs/room:/"]);
    assert_eq!(s.with_pass(["cat", "docs/room:/letter"]), "dear");
}

#[test]
fn files_that_do_not_know_their_size_are_copied() {
    let s = Sandbox::with_room();
    s.with_pass(["cp", "/proc/version", "room:/v"]);
    let version = fs::read_to_string("/proc/version").unwrap();
    assert_eq!(s.with_pass(["cat", "room:/v"]), version);
}

/// Puts into `tree` what has more than contents to lose.
fn make(tree: &Path) {
    fs::create_dir_all(tree.join("empty")).unwrap();
    fs::write(tree.join("a"), "linked").unwrap();
    fs::hard_link(tree.join("a"), tree.join("b")).unwrap();
    symlink("a", tree.join("soft")).unwrap();
    fs::write(tree.join("replaced"), "new").unwrap();
}

#[test]
fn what_was_moved_out_of_a_room_is_durable_before_it_goes_there() {
    if !can_mount() {
        return;
    }
    // The place outside is a file system whose end can be sudden: another room.
    let (from, to) = (Sandbox::with_room(), Sandbox::with_room());
    make(&from.path("d"));
    from.with_pass(["cp", "-r", "d", "room:/"]);
    assert!(to.mount());
    fs::create_dir(to.path("mnt/d")).unwrap();
    fs::write(to.path("mnt/d/replaced"), "old").unwrap();
    to.ok(["sync", "room"]);
    let out = to.path("mnt");
    from.with_pass(["mv", "room:/d", out.to_str().unwrap()]);
    assert_eq!(from.with_pass(["ls", "room:/"]), "");

    let pid = rustix::process::Pid::from_raw(to.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    to.mount_after_kill();
    let d = to.path("mnt/d");
    assert!(d.join("empty").is_dir());
    let number = |name: &str| fs::metadata(d.join(name)).unwrap().ino();
    assert_eq!((number("a"), number("soft")), (number("b"), number("a")));
    assert_eq!(fs::read_to_string(d.join("a")).unwrap(), "linked");
    assert_eq!(fs::read_to_string(d.join("replaced")).unwrap(), "new");
    assert_eq!(fs::read_dir(&d).unwrap().count(), 5);
}

#[test]
fn a_file_beside_the_target_of_an_export_is_not_touched() {
    let s = two_of_one_name();
    fs::write(s.path("w.tar.part"), "keep").unwrap();
    s.with_pass(["export", "room", "--tar", "w.tar"]);
    assert_eq!(fs::read_to_string(s.path("w.tar.part")).unwrap(), "keep");
    assert_eq!(fs::metadata(s.path("w.tar")).unwrap().mode() & 0o777, 0o600);
    s.fails(1, ["export", "room", "--tar", "w.tar"]);
    s.with_pass(["export", "room", "--tar", "w.tar", "--force"]);
    assert_eq!(fs::read_to_string(s.path("w.tar.part")).unwrap(), "keep");
}

#[test]
fn an_import_that_cannot_make_its_file_removes_nobody_elses() {
    let s = Sandbox::with_room();
    put(&s, "/f", "old");
    put(&s, "/.strongroom-import", "somebody's own");
    fs::create_dir(s.path("src")).unwrap();
    fs::write(s.path("src/f"), "newer").unwrap();
    let tar = std::process::Command::new("tar")
        .args(["-C", "src", "-cf", "src.tar", "f"])
        .current_dir(s.path("src").parent().unwrap())
        .status();
    assert!(tar.unwrap().success());
    for source in [&["src"][..], &["--tar", "src.tar"]] {
        let args = ["import", "--overwrite"].iter().chain(source);
        s.fails(1, args.chain(&["room:/"]));
        let both = s.with_pass(["cat", "room:/f", "room:/.strongroom-import"]);
        assert_eq!(both, "oldsomebody's own", "{source:?}");
    }
}
