//! What the keys that a client was ever given open: the units of the files it could read then, and those it wrote.

use crate::common;
use std::collections::BTreeSet;
use std::ops::Range;

use crate::common::{LONG, Raw, World, people, to_copy};
use metadata_client::{ClientOptions, SharedRoom};
use metadata_proto::rpc::*;
use netdisk::{BLOCK_LEN, DiskError, DiskId};
use room::{Error, FileKind, FileSystem, InodeNo, PositionKeys, SegmentNo};

/// A sealed unit, as its catalog knows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Unit {
    segment: SegmentNo,
    position: u32,
    blocks: u32,
    nonce: room::NoncePart,
    tag: [u8; 16],
    disk: DiskId,
    /// The disk's block at which it begins.
    start: u64,
}

fn units(map: &Map) -> BTreeSet<Unit> {
    let extents = map.chunks.iter().flat_map(|(_, extents)| extents);
    let units = extents.flat_map(|extent| extent.units().map(|unit| (extent.nonce, unit)));
    units
        .map(|(nonce, (range, tag))| {
            let of = |place: &&SegmentPlace| place.segment == range.segment;
            let place = map.segments.iter().find(of).unwrap();
            Unit {
                segment: range.segment,
                position: range.position,
                blocks: range.blocks,
                nonce,
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
            cipher
                .open(unit.nonce, unit.position, &unit.tag, &mut bytes)
                .is_ok()
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
    let options = room::OpenOptions::with_state_dir(world.path().join("state"));
    let report = metadata_server::server::rekey(
        &world.room_dir(),
        &common::credential(),
        false,
        options,
        &metadata_server::server::InDirectory,
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

/// The product in the field of GHASH (NIST SP 800-38D, section 6.3).
fn times(x: [u8; 16], y: [u8; 16]) -> [u8; 16] {
    let (x, mut v) = (u128::from_be_bytes(x), u128::from_be_bytes(y));
    let mut z = 0;
    for bit in (0..128).rev() {
        if x >> bit & 1 == 1 {
            z ^= v;
        }
        let carry = v & 1;
        v >>= 1;
        if carry == 1 {
            v ^= 0xe1 << 120;
        }
    }
    z.to_be_bytes()
}

/// Other sealed bytes with the same tag, made with the unit's key: a change of the first block of the cipher, and of the second
/// so that the changes cancel out in GHASH.
fn forged(keys: &PositionKeys, unit: &Unit, sealed: &[u8]) -> Vec<u8> {
    use aes::cipher::{BlockCipherEncrypt, KeyInit};
    let text = serde_json::to_value(keys).unwrap();
    let subtrees = text["subtrees"].as_array().unwrap();
    let of_unit = |s: &&serde_json::Value| s["first"] == unit.position && s["height"] == 0;
    let key = subtrees.iter().find(of_unit).unwrap()["key"].clone();
    let key: [u8; 32] = serde_json::from_value(key).unwrap();
    let mut hash_key = [0; 16].into();
    aes::Aes256::new(&key.into()).encrypt_block(&mut hash_key);
    let change: [u8; 16] = *b"a forged amount!";
    let cancelling = times(change, hash_key.into());
    let mut other = sealed.to_vec();
    for (at, byte) in change.iter().chain(&cancelling).enumerate() {
        other[at] ^= byte;
    }
    other
}

#[test]
fn a_second_unit_with_the_same_tag_is_refused_by_client_and_server() {
    let (mut world, root, alice, _, d) = people(LONG);
    let no = alice.make(d, "f", FileKind::Regular, 0o644).unwrap().no;
    alice.write(&world, no, b'x');
    let map = root.map(no).unwrap();
    let unit = units(&map).into_iter().next().unwrap();
    let keys = &map.segments[0].keys;
    let from = unit.start as usize * BLOCK_LEN;
    let sealed = world.disks[0].stolen()[from..from + BLOCK_LEN].to_vec();
    let other = forged(keys, &unit, &sealed);
    // It is a real one: the cipher takes it.
    let mut opened = other.clone();
    let mut cipher = keys.cipher();
    cipher
        .open(unit.nonce, unit.position, &unit.tag, &mut opened)
        .expect("a forgery that the cipher refuses proves nothing");
    assert!(opened != vec![b'x'; BLOCK_LEN]);

    let client = |world: &World| {
        let address = world.server().local_addr().to_string();
        SharedRoom::connect(ClientOptions::new(address), &root.identity).unwrap()
    };
    let read = |client: &SharedRoom| {
        let directory = client.lookup(InodeNo::ROOT, b"d").unwrap().no;
        let file = client.lookup(directory, b"f").unwrap().no;
        let mut block = vec![0; BLOCK_LEN];
        client.read(file, 0, &mut block).map(|_| block)
    };
    let reader = client(&world);
    assert!(read(&reader).unwrap() == vec![b'x'; BLOCK_LEN]);
    world.disks[0].put(unit.start, &other);
    let refused = read(&reader);
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    reader.end().unwrap();

    // The server's own reads, as a compaction or a rekey does them.
    world.stop();
    let options = room::OpenOptions::with_state_dir(world.path().join("state"));
    let rekey = || {
        metadata_server::server::rekey(
            &world.room_dir(),
            &common::credential(),
            false,
            options.clone(),
            &metadata_server::server::InDirectory,
            &|_, _| true,
        )
        .unwrap()
    };
    let report = rekey();
    assert_eq!(report.unreadable.len(), 1, "{report:?}");
    assert!(!report.finished);
    world.disks[0].put(unit.start, &sealed);
    assert!(rekey().finished);
    world.start();
    let reader = client(&world);
    assert!(read(&reader).unwrap() == vec![b'x'; BLOCK_LEN]);
    reader.end().unwrap();
}

#[test]
fn a_grant_is_over_when_another_user_copied_what_was_written_under_it() {
    let (world, _, alice, bob, d) = people(LONG);
    alice.chmod(d, 0o777).unwrap();
    let (from, to) = (
        alice.make(d, "from", FileKind::Regular, 0o644).unwrap().no,
        bob.make(d, "to", FileKind::Regular, 0o600).unwrap().no,
    );
    let grant = alice.write(&world, from, b'x');
    // It is good for the blocks that are in the file.
    let again = alice.write_block(&world, &grant, 0, 0, b'x');
    again.expect("the grant is not over yet");
    let copied = bob.change(to_copy(from, 0, to, 0, BLOCK_LEN as u64));
    assert_eq!(copied, Ok(Changed::Copied(BLOCK_LEN as u64)));
    for at in [0, 5] {
        let refused = alice.write_block(&world, &grant, at, 0, b'z');
        assert!(matches!(refused, Err(DiskError::Revoked)), "{refused:?}");
    }
    // She goes on elsewhere, and the copy stays.
    alice.write(&world, from, b'n');
    let shared = bob.map(to).unwrap();
    assert_eq!(units(&shared).len(), 1);
    assert!(units(&shared).is_disjoint(&units(&alice.map(from).unwrap())));
}
