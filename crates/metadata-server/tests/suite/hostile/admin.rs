//! An administrator manages disks and users, and reaches no name and no data, whatever it sends.

use std::sync::Arc;

use metadata_client::admin::{AdminError, administer};
use metadata_proto::admin::{Answer, Ended, Quota, Request, SnapshotPolicy, Used, VERSION};
use metadata_proto::rpc::*;
use metadata_server::enrol::Identity;
use room::{Access, FileKind, InodeNo};

use crate::common::{Disk, Raw, World, context, dial, to_unlink};

fn ask(world: &World, identity: &Identity, request: Request) -> Answer {
    let address = world.server().local_addr().to_string();
    administer(&address, identity, request).unwrap()
}

#[test]
fn an_administrator_manages_users_and_disks_over_the_network() {
    let mut world = World::new(1);
    let bob = world.client("bob", 1001, &[1001]);
    let (_, carol) = world.server().add_admin("carol").unwrap();
    let Answer::Users(users) = ask(&world, &carol, Request::Users) else {
        panic!()
    };
    let names: Vec<_> = users.iter().map(|user| user.name.as_str()).collect();
    assert_eq!(names, ["bob", "carol"]);
    let quota = Quota {
        bytes: Some(1 << 20),
        files: None,
    };
    let set = |name: &str| Request::SetQuota {
        name: name.into(),
        quota,
    };
    assert_eq!(ask(&world, &carol, set("bob")), Answer::Done);
    for not_a_user in ["nobody", "carol"] {
        let refused = ask(&world, &carol, set(not_a_user));
        assert!(matches!(refused, Answer::Refused { busy: false, .. }));
    }
    let Answer::Users(users) = ask(&world, &carol, Request::Users) else {
        panic!()
    };
    assert_eq!(users[0].quota, quota);
    assert_eq!(users[0].used, Some(Used { bytes: 0, files: 0 }));
    let second = Disk::new("second");
    let (address, key) = (second.address(), second.keys.key.clone());
    let add = Request::AddDisk {
        name: "second".into(),
        address,
        key,
    };
    assert_eq!(ask(&world, &carol, add), Answer::Done);
    let Answer::Disks(disks) = ask(&world, &carol, Request::Disks) else {
        panic!()
    };
    assert_eq!(disks.len(), 2);
    let remove = Request::RemoveDisk {
        name: "second".into(),
    };
    assert_eq!(ask(&world, &carol, remove), Answer::Done);
    let name = "bob".to_owned();
    let removed = ask(&world, &carol, Request::RemoveUser { name });
    assert_eq!(removed, Answer::Removed(Ended::All));
    assert!(Raw::connect(&world, bob.identity.clone(), None).is_err());
    let name = "nobody".to_owned();
    let refused = ask(&world, &carol, Request::RemoveUser { name });
    assert!(matches!(refused, Answer::Refused { busy: false, .. }));
    // It is one after a restart too, until it is removed.
    world.stop();
    world.start();
    ask(&world, &carol, Request::Users);
    world.server().remove_user("carol").unwrap();
    let address = world.server().local_addr().to_string();
    let out = administer(&address, &carol, Request::Users);
    assert!(matches!(out, Err(AdminError::NotAnAdministrator)));
}

