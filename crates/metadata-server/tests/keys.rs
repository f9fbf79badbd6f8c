//! What the keys that a client was ever given open: the units of the files it could read then, and those it wrote.

mod common;

use std::collections::BTreeSet;
use std::ops::Range;

use common::{LONG, Raw, World, people};
use metadata_proto::rpc::*;
use netdisk::{BLOCK_LEN, DiskId};
use room::{FileKind, InodeNo, PositionKeys, SegmentNo};

/// A sealed unit, as its catalog knows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Unit {
    segment: SegmentNo,
    position: u32,
    blocks: u32,
    tag: [u8; 16],
    disk: DiskId,
    /// The disk's block at which it begins.
    start: u64,
}

fn units(map: &Map) -> BTreeSet<Unit> {
    let extents = map.chunks.iter().flat_map(|(_, extents)| extents);
    let units = extents.flat_map(|extent| extent.units());
    units
        .map(|(range, tag)| {
            let of = |place: &&SegmentPlace| place.segment == range.segment;
            let place = map.segments.iter().find(of).unwrap();
            Unit {
                segment: range.segment,
                position: range.position,
                blocks: range.blocks,
                tag,
                disk: place.disk,
                start: place.start + u64::from(range.position),
            }
        })
        .collect()
}

/// Keeps every key that it is given.
#[derive(Default)]
struct Keeper(Vec<(SegmentNo, PositionKeys)>);

impl Keeper {
    fn keep(&mut self, place: &SegmentPlace) {
        self.0.push((place.segment, place.keys.clone()));
    }

    fn map(&mut self, client: &Raw, no: InodeNo) -> BTreeSet<Unit> {
        let map = client.map(no).unwrap();
        map.segments.iter().for_each(|place| self.keep(place));
        units(&map)
    }

    /// Whether some key opens these sealed bytes.
    fn opens(&self, unit: &Unit, sealed: &[u8]) -> bool {
        self.0.iter().any(|(_, keys)| {
            let mut bytes = sealed.to_vec();
            let mut cipher = keys.cipher();
            cipher.open(unit.position, &unit.tag, &mut bytes).is_ok()
        })
    }

    /// The positions of a segment for which some key is there.
    fn positions(&self, segment: SegmentNo) -> BTreeSet<u32> {
        let of_it = self.0.iter().filter(|(no, _)| *no == segment);
        of_it
            .flat_map(|(_, keys)| keys.positions().flatten())
            .collect()
    }
}

/// What a client was granted to write.
struct Grant {
    place: SegmentPlace,
    positions: Range<u32>,
}

/// Writes five units of a block into a new file.
fn written(world: &World, client: &Raw, d: InodeNo, name: &str, mode: u16) -> (InodeNo, Grant) {
    let no = client.make(d, name, FileKind::Regular, mode).unwrap().no;
    let first = name.as_bytes()[0];
    let grant = client.write(world, no, first);
    let pieces = (1..5)
        .map(|at| {
            let offset = u64::from(at) * BLOCK_LEN as u64;
            let byte = first + at as u8;
            client.write_block(world, &grant, at, offset, byte).unwrap()
        })
        .collect();
    client.place(no, pieces).unwrap();
    client.sync().unwrap();
    let positions = grant.position..grant.position + grant.blocks;
    let place = grant.place;
    (no, Grant { place, positions })
}

#[test]
fn a_client_that_keeps_every_key_opens_exactly_what_it_could_read_or_wrote() {
    let (world, root, alice, bob, d) = people(LONG);
    let shared = world.identity("carol", 1002, &[1002, 50]);
    let carol = Raw::connect(&world, shared.into(), None).unwrap();
    alice.chmod(d, 0o777).unwrap();
    let (secret, _) = written(&world, &alice, d, "secret", 0o600);
    let (public, _) = written(&world, &alice, d, "public", 0o644);
    let (later, _) = written(&world, &bob, d, "later", 0o644);
    let mut keeper = Keeper::default();
    // Everything that carol may be given, more than once.
    let mut allowed = BTreeSet::new();
    for _ in 0..2 {
        for no in [public, later] {
            allowed.extend(keeper.map(&carol, no));
        }
    }
    let (own, grant) = written(&world, &carol, d, "own", 0o600);
    keeper.keep(&grant.place);
    allowed.extend(keeper.map(&carol, own));
    assert!(carol.map(secret).is_err());
    // What is written after a right was lost, and into a grant that others have.
    bob.chmod(later, 0o600).unwrap();
    bob.write(&world, later, b'n');
    let (after, _) = written(&world, &bob, d, "after", 0o600);
    root.sync().unwrap();

    let mut all = allowed.clone();
    for no in [secret, public, later, own, after] {
        all.extend(units(&root.map(no).unwrap()));
    }
    // The test is worth something only where the files of all are in the segment of which carol has keys.
    let segments: BTreeSet<SegmentNo> = all.iter().map(|unit| unit.segment).collect();
    assert_eq!(segments.len(), 1, "{segments:?}");
    let stolen = world.disks[0].stolen();
    for unit in &all {
        let from = unit.start as usize * BLOCK_LEN;
        let sealed = &stolen[from..from + unit.blocks as usize * BLOCK_LEN];
        assert_eq!(
            keeper.opens(unit, sealed),
            allowed.contains(unit),
            "{unit:?}"
        );
    }
    assert!(all.len() > allowed.len() + 10, "{}", all.len());

    // And no key of a position is there beyond the blocks of those units and of the grant.
    let mut expected: BTreeSet<u32> = grant.positions.collect();
    for unit in &allowed {
        expected.extend(unit.position..unit.position + unit.blocks);
    }
    assert_eq!(keeper.positions(grant.place.segment), expected);
}

#[test]
fn data_that_the_server_moved_needs_keys_that_were_not_given() {
    let (mut world, root, alice, _, d) = people(LONG);
    let (no, _) = written(&world, &alice, d, "moved", 0o600);
    let mut keeper = Keeper::default();
    let before = keeper.map(&alice, no);
    world.stop();
    let options = room::OpenOptions {
        state_dir: Some(world.path().join("state")),
        ..room::OpenOptions::default()
    };
    let report = metadata_server::server::rekey(
        &world.room_dir(),
        &common::credential(),
        options,
        &|_, _| true,
    );
    assert!(report.unwrap().finished);
    world.start();
    let root = Raw::connect(&world, root.identity.clone(), None).unwrap();
    let map = root.map(no).unwrap();
    let after = units(&map);
    assert!(before.is_disjoint(&after));
    let stolen = world.disks[0].stolen();
    for unit in &after {
        let from = unit.start as usize * BLOCK_LEN;
        let sealed = &stolen[from..from + unit.blocks as usize * BLOCK_LEN];
        assert!(!keeper.opens(unit, sealed), "{unit:?}");
    }
    root.open(no, true, false).unwrap();
    assert_eq!(root.read_by(&world, &map).unwrap(), b'm');
}
