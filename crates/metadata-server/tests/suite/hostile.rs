//! Malicious clients: false, guessed and stolen data gives them nothing at the metadata server.

mod admin;
mod audit;

use std::sync::Arc;

use crate::common::{self, LONG, Raw, World, people, posix, to_copy, to_make, to_unlink};
use futures_util::future::join_all;
use metadata_proto::rpc::*;
use metadata_proto::transport::REQUEST_MAX;
use netdisk::DiskError;
use room::{FileKind, InodeNo, SetAttr};
use tarpc::client::RpcError;

/// The answer to a client that releases grants.
fn released(client: &Raw, grants: Vec<room::WriteGrantId>) -> Result<Reply<()>, RpcError> {
    client.ask(|c, x, s| async move { c.give_back(x, s, grants).await })
}

#[test]
fn a_file_in_a_directory_that_may_not_be_searched_is_not_reached_by_guessing() {
    let (_world, _, alice, bob, d) = people(LONG);
    let hidden = alice.make(d, "h", FileKind::Directory, 0o711).unwrap().no;
    let file = alice.make(hidden, "f", FileKind::Regular, 0o666).unwrap();
    // The way to it is open: it is found.
    assert_eq!(bob.lookup(hidden, "f").unwrap().no, file.no);
    assert_eq!(bob.attributes(hidden).unwrap().parent, d);
    // Numbers are given one after another; none of those that a guess would begin with is one.
    for no in (2..200).map(InodeNo) {
        assert_eq!(posix(bob.attributes(no)), Posix::NotFound);
        assert_eq!(posix(bob.open(no, true, false)), Posix::NotFound);
        assert_eq!(posix(bob.map(no)), Posix::NotFound);
    }
    // Who may only list learns numbers that reach nothing.
    alice.chmod(hidden, 0o744).unwrap();
    let listed = bob
        .ask(|c, x, s| async move { c.read_dir(x, s, hidden, 0, 10).await })
        .unwrap()
        .unwrap()
        .entries;
    assert_eq!(listed[0].0.name, b"f");
    assert_eq!(listed[0].0.inode, listed[0].1.no);
    assert_eq!(posix(bob.attributes(listed[0].1.no)), Posix::NotFound);
    let listed = alice
        .ask(|c, x, s| async move { c.read_dir(x, s, hidden, 0, 10).await })
        .unwrap()
        .unwrap()
        .entries;
    assert_eq!((listed[0].0.inode, listed[0].1.no), (file.no, file.no));
}

