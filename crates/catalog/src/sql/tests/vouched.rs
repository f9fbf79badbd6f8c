//! Catalogs whose pages are vouched for: the contract, copies, checks after a crash, and what is refused by name.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use seal::{CatalogKey, MasterKey, RoomId};
use storage::OpenMode;
use storage::testing::{Fault, FaultyStorage, MemoryStorage, Op, Times};

use super::*;

contract_tests!(Memory::default());

pub(super) const NAME: &str = "catalog.db";
const TABLE: &str = "catalog.db-pages";

#[derive(Default)]
struct Memory(MemoryStorage);

impl Maker for Memory {
    fn fresh(&mut self) -> Catalog {
        self.0 = MemoryStorage::new();
        create_in(Arc::new(self.0.clone()))
    }

    fn after_crash(&mut self) -> Catalog {
        open_in(Arc::new(copy_of(&self.0)), &digest_key(1)).unwrap()
    }
}

fn digest_key(n: u8) -> CatalogKey {
    let (master, room) = (MasterKey::from_bytes(&[n; 32]), RoomId::from_bytes([9; 16]));
    master
        .catalog_key(&room)
        .with_digest(master.page_digest_key(&room))
}

fn create_in(storage: Arc<dyn Storage>) -> Catalog {
    Catalog::create(&storage, NAME, &digest_key(1), &OpenOptions::default()).unwrap()
}

fn open_in(storage: Arc<dyn Storage>, key: &CatalogKey) -> Result<Catalog> {
    Catalog::open(&storage, NAME, key, &OpenOptions::default())
}

/// All files as another process would find them now.
pub(super) fn copy_of(memory: &MemoryStorage) -> MemoryStorage {
    let copy = MemoryStorage::new();
    for name in memory.list("").unwrap() {
        let bytes = storage::read_limited(memory, &name, 1 << 30).unwrap();
        storage::replace(&copy, &name, &bytes).unwrap();
    }
    copy
}

fn fill(catalog: &Catalog, names: std::ops::Range<u32>) {
    for i in names {
        put(catalog, InodeNo::ROOT, format!("some name {i}").as_bytes());
    }
    catalog.commit().unwrap();
}

#[test]
fn a_copy_under_any_key_has_its_table_and_nothing_else_beside_it() {
    let memory = MemoryStorage::new();
    let catalog = create_in(Arc::new(memory.clone()));
    fill(&catalog, 0..300);
    let left = copy_of(&memory);
    // Under another key, from one closed properly and opened for reading, and from one that a crash left.
    for (n, read_only) in [(1, None), (2, None), (1, Some(true)), (1, Some(false))] {
        let elsewhere = MemoryStorage::new();
        let target: Arc<dyn Storage> = Arc::new(elsewhere.clone());
        if let Some(closed) = read_only {
            let copy: Arc<dyn Storage> = Arc::new(copy_of(&left));
            if closed {
                drop(open_in(copy.clone(), &digest_key(1)).unwrap());
            }
            let options = OpenOptions::for_reading();
            Catalog::open(&copy, NAME, &digest_key(1), &options)
                .unwrap()
                .copy_to(&target, NAME, &digest_key(n))
                .unwrap();
        } else {
            catalog.copy_to(&target, NAME, &digest_key(n)).unwrap();
        }
        let mut names = elsewhere.list("").unwrap();
        names.sort();
        assert_eq!(names, [NAME, TABLE]);
        // Copies are durable, and live on.
        elsewhere.power_cut();
        for round in 0..2 {
            let copy = open_in(target.clone(), &digest_key(n)).unwrap();
            assert_eq!(copy.verify().unwrap(), [""; 0]);
            assert_eq!(copy.inode_count().unwrap(), 300 + round);
            fill(&copy, 900 + round as u32..901 + round as u32);
        }
    }
}

