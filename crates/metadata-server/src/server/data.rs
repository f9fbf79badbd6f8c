//! Maps, write grants, and data that clients wrote.
//!
//! 1. A map and the capabilities for it are of one moment: nothing it names is given to another before they are known of.
//! 2. A client gets the keys of the units that the map names, or of the positions granted to it, and no others.
//! 3. What a client placed is believed only as far as the loan goes: its disk, its segment, its blocks.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Instant;

use metadata_proto::rpc::{Delay, Lent, Map, Posix, Refusal, Reply, SegmentPlace, Written};
use netdisk::{BlockExtent, Boot, DiskId};
use room::{Error, FileKind, InodeNo, LoanId, Placed, SeekTo, SegmentNo, SetAttr};

use super::calls::{Here, refusal};
use super::files::Found;
use super::life::Life;
use crate::authority::REVOCATION_WAIT;
use crate::placement::Lost;
use crate::policy::Subject;
use crate::sessions::Borrowed;

/// Most chunks of one map.
const CHUNKS_MAX: u32 = 64;
/// Most pieces of data placed at once.
const PLACED_MAX: usize = 4096;
const PRIVILEGES: u16 = 0o6000;
const CAPABILITY: &[u8] = b"security.capability";

/// Where a segment is, with the keys of these positions.
fn segment_place(
    server: &Life,
    segment: SegmentNo,
    positions: &[Range<u32>],
) -> Reply<SegmentPlace> {
    let keys = server.room.position_keys(segment, positions);
    match (keys.map_err(refusal)?, server.storage.locate(segment)) {
        (Some(keys), Some((disk, start))) => Ok(SegmentPlace {
            segment,
            keys,
            disk,
            start,
        }),
        _ => Err(Refusal::Failed(format!(
            "segment {} is nowhere: run `strongroom check`",
            segment.0
        ))),
    }
}

pub(super) fn map((life, session): &Here, no: InodeNo, first: u64, count: u32) -> Reply<Map> {
    if !(1..=CHUNKS_MAX).contains(&count) {
        return Err(Refusal::Posix(Posix::InvalidArgument));
    }
    let _rights = life.rights.read();
    let _telling = life.authority.telling();
    let found = life.reach(session, no).map_err(refusal)?;
    session.subject.read(found.object()).map_err(refusal)?;
    let maps = life.room.maps(no, first, count as usize).map_err(refusal)?;
    // What the maps say may be newer than what was found above.
    let inode = life.room.attributes(no).map_err(refusal)?;
    let mut named: BTreeMap<SegmentNo, Vec<Range<u32>>> = BTreeMap::new();
    let mut chunks = Vec::with_capacity(maps.len());
    for (index, chunk) in maps {
        for range in chunk.extents().iter().map(|extent| extent.range()) {
            let positions = range.position..range.position + range.blocks;
            named.entry(range.segment).or_default().push(positions);
        }
        chunks.push((index, chunk.extents().to_vec()));
    }
    let mut segments = Vec::with_capacity(named.len());
    let mut blocks: BTreeMap<DiskId, Vec<BlockExtent>> = BTreeMap::new();
    for (segment, positions) in named {
        let place = segment_place(life, segment, &positions)?;
        let on_disk = positions.iter().map(|range| BlockExtent {
            start: place.start + u64::from(range.start),
            blocks: range.len() as u64,
        });
        blocks.entry(place.disk).or_default().extend(on_disk);
        segments.push(place);
    }
    let tickets = life.authority.read_tickets(session, no, &blocks)?;
    Ok(Map {
        inode,
        chunks,
        segments,
        tickets,
    })
}

pub(super) fn seek((server, session): &Here, no: InodeNo, offset: u64, hole: bool) -> Reply<u64> {
    let found = {
        let _rights = server.rights.read();
        server.reach(session, no).map_err(refusal)?
    };
    session.subject.read(found.object()).map_err(refusal)?;
    if offset >= found.inode.size {
        return Err(Refusal::Posix(Posix::NoMoreData));
    }
    let to = if hole { SeekTo::Hole } else { SeekTo::Data };
    server.room.seek(no, offset, to).map_err(refusal)
}

