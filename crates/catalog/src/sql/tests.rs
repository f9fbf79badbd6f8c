//! The contract, and what is this implementation's own: crashes, damage, query plans, size.

use std::fs;
use std::path::{Path, PathBuf};

use seal::{CatalogKey, MasterKey, RoomId};
use storage::HostStorage;
use tempfile::TempDir;

use super::*;
use crate::contract::*;
use crate::*;

mod damage;
mod past;
mod vouched;

struct Files {
    dirs: Vec<TempDir>,
    path: PathBuf,
}

impl Files {
    fn new() -> Self {
        Self {
            dirs: Vec::new(),
            path: PathBuf::new(),
        }
    }

    fn dir(&mut self) -> PathBuf {
        self.dirs.push(tempfile::tempdir().unwrap());
        self.dirs.last().unwrap().path().join("catalog.db")
    }

    fn create(&mut self) -> Catalog {
        self.path = self.dir();
        create(&self.path).unwrap()
    }

    /// The files as they are on the disk at this moment, elsewhere.
    fn snapshot(&mut self) -> PathBuf {
        let to = self.dir();
        fs::copy(&self.path, &to).unwrap();
        if let Ok(log) = fs::read(log_path(&self.path)) {
            fs::write(log_path(&to), log).unwrap();
        }
        to
    }
}

impl Maker for Files {
    fn fresh(&mut self) -> Catalog {
        self.create()
    }

    fn after_crash(&mut self) -> Catalog {
        open(&self.snapshot()).unwrap()
    }
}

contract_tests!(Files::new());

fn key(n: u8) -> CatalogKey {
    MasterKey::from_bytes(&[n; 32]).catalog_key(&RoomId::from_bytes([9; 16]))
}

/// The directory of a path as a storage.
fn beside(path: &Path) -> Arc<dyn Storage> {
    Arc::new(HostStorage::open(path.parent().unwrap()).unwrap())
}

fn log_path(path: &Path) -> PathBuf {
    path.with_file_name("catalog.db-wal")
}

fn create(path: &Path) -> Result<Catalog> {
    Catalog::create(
        &beside(path),
        "catalog.db",
        &key(1),
        &OpenOptions::default(),
    )
}

fn open_under(path: &Path, key: &CatalogKey, options: &OpenOptions) -> Result<Catalog> {
    Catalog::open(&beside(path), "catalog.db", key, options)
}

fn open(path: &Path) -> Result<Catalog> {
    open_under(path, &key(1), &OpenOptions::default())
}

fn open_for_reading(path: &Path) -> Result<Catalog> {
    open_under(path, &key(1), &OpenOptions::for_reading())
}

fn answered(sequence: u64) -> CachedReply {
    CachedReply {
        slot: 0,
        sequence,
        answer: vec![sequence as u8; 120],
    }
}

/// A catalog of some size with something in every table, closed.
fn filled(files: &mut Files) -> Vec<Inode> {
    let catalog = files.create();
    for i in 0..300u64 {
        let no = put(
            &catalog,
            InodeNo(1 + i % 3),
            format!("a name of some length {i}").as_bytes(),
        );
        catalog
            .apply(&[
                Change::put_xattr(no, b"user.a", &[i as u8; 100]),
                Change::put_chunk(no, i, &map(1, 200)),
                Change::share_unit(SegmentNo(i + 1), 1, 1),
                Change::put_reply(ClientKey([i as u8; 32]), &answered(i + 1)),
            ])
            .unwrap();
    }
    catalog.commit().unwrap();
    catalog.all_inodes(InodeNo(0), 1000).unwrap()
}

/// How SQLite finds the rows of a statement.
fn plan(state: &State, sql: &str) -> Vec<String> {
    let mut explain = state
        .conn
        .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
        .unwrap();
    let params = rusqlite::params_from_iter(vec![1i64; explain.parameter_count()]);
    let lines = explain.query_map(params, |row| row.get(3)).unwrap();
    lines.map(|line| line.unwrap()).collect()
}

/// Each statement uses this key or index.
fn uses(state: &State, statements: &[(&str, &str)]) {
    for (sql, index) in statements {
        let plan = plan(state, sql);
        assert!(
            plan.iter().any(|line| line.contains(index)),
            "{index}: {plan:#?}"
        );
    }
}

