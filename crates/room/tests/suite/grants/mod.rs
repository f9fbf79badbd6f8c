//! Granting and placing: what another machine writes itself becomes file data like a write, and harms nobody else.

mod lifetimes;
mod rooms;
mod snapshots;

use std::sync::{Arc, Mutex};

use crate::common::{sound, stored};
use room::{
    CHUNK_LEN, Chunk, Error, FileFlags, FileSystem as _, Inode, InodeNo, OpenOptions, Piece, Room,
    Sealed, SegmentNo, SetAttr, UNIT_BLOCKS, WriteGrant, WrittenExtent,
};
use storage::testing::{Call, Fault, FaultyStorage, MemoryStorage, Op, Times};
use storage::{OpenMode, Storage};

const BLOCK: usize = 4096;

fn options() -> OpenOptions {
    OpenOptions {
        network_backed: true,
        ..stored::options()
    }
}

/// A room in memory that grants writes, and the client's access to its segments.
struct Shared {
    memory: MemoryStorage,
    faults: FaultyStorage<MemoryStorage>,
    room: Room,
}

impl Shared {
    fn new() -> Self {
        let memory = MemoryStorage::new();
        let faults = FaultyStorage::new(memory.clone());
        let room = stored::create_on(Arc::new(faults.clone()), options());
        Self {
            memory,
            faults,
            room,
        }
    }

    fn open(memory: MemoryStorage) -> Self {
        let faults = FaultyStorage::new(memory.clone());
        let room = stored::open_on(Arc::new(faults.clone()), options()).unwrap();
        Self {
            memory,
            faults,
            room,
        }
    }

    /// Cuts the power, and opens the room again.
    fn crash(self, cut: impl FnOnce(&MemoryStorage)) -> Self {
        cut(&self.memory);
        // It is gone with the power: what it still says to the storage, while it ends, is refused.
        self.faults.refuse_any(1, Fault::Io, Times::Always);
        drop(self.room);
        Self::open(self.memory)
    }

    fn reopen(self) -> Self {
        self.room.close().unwrap();
        Self::open(self.memory)
    }

    fn file(&self, path: &str) -> InodeNo {
        self.room.open_or_make_file(path).unwrap();
        self.room.resolve(path.as_ref(), true).unwrap()
    }

    /// Seals and writes blocks as a borrower does.
    fn borrow(&self, grant: &WriteGrant, skip: u32, offset: u64, plain: &[u8]) -> WrittenExtent {
        let end = offset + plain.len() as u64;
        let mut blocks = plain.to_vec();
        blocks.resize(plain.len().next_multiple_of(BLOCK), 0);
        let WriteGrant {
            segment,
            position,
            blocks: granted,
            ..
        } = *grant;
        let positions = position..position + granted;
        let keys = self.room.position_keys(segment, &[positions]);
        let keys = keys.unwrap().unwrap();
        let mut cipher = keys.cipher();
        let position = position + skip;
        let mut at = position;
        let nonce = grant.nonce_part().unwrap();
        let mut tags = room::Tags::new();
        for unit in blocks.chunks_mut(UNIT_BLOCKS as usize * BLOCK) {
            tags.push(cipher.seal(nonce, at, unit).unwrap());
            at += UNIT_BLOCKS;
        }
        let unit = UNIT_BLOCKS as usize * BLOCK;
        let digests = blocks.chunks(unit).map(room::unit_digest).collect();
        let name = format!("segments/{:020}", segment.0);
        let file = self.memory.open(&name, OpenMode::ReadWrite).unwrap();
        file.write_at(&blocks, u64::from(position) * BLOCK as u64)
            .unwrap();
        WrittenExtent {
            offset,
            sealed: Sealed {
                segment,
                position,
                blocks: (blocks.len() / BLOCK) as u32,
                nonce,
                tags,
                digests,
            },
            end,
        }
    }

    /// Reads as a borrower does: maps from the room, units from the storage.
    fn read_by_maps(&self, no: InodeNo) -> Vec<u8> {
        let size = self.room.attributes(no).unwrap().size;
        self.read_mapped(size, self.room.maps(no, 0, 1000).unwrap())
    }

