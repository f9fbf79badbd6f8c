//! Snapshots of a shared room: who reads what of them, and that nobody changes what they see.

use std::collections::BTreeSet;

use crate::common::{LONG, ROOT, Raw, World, people, posix, to_link, to_rename, until};
use metadata_proto::rpc::*;
use metadata_server::server::ServerError;
use netdisk::{BLOCK_LEN, DiskError};
use room::{FileKind, Inode, InodeNo, NewSnapshot, SegmentNo, Snapshots as _};

fn snapshot(world: &World, name: &str) -> u64 {
    let created = world.server().change_snapshots(None, |room| {
        room.create_snapshot(name, NewSnapshot::default())
    });
    created.unwrap().unwrap().number
}

fn file(no: InodeNo, parent: InodeNo, name: &str) -> PastFile {
    let named = Some((parent, name.into()));
    PastFile { no, named }
}

impl Raw {
    fn past(&self, snapshot: u64, what: Past) -> Reply<PastAnswer> {
        self.ask(|c, x, s| async move { c.past(x, s, snapshot, what).await })
            .unwrap()
    }

    fn past_lookup(&self, snapshot: u64, parent: InodeNo, name: &str) -> Reply<Inode> {
        let name = name.into();
        match self.past(snapshot, Past::Lookup { parent, name })? {
            PastAnswer::Inode(inode) => Ok(*inode),
            other => panic!("{other:?}"),
        }
    }

    fn past_map(&self, snapshot: u64, file: PastFile) -> Reply<Map> {
        let what = Past::Map {
            file,
            first: 0,
            count: 64,
        };
        match self.past(snapshot, what)? {
            PastAnswer::Map(map) => Ok(*map),
            other => panic!("{other:?}"),
        }
    }
}

/// The first byte that a client reads of a file in a snapshot, by name, as a program would.
fn read(world: &World, client: &Raw, at: u64, (parent, name): (InodeNo, &str)) -> Reply<u8> {
    let no = client.past_lookup(at, parent, name)?.no;
    client.past(at, Past::Open(file(no, parent, name)))?;
    let map = client.past_map(at, file(no, parent, name))?;
    Ok(client.read_by(world, &map).unwrap())
}

#[test]
fn a_snapshot_is_read_with_the_rights_of_then_and_of_now() {
    let (world, root, alice, bob, d) = people(LONG);
    let new = |name: &str, mode: u16| {
        let no = alice.make(d, name, FileKind::Regular, mode).unwrap().no;
        alice.write(&world, no, b't');
        no
    };
    let (open, closed) = (new("open", 0o644), new("closed", 0o600));
    new("gone", 0o644);
    new("secret", 0o600);
    let at = snapshot(&world, "monday");
    for no in [open, closed] {
        alice.write(&world, no, b'n');
    }
    for name in ["gone", "secret"] {
        alice.unlink(d, name).unwrap();
    }
    let reads = |client: &Raw, name| read(&world, client, at, (d, name));
    let denied = |reply: Reply<u8>| assert_eq!(posix(reply), Posix::AccessDenied);
    assert_eq!(reads(&bob, "open").unwrap(), b't');
    denied(reads(&bob, "closed"));
    // What was removed has the rights of then.
    assert_eq!(reads(&bob, "gone").unwrap(), b't');
    denied(reads(&bob, "secret"));
    for name in ["open", "closed", "gone", "secret"] {
        assert_eq!(reads(&alice, name).unwrap(), b't', "{name}");
        assert_eq!(reads(&root, name).unwrap(), b't', "{name}");
    }
    // Either way, the stricter counts.
    alice.chmod(open, 0o600).unwrap();
    alice.chmod(closed, 0o644).unwrap();
    denied(reads(&bob, "open"));
    denied(reads(&bob, "closed"));
    assert_eq!(bob.lookup(d, "closed").unwrap().mode & 0o777, 0o644);
    assert_eq!(
        bob.past_lookup(at, d, "open").unwrap().mode & 0o777,
        0o644,
        "the attributes are those of then"
    );
    // So it is for every kind of call that reads contents.
    let of_open = || file(open, d, "open");
    for what in [
        Past::Open(of_open()),
        Past::Map {
            file: of_open(),
            first: 0,
            count: 1,
        },
        Past::Seek {
            file: of_open(),
            offset: 0,
            hole: false,
        },
        Past::Xattr(of_open(), b"user.x".to_vec()),
    ] {
        assert_eq!(posix(bob.past(at, what)), Posix::AccessDenied);
    }
    alice.chmod(open, 0o644).unwrap();
    assert_eq!(reads(&bob, "open").unwrap(), b't');
}

