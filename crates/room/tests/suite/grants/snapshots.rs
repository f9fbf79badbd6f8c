//! Snapshots of a room whose file data others write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use room::{Fallocate, NewSnapshot, SendRequest, Snapshots as _, XattrMode};

use super::*;
use crate::common::model::with_seeds;

impl Shared {
    fn snapshot(&self, name: &str) -> u64 {
        let new = NewSnapshot::default();
        self.room.create_snapshot(name, new).unwrap().number
    }

    /// Reads what a file had in a snapshot as a borrower does.
    fn read_past(&self, snapshot: u64, no: InodeNo) -> Vec<u8> {
        let view = self.room.snapshot_of_number(snapshot).unwrap();
        let size = view.attributes(no).unwrap().size;
        let read = self.read_mapped(size, self.room.past_maps(snapshot, no, 0, 1000).unwrap());
        let mut by_room = vec![0; size as usize];
        view.read(no, 0, &mut by_room).unwrap();
        assert!(read == by_room, "the maps and the room differ");
        read
    }

    fn place(&self, no: InodeNo, offset: u64, bytes: &[u8]) {
        self.try_place(no, offset, bytes).unwrap();
    }

    fn try_place(&self, no: InodeNo, offset: u64, bytes: &[u8]) -> room::Result<()> {
        let blocks = bytes.len().div_ceil(BLOCK) as u32;
        let grant = self.room.grant(0, blocks)?;
        let extents = self.borrow(&grant, 0, offset, bytes);
        let committed = self.room.place(grant.id, no, &[extents]);
        self.room.settle_grant(grant.id);
        committed.map(drop)
    }

    /// Brings a replica to a snapshot. It has its segments itself.
    fn replicate(&self, replica: &MemoryStorage, since: Option<&str>, to: &str) {
        let request = SendRequest {
            to: to.into(),
            since: since.map(Into::into),
            ..SendRequest::default()
        };
        let mut out = Vec::new();
        self.room.send(&request, &mut out, &|_, _| true).unwrap();
        room::receive_on(replica, &mut &out[..], &|_, _| true).unwrap();
    }
}

/// Compares all of a replica with what snapshots had, by number.
fn assert_replica(replica: &MemoryStorage, past: &BTreeMap<u64, &BTreeMap<InodeNo, Vec<u8>>>) {
    let replica =
        stored::open_on(Arc::new(replica.clone()), stored::options().for_reading()).unwrap();
    let there = replica.snapshots().unwrap().into_iter();
    assert!(
        there
            .map(|snapshot| snapshot.number)
            .eq(past.keys().copied())
    );
    for (number, files) in past {
        let view = replica.snapshot_of_number(*number).unwrap();
        let listed = view.read_dir(InodeNo::ROOT, 0, 100).unwrap();
        assert_eq!(listed.len(), files.len());
        for (no, bytes) in *files {
            let mut found = vec![0; view.attributes(*no).unwrap().size as usize];
            view.read(*no, 0, &mut found).unwrap();
            assert!(found == *bytes, "snapshot {number}, inode {}", no.0);
        }
    }
    sound(&replica);
}