    fn read_mapped(&self, size: u64, maps: Vec<(u64, Chunk)>) -> Vec<u8> {
        let mut data = vec![0; size as usize];
        for (index, chunk) in maps {
            let chunk = Chunk::from_extents(chunk.extents().to_vec()).unwrap();
            let start = (index * CHUNK_LEN) as usize;
            let end = data.len().min(start + CHUNK_LEN as usize);
            let mut at = start;
            for piece in chunk.pieces(0, end - start) {
                if let Piece::Stored(stored) = piece {
                    let segment = stored.range.segment;
                    let range = stored.range;
                    let positions = range.position..range.position + range.blocks;
                    let keys = self.room.position_keys(segment, &[positions]);
                    let keys = keys.unwrap().unwrap();
                    let mut cipher = keys.cipher();
                    let name = format!("segments/{:020}", segment.0);
                    let file = self.memory.open(&name, OpenMode::Read).unwrap();
                    let mut units = vec![0; stored.range.blocks as usize * BLOCK];
                    let mut position = range.position;
                    file.read_at(&mut units, u64::from(position) * BLOCK as u64)
                        .unwrap();
                    let unit = UNIT_BLOCKS as usize * BLOCK;
                    for (at, unit) in units.chunks_mut(unit).enumerate() {
                        room::check_digest(stored.proofs, at, unit, true).unwrap();
                        let tag = &stored.proofs.tags[at];
                        cipher
                            .open(stored.proofs.nonce, position, tag, unit)
                            .unwrap();
                        position += UNIT_BLOCKS;
                    }
                    data[at..at + stored.len].copy_from_slice(&units[stored.skip..][..stored.len]);
                }
                at += piece.len();
            }
        }
        data
    }

    #[track_caller]
    fn assert_whole(&self) {
        sound(&self.room);
    }

    fn size(&self, no: InodeNo) -> u64 {
        self.room.attributes(no).unwrap().size
    }

    fn segments(&self) -> Vec<String> {
        let mut names = self.memory.list("segments").unwrap();
        names.sort();
        names
    }

    fn punched(&self) -> Arc<Mutex<u64>> {
        let blocks = Arc::new(Mutex::new(0));
        let seen = blocks.clone();
        self.faults.observe(move |call: &Call<'_>| {
            if call.op == Op::Punch {
                *seen.lock().unwrap() += call.len / BLOCK as u64;
            }
        });
        blocks
    }
}

fn plain(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i / BLOCK) as u8 ^ seed ^ (i % 251) as u8)
        .collect()
}

#[test]
fn committed_extents_read_like_written_data() {
    let shared = Shared::new();
    let no = shared.file("/f");
    let grant = shared.room.grant(0, 512).unwrap();
    let (first, second) = (plain(CHUNK_LEN as usize, 1), plain(50_001, 2));
    let before = shared.room.attributes(no).unwrap();
    let extents = [
        shared.borrow(&grant, 0, 0, &first),
        shared.borrow(&grant, 256, CHUNK_LEN, &second),
    ];
    shared.room.place(grant.id, no, &extents).unwrap();
    let expected = [first, second].concat();
    assert!(shared.room.read_file("/f").unwrap() == expected);
    assert!(shared.read_by_maps(no) == expected);
    let Inode { mtime, blocks, .. } = shared.room.attributes(no).unwrap();
    assert!(mtime > before.mtime);
    assert_eq!(blocks, 256 + 13);
    shared.room.settle_grant(grant.id);
    let shared = shared.reopen();
    assert!(shared.room.read_file("/f").unwrap() == expected);
    shared.assert_whole();
}

