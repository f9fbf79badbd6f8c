//! Containers of every version, block size and kind of key; hostile ones; and those that the original library made.
#![allow(missing_docs)]

mod common;

use std::path::Path;

use common::{Kind, PASSPHRASE, bytes, everything};
use import::{Container, EntryKind, Error, Format, Key};
use sha2::{Digest, Sha256};

fn split(path: &str) -> Vec<&[u8]> {
    path.split('/')
        .filter(|part| !part.is_empty())
        .map(str::as_bytes)
        .collect()
}

fn entry<'c>(container: &'c Container, path: &str) -> &'c import::Entry {
    container
        .get(split(path))
        .unwrap_or_else(|| panic!("{path} is not there"))
}

/// Reads as a copy does: what has data, the rest being zeros. Pieces of an odd length.
fn contents(container: &Container, path: &str) -> import::Result<Vec<u8>> {
    let entry = entry(container, path);
    let EntryKind::File { size, .. } = entry.kind else {
        panic!("{path} is no file")
    };
    let mut all = vec![0; size as usize];
    let mut at = 0;
    while let Some((start, end)) = container.next_data(entry, at)? {
        at = start;
        while at < end {
            let len = (end - at).min(77_777) as usize;
            let n = container.read_at(entry, &mut all[at as usize..at as usize + len], at)?;
            assert_eq!(n, len);
            at += len as u64;
        }
    }
    let mut whole = vec![1; size as usize + 10];
    assert_eq!(container.read_at(entry, &mut whole, 0)?, size as usize);
    assert_eq!(whole[..size as usize], all, "{path}: holes are not zeros");
    Ok(all)
}

fn fill(kind: Kind, path: &Path) -> common::Writer {
    let w = kind.make(path);
    w.dir("/a");
    w.dir("/a/b c");
    for (n, size) in sizes(kind.block).into_iter().enumerate() {
        w.file(format!("/a/f{n}").as_bytes(), &bytes(size));
    }
    w.file(b"/a[1]", b"brackets");
    w.file(b"/a1", b"one");
    w.file(b"/caf\xC3\xA9 \xED\xA0\xBD\xED\xB8\x80", b"emoji");
    w.file(b"/bytes \xFF\xFE", b"no text");
    w.link("/l", "a/b c");
    w.sparse(
        "/gap",
        &[0, 3, 9],
        10 * kind.block as i64 - kind.block as i64 / 2,
    );
    w.sparse("/all hole", &[], 1 << 40);
    w
}

fn sizes(block: u64) -> Vec<usize> {
    let block = block as usize;
    let mut sizes = vec![0, 1, 100];
    for n in 1..=4 {
        sizes.extend([n * block - 1, n * block, n * block + 1]);
    }
    sizes
}

fn check(kind: Kind, container: &Container) {
    assert!(
        container.left_out().is_empty(),
        "{:?}",
        container.left_out()
    );
    for (n, size) in sizes(kind.block).into_iter().enumerate() {
        assert!(
            contents(container, &format!("/a/f{n}")).unwrap() == bytes(size),
            "{kind:?} {size}"
        );
    }
    assert_eq!(contents(container, "/a[1]").unwrap(), b"brackets");
    assert_eq!(contents(container, "/a1").unwrap(), b"one");
    assert_eq!(contents(container, "/café 😀").unwrap(), b"emoji");
    let odd = container.get([b"bytes \xFF\xFE".as_slice()]).unwrap();
    assert_eq!(
        odd.kind,
        EntryKind::File {
            size: 7,
            block: kind.block
        }
    );
    assert_eq!(
        entry(container, "/l").kind,
        EntryKind::Symlink(b"a/b c".to_vec())
    );
    let gap = contents(container, "/gap").unwrap();
    let block = kind.block as usize;
    assert_eq!(gap[..block], vec![1; block]);
    assert_eq!(gap[block..3 * block], vec![0; 2 * block]);
    assert_eq!(gap[9 * block..], vec![10; block / 2]);
    let hole = entry(container, "/all hole");
    assert_eq!(
        hole.kind,
        EntryKind::File {
            size: 1 << 40,
            block: kind.block
        }
    );
    assert_eq!(container.next_data(hole, 0).unwrap(), None);
    let a = entry(container, "/a/f2");
    assert_eq!(
        (a.mode, a.atime, a.mtime),
        (Some(0o640), 1_700_000_001, 1_700_000_002)
    );
    let names: Vec<_> = container.list([]).unwrap().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            b"a".as_slice(),
            b"a1",
            b"a[1]",
            b"all hole",
            b"bytes \xFF\xFE",
            "café 😀".as_bytes(),
            b"gap",
            b"l"
        ]
    );
}

