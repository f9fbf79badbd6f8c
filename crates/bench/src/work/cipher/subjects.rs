//! What `bench cipher` measures of a room: one entry each. Ciphers of sectors are in [`sectors`](super::sectors).

use std::hash::Hasher;
use std::hint::black_box;
use std::time::Duration;

use room::{Argon2Cost, Credential, NewCredential, RoomId, Suite};
use seal::{
    BLOCK_LEN, Header, MasterKey, NoncePart, POSITIONS, PositionTree, SegmentKey, Tag, UNIT_LEN,
};

use crate::clock::Clock;
use crate::{Error, Result};

/// Runs a batch once and says how long that took, nanoseconds.
pub(super) type Batch = Box<dyn FnMut(&dyn Clock) -> u64>;

/// What has a rate.
pub(super) struct Bulk {
    pub(super) name: String,
    /// Makes a worker's batch, of so many pieces of this size.
    pub(super) make: Box<dyn Fn(usize, usize) -> Batch + Sync>,
}

/// What takes a time.
pub(super) struct Once {
    pub(super) name: &'static str,
    /// Its settings.
    pub(super) what: String,
    pub(super) run: Box<dyn Fn()>,
}

/// What nothing in place is faster than.
pub(super) const COPYING: &str = "copying memory";

/// Everything of a room with a rate. Copying memory is the first.
pub(super) fn bulk() -> Vec<Bulk> {
    let mut all = vec![Bulk {
        name: COPYING.to_owned(),
        make: Box::new(|size, pieces| {
            let from = vec![0x5a; size];
            let mut to = vec![0; size];
            timed(pieces, move || {
                to.copy_from_slice(black_box(&from));
                black_box(&mut to);
            })
        }),
    }];
    for suite in Suite::ALL {
        let (seals, opens) = match suite {
            Suite::Aes256Gcm => ("AES-256-GCM, sealing", "AES-256-GCM, opening"),
            Suite::ChaCha20Poly1305 => ("ChaCha20-Poly1305, sealing", "ChaCha20-Poly1305, opening"),
        };
        all.push(Bulk {
            name: seals.to_owned(),
            make: Box::new(move |size, pieces| sealing(suite, size, pieces)),
        });
        all.push(Bulk {
            name: opens.to_owned(),
            make: Box::new(move |size, pieces| opening(suite, size, pieces)),
        });
    }
    for suite in Suite::ALL {
        let name = match suite {
            Suite::Aes256Gcm => "AES-256-GCM, sealing, a key for each unit",
            Suite::ChaCha20Poly1305 => "ChaCha20-Poly1305, sealing, a key for each unit",
        };
        all.push(Bulk {
            name: name.to_owned(),
            make: Box::new(move |size, pieces| sealing_by_position(suite, size, pieces)),
        });
    }
    all.push(Bulk {
        name: "BLAKE3 (digests of units)".to_owned(),
        make: Box::new(|size, pieces| {
            let bytes = vec![0x5a; size];
            timed(pieces, move || {
                for unit in black_box(&bytes).chunks(UNIT_LEN) {
                    black_box(seal::unit_digest(unit));
                }
            })
        }),
    });
    all.push(Bulk {
        name: "HMAC-SHA-256 (page digest)".to_owned(),
        make: Box::new(|size, pieces| {
            let key = MasterKey::random().page_digest_key(&RoomId::random());
            let bytes = vec![0x5a; size];
            timed(pieces, move || {
                black_box(key.mac(black_box(&bytes)));
            })
        }),
    });
    all.push(Bulk {
        name: "SipHash-2-4 (names)".to_owned(),
        make: Box::new(|size, pieces| {
            let bytes = vec![0x5a; size];
            timed(pieces, move || {
                let mut hasher = siphasher::sip::SipHasher24::new_with_key(&[7; 16]);
                hasher.write(black_box(&bytes));
                black_box(hasher.finish());
            })
        }),
    });
    all
}

pub(super) fn timed(pieces: usize, mut piece: impl FnMut() + 'static) -> Batch {
    Box::new(move |clock| {
        let began = clock.raw_ns();
        for _ in 0..pieces {
            piece();
        }
        clock.raw_ns() - began
    })
}

fn segment_key(suite: Suite) -> SegmentKey {
    let data = MasterKey::random().data_key(&RoomId::random());
    data.segment_key(suite, &[0x5a; 32])
}

/// Blocks of a unit of a piece.
fn blocks(unit: &[u8]) -> u64 {
    (unit.len() / BLOCK_LEN) as u64
}

