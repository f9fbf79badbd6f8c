//! What a hostile keeper of the directory can put together from all versions of the files that he saw.

use super::*;

const NAMES: [&str; 3] = [DB, LOG, TABLE];

/// The files at one moment, and what an opening finds then.
struct Moment {
    files: BTreeMap<&'static str, Vec<u8>>,
    rows: BTreeMap<i64, u8>,
}

/// A history with commits in the log, checkpoints, and a log that starts over.
fn history() -> Vec<Moment> {
    let memory = MemoryStorage::new();
    let db = create(Arc::new(memory.clone())).unwrap();
    let mut moments = Vec::new();
    let mut note = |db: &Db| {
        moments.push(Moment {
            files: NAMES
                .iter()
                .map(|name| (*name, bytes(&memory, name)))
                .collect(),
            rows: db.rows().unwrap(),
        });
    };
    // The file is that of a filled catalog at every moment noted.
    db.put(0..80, 1).unwrap();
    db.checkpoint().unwrap();
    note(&db);
    for round in 1..=2_u8 {
        // The same pages in the same order in each log: only their versions differ.
        db.put(15..37, round * 16).unwrap();
        note(&db);
        db.put(15..30, round * 16 + 1).unwrap();
        note(&db);
        db.checkpoint().unwrap();
        note(&db);
    }
    // A log that covers little of the file.
    db.put(70..71, 77).unwrap();
    note(&db);
    moments
}

fn storage_of(files: &BTreeMap<&'static str, Vec<u8>>) -> Arc<MemoryStorage> {
    let memory = MemoryStorage::new();
    for (name, bytes) in files.iter().filter(|(_, bytes)| !bytes.is_empty()) {
        put_bytes(&memory, name, bytes);
    }
    Arc::new(memory)
}

/// What an opening finds: the rows, or an error.
fn found(files: &BTreeMap<&'static str, Vec<u8>>) -> Result<BTreeMap<i64, u8>, String> {
    let db = open(storage_of(files))?;
    keep_log(&db);
    db.rows()
}

/// What is found is one of the moments, which is returned, or an error.
fn judge(
    moments: &[Moment],
    files: &BTreeMap<&'static str, Vec<u8>>,
    what: impl FnOnce() -> String,
) -> Option<BTreeMap<i64, u8>> {
    match found(files) {
        Ok(rows) => {
            // The commit that made the table comes before the first moment noted.
            assert!(
                rows.is_empty() || moments.iter().any(|moment| moment.rows == rows),
                "{}: data of no moment",
                what()
            );
            Some(rows)
        }
        Err(error) => {
            assert!(
                error.contains("replaced by another version") || error.contains("table of"),
                "{}: {error}",
                what()
            );
            None
        }
    }
}

#[test]
fn files_of_different_moments_are_one_moment_or_an_error() {
    let moments = history();
    for moment in &moments {
        assert_eq!(found(&moment.files).unwrap(), moment.rows);
    }
    let mut errors = 0;
    for (a, from) in moments.iter().enumerate() {
        for (b, to) in moments.iter().enumerate() {
            for name in NAMES {
                let mut files = to.files.clone();
                files.insert(name, from.files[name].clone());
                let shown = judge(&moments, &files, || format!("{name} of {a} in {b}"));
                errors += usize::from(shown.is_none());
            }
        }
    }
    assert!(errors > 10, "{errors}");
}

#[test]
fn a_page_of_another_moment_is_never_data() {
    let moments = history();
    let mut errors = 0;
    for (a, from) in moments.iter().enumerate() {
        for (b, to) in moments.iter().enumerate() {
            let pages = from.files[DB].len().min(to.files[DB].len()) / PAGE;
            for page in (0..pages).map(|page| page * PAGE..(page + 1) * PAGE) {
                let mut files = to.files.clone();
                let old = &from.files[DB][page.clone()];
                files.get_mut(DB).unwrap()[page.clone()].copy_from_slice(old);
                let differs = files[DB] != to.files[DB];
                let shown = judge(&moments, &files, || format!("{page:?} of {a} in {b}"));
                assert!(differs || shown.is_some());
                errors += usize::from(shown.is_none());
            }
        }
    }
    assert!(errors > 10, "{errors}");
}

#[test]
fn frames_of_another_moment_are_never_data_even_with_new_sqlite_checksums() {
    let moments = history();
    let mut shortened = 0;
    for (a, from) in moments.iter().enumerate() {
        for (b, to) in moments.iter().enumerate() {
            let (old, new) = (&from.files[LOG], &to.files[LOG]);
            let frames = old.len().min(new.len()).saturating_sub(HEADER + SLOT) / STRIDE;
            for frame in 0..frames {
                for kept in [FRAME, STRIDE] {
                    let at = HEADER + SLOT + frame * STRIDE;
                    let mut files = to.files.clone();
                    let log = files.get_mut(LOG).unwrap();
                    log[at..at + kept].copy_from_slice(&old[at..at + kept]);
                    checksums(log);
                    let what = || format!("frame {frame} of {a} in {b}, {kept} bytes");
                    let shown = judge(&moments, &files, what);
                    shortened += usize::from(shown.is_some_and(|rows| rows != to.rows));
                }
            }
        }
    }
    assert!(shortened > 0, "a broken chain ends at the commit before");
}

