//! What `snapshot diff` finds.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{both_ways, json_lines, ok, open, put};
use crate::common::{Sandbox, noise};

#[test]
fn a_difference_has_every_name_once() {
    both_ways(|s| {
        fs::create_dir_all(s.path("t/dir/below")).unwrap();
        fs::create_dir_all(s.path("t/old")).unwrap();
        for (name, len) in [
            ("same", 10),
            ("longer", 20),
            ("gone", 30),
            ("renamed", 40),
            ("moved and changed", 50),
            ("mode", 60),
            ("dir/below/deep", 70),
            ("dir/inner", 80),
            ("old/out", 90),
        ] {
            fs::write(s.path("t").join(name), noise(len, len as u64)).unwrap();
        }
        ok(s, &["cp", "-r", "t", "room:/"]);
        ok(s, &["snapshot", "create", "room", "a"]);
        assert_eq!(ok(s, &["snapshot", "diff", "room", "a"]), "");
        let change = |args: &[&str]| {
            ok(s, args);
        };
        put(s, "/new", &noise(5, 1));
        // Another file under the same name.
        put(s, "/t/longer", &noise(25, 3));
        change(&["rm", "room:/t/gone"]);
        change(&["mv", "room:/t/renamed", "room:/t/other name"]);
        change(&["mkdir", "room:/t/new dir"]);
        change(&["mv", "room:/t/moved and changed", "room:/t/new dir/m"]);
        in_place(s, "/t/new dir/m", &noise(51, 9));
        change(&["mv", "room:/t/dir", "room:/t/new dir/dir"]);
        change(&["mv", "room:/t/old/out", "room:/t/out"]);
        change(&["rm", "-r", "room:/t/old"]);
        ok(s, &["snapshot", "create", "room", "b"]);
        change(&["rm", "room:/new"]);

        let expected = [
            ("added", "/new", "", None, Some(5)),
            ("changed", "/t/longer", "", Some(20), Some(25)),
            ("removed", "/t/gone", "", Some(30), None),
            ("added", "/t/new dir", "", None, None),
            ("renamed", "/t/new dir/dir", "/t/dir", None, None),
            (
                "renamed",
                "/t/new dir/m",
                "/t/moved and changed",
                Some(50),
                Some(51),
            ),
            ("changed", "/t/new dir/m", "", Some(50), Some(51)),
            ("removed", "/t/old", "", None, None),
            ("renamed", "/t/other name", "/t/renamed", Some(40), Some(40)),
            ("renamed", "/t/out", "/t/old/out", Some(90), Some(90)),
        ];
        let mut expected: Vec<_> = expected
            .iter()
            .map(|(what, path, from, before, after)| {
                (
                    (*what).to_owned(),
                    (*path).to_owned(),
                    (*from).to_owned(),
                    *before,
                    *after,
                )
            })
            .collect();
        expected.sort();
        let found = |args: &[&str]| {
            let mut found: Vec<_> = json_lines(&ok(s, args))
                .iter()
                .map(|change| {
                    let text = |key: &str| change[key].as_str().unwrap_or_default().to_owned();
                    (
                        text("change"),
                        text("path"),
                        text("from"),
                        change["bytes_before"].as_u64(),
                        change["bytes_after"].as_u64(),
                    )
                })
                .collect();
            found.sort();
            found
        };
        assert_eq!(
            found(&["snapshot", "diff", "room", "a", "b", "--json"]),
            expected
        );
        // Since: the same without what went again.
        expected.retain(|change| change.1 != "/new");
        assert_eq!(
            found(&["snapshot", "diff", "room", "a", "--json"]),
            expected
        );
        // And back.
        let back = found(&["snapshot", "diff", "room", "b", "a", "--json"]);
        assert!(back.contains(&(
            "renamed".into(),
            "/t/dir".into(),
            "/t/new dir/dir".into(),
            None,
            None
        )));

        let fields = ok(s, &["snapshot", "diff", "-0", "room", "b"]);
        assert_eq!(fields, "removed\x005\0\0/new\0");
        let text = ok(s, &["snapshot", "diff", "room", "b"]);
        assert!(
            text.starts_with("removed") && text.contains("/new"),
            "{text}"
        );
    });
}

/// Writes to a file of the room as it is, without another one in its place.
fn in_place(s: &Sandbox, path: &str, contents: &[u8]) {
    let mounted = s.path("mnt").join(path.trim_start_matches('/'));
    if s.is_mounted() {
        fs::write(mounted, contents).unwrap();
        return;
    }
    let room = open(s);
    room.write_file(path, contents).unwrap();
    room.close().unwrap();
}

#[test]
fn what_was_changed_and_got_its_time_back_is_found() {
    let Some(s) = Sandbox::mounted() else { return };
    let file = s.path("mnt/f");
    for name in ["f", "touched", "moded"] {
        fs::write(s.path("mnt").join(name), noise(5000, 1)).unwrap();
    }
    s.ok(["snapshot", "create", "room", "a"]);
    let meta = fs::metadata(&file).unwrap();
    let time = meta.modified().unwrap();
    fs::write(&file, noise(5000, 2)).unwrap();
    let open = |path: &Path| fs::File::options().write(true).open(path).unwrap();
    open(&file).set_modified(time).unwrap();
    // The same bytes and time are no change, whatever the change time says.
    let touched = s.path("mnt/touched");
    let time = fs::metadata(&touched).unwrap().modified().unwrap();
    open(&touched).set_modified(time).unwrap();
    fs::set_permissions(s.path("mnt/moded"), fs::Permissions::from_mode(0o600)).unwrap();
    let found: Vec<_> = json_lines(&s.ok(["snapshot", "diff", "room", "a", "--json"]))
        .iter()
        .map(|change| format!("{} {}", change["change"], change["path"]))
        .collect();
    assert_eq!(found, [r#""changed" "/f""#, r#""attributes" "/moded""#]);
}
