//! What the metadata server promises, over real disks and real TLS, to clients that say what they like.

use crate::common;
use std::time::Duration;

use crate::common::{
    LONG, ROOT, Raw, World, lock, people, posix, to_copy, to_link, to_make, to_rename, to_unlink,
    until,
};
use metadata_proto::admin::Ended;
use metadata_proto::rpc::*;
use metadata_server::server::Point;
use netdisk::DiskError;
use room::{FileKind, LockKind, LockOwner, LockTable, SetAttr};

/// Has the server open its room again; the session that a client gets after that.
fn reopened(world: &World, client: &Raw) -> Raw {
    world.server().fail_for_test();
    let mut again = None;
    until("a new session", || {
        again = Raw::connect(world, client.identity.clone(), Some(client.id())).ok();
        again.is_some()
    });
    let again = again.unwrap();
    assert_ne!(again.welcome.boot, client.welcome.boot);
    again
}

#[test]
fn what_one_client_wrote_another_reads_from_the_disk() {
    let (mut world, _, alice, bob, d) = people(LONG);
    let file = alice.make(d, "f", FileKind::Regular, 0o644).unwrap();
    assert_eq!((file.uid, file.gid), (1000, 1000));
    alice.open(file.no, true, true).unwrap();
    alice.write(&world, file.no, b'x');
    assert_eq!(bob.lookup(d, "f").unwrap().size, 4096);
    bob.open(file.no, true, false).unwrap();
    let map = bob.map(file.no).unwrap();
    assert_eq!(bob.read_by(&world, &map).unwrap(), b'x');
    // The same right is not minted twice.
    let again = bob.map(file.no).unwrap();
    assert_eq!(again.tickets[0].capability, map.tickets[0].capability);
    // And it is there after the server was stopped and started.
    world.stop();
    assert!(matches!(
        bob.read_by(&world, &map),
        Err(DiskError::UnknownGroup)
    ));
    world.start();
    assert!(matches!(
        bob.read_by(&world, &map),
        Err(DiskError::UnknownGroup)
    ));
    let bob = Raw::connect(&world, bob.identity.clone(), None).unwrap();
    let map = bob.map(file.no).unwrap();
    assert_eq!(bob.read_by(&world, &map).unwrap(), b'x');
}

#[test]
fn what_is_not_allowed_is_refused() {
    let (world, root, alice, bob, d) = people(LONG);
    let file = alice.make(d, "f", FileKind::Regular, 0o600).unwrap().no;
    assert_eq!(posix(bob.open(file, true, false)), Posix::AccessDenied);
    assert_eq!(posix(bob.map(file)), Posix::AccessDenied);
    assert_eq!(posix(bob.place(file, Vec::new())), Posix::AccessDenied);
    assert_eq!(posix(bob.chmod(file, 0o666)), Posix::NotPermitted);
    assert_eq!(
        posix(bob.make(d, "g", FileKind::Regular, 0o644)),
        Posix::AccessDenied
    );
    assert_eq!(posix(bob.unlink(d, "f")), Posix::AccessDenied);
    let rename = to_rename(d, "f", d, "g");
    assert_eq!(posix(bob.change(rename)), Posix::AccessDenied);
    let given = SetAttr {
        uid: Some(1001),
        ..SetAttr::default()
    };
    assert_eq!(posix(alice.set(file, given)), Posix::NotPermitted);
    // Nobody makes files in another's name, but root.
    let mut new = room::NewFile::of_kind(FileKind::Regular);
    (new.uid, new.gid) = (0, 0);
    let make = |name: &[u8]| to_make(d, name, new.clone());
    match alice.change(make(b"mine")).unwrap() {
        Changed::Inode(made) => assert_eq!((made.uid, made.gid), (1000, 1000)),
        other => panic!("{other:?}"),
    }
    match root.change(make(b"roots")).unwrap() {
        Changed::Inode(made) => assert_eq!((made.uid, made.gid), (0, 0)),
        other => panic!("{other:?}"),
    }
    // Searching needs its right.
    alice.chmod(d, 0o700).unwrap();
    assert_eq!(posix(bob.lookup(d, "f")), Posix::AccessDenied);
    root.lookup(d, "f").unwrap();
    drop(world);
}

