//! How much memory the map of a chunk takes while it is read, whatever its bytes say. In a program of its own, with
//! one test: the allocator counts for the whole process.

use peak_alloc::PeakAlloc;
use strongroom_catalog::{CHUNK_BLOCKS, Chunk, Extent};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// A full chunk of extents of one block, each with its tag, kept twice while a list of them grows.
const MOST: usize = 2 * CHUNK_BLOCKS as usize * (size_of::<Extent>() + 64);
/// The bytes that are read; a row of the database can be longer still.
const LEN: usize = 64 << 20;

/// One block at `first`, at position 1 of segment 1.
fn record(first: u8, less_one: u8) -> Vec<u8> {
    let tags = (usize::from(less_one) + 1).div_ceil(4);
    [
        &[first, less_one, 0][..],
        &1u32.to_le_bytes(),
        &1u64.to_le_bytes(),
        &vec![7; 16 * tags],
    ]
    .concat()
}

#[test]
fn no_map_takes_more_memory_than_a_chunk_can_need() {
    let every_block: Vec<u8> = (0..=255).flat_map(|first| record(first, 0)).collect();
    let whole = record(0, 255);
    let hostile = [
        (
            "a map for every block, and again",
            every_block.repeat(LEN / every_block.len()),
        ),
        (
            "the whole chunk, and again",
            whole.repeat(LEN / whole.len()),
        ),
        ("zeros", vec![0; LEN]),
        ("ones", vec![0xff; LEN]),
    ];
    for (what, bytes) in hostile {
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let refused = Chunk::decode(&bytes);
        let memory = MEMORY.peak_usage() - before;
        let problem = refused.expect_err(what);
        assert!(problem.len() < 200, "{what}: {problem}");
        assert!(memory < MOST, "{what}: {memory} bytes");
    }
    let chunk = Chunk::decode(&every_block).unwrap();
    assert_eq!(chunk.extents().len(), CHUNK_BLOCKS as usize);
}