#[test]
fn every_version_block_size_and_kind_of_key_opens_and_nothing_is_changed() {
    for kind in Kind::all() {
        // Closed in order; with all in the log, as an app that was killed leaves it, beside it an index of the log; without one.
        let states = [
            ("log", &["", "-wal"][..]),
            ("log and index", &["", "-wal", "-shm"]),
            ("closed", &[""]),
        ];
        // Deriving a key from a passphrase takes most of the time, and the layout of the files does not depend on it.
        let count = if kind.version > 0 && !kind.raw { 1 } else { 3 };
        for (state, keep) in states.into_iter().take(count) {
            let dir = tempfile::tempdir().unwrap();
            let made = dir.path().join("made");
            let at = dir.path().join("it's a 100% container?.db");
            let writer = fill(kind, &made);
            if state == "closed" {
                drop(writer);
            }
            for suffix in keep {
                std::fs::copy(
                    format!("{}{suffix}", made.display()),
                    format!("{}{suffix}", at.display()),
                )
                .unwrap();
            }
            let before = everything(dir.path());
            let container = Container::open(&at, &kind.key())
                .unwrap_or_else(|e| panic!("{kind:?} {state}: {e}"));
            let expected = match (kind.version, kind.block) {
                (0, _) => Format::Plain,
                // With a raw key they differ in nothing.
                (2, block) if kind.raw => Format::SqlCipher {
                    version: 3,
                    page: (block == 8192).then_some(8192),
                },
                (version, 8192) => Format::SqlCipher {
                    version,
                    page: Some(8192),
                },
                (version, _) => Format::SqlCipher {
                    version,
                    page: None,
                },
            };
            assert_eq!(container.format(), expected, "{kind:?} {state}");
            check(kind, &container);
            assert_eq!(
                everything(dir.path()),
                before,
                "{kind:?} {state}: while open"
            );
            container.unchanged().unwrap();
            drop(container);
            assert_eq!(everything(dir.path()), before, "{kind:?} {state}: after");
            if state == "log" && kind.raw && kind.version == 3 {
                std::fs::remove_file(format!("{}-wal", at.display())).unwrap();
                // What the log held is missing then: it was read.
                let without = Container::open(&at, &kind.key());
                assert!(!without.is_ok_and(|c| c.count() > 0), "{kind:?}");
            }
        }
    }
}

#[test]
fn a_container_that_is_written_to_meanwhile_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let kind = Kind::all()[2];
    let at = dir.path().join("c");
    let writer = fill(kind, &at);
    let container = Container::open(&at, &kind.key()).unwrap();
    container.unchanged().unwrap();
    writer.file(b"/new", b"x");
    assert!(matches!(container.unchanged(), Err(Error::Changed { .. })));
}

#[test]
fn a_transaction_that_a_crash_cut_short_is_undone_in_a_copy() {
    let dir = tempfile::tempdir().unwrap();
    let kind = Kind {
        version: 3,
        block: 8192,
        raw: false,
    };
    let made = dir.path().join("made");
    let writer = fill(kind, &made);
    let mode: String = writer
        .connection
        .query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "delete");
    // So small a cache that the transaction goes to the file before it ends.
    writer
        .connection
        .execute_batch("PRAGMA cache_size = 2; BEGIN")
        .unwrap();
    for n in 0..50 {
        writer.file(format!("/half {n}").as_bytes(), &bytes(20_000));
    }
    let at = dir.path().join("c");
    for suffix in ["", "-journal"] {
        std::fs::copy(
            format!("{}{suffix}", made.display()),
            format!("{}{suffix}", at.display()),
        )
        .unwrap();
    }
    assert!(
        std::fs::metadata(dir.path().join("c-journal"))
            .unwrap()
            .len()
            > 512
    );
    let before = everything(dir.path());
    let container = Container::open(&at, &kind.key()).unwrap();
    check(kind, &container);
    drop(container);
    assert_eq!(everything(dir.path()), before);
}