#[test]
fn numbers_and_names_that_no_kernel_sends_are_refused_and_harm_nobody() {
    const FAR: u64 = u64::MAX;
    let (mut world, _, alice, bob, d) = people(LONG);
    let file = alice.make(d, "f", FileKind::Regular, 0o666).unwrap().no;
    let granted = alice.write(&world, file, b'a');
    for no in [0, 2, FAR, FAR - 1, 1 << 63, (1 << 63) - 1].map(InodeNo) {
        assert!(bob.attributes(no).is_err());
        assert!(bob.lookup(no, "f").is_err());
        assert!(bob.chmod(no, 0o777).is_err());
        bob.close(no).unwrap();
    }
    for (first, count) in [(FAR, 1), (FAR, 64), (1 << 62, 64), (0, 65), (0, 0)] {
        let map = bob.ask(|c, x, s| async move { c.map(x, s, file, first, count).await });
        assert!(map.unwrap().is_ok_and(|m| m.chunks.is_empty()) || count == 65 || count == 0);
    }
    for hole in [true, false] {
        for offset in [4096, 1 << 63, FAR] {
            let sought = bob.ask(|c, x, s| async move { c.seek(x, s, file, offset, hole).await });
            assert_eq!(posix(sought.unwrap()), Posix::NoMoreData);
        }
    }
    for after in [1 << 63, FAR] {
        let listed = bob.ask(|c, x, s| async move { c.read_dir(x, s, d, after, u32::MAX).await });
        assert!(listed.unwrap().unwrap().entries.is_empty());
    }
    let mut bad = Vec::new();
    for (offset, len) in [(FAR, FAR), (1 << 63, 1), (0, FAR), (FAR - 4095, 4096)] {
        for what in [
            room::Fallocate::Allocate { keep_size: false },
            room::Fallocate::Allocate { keep_size: true },
            room::Fallocate::ZeroRange { keep_size: false },
            room::Fallocate::Collapse,
            room::Fallocate::Insert,
        ] {
            bad.push(Change::Fallocate {
                no: file,
                what,
                offset,
                len,
            });
        }
        bad.push(Change::SetAttributes {
            no: file,
            set: SetAttr::size(offset.max(len)),
        });
    }
    for at in [
        room::SetTime::at(0, 1_000_000_000),
        room::SetTime::at(0, u32::MAX),
    ] {
        bad.push(Change::SetAttributes {
            no: file,
            set: SetAttr {
                mtime: Some(at),
                ..SetAttr::default()
            },
        });
    }
    for name in [
        &b""[..],
        b".",
        b"..",
        b"a/b",
        b"a\0b",
        &[b'x'; 256],
        &[b'x'; 5000],
    ] {
        bad.push(to_make(d, name, room::NewFile::of_kind(FileKind::Regular)));
        bad.push(to_unlink(d, name));
    }
    let mut odd = room::NewFile::of_kind(FileKind::Regular);
    odd.target = b"elsewhere".to_vec();
    let mut endless = room::NewFile::of_kind(FileKind::Symlink);
    endless.target = vec![b'x'; 100_000];
    for new in [odd, endless] {
        bad.push(to_make(d, "odd", new));
    }
    for change in bad {
        let said = format!("{change:?}");
        assert!(alice.change(change).is_err(), "{said}");
    }
    let copy = to_copy(file, FAR, file, FAR, FAR);
    assert!(!matches!(alice.change(copy), Ok(Changed::Copied(1..))));
    let good = alice.write_block(&world, &granted, 1, 4096, b'b').unwrap();
    for (offset, end, position, blocks) in [
        (FAR, FAR, 0, 1),
        (FAR - 4095, FAR, 0, 1),
        (4097, 8192, 0, 1),
        (4096, 0, 0, 1),
        (4096, 8192, u32::MAX, 1),
        (4096, 8192, 0, u32::MAX),
        (4096, 8192, 0, 0),
    ] {
        let mut bad = good.clone();
        (bad.extent.offset, bad.extent.end) = (offset, end);
        bad.extent.sealed.blocks = blocks;
        if position != 0 {
            bad.extent.sealed.position = position;
        }
        assert!(alice.place(file, vec![bad]).is_err(), "{offset} {end}");
    }
    alice.place(file, vec![good]).unwrap();
    alice.sync().unwrap();
    assert!(world.server().is_serving());
    assert_eq!(world.server().metrics().reopened, 0);
    // And all of it is still there for the next incarnation.
    world.stop();
    world.start();
    let bob = Raw::connect(&world, bob.identity.clone(), None).unwrap();
    assert_eq!(bob.attributes(file).unwrap().size, 8192);
    let map = bob.map(file).unwrap();
    assert_eq!(bob.read_by(&world, &map).unwrap(), b'a');
}

#[test]
fn a_grant_of_another_session_is_not_written_to() {
    let (world, _, alice, bob, d) = people(LONG);
    let file = alice.make(d, "f", FileKind::Regular, 0o666).unwrap().no;
    let granted = alice.grant(4).unwrap();
    let written = alice.write_block(&world, &granted, 0, 0, 1).unwrap();
    assert_eq!(
        bob.place(file, vec![written.clone()]),
        Err(Refusal::GrantOver(granted.grant))
    );
    // Extents outside of the grant, or committed twice, are refused too.
    let mut beyond = written.clone();
    beyond.extent.sealed.position += 4;
    assert_eq!(
        posix(alice.place(file, vec![beyond])),
        Posix::InvalidArgument
    );
    let mut elsewhere = written.clone();
    elsewhere.extent.sealed.segment.0 += 1;
    assert_eq!(
        posix(alice.place(file, vec![elsewhere])),
        Posix::InvalidArgument
    );
    alice.place(file, vec![written.clone()]).unwrap();
    assert_eq!(
        posix(alice.place(file, vec![written])),
        Posix::InvalidArgument
    );
    // After its release the grant gives no access, at the disk either.
    released(&alice, vec![granted.grant]).unwrap().unwrap();
    assert!(matches!(
        alice.write_block(&world, &granted, 1, 4096, 1),
        Err(DiskError::Revoked)
    ));
}

