//! Prints what it costs to vouch for the catalog's pages: the same work with and without, turn by turn, in one run; the best
//! turn of each, and the processor's time in the mean, which a busy machine changes less:
//! `cargo run --release --example vouching [DIRECTORY [INODES]]`.
//!
//! The directory (the system's temporary one if none is given) decides what a durable commit costs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use seal::{CatalogKey, MasterKey, RoomId};
use storage::{HostStorage, Storage};
use strongroom_catalog::{Catalog, Change, FileKind, Inode, InodeNo, OpenOptions, Timestamp};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const TURNS: u64 = 20;
const COMMITS: u64 = 100;
const OPENINGS: u32 = 30;
/// Inodes looked at after each opening.
const WALK: u64 = 4000;

struct Side {
    name: &'static str,
    storage: Arc<dyn Storage>,
    key: CatalogKey,
    catalog: Option<Catalog>,
    /// The shortest time of each kind of work.
    best: [Duration; 5],
    /// Processor time in all.
    cpu: [Duration; 5],
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let base = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let inodes: u64 = arguments
        .next()
        .map_or(Ok(100_000), |number| number.parse())?;
    let dir = base.join(format!("vouching-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let measured = measure(&dir, inodes);
    std::fs::remove_dir_all(&dir)?;
    measured
}

fn measure(dir: &std::path::Path, inodes: u64) -> Outcome<()> {
    let (master, room) = (MasterKey::from_bytes(&[1; 32]), RoomId::from_bytes([1; 16]));
    let plain = master.catalog_key(&room);
    let vouched = plain.clone().with_digest(master.page_digest_key(&room));
    let mut sides = Vec::new();
    for (name, key) in [("plain", plain), ("vouched", vouched)] {
        std::fs::create_dir(dir.join(name))?;
        let storage: Arc<dyn Storage> = Arc::new(HostStorage::open(&dir.join(name))?);
        let catalog = Catalog::create(&storage, "catalog.db", &key, &OpenOptions::default())?;
        sides.push(Side {
            name,
            storage,
            key,
            catalog: Some(catalog),
            best: [Duration::MAX; 5],
            cpu: [Duration::ZERO; 5],
        });
    }
    for turn in 0..TURNS {
        // The first of one turn is the second in the next.
        sides.reverse();
        for side in &mut sides {
            let Some(catalog) = side.catalog.take() else {
                continue;
            };
            let share = inodes / TURNS;
            let begun = now();
            for i in turn * share..(turn + 1) * share {
                make(&catalog, i)?;
                if i % 10_000 == 9_999 {
                    catalog.commit()?;
                }
            }
            catalog.commit()?;
            side.took(0, begun);
            let begun = now();
            for i in 0..COMMITS {
                make(&catalog, inodes + turn * COMMITS + i)?;
                catalog.commit()?;
            }
            side.took(1, begun);
            let begun = now();
            catalog.checkpoint()?;
            // The log starts over with this commit.
            make(&catalog, 2 * inodes + turn)?;
            catalog.commit()?;
            side.took(2, begun);
            side.catalog = Some(catalog);
        }
    }
    for side in &mut sides {
        side.catalog = None;
    }
    for _ in 0..OPENINGS {
        sides.reverse();
        for side in &mut sides {
            let begun = now();
            let catalog = Catalog::open(
                &side.storage,
                "catalog.db",
                &side.key,
                &OpenOptions::default(),
            )?;
            side.took(3, begun);
            let begun = now();
            for first in (0..WALK).step_by(1000) {
                catalog.all_inodes(InodeNo(first), 1000)?;
            }
            side.took(4, begun);
        }
    }
    sides.sort_by_key(|side| side.name);
    let bytes = |side: &Side, name: &str| {
        side.storage
            .open(name, storage::OpenMode::Read)
            .and_then(|file| file.len())
    };
    println!(
        "catalog of {inodes} inodes, {} MiB, table {} KiB",
        bytes(&sides[1], "catalog.db")? >> 20,
        bytes(&sides[1], "catalog.db-pages")? >> 10
    );
    let (turns, openings) = (TURNS, u64::from(OPENINGS));
    let lines = [
        ("an inode made, in commits of 10000", inodes / TURNS, turns),
        ("a commit of one inode", COMMITS, turns),
        ("a checkpoint and the next commit", 1, turns),
        ("an opening", 1, openings),
        ("a walk over 4000 inodes", 1, openings),
    ];
    for (index, (what, count, rounds)) in lines.into_iter().enumerate() {
        let count = count.max(1) as f64;
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / count;
        let best = [0, 1].map(|side: usize| micros(sides[side].best[index]));
        let cpu = [0, 1].map(|side: usize| micros(sides[side].cpu[index]));
        let cpu = cpu.map(|time| time / rounds as f64);
        println!(
            "{what}: best {:.1} µs plain, {:.1} vouched, ratio {:.3}; processor {:.1} µs plain, {:.1} vouched, ratio {:.3}",
            best[0],
            best[1],
            best[1] / best[0],
            cpu[0],
            cpu[1],
            cpu[1] / cpu[0]
        );
    }
    Ok(())
}

/// The time, and the processor's time that this process has used.
fn now() -> (Instant, Duration) {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let used = Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec as u32);
    (Instant::now(), used)
}

impl Side {
    fn took(&mut self, work: usize, begun: (Instant, Duration)) {
        let (time, cpu) = now();
        self.best[work] = self.best[work].min(time - begun.0);
        self.cpu[work] += cpu - begun.1;
    }
}

fn make(catalog: &Catalog, i: u64) -> Outcome<()> {
    let time = Timestamp {
        secs: 1_700_000_000,
        nanos: 5,
    };
    let inode = Inode {
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        size: 5000,
        blocks: 2,
        parent: InodeNo(1 + i / 100),
        ..Inode::new(catalog.new_inode(), FileKind::Regular, time)
    };
    catalog.apply(&[
        Change::PutInode(&inode),
        Change::PutEntry {
            parent: inode.parent,
            name: format!("file-{i}.rs").as_bytes(),
            inode: inode.no,
            kind: inode.kind,
        },
    ])?;
    Ok(())
}