#[test]
fn an_administrator_keeps_snapshots_over_the_network() {
    let world = World::new(1);
    let bob = world.client("bob", 1001, &[1001]);
    let (_, carol) = world.server().add_admin("carol").unwrap();
    let ask = |request| ask(&world, &carol, request);
    let names = |answer| -> Vec<String> {
        let Answer::Snapshots { rows, .. } = answer else {
            panic!("{answer:?}")
        };
        let names = rows.into_iter().map(|row| row.snapshot.name);
        names.collect()
    };
    let create = |name: Option<&str>| Request::CreateSnapshot {
        name: name.map(Into::into),
    };
    let rename = |from: &str, to: &str| Request::RenameSnapshot {
        from: from.into(),
        to: to.into(),
    };
    let delete = |name: &str| Request::DeleteSnapshot { name: name.into() };
    assert_eq!(names(ask(create(Some("monday")))), ["monday"]);
    assert_eq!(ask(create(Some("monday"))), Answer::SnapshotExists);
    let of_now = names(ask(create(None)));
    assert_eq!(names(ask(Request::Snapshots)), ["monday", &of_now[0]]);
    assert_eq!(ask(rename(&of_now[0], "monday")), Answer::SnapshotExists);
    assert_eq!(ask(rename(&of_now[0], "tuesday")), Answer::Done);
    assert_eq!(ask(rename("sunday", "x")), Answer::NoSnapshot);
    for malformed in [create(Some("a/b")), rename("monday", "")] {
        let refused = ask(malformed);
        assert!(
            matches!(refused, Answer::Refused { busy: false, .. }),
            "{refused:?}"
        );
    }
    assert_eq!(ask(delete("monday")), Answer::Done);
    assert_eq!(ask(delete("monday")), Answer::NoSnapshot);
    let listed = bob.ask(|c, x, s| async move { c.snapshots(x, s).await });
    assert_eq!(listed.unwrap().unwrap()[0].name, "tuesday");

    let prune = Request::PruneSnapshots { dry_run: false };
    assert_eq!(ask(prune.clone()), Answer::NoSnapshotPolicy);
    let set = |policy| Request::SetSnapshotPolicy { policy };
    let keeps_nothing = Some(SnapshotPolicy::default());
    let refused = ask(set(keeps_nothing));
    assert!(
        matches!(refused, Answer::Refused { busy: false, .. }),
        "{refused:?}"
    );
    let daily = Some(SnapshotPolicy {
        daily: 7,
        ..SnapshotPolicy::default()
    });
    assert_eq!(ask(set(daily)), Answer::Done);
    assert_eq!(ask(Request::SnapshotPolicy), Answer::SnapshotPolicy(daily));
    // Those that are made by hand stay.
    assert_eq!(names(ask(prune)), [""; 0]);
    assert_eq!(names(ask(Request::Snapshots)), ["tuesday"]);
    assert_eq!(ask(set(None)), Answer::Done);
    assert_eq!(ask(Request::SnapshotPolicy), Answer::SnapshotPolicy(None));
}

#[test]
fn an_administrator_has_no_session_and_reaches_nothing_with_that_of_another() {
    let world = World::new(1);
    let root = world.client("root", 0, &[0]);
    let file = root
        .make(InodeNo::ROOT, "a", FileKind::Regular, 0o666)
        .unwrap();
    root.open(file.no, true, true).unwrap();
    let (_, carol) = world.server().add_admin("carol").unwrap();
    let carol = Arc::new(carol);
    assert!(Raw::connect(&world, carol.clone(), None).is_err());
    assert!(Raw::connect(&world, carol.clone(), Some(root.id())).is_err());
    // Nor by calls that know the number of a session.
    let (no, s) = (file.no, root.id());
    let client = world
        .runtime
        .block_on(dial(world.server().local_addr(), &carol))
        .unwrap();
    world.runtime.block_on(async {
        let x = context();
        let out = Some(Refusal::NoSession);
        let name = b"a".to_vec();
        let parent = InodeNo::ROOT;
        assert_eq!(client.lookup(x, s, parent, name).await.unwrap().err(), out);
        assert_eq!(client.attributes(x, s, no).await.unwrap().err(), out);
        assert_eq!(
            client.read_dir(x, s, parent, 0, 9).await.unwrap().err(),
            out
        );
        let opened = client.open(x, s, Opening::Again, no, Access::READ).await;
        assert_eq!(opened.unwrap().err(), out);
        assert!(client.map(x, s, no, 0, 1).await.unwrap().is_err());
        // words.py: the call has this name
        assert!(client.grant(x, s, 1).await.unwrap().is_err());
        assert_eq!(client.space(x, s).await.unwrap().err(), out);
        assert_eq!(client.sync(x, s).await.unwrap().err(), out);
        let unlink = to_unlink(parent, "a");
        assert_eq!(client.change(x, s, 0, 1, unlink).await.unwrap().err(), out);
    });
    assert!(root.lookup(InodeNo::ROOT, "a").is_ok());
}

#[test]
fn a_user_is_no_administrator_not_even_root() {
    let world = World::new(1);
    let root = world.client("root", 0, &[0]);
    let address = world.server().local_addr().to_string();
    let name = "root".to_owned();
    let set = Request::SetQuota {
        name: name.clone(),
        quota: Quota::default(),
    };
    for request in [
        Request::Users,
        Request::Disks,
        set,
        Request::RemoveUser { name },
    ] {
        let refused = administer(&address, &root.identity, request);
        assert!(matches!(refused, Err(AdminError::NotAnAdministrator)));
    }
    let version =
        root.ask(|c, x, _| async move { c.administer(x, VERSION + 1, Request::Users).await });
    assert!(matches!(version, Ok(Err(Refusal::Version { .. }))));
    // A name is a user's or an administrator's.
    assert!(world.server().add_admin("root").is_err());
    world.server().add_admin("carol").unwrap();
    assert!(world.server().add_user("carol", 7, &[7]).is_err());
}
