//! Who is let in: connections that would keep others out are bounded for each address and user, and keys end.

use crate::common;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{LONG, Raw, World};
use rustix::net::{AddressFamily, SocketType};

/// A connection from 127.0.0.`last`.
fn connect_from(last: u8, to: SocketAddr) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
    rustix::net::connect(&socket, &to).unwrap();
    TcpStream::from(socket)
}

#[test]
fn connections_that_show_no_key_give_way_to_users() {
    let mut world = World::with_lease(1, LONG);
    world.stop();
    world.change = |config| (config.connections_max, config.waiting_max) = (8, 8);
    world.start();
    let to = world.server().local_addr();
    let flood: Vec<_> = (0..64).map(|_| connect_from(2, to)).collect();
    world.client("alice", 1001, &[1001]);
    let more: Vec<_> = (10..74).map(|last| connect_from(last, to)).collect();
    world.client("bob", 1002, &[1002]);
    drop((flood, more));
}

#[test]
fn a_user_has_a_share_of_the_connections() {
    let mut world = World::with_lease(1, LONG);
    world.stop();
    world.change = |config| (config.connections_max, config.connections_per_user) = (4, 2);
    world.start();
    let alice = Arc::new(world.identity("alice", 1001, &[1001]));
    let connect = |identity: &Arc<metadata_proto::identity::Identity>| {
        Raw::connect(&world, identity.clone(), None)
    };
    let kept = [connect(&alice).unwrap(), connect(&alice).unwrap()];
    assert!(connect(&alice).is_err());
    let bob = Arc::new(world.identity("bob", 1002, &[1002]));
    connect(&bob).unwrap();
    drop(kept);
}

#[test]
fn a_key_that_was_renewed_is_accepted_for_its_overlap_and_then_no_more() {
    let world = World::with_lease(1, LONG);
    let old = Arc::new(world.identity("alice", 1001, &[1001]));
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let end = old.end().unwrap();
    assert!((now + 700 * 86_400..now + 740 * 86_400).contains(&end));
    let connect = |identity: &Arc<metadata_proto::identity::Identity>| {
        Raw::connect(&world, identity.clone(), None)
    };
    let renew = |replaces, overlap| world.server().renew_user("alice", replaces, overlap);
    // Beside the new one while it is replaced.
    let (_, second) = renew(old.serial(), Duration::from_secs(3600)).unwrap();
    let second = Arc::new(second);
    connect(&old).unwrap();
    let session = connect(&second).unwrap();
    session.chmod(room::InodeNo::ROOT, 0o700).unwrap_err();
    // And at once without an overlap: also sessions that it began.
    let (user, third) = renew(second.serial(), Duration::ZERO).unwrap();
    assert_eq!(user.serials.len(), 3);
    common::until("its session ends", || {
        let asked =
            session.ask(|c, x, s| async move { c.read_dir(x, s, room::InodeNo::ROOT, 0, 1).await });
        !matches!(asked, Ok(Ok(_)))
    });
    assert!(connect(&second).is_err());
    connect(&old).unwrap();
    connect(&Arc::new(third)).unwrap();
    // A key of somebody else is not replaced.
    let bob = world.identity("bob", 1002, &[1002]);
    assert!(renew(bob.serial(), Duration::ZERO).is_err());
    assert!(renew(Some([1; 16]), Duration::ZERO).is_err());
    assert!(
        world
            .server()
            .renew_user("eve", None, Duration::ZERO)
            .is_err()
    );
    assert!(
        world
            .server()
            .lifetimes()
            .unwrap()
            .iter()
            .all(|l| l.end.is_some())
    );
}

#[test]
fn the_authority_is_replaced_while_both_are_accepted() {
    let world = World::with_lease(1, LONG);
    let old = Arc::new(world.identity("alice", 1001, &[1001]));
    let connect = |identity: &Arc<metadata_proto::identity::Identity>| {
        Raw::connect(&world, identity.clone(), None)
    };
    let server = world.server();
    assert!(server.finish_rotation(false).is_err());
    server.rotate_authority().unwrap();
    assert!(server.rotate_authority().is_err(), "one at a time");
    // A key from before and one from now.
    let session = connect(&old).unwrap();
    let (_, new) = server
        .renew_user("alice", old.serial(), Duration::from_secs(3600))
        .unwrap();
    let text = new.to_text("alice");
    let new = Arc::new(metadata_proto::identity::Identity::parse(text.as_bytes()).unwrap());
    connect(&new).unwrap();
    connect(&old).unwrap();
    assert!(server.lifetimes().unwrap().iter().any(|l| l.replaced));
    let refused = server.finish_rotation(false).unwrap_err().to_string();
    assert!(refused.contains("alice"), "{refused}");
    server.finish_rotation(true).unwrap();
    let asked =
        session.ask(|c, x, s| async move { c.read_dir(x, s, room::InodeNo::ROOT, 0, 1).await });
    assert!(!matches!(asked, Ok(Ok(_))));
    assert!(connect(&old).is_err());
    connect(&new).unwrap();
    // Those who come later know the new authority alone.
    connect(&Arc::new(world.identity("bob", 1002, &[1002]))).unwrap();
    assert!(server.lifetimes().unwrap().iter().all(|l| !l.replaced));
}
