//! Workloads in which another machine borrows places of segments, writes there itself, and places it into files.
//!
//! Invariant: the order of what is made never depends on anything but this file.

use room::{Room, Sealed, UNIT_BLOCKS, WriteGrant, WrittenExtent};
use storage::{OpenMode, Storage};

use super::step::{Step, bytes};
use super::{Start, Workload, steps_of};

const BLOCK: usize = 4096;
/// Blocks of a grant that is asked for again.
const GRANT_BLOCKS: u32 = 64;

/// What a borrower does, `;` between the steps of one.
const OPERATIONS: &[&str] = &[
    "grant 8; chmod foo 600; sync; place foo 0 5000",
    "grant 64; place foo 16384 40000; place A/foo 0 9000",
    "grant 8; place foo 49152 4000; settle",
    "grant 8; place foo 98304 100; append foo 50; truncate foo 98330",
    "grant 8; place A/bar 0 60; settle; unlink B/link; unlink A/bar",
    "grant 16; write A/foo 0 50; sync; place foo 0 20000; place foo 0 20000",
    "grant 4; grant 4; chmod foo 640; compact 100; place foo 4096 4096; sync; settle",
    "grant 2; settle",
    "grant 8; place foo 0 4096; settle; rekey 0; grant 8; place foo 4096 4096",
    "append foo 10; grant 8; place foo 4096 8192; copy foo 0 A/foo 0 16384; settle",
    "grant 8; place foo 0 4096; reopen; grant 8; place foo 4096 4096",
];

/// What is done between and behind them.
const BETWEEN: [&str; 3] = ["write A/foo 100 5000", "sync", "truncate foo 30000; sync"];

/// An operation (`*`) with snapshots around it.
const SNAPSHOTS: [&str; 2] = [
    "snapshot a; *; sync; snapshot b; delete-snapshot a; tend; close",
    "append foo 9000; snapshot a; *; delete-snapshot a; tend; sync",
];

/// Every one of the operations with each ending, with snapshots, and every two of them.
pub fn grants() -> Vec<Workload> {
    let mut all = Vec::new();
    let mut push = |text: String| {
        let steps = steps_of(&text, ';');
        let name = format!("grants:{}", all.len());
        all.push(Workload::new(name, Start::Granting, steps));
    };
    for one in OPERATIONS {
        push(format!("{one}; close"));
        push(format!("{one}; sync; write foo 0 100; sync"));
        SNAPSHOTS
            .iter()
            .for_each(|story| push(story.replace('*', one)));
    }
    for (first, between) in OPERATIONS.iter().zip(BETWEEN.iter().cycle()) {
        for second in OPERATIONS {
            push(format!("{first}; {between}; {second}; sync; close"));
        }
    }
    all
}

/// Write grants, and how many blocks of each were written.
#[derive(Debug, Default)]
pub(super) struct Grants(Vec<(WriteGrant, u32)>);

impl Grants {
    /// Carries out a step of a borrower, who reaches the segments in `storage`.
    pub(super) fn step(
        &mut self,
        room: &Room,
        storage: &dyn Storage,
        salt: u64,
        step: &Step,
    ) -> room::Result<()> {
        match step {
            Step::Grant(blocks) => {
                let grant = room.grant(self.0.len(), *blocks)?;
                self.0.push((grant, 0));
                Ok(())
            }
            Step::Place(path, offset, len) => {
                let no = room.resolve(path.as_ref(), false)?;
                if self.0.is_empty() {
                    // The storage failed when one was asked for.
                    self.0.push((room.grant(0, GRANT_BLOCKS)?, 0));
                }
                let (grant, used) = self.0.last_mut().expect("one was granted");
                let (sealed, end) = write(room, storage, grant, used, &bytes(salt, *len))?;
                let extent = WrittenExtent {
                    offset: *offset,
                    sealed,
                    end: offset + end,
                };
                room.place(grant.id, no, &[extent]).map(drop)
            }
            _ => {
                self.0
                    .drain(..)
                    .for_each(|(grant, _)| room.settle_grant(grant.id));
                Ok(())
            }
        }
    }
}

/// Seals data and writes it to the unused part of the grant. Returns its position and its length in bytes.
fn write(
    room: &Room,
    storage: &dyn Storage,
    grant: &WriteGrant,
    used: &mut u32,
    plain: &[u8],
) -> room::Result<(Sealed, u64)> {
    let mut data = plain.to_vec();
    data.resize(plain.len().next_multiple_of(BLOCK), 0);
    let blocks = (data.len() / BLOCK) as u32;
    if *used + blocks > grant.blocks {
        return Err(room::Error::InvalidArgument("nothing is left of the grant"));
    }
    let position = grant.position + *used;
    let nonce = grant.nonce_part()?;
    let positions = position..position + blocks;
    let keys = room.position_keys(grant.segment, &[positions])?;
    let keys = keys.ok_or(room::Error::NotFound)?;
    let mut cipher = keys.cipher();
    let positions = (position..).step_by(UNIT_BLOCKS as usize);
    let units = data.chunks_mut(UNIT_BLOCKS as usize * BLOCK);
    let tags: Option<room::Tags> = positions
        .zip(units)
        .map(|(at, unit)| cipher.seal(nonce, at, unit))
        .collect();
    let tags = tags.ok_or(room::Error::NotFound)?;
    let units = data.chunks(UNIT_BLOCKS as usize * BLOCK);
    let digests = units.map(room::unit_digest).collect();
    // Whatever becomes of the write: a position is sealed for once.
    *used += blocks;
    let name = format!("segments/{:020}", grant.segment.0);
    let file = storage.open(&name, OpenMode::ReadWrite)?;
    file.write_at(&data, u64::from(position) * BLOCK as u64)?;
    let sealed = Sealed {
        segment: grant.segment,
        position,
        blocks,
        nonce,
        tags,
        digests,
    };
    Ok((sealed, plain.len() as u64))
}