#[test]
fn a_snapshot_has_what_was_committed_before_it_and_nothing_later() {
    let shared = Shared::new();
    let (no, gone) = (shared.file("/f"), shared.file("/gone"));
    let old = plain(CHUNK_LEN as usize + 50_000, 1);
    let begin = &old[..CHUNK_LEN as usize];
    shared.place(no, 0, begin);
    shared.place(no, CHUNK_LEN, &old[CHUNK_LEN as usize..]);
    shared.place(gone, 0, &plain(9 * BLOCK, 2));
    let before = shared.snapshot("before");
    // Over a part of a unit, into the hole behind the end, and over all of it.
    shared.place(no, BLOCK as u64, &plain(BLOCK, 3));
    shared.place(no, 3 * CHUNK_LEN, &plain(BLOCK, 4));
    shared.room.unlink(InodeNo::ROOT, b"gone").unwrap();
    let then = shared.room.read_file("/f").unwrap();
    let between = shared.snapshot("between");
    shared.place(no, 0, &plain(CHUNK_LEN as usize, 5));
    let now = shared.room.read_file("/f").unwrap();
    let assert_all = |shared: &Shared| {
        assert!(shared.read_past(before, no) == old);
        assert!(shared.read_past(before, gone) == plain(9 * BLOCK, 2));
        assert!(shared.read_past(between, no) == then);
        assert!(shared.room.past_maps(between, gone, 0, 9).is_err());
        shared.assert_whole();
    };
    assert_all(&shared);
    shared.room.sync().unwrap();
    let shared = shared.crash(MemoryStorage::power_cut);
    assert_all(&shared);
    assert!(shared.room.read_file("/f").unwrap() == now);
    // Only what is asked for, and within the file.
    let indices = |first, count| -> Vec<u64> {
        let maps = shared.room.past_maps(between, no, first, count).unwrap();
        maps.into_iter().map(|(index, _)| index).collect()
    };
    assert_eq!(indices(0, 100), [0, 1, 3]);
    assert_eq!(indices(1, 2), [1]);
    assert!(indices(4, usize::MAX).is_empty() && indices(u64::MAX, 10).is_empty());

    let held = shared.room.held_by_snapshots().unwrap();
    let live = shared.room.space().unwrap().live;
    for name in ["before", "between"] {
        shared.room.delete_snapshot(name).unwrap();
    }
    assert!(matches!(
        shared.room.past_maps(before, no, 0, 9),
        Err(Error::Stale)
    ));
    shared.room.tend().unwrap();
    assert_eq!(live - shared.room.space().unwrap().live, held);
    assert!(shared.room.read_file("/f").unwrap() == now);
    shared.assert_whole();
}

/// What a snapshot is durable with is all that it sees: also data that no disk had made durable, of a file that nobody synced.
#[test]
fn a_snapshot_is_durable_with_the_data_that_nobody_asked_to_be() {
    for seed in 0..20 {
        let shared = Shared::new();
        let no = shared.file("/f");
        shared.room.sync().unwrap();
        shared.place(no, 0, &plain(100_000, 1));
        let first = shared.snapshot("first");
        // Into a hole, which the snapshot keeps.
        shared.place(no, CHUNK_LEN, &plain(BLOCK, 2));
        let then = shared.room.read_file("/f").unwrap();
        shared.file("/new");
        shared.room.sync_names().unwrap();
        let second = shared.snapshot("second");
        let shared = shared.crash(|memory| match seed {
            0 => memory.power_cut(),
            _ => memory.power_cut_keeping_some(seed),
        });
        assert!(shared.read_past(first, no) == plain(100_000, 1));
        assert!(shared.read_past(second, no) == then);
        assert!(shared.room.read_file("/f").unwrap() == then);
        shared.assert_whole();
    }
}

/// What failed: of data that only snapshots see, the catalog has the new place as soon as a compaction has moved it. A record of names
/// took that with it, for which no disk is flushed.
#[test]
fn a_record_of_names_has_no_data_of_snapshots_that_moved_and_is_not_durable() {
    const CHUNKS: u64 = 6;
    let shared = Shared::new();
    let no = shared.file("/f");
    let then = plain((CHUNKS * CHUNK_LEN) as usize, 1);
    for (index, bytes) in (0..).zip(then.chunks(CHUNK_LEN as usize)) {
        shared.place(no, index * CHUNK_LEN, bytes);
    }
    let snapshot = shared.snapshot("then");
    let segments: Vec<_> = shared
        .segments()
        .iter()
        .map(|n| n.parse().unwrap())
        .collect();
    let segments: Vec<_> = segments.into_iter().map(SegmentNo).collect();
    shared.room.unlink(InodeNo::ROOT, b"f").unwrap();
    // From here on the log has records.
    shared.room.sync().unwrap();
    shared.room.tend().unwrap();
    let goes_on = |moved, _| {
        if moved > 0 {
            shared.file("/new");
            shared.room.sync_names().unwrap();
            shared.faults.refuse_any(1, Fault::Io, Times::Always);
        }
        true
    };
    assert!(shared.room.empty_segments(&segments, &goes_on).is_err());
    let shared = shared.crash(MemoryStorage::power_cut);
    assert!(shared.room.resolve("/new".as_ref(), true).is_ok());
    assert!(shared.read_past(snapshot, no) == then);
    shared.assert_whole();
}

