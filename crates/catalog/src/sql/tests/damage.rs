//! Foreign, damaged, cut and newer files: refused or found, never accepted.

use std::fs;

use super::super::*;
use super::{Files, create, filled, key, log_path, open, open_for_reading, open_under, put};
use crate::*;

#[test]
fn a_wrong_key_is_distinguished() {
    let mut files = Files::new();
    filled(&mut files);
    for read_only in [false, true] {
        let options = OpenOptions {
            read_only,
            ..OpenOptions::default()
        };
        let error = open_under(&files.path, &key(2), &options).unwrap_err();
        assert!(matches!(error, CatalogError::NotThisRoom), "{error}");
    }
    fs::write(&files.path, b"").unwrap();
    assert!(matches!(open(&files.path), Err(CatalogError::NotThisRoom)));
    fs::write(&files.path, [0; 8192]).unwrap();
    assert!(matches!(open(&files.path), Err(CatalogError::NotThisRoom)));
    fs::remove_file(&files.path).unwrap();
    assert!(matches!(open(&files.path), Err(CatalogError::Io(_))));
}

#[test]
fn creating_over_a_file_is_refused() {
    let mut files = Files::new();
    filled(&mut files);
    let before = fs::read(&files.path).unwrap();
    let again = create(&files.path);
    assert!(matches!(again, Err(CatalogError::Io(_))));
    assert_eq!(fs::read(&files.path).unwrap(), before);
}

/// SQLCipher gives zeros for a page that fails its check, and an error from the next page on. The rest of a long value is in a page of its own,
/// whose zeros say nothing to SQLite.
#[test]
fn the_end_of_a_long_value_is_damage_where_its_page_is_the_last_one_read() {
    let mut files = Files::new();
    let catalog = files.create();
    let no = put(&catalog, InodeNo::ROOT, b"file");
    let value: Vec<u8> = (0..5000u32).map(|i| i as u8 | 1).collect();
    catalog
        .apply(&[Change::put_xattr(no, b"user.long", &value)])
        .unwrap();
    catalog.commit().unwrap();
    drop(catalog);
    let good = fs::read(&files.path).unwrap();
    let mut found = 0;
    for page in 1..good.len() / 4096 {
        let mut bad = good.clone();
        bad[page * 4096 + 100] ^= 1;
        let path = files.dir();
        fs::write(&path, &bad).unwrap();
        let Ok(catalog) = open(&path) else { continue };
        match catalog.xattr(no, b"user.long") {
            Ok(read) => assert!(read.as_ref() == Some(&value), "page {}", page + 1),
            Err(CatalogError::Damaged(_)) => found += 1,
            Err(error) => panic!("page {}: {error}", page + 1),
        }
        // The same with a transaction open.
        let Ok(catalog) = open(&path) else { continue };
        let set = catalog.set_meta("a", b"value");
        let read = catalog.xattr(no, b"user.long");
        assert!(
            set.is_err() || read.is_err() || read.unwrap().as_ref() == Some(&value),
            "page {}, with a change pending",
            page + 1
        );
    }
    assert!(found > 0, "no page of the value was damaged");
}

/// Every answer is the right one or an error that says damage.
#[test]
fn a_flipped_byte_in_any_page_is_damage_and_never_wrong_data() {
    let mut files = Files::new();
    let inodes = filled(&mut files);
    let good = fs::read(&files.path).unwrap();
    assert!(good.len() > 20 * 4096);
    for page in 0..good.len() / 4096 {
        for at in [page * 4096 + 20 + page % 1000, page * 4096 + 4095] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let path = files.dir();
            fs::write(&path, &bad).unwrap();
            let catalog = match open(&path) {
                Ok(catalog) => catalog,
                Err(CatalogError::NotThisRoom | CatalogError::Damaged(_)) => continue,
                Err(error) => panic!("byte {at}: {error}"),
            };
            let mut damage = false;
            for inode in &inodes {
                match (
                    catalog.inode(inode.no),
                    catalog.chunks_from(inode.no, 0, 9),
                    catalog.xattr(inode.no, b"user.a"),
                ) {
                    (Ok(Some(same)), Ok(chunks), Ok(Some(_))) => {
                        assert_eq!((&same, chunks.len()), (inode, 1), "byte {at}");
                    }
                    (inode, chunks, xattr) => {
                        damage = true;
                        let errors = [inode.err(), chunks.err(), xattr.err()];
                        for error in errors.into_iter().flatten() {
                            assert!(
                                matches!(error, CatalogError::Damaged(_)),
                                "byte {at}: {error}"
                            );
                        }
                        break;
                    }
                }
            }
            if damage {
                assert!(matches!(
                    catalog.commit(),
                    Ok(_) | Err(CatalogError::Damaged(_))
                ));
                assert!(catalog.apply(&[Change::PutInode(&inodes[0])]).is_err());
            }
            drop(catalog);
            let found = open(&path).and_then(|catalog| catalog.verify());
            assert!(
                !found.unwrap_or(vec!["not opened".into()]).is_empty(),
                "byte {at} is found by the check"
            );
        }
    }
}

#[test]
fn a_shortened_file_is_damage() {
    let mut files = Files::new();
    filled(&mut files);
    let good = fs::read(&files.path).unwrap();
    for len in [
        100,
        4096,
        5000,
        good.len() / 2,
        good.len() - 4096,
        good.len() - 1,
    ] {
        let path = files.dir();
        fs::write(&path, &good[..len]).unwrap();
        let found = open(&path).and_then(|catalog| catalog.verify());
        assert!(
            !found.unwrap_or(vec!["not opened".into()]).is_empty(),
            "{len} bytes"
        );
    }
}