/// A number outlived the right to the path: clients reached files by number in directories that had been made private.
#[test]
fn a_number_in_a_directory_that_became_private_is_refused_but_for_what_is_open() {
    let (world, root, alice, bob, d) = people(LONG);
    let directory = |parent, name| {
        alice
            .make(parent, name, FileKind::Directory, 0o755)
            .unwrap()
            .no
    };
    let outer = directory(d, "outer");
    let inner = directory(outer, "inner");
    let file = |name| {
        alice
            .make(inner, name, FileKind::Regular, 0o644)
            .unwrap()
            .no
    };
    let (opened, other) = (file("opened"), file("other"));
    alice.write(&world, opened, b'x');
    let mut no = d;
    for name in ["outer", "inner", "opened"] {
        no = bob.lookup(no, name).unwrap().no;
    }
    assert_eq!(
        (no, bob.lookup(inner, "other").unwrap().no),
        (opened, other)
    );
    bob.attributes(other).unwrap();
    bob.open(opened, true, false).unwrap();

    alice.chmod(outer, 0o700).unwrap();
    // As on every POSIX file system, what is open stays open.
    bob.attributes(opened).unwrap();
    let map = bob.map(opened).unwrap();
    assert_eq!(bob.read_by(&world, &map).unwrap(), b'x');
    let denied = |what: &str| {
        let all = [
            posix(bob.attributes(other)),
            posix(bob.open(other, true, false)),
            posix(bob.map(other)),
            posix(bob.set(other, SetAttr::default())),
            posix(bob.attributes(inner)),
            posix(bob.lookup(inner, "other")),
            posix(bob.lookup(outer, "inner")),
            posix(bob.make(inner, "new", FileKind::Regular, 0o644)),
        ];
        assert_eq!(all, [Posix::AccessDenied; 8], "{what}");
    };
    denied("chmod");
    bob.close(opened).unwrap();
    assert_eq!(posix(bob.open(opened, true, false)), Posix::AccessDenied);
    assert_eq!(posix(bob.map(opened)), Posix::AccessDenied);
    for other_user in [&alice, &root] {
        other_user.attributes(other).unwrap();
        other_user.lookup(inner, "other").unwrap();
    }
    // With the right, the number is good again.
    alice.chmod(outer, 0o755).unwrap();
    bob.open(other, true, false).unwrap();
    bob.close(other).unwrap();
    bob.lookup(inner, "other").unwrap();

    // A move of the directory below one that is private does the same.
    let private = alice
        .make(d, "private", FileKind::Directory, 0o700)
        .unwrap()
        .no;
    alice
        .change(to_rename(d, "outer", private, "outer"))
        .unwrap();
    denied("the directory moved");
}

#[test]
fn a_number_of_a_moved_file_is_reached_through_the_names_it_has_now() {
    let (world, _, alice, bob, d) = people(LONG);
    let private = alice
        .make(d, "private", FileKind::Directory, 0o700)
        .unwrap()
        .no;
    let file = alice.make(d, "f", FileKind::Regular, 0o644).unwrap().no;
    let linked = alice.make(d, "g", FileKind::Regular, 0o644).unwrap().no;
    for name in ["f", "g"] {
        bob.lookup(d, name).unwrap();
    }
    let link = to_link(linked, d, "another");
    alice.change(link).unwrap();
    let hide = |name: &[u8]| {
        let rename = to_rename(d, name, private, name);
        alice.change(rename).unwrap();
    };
    hide(b"f");
    hide(b"g");
    assert_eq!(posix(bob.attributes(file)), Posix::AccessDenied);
    assert_eq!(posix(bob.open(file, true, false)), Posix::AccessDenied);
    alice.open(file, true, false).unwrap();
    // It has a name where bob may look; he finds it by that.
    assert_eq!(bob.lookup(d, "another").unwrap().no, linked);
    bob.open(linked, true, false).unwrap();
    bob.close(linked).unwrap();
    hide(b"another");
    // Two names, in one directory: there could be one elsewhere. Looking it up gives the verdict.
    assert_eq!(posix(bob.open(linked, true, false)), Posix::Stale);
    assert_eq!(posix(bob.lookup(private, "another")), Posix::AccessDenied);
    drop(world);
}

