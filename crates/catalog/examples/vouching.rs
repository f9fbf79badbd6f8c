//! Prints what it costs to vouch for the catalog's pages: the same work with and without, turn by turn, in one run:
//! `cargo run --release --example vouching [DIRECTORY [INODES]]`.
//!
//! The directory (the system's temporary one if none is given) decides what a durable commit costs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use seal::{CatalogKey, MasterKey, RoomId};
use storage::{HostStorage, Storage};
use strongroom_catalog::{
    Catalog, Change, FileKind, Inode, InodeNo, OpenOptions, SqlCatalog, Timestamp,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const TURNS: u64 = 20;
const COMMITS: u64 = 100;
const OPENINGS: u32 = 10;

struct Side {
    name: &'static str,
    storage: Arc<dyn Storage>,
    key: CatalogKey,
    catalog: Option<SqlCatalog>,
    spent: [Duration; 5],
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
        let catalog = SqlCatalog::create(&storage, "catalog.db", &key, &OpenOptions::default())?;
        sides.push(Side {
            name,
            storage,
            key,
            catalog: Some(catalog),
            spent: [Duration::ZERO; 5],
        });
    }
    for turn in 0..TURNS {
        // Whoever comes first in one turn comes second in the next.
        sides.reverse();
        for side in &mut sides {
            let Some(catalog) = &side.catalog else {
                continue;
            };
            let share = inodes / TURNS;
            let begun = Instant::now();
            for i in turn * share..(turn + 1) * share {
                make(catalog, i)?;
                if i % 10_000 == 9_999 {
                    catalog.commit()?;
                }
            }
            catalog.commit()?;
            side.spent[0] += begun.elapsed();
            let begun = Instant::now();
            for i in 0..COMMITS {
                make(catalog, inodes + turn * COMMITS + i)?;
                catalog.commit()?;
            }
            side.spent[1] += begun.elapsed();
            let begun = Instant::now();
            catalog.checkpoint()?;
            // The log begins anew with this commit.
            make(catalog, 2 * inodes + turn)?;
            catalog.commit()?;
            side.spent[2] += begun.elapsed();
        }
    }
    for side in &mut sides {
        side.catalog = None;
    }
    for _ in 0..OPENINGS {
        sides.reverse();
        for side in &mut sides {
            let begun = Instant::now();
            let catalog = SqlCatalog::open(
                &side.storage,
                "catalog.db",
                &side.key,
                &OpenOptions::default(),
            )?;
            side.spent[3] += begun.elapsed();
            let begun = Instant::now();
            for first in (0..inodes).step_by(1000) {
                catalog.all_inodes(InodeNo(first), 1000)?;
            }
            side.spent[4] += begun.elapsed();
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
    let lines = [
        ("an inode made, in commits of 10000", inodes),
        ("a commit of one inode", TURNS * COMMITS),
        ("a checkpoint and the next commit", TURNS),
        ("an opening", u64::from(OPENINGS)),
        ("a walk over all inodes", u64::from(OPENINGS)),
    ];
    for (index, (what, count)) in lines.into_iter().enumerate() {
        let [plain, vouched] = [0, 1]
            .map(|side: usize| sides[side].spent[index].as_secs_f64() * 1e6 / count.max(1) as f64);
        println!(
            "{what}: {plain:.1} µs plain, {vouched:.1} µs vouched, ratio {:.3}",
            vouched / plain
        );
    }
    Ok(())
}

fn make(catalog: &SqlCatalog, i: u64) -> Outcome<()> {
    let time = Timestamp {
        secs: 1_700_000_000,
        nanos: 5,
    };
    let inode = Inode {
        no: catalog.new_inode(),
        kind: FileKind::Regular,
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        nlink: 1,
        size: 5000,
        blocks: 2,
        rdev: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        parent: InodeNo(1 + i / 100),
        has_xattrs: false,
        target: Vec::new(),
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