/// Makes salts and checksums of the log's frames what SQLite takes for right: anybody can, they have no key.
fn checksums(log: &mut [u8]) {
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    let sum = |mut state: [u32; 2], bytes: &[u8]| {
        for pair in bytes.chunks_exact(8) {
            state[0] = state[0]
                .wrapping_add(number(&pair[..4]))
                .wrapping_add(state[1]);
            state[1] = state[1]
                .wrapping_add(number(&pair[4..]))
                .wrapping_add(state[0]);
        }
        state
    };
    assert_eq!(log[3] & 1, 0, "the checksums are little-endian here");
    let salts: [u8; 8] = log[16..24].try_into().unwrap();
    let mut state = sum([0; 2], &log[..24]);
    assert_eq!(
        log[24..28],
        state[0].to_be_bytes(),
        "this is how SQLite does it"
    );
    for frame in log[HEADER + SLOT..].chunks_exact_mut(STRIDE) {
        if frame[..4] == [0; 4] {
            break;
        }
        frame[8..16].copy_from_slice(&salts);
        state = sum(state, &frame[..8]);
        state = sum(state, &frame[24..FRAME]);
        frame[16..20].copy_from_slice(&state[0].to_be_bytes());
        frame[20..24].copy_from_slice(&state[1].to_be_bytes());
    }
}

#[test]
fn a_missing_table_and_a_shortened_file_are_named() {
    let moments = history();
    let last = moments.last().unwrap();
    let mut files = last.files.clone();
    files.insert(TABLE, Vec::new());
    assert_eq!(found(&files).unwrap_err(), "witness: a.db-pages is missing");
    // The last pages cut off, or zeroed, which SQLCipher would take for pages never written.
    files = last.files.clone();
    files.insert(LOG, Vec::new());
    let whole = moments.iter().position(|m| m.files[TABLE] == files[TABLE]);
    assert!(whole.is_some());
    for cut in [true, false] {
        let mut files = files.clone();
        let file = files.get_mut(DB).unwrap();
        let end = file.len() - PAGE;
        if cut {
            file.truncate(end);
        } else {
            file[end..].fill(0);
        }
        let error = found(&files).unwrap_err();
        assert!(error.contains("replaced by another version"), "{error}");
    }
}

#[test]
fn a_journal_put_beside_the_catalog_is_not_played_back() {
    let memory = MemoryStorage::new();
    let db = create(Arc::new(memory.clone())).unwrap();
    db.put(0..40, 1).unwrap();
    db.close().unwrap();
    let old = bytes(&memory, DB);
    let db = open(Arc::new(memory.clone())).unwrap();
    db.put(0..40, 2).unwrap();
    db.close().unwrap();
    // A rollback journal as SQLite writes one: header, then number, page and checksum of each page.
    let pages = old.len() / PAGE;
    let mut journal = vec![0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    for number in [pages as u32, 0, pages as u32, 4096, PAGE as u32] {
        journal.extend(number.to_be_bytes());
    }
    journal.resize(4096, 0);
    for (index, page) in old.chunks_exact(PAGE).enumerate() {
        journal.extend((index as u32 + 1).to_be_bytes());
        journal.extend(page);
        let sum: u32 = (1..PAGE as i32)
            .rev()
            .map(|i| PAGE as i32 - 200 * i)
            .take_while(|at| *at > 0)
            .map(|at| u32::from(page[at as usize]))
            .sum();
        journal.extend(sum.to_be_bytes());
    }
    put_bytes(&memory, "a.db-journal", &journal);
    let db = open(Arc::new(memory)).unwrap();
    assert_eq!(db.rows().unwrap(), rows(&[(0..40, 2)]));
}

#[test]
fn the_catalogs_file_takes_nothing_but_what_its_log_holds() {
    let memory = MemoryStorage::new();
    let db = create(Arc::new(memory.clone())).unwrap();
    db.put(0..40, 1).unwrap();
    db.close().unwrap();
    let old = bytes(&memory, DB);
    let witness = Witness::open(Arc::new(memory.clone()), DB, key()).unwrap();
    let storage: Arc<dyn Storage> = Arc::new(memory);
    let plain = crate::file::Plain::open(&storage, DB, OpenMode::ReadWrite, false).unwrap();
    let mut main = witness.main(Box::new(plain));
    let refused = main.write(&old[..PAGE], 0).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    assert!(witness.finding().is_some());
    assert!(main.truncate(PAGE as u64).is_err());
    assert!(main.write(&old[..100], 0).is_err());
}