#[test]
fn chmod_takes_the_right_away_at_the_disk_before_it_returns() {
    let (world, _, alice, bob, d) = people(LONG);
    let file = alice.make(d, "f", FileKind::Regular, 0o666).unwrap().no;
    alice.write(&world, file, b'a');
    bob.open(file, true, true).unwrap();
    let granted = bob.grant(4).unwrap();
    let written = bob.write_block(&world, &granted, 0, 4096, b'b').unwrap();
    bob.place(file, vec![written]).unwrap();
    let map = bob.map(file).unwrap();
    assert_eq!(bob.read_by(&world, &map).unwrap(), b'a');
    let alices = alice.map(file).unwrap();
    // Reading stays, writing goes.
    alice.chmod(file, 0o644).unwrap();
    assert_eq!(bob.read_by(&world, &map).unwrap(), b'a');
    assert!(matches!(
        bob.write_block(&world, &granted, 1, 8192, b'b'),
        Err(DiskError::Revoked)
    ));
    assert_eq!(posix(bob.place(file, Vec::new())), Posix::AccessDenied);
    // Reading goes too.
    alice.chmod(file, 0o600).unwrap();
    assert!(matches!(bob.read_by(&world, &map), Err(DiskError::Revoked)));
    assert_eq!(posix(bob.map(file)), Posix::AccessDenied);
    // Who keeps the right keeps the capability.
    assert_eq!(alice.read_by(&world, &alices).unwrap(), b'a');
    assert!(world.server().metrics().capabilities.revoked >= 2);
}

#[test]
fn the_last_name_gone_revokes_the_right_of_clients_without_an_open_file() {
    let (world, root, alice, bob, d) = people(LONG);
    let file = alice.make(d, "f", FileKind::Regular, 0o644).unwrap().no;
    let granted = alice.write(&world, file, b'a');
    bob.open(file, true, false).unwrap();
    let (bobs, roots) = (bob.map(file).unwrap(), root.map(file).unwrap());
    alice.unlink(d, "f").unwrap();
    assert!(matches!(
        root.read_by(&world, &roots),
        Err(DiskError::Revoked)
    ));
    assert_eq!(bob.read_by(&world, &bobs).unwrap(), b'a');
    // Closed, it is gone, and its space, which no grant holds, is freed only after bob's right was revoked.
    alice
        .ask(|c, x, s| async move { c.give_back(x, s, vec![granted.grant]).await })
        .unwrap()
        .unwrap();
    bob.close(file).unwrap();
    until("the right is revoked with the space", || {
        alice.sync().unwrap();
        matches!(bob.read_by(&world, &bobs), Err(DiskError::Revoked))
    });
}

#[test]
fn a_cut_file_is_not_read_by_an_old_map() {
    let (world, _, alice, bob, d) = people(LONG);
    let file = alice.make(d, "f", FileKind::Regular, 0o644).unwrap().no;
    alice.write(&world, file, b'a');
    let map = bob.map(file).unwrap();
    alice.set(file, SetAttr::size(0)).unwrap();
    assert!(matches!(bob.read_by(&world, &map), Err(DiskError::Revoked)));
    assert!(bob.map(file).unwrap().chunks.is_empty());
}

