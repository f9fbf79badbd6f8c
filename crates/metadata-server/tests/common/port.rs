//! Ports of servers that are started again where they were.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpListener;

/// A free port of loopback that no client takes while its server is down: below those that Linux gives to connections
/// (`net.ipv4.ip_local_port_range` begins at 32,768).
#[allow(unreachable_pub, reason = "a module of the common one in other tests")]
pub fn fixed_port() -> u16 {
    loop {
        let random = RandomState::new().build_hasher().finish();
        let port = 10_000 + (random % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