#[test]
fn a_session_goes_on_over_another_connection_of_the_same_key_only() {
    let (world, _, alice, bob, d) = people(LONG);
    let file = alice.make(d, "f", FileKind::Regular, 0o600).unwrap().no;
    let again = Raw::connect(&world, alice.identity.clone(), Some(alice.id())).unwrap();
    assert_eq!(again.id(), alice.id());
    again.open(file, true, true).unwrap();
    let thief = Raw::connect(&world, bob.identity.clone(), Some(alice.id())).unwrap();
    assert_ne!(thief.id(), alice.id());
    let stolen = thief
        .ask(|c, x, _| {
            let session = alice.id();
            async move {
                c.open(x, session, Opening::Again, file, room::Access::READ)
                    .await
            }
        })
        .unwrap();
    assert_eq!(stolen, Err(Refusal::NoSession));
}

#[test]
fn a_key_of_another_room_is_not_let_in_nor_does_it_let_the_server_in() {
    let (world, ..) = people(LONG);
    let other = World::new(0);
    let identity = Arc::new(other.identity("alice", 1000, &[1000]));
    assert!(Raw::connect(&world, identity, None).is_err());
}

/// Refused only after each of millions of numbers was deciphered, for as long as that took.
#[test]
fn messages_name_no_more_files_or_grants_than_a_client_has_reason_to() {
    let (_world, _, alice, _, _) = people(LONG);
    let close = |count: usize| {
        let closed = vec![(InodeNo(1 << 62), 1); count];
        let once = crate::common::once();
        alice.ask(|c, x, s| async move { c.close(x, s, once, closed).await })
    };
    close(CLOSED_MAX).unwrap().unwrap();
    assert_eq!(
        posix(close(CLOSED_MAX + 1).unwrap()),
        Posix::InvalidArgument
    );
    let release = |count: usize| released(&alice, vec![room::WriteGrantId(1); count]);
    release(GRANTS_MAX).unwrap().unwrap();
    assert_eq!(
        posix(release(GRANTS_MAX + 1).unwrap()),
        Posix::InvalidArgument
    );
}

#[test]
fn a_message_that_no_client_has_reason_to_send_ends_its_connection() {
    let (world, _, alice, bob, _) = people(LONG);
    let look = |len: usize| {
        let name = vec![b'x'; len];
        alice.ask(|c, x, s| async move { c.lookup(x, s, InodeNo::ROOT, name).await })
    };
    let fits = REQUEST_MAX - 100;
    assert_eq!(posix(look(fits).unwrap()), Posix::NameTooLong);
    assert!(look(REQUEST_MAX).is_err());
    assert!(look(1).is_err(), "the connection is over");
    // Her session is not, and nobody else notices.
    Raw::connect(&world, alice.identity.clone(), Some(alice.id())).unwrap();
    bob.attributes(InodeNo::ROOT).unwrap();
}

/// A world whose only disk went away, with a client that has so many grants there, and another one: a release waits for the disk.
fn waiting(
    change: fn(&mut metadata_server::server::Config),
    grants: usize,
) -> (World, Raw, Raw, Vec<Granted>) {
    let mut world = World::new(1);
    world.stop();
    world.change = change;
    world.start();
    let alice = world.client("alice", 1000, &[1000]);
    let bob = world.client("bob", 1001, &[1001]);
    let grants = (0..grants).map(|_| alice.grant(1).unwrap()).collect();
    world.disks[0].stop();
    (world, alice, bob, grants)
}

fn pending(world: &World) -> usize {
    world.server().disks().unwrap()[0].pending
}

#[test]
fn what_the_waiting_calls_of_a_user_say_takes_a_bounded_memory() {
    let slow = |config: &mut metadata_server::server::Config| {
        config.timing.revocation_timeout = LONG;
        config.calls_max = 1;
    };
    let (mut world, alice, bob, grants) = waiting(slow, 1);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| released(&alice, vec![grants[0].grant]));
        common::until("it runs", || pending(&world) > 0);
        // 36 MB of names that wait for their turn.
        let names: Vec<_> = (0..40)
            .map(|_| {
                scope.spawn(|| {
                    let name = vec![b'x'; 900_000];
                    alice.ask(|c, x, s| async move { c.lookup(x, s, InodeNo::ROOT, name).await })
                })
            })
            .collect();
        for name in names {
            assert!(name.join().unwrap().is_err(), "her connection ends");
        }
        first.join().unwrap().unwrap_err();
        bob.attributes(InodeNo::ROOT).unwrap();
    });
    world.disks[0].start();
    // What she said is not kept.
    let again = Raw::connect(&world, alice.identity.clone(), Some(alice.id())).unwrap();
    common::until("her calls are done", || {
        again.attributes(InodeNo::ROOT).is_ok()
    });
}