#[test]
fn a_session_ends_with_its_lease_and_what_it_held_is_free_after_its_rights_are_gone() {
    let (world, _, alice, bob, d) = people(Duration::from_secs(2));
    let file = alice.make(d, "f", FileKind::Regular, 0o666).unwrap().no;
    bob.open(file, true, true).unwrap();
    let granted = bob.write(&world, file, b'b');
    let map = bob.map(file).unwrap();
    let lock = lock(LockKind::Exclusive, 0, u64::MAX);
    let take = |who: &Raw, wait| {
        who.ask(|c, x, s| async move {
            c.set_lock(x, s, file, LockTable::Posix, LockOwner(1), lock, wait)
                .await
        })
        .unwrap()
    };
    take(&bob, false).unwrap();
    alice.open(file, true, true).unwrap();
    assert_eq!(posix(take(&alice, false)), Posix::WouldBlock);
    // Alice sends heartbeats, bob is idle.
    until("bob's lock is broken", || {
        alice.heartbeat().unwrap();
        take(&alice, true).is_ok()
    });
    // By then nothing of bob's is good any more.
    assert!(matches!(bob.read_by(&world, &map), Err(DiskError::Revoked)));
    assert!(matches!(
        bob.write_block(&world, &granted, 5, 0, b'z'),
        Err(DiskError::Revoked)
    ));
    assert_eq!(bob.sync(), Err(Refusal::NoSession));
    let again = Raw::connect(&world, bob.identity.clone(), Some(bob.id())).unwrap();
    assert_ne!(again.id(), bob.id());
    assert_eq!(again.welcome.boot, bob.welcome.boot);
}

#[test]
fn a_change_is_done_once_however_often_and_over_whichever_connection_it_is_sent() {
    let (world, _, alice, _, d) = people(LONG);
    let make = || to_make(d, "once", room::NewFile::of_kind(FileKind::Regular));
    let send = |who: &Raw| who.change_by(0, 1, make());
    let first = send(&alice).unwrap();
    assert_eq!(send(&alice).unwrap(), first);
    let again = Raw::connect(&world, alice.identity.clone(), Some(alice.id())).unwrap();
    assert_eq!(send(&again).unwrap(), first);
    let name = b"once".to_vec();
    let unlink = to_unlink(d, name);
    again.change_by(0, 2, unlink).unwrap();
    // Not even after its name is free again.
    assert!(send(&again).is_err());
    assert_eq!(posix(again.lookup(d, "once")), Posix::NotFound);
}

#[test]
fn an_answer_outlives_the_server_and_is_given_to_nobody_else() {
    let (world, _, alice, bob, d) = people(LONG);
    let make = |name: &str| to_make(d, name, room::NewFile::of_kind(FileKind::Regular));
    let first = alice.change_by(3, 7, make("alices")).unwrap();
    let again = reopened(&world, &alice);
    assert_eq!(again.change_by(3, 7, make("alices")).unwrap(), first);
    assert_eq!(again.recall(3, 7), Ok(Recalled::Done(first.clone())));
    // Older ones are refused, and one that was not done will not be after it was recalled.
    assert!(again.change_by(3, 6, make("late")).is_err());
    assert_eq!(again.recall(3, 8), Ok(Recalled::NotDone));
    assert!(again.change_by(3, 8, make("late")).is_err());
    assert_eq!(posix(again.lookup(d, "late")), Posix::NotFound);
    // Bob says that he is Alice's client.
    let bob = Raw::connect(&world, bob.identity.clone(), Some(alice.id())).unwrap();
    assert_eq!(bob.recall(3, 7), Ok(Recalled::NotDone));
    let own = bob.change_by(3, 9, make("bobs"));
    assert_ne!(own, Ok(first));
    for (slot, sequence) in [(64, 1), (u32::MAX, 1), (0, 0), (0, u64::MAX)] {
        assert!(bob.change_by(slot, sequence, make("wrong")).is_err());
    }
}