/// SQLite, run by root, changes a log's owner to the database's owner: an import of another user's container changed it so.
#[test]
fn a_log_of_another_owner_keeps_it() {
    use std::os::unix::fs::{MetadataExt, chown};
    let dir = tempfile::tempdir().unwrap();
    let kind = plain();
    let (made, at) = (dir.path().join("made"), dir.path().join("c"));
    let _writer = fill(kind, &made);
    for suffix in ["", "-wal"] {
        let to = format!("{}{suffix}", at.display());
        std::fs::copy(format!("{}{suffix}", made.display()), to).unwrap();
    }
    let log = dir.path().join("c-wal");
    if let Err(e) = chown(&log, Some(1234), Some(1234)) {
        println!("left out: only root gives files away, and only root's SQLite does: {e}");
        return;
    }
    let container = Container::open(&at, &kind.key()).unwrap();
    check(kind, &container);
    drop(container);
    let meta = std::fs::metadata(&log).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (1234, 1234));
}

#[test]
fn a_wrong_key_says_which_versions_were_tried() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("c");
    drop(fill(
        Kind {
            version: 4,
            block: 8192,
            raw: false,
        },
        &at,
    ));
    let wrong = Key::Passphrase(b"wrong".to_vec().into());
    let words = Container::open(&at, &wrong).unwrap_err().to_string();
    assert!(words.contains("SQLCipher 4, 3 and 2"), "{words}");
    assert!(words.contains("passphrase"), "{words}");
    let raw = Key::Raw(zeroize::Zeroizing::new([7; 32]));
    assert!(matches!(
        Container::open(&at, &raw),
        Err(Error::WrongKey {
            kind: "raw key",
            ..
        })
    ));
    assert!(matches!(
        Container::open(&at, &Key::None),
        Err(Error::NeedsKey { .. })
    ));
    assert!(Container::open(&at, &Key::Passphrase(PASSPHRASE.to_vec().into())).is_ok());
    // What SQLCipher would cut off is refused instead.
    let long = Key::Passphrase(vec![0xFF; 41].into());
    assert!(matches!(
        Container::open(&at, &long),
        Err(Error::TooLarge(_))
    ));
}

fn plain() -> Kind {
    Kind {
        version: 0,
        block: 8192,
        raw: false,
    }
}

#[test]
fn what_is_no_container_is_refused_by_what_it_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let key = Key::None;
    for (name, sql) in [
        ("nothing", "CREATE TABLE other (x)"),
        ("no values", "CREATE TABLE meta_data (key, type, mode, atime, mtime, size, block_size)"),
        (
            "a view",
            "CREATE TABLE value_data (key, block_no, data_block);
             CREATE VIEW meta_data AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n)
                 SELECT '/' || x AS key, 'dir' AS type, 0 AS mode, 0 AS atime, 0 AS mtime, 0 AS size, 0 AS block_size FROM n",
        ),
    ] {
        let at = dir.path().join(name);
        rusqlite::Connection::open(&at).unwrap().execute_batch(sql).unwrap();
        let refused = Container::open(&at, &key);
        assert!(matches!(refused, Err(Error::NotAContainer { .. })), "{name}: {refused:?}");
    }
    let text = dir.path().join("text");
    std::fs::write(&text, "SQLite format 3\0 and then nothing of it").unwrap();
    assert!(matches!(
        Container::open(&text, &key),
        Err(Error::NotAContainer { .. })
    ));
    assert!(matches!(
        Container::open(dir.path(), &key),
        Err(Error::NotAContainer { .. })
    ));
    assert!(matches!(
        Container::open(&dir.path().join("-"), &key),
        Err(Error::Io { .. })
    ));
}

