//! What `undelete` lists and brings back.

use std::fs;

use super::{both_ways, json_lines, names, ok, put};
use crate::common::{Sandbox, listing, make_tree, words};

fn listed(s: &Sandbox, args: &[&str]) -> Vec<(String, Vec<String>, u64, u64)> {
    let all = json_lines(&ok(s, &[&["undelete", "room", "--json"], args].concat()));
    let one = |value: &serde_json::Value| {
        let names = value["snapshots"].as_array().unwrap().iter();
        (
            value["path"].as_str().unwrap().to_owned(),
            names
                .map(|name| name.as_str().unwrap().to_owned())
                .collect(),
            value["files"].as_u64().unwrap(),
            value["bytes"].as_u64().unwrap(),
        )
    };
    all.iter().map(one).collect()
}

fn entry(
    path: &str,
    snapshots: &[&str],
    files: u64,
    bytes: u64,
) -> (String, Vec<String>, u64, u64) {
    let names = snapshots.iter().map(|name| (*name).to_owned());
    (path.to_owned(), names.collect(), files, bytes)
}

#[test]
fn what_was_removed_is_listed_and_its_newest_version_brought_back() {
    both_ways(|s| {
        assert_eq!(ok(s, &["undelete", "room"]), "");
        make_tree(&s.path("tree"));
        ok(s, &["cp", "-r", "tree", "room:/"]);
        put(s, "/letter", b"first");
        ok(s, &["snapshot", "create", "room", "monday"]);
        put(s, "/letter", b"second");
        ok(s, &["snapshot", "create", "room", "tuesday"]);
        assert_eq!(listed(s, &[]), []);
        ok(s, &["rm", "room:/letter"]);
        assert_eq!(
            listed(s, &[]),
            [entry("/letter", &["tuesday", "monday"], 1, 6)]
        );
        ok(s, &["snapshot", "create", "room", "wednesday"]);
        ok(s, &["rm", "-r", "room:/tree"]);
        let all = listed(s, &[]);
        assert_eq!(all.len(), 2, "{all:?}");
        assert_eq!(
            (all[1].0.as_str(), &all[1].1[..]),
            (
                "/tree",
                &["wednesday", "tuesday", "monday"].map(String::from)[..]
            )
        );
        // Of that moment on, so without the older ones.
        let since = listed(s, &["--since", "wednesday"]);
        assert_eq!(since, [entry("/tree", &["wednesday"], all[1].2, all[1].3)]);
        let text = ok(s, &["undelete", "room"]);
        assert!(text.contains("tuesday and 1 more  /letter\n"), "{text}");
        assert!(text.contains("wednesday and 2 more  /tree/  ("), "{text}");

        ok(s, &["undelete", "room", "/letter", "/tree"]);
        assert_eq!(ok(s, &["cat", "room:/letter"]), "second");
        ok(s, &["cp", "-r", "room:/tree", "back"]);
        assert_eq!(listing(&s.path("tree")), listing(&s.path("back")));
        assert_eq!(listed(s, &[]), []);
        // Nothing was replaced, so no snapshot was needed.
        assert_eq!(names(s), ["monday", "tuesday", "wednesday"]);
        fs::remove_dir_all(s.path("back")).unwrap();
    });
}

#[test]
fn what_is_there_is_never_replaced_and_what_no_snapshot_has_is_named() {
    both_ways(|s| {
        ok(s, &["mkdir", "-p", "room:/papers/old"]);
        put(s, "/papers/old/letter", b"then");
        ok(s, &["snapshot", "create", "room", "monday"]);
        ok(s, &["rm", "-r", "room:/papers"]);
        put(s, "/other", b"other");
        ok(s, &["mkdir", "room:/d"]);
        let refused = |args: &[&str]| s.fails(1, args);
        let said = refused(&["undelete", "room", "/papers/old/letter", "--to", "/other"]);
        assert!(said.contains("is there") && said.contains("--to"), "{said}");
        assert_eq!(ok(s, &["cat", "room:/other"]), "other");
        let said = refused(&["undelete", "room", "/papers/old/letter/"]);
        assert!(said.contains("not a directory"), "{said}");
        let said = refused(&["undelete", "room", "/papers/never"]);
        assert!(said.contains("no snapshot has it"), "{said}");
        let said = refused(&["undelete", "room", "--since", "sunday"]);
        assert!(said.contains("no snapshot sunday"), "{said}");
        refused(&["undelete", "room", "/papers", "--to", "/missing/papers"]);
        ok(s, &words("undelete room /papers/old/letter --to /d/letter"));
        assert_eq!(ok(s, &["cat", "room:/d/letter"]), "then");
        // The directories above it come back too.
        let done = json_lines(&ok(
            s,
            &["undelete", "room", "/papers/old/letter", "--json"],
        ));
        assert_eq!(
            (done[0]["snapshot"].as_str(), done[0]["bytes"].as_u64()),
            (Some("monday"), Some(4))
        );
        assert_eq!(ok(s, &["cat", "room:/papers/old/letter"]), "then");
        let said = refused(&["undelete", "room", "/papers/old/letter"]);
        assert!(said.contains("is there"), "{said}");
    });
}
