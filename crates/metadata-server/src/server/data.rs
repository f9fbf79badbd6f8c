//! Maps, write grants, and data that clients wrote.
//!
//! 1. A map and the capabilities for it are of one moment: nothing it names is given to another before they are known of.
//! 2. A client gets the keys of the units that the map names, or of the positions granted to it, and no others.
//! 3. Extents from a client are accepted only within their grant: its disk, its segment, its blocks.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::Ordering;

use metadata_proto::rpc::{Delay, Granted, Map, Posix, Refusal, Reply, SegmentPlace, Written};
use netdisk::{BlockExtent, Boot, DiskId};
use room::{
    Chunk, Error, FileKind, FileSystem as _, Inode, InodeNo, SeekTo, SegmentNo, SetAttr, Timestamp,
    WriteGrantId, WrittenExtent,
};

use super::caller::Here;
use super::files::Found;
use super::incarnation::Incarnation;
use super::refusals::refusal;
use crate::placement::DurabilityError;
use crate::policy::Subject;
use crate::sessions::{Borrowed, GRANTS_MAX, Session};

/// Most chunks of one map.
pub(super) const CHUNKS_MAX: u32 = 64;
/// Most extents in one commit.
const EXTENTS_MAX: usize = 4096;
const PRIVILEGES: u16 = 0o6000;
const CAPABILITY: &[u8] = b"security.capability";

