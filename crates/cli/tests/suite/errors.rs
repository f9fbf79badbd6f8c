//! What people mistype and what goes wrong, each with its exact words and exit code.

use crate::common;
use crate::common::{CHEAP, Ran, Sandbox, can_mount};

/// Commands, each with its exit code and what it says. The room's passphrase is added.
const MISTAKES: &str = "
$ ls missing
10 missing: there is no room here; make one with: strongroom create missing
$ mount missing mnt
10 missing: there is no room here; make one with: strongroom create missing
$ ls plain
10 plain: not a room (no header.json); make one with `strongroom create` in a new directory
$ ls pass
10 pass: not a room, but a file; a room is a directory
$ ls missing:/x
10 missing: there is no room here; make one with: strongroom create missing
$ ls room:d
2 room:d: paths inside a room begin with a slash; did you mean room:/d ?
$ ls room /papers/x
2 /papers/x: not in a room; paths inside a room are written ROOM:/papers/x
$ cp pass plain
2 none of these is in a room: write ROOM:/path for the side that is; for ordinary files there is cp
$ rm room:/
2 room:/: the root of a room cannot be removed; name what is in it
$ create room
1 room: there is a room here already; mount it with: strongroom mount room MOUNTPOINT
$ create plain
1 plain: exists and is not empty; choose a new directory
$ create no/such/room
1 no/such/room: no/such does not exist; make it first with: mkdir -p no/such
$ ln plain/file room:/x
10 plain/file: not a room, but a file; a room is a directory
$ header backup room plain/file
1 plain/file: exists; a header backup is written to a new file
";

/// The same where a file of several fails: the first line.
const FAILURES: &str = "
$ cat room:/d
1 room:/d: is a directory
$ cat room:/none
1 room:/none: no such file or directory
$ rm room:/d
1 room:/d: is a directory; remove it with -r
$ cp room:/d out
1 room:/d: is a directory; copy it with -r
$ cp -r room:/d room:/d/e
1 room:/d: a directory cannot go into itself
$ mkdir room:/d
1 room:/d: a file of that name exists
$ mkdir room:/a/b
1 room:/a/b: no such file or directory
";

/// The same with keys that are wrong.
const WRONG_KEYS: &str = "
$ ls room --passphrase-file wrong
3 room: this passphrase does not open this room
$ ls room --passphrase-file none
1 none: no such file or directory
$ ls room --passphrase-file nothing
2 nothing: is empty
$ ls room --raw-key-file short
2 short: a raw key is 32 bytes, or 64 hexadecimal digits; this file has 9 bytes
";

#[test]
fn each_mistake_is_answered_with_what_to_type() {
    let s = Sandbox::with_room();
    std::fs::create_dir(s.path("plain")).unwrap();
    std::fs::write(s.path("plain/file"), "x").unwrap();
    std::fs::write(s.path("short"), "too short").unwrap();
    std::fs::write(s.path("nothing"), "").unwrap();
    s.with_pass(["mkdir", "room:/d"]);
    let with_pass =
        |args: Vec<&'static str>| s.run(args.into_iter().chain(["--passphrase-file", "pass"]));
    for (args, answer) in transcript(MISTAKES) {
        assert_eq!(answered(&with_pass(args)), format!("{answer}\n"));
    }
    for (args, answer) in transcript(FAILURES) {
        let said = answered(&with_pass(args));
        assert_eq!(said.lines().next(), Some(answer));
    }
    for (args, answer) in transcript(WRONG_KEYS) {
        assert_eq!(answered(&s.run(args)), format!("{answer}\n"));
    }
}

/// Commands, and what is answered to each.
fn transcript(text: &'static str) -> impl Iterator<Item = (Vec<&'static str>, &'static str)> {
    let pairs = text.split("\n$ ").skip(1);
    pairs.map(|pair| {
        let (command, answer) = pair.split_once('\n').unwrap();
        (command.split(' ').collect(), answer.trim_end())
    })
}

/// The exit code, and what went wrong.
fn answered(ran: &Ran) -> String {
    let words = ran.err.strip_prefix("strongroom: ").unwrap();
    format!("{} {words}", ran.code)
}

/// What failed: with `--json` a command line that cannot be understood, and settings that are wrong, were refused in text.
#[test]
fn a_refused_command_line_is_an_object_where_json_is_asked_for() {
    let s = Sandbox::empty();
    let serve = ["disk", "serve", "--config", "none", "--json"];
    for (args, why) in [
        (&["--json", "mount", "room"][..], "<MOUNTPOINT>"),
        (&["moutn", "--json"], "unrecognized subcommand 'moutn'"),
        (&serve, "the settings in none: "),
    ] {
        let ran = s.run(args);
        let object: serde_json::Value = serde_json::from_str(&ran.err).unwrap();
        assert_eq!((ran.code, &object["exit"]), (2, &2.into()), "{}", ran.err);
        let words = object["error"].as_str().unwrap();
        assert!(words.contains(why) && !words.contains("Usage"), "{words}");
    }
    assert_eq!(s.run(["--json", "--help"]).code, 0);
}