#[test]
fn hostile_rows_are_left_out_by_name_and_the_others_come_through() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("c");
    let w = plain().make(&at);
    w.file(b"/good", b"good");
    w.file(b"/../../etc/passwd", b"x");
    w.file(b"/a/../b", b"x");
    w.file(b"/nul\0name", b"x");
    w.file(&[b"/".as_slice(), &[b'n'; 256]].concat(), b"x");
    w.file(&b"/d".repeat(600), b"x");
    w.file(b"/file", b"x");
    w.file(b"/file/below", b"x");
    w.row(b"/negative", Some("blob"), 0, -1, 8192);
    w.row(b"/huge blocks", Some("blob"), 0, 10, i64::MAX);
    w.row(b"/minus blocks", Some("blob"), 0, 10, -8192);
    w.row(b"/no target", Some("sym link"), 0, 10, 8192);
    w.link("/long target", &"t".repeat(5000));
    w.file(b"//twice", b"second");
    w.file(b"/twice", b"first");
    // These are no damage: parents without a row, a type of NULL, a mode of nothing, a path not normalised.
    w.file(b"/lost/and/found", b"found");
    w.row(b"/typeless", None, 0, 4, 8192);
    w.block(b"/typeless", 0, b"data and more");
    w.row(b"/as large as can be", Some("blob"), 0, i64::MAX, 8192);
    w.file(b"//x/./y/", b"y");
    w.link("/loop", "loop");
    drop(w);
    let container = Container::open(&at, &Key::None).unwrap();
    let mut left: Vec<_> = container
        .left_out()
        .iter()
        .map(|out| String::from_utf8_lossy(&out.key[..out.key.len().min(14)]).into_owned())
        .collect();
    left.sort();
    assert_eq!(
        left,
        [
            "/../../etc/pas",
            "//twice",
            "/a/../b",
            "/d/d/d/d/d/d/d",
            "/file/below",
            "/huge blocks",
            "/long target",
            "/minus blocks",
            "/negative",
            "/nnnnnnnnnnnnn",
            "/no target",
            "/nul\0name",
        ]
    );
    for (path, data) in [
        ("/good", b"good".as_slice()),
        ("/twice", b"first"),
        ("/lost/and/found", b"found"),
        ("/typeless", b"data"),
        ("/x/y", b"y"),
    ] {
        assert_eq!(contents(&container, path).unwrap(), data, "{path}");
    }
    assert_eq!(entry(&container, "/typeless").mode, None);
    let large = entry(&container, "/as large as can be");
    let mut buf = [1; 10];
    assert_eq!(
        container
            .read_at(large, &mut buf, i64::MAX as u64 - 5)
            .unwrap(),
        5
    );
    assert_eq!(buf[..5], [0; 5]);
}

#[test]
fn blocks_that_cannot_be_are_damage_of_their_file_alone() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("c");
    let w = plain().make(&at);
    w.connection
        .execute_batch("DROP TABLE value_data; CREATE TABLE value_data (key text, block_no integer, data_block blob)")
        .unwrap();
    w.file(b"/good", b"good");
    w.row(b"/too long", Some("blob"), 0, 20_000, 8192);
    w.block(b"/too long", 0, &[1; 8193]);
    w.row(b"/two", Some("blob"), 0, 20_000, 8192);
    w.block(b"/two", 1, &[1; 8192]);
    w.block(b"/two", 1, &[2; 8192]);
    w.row(b"/far", Some("blob"), 0, i64::MAX, 8192);
    w.block(b"/far", i64::MAX, &[1; 8192]);
    w.row(b"/unsaid", Some("blob"), 0, 20_000, 0);
    w.block(b"/unsaid", 0, &[1; 8192]);
    w.block(b"/unsaid", 1, &[1; 8192]);
    w.row(b"/words", Some("blob"), 0, 20_000, 8192);
    w.connection
        .execute("INSERT INTO value_data VALUES ('/words', 'one', x'00')", [])
        .unwrap();
    drop(w);
    let container = Container::open(&at, &Key::None).unwrap();
    assert!(container.left_out().is_empty());
    assert_eq!(contents(&container, "/good").unwrap(), b"good");
    for path in ["/too long", "/two", "/far", "/unsaid", "/words"] {
        let entry = entry(&container, path);
        let mut buf = [0; 20_000];
        let read = container
            .next_data(entry, 0)
            .and_then(|_| container.read_at(entry, &mut buf, 0));
        assert!(matches!(read, Err(Error::Damaged(_))), "{path}: {read:?}");
    }
}