#[test]
fn a_committed_extent_survives_a_crash_once_its_stamp_is_settled_and_is_whole_or_absent_before() {
    for seed in 0..40 {
        for settled in [false, true] {
            let shared = Shared::new();
            shared.room.write_file("/f", b"old").unwrap();
            let no = shared.file("/f");
            shared.room.sync().unwrap();
            let grant = shared.room.grant(3, 64).unwrap();
            if seed % 2 == 0 {
                // Its segment's file is flushed before anything is written there.
                shared.room.write_file("/other", b"other").unwrap();
                shared.room.sync().unwrap();
            }
            let new = plain(100_000, seed as u8);
            let extents = shared.borrow(&grant, 1, 0, &new);
            let stamp = shared.room.place(grant.id, no, &[extents]).unwrap();
            assert!(shared.room.settled() < stamp);
            if settled {
                shared.room.sync().unwrap();
                assert!(shared.room.settled() >= stamp);
            }
            let shared = shared.crash(|memory| match seed {
                0 => memory.power_cut(),
                _ => memory.power_cut_keeping_some(seed),
            });
            let found = shared.room.read_file("/f").unwrap();
            assert!(if settled {
                found == new
            } else {
                found == b"old"
            });
            shared.assert_whole();
        }
    }
}

#[test]
fn extents_outside_their_grant_or_committed_before_are_refused_and_change_nothing() {
    let shared = Shared::new();
    let no = shared.file("/f");
    let grant = shared.room.grant(0, 8).unwrap();
    let other = shared.room.grant(0, 8).unwrap();
    let good = shared.borrow(&grant, 2, 0, &plain(3 * BLOCK, 1));
    let change = |change: &dyn Fn(&mut WrittenExtent)| {
        let mut extents = good.clone();
        change(&mut extents);
        extents
    };
    let refused = [
        change(&|p| p.offset = 1),
        change(&|p| p.offset = CHUNK_LEN - 2 * BLOCK as u64),
        change(&|p| p.offset = u64::MAX / BLOCK as u64 * BLOCK as u64),
        change(&|p| p.end = u64::MAX),
        change(&|p| p.end = 2 * BLOCK as u64),
        change(&|p| p.sealed.blocks = 0),
        change(&|p| p.sealed.blocks = u32::MAX),
        change(&|p| p.sealed.blocks = 257),
        change(&|p| p.sealed.tags.clear()),
        change(&|p| p.sealed.tags.push([0; 16])),
        change(&|p| p.sealed.digests.clear()),
        change(&|p| p.sealed.digests.push([0; 32])),
        change(&|p| p.sealed.position = 0),
        change(&|p| p.sealed.position = u32::MAX),
        change(&|p| p.sealed.position = other.position),
        change(&|p| p.sealed.position = other.position - 1),
        change(&|p| p.sealed.segment = SegmentNo(grant.segment.0 + 1)),
        change(&|p| p.sealed.segment = SegmentNo(u64::MAX)),
    ];
    for extents in refused {
        let is_refused = |extents: &[WrittenExtent]| {
            matches!(
                shared.room.place(grant.id, no, extents),
                Err(Error::InvalidArgument(_) | Error::FileTooLarge)
            )
        };
        assert!(is_refused(std::slice::from_ref(&extents)), "{extents:?}");
        assert!(
            is_refused(&[good.clone(), extents]),
            "with a good one first"
        );
    }
    let twice = [good.clone(), good.clone()];
    assert!(matches!(
        shared.room.place(grant.id, no, &twice),
        Err(Error::InvalidArgument(_))
    ));
    assert_eq!(shared.size(no), 0);
    shared
        .room
        .place(grant.id, no, std::slice::from_ref(&good))
        .unwrap();
    assert!(matches!(
        shared.room.place(grant.id, no, std::slice::from_ref(&good)),
        Err(Error::InvalidArgument(_))
    ));
    shared.room.settle_grant(grant.id);
    let late = shared.borrow(&grant, 5, 0, &plain(1, 1));
    assert!(matches!(
        shared.room.place(grant.id, no, &[late]),
        Err(Error::NotFound)
    ));
    assert!(shared.room.grant(0, 0).is_err() && shared.room.grant(0, 1025).is_err());
    shared.assert_whole();
}