#[test]
fn an_invalid_command_line_gets_the_nearest_valid_one() {
    let s = Sandbox::empty();
    for (args, hint) in [
        (&["moutn", "a", "b"][..], "mount"),
        (
            &["create", "--pasphrase-file", "x", "room"],
            "--passphrase-file",
        ),
        (&["mount", "room"], "<MOUNTPOINT>"),
        (&["key", "lst", "room"], "list"),
        (
            &["ls", "room", "--identity", "a", "--key-file", "b"],
            "cannot be used with",
        ),
        (&["create", "room", "--kdf-memory", "1"], "8..=1024"),
        (&["mount", "room", "mnt", "--idle-timeout", "soon"], "90s"),
    ] {
        let ran = s.run(args);
        assert_eq!(
            (ran.code, ran.err.contains(hint)),
            (2, true),
            "{args:?}: {}",
            ran.err
        );
    }
    let nothing = s.run::<&str>([]);
    assert_eq!(
        (nothing.code, nothing.err.contains("First steps")),
        (2, true),
        "{}",
        nothing.err
    );
    assert_eq!(s.run(["--help"]).code, 0);
    assert_eq!(s.run(["--version"]).code, 0);
}

#[test]
fn failures_are_json_too_where_json_is_asked_for() {
    let s = Sandbox::with_room();
    let ran = s.run(["ls", "room", "--json", "--passphrase-file", "wrong"]);
    let value: serde_json::Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!(value["exit"], 3);
    assert_eq!(
        value["error"],
        "room: this passphrase does not open this room"
    );
}

#[test]
fn a_mountpoint_that_cannot_be_one_is_refused_before_the_passphrase() {
    let s = Sandbox::with_room();
    if !can_mount() {
        return;
    }
    std::fs::create_dir_all(s.path("full/inside")).unwrap();
    for (mountpoint, words) in [
        (
            "none",
            "none: there is no such directory to mount on; make it with: mkdir none",
        ),
        (
            "pass",
            "pass: not a directory; a room is mounted on an empty directory",
        ),
        (
            "full",
            "full: not empty, and what is in it would be hidden; choose an empty directory",
        ),
        (
            "room/segments",
            "room/segments: the mountpoint and the room's own directory must not contain each other",
        ),
    ] {
        let ran = s.run(["mount", "room", mountpoint]);
        assert_eq!((ran.code, ran.err), (12, format!("strongroom: {words}\n")));
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let s = Sandbox::with_room();
    std::fs::write(s.path("big"), common::noise(4 << 20, 1)).unwrap();
    s.with_pass(["cp", "big", "room:/big"]);
    let mut child = s
        .command(["cat", "room:/big", "--passphrase-file", "pass"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stderr, b"");
}

/// What failed: a copy whose target cannot be there blamed the source, another room's header the catalog, and any file was an
/// encrypted container.
#[test]
fn an_error_names_what_it_is_about() {
    let s = Sandbox::with_room();
    std::fs::create_dir(s.path("dir")).unwrap();
    s.with_pass(["cp", "pass", "room:/f"]);
    for (args, target) in [
        (&["cp", "pass", "room:/no/such"][..], "room:/no/such"),
        (&["cp", "-r", "dir", "room:/no/such"], "room:/no/such"),
        (&["cp", "room:/f", "room:/no/such"], "room:/no/such"),
        (&["cp", "room:/f", "no/such"], "no/such"),
        (&["mv", "pass", "room:/no/such"], "room:/no/such"),
        (&["mv", "room:/f", "room:/no/such"], "room:/no/such"),
        (&["mv", "room:/f", "no/such"], "no/such"),
    ] {
        assert_eq!(
            s.fails(1, args),
            format!("strongroom: {target}: no such file or directory\n"),
            "{args:?}"
        );
    }
    s.with_pass(["cp", "room:/f", "copy"]);

    s.ok(["create", "other", "--passphrase-file", "pass"]
        .iter()
        .chain(&CHEAP));
    s.with_pass(["header", "backup", "other", "theirs"]);
    s.with_pass(["header", "backup", "room", "old"]);
    s.with_pass(["rekey", "room"]);
    for backup in ["theirs", "old"] {
        assert_eq!(
            s.fails(1, ["header", "restore", "room", backup]),
            format!(
                "strongroom: {backup}: the catalog of room fails authentication with this header's key: it is the header of another \
                 room, or from before a rekey, or the catalog is damaged\n"
            )
        );
    }
    let refused = s.fails(1, ["header", "restore", "room", "pass"]);
    assert!(refused.starts_with("strongroom: pass: "), "{refused}");
    // The right one, of a room whose catalog is damaged.
    s.with_pass(["header", "backup", "room", "new"]);
    let catalog = std::fs::read(s.path("room/catalog.db")).unwrap();
    std::fs::write(s.path("room/catalog.db"), vec![0; catalog.len()]).unwrap();
    let damaged = s.fails(5, ["header", "restore", "room", "new"]);
    assert!(damaged.starts_with("strongroom: room: "), "{damaged}");
    std::fs::write(s.path("room/catalog.db"), catalog).unwrap();
    s.with_pass(["header", "restore", "room", "new"]);

    std::fs::write(s.path("text"), "no container\n".repeat(1000)).unwrap();
    for file in ["pass", "text"] {
        let name = s.path(file).canonicalize().unwrap();
        assert_eq!(
            s.fails(1, ["import", file, "room:/x"]),
            format!(
                "strongroom: {}: not a container of IOCipher or libsqlfs: it is neither SQLite nor encrypted\n",
                name.display()
            )
        );
    }
    std::fs::write(s.path("noise"), common::noise(100_000, 1)).unwrap();
    let unknown = s.fails(3, ["import", "noise", "room:/x"]);
    assert!(
        unknown.contains("if it is an encrypted container"),
        "{unknown}"
    );
}