#[test]
fn a_damaged_page_is_reported_and_never_read_as_good() {
    let dir = tempfile::tempdir().unwrap();
    let kind = Kind {
        version: 4,
        block: 8192,
        raw: true,
    };
    let at = dir.path().join("c");
    drop(fill(kind, &at));
    let good = std::fs::read(&at).unwrap();
    let pages = good.len() / 8192;
    let mut noticed = 0;
    for page in (1..pages).step_by(3) {
        let mut bad = good.clone();
        bad[page * 8192 + 1000] ^= 1;
        std::fs::write(&at, bad).unwrap();
        let read = Container::open(&at, &kind.key()).and_then(|container| {
            for (n, size) in sizes(8192).into_iter().enumerate() {
                let read = contents(&container, &format!("/a/f{n}"))?;
                assert!(read == bytes(size), "page {page}: damage was read as good");
            }
            Ok(())
        });
        noticed += u32::from(read.is_err());
    }
    assert!(
        noticed > 10,
        "only {noticed} of {pages} damaged pages were noticed"
    );
}

/// The containers that the original library made, with the digests of their files.
#[test]
fn the_original_library_s_containers_have_the_digests_they_were_made_with() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden/iocipher");
    let Ok(list) = std::fs::read_to_string(golden.join("contents.tsv")) else {
        eprintln!("skipped: no containers of the original library at ../shared/golden/iocipher");
        return;
    };
    let passphrase = || Key::Passphrase(b"open sesame".to_vec().into());
    let raw = || {
        Key::Raw(zeroize::Zeroizing::new(std::array::from_fn(|i| {
            (7 * i + 1) as u8
        })))
    };
    for (name, key, version) in [
        ("plain-8k", Key::None, 0),
        ("v3-8k-pass", passphrase(), 3),
        ("v3-8k-raw", raw(), 3),
        ("v3-128k-pass", passphrase(), 3),
        ("v4-8k-pass", passphrase(), 4),
        ("v4-8k-raw", raw(), 4),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let unpacked = std::process::Command::new("tar")
            .arg("-xJf")
            .arg(golden.join(format!("{name}.tar.xz")))
            .arg("-C")
            .arg(dir.path())
            .status();
        if !unpacked.is_ok_and(|status| status.success()) {
            eprintln!("skipped: tar and xz are needed to unpack the containers");
            return;
        }
        let before = everything(dir.path());
        let at = before
            .keys()
            .find(|path| {
                !path.to_str().unwrap().ends_with("-wal")
                    && !path.to_str().unwrap().ends_with("-shm")
            })
            .unwrap();
        let container = Container::open(at, &key).unwrap_or_else(|e| panic!("{name}: {e}"));
        match container.format() {
            Format::Plain => assert_eq!(version, 0),
            Format::SqlCipher { version: found, .. } => assert_eq!(found, version, "{name}"),
        }
        let mut count = 0;
        for line in list.lines() {
            let [path, kind, digest] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            count += u64::from(path != "/");
            match &entry(&container, path).kind {
                EntryKind::Directory => assert_eq!(kind, "dir"),
                EntryKind::Symlink(target) => {
                    assert_eq!((kind, digest.as_bytes()), ("symlink", target.as_slice()));
                }
                EntryKind::File { size, .. } => {
                    assert_eq!(kind, format!("file {size}"), "{name} {path}");
                    let found: String = Sha256::digest(contents(&container, path).unwrap())
                        .iter()
                        .map(|b| format!("{b:02x}"))
                        .collect();
                    assert_eq!(found, digest, "{name} {path}");
                }
            }
        }
        assert_eq!(container.count(), count, "{name}");
        assert!(container.left_out().is_empty());
        drop(container);
        assert_eq!(everything(dir.path()), before, "{name}");
    }
}
