//! A server that hangs: its connections stay, and nothing is answered any more.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Instant;

use metadata_client::ClientOptions;
use room::{Access, FileSystem, InodeNo};

use super::common::{LONG, Shared, noise, wait_for};
use super::rights::new;
use crate::common::port::fixed_port;

/// Everything is passed on.
const OPEN: u8 = 0;
/// What the server says next is passed on, and then nothing more.
const LAST: u8 = 1;
/// Nothing is passed on.
const HUNG: u8 = 2;

/// An address of a server, whose connections can be made to hang.
struct Way {
    address: SocketAddr,
    state: Arc<AtomicU8>,
}

impl Way {
    fn new(address: SocketAddr, server: &str) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (state, server) = (Arc::new(AtomicU8::new(OPEN)), server.to_owned());
        let way = Self {
            address,
            state: state.clone(),
        };
        thread::spawn(move || {
            for client in listener.incoming() {
                let _ = pass(client?, TcpStream::connect(&server)?, &state);
            }
            io::Result::Ok(())
        });
        way
    }

    fn hang_after_the_next_answer(&self) {
        self.state.store(LAST, Ordering::SeqCst);
    }

    fn hangs(&self) -> bool {
        self.state.load(Ordering::SeqCst) == HUNG
    }
}

/// Passes on what both say, each on a thread of its own.
fn pass(client: TcpStream, server: TcpStream, state: &Arc<AtomicU8>) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (asked, asks) = (client.try_clone()?, server.try_clone()?);
    let requests = state.clone();
    thread::spawn(move || pass_on(asked, asks, || requests.load(Ordering::SeqCst) != HUNG));
    let answers = state.clone();
    thread::spawn(move || {
        pass_on(server, client, || {
            let last = answers.compare_exchange(LAST, HUNG, Ordering::SeqCst, Ordering::SeqCst);
            last != Err(HUNG)
        })
    });
    Ok(())
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, passes: impl Fn() -> bool) {
    let mut bytes = [0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        if passes() && to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn a_server_that_hangs_is_found_out_while_grants_are_released() {
    let shared = Shared::with_long_leases();
    let way = Way::new(SocketAddr::from(([127, 0, 0, 1], 0)), &shared.address());
    let other = SocketAddr::from(([127, 0, 0, 1], fixed_port()));
    let options = ClientOptions {
        // What a lost call takes that nobody notices.
        timeout: 3 * LONG,
        address: format!("{},{other}", way.address),
        ..shared.options()
    };
    let client = shared.client_with(options, "a", 0);
    let made = client.make(InodeNo::ROOT, b"f", &new(0, 0o644)).unwrap();
    let access = Access {
        read: true,
        write: true,
    };
    client.open(made.no, access).unwrap();
    // More than the first grants have, so some are over as soon as it is committed.
    client.write(made.no, 0, &noise(1, 4 << 20)).unwrap();
    client.fsync(made.no).unwrap();
    way.hang_after_the_next_answer();
    wait_for("a heartbeat or a release", || way.hangs());
    let _other = Way::new(other, &shared.address());
    let start = Instant::now();
    let found = client.lookup(InodeNo::ROOT, b"f").unwrap();
    assert_eq!(found.no, made.no);
    let took = start.elapsed();
    assert!(took < LONG, "the call waited for {took:?}");
    client.end().unwrap();
}
