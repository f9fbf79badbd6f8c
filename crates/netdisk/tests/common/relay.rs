//! Somebody on the way between client and disk, who sees and changes what passes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::raw;

/// What to do with bytes that pass; may change them, or keep them.
pub(crate) type Hand = Box<dyn FnMut(&mut Vec<u8>) + Send>;

/// A relay on loopback. What passes is whole messages as long as the client asks one thing at a time.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    /// Every request, in order.
    pub(crate) requests: Arc<Mutex<Vec<Vec<u8>>>>,
    to_disk: Arc<Mutex<Hand>>,
    to_client: Arc<Mutex<Hand>>,
}

impl Relay {
    pub(crate) fn before(disk: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Self {
            address: listener.local_addr().unwrap(),
            requests: Arc::default(),
            to_disk: Arc::new(Mutex::new(Box::new(|_| ()))),
            to_client: Arc::new(Mutex::new(Box::new(|_| ()))),
        };
        let (requests, to_disk, to_client) = (
            relay.requests.clone(),
            relay.to_disk.clone(),
            relay.to_client.clone(),
        );
        // Ends with the test's process.
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(disk)) else {
                    continue;
                };
                let seen = requests.clone();
                pass(&client, &server, to_disk.clone(), raw::HEAD, move |bytes| {
                    seen.lock().unwrap().push(bytes.to_vec());
                });
                pass(&server, &client, to_client.clone(), raw::REPLY, |_| ());
            }
        });
        relay
    }

    /// From now on requests pass through `hand`.
    pub(crate) fn on_request(&self, hand: impl FnMut(&mut Vec<u8>) + Send + 'static) {
        *self.to_disk.lock().unwrap() = Box::new(hand);
    }

    /// From now on replies pass through `hand`.
    pub(crate) fn on_reply(&self, hand: impl FnMut(&mut Vec<u8>) + Send + 'static) {
        *self.to_client.lock().unwrap() = Box::new(hand);
    }

    pub(crate) fn last_request(&self) -> Vec<u8> {
        self.requests.lock().unwrap().last().unwrap().clone()
    }
}

fn pass(
    from: &TcpStream,
    to: &TcpStream,
    hand: Arc<Mutex<Hand>>,
    head: usize,
    mut seen: impl FnMut(&[u8]) + Send + 'static,
) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    std::thread::spawn(move || {
        while let Some(mut message) = message(&mut from, head) {
            seen(&message);
            (hand.lock().unwrap())(&mut message);
            if to.write_all(&message).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// One whole request or reply.
fn message(from: &mut TcpStream, head: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; head];
    from.read_exact(&mut bytes).ok()?;
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let rest = if head == raw::HEAD {
        usize::from(u16::from_le_bytes([bytes[6], bytes[7]])) + u32_at(68)
    } else {
        u32_at(56)
    };
    bytes.resize(head + rest, 0);
    from.read_exact(&mut bytes[head..]).ok()?;
    Some(bytes)
}
