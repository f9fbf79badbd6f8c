//! Prints what a snapshot costs the catalog's operations, in microseconds each, with and without one:
//! `cargo run --release -p strongroom-catalog --example snapshots [DIRECTORY]`.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use seal::{MasterKey, RoomId};
use storage::{HostStorage, Storage};
use strongroom_catalog::{Catalog, Change, FileKind, Inode, InodeNo, OpenOptions, Timestamp};

const FILES: u64 = 1000;
const ROUNDS: usize = 9;

/// The costs of one round, by operation.
type Costs = [f64; OPERATIONS.len()];
const OPERATIONS: [&str; 4] = ["create", "update of an inode", "rename", "remove"];

fn main() -> Result<(), Box<dyn Error>> {
    let base = std::env::args_os()
        .nth(1)
        .map_or_else(std::env::temp_dir, Into::into);
    let mut rounds: [Vec<Costs>; 2] = [Vec::new(), Vec::new()];
    for round in 0..2 * ROUNDS {
        let with = round % 2;
        let dir = base.join(format!("snapshot-costs-{}", std::process::id()));
        std::fs::create_dir(&dir)?;
        let costs = measure(&dir, with == 1);
        std::fs::remove_dir_all(&dir)?;
        rounds[with].push(costs?);
    }
    println!("{:>12} {:>12} {:>8}", "none", "one", "ratio");
    for (index, what) in OPERATIONS.iter().enumerate() {
        let [none, one] = [&rounds[0], &rounds[1]].map(|costs| median(costs, index));
        println!("{none:>9.2} µs {one:>9.2} µs {:>8.3}  {what}", none / one);
    }
    Ok(())
}

fn median(costs: &[Costs], index: usize) -> f64 {
    let mut costs: Vec<f64> = costs.iter().map(|costs| costs[index]).collect();
    costs.sort_by(f64::total_cmp);
    costs[costs.len() / 2]
}

/// On 1,000 files that the snapshot has, and 1,000 more that are created.
fn measure(dir: &std::path::Path, with_snapshot: bool) -> Result<Costs, Box<dyn Error>> {
    let storage: Arc<dyn Storage> = Arc::new(HostStorage::open(dir)?);
    let key = MasterKey::from_bytes(&[1; 32]).catalog_key(&RoomId::from_bytes([1; 16]));
    let catalog = Catalog::create(&storage, "catalog.db", &key, &OpenOptions::default())?;
    let parent = catalog.new_inode();
    let directory = file(parent.0);
    catalog.apply(&[Change::PutInode(&directory)])?;
    let name = |i: u64| format!("file-{i}.rs").into_bytes();
    let create = |i: u64| {
        let inode = file(catalog.new_inode().0);
        // As in a room, with the directory's times.
        catalog.apply(&[
            Change::PutInode(&inode),
            Change::put_entry(parent, &name(i), inode.no, FileKind::Regular),
            Change::PutInode(&directory),
        ])
    };
    for i in 0..FILES {
        create(i)?;
    }
    if with_snapshot {
        let now = directory.mtime;
        let snapshot = catalog.new_snapshot("then", now, false);
        catalog.apply(&[Change::CreateSnapshot(&snapshot)])?;
    }
    catalog.commit()?;
    catalog.checkpoint()?;

    let timed = |each: &dyn Fn(u64) -> strongroom_catalog::Result<()>| {
        let start = Instant::now();
        for i in 0..FILES {
            each(i)?;
        }
        let cost = start.elapsed().as_secs_f64() * 1e6 / FILES as f64;
        catalog.commit()?;
        Ok::<_, strongroom_catalog::CatalogError>(cost)
    };
    Ok([
        timed(&|i| create(FILES + i))?,
        timed(&|i| {
            let no = InodeNo(parent.0 + 1 + i);
            catalog.apply(&[Change::PutInode(&file(no.0))])
        })?,
        timed(&|i| {
            catalog.apply(&[
                Change::rename_entry(parent, &name(i), &[&name(i)[..], b"x"].concat()),
                Change::PutInode(&directory),
            ])
        })?,
        timed(&|i| {
            catalog.apply(&[
                Change::remove_entry(parent, &[&name(i)[..], b"x"].concat()),
                Change::DeleteInode(InodeNo(parent.0 + 1 + i)),
                Change::PutInode(&directory),
            ])
        })?,
    ])
}

fn file(no: u64) -> Inode {
    let time = Timestamp::new(1_790_000_000, 123_456_789);
    Inode {
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        size: 4096,
        blocks: 1,
        ..Inode::new(InodeNo(no), FileKind::Regular, time)
    }
}