#[test]
fn a_file_grows_by_committed_extents_and_reads_zeros_in_between() {
    let shared = Shared::new();
    let no = shared.file("/f");
    // An end within a block, still in the room's own buffer.
    shared.room.write(no, 0, &[9; 100]).unwrap();
    let grant = shared.room.grant(0, 64).unwrap();
    let tail = plain(5000, 3);
    let mut expected = vec![0; 5 * BLOCK];
    expected[..100].fill(9);
    expected.extend_from_slice(&tail);
    let extents = shared.borrow(&grant, 0, 5 * BLOCK as u64, &tail);
    shared.room.place(grant.id, no, &[extents]).unwrap();
    assert!(shared.room.read_file("/f").unwrap() == expected);
    // Longer again: what was sealed behind the end reads as zeros.
    let set = SetAttr::size;
    shared.room.set_attributes(no, &set(40_000)).unwrap();
    expected.resize(40_000, 0);
    assert!(shared.room.read_file("/f").unwrap() == expected);
    // An end behind the extent makes the file longer, one before it never shorter.
    let mut far = shared.borrow(&grant, 4, 0, &plain(BLOCK, 4));
    far.end = 60_000;
    shared.room.place(grant.id, no, &[far]).unwrap();
    let near = shared.borrow(&grant, 8, BLOCK as u64, &plain(10, 5));
    shared.room.place(grant.id, no, &[near]).unwrap();
    expected.resize(60_000, 0);
    expected[..BLOCK].copy_from_slice(&plain(BLOCK, 4));
    expected[BLOCK..2 * BLOCK].fill(0);
    expected[BLOCK..BLOCK + 10].copy_from_slice(&plain(10, 5));
    assert!(shared.room.read_file("/f").unwrap() == expected);
    assert!(shared.read_by_maps(no) == expected);
    shared.room.sync().unwrap();
    shared.assert_whole();
}

#[test]
fn maps_are_the_newest_and_leave_holes_out() {
    let shared = Shared::new();
    let no = shared.file("/f");
    for index in [0, 2, 5] {
        shared
            .room
            .write(no, index * CHUNK_LEN, b"buffered")
            .unwrap();
    }
    let indices = |first, count| -> Vec<u64> {
        let maps = shared.room.maps(no, first, count).unwrap();
        maps.into_iter().map(|(index, _)| index).collect()
    };
    assert_eq!(indices(0, 100), [0, 2, 5]);
    assert_eq!(indices(1, 4), [2]);
    assert!(indices(6, usize::MAX).is_empty());
    assert!(indices(u64::MAX, 10).is_empty());
    assert!(shared.read_by_maps(no) == shared.room.read_file("/f").unwrap());
    assert!(matches!(
        shared.room.maps(InodeNo::ROOT, 0, 1),
        Err(Error::IsDirectory)
    ));
    let unknown = shared.room.position_keys(SegmentNo(77), &[]);
    assert!(unknown.unwrap().is_none());
}

#[test]
fn a_new_name_is_durable_without_a_flush_of_what_others_wrote() {
    /// What else happened to the file by then.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Also {
        Nothing,
        SyncedLater,
        ModeChanged,
        Overwritten,
        Unlinked,
    }
    use Also::{ModeChanged, Nothing, Overwritten, SyncedLater, Unlinked};
    for also in [Nothing, SyncedLater, ModeChanged, Overwritten, Unlinked] {
        let shared = Shared::new();
        let no = shared.file("/old");
        let grant = shared.room.grant(0, 64).unwrap();
        shared.room.sync().unwrap();
        let bytes = plain(3 * BLOCK, 1);
        let place = |skip, offset, plain: &[u8]| {
            let extents = shared.borrow(&grant, skip, offset, plain);
            shared.room.place(grant.id, no, &[extents]).unwrap()
        };
        place(0, 0, &bytes[..BLOCK]);
        // More than once, as a client that closes a file more than once does.
        let stamp = place(1, BLOCK as u64, &bytes[BLOCK..]);
        match also {
            Nothing | SyncedLater => {}
            ModeChanged => {
                shared
                    .room
                    .set_attributes(no, &SetAttr::mode(0o600))
                    .unwrap();
            }
            Overwritten => drop(place(3, BLOCK as u64, &bytes[BLOCK..])),
            Unlinked => shared.room.unlink(InodeNo::ROOT, b"old").unwrap(),
        }
        shared.file("/new");
        let syncs = Arc::new(Mutex::new(0));
        let seen = syncs.clone();
        shared.faults.observe(move |call: &Call<'_>| {
            if call.op == Op::Sync && call.path.starts_with("segments/") {
                *seen.lock().unwrap() += 1;
            }
        });
        shared.room.sync_names().unwrap();
        // What differs in another way is in the record, and its data durable before that.
        let deferred = matches!(also, Nothing | SyncedLater);
        assert_eq!(shared.room.settled() < stamp, deferred, "{also:?}");
        assert_eq!(*syncs.lock().unwrap() == 0, deferred, "{also:?}");
        if also == SyncedLater {
            shared.file("/newer");
            shared.room.sync_names().unwrap();
            shared.room.sync().unwrap();
            assert!(shared.room.settled() >= stamp);
        }
        let shared = shared.crash(MemoryStorage::power_cut);
        assert!(shared.room.resolve("/new".as_ref(), true).is_ok());
        match also {
            Nothing => assert!(shared.room.read_file("/old").unwrap().is_empty()),
            Unlinked => assert!(shared.room.resolve("/old".as_ref(), true).is_err()),
            _ => assert!(shared.room.read_file("/old").unwrap() == bytes, "{also:?}"),
        }
        // Accounts and maps agree.
        shared.assert_whole();
    }
}