#[test]
fn directories_on_the_path_count_then_and_now_and_where_they_are_now() {
    let (world, root, alice, bob, d) = people(LONG);
    let directory = |parent, name: &str, mode| {
        let made = alice.make(parent, name, FileKind::Directory, mode);
        made.unwrap().no
    };
    let new = |parent, name: &str| {
        let no = alice.make(parent, name, FileKind::Regular, 0o644);
        alice.write(&world, no.unwrap().no, b't');
    };
    let (public, private) = (
        directory(d, "public", 0o755),
        directory(d, "private", 0o700),
    );
    let (below, gone) = (
        directory(public, "below", 0o755),
        directory(d, "gone", 0o711),
    );
    let parents = [public, private, below, gone];
    parents.iter().for_each(|no| new(*no, "f"));
    let at = snapshot(&world, "monday");
    let reads = |client: &Raw, parent| read(&world, client, at, (parent, "f"));
    let denied = |reply: Reply<u8>| assert_eq!(posix(reply), Posix::AccessDenied);
    assert_eq!(reads(&bob, public).unwrap(), b't');
    assert_eq!(reads(&bob, below).unwrap(), b't');
    denied(reads(&bob, private));
    alice.chmod(private, 0o755).unwrap();
    denied(reads(&bob, private));

    alice.chmod(public, 0o700).unwrap();
    denied(reads(&bob, public));
    denied(reads(&bob, below));
    alice.chmod(public, 0o755).unwrap();
    assert_eq!(reads(&bob, below).unwrap(), b't');
    // It is below a private directory now.
    let hidden = directory(d, "hidden", 0o700);
    let rename = to_rename(public, "below", hidden, "below");
    alice.change(rename).unwrap();
    denied(reads(&bob, below));
    assert_eq!(reads(&alice, below).unwrap(), b't');

    // A directory that was removed has the rights of then: bob may search and not list it.
    alice.unlink(gone, "f").unwrap();
    let name = b"gone".to_vec();
    alice.change(Change::Rmdir { parent: d, name }).unwrap();
    assert_eq!(reads(&bob, gone).unwrap(), b't');
    let list = |client: &Raw, no| {
        let (after, limit) = (0, 10);
        client.past(at, Past::ReadDir { no, after, limit })
    };
    assert_eq!(posix(list(&bob, gone)), Posix::AccessDenied);
    let PastAnswer::Listing(listing) = list(&root, d).unwrap() else {
        panic!();
    };
    let names: Vec<_> = listing.entries.iter().map(|(e, _)| &e.name[..]).collect();
    assert_eq!(names, [&b"public"[..], b"private", b"gone"]);
    assert_eq!(
        listing.entries[2].0.inode, gone,
        "numbers are those of then"
    );
    // Who may list and not search learns names and kinds.
    alice.chmod(public, 0o744).unwrap();
    let PastAnswer::Listing(listing) = list(&bob, public).unwrap() else {
        panic!();
    };
    assert!(
        listing
            .entries
            .iter()
            .all(|(_, inode)| inode.mode == 0 && inode.no != below)
    );
    assert_eq!(listing.entries.len(), 2);
}

#[test]
fn a_number_alone_reaches_nothing_in_a_snapshot() {
    let (world, root, alice, bob, d) = people(LONG);
    let hidden = alice
        .make(d, "hidden", FileKind::Directory, 0o700)
        .unwrap()
        .no;
    let no = alice
        .make(hidden, "f", FileKind::Regular, 0o666)
        .unwrap()
        .no;
    alice.write(&world, no, b't');
    let other = alice.make(d, "other", FileKind::Regular, 0o666).unwrap().no;
    alice.write(&world, other, b'o');
    let at = snapshot(&world, "monday");
    let maps = |client: &Raw, named| client.past_map(at, PastFile { no, named });
    // Bob knows the number, and tries every way to name it.
    assert_eq!(posix(maps(&bob, None)), Posix::Stale);
    let by = |parent, name: &str| Some((parent, name.as_bytes().to_vec()));
    assert_eq!(posix(maps(&bob, by(hidden, "f"))), Posix::AccessDenied);
    assert_eq!(posix(maps(&bob, by(d, "other"))), Posix::Stale);
    assert_eq!(posix(maps(&bob, by(d, "f"))), Posix::NotFound);
    assert_eq!(posix(maps(&bob, by(other, "f"))), Posix::NotDirectory);
    assert!(maps(&alice, by(hidden, "f")).is_ok());
    assert!(maps(&root, None).is_ok());
    // A name that came later is none of the snapshot.
    let name = b"link".to_vec();
    alice.change(to_link(no, d, name)).unwrap();
    assert_eq!(posix(maps(&bob, by(d, "link"))), Posix::NotFound);
    for wrong in [0, at + 1, u64::MAX] {
        assert_eq!(posix(bob.past_lookup(wrong, ROOT, "d")), Posix::Stale);
    }
}

