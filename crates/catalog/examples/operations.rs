//! Prints what the catalog's operations cost, in microseconds each: `cargo run --release -p strongroom-catalog --example operations [DIRECTORY]`.
//!
//! The directory (the system's temporary one if none is given) decides what a durable commit costs.

use std::sync::Arc;
use std::time::Instant;

use seal::{MasterKey, RoomId};
use storage::{HostStorage, Storage};
use strongroom_catalog::{
    BlockRange, CHUNK_BLOCKS, Catalog, Change, Chunk, Extent, FileKind, Inode, InodeNo, NoncePart,
    OpenOptions, SegmentNo, Tags, Timestamp,
};

const FILES: u64 = 100_000;
const COMMITS: u64 = 500;
const WRITES: u64 = 65_536;
const CHUNKS: u64 = 256;
const NAMES: u64 = 1_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let base = std::env::args_os()
        .nth(1)
        .map_or_else(std::env::temp_dir, Into::into);
    let dir = base.join(format!("catalog-costs-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let measured = measure(&dir);
    std::fs::remove_dir_all(&dir)?;
    measured
}

fn measure(dir: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let storage: Arc<dyn Storage> = Arc::new(HostStorage::open(dir)?);
    let key = MasterKey::from_bytes(&[1; 32]).catalog_key(&RoomId::from_bytes([1; 16]));
    let catalog = Catalog::create(&storage, "catalog.db", &key, &OpenOptions::default())?;
    // Directories of 100 files, as in a source tree.
    let place = |i: u64| {
        (
            InodeNo(1_000_000 + i / 100),
            format!("file-{i}.rs").into_bytes(),
        )
    };

    timed(
        "create: inode, entry and chunk, in one transaction",
        FILES,
        |i| {
            let inode = file(catalog.new_inode().0);
            let (parent, name) = place(i);
            let chunk = small_chunk(i as u32 + 1);
            catalog.apply(&[
                Change::PutInode(&inode),
                Change::put_entry(parent, &name, inode.no, FileKind::Regular),
                Change::put_chunk(inode.no, 0, &chunk),
            ])
        },
    )?;
    timed("their commit", 1, |_| catalog.commit().map(drop))?;
    timed("its checkpoint", 1, |_| catalog.checkpoint())?;
    println!(
        "  {:.1} bytes a file",
        std::fs::metadata(dir.join("catalog.db"))?.len() as f64 / FILES as f64
    );
    timed("lookup", FILES, |i| {
        let (parent, name) = place(scattered(i) % FILES);
        catalog
            .lookup(parent, &name)
            .map(|found| assert!(found.is_some()))
    })?;
    timed("inode", FILES, |i| {
        catalog
            .inode(InodeNo(2 + scattered(i) % FILES))
            .map(|found| assert!(found.is_some()))
    })?;
    timed("entries with inodes, an entry", FILES / 100, |i| {
        catalog
            .entries_plus(place(i * 100).0, 0, 1000)
            .map(|list| assert_eq!(list.len(), 100))
    })?;
    timed("update of an inode, in one transaction", FILES, |i| {
        catalog.apply(&[Change::PutInode(&file(2 + scattered(i) % FILES))])
    })?;
    catalog.commit()?;
    catalog.checkpoint()?;
    for round in ["create with its own durable commit", "the same again"] {
        timed(round, COMMITS, |i| {
            let inode = file(catalog.new_inode().0);
            let name = format!("{round} {i}").into_bytes();
            catalog.apply(&[
                Change::PutInode(&inode),
                Change::put_entry(InodeNo(2_000_000), &name, inode.no, FileKind::Regular),
            ])?;
            catalog.commit().map(drop)
        })?;
        catalog.checkpoint()?;
    }
    timed("remove: inode and entry, in one transaction", FILES, |i| {
        let (parent, name) = place(i);
        catalog.apply(&[
            Change::remove_entry(parent, &name),
            Change::DeleteInode(InodeNo(2 + i)),
        ])
    })?;
    timed("their commit", 1, |_| catalog.commit().map(drop))?;
    catalog.checkpoint()?;
    chunks(&catalog)?;
    names(&catalog)?;
    Ok(timed("closing", 1, |_| Ok(()))?)
}

/// Single blocks written at random places of 256 MiB.
fn chunks(catalog: &Catalog) -> strongroom_catalog::Result<()> {
    let inode = InodeNo(3_000_000);
    let mut maps = vec![Chunk::default(); CHUNKS as usize];
    timed("chunk: one block replaced in memory", WRITES, |i| {
        let at = scattered(i);
        let (index, block) = ((at >> 8) % CHUNKS, at as u16 % CHUNK_BLOCKS as u16);
        maps[index as usize].replace(block, 1, &[block_extent(block, 1 + i as u32)]);
        Ok(())
    })?;
    timed(
        "chunk: one block replaced in memory, all full",
        WRITES,
        |i| {
            let at = scattered(i + WRITES);
            let (index, block) = ((at >> 8) % CHUNKS, at as u16 % CHUNK_BLOCKS as u16);
            maps[index as usize].replace(block, 1, &[block_extent(block, 100_000 + i as u32)]);
            Ok(())
        },
    )?;
    let put = |i: u64, maps: &[Chunk]| {
        let index = (scattered(i) >> 8) % CHUNKS;
        catalog.apply(&[Change::put_chunk(inode, index, &maps[index as usize])])
    };
    timed(
        "chunk: put each of 256, with about 160 extents",
        CHUNKS,
        |index| catalog.apply(&[Change::put_chunk(inode, index, &maps[index as usize])]),
    )?;
    timed("their commit", 1, |_| catalog.commit().map(drop))?;
    timed("chunk: put after each of 65,536 writes", WRITES, |i| {
        put(i, &maps)
    })?;
    timed("their commit", 1, |_| catalog.commit().map(drop))?;
    timed("chunk: read", CHUNKS, |index| {
        catalog
            .chunk(inode, index)
            .map(|map| assert!(!map.is_empty()))
    })?;
    catalog.checkpoint()
}

/// One directory of a million names.
fn names(catalog: &Catalog) -> strongroom_catalog::Result<()> {
    let parent = InodeNo(4_000_000);
    timed("entry: one of a million in one directory", NAMES, |i| {
        let name = format!("{i}").into_bytes();
        catalog.apply(&[Change::put_entry(
            parent,
            &name,
            InodeNo(2),
            FileKind::Regular,
        )])?;
        if i % 50_000 == 49_999 {
            catalog.commit()?;
            catalog.checkpoint()?;
        }
        Ok(())
    })?;
    timed("entry: listed", 1, |_| {
        let mut after = 0;
        while let Some(last) = catalog.entries(parent, after, 1000)?.last() {
            after = last.cookie;
        }
        Ok(())
    })
}

fn timed(
    what: &str,
    count: u64,
    mut each: impl FnMut(u64) -> strongroom_catalog::Result<()>,
) -> strongroom_catalog::Result<()> {
    let start = Instant::now();
    for i in 0..count {
        each(i)?;
    }
    println!(
        "{:>12.2} µs  {what}",
        start.elapsed().as_secs_f64() * 1e6 / count as f64
    );
    Ok(())
}

/// A bijection on 64 bits that scatters neighbours.
fn scattered(i: u64) -> u64 {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(29)
}

fn block_extent(first: u16, position: u32) -> Extent {
    Extent {
        first,
        blocks: 1,
        segment: SegmentNo(1),
        position,
        skip: 0,
        stored: 1,
        shared: false,
        nonce: NoncePart::NONE,
        tags: Tags::from([[7; 16]]),
        digests: Vec::new(),
    }
}

fn small_chunk(position: u32) -> Chunk {
    let extent = block_extent(0, position);
    assert_eq!(
        extent.range(),
        BlockRange {
            segment: SegmentNo(1),
            position,
            blocks: 1
        }
    );
    let mut chunk = Chunk::default();
    chunk.replace(0, 1, &[extent]);
    chunk
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