/// What failed: the files were counted with everything in the catalog, and the next record of names took with that the data that no
/// disk had made durable, which a sync then took for settled.
#[test]
fn quotas_set_before_data_is_durable_lose_none_of_it() {
    let shared = Shared::new();
    let no = shared.file("/old");
    let grant = shared.room.grant(0, 64).unwrap();
    shared.room.sync().unwrap();
    let bytes = plain(3 * BLOCK, 1);
    let extents = shared.borrow(&grant, 0, 0, &bytes);
    shared.room.place(grant.id, no, &[extents]).unwrap();
    shared.room.set_quotas([].into()).unwrap();
    shared.file("/new");
    shared.room.sync_names().unwrap();
    shared.room.sync().unwrap();
    let shared = shared.crash(MemoryStorage::power_cut);
    assert!(shared.room.resolve("/new".as_ref(), true).is_ok());
    assert!(shared.room.read_file("/old").unwrap() == bytes);
    shared.assert_whole();
}

/// What failed: a sync had handed maps to the catalog when it found no space for the accounts. The next record of names took them with it,
/// without the data, which counted as durable from then on.
#[test]
fn a_record_of_names_has_no_maps_that_a_sync_without_space_left() {
    // So many accounts need more space than is reserved.
    const SEGMENTS: usize = 200;
    let shared = Shared::new();
    let no = shared.file("/f");
    // From now on the log has records; and nothing is reserved for the catalog's.
    shared.room.sync().unwrap();
    let shared = shared.reopen();
    let grants = (0..SEGMENTS).map(|lane| shared.room.grant(lane, 8).unwrap());
    let grants: Vec<_> = grants.collect();
    let bytes = plain(SEGMENTS * BLOCK, 1);
    let mut stamp = 0;
    for (grant, (offset, block)) in grants.iter().zip((0..).zip(bytes.chunks(BLOCK))) {
        let extents = shared.borrow(grant, 0, offset * BLOCK as u64, block);
        stamp = shared.room.place(grant.id, no, &[extents]).unwrap();
    }
    shared
        .faults
        .refuse(Op::Allocate, 1, Fault::NoSpace, Times::Always);
    let synced = shared.room.sync();
    assert!(matches!(synced, Err(Error::NoSpace)), "{synced:?}");
    shared.faults.heal();
    shared.file("/new");
    shared.room.sync_names().unwrap();
    let settled = shared.room.settled() >= stamp;
    let shared = shared.crash(MemoryStorage::power_cut);
    assert!(shared.room.resolve("/new".as_ref(), true).is_ok());
    let found = shared.room.read_file("/f").unwrap();
    assert!(found == bytes || (found.is_empty() && !settled));
    shared.assert_whole();
}