fn sealing(suite: Suite, size: usize, pieces: usize) -> Batch {
    let key = segment_key(suite);
    let mut piece = vec![0x5a; size];
    // No position twice, here as in a room.
    let mut block = 0;
    timed(pieces, move || {
        for unit in piece.chunks_mut(UNIT_LEN) {
            black_box(key.seal(NoncePart::NONE, block, unit));
            block += blocks(unit);
        }
    })
}

/// As a room on network disks does it: one way through the tree of keys for each piece.
fn sealing_by_position(suite: Suite, size: usize, pieces: usize) -> Batch {
    let tree: PositionTree = MasterKey::random()
        .data_key(&RoomId::random())
        .position_tree(suite, &[0x5a; 32]);
    let mut piece = vec![0x5a; size];
    let mut block = 1;
    timed(pieces, move || {
        let mut cipher = tree.cipher();
        for unit in piece.chunks_mut(UNIT_LEN) {
            black_box(cipher.seal(NoncePart::NONE, block, unit));
            block = (block + blocks(unit) as u32) % POSITIONS;
        }
    })
}

fn opening(suite: Suite, size: usize, pieces: usize) -> Batch {
    let key = segment_key(suite);
    let mut sealed = vec![0x5a; size * pieces];
    let mut block = 0;
    let mut tags: Vec<Tag> = Vec::new();
    for piece in sealed.chunks_mut(size) {
        for unit in piece.chunks_mut(UNIT_LEN) {
            tags.push(key.seal(NoncePart::NONE, block, unit));
            block += blocks(unit);
        }
    }
    let mut work = sealed.clone();
    Box::new(move |clock| {
        // Opening is done in place, so the ciphertext is copied again; the time of that is not counted.
        work.copy_from_slice(&sealed);
        let (mut block, mut tags) = (0, tags.iter());
        let began = clock.raw_ns();
        for piece in work.chunks_mut(size) {
            for (unit, tag) in piece.chunks_mut(UNIT_LEN).zip(&mut tags) {
                let opened = key.open(NoncePart::NONE, block, tag, unit);
                assert!(opened.is_ok(), "what was sealed here opens here");
                block += blocks(unit);
            }
        }
        clock.raw_ns() - began
    })
}

/// Everything that happens once a segment, once a rekey, or once an opening.
pub(super) fn once(slow: bool) -> Result<Vec<Once>> {
    let room = RoomId::random();
    let (master, previous) = (MasterKey::random(), MasterKey::random());
    let data = master.data_key(&room);
    let wrapped = master.wrap_previous(&room, 1, &previous);
    let mut all = vec![
        Once {
            name: "HKDF-SHA-256, AES-256-GCM key",
            what: "a segment's key, made ready".to_owned(),
            run: {
                let data = data.clone();
                Box::new(move || {
                    black_box(data.segment_key(Suite::Aes256Gcm, black_box(&[1; 32])));
                })
            },
        },
        Once {
            name: "HKDF-SHA-256, ChaCha20 key",
            what: "a segment's key, made ready".to_owned(),
            run: Box::new(move || {
                black_box(data.segment_key(Suite::ChaCha20Poly1305, black_box(&[1; 32])));
            }),
        },
        Once {
            name: "XChaCha20-Poly1305, unwrap",
            what: "a master key, with HKDF and locked pages".to_owned(),
            run: Box::new(move || {
                let opened = master.unwrap_previous(&room, 1, black_box(&wrapped));
                assert!(opened.is_ok(), "what was wrapped here unwraps here");
            }),
        },
        argon2("Argon2id, least", Argon2Cost::LEAST)?,
    ];
    if slow {
        let usual = Argon2Cost::measured(Duration::from_secs(1));
        all.push(argon2("Argon2id, as a new room here", usual)?);
    }
    Ok(all)
}

fn argon2(name: &'static str, cost: Argon2Cost) -> Result<Once> {
    let secret = || room::Secret::from(b"measuring".to_vec());
    let new = NewCredential::Passphrase {
        secret: secret(),
        cost,
    };
    let (header, _) = Header::create(Suite::Aes256Gcm, new, "")
        .map_err(|e| Error::store("memory", format!("no key slot could be made: {e}")))?;
    let credential = Credential::Passphrase(secret());
    Ok(Once {
        name,
        what: format!(
            "{} MiB, passes {}, lanes {}",
            cost.memory_kib >> 10,
            cost.passes,
            cost.lanes
        ),
        run: Box::new(move || {
            let opened = header.unlock(&credential);
            assert!(opened.is_ok(), "what was locked here unlocks here");
        }),
    })
}