/// Of extents over parts of units that a snapshot keeps, the catalog's log may have no space for some: those before are in the file, the
/// others take no space, and all of it can be committed again when there is some.
#[test]
fn extents_that_find_no_space_leave_the_file_as_far_as_they_came() {
    const PARTS: usize = 3;
    let (old, new) = (plain(8 * BLOCK, 1), plain(BLOCK, 2));
    let mut came = [0; PARTS];
    for changes in 0..8 {
        let shared = Shared::new();
        let (no, spare) = (shared.file("/f"), shared.file("/spare"));
        for part in 0..PARTS as u64 {
            shared.place(no, part * CHUNK_LEN, &old);
        }
        let then = shared.room.read_file("/f").unwrap();
        let snapshot = shared.snapshot("then");
        // Nothing is reserved in the log then.
        let shared = shared.reopen();
        let commit = |grant: &WriteGrant| {
            let at = |part| part as u64 * CHUNK_LEN + BLOCK as u64;
            let extents = (0..PARTS).map(|part| shared.borrow(grant, part as u32, at(part), &new));
            shared
                .room
                .place(grant.id, no, &extents.collect::<Vec<_>>())
        };
        let expected = |parts: usize| {
            let mut expected = then.clone();
            for part in 0..parts {
                expected[part * CHUNK_LEN as usize + BLOCK..][..BLOCK].copy_from_slice(&new);
            }
            expected
        };
        let grant = shared.room.grant(0, 64).unwrap();
        shared
            .faults
            .refuse(Op::Allocate, 1, Fault::NoSpace, Times::Always);
        for n in 0..changes {
            let name = format!("user.{n}");
            let set = shared
                .room
                .set_xattr(spare, name.as_bytes(), b"1", XattrMode::Any, false);
            assert!(matches!(set, Ok(()) | Err(Error::NoSpace)), "{set:?}");
        }
        let committed = commit(&grant);
        shared.faults.heal();
        let found = shared.room.read_file("/f").unwrap();
        let parts = (0..=PARTS).find(|parts| found == expected(*parts)).unwrap();
        match committed {
            Ok(_) => assert_eq!(parts, PARTS),
            Err(e) => {
                assert!(matches!(e, Error::NoSpace), "{e:?}");
                came[parts] += 1;
            }
        }
        shared.room.sync().unwrap();
        shared.assert_whole();
        let again = commit(&grant);
        assert!(matches!(again, Err(Error::InvalidArgument(_))), "{again:?}");
        shared.room.settle_grant(grant.id);
        let grant = shared.room.grant(0, 64).unwrap();
        commit(&grant).unwrap();
        shared.room.settle_grant(grant.id);
        shared.room.sync().unwrap();
        let shared = shared.crash(MemoryStorage::power_cut);
        assert!(shared.room.read_file("/f").unwrap() == expected(PARTS));
        assert!(shared.read_past(snapshot, no) == then);
        shared.room.unlink(InodeNo::ROOT, b"f").unwrap();
        shared.room.delete_snapshot("then").unwrap();
        shared.room.tend().unwrap();
        assert_eq!(shared.room.space().unwrap().live, 0);
        shared.assert_whole();
    }
    println!("{came:?}");
}

