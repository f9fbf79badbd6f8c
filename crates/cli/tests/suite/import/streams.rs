//! Tar streams in and out, with GNU tar on the other side.

use std::process::Command;

use super::{nothing_is_left, state, taken_out};
use crate::common::{Sandbox, listing, make_tree, words};

const ALL: [&str; 4] = ["--xattrs", "--xattrs-include=*", "--acls", "--sparse"];

fn tar(s: &Sandbox, args: &[&str]) -> Vec<u8> {
    let done = Command::new("tar")
        .args(args)
        .current_dir(s.path(""))
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "tar {args:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    done.stdout
}

#[test]
fn a_tree_goes_through_gnu_tar_both_ways_and_is_the_same() {
    let s = Sandbox::with_room();
    make_tree(&s.path("tree"));
    let deep = s.path("tree").join("d".repeat(90)).join("e".repeat(200));
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("f"), "deep").unwrap();
    let before = state(&s.path("tree"));
    for format in ["gnu", "posix"] {
        let format_word = format!("--format={format}");
        let mut args = vec!["-cf", "t.tar", "-C", "tree", &format_word];
        // GNU's own format has no attributes.
        if format == "posix" {
            args.extend(ALL);
        } else {
            args.push("--sparse");
        }
        args.push(".");
        tar(&s, &args);
        let target = format!("room:/{format}");
        s.with_pass(["import", "--tar", "t.tar", &target]);
        if format == "posix" {
            assert_eq!(listing(&s.path("tree")), listing(&taken_out(&s, &target)));
        } else {
            let cat = s.with_pass([
                "cat",
                &format!("{target}/{}/{}/f", "d".repeat(90), "e".repeat(200)),
            ]);
            assert_eq!(cat, "deep");
        }
        let stat = s.with_pass(["stat", "--json", &format!("{target}/sparse")]);
        let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
        assert_eq!(stat["size"], 100 << 20);
        assert!(stat["allocated"].as_u64().unwrap() < 1 << 20, "{stat}");
    }
    nothing_is_left(&s.path("taken out"));
    assert_eq!(state(&s.path("tree")), before);
    // And out.
    s.with_pass(["export", "room:/posix", "--tar", "out.tar"]);
    std::fs::create_dir(s.path("back")).unwrap();
    let mut args = vec!["-xpf", "out.tar", "-C", "back"];
    args.extend(ALL);
    tar(&s, &args);
    assert_eq!(listing(&s.path("tree")), listing(&s.path("back")));
    let len = std::fs::metadata(s.path("out.tar")).unwrap().len();
    assert!(len < 5 << 20, "holes were written out: {len} bytes");
    // Nothing is replaced unasked, and what fails leaves nothing behind.
    s.fails(1, ["export", "room", "--tar", "out.tar"]);
    s.fails(1, ["export", "room:/nothing", "--tar", "other.tar"]);
    assert!(!s.path("other.tar").exists() && !s.path("other.tar.part").exists());
}

