//! Random operations over two connections at once, against a plain array.

use std::sync::Arc;

use device::{Access, Device, FileDevice};
use fastrand::Rng;
use nbd::Config;

use crate::client::*;

const LEN: u64 = 8 << 20;

/// Each connection has a half of the device; its own requests overlap as they like, one after the other.
fn operate(server: &nbd::Server, half: u64, extended: bool) -> Vec<u8> {
    let mut client = Client::transmitting(server, extended);
    let (start, len) = (half * LEN / 2, LEN / 2);
    let mut model = vec![0; len as usize];
    let mut random = Rng::with_seed(half + 40);
    for step in 0..1500_u32 {
        let most = [600, 5000, 40_000, 300_000][random.usize(..4)];
        let at = random.u64(..len);
        let size = random.u64(..most).min(len - at);
        let range = at as usize..(at + size) as usize;
        let offset = start + at;
        match random.u64(..9) {
            0..3 => {
                let data: Vec<u8> = (0..size).map(|i| (i as u32 ^ step) as u8).collect();
                assert_eq!(client.write(offset, &data).error(), None);
                model[range].copy_from_slice(&data);
            }
            3 => {
                let flags = [0, FUA, 2, 16][random.usize(..4)];
                assert_eq!(client.ask(WRITE_ZEROES, flags, offset, size).error(), None);
                model[range].fill(0);
            }
            4 => {
                assert_eq!(client.ask(TRIM, 0, offset, size).error(), None);
                model[range].fill(0);
            }
            5 if size > 0 => {
                let reply = client.ask(BLOCK_STATUS, 0, offset, size);
                check_status(&reply, &model[range], extended);
            }
            6 => assert_eq!(client.ask(FLUSH, 0, 0, 0).error(), None),
            _ => {
                client.request(READ, 0, 3, offset, size);
                let mut back = vec![0xee; size as usize];
                loop {
                    let chunk = client.reply();
                    if size == 0 {
                        assert_eq!((chunk.kind, chunk.done), (0, true));
                        break;
                    }
                    let word = |at: usize| {
                        u64::from_be_bytes(chunk.payload[at..at + 8].try_into().unwrap())
                    };
                    let from = (word(0) - offset) as usize;
                    match chunk.kind {
                        1 => back[from..from + chunk.payload.len() - 8]
                            .copy_from_slice(&chunk.payload[8..]),
                        2 => {
                            let hole = u32::from_be_bytes(chunk.payload[8..12].try_into().unwrap());
                            back[from..from + hole as usize].fill(0);
                        }
                        other => panic!("chunk {other}"),
                    }
                    if chunk.done {
                        break;
                    }
                }
                assert!(back == model[range], "step {step}: {offset}+{size}");
            }
        }
    }
    model
}

fn check_status(reply: &Reply, model: &[u8], extended: bool) {
    assert_eq!(reply.kind, if extended { 6 } else { 5 });
    let mut at = 0;
    let words = |bytes: &[u8]| match bytes.len() {
        8 => u64::from_be_bytes(bytes.try_into().unwrap()),
        _ => u64::from(u32::from_be_bytes(bytes.try_into().unwrap())),
    };
    let (start, width) = if extended { (8, 8) } else { (4, 4) };
    for range in reply.payload[start..].chunks_exact(2 * width) {
        let (len, flags) = (words(&range[..width]) as usize, words(&range[width..]));
        if flags & 2 != 0 {
            assert!(model[at..at + len].iter().all(|b| *b == 0));
        }
        at += len;
    }
    assert!((1..=model.len()).contains(&at));
}

#[test]
fn random_operations_end_as_in_an_array() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let server = serve(
        Arc::new(FileDevice::create(&path, LEN).unwrap()),
        Config::default(),
    );
    let halves: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let server = &server;
        let threads: Vec<_> = (0..2)
            .map(|half| scope.spawn(move || operate(server, half, half == 1)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    drop(server);
    let device = FileDevice::open(&path, Access::ReadOnly).unwrap();
    let mut all = vec![0; LEN as usize];
    device.read_at(&mut all, 0).unwrap();
    assert!(all == halves.concat());
}