#[test]
fn many_threads_that_send_one_change_get_one_answer() {
    let (world, _, alice, _, d) = people(LONG);
    let others: Vec<Raw> = (0..4)
        .map(|_| Raw::connect(&world, alice.identity.clone(), Some(alice.id())).unwrap())
        .collect();
    for number in 1..20u64 {
        let answers: Vec<_> = std::thread::scope(|scope| {
            let sent: Vec<_> = others
                .iter()
                .map(|other| {
                    scope.spawn(move || {
                        let change = to_make(
                            d,
                            format!("n{number}"),
                            room::NewFile::of_kind(FileKind::Regular),
                        );
                        other.change_by(0, number, change).unwrap()
                    })
                })
                .collect();
            sent.into_iter().map(|s| s.join().unwrap()).collect()
        });
        assert!(answers.iter().all(|a| *a == answers[0]));
    }
}

/// Asked for again because an answer was lost, an open counted twice: closed once, its file was kept until the session ended.
#[test]
fn opens_and_closes_whose_answers_were_lost_count_once() {
    let (world, _, alice, _, d) = people(LONG);
    let file = alice.make(d, "f", FileKind::Regular, 0o644).unwrap().no;
    let access = room::Access::READ;
    let [first, second, third, closed] = [
        common::once(),
        common::once(),
        common::once(),
        common::once(),
    ];
    for opening in [
        Opening::New(first),
        Opening::New(first),
        Opening::New(second),
        // As a client does that takes up its session, and does so once more.
        Opening::Again,
        Opening::Again,
    ] {
        alice.open_as(opening, file, access).unwrap();
    }
    alice.unlink(d, "f").unwrap();
    for _ in 0..3 {
        alice.close_as(closed, file).unwrap();
    }
    // One of two is left.
    assert!(alice.attributes(file).is_ok());
    assert_eq!(world.server().metrics().opens, 1);
    alice.close_as(third, file).unwrap();
    assert!(alice.attributes(file).is_err());
    assert_eq!(world.server().metrics().opens, 0);
}

#[test]
fn a_user_who_is_removed_is_out_at_once_and_for_good() {
    let (world, _, alice, bob, d) = people(LONG);
    let file = alice.make(d, "f", FileKind::Regular, 0o644).unwrap().no;
    alice.write(&world, file, b'a');
    let map = bob.map(file).unwrap();
    assert_eq!(world.server().remove_user("bob").unwrap(), Ended::All);
    assert!(matches!(bob.read_by(&world, &map), Err(DiskError::Revoked)));
    let asked = bob.ask(|c, x, s| async move { c.beat(x, s).await });
    assert!(matches!(asked, Err(_) | Ok(Err(Refusal::NoSession))));
    assert!(Raw::connect(&world, bob.identity.clone(), None).is_err());
    // Not with the old key either when the name comes back.
    world.identity("bob", 1001, &[1001]);
    assert!(Raw::connect(&world, bob.identity.clone(), None).is_err());
    assert!(Raw::connect(&world, alice.identity.clone(), None).is_ok());
}

/// It was said that a disk cannot be reached.
#[test]
fn a_user_who_is_removed_while_the_room_cannot_be_changed_is_out_and_only_locks_are_left() {
    let (world, _, alice, bob, d) = people(LONG);
    let file = alice.make(d, "f", FileKind::Regular, 0o666).unwrap().no;
    alice.write(&world, file, b'a');
    bob.open(file, true, true).unwrap();
    let map = bob.map(file).unwrap();
    let whole = lock(LockKind::Exclusive, 0, u64::MAX);
    let (table, owner) = (LockTable::Posix, LockOwner(1));
    bob.ask(|c, x, s| async move { c.set_lock(x, s, file, table, owner, whole, false).await })
        .unwrap()
        .unwrap();
    world.server().fail_at_for_test(Point::Ending);
    let ended = world.server().remove_user("bob").unwrap();
    assert_eq!(ended, Ended::ButInRoom);
    assert!(bob.read_by(&world, &map).is_err());
    assert!(Raw::connect(&world, bob.identity.clone(), None).is_err());
}