/// A crash while the log was moved into the file had left half a page there, whose whole version was in the log. Opening
/// read it from the log, but the check looked at the file alone, reported the catalog as damaged, and repaired nothing.
#[test]
fn a_page_half_moved_out_of_the_log_is_not_damage() {
    const FRAME: usize = 24 + 4096;
    let mut files = Files::new();
    let catalog = files.create();
    for i in 0..12u64 {
        put(&catalog, InodeNo::ROOT, format!("{i}").as_bytes());
        catalog.commit().unwrap();
    }
    let snapshot = files.snapshot();
    let log = fs::read(log_path(&snapshot)).unwrap();
    let frames = log[32..].chunks_exact(FRAME);
    let pages: std::collections::BTreeSet<u32> = frames
        .map(|frame| u32::from_be_bytes(frame[..4].try_into().unwrap()))
        .filter(|page| *page > 1)
        .collect();
    let len = fs::metadata(&snapshot).unwrap().len();
    let moved = pages.iter().filter(|page| u64::from(**page) * 4096 <= len);
    let mut torn = 0;
    for page in moved {
        let path = files.dir();
        let mut bytes = fs::read(&snapshot).unwrap();
        bytes[(*page as usize - 1) * 4096..][..512].fill(0xa5);
        fs::write(&path, bytes).unwrap();
        fs::copy(log_path(&snapshot), log_path(&path)).unwrap();
        for open in [open_for_reading, open] {
            assert_eq!(
                open(&path).unwrap().verify().unwrap(),
                [""; 0],
                "page {page}"
            );
        }
        torn += 1;
    }
    assert!(torn > 1, "{pages:?}");
}

#[test]
fn a_log_cut_or_flipped_anywhere_leaves_a_whole_commit() {
    let mut files = Files::new();
    let catalog = files.create();
    let mut counts = vec![0];
    for i in 0..12u64 {
        put(&catalog, InodeNo::ROOT, format!("{i}").as_bytes());
        catalog.commit().unwrap();
        counts.push(i as usize + 1);
    }
    let snapshot = files.snapshot();
    let log = fs::read(log_path(&snapshot)).unwrap();
    let end = log.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let mut seen = std::collections::BTreeSet::new();
    for at in (0..end).step_by(1031) {
        for cut in [true, false] {
            let path = files.dir();
            fs::copy(&snapshot, &path).unwrap();
            let mut bad = log.clone();
            if cut {
                bad.truncate(at);
            } else {
                bad[at] ^= 0x10;
            }
            fs::write(log_path(&path), bad).unwrap();
            let catalog = match open(&path) {
                Ok(catalog) => catalog,
                Err(CatalogError::Damaged(_) | CatalogError::NotThisRoom) => continue,
                Err(error) => panic!("{error}"),
            };
            assert_eq!(catalog.verify().unwrap(), [""; 0]);
            let entries = catalog.entries(InodeNo::ROOT, 0, 100).unwrap();
            // The generation says which commit it is, and everything is of that one.
            assert_eq!(entries.len() as u64, catalog.generation() - 1, "at {at}");
            seen.insert(entries.len());
        }
    }
    assert!(seen.len() > 5, "{seen:?}");
}

#[test]
fn a_newer_format_is_refused_by_its_number() {
    let mut files = Files::new();
    let catalog = files.create();
    catalog
        .lock()
        .set_meta(schema::META_VERSION, &7u32.to_le_bytes())
        .unwrap();
    catalog.commit().unwrap();
    drop(catalog);
    let before = fs::read(&files.path).unwrap();
    for error in [
        open(&files.path).unwrap_err(),
        open_for_reading(&files.path).unwrap_err(),
    ] {
        assert!(
            matches!(error, CatalogError::Version { found: 7, known: 5 }),
            "{error}"
        );
    }
    assert_eq!(fs::read(&files.path).unwrap(), before);
}

#[test]
fn flags_are_kept_and_programs_that_do_not_know_them_refuse_the_catalog() {
    use crate::FileFlags;

    let mut files = Files::new();
    let catalog = files.create();
    let version = |catalog: &Catalog| {
        let value = catalog.lock().meta(schema::META_VERSION).unwrap().unwrap();
        u32::from_le_bytes(value.try_into().unwrap())
    };
    let both = FileFlags::IMMUTABLE.and(FileFlags::APPEND_ONLY);
    let with = |flags, no| crate::Inode {
        flags,
        ..crate::contract::file(no)
    };
    catalog
        .apply(&[Change::PutInode(&with(FileFlags::NONE, 2))])
        .unwrap();
    catalog.commit().unwrap();
    assert_eq!((version(&catalog), catalog.has_flags()), (1, false));
    catalog
        .apply(&[
            Change::PutInode(&with(both, 3)),
            Change::PutInode(&with(FileFlags::APPEND_ONLY, 2)),
        ])
        .unwrap();
    catalog.commit().unwrap();
    assert_eq!((version(&catalog), catalog.has_flags()), (2, true));
    drop(catalog);
    let catalog = open(&files.path).unwrap();
    assert!(catalog.has_flags());
    assert_eq!(catalog.inode(InodeNo(3)).unwrap().unwrap(), with(both, 3));
    assert_eq!(
        catalog.inode(InodeNo(2)).unwrap().unwrap().flags,
        FileFlags::APPEND_ONLY
    );
    assert_eq!(catalog.verify().unwrap(), Vec::<String>::new());
}
