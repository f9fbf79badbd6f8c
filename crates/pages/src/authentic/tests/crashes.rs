//! Power cut before each step that changes the storage, with a part of what was not synced kept.

use super::*;

type Faulty = FaultyStorage<MemoryStorage>;

/// Steps after which a plan of refusals stops the world.
const CHANGES: [Op; 7] = [
    Op::Create,
    Op::Write,
    Op::SetLen,
    Op::Sync,
    Op::Rename,
    Op::Remove,
    Op::SyncDir,
];

/// Runs `work` with every step from the `stop`-th on refused. Whether it came to its end.
fn run_until(
    memory: &MemoryStorage,
    stop: u64,
    work: impl FnOnce(&Faulty, &AtomicU64) -> Result<(), String>,
) -> (bool, u64) {
    let acknowledged = AtomicU64::new(0);
    let faulty = FaultyStorage::new(memory.clone());
    let seen = Arc::new(AtomicU64::new(0));
    let (counter, orders) = (seen.clone(), faulty.clone());
    faulty.observe(move |call| {
        if CHANGES.contains(&call.op) && counter.fetch_add(1, Ordering::Relaxed) + 1 == stop {
            for op in CHANGES {
                orders.refuse(op, 1, Fault::Io, Times::Always);
            }
        }
    });
    let ended = work(&faulty, &acknowledged).is_ok();
    (
        ended && seen.load(Ordering::Relaxed) < stop,
        acknowledged.load(Ordering::Relaxed),
    )
}

/// Commits of the values from `first` on, each made durable, with checkpoints in between and at the end.
fn commits(faulty: &Faulty, acknowledged: &AtomicU64, first: u8) -> Result<(), String> {
    let db = open(Arc::new(faulty.clone()))?;
    let message = |error: rusqlite::Error| error.to_string();
    let plain: &dyn Storage = faulty;
    for value in first..first + 5 {
        db.put(0..40, value).map_err(message)?;
        let log = plain.open(LOG, OpenMode::ReadWrite);
        log.and_then(|log| log.sync()).map_err(|e| e.to_string())?;
        acknowledged.store(value.into(), Ordering::Relaxed);
        if value % 2 == 0 {
            db.checkpoint().map_err(message)?;
        }
    }
    db.close().map_err(message)
}

fn base() -> MemoryStorage {
    let memory = MemoryStorage::new();
    let db = create(Arc::new(memory.clone())).unwrap();
    db.put(0..40, 1).unwrap();
    db.close().unwrap();
    for name in [DB, TABLE] {
        memory
            .open(name, OpenMode::ReadWrite)
            .unwrap()
            .sync()
            .unwrap();
    }
    memory.sync_dir("").unwrap();
    memory
}

#[test]
fn every_acknowledged_commit_survives_a_power_cut_at_every_step_and_another_in_the_recovery() {
    for stop in 1.. {
        let mut all_ended = true;
        for seed in 0..6 {
            let memory = base();
            let (ended, acknowledged) = run_until(&memory, stop, |f, a| commits(f, a, 2));
            all_ended &= ended;
            cut(&memory, seed);
            let acknowledged = acknowledged.max(1) as u8;
            // The recovery, and a crash in the middle of it.
            let (_, again) = run_until(&memory, 1 + (stop * 7 + seed) % 40, |f, a| {
                whole(&open(Arc::new(f.clone()))?, acknowledged)?;
                commits(f, a, 20)
            });
            cut(&memory, seed + 1);
            let db =
                open(Arc::new(memory)).unwrap_or_else(|e| panic!("step {stop}, seed {seed}: {e}"));
            whole(&db, acknowledged.max(again as u8))
                .unwrap_or_else(|e| panic!("step {stop}, seed {seed}: {e}"));
            db.put(0..40, 50).unwrap();
            db.checkpoint().unwrap();
            db.put(0..1, 51).unwrap();
            db.close().unwrap();
        }
        if all_ended {
            assert!(stop > 30, "there is more to do than {stop} steps");
            return;
        }
    }
}

fn cut(memory: &MemoryStorage, seed: u64) {
    if seed == 0 {
        memory.power_cut();
    } else {
        memory.power_cut_keeping_some(seed);
    }
}