/// They counted until they were abandoned, though they ran on and kept what they said.
#[test]
fn what_the_abandoned_calls_of_a_user_say_takes_a_bounded_memory() {
    let mut world = World::new(1);
    world.stop();
    world.change = |config| {
        config.flush_timeout = LONG;
        config.calls_max = GRANTS_MAX;
    };
    world.start();
    let alice = world.client("alice", 0, &[0]);
    let bob = world.client("bob", 1001, &[1001]);
    let no = alice.make(InodeNo::ROOT, "f", FileKind::Regular, 0o666);
    let no = no.unwrap().no;
    let granted = alice.write(&world, no, 1);
    let mut written = alice.write_block(&world, &granted, 1, 4096, 1).unwrap();
    // The server asks the disk whether that is its incarnation.
    written.boot.0[0] ^= 1;
    written.extent.sealed.tags = (0..50_000).map(|_| [0; _]).collect();
    world.disks[0].stop();
    // 24 MB.
    let placings = |client: MetadataClient, session| {
        let calls = vec![written.clone(); 30].into_iter();
        join_all(calls.map(move |written| {
            let (client, written) = (client.clone(), vec![written]);
            async move {
                let placing = client.place(common::context(), session, no, written, None, false);
                placing.await
            }
        }))
    };
    let look = |client: MetadataClient, session| async move {
        client.attributes(common::context(), session, no).await
    };
    let taken = alice.ask(|client, _, session| async move {
        tokio::select! {
            biased;
            _ = placings(client.clone(), session) => panic!("the disk is away"),
            // They run, because a later call was answered.
            looked = look(client.clone(), session) => looked.unwrap().unwrap(),
        };
        look(client.clone(), session).await.unwrap().unwrap();
        let again = placings(client, session).await;
        Ok(Ok(again.iter().all(Result::is_ok)))
    });
    assert!(matches!(taken, Ok(Ok(false))), "48 MB of calls that run");
    bob.attributes(InodeNo::ROOT).unwrap();
    world.disks[0].start();
}

/// A commit of data asked the disk while nobody's names could change.
#[test]
fn a_commit_that_waits_for_a_disk_keeps_nobody_from_making_files() {
    let (mut world, _, alice, bob, d) = people(LONG);
    let file = alice.make(d, "f", FileKind::Regular, 0o666).unwrap().no;
    alice.chmod(d, 0o777).unwrap();
    let granted = alice.write(&world, file, 1);
    let mut written = alice.write_block(&world, &granted, 1, 4096, 1).unwrap();
    // The server asks the disk whether that is its incarnation, and tries for five seconds.
    written.boot.0[0] ^= 1;
    world.disks[0].stop();
    std::thread::scope(|scope| {
        let placing = scope.spawn(|| alice.place(file, vec![written]));
        let mut made = 0;
        while !placing.is_finished() {
            bob.make(d, &made.to_string(), FileKind::Regular, 0o600)
                .unwrap();
            made += 1;
        }
        let disk = world.disks[0].keys.id;
        let answer = placing.join().unwrap();
        assert_eq!(answer, Err(Refusal::DiskUnreachable(disk)));
        assert!(made > 10, "{made} files while a commit waited");
    });
}

#[test]
fn calls_of_one_user_that_wait_leave_room_for_others() {
    // As many as may run at once of one user.
    let calls = GRANTS_MAX;
    let slow = |config: &mut metadata_server::server::Config| {
        config.timing.revocation_timeout = LONG;
        config.calls_max = GRANTS_MAX;
    };
    let (mut world, alice, bob, grants) = waiting(slow, calls);
    std::thread::scope(|scope| {
        let releases: Vec<_> = grants
            .iter()
            .map(|granted| scope.spawn(|| released(&alice, vec![granted.grant])))
            .collect();
        common::until("all of them wait for the disk", || pending(&world) == calls);
        bob.attributes(InodeNo::ROOT).unwrap();
        assert!(!releases.iter().any(|release| release.is_finished()));
        world.disks[0].start();
        for release in releases {
            release.join().unwrap().unwrap().unwrap();
        }
    });
}
