//! Whatever comes: a disconnect or an answer, never the end of the server.

use std::io::Write;
use std::net::Shutdown;

use crate::client::*;
use fastrand::Rng;

/// The server still serves.
fn still_serves(server: &nbd::Server) {
    let mut client = Client::transmitting(server, false);
    let reply = client.ask(READ, 0, 0, 100);
    assert_eq!(reply.payload.len(), 108);
}

/// A handshake and some requests, as one client would send them.
fn a_session(client: &Client) -> Vec<u8> {
    let mut bytes = 3_u32.to_be_bytes().to_vec();
    let mut option = |option: u32, data: &[u8]| {
        bytes.extend_from_slice(&IHAVEOPT.to_be_bytes());
        bytes.extend_from_slice(&option.to_be_bytes());
        bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
        bytes.extend_from_slice(data);
    };
    option(3, &[]);
    option(6, b"\0\0\0\x04disk\0\x02\0\x01\0\x02");
    option(STRUCTURED_REPLY, &[]);
    let mut query = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 15];
    query.extend_from_slice(b"base:allocation");
    option(9, &query);
    option(SET_META_CONTEXT, &query);
    option(GO, &[0; 6]);
    bytes.extend(client.head(WRITE, 0, 1, 4096, 512));
    bytes.extend([7; 512]);
    bytes.extend(client.head(READ, 4, 2, 0, 70_000));
    bytes.extend(client.head(BLOCK_STATUS, 0, 3, 0, 1 << 20));
    bytes.extend(client.head(TRIM, FUA, 4, 0, 4096));
    bytes.extend(client.head(WRITE_ZEROES, 2, 5, 0, 4096));
    bytes.extend(client.head(FLUSH, 0, 6, 0, 0));
    bytes.extend(client.head(5, 0, 7, 0, 4096));
    bytes.extend(client.head(2, 0, 8, 0, 0));
    bytes
}

/// Sends bytes, ends, and waits for the server to end too.
fn throw(server: &nbd::Server, bytes: &[u8]) {
    let mut client = Client::connect(server);
    // It may hang up in the middle.
    if client.stream.write_all(bytes).is_ok() {
        let _ = client.stream.shutdown(Shutdown::Write);
    }
    client
        .rest()
        .unwrap_or_else(|e| panic!("{e} after {bytes:?}"));
}

#[test]
fn random_bytes_end_a_connection_and_nothing_else() {
    let server = memory(1 << 20);
    let mut random = Rng::with_seed(1);
    for _ in 0..200 {
        let len = random.usize(..400);
        let bytes: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
        throw(&server, &bytes);
    }
    still_serves(&server);
}

#[test]
fn sessions_with_changed_bytes_end_or_go_on() {
    let server = memory(1 << 20);
    let seed = 2;
    let mut random = Rng::with_seed(seed);
    let session = a_session(&Client::connect(&server));
    for round in 0..600 {
        let mut bytes = session.clone();
        for _ in 0..=random.u64(..3) {
            let at = random.usize(..bytes.len());
            match random.u64(..4) {
                0 => bytes[at] ^= 1 << random.u64(..8),
                1 => bytes[at] = [0, 0xff, 0x7f, 0x80][random.usize(..4)],
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, random.u8(..)),
            }
        }
        if round % 3 == 0 {
            bytes.truncate(random.usize(..bytes.len()));
        }
        throw(&server, &bytes);
    }
    still_serves(&server);
    assert_eq!(server.metrics().connections_refused, 0);
}

#[test]
fn every_beginning_of_a_session_ends_in_order() {
    let server = memory(1 << 20);
    let session = a_session(&Client::connect(&server));
    for len in (0..session.len()).step_by(3) {
        throw(&server, &session[..len]);
    }
    still_serves(&server);
}

#[test]
fn lengths_at_their_extremes_are_refused_or_end_the_connection() {
    let server = memory(1 << 20);
    for extended in [false, true] {
        for command in 0..12_u16 {
            for flags in [0, FUA, 0x1f, PAYLOAD_LEN, 0xffff] {
                for (offset, len) in [
                    (0, u64::MAX),
                    (u64::MAX, 1),
                    (u64::MAX, u64::MAX),
                    (1 << 20, 1),
                    (0, (32 << 20) + 1),
                    (1 << 19, 1 << 20),
                ] {
                    let mut client = Client::transmitting(&server, extended);
                    client.request(command, flags, 9, offset, len);
                    let _ = client.stream.shutdown(Shutdown::Write);
                    let answer = client.rest().unwrap();
                    // Nothing but a refusal: never data.
                    assert!(
                        answer.len() < 400,
                        "{command} {flags} {offset} {len}: {}",
                        answer.len()
                    );
                }
            }
        }
    }
    still_serves(&server);
}

#[test]
fn an_unknown_client_flag_or_one_of_before_fixed_newstyle_is_hung_up_on() {
    let server = memory(1 << 20);
    for flags in [0_u32, 2, 4 | 3, 1 << 31 | 1, u32::MAX] {
        let mut client = Client::connect(&server);
        client.read(18);
        client.send(&flags.to_be_bytes());
        assert_eq!(client.rest().unwrap(), [], "{flags}");
    }
    assert_eq!(server.metrics().connections_cut, 5);
}