#[test]
fn every_statement_finds_its_rows_by_key_or_index() {
    let catalog = Files::new().create();
    let answer = answered(1);
    let client = ClientKey([1; 32]);
    let reply = &answer;
    catalog.apply(&[Change::put_reply(client, reply)]).unwrap();
    let snapshot = catalog.new_snapshot("one", crate::Timestamp { secs: 1, nanos: 0 }, false);
    catalog.apply(&[Change::CreateSnapshot(&snapshot)]).unwrap();
    let state = catalog.lock();
    for (name, sql) in schema::ALL.iter().chain(schema::past::ALL) {
        let plan = plan(&state, sql);
        for line in &plan {
            // The index of orphans holds nothing else: walking all of it is the purpose.
            // The last inode is the last key.
            let walks = line.contains("SCAN") && !["ORPHANS", "LAST_INODE"].contains(name);
            assert!(!walks && !line.contains("TEMP B-TREE"), "{name}: {plan:?}");
        }
    }
    uses(
        &state,
        &[
            (schema::LOOKUP, "entry_names (parent=? AND hash=?)"),
            (schema::POINT_ENTRY, "entry_names (parent=? AND hash=?)"),
            (schema::DELETE_ENTRY, "entry_names (parent=? AND hash=?)"),
            (schema::ENTRIES, "PRIMARY KEY (parent=? AND cookie>?)"),
            (schema::ENTRIES_PLUS, "PRIMARY KEY (parent=? AND cookie>?)"),
            (schema::ALL_CHUNKS, "PRIMARY KEY ((inode,idx)>(?,?))"),
        ],
    );
}

#[test]
fn names_whose_hashes_collide_stay_apart() {
    let catalog = Files::new().create();
    catalog.lock().hash_mask = 1;
    let names: Vec<Vec<u8>> = (0..50).map(|i| format!("{i}").into_bytes()).collect();
    let inodes: Vec<_> = names
        .iter()
        .map(|name| put(&catalog, InodeNo::ROOT, name))
        .collect();
    for (name, no) in names.iter().zip(&inodes) {
        assert_eq!(
            catalog.lookup(InodeNo::ROOT, name).unwrap().unwrap().no,
            *no
        );
    }
    for (i, name) in names.iter().enumerate().step_by(2) {
        catalog
            .apply(&[Change::remove_entry(InodeNo::ROOT, name)])
            .unwrap();
        assert_eq!(
            catalog.entries(InodeNo::ROOT, 0, 100).unwrap().len(),
            49 - i / 2
        );
    }
    put(&catalog, InodeNo::ROOT, &names[1]);
    for (i, name) in names.iter().enumerate() {
        assert_eq!(
            catalog.lookup(InodeNo::ROOT, name).unwrap().is_some(),
            i % 2 == 1
        );
    }
    assert_eq!(catalog.entries(InodeNo::ROOT, 0, 100).unwrap().len(), 25);
}

#[test]
fn a_million_names_list_from_any_cookie_while_others_go() {
    const NAMES: u64 = 1_000_000;
    let mut files = Files::new();
    let catalog = files.create();
    let parent = InodeNo::ROOT;
    for i in 0..NAMES {
        let name = i.to_le_bytes().map(|byte| byte | 0x80);
        let name = [&name[..], format!("{i}").as_bytes()].concat();
        catalog
            .apply(&[Change::put_entry(
                parent,
                &name,
                InodeNo(2),
                FileKind::Regular,
            )])
            .unwrap();
        if i % 50_000 == 0 {
            catalog.commit().unwrap();
            catalog.checkpoint().unwrap();
        }
    }
    catalog.commit().unwrap();
    let (mut after, mut listed, mut round) = (0, 0, 0);
    loop {
        let some = catalog.entries(parent, after, 10_000).unwrap();
        let Some(last) = some.last() else { break };
        // One name of each batch goes: the one at which the listing stopped.
        catalog
            .apply(&[Change::remove_entry(parent, &last.name)])
            .unwrap();
        assert!(some.is_sorted_by_key(|entry| entry.cookie));
        after = last.cookie;
        listed += some.len() as u64;
        round += 1;
    }
    assert_eq!((listed, round), (NAMES, 100));
    let middle = catalog.entries(parent, 16 + NAMES / 2, 3).unwrap();
    assert_eq!(middle[0].cookie, 16 + NAMES / 2 + 1);
    assert!(
        catalog.lookup(parent, &middle[0].name).is_err(),
        "its inode was never put"
    );
}