pub(super) fn lend((life, session): &Here, blocks: u32) -> Reply<Lent> {
    session.may_borrow()?;
    // An open segment for each disk, by turns: what is written in a row is on all disks.
    let lane = life.next_lane.fetch_add(1, Ordering::Relaxed) % life.authority.disk_count().max(1);
    let loan = life.room.lend(lane, blocks).map_err(refusal)?;
    let settle = |e| {
        life.room.settle_loan(loan.id);
        e
    };
    let room::Loan {
        id,
        segment,
        position,
        blocks,
        append_nonces,
    } = loan;
    let granted = position..position + blocks;
    let place = segment_place(life, segment, &[granted]).map_err(settle)?;
    let extent = BlockExtent {
        start: place.start + u64::from(position),
        blocks: u64::from(blocks),
    };
    let ticket = life
        .authority
        .write_ticket(session, id, place.disk, extent)
        .map_err(settle)?;
    let borrowed = Borrowed {
        segment,
        disk: place.disk,
        extent,
        files: BTreeSet::new(),
    };
    if let Err(e) = session.borrow(loan.id, borrowed) {
        // The session has ended: its capabilities are revoked by whoever ends it, and this one here.
        if life
            .authority
            .revoke_loans(&[loan.id], Instant::now() + REVOCATION_WAIT)
            .is_ok()
        {
            life.room.settle_loan(loan.id);
        }
        return Err(e);
    }
    Ok(Lent {
        loan: id,
        place,
        position,
        blocks,
        append_nonces,
        ticket,
    })
}

/// Takes set-id bits and file capabilities away before another than root changes data.
pub(super) fn drop_privileges(life: &Life, subject: &Subject, found: &Found) -> room::Result<()> {
    let inode = &found.inode;
    if subject.is_root() || inode.kind != FileKind::Regular {
        return Ok(());
    }
    let has_capability = inode.has_xattrs
        && match life.room.xattr(inode.no, CAPABILITY) {
            Ok(_) => true,
            Err(Error::NoXattr) => false,
            Err(e) => return Err(e),
        };
    if inode.mode & PRIVILEGES != 0 || has_capability {
        let set = SetAttr {
            drop_privileges: true,
            mode: subject.mode_after_write(inode),
            ..SetAttr::default()
        };
        life.room.set_attributes(inode.no, &set)?;
    }
    Ok(())
}

pub(super) fn place((life, session): &Here, no: InodeNo, written: Vec<Written>) -> Reply<u64> {
    if written.len() > PLACED_MAX {
        return Err(Refusal::Posix(Posix::InvalidArgument));
    }
    let _rights = life.rights.read();
    let found = life.reach(session, no).map_err(refusal)?;
    session.subject.write(found.object()).map_err(refusal)?;
    let mut by_loan: BTreeMap<LoanId, (Borrowed, Vec<Boot>, Vec<Placed>)> = BTreeMap::new();
    for Written { loan, boot, placed } in written {
        let (_, boots, all) = match by_loan.entry(loan) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let noted = life.sources.unless_copied(no, || session.place(loan, no));
                let noted = noted.ok_or(Refusal::NotNow(Delay::UnderWay))?;
                new.insert((noted?, Vec::new(), Vec::new()))
            }
        };
        if !boots.contains(&boot) {
            boots.push(boot);
        }
        all.push(placed);
    }
    for (loan, (borrowed, boots, _)) in &by_loan {
        for boot in boots {
            match life.storage.wrote(borrowed.segment, *boot) {
                Ok(()) => {}
                Err(Lost::Lost) => return Err(Refusal::LoanOver(*loan)),
                Err(Lost::Disk(e)) => {
                    tracing::warn!("what a client wrote cannot be vouched for: {e}");
                    return Err(Refusal::DiskUnreachable(borrowed.disk));
                }
            }
        }
    }
    drop_privileges(life, &session.subject, &found).map_err(refusal)?;
    for (loan, (_, _, placed)) in by_loan {
        let taken = life.room.place(loan, no, &placed);
        taken.map_err(|e| match e {
            // It ended meanwhile: the client writes to another place.
            Error::NotFound if !session.has_loan(loan) => Refusal::LoanOver(loan),
            other => refusal(other),
        })?;
    }
    Ok(life.room.stamp())
}

pub(super) fn give_back((life, session): &Here, loans: &[LoanId]) -> Reply<()> {
    let own: Vec<LoanId> = loans
        .iter()
        .copied()
        .filter(|loan| session.has_loan(*loan))
        .collect();
    life.authority
        .revoke_loans(&own, Instant::now() + REVOCATION_WAIT)?;
    for loan in own {
        if session.give_back(loan).is_some() {
            life.room.settle_loan(loan);
        }
    }
    Ok(())
}