/// Nothing of what it had is accepted later, when the disk is there again.
#[test]
fn a_user_who_is_removed_while_a_disk_is_away_is_out() {
    let (mut world, _, alice, bob, d) = people(LONG);
    let file = alice.make(d, "f", FileKind::Regular, 0o644).unwrap().no;
    alice.write(&world, file, b'a');
    let map = bob.map(file).unwrap();
    world.disks[0].stop();
    let ended = world.server().remove_user("bob").unwrap();
    assert_eq!(ended, Ended::ButOnDisks);
    world.disks[0].start();
    until("the disk knows", || bob.read_by(&world, &map).is_err());
}

#[test]
fn a_restarted_disk_gets_a_fresh_group_and_revoked_capabilities_stay_revoked() {
    let (mut world, _, alice, bob, d) = people(LONG);
    let file = alice.make(d, "f", FileKind::Regular, 0o644).unwrap().no;
    alice.write(&world, file, b'a');
    let (old, kept) = (bob.map(file).unwrap(), alice.map(file).unwrap());
    alice.chmod(file, 0o600).unwrap();
    world.disks[0].stop();
    world.disks[0].start();
    assert!(matches!(
        bob.read_by(&world, &old),
        Err(DiskError::UnknownGroup)
    ));
    // Without anybody's doing, and without a new session.
    until("the disk accepts requests again", || {
        let map = alice.map(file);
        map.is_ok_and(|map| alice.read_by(&world, &map).is_ok_and(|byte| byte == b'a'))
    });
    for map in [&old, &kept] {
        assert!(matches!(
            bob.read_by(&world, map),
            Err(DiskError::UnknownGroup)
        ));
    }
}

#[test]
fn group_numbers_rise_over_all_starts() {
    let (mut world, _, alice, _, d) = people(LONG);
    let file = alice.make(d, "f", FileKind::Regular, 0o644).unwrap().no;
    alice.write(&world, file, b'a');
    let identity = alice.identity.clone();
    let mut last = alice.map(file).unwrap().tickets[0].capability.group;
    for _ in 0..3 {
        world.stop();
        world.start();
        let alice = Raw::connect(&world, identity.clone(), None).unwrap();
        let group = alice.map(file).unwrap().tickets[0].capability.group;
        assert!(group > last, "{group:?} after {last:?}");
        last = group;
    }
}

#[test]
fn a_room_whose_storage_failed_is_reopened_by_itself() {
    let (world, _, alice, _, d) = people(LONG);
    let file = alice.make(d, "f", FileKind::Regular, 0o644).unwrap().no;
    alice.write(&world, file, b'a');
    alice.sync().unwrap();
    let map = alice.map(file).unwrap();
    let again = reopened(&world, &alice);
    assert_eq!(alice.sync(), Err(Refusal::NoSession));
    assert!(matches!(
        alice.read_by(&world, &map),
        Err(DiskError::UnknownGroup)
    ));
    let map = again.map(file).unwrap();
    assert_eq!(again.read_by(&world, &map).unwrap(), b'a');
    assert_eq!(world.server().metrics().reopened, 1);
}

#[test]
fn a_change_waits_for_a_disk_that_is_not_there_and_is_made_once() {
    let (mut world, _, alice, bob, d) = people(LONG);
    let file = alice.make(d, "f", FileKind::Regular, 0o644).unwrap().no;
    alice.write(&world, file, b'a');
    let old = bob.map(file).unwrap();
    world.disks[0].stop();
    let number = alice.number();
    let private = || {
        let set = SetAttr::mode(0o600);
        alice.change_by(0, number, Change::SetAttributes { no: file, set })
    };
    assert_eq!(private(), Err(Refusal::NotNow(Delay::Disk)));
    assert_eq!(posix(bob.map(file)), Posix::AccessDenied);
    world.disks[0].start();
    let changed = alice.attributes(file).unwrap().ctime;
    let mut answer = private();
    until("an answer", || {
        answer = private();
        answer.is_ok()
    });
    match answer {
        Ok(Changed::Inode(inode)) => assert_eq!((inode.mode, inode.ctime), (0o600, changed)),
        other => panic!("{other:?}"),
    }
    until("the disk is looked after", || alice.map(file).is_ok());
    assert!(bob.read_by(&world, &old).is_err());
}