#[test]
fn the_log_is_used_again_after_a_checkpoint() {
    let mut files = Files::new();
    let catalog = files.create();
    let mut longest = 0;
    for round in 0..40 {
        for i in 0..100 {
            put(&catalog, InodeNo::ROOT, format!("{round} {i}").as_bytes());
            catalog.commit().unwrap();
        }
        catalog.checkpoint().unwrap();
        longest = longest.max(fs::metadata(log_path(&files.path)).unwrap().len());
    }
    assert!(longest < 6 << 20, "{longest}");
    assert!(!wal::is_left(&*beside(&files.dir()), "catalog.db").unwrap());
    drop(catalog);
    assert!(
        !log_path(&files.path).exists(),
        "closing leaves nothing behind"
    );
    assert_eq!(
        open(&files.path)
            .unwrap()
            .entries(InodeNo::ROOT, 0, 10_000)
            .unwrap()
            .len(),
        4000
    );
}

#[test]
fn a_checkpoint_asked_for_amid_changes_comes_with_their_commit() {
    let mut files = Files::new();
    let catalog = files.create();
    put(&catalog, InodeNo::ROOT, b"a");
    let before = fs::metadata(&files.path).unwrap().len();
    let modified = fs::read(&files.path).unwrap();
    catalog.checkpoint().unwrap();
    assert!(catalog.is_dirty(), "a checkpoint commits nothing");
    assert_eq!(fs::read(&files.path).unwrap(), modified);
    catalog.commit().unwrap();
    assert!(fs::metadata(&files.path).unwrap().len() >= before);
    assert_ne!(fs::read(&files.path).unwrap(), modified);
}

#[test]
fn a_full_database_costs_the_pending_changes_and_says_so() {
    let mut files = Files::new();
    let catalog = files.create();
    put(&catalog, InodeNo::ROOT, b"kept");
    catalog.commit().unwrap();
    catalog
        .lock()
        .conn
        .execute_batch("PRAGMA max_page_count = 60")
        .unwrap();
    let error = (0..).find_map(|i| {
        let inode = file(i + 100);
        let xattr = Change::put_xattr(inode.no, b"user.a", &[0; 3000]);
        catalog.apply(&[Change::PutInode(&inode), xattr]).err()
    });
    assert!(matches!(error, Some(CatalogError::NoSpace)), "{error:?}");
    assert!(matches!(catalog.commit(), Err(CatalogError::Poisoned)));
    assert!(matches!(
        catalog.apply(&[Change::DeleteInode(InodeNo(100))]),
        Err(CatalogError::Poisoned)
    ));
    assert!(
        matches!(
            catalog.all_inodes(InodeNo(0), 100),
            Err(CatalogError::Poisoned)
        ),
        "what was committed does not fit later answers"
    );
    drop(catalog);
    let catalog = open(&files.path).unwrap();
    assert_eq!(catalog.all_inodes(InodeNo(0), 100).unwrap().len(), 1);
    put(&catalog, InodeNo::ROOT, b"more");
    catalog.commit().unwrap();
}

#[test]
fn reading_only_changes_nothing_and_needs_no_writable_directory() {
    use std::os::unix::fs::PermissionsExt;
    let mut files = Files::new();
    let inodes = filled(&mut files);
    let before = fs::read(&files.path).unwrap();
    let dir = files.path.parent().unwrap().to_owned();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o555)).unwrap();
    let catalog = open_for_reading(&files.path).unwrap();
    assert_eq!(catalog.all_inodes(InodeNo(0), 1000).unwrap(), inodes);
    assert!(matches!(
        catalog.apply(&[Change::DeleteInode(inodes[0].no)]),
        Err(CatalogError::Io(_))
    ));
    assert_eq!(catalog.verify().unwrap(), [""; 0]);
    let copy = files.dir();
    catalog
        .copy_to(&beside(&copy), "catalog.db", &key(1))
        .unwrap();
    drop(catalog);
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(fs::read(&files.path).unwrap(), before);
    assert_eq!(fs::read(copy).unwrap(), before);
    assert_eq!(fs::read_dir(dir).unwrap().count(), 1);
}

