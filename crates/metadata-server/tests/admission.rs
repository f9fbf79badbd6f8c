//! Who is let in: connections that would keep others out are bounded for each address and user.

mod common;

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use common::{LONG, Raw, World};
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
    let connect =
        |identity: &Arc<metadata::enrol::Identity>| Raw::connect(&world, identity.clone(), None);
    let kept = [connect(&alice).unwrap(), connect(&alice).unwrap()];
    assert!(connect(&alice).is_err());
    let bob = Arc::new(world.identity("bob", 1002, &[1002]));
    connect(&bob).unwrap();
    drop(kept);
}