/// What failed: grants were numbered from 1 at each opening. What a client had written under one before the room was opened again met
/// another grant of that number, and was refused for ever instead of being written elsewhere.
#[test]
fn a_grant_of_an_earlier_opening_is_none_of_this_one() {
    let shared = Shared::new();
    let no = shared.file("/f");
    let old = shared.room.grant(0, 64).unwrap();
    shared.room.sync().unwrap();
    let extents = shared.borrow(&old, 0, 0, &plain(BLOCK, 1));
    let shared = shared.crash(MemoryStorage::power_cut);
    let new = shared.room.grant(0, 64).unwrap();
    assert_ne!(old.id, new.id);
    let committed = shared.room.place(old.id, no, &[extents]);
    assert!(matches!(committed, Err(Error::NotFound)), "{committed:?}");
}

#[test]
fn a_failed_flush_of_committed_extents_settles_nothing() {
    let shared = Shared::new();
    let no = shared.file("/f");
    shared.room.sync().unwrap();
    let grant = shared.room.grant(0, 8).unwrap();
    let extents = shared.borrow(&grant, 0, 0, &plain(BLOCK, 1));
    let stamp = shared.room.place(grant.id, no, &[extents]).unwrap();
    shared.faults.refuse(
        Op::Sync,
        1,
        storage::testing::Fault::Io,
        storage::testing::Times::Once,
    );
    assert!(shared.room.sync().is_err());
    assert!(shared.room.settled() < stamp);
    assert!(matches!(shared.room.grant(0, 8), Err(Error::Poisoned)));
    let shared = shared.crash(MemoryStorage::power_cut);
    assert!(shared.room.read_file("/f").unwrap().is_empty());
    shared.assert_whole();
}

/// Only the open of an append-only file was judged, by the client itself: an extent that a client committed over stored bytes was accepted.
#[test]
fn a_committed_extent_adds_to_an_append_only_file_and_changes_nothing_stored() {
    let shared = Shared::new();
    let no = shared.file("/log");
    let grant = shared.room.grant(0, 512).unwrap();
    let whole = plain(CHUNK_LEN as usize + 9000, 7);
    let begin = &whole[..CHUNK_LEN as usize - 5000];
    let extents = [shared.borrow(&grant, 0, 0, begin)];
    shared.room.place(grant.id, no, &extents).unwrap();
    shared
        .room
        .set_attributes(no, &SetAttr::flags(FileFlags::APPEND_ONLY))
        .unwrap();
    let refused = |skip: u32, offset: usize, bytes: &[u8]| {
        let bad = shared.borrow(&grant, skip, offset as u64, bytes);
        let answer = shared.room.place(grant.id, no, &[bad]);
        assert!(matches!(answer, Err(Error::NotPermitted(_))), "{answer:?}");
        assert!(shared.room.read_file("/log").unwrap() == begin);
    };
    refused(300, 0, &plain(BLOCK, 8));
    refused(301, 100 * BLOCK, &vec![0; BLOCK]);
    // The last block, with other bytes in front of what is added, or without some of them.
    let last = begin.len() / BLOCK * BLOCK;
    refused(302, last, &plain(BLOCK, 8));
    refused(303, last, &begin[last..last + 10]);
    // All of it is refused, or none.
    let border = CHUNK_LEN as usize;
    let bad = [
        shared.borrow(&grant, 304, border as u64, &whole[border..]),
        shared.borrow(&grant, 310, BLOCK as u64, &plain(BLOCK, 9)),
    ];
    assert!(shared.room.place(grant.id, no, &bad).is_err());
    assert!(shared.room.read_file("/log").unwrap() == begin);

    let more = [
        shared.borrow(&grant, 320, last as u64, &whole[last..border]),
        shared.borrow(&grant, 330, border as u64, &whole[border..]),
    ];
    shared.room.place(grant.id, no, &more).unwrap();
    assert!(shared.room.read_file("/log").unwrap() == whole);
    shared.room.settle_grant(grant.id);
    shared.room.sync().unwrap();
    shared.assert_whole();

    // After a crash a client places again what it does not know to be durable.
    let shared = shared.crash(MemoryStorage::power_cut);
    let grant = shared.room.grant(0, 512).unwrap();
    let again = [shared.borrow(&grant, 0, last as u64, &whole[last..border])];
    shared.room.place(grant.id, no, &again).unwrap();
    assert!(shared.room.read_file("/log").unwrap() == whole);
    shared.room.settle_grant(grant.id);
    shared.assert_whole();
}