/// The keys of a map open exactly the units that it names, and its capabilities end with the right to read the file, and with the snapshot.
#[test]
fn a_map_of_a_snapshot_has_the_keys_of_its_units_and_rights_that_end() {
    let (world, _root, alice, bob, d) = people(LONG);
    let new = |name: &str, mode| {
        let no = alice.make(d, name, FileKind::Regular, mode).unwrap().no;
        alice.write(&world, no, b't');
        no
    };
    let (public, _) = (new("public", 0o644), new("private", 0o600));
    let at = snapshot(&world, "monday");
    alice.write(&world, public, b'n');
    let of_public = || file(public, d, "public");
    let map = bob.past_map(at, of_public()).unwrap();
    assert_eq!(bob.read_by(&world, &map).unwrap(), b't');
    let named = map.chunks.iter().flat_map(|(_, extents)| extents);
    let named: BTreeSet<(SegmentNo, u32)> = named
        .flat_map(|e| e.units())
        .map(|(range, _)| (range.segment, range.position))
        .collect();
    let keys: BTreeSet<(SegmentNo, u32)> = map
        .segments
        .iter()
        .flat_map(|place| {
            let positions = place.keys.positions().flatten();
            positions.map(|position| (place.segment, position))
        })
        .collect();
    assert_eq!((keys, named.len()), (named, 1));

    let refused = |map: &Map| matches!(bob.read_by(&world, map), Err(DiskError::Revoked));
    alice.chmod(public, 0o600).unwrap();
    assert!(refused(&map), "the disk itself refuses");
    alice.chmod(public, 0o644).unwrap();
    let map = bob.past_map(at, of_public()).unwrap();
    assert_eq!(bob.read_by(&world, &map).unwrap(), b't');
    let deleted = world
        .server()
        .change_snapshots(None, |room| room.delete_snapshot("monday"));
    deleted.unwrap().unwrap();
    assert_eq!(posix(bob.past_map(at, of_public())), Posix::Stale);
    // Blocks are freed when no capability covers them any more.
    until("the blocks of the snapshot are freed", || refused(&map));
    let live = bob.map(public).unwrap();
    assert_eq!(bob.read_by(&world, &live).unwrap(), b'n');
}

/// A client could overwrite, under a grant of before, what a snapshot sees: its own data, but of a moment that is past.
#[test]
fn nobody_overwrites_what_a_snapshot_sees() {
    let (mut world, root, alice, _bob, d) = people(LONG);
    let no = alice.make(d, "f", FileKind::Regular, 0o644).unwrap().no;
    let grant = alice.grant(16).unwrap();
    let unused = alice.grant(16).unwrap();
    let first = alice.write_block(&world, &grant, 0, 0, b't').unwrap();
    alice.place(no, vec![first]).unwrap();
    let at = snapshot(&world, "monday");
    // Into the same place, and into another one of the grant.
    for block in 0..2 {
        let again = alice.write_block(&world, &grant, block, 0, b'x');
        assert!(matches!(again, Err(DiskError::Revoked)), "{again:?}");
    }
    assert_eq!(read(&world, &root, at, (d, "f")).unwrap(), b't');
    // A grant without data of any file goes on.
    let later = alice.write_block(&world, &unused, 0, BLOCK_LEN as u64, b'l');
    alice.place(no, vec![later.unwrap()]).unwrap();
    alice.sync().unwrap();

    // Where that cannot be made sure of, there is no snapshot.
    world.disks[0].stop();
    let created = world.server().change_snapshots(None, |room| {
        room.create_snapshot("tuesday", NewSnapshot::default())
    });
    assert!(
        matches!(created, Err(ServerError::StillWritable)),
        "{created:?}"
    );
    world.disks[0].start();
    let names = || -> Vec<String> {
        let listed = world.server().with_snapshots(|room| room.snapshots());
        let all = listed.unwrap().unwrap().into_iter();
        all.map(|snapshot| snapshot.name).collect()
    };
    assert_eq!(names(), ["monday"]);
    snapshot(&world, "tuesday");
    assert_eq!(names(), ["monday", "tuesday"]);
    let listed = alice.ask(|c, x, s| async move { c.snapshots(x, s).await });
    let listed = listed.unwrap().unwrap();
    assert_eq!(listed[1].name, "tuesday");
}