/// Extents committed anywhere, cut, punched, copied, removed and restored, with snapshots that come and go, records of names only, compactions
/// with such records in the middle, space that ends and comes back, failed syncs, and crashes: every snapshot has what it had, every file
/// something that it held since it was last durable, and the accounts are those of the maps. Failures print the seed.
fn run(seed: u64, steps: u64) {
    const FILES: u64 = 6;
    eprintln!("seed {seed}");
    let mut r = fastrand::Rng::with_seed(seed);
    let mut shared = Shared::new();
    let mut past: BTreeMap<String, (u64, BTreeMap<InodeNo, Vec<u8>>)> = BTreeMap::new();
    let (mut replica, mut replicated) = (MemoryStorage::new(), None::<String>);
    // What each file held since it was last durable, and the files whose names are durable.
    let mut held: BTreeMap<InodeNo, Vec<Vec<u8>>> = BTreeMap::new();
    let mut named: BTreeSet<InodeNo> = BTreeSet::new();
    let all = |shared: &Shared| -> BTreeMap<InodeNo, Vec<u8>> {
        let listed = shared.room.read_dir(InodeNo::ROOT, 0, 100).unwrap();
        let files = listed.into_iter().map(|(entry, _)| entry.inode);
        files.map(|no| (no, shared.read_by_maps(no))).collect()
    };
    let mut refuses = false;
    // The room takes no more changes.
    let broken = AtomicBool::new(false);
    let went = |done: room::Result<()>| match done {
        Ok(()) => true,
        Err(Error::NoSpace) => false,
        Err(Error::Io(_) | Error::Catalog(_) | Error::Poisoned) => {
            broken.store(true, Ordering::Relaxed);
            false
        }
        Err(e) => panic!("{e:?}"),
    };
    for step in 0..steps {
        let name = format!("/f{}", r.u64(..FILES));
        let (mut changed, mut durable) = (None, false);
        let file = |shared: &Shared| {
            let made = shared.room.open_or_make_file(&name).map(drop);
            went(made).then(|| shared.room.resolve(name.as_ref(), true).unwrap())
        };
        let kind = r.u64(..28);
        let has_parts = matches!(kind, 9 | 17 | 20 | 21);
        match kind {
            0..9 => {
                changed = file(&shared);
                let offset = (r.u64(..3) << 20) + r.u64(..200) * BLOCK as u64;
                let bytes = plain(1 + r.u64(..40_000) as usize, step as u8);
                if let Some(no) = changed {
                    went(shared.try_place(no, offset, &bytes));
                }
            }
            9 => {
                changed = file(&shared);
                let set = SetAttr::size(r.u64(..2 << 20));
                if let Some(no) = changed {
                    went(shared.room.set_attributes(no, &set).map(drop));
                }
            }
            10 => {
                if let Some(no) = file(&shared) {
                    let name = &name.as_bytes()[1..];
                    went(shared.room.unlink(InodeNo::ROOT, name));
                    named.remove(&no);
                }
            }
            11 => {
                if went(shared.room.sync_names()) {
                    named = all(&shared).into_keys().collect();
                }
            }
            12 => durable = went(shared.room.sync()),
            13 => durable = went(shared.room.tend()),
            14..16 if past.len() < 5 => {
                let (name, seen) = (format!("s{step}"), all(&shared));
                let new = NewSnapshot::default();
                let made = shared.room.create_snapshot(&name, new);
                durable = made.is_ok();
                if let Ok(made) = &made {
                    past.insert(name, (made.number, seen));
                }
                went(made.map(drop));
            }
            16 if !refuses => {
                if let Some(name) = past.keys().nth(r.u64(..5) as usize).cloned() {
                    durable = went(shared.room.delete_snapshot(&name));
                    if durable {
                        past.remove(&name);
                    }
                }
            }
            17 => {
                changed = file(&shared);
                if let (Some(to), Some((name, (_, seen)))) = (changed, past.iter().next())
                    && let Some((from, bytes)) = seen.iter().next()
                    && went(shared.room.copy_from_snapshot(name, *from, to))
                {
                    assert!(shared.read_by_maps(to) == *bytes);
                }
            }
            18 => {
                let report = shared.room.compact(10, &|_, _| true);
                assert!(report.as_ref().is_ok_and(|r| r.unreadable.is_empty()) || report.is_err());
                went(report.map(drop));
            }
            19 => {
                let newest = past.iter().max_by_key(|(_, (number, _))| *number);
                if let Some((to, (number, _))) = newest
                    && replicated.as_ref() != Some(to)
                    && !refuses
                {
                    let since = replicated.take().filter(|name| past.contains_key(name));
                    if since.is_none() {
                        replica = MemoryStorage::new();
                    }
                    shared.replicate(&replica, since.as_deref(), to);
                    let sent = past.values().filter(|(no, _)| no <= number);
                    assert_replica(&replica, &sent.map(|(no, seen)| (*no, seen)).collect());
                    replicated = Some(to.clone());
                }
            }
            20 => {
                changed = file(&shared);
                let (offset, len) = (r.u64(..3 << 20), 1 + r.u64(..300_000));
                if let Some(no) = changed {
                    went(shared.room.fallocate(no, Fallocate::PunchHole, offset, len));
                }
            }
            21 => {
                changed = file(&shared);
                let (from, to) = (r.u64(..600) * 4096, r.u64(..600) * 4096);
                let other = all(&shared).into_keys().nth(r.usize(..FILES as usize));
                if let (Some(no), Some(other)) = (changed, other.filter(|no| changed != Some(*no)))
                {
                    let len = 1 + r.u64(..1_500_000);
                    went(shared.room.copy_range(other, from, no, to, len).map(drop));
                }
            }
            22 => {
                // In the middle a client makes a file.
                let segments = shared.segments();
                let some = segments.iter().map(|n| SegmentNo(n.parse().unwrap()));
                let some: Vec<_> = some.filter(|_| r.bool()).collect();
                let goes_on = |_, _| {
                    went(shared.room.sync_names());
                    true
                };
                went(shared.room.empty_segments(&some, &goes_on).map(drop));
            }
            23 => {
                refuses = !refuses;
                match refuses {
                    true => shared
                        .faults
                        .refuse(Op::Allocate, 1, Fault::NoSpace, Times::Always),
                    false => shared.faults.heal(),
                }
            }
            24 if !refuses => {
                refuses = true;
                let nth = 1 + r.u64(..4);
                shared.faults.refuse(Op::Sync, nth, Fault::Io, Times::Once);
            }
            _ => broken.store(true, Ordering::Relaxed),
        }
        if durable {
            held = all(&shared)
                .into_iter()
                .map(|(no, bytes)| (no, vec![bytes]))
                .collect();
            named = held.keys().copied().collect();
        } else if let Some(no) = changed {
            // What has several parts may be committed in the middle, where it finds no space.
            match broken.load(Ordering::Relaxed) || (refuses && has_parts) {
                true => drop(held.insert(no, Vec::new())),
                false => {
                    let states = held.entry(no).or_insert_with(|| vec![Vec::new()]);
                    if !states.is_empty() {
                        states.push(shared.read_by_maps(no));
                    }
                }
            }
        }
        if broken.swap(false, Ordering::Relaxed) {
            refuses = false;
            let cut = r.u64(..9);
            shared = shared.crash(|memory| memory.power_cut_keeping_some(cut));
            // What failed half-way may have come about.
            let listed = shared.room.snapshots().unwrap();
            past.retain(|name, _| listed.iter().any(|there| there.name == *name));
            for there in listed
                .iter()
                .filter(|there| !past.contains_key(&there.name))
            {
                shared.room.delete_snapshot(&there.name).unwrap();
            }
            let found = all(&shared);
            for no in &named {
                assert!(found.contains_key(no), "step {step}: {no:?} is gone");
            }
            for (no, bytes) in &found {
                let known = held.get(no);
                let is_known = known.map_or(bytes.is_empty(), |states| {
                    states.is_empty() || states.contains(bytes)
                });
                assert!(is_known, "step {step}: {no:?}");
            }
            named = found.keys().copied().collect();
            held = found
                .into_iter()
                .map(|(no, bytes)| (no, vec![bytes]))
                .collect();
        }
        if step % 25 == 0 && !refuses {
            for (number, seen) in past.values() {
                for (no, bytes) in seen {
                    assert!(shared.read_past(*number, *no) == *bytes, "step {step}");
                }
            }
            sound(&shared.room);
        }
    }
}

#[test]
fn snapshots_keep_what_they_saw_whatever_others_write() {
    with_seeds(12, 250, run);
}
