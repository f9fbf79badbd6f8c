//! The map of a file's first mebibyte: stores two blocks, replaces one, and says what to read and what to free.
//!
//! `cargo run -p strongroom-model --example map_a_file`

use model::{BLOCK_LEN, Chunk, Extent, NoncePart, Piece, Sealed, SegmentNo, Tags};

/// Blocks as a segment store returns them after an append.
fn append(segment: u64, position: u32, blocks: u32) -> Sealed {
    Sealed {
        segment: SegmentNo(segment),
        position,
        blocks,
        nonce: NoncePart::NONE,
        // One tag for each unit of four blocks.
        tags: Tags::from_elem([0; 16], blocks.div_ceil(4) as usize),
        digests: Vec::new(),
    }
}

fn main() {
    let mut chunk = Chunk::default();
    // Two blocks, at the beginning of the file.
    chunk.replace(0, 2, &[Extent::from_sealed(0, &append(1, 1, 2))]);
    // Overwritten whole: the old blocks are not referred to any more.
    let freed = chunk.replace(0, 2, &[Extent::from_sealed(0, &append(2, 1, 2))]);
    println!(
        "freed: segment {}, {} blocks",
        freed[0].range.segment.0, freed[0].range.blocks
    );

    for piece in chunk.pieces(0, 3 * BLOCK_LEN) {
        match piece {
            Piece::Stored(stored) => {
                println!("{} bytes in segment {}", stored.len, stored.range.segment.0);
            }
            Piece::Hole { len } => println!("{len} zeros"),
        }
    }
}