/// All rows are of one commit, and that is no older than the acknowledged one.
fn whole(db: &Db, acknowledged: u8) -> Result<(), String> {
    let rows = db.rows()?;
    let values: std::collections::BTreeSet<u8> = rows.values().copied().collect();
    match values.first() {
        Some(value) if values.len() == 1 && rows.len() == 40 && *value >= acknowledged => Ok(()),
        _ => Err(format!("{values:?} after {acknowledged} was acknowledged")),
    }
}

#[test]
fn a_catalog_half_made_when_the_power_went_is_no_catalog_and_one_made_is_one() {
    for stop in 1.. {
        let memory = MemoryStorage::new();
        let (ended, _) = run_until(&memory, stop, |faulty, _| {
            let db = create(Arc::new(faulty.clone())).map_err(|e| e.to_string())?;
            db.put(0..40, 1).map_err(|e| e.to_string())?;
            db.close().map_err(|e| e.to_string())
        });
        memory.power_cut();
        if let Ok(db) = open(Arc::new(memory)) {
            // The log was not synced by itself: what is there is a beginning or everything.
            let rows = db.rows();
            assert!(
                rows.as_ref()
                    .is_ok_and(|rows| rows.is_empty() || rows.len() == 40)
                    || rows.as_ref().is_err_and(|e| e.contains("no such table")),
                "step {stop}: {rows:?}"
            );
        } else {
            assert!(!ended);
        }
        if ended {
            return;
        }
    }
}

#[test]
fn a_table_that_may_or_may_not_be_replaced_ends_writing_until_the_next_opening() {
    for op in [Op::Rename, Op::SyncDir] {
        let memory = base();
        let faulty = FaultyStorage::new(memory.clone());
        let db = open(Arc::new(faulty.clone())).unwrap();
        db.put(0..40, 2).unwrap();
        db.checkpoint().unwrap();
        faulty.refuse(op, 1, Fault::Io, Times::Once);
        for _ in 0..3 {
            assert!(db.put(0..40, 3).is_err());
        }
        assert_eq!(whole(&db, 2), Ok(()));
        keep_log(&db);
        drop(db);
        let db = open(Arc::new(memory)).unwrap();
        whole(&db, 2).unwrap();
        db.put(0..40, 4).unwrap();
        whole(&db, 4).unwrap();
    }
}

/// A process that dies, or a sync that fails, between the rename of the table and the directory's sync leaves the new
/// table for the next opening to see, and not yet durable. A log that stood on it was worth nothing after a power cut.
#[test]
fn a_log_begins_only_on_a_table_whose_name_is_durable() {
    let memory = base();
    let faulty = FaultyStorage::new(memory.clone());
    let db = open(Arc::new(faulty.clone())).unwrap();
    db.put(0..40, 2).unwrap();
    db.checkpoint().unwrap();
    faulty.refuse(Op::SyncDir, 1, Fault::Io, Times::Once);
    assert!(db.put(0..40, 3).is_err());
    keep_log(&db);
    drop(db);
    let db = open(Arc::new(memory.clone())).unwrap();
    db.put(0..40, 4).unwrap();
    memory
        .open(LOG, OpenMode::ReadWrite)
        .unwrap()
        .sync()
        .unwrap();
    memory.power_cut();
    drop(db);
    whole(&open(Arc::new(memory)).unwrap(), 4).unwrap();
}

#[test]
fn a_full_disk_is_found_by_the_checkpoint_and_the_log_goes_on() {
    let memory = base();
    let faulty = FaultyStorage::new(memory.clone());
    let db = open(Arc::new(faulty.clone())).unwrap();
    db.put(0..40, 2).unwrap();
    // The table's temporary file cannot be made.
    faulty.refuse(Op::Create, 1, Fault::NoSpace, Times::Always);
    assert!(db.checkpoint().is_err());
    db.put(0..40, 3).unwrap();
    faulty.heal();
    db.checkpoint().unwrap();
    db.put(0..40, 4).unwrap();
    keep_log(&db);
    drop(db);
    whole(&open(Arc::new(memory)).unwrap(), 4).unwrap();
}
