//! Somebody on the way changes, swaps, forges or keeps replies. A client never takes one of these for the disk's.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::raw;
use crate::common::relay::Relay;
use crate::common::{BLOCKS, Disk};
use netdisk::*;

/// How long a client tries; each test that needs it ends sooner where it succeeds.
const TIMEOUT: Duration = Duration::from_secs(2);

struct Between {
    relay: Relay,
    client: DiskClient,
    ticket: Ticket,
    _disk: Disk,
}

impl Between {
    /// Block `i` holds bytes `i + 1`; the client has read one already.
    fn new() -> Self {
        let disk = Disk::new(Protection::Secure);
        disk.admin().set_groups(&[GroupId(1)]).unwrap();
        let ticket = disk.ticket(1, Mode::ReadWrite, &[(0, BLOCKS)]);
        let direct = disk.client();
        for block in 0..8u8 {
            direct
                .write(&ticket, block.into(), &[block + 1; 4096])
                .unwrap();
        }
        let relay = Relay::before(disk.server.local_addr());
        let mut address = disk.address();
        address.address = relay.address.to_string();
        let between = Self {
            relay,
            client: DiskClient::new(address, TIMEOUT),
            ticket,
            _disk: disk,
        };
        // Both connections know boot and epoch.
        for _ in 0..4 {
            assert_eq!(between.read(0).unwrap(), 1);
        }
        between
    }

    fn read(&self, block: u64) -> Result<u8, DiskError> {
        let mut out = [0; 4096];
        self.client.read(&self.ticket, block, &mut out)?;
        assert!(out.iter().all(|byte| *byte == out[0]));
        Ok(out[0])
    }

    /// A read through a relay that does this to replies fails, and the next one through an honest one does not.
    fn is_noticed(&self, hand: impl FnMut(&mut Vec<u8>) + Send + 'static) {
        self.relay.on_reply(hand);
        let refused = self.read(2).unwrap_err();
        assert!(
            matches!(
                refused,
                DiskError::BadReply(_)
                    | DiskError::NotAuthentic
                    | DiskError::WrongDisk
                    | DiskError::Unreachable(_)
            ),
            "{refused}"
        );
        self.relay.on_reply(|_| ());
        assert_eq!(self.read(2).unwrap(), 3);
    }
}

#[test]
fn a_reply_with_a_flipped_bit_is_noticed_wherever_it_is() {
    let between = Between::new();
    // Not in the number and the lengths: those replies find nobody who waits, which another test shows.
    for at in [
        4, 5, 6, 7, 16, 31, 32, 40, 55, 60, 64, 79, 80, 111, 112, 4000, 4207,
    ] {
        between.is_noticed(move |bytes| bytes[at] ^= 1);
    }
}

#[test]
fn a_reply_with_another_number_or_length_ends_in_an_error_and_not_in_a_wait() {
    let between = Between::new();
    between.is_noticed(|bytes| bytes[8] ^= 0x40);
    between.is_noticed(|bytes| bytes[58] ^= 0x80);
    between.is_noticed(|bytes| bytes.truncate(1000));
}

#[test]
fn the_reply_to_another_request_is_not_taken_for_this_ones() {
    let between = Between::new();
    let kept: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
    let keep = kept.clone();
    between
        .relay
        .on_reply(move |bytes| *keep.lock().unwrap() = Some(bytes.clone()));
    assert_eq!(between.read(5).unwrap(), 6);
    let other = kept.lock().unwrap().take().unwrap();
    between.is_noticed(move |bytes| {
        let number = bytes[8..16].to_vec();
        *bytes = other.clone();
        bytes[8..16].copy_from_slice(&number);
    });
}

#[test]
fn the_reply_with_the_same_number_of_another_connection_is_not_taken_either() {
    use std::collections::HashMap;
    let between = Between::new();
    let client = || {
        let mut address = between.client.address().clone();
        address.address = between.relay.address.to_string();
        DiskClient::new(address, TIMEOUT)
    };
    let mut out = [0; 4096];
    let kept: Arc<Mutex<HashMap<u64, Vec<u8>>>> = Arc::default();
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    let keep = kept.clone();
    between.relay.on_reply(move |bytes| {
        keep.lock().unwrap().insert(number(bytes), bytes.clone());
    });
    let first = client();
    for _ in 0..8 {
        first.read(&between.ticket, 5, &mut out).unwrap();
    }
    let keep = kept.clone();
    between.relay.on_reply(move |bytes| {
        if let Some(old) = keep.lock().unwrap().get(&number(bytes)) {
            *bytes = old.clone();
        }
    });
    assert!(kept.lock().unwrap().len() > 2);
    client().read(&between.ticket, 2, &mut out).unwrap_err();
}

#[test]
fn an_unsigned_refusal_is_rejected() {
    let between = Between::new();
    for reason in Reason::ALL {
        between.is_noticed(move |bytes| {
            bytes.truncate(raw::REPLY);
            bytes[6] = reason.code();
            bytes[7] = 0;
            bytes[56..].fill(0);
        });
    }
}

#[test]
fn nobody_makes_a_client_sign_for_an_epoch_that_has_not_come() {
    let between = Between::new();
    let epoch_of = |bytes: &[u8]| u64::from_le_bytes(bytes[32..40].try_into().unwrap());
    let epoch = epoch_of(&between.relay.last_request());
    for signed in [0, 1] {
        between.relay.on_reply(move |bytes| {
            bytes.truncate(raw::REPLY);
            bytes[6] = Reason::StaleEpoch.code();
            bytes[7] = signed;
            bytes[32..40].copy_from_slice(&1_000_000u64.to_le_bytes());
            bytes[56..].fill(0);
        });
        between.read(1).unwrap_err();
    }
    let all = between.relay.requests.lock().unwrap();
    assert!(all.iter().all(|bytes| epoch_of(bytes) <= epoch));
}

#[test]
fn a_request_that_was_altered_once_is_asked_again() {
    let between = Between::new();
    let mut left = 1;
    between.relay.on_request(move |bytes| {
        if left > 0 {
            left -= 1;
            bytes[60] ^= 1;
        }
    });
    assert_eq!(between.read(4).unwrap(), 5);
}