#[test]
fn reading_only_after_a_crash_sees_the_log_and_leaves_it() {
    let mut files = Files::new();
    let catalog = files.create();
    put(&catalog, InodeNo::ROOT, b"in the log");
    catalog.commit().unwrap();
    let crashed = files.snapshot();
    let before = (
        fs::read(&crashed).unwrap(),
        fs::read(log_path(&crashed)).unwrap(),
    );
    let reader = open_for_reading(&crashed).unwrap();
    assert!(
        reader
            .lookup(InodeNo::ROOT, b"in the log")
            .unwrap()
            .is_some()
    );
    drop(reader);
    assert_eq!(
        (
            fs::read(&crashed).unwrap(),
            fs::read(log_path(&crashed)).unwrap()
        ),
        before
    );
}

#[test]
fn copies_open_under_their_key_with_everything_in_them() {
    let mut files = Files::new();
    let inodes = filled(&mut files);
    let catalog = open(&files.path).unwrap();
    let extra = put(&catalog, InodeNo::ROOT, b"pending when copied");
    for n in [1, 2] {
        let copy = files.dir();
        catalog
            .copy_to(&beside(&copy), "catalog.db", &key(n))
            .unwrap();
        let other = open_under(&copy, &key(n), &OpenOptions::default()).unwrap();
        assert_eq!(other.generation(), catalog.generation());
        assert_eq!(other.verify().unwrap(), [""; 0]);
        let mut expected = inodes.clone();
        expected.push(file(extra.0));
        assert_eq!(other.all_inodes(InodeNo(0), 1000).unwrap(), expected);
        assert_eq!(
            other
                .lookup(InodeNo::ROOT, b"pending when copied")
                .unwrap()
                .unwrap()
                .no,
            extra
        );
        assert_eq!(
            other.all_chunks(None, 1000).unwrap(),
            catalog.all_chunks(None, 1000).unwrap()
        );
        put(&other, InodeNo::ROOT, b"goes on");
        other.commit().unwrap();
        drop(other);
        let wrong = open_under(&copy, &key(3 - n), &OpenOptions::default());
        assert!(matches!(wrong, Err(CatalogError::NotThisRoom)));
        // The original goes on too.
        put(
            &catalog,
            InodeNo::ROOT,
            format!("after copy {n}").as_bytes(),
        );
        catalog.commit().unwrap();
        catalog
            .apply(&[
                Change::remove_entry(InodeNo::ROOT, format!("after copy {n}").as_bytes()),
                Change::DeleteInode(InodeNo(catalog.new_inode().0 - 1)),
            ])
            .unwrap();
    }
}

#[test]
fn threads_apply_commit_and_read_at_once() {
    let mut files = Files::new();
    let catalog = files.create();
    std::thread::scope(|scope| {
        for t in 0..4u64 {
            let catalog = &catalog;
            scope.spawn(move || {
                for i in 0..200 {
                    let no = put(catalog, InodeNo(t + 1), format!("{i}").as_bytes());
                    if i % 10 == t {
                        catalog.commit().unwrap();
                    }
                    assert_eq!(
                        catalog
                            .lookup(InodeNo(t + 1), format!("{i}").as_bytes())
                            .unwrap()
                            .unwrap()
                            .no,
                        no
                    );
                    if i % 50 == t {
                        catalog.checkpoint().unwrap();
                    }
                }
            });
        }
    });
    catalog.commit().unwrap();
    assert_eq!(catalog.inode_count().unwrap(), 800);
    drop(catalog);
    let catalog = open(&files.path).unwrap();
    assert_eq!(catalog.verify().unwrap(), [""; 0]);
    for t in 0..4 {
        assert_eq!(catalog.entries(InodeNo(t + 1), 0, 1000).unwrap().len(), 200);
    }
}

#[test]
fn the_files_hold_no_name_in_the_clear() {
    let mut files = Files::new();
    let catalog = files.create();
    for i in 0..50 {
        put(&catalog, InodeNo::ROOT, format!("MARKER-{i}").as_bytes());
    }
    catalog.commit().unwrap();
    for path in [files.path.clone(), log_path(&files.path)] {
        let bytes = fs::read(path).unwrap();
        assert!(!bytes.windows(6).any(|window| window == b"MARKER"));
        assert!(
            !bytes
                .windows(6)
                .any(|window| window == b"CREATE" || window == b"SQLite")
        );
    }
}