#[test]
fn our_own_stream_comes_back_the_same_through_pipes() {
    let s = Sandbox::with_room();
    make_tree(&s.path("tree"));
    s.with_pass(["import", "tree", "room:/a"]);
    let out = s.run(words("export room:/a --tar - --passphrase-file pass"));
    assert_eq!(out.code, 0, "{}", out.err);
    let ran = s.run_with_input(
        words("import --tar - room:/b --passphrase-file pass"),
        &out.out,
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(listing(&s.path("tree")), listing(&taken_out(&s, "room:/b")));
    // One file has its own name in the stream.
    let one = s.run(words(
        "export room:/a/sub/large --tar - --passphrase-file pass",
    ));
    std::fs::write(s.path("one.tar"), one.out).unwrap();
    assert_eq!(tar(&s, &["-tf", "one.tar"]), b"large\n");
}

#[test]
fn streams_go_into_and_out_of_a_mounted_room() {
    let s = Sandbox::with_room();
    make_tree(&s.path("tree"));
    if !s.mount() {
        return;
    }
    let mut args = vec!["-cf", "t.tar", "-C", "tree", "--format=posix"];
    args.extend(ALL);
    args.push(".");
    tar(&s, &args);
    s.ok(["import", "--tar", "t.tar", "room:/t"]);
    assert_eq!(listing(&s.path("tree")), listing(&s.path("mnt/t")));
    let out = s.run(["export", "room:/t", "--tar", "-"]);
    std::fs::write(s.path("out.tar"), out.out).unwrap();
    std::fs::create_dir(s.path("back")).unwrap();
    let mut args = vec!["-xpf", "out.tar", "-C", "back"];
    args.extend(ALL);
    tar(&s, &args);
    assert_eq!(listing(&s.path("tree")), listing(&s.path("back")));
    s.umount();
}

/// A stream of files and links with just these names: no program would write it.
fn hostile(members: &[(&str, u8, &str, &str)]) -> Vec<u8> {
    let mut stream = Vec::new();
    for (name, kind, target, data) in members {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..108].copy_from_slice(b"0000644\0");
        header[108..124].copy_from_slice(b"0000000\x000000000\0");
        header[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
        header[136..148].copy_from_slice(b"00000000001\0");
        header[156] = *kind;
        header[157..157 + target.len()].copy_from_slice(target.as_bytes());
        header[257..265].copy_from_slice(b"ustar\x0000");
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        stream.extend_from_slice(&header);
        stream.extend_from_slice(data.as_bytes());
        stream.resize(stream.len().next_multiple_of(512), 0);
    }
    stream.resize(stream.len() + 1024, 0);
    stream
}

#[test]
fn no_member_leads_out_of_where_it_is_put() {
    let s = Sandbox::with_room();
    s.with_pass(["mkdir", "room:/outside"]);
    let stream = hostile(&[
        ("/absolute", b'0', "", "a"),
        ("../../up", b'0', "", "b"),
        ("x/../y", b'0', "", "c"),
        ("away", b'2', "/outside", ""),
        ("away/evil", b'0', "", "evil"),
        ("upward", b'2', "../outside", ""),
        ("upward/evil", b'0', "", "evil"),
        ("hard", b'1', "away", ""),
        ("hard/evil", b'0', "", "evil"),
        ("in", b'5', "", ""),
        ("door", b'2', "in", ""),
        ("door/through", b'0', "", "d"),
        ("twice", b'0', "", "first"),
        ("twice", b'0', "", "second one"),
        ("lost", b'1', "nowhere", ""),
        ("odd", b'Q', "", "data"),
        ("after", b'0', "", "e"),
    ]);
    for round in 0..2 {
        let ran = s.run_with_input(
            words("import --tar - room:/in/here --passphrase-file pass"),
            &stream,
        );
        // Five members are left out by name.
        assert_eq!(ran.code, 1, "{}", ran.err);
        assert_eq!(
            ran.err.matches("left out").count(),
            5,
            "round {round}: {}",
            ran.err
        );
        assert_eq!(s.with_pass(["ls", "room:/outside"]), "");
        assert_eq!(s.with_pass(["ls", "room:/"]), "in\noutside\n");
        assert_eq!(
            s.with_pass(["ls", "room:/in/here"]),
            "absolute\nafter\naway\ndoor\nhard\nin\ntwice\nup\nupward\ny\n"
        );
        assert_eq!(s.with_pass(["cat", "room:/in/here/in/through"]), "d");
        assert_eq!(s.with_pass(["cat", "room:/in/here/twice"]), "second one");
    }
}

#[test]
fn a_stream_that_is_none_is_refused_with_the_next_step() {
    let s = Sandbox::with_room();
    let import = |input: &[u8]| {
        s.run_with_input(
            ["import", "--tar", "-", "room", "--passphrase-file", "pass"],
            input,
        )
    };
    let ran = import(b"\x1f\x8b\x08 and so on");
    assert_eq!(ran.code, 5);
    // It looks like gzip, and is decompressed as such.
    assert!(ran.err.contains("gzip ended with"), "{}", ran.err);
    assert_eq!(import(b"").code, 5);
    assert_eq!(import(&[b'x'; 2000]).code, 5);
    let whole = hostile(&[("a", b'0', "", "one"), ("b", b'0', "", "two")]);
    let ran = import(&whole[..1024 + 600]);
    assert_eq!(ran.code, 5, "{}", ran.err);
    assert!(ran.err.contains("cut short"), "{}", ran.err);
    assert_eq!(s.with_pass(["ls", "room:/"]), "a\nb\n");
    assert_eq!(import(&whole).code, 0);
    let followed = import(&[&whole[..], &whole].concat());
    assert_eq!(followed.code, 1, "{}", followed.err);
    assert!(followed.err.contains("were left out"), "{}", followed.err);
    // Two things cannot come from standard input.
    let both = s.run_with_input(
        ["import", "--tar", "-", "room", "--passphrase-file", "-"],
        b"",
    );
    assert_eq!(both.code, 2, "{}", both.err);
    let both = s.run_with_input(["import", "--tar", "-", "room"], b"");
    assert_eq!(both.code, 2, "{}", both.err);
    std::fs::write(s.path("t.tar"), &whole).unwrap();
    assert!(s.fails(2, ["import", "t.tar", "room"]).contains("--tar"));
    s.fails(
        2,
        words("import --tar t.tar room --source-passphrase-file pass"),
    );
}