#[test]
fn a_check_after_a_crash_within_a_checkpoint_finds_nothing() {
    for stop in 1.. {
        let memory = MemoryStorage::new();
        let faulty = FaultyStorage::new(memory.clone());
        let catalog = create_in(Arc::new(faulty.clone()));
        fill(&catalog, 0..200);
        catalog.checkpoint().unwrap();
        fill(&catalog, 200..260);
        faulty.refuse(Op::Write, stop, Fault::Io, Times::Always);
        let ended = catalog.checkpoint().is_ok();
        let copy = copy_of(&memory);
        drop(catalog);
        for read_only in [true, false] {
            let options = OpenOptions {
                read_only,
                ..OpenOptions::default()
            };
            let storage: Arc<dyn Storage> = Arc::new(copy.clone());
            let catalog = Catalog::open(&storage, NAME, &digest_key(1), &options).unwrap();
            assert_eq!(catalog.verify().unwrap(), [""; 0], "after {stop} writes");
            assert_eq!(catalog.inode_count().unwrap(), 260);
        }
        if ended {
            assert!(stop > 5);
            return;
        }
    }
}

/// A commit syncs the log without the lock. A checkpoint of another thread may come just before: what it moves into the
/// catalog's file must not be durable before the log is.
#[test]
fn a_checkpoint_beside_a_commit_moves_nothing_that_is_not_durable() {
    let memory = MemoryStorage::new();
    let faulty = FaultyStorage::new(memory.clone());
    let catalog = Arc::new(create_in(Arc::new(faulty.clone())));
    fill(&catalog, 0..200);
    catalog.checkpoint().unwrap();
    // Starts the log over: most pages are not in it.
    fill(&catalog, 200..201);
    let (other, power) = (catalog.clone(), memory.clone());
    let cut = Arc::new(AtomicBool::new(false));
    let once = cut.clone();
    faulty.observe(move |call| {
        if call.op == Op::Sync && call.path.ends_with("-wal") && !once.swap(true, Relaxed) {
            other.checkpoint().unwrap();
            power.power_cut();
        }
    });
    for i in 201..500 {
        put(&catalog, InodeNo::ROOT, format!("some name {i}").as_bytes());
    }
    // The power went in between: whether this says so does not matter.
    let _ = catalog.commit();
    assert!(cut.load(Relaxed));
    let after = open_in(Arc::new(copy_of(&memory)), &digest_key(1)).unwrap();
    assert_eq!(after.verify().unwrap(), [""; 0]);
    assert!(after.inode_count().unwrap() >= 201);
}

#[test]
fn what_does_not_belong_together_is_refused_by_name() {
    let memory = MemoryStorage::new();
    let catalog = create_in(Arc::new(memory.clone()));
    fill(&catalog, 0..300);
    drop(catalog);
    let before = copy_of(&memory);
    fill(
        &open_in(Arc::new(memory.clone()), &digest_key(1)).unwrap(),
        300..600,
    );
    let wrong = open_in(Arc::new(memory.clone()), &digest_key(2)).unwrap_err();
    assert!(matches!(wrong, CatalogError::NotThisRoom), "{wrong}");

    let missing = copy_of(&memory);
    missing.remove(TABLE).unwrap();
    let missing = open_in(Arc::new(missing), &digest_key(1)).unwrap_err();
    assert!(
        matches!(&missing, CatalogError::Damaged(what) if what == "catalog.db-pages is missing"),
        "{missing}"
    );

    // Each page put back to its older version: found at the opening, at a read or by the check.
    let old = storage::read_limited(&before, NAME, 1 << 30).unwrap();
    let mut found = 0;
    for page in 0..old.len() / 4096 {
        let mixed = copy_of(&memory);
        let file = mixed.open(NAME, OpenMode::ReadWrite).unwrap();
        let (mut now, then) = (vec![0; 4096], &old[page * 4096..][..4096]);
        file.read_at(&mut now, page as u64 * 4096).unwrap();
        if now == then {
            continue;
        }
        file.write_at(then, page as u64 * 4096).unwrap();
        found += 1;
        let opened = open_in(Arc::new(mixed), &digest_key(1));
        let said = match opened.and_then(|catalog| catalog.verify()) {
            Ok(findings) => findings.join("; "),
            Err(error) => error.to_string(),
        };
        let expected = format!(
            "page {} of catalog.db was replaced by another version",
            page + 1
        );
        assert!(said.contains(&expected), "{said}");
    }
    assert!(found > 3, "{found}");
}