/// Where a segment is, with the keys of these positions.
fn segment_place(
    server: &Incarnation,
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

pub(super) fn map(
    (incarnation, session): &Here,
    no: InodeNo,
    first: u64,
    count: u32,
) -> Reply<Map> {
    if !(1..=CHUNKS_MAX).contains(&count) {
        return Err(Refusal::Posix(Posix::InvalidArgument));
    }
    let _rights = incarnation.rights.read();
    let _reporting = incarnation.authority.reporting();
    let found = incarnation.reach(session, no).map_err(refusal)?;
    session.subject.read(found.object()).map_err(refusal)?;
    let maps = incarnation
        .room
        .maps(no, first, count as usize)
        .map_err(refusal)?;
    // What the maps say may be newer than what was found above.
    let inode = incarnation.room.attributes(no).map_err(refusal)?;
    described(incarnation, session, no, inode, maps)
}

/// Maps of a file with the keys of their units and the capabilities to read them. The authority's [reporting](crate::authority::Authority::reporting)
/// has been held since before the maps were read.
pub(super) fn described(
    incarnation: &Incarnation,
    session: &Session,
    no: InodeNo,
    inode: Inode,
    maps: Vec<(u64, Chunk)>,
) -> Reply<Map> {
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
        let place = segment_place(incarnation, segment, &positions)?;
        let on_disk = positions.iter().map(|range| BlockExtent {
            start: place.start + u64::from(range.start),
            blocks: range.len() as u64,
        });
        blocks.entry(place.disk).or_default().extend(on_disk);
        segments.push(place);
    }
    let tickets = incarnation.authority.read_tickets(session, no, &blocks)?;
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

pub(super) fn grant((incarnation, session): &Here, blocks: u32) -> Reply<Granted> {
    session.may_borrow()?;
    // An open segment for each disk, by turns: what is written in a row is on all disks.
    let lane = incarnation.next_lane.fetch_add(1, Ordering::Relaxed)
        % incarnation.authority.disk_count().max(1);
    let grant = incarnation.room.grant(lane, blocks).map_err(refusal)?;
    let settle = |e| {
        incarnation.room.settle_grant(grant.id);
        e
    };
    let room::WriteGrant {
        id,
        segment,
        position,
        blocks,
        append_nonces,
    } = grant;
    let granted = position..position + blocks;
    let place = segment_place(incarnation, segment, &[granted]).map_err(settle)?;
    let extent = BlockExtent {
        start: place.start + u64::from(position),
        blocks: u64::from(blocks),
    };
    let ticket = incarnation
        .authority
        .write_ticket(session, id, place.disk, extent)
        .map_err(settle)?;
    let borrowed = Borrowed {
        segment,
        disk: place.disk,
        extent,
        files: BTreeSet::new(),
    };
    if let Err(e) = session.borrow(grant.id, borrowed) {
        // The session has ended: its end revokes its other capabilities, and this one is revoked here.
        let deadline = incarnation.authority.revocation_deadline();
        if incarnation
            .authority
            .revoke_grants(&[grant.id], deadline)
            .is_ok()
        {
            incarnation.room.settle_grant(grant.id);
        }
        return Err(e);
    }
    Ok(Granted {
        grant: id,
        place,
        position,
        blocks,
        append_nonces,
        ticket,
    })
}

/// Takes set-id bits and file capabilities away before another than root changes data.
pub(super) fn drop_privileges(
    incarnation: &Incarnation,
    subject: &Subject,
    found: &Found,
) -> room::Result<()> {
    let inode = &found.inode;
    if subject.is_root() || inode.kind != FileKind::Regular {
        return Ok(());
    }
    let has_capability = inode.has_xattrs
        && match incarnation.room.xattr(inode.no, CAPABILITY) {
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
        incarnation.room.set_attributes(inode.no, &set)?;
    }
    Ok(())
}

/// Whether what a client wrote under a grant can be relied on.
fn vouched(grant: WriteGrantId, disk: DiskId, wrote: Result<(), DurabilityError>) -> Reply<()> {
    wrote.map_err(|e| match e {
        DurabilityError::Lost => Refusal::GrantOver(grant),
        DurabilityError::Disk(e) => {
            tracing::warn!("what a client wrote cannot be vouched for: {e}");
            Refusal::DiskUnreachable(disk)
        }
    })
}

/// Has the disks asked that are to be asked for what was written: with nothing held, so that nobody's names wait for one that is away.
fn ask_disks((incarnation, session): &Here, written: &[Written]) -> Reply<()> {
    let mut last = None;
    for Written { grant, boot, .. } in written {
        if last.replace((grant, boot)) != Some((grant, boot))
            && let Some((segment, disk)) = session.place_of(*grant)
        {
            vouched(
                *grant,
                disk,
                incarnation.storage.wrote_durably(segment, *boot),
            )?;
        }
    }
    Ok(())
}

pub(super) fn place(
    here: &Here,
    no: InodeNo,
    written: Vec<Written>,
    mut onto: Option<Timestamp>,
) -> Reply<(u64, Vec<Timestamp>)> {
    if written.len() > EXTENTS_MAX {
        return Err(Refusal::Posix(Posix::InvalidArgument));
    }
    ask_disks(here, &written)?;
    let (incarnation, session) = here;
    let _rights = incarnation.rights.read();
    let found = incarnation.reach(session, no).map_err(refusal)?;
    session.subject.write(found.object()).map_err(refusal)?;
    type OfGrant = (Borrowed, Vec<(Boot, bool)>, Vec<WrittenExtent>);
    let mut by_grant: BTreeMap<WriteGrantId, OfGrant> = BTreeMap::new();
    for Written {
        grant,
        boot,
        durable,
        extent,
    } in written
    {
        let (_, boots, all) = match by_grant.entry(grant) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let noted = incarnation
                    .sources
                    .unless_copied(no, || session.place(grant, no));
                let noted = noted.ok_or(Refusal::NotNow(Delay::UnderWay))?;
                new.insert((noted?, Vec::new(), Vec::new()))
            }
        };
        if !boots.contains(&(boot, durable)) {
            boots.push((boot, durable));
        }
        all.push(extent);
    }
    for (grant, (borrowed, boots, _)) in &by_grant {
        for (boot, durable) in boots {
            let wrote = match durable {
                true => incarnation.storage.wrote_durably(borrowed.segment, *boot),
                false => incarnation.storage.wrote(borrowed.segment, *boot),
            };
            vouched(*grant, borrowed.disk, wrote)?;
        }
    }
    drop_privileges(incarnation, &session.subject, &found).map_err(refusal)?;
    let mut moments = Vec::with_capacity(2 * by_grant.len());
    for (grant, (_, _, extents)) in by_grant {
        let taken = incarnation.room.place_onto(grant, no, &extents, onto);
        let taken = taken.map_err(|e| match e {
            // It ended meanwhile: the client writes to another place.
            Error::NotFound if !session.has_grant(grant) => Refusal::GrantOver(grant),
            other => refusal(other),
        })?;
        let [before, after] = taken.ok_or(Refusal::Changed)?;
        onto = onto.and(Some(after));
        moments.extend([before, after]);
    }
    Ok((incarnation.room.stamp(), moments))
}

pub(super) fn release_grants((incarnation, session): &Here, grants: &[WriteGrantId]) -> Reply<()> {
    if grants.len() > GRANTS_MAX {
        return Err(Refusal::Posix(Posix::InvalidArgument));
    }
    let own: Vec<WriteGrantId> = grants
        .iter()
        .copied()
        .filter(|grant| session.has_grant(*grant))
        .collect();
    incarnation
        .authority
        .revoke_grants(&own, incarnation.authority.revocation_deadline())?;
    for grant in own {
        if session.release_grant(grant).is_some() {
            incarnation.room.settle_grant(grant);
        }
    }
    Ok(())
}