/// Sessions that had ended were forgotten: the call returned while their capabilities were good at the disk.
#[test]
fn what_a_session_has_that_ended_while_a_disk_is_away_is_waited_for() {
    let (mut world, _, alice, bob, d) = people(LONG);
    let make = |name| {
        let no = alice.make(d, name, FileKind::Regular, 0o644).unwrap().no;
        alice.write(&world, no, b'a');
        bob.open(no, true, false).unwrap();
        bob.map(no).unwrap();
        no
    };
    let file = make("f");
    make("gone");
    world.disks[0].stop();
    let over = bob.ask(|c, x, s| async move { c.bye(x, s).await });
    over.unwrap().unwrap();
    let set = SetAttr::mode(0o600);
    let changes = [
        Change::SetAttributes { no: file, set },
        to_unlink(d, "gone"),
    ];
    let ask = |slot: usize| alice.change_by(slot as u32 + 1, 1, changes[slot].clone());
    for slot in 0..changes.len() {
        assert_eq!(ask(slot), Err(Refusal::NotNow(Delay::Disk)), "{slot}");
    }
    world.disks[0].start();
    for slot in 0..changes.len() {
        until("an answer", || ask(slot).is_ok());
    }
}

/// It was `EIO` when the server had asked the disk in vain for five seconds, or the server ended all sessions.
#[test]
fn a_change_of_data_waits_for_the_disk_that_it_reads_from() {
    let (mut world, _, alice, _, d) = people(LONG);
    let make = |name| alice.make(d, name, FileKind::Regular, 0o644).unwrap().no;
    let (file, copy) = (make("f"), make("copy"));
    alice.write(&world, file, b'a');
    world.disks[0].stop();
    let truncated = SetAttr::size(1000);
    let changes = [
        to_copy(file, 0, copy, 1, 4096),
        Change::Fallocate {
            no: file,
            what: room::Fallocate::PunchHole,
            offset: 100,
            len: 50,
        },
        Change::SetAttributes {
            no: file,
            set: truncated,
        },
    ];
    let ask = |slot: usize| alice.change_by(slot as u32 + 1, 1, changes[slot].clone());
    for slot in 0..changes.len() {
        assert_eq!(ask(slot), Err(Refusal::NotNow(Delay::Disk)), "{slot}");
    }
    // What needs nothing of the disk is done.
    alice.chmod(copy, 0o600).unwrap();
    world.disks[0].start();
    for slot in 0..changes.len() {
        until("the change is made", || match ask(slot) {
            Ok(_) => true,
            Err(Refusal::NotNow(_)) => false,
            other => panic!("{slot}: {other:?}"),
        });
    }
    assert_eq!(alice.attributes(copy).unwrap().size, 4097);
    assert_eq!(alice.attributes(file).unwrap().size, 1000);
    assert_eq!(world.server().metrics().reopened, 0);
}

/// The copy held what names are changed under while it waited for the disk: one who made a file waited, and behind that one everybody.
#[test]
fn names_are_found_and_made_while_a_copy_waits_for_a_disk() {
    let mut world = World::new(1);
    world.stop();
    world.change = |config| config.timing.revocation_timeout = LONG;
    world.start();
    let root = world.client("root", 0, &[0]);
    let make = |name| root.make(ROOT, name, FileKind::Regular, 0o644);
    let (file, copy) = (make("f").unwrap().no, make("copy").unwrap().no);
    // Under a grant that goes on, which the copy ends.
    root.write(&world, file, b'a');
    world.disks[0].stop();
    let change = to_copy(file, 0, copy, 0, 4096);
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| root.change_by(1, 1, change.clone()));
        until("the copy waits", || {
            world.server().disks().unwrap()[0].pending > 0
        });
        make("g").unwrap();
        root.lookup(ROOT, "g").unwrap();
        assert!(!copying.is_finished());
        world.disks[0].start();
        assert_eq!(copying.join().unwrap(), Ok(Changed::Copied(4096)));
    });
}
