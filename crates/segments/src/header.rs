//! The first 4 KiB of a segment file: which segment this is, and how it was sealed.
//!
//! 1. The header is for checks and recovery. Reading file data never needs it: number, epoch and salt come
//!    from the catalog, so a damaged header loses nothing.
//! 2. It holds no secret and says nothing that the file's name, length and times do not say already.
//!
//! The layout, numbers least significant byte first:
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | `SRSEGMNT` |
//! | 8..12 | format version, 1 |
//! | 12..16 | bytes in a unit, 16384 |
//! | 16..32 | room id |
//! | 32..40 | number of the segment |
//! | 40..44 | key epoch |
//! | 44 | suite |
//! | 45..48 | zero |
//! | 48..80 | salt |
//! | 80..4064 | zero |
//! | 4064..4096 | HMAC-SHA-256 of the bytes before it, under the epoch's segment header key |

use seal::{BLOCK_LEN, MAC_LEN, RoomId, UNIT_LEN};
use storage::spans;

use crate::{Keyring, SegmentId, SegmentNo};

const MAGIC: &[u8; 8] = b"SRSEGMNT";
const FORMAT: u32 = 1;
const MAC_AT: usize = BLOCK_LEN - MAC_LEN;

/// What is wrong with a segment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderProblem {
    /// It does not begin as a segment does.
    #[error("it does not begin as a segment does")]
    NotASegment,
    /// Written by a newer version.
    #[error(
        "it has segment format {found}, this version reads {FORMAT}: use a newer version of strongroom"
    )]
    NewerFormat {
        /// The version found.
        found: u32,
    },
    /// It names another room.
    #[error("it belongs to room {0}")]
    OtherRoom(RoomId),
    /// It names a key epoch the room does not have.
    #[error("it names key epoch {0}, which this room does not have")]
    UnknownEpoch(u32),
    /// It is not what the room wrote.
    #[error("it was damaged or changed")]
    Forged,
    /// The room wrote it, but not for this segment.
    #[error("it is the header of segment {}", .0.0)]
    OtherSegment(SegmentNo),
    /// The room wrote it for a segment of this number, but the catalog knows another fact.
    #[error("its {0} is not what the catalog knows")]
    Differs(&'static str),
}

/// The header of a new segment. `None` when the keyring lacks the segment's epoch.
pub(crate) fn encode(id: &SegmentId, keyring: &Keyring) -> Option<[u8; BLOCK_LEN]> {
    let _span = tracing::trace_span!(target: spans::TARGET, spans::AUTHENTICATION).entered();
    let (_, header_key) = keyring.keys(id.key_epoch)?;
    let mut block = [0; BLOCK_LEN];
    block[0..8].copy_from_slice(MAGIC);
    block[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    block[12..16].copy_from_slice(&(UNIT_LEN as u32).to_le_bytes());
    block[16..32].copy_from_slice(keyring.room().as_bytes());
    block[32..40].copy_from_slice(&id.no.0.to_le_bytes());
    block[40..44].copy_from_slice(&id.key_epoch.to_le_bytes());
    block[44] = keyring.suite().id();
    block[48..80].copy_from_slice(&id.salt);
    let mac = header_key.mac(&block[..MAC_AT]);
    block[MAC_AT..].copy_from_slice(&mac);
    Some(block)
}

/// Whether `block` is the header of the segment the catalog knows as `id`.
pub(crate) fn check(
    block: &[u8; BLOCK_LEN],
    id: &SegmentId,
    keyring: &Keyring,
) -> Result<(), HeaderProblem> {
    let _span = tracing::trace_span!(target: spans::TARGET, spans::AUTHENTICATION).entered();
    if &block[0..8] != MAGIC {
        return Err(HeaderProblem::NotASegment);
    }
    // Version, room and epoch are reported before they are proven, only for error messages; nothing else is read from
    // an unproven header.
    let found = u32::from_le_bytes(field(block, 8));
    if found != FORMAT {
        return Err(HeaderProblem::NewerFormat { found });
    }
    let room = RoomId::from_bytes(field(block, 16));
    if room != keyring.room() {
        return Err(HeaderProblem::OtherRoom(room));
    }
    let epoch = u32::from_le_bytes(field(block, 40));
    let (_, header_key) = keyring
        .keys(epoch)
        .ok_or(HeaderProblem::UnknownEpoch(epoch))?;
    header_key
        .verify(&block[..MAC_AT], &block[MAC_AT..])
        .map_err(|_| HeaderProblem::Forged)?;

    let no = SegmentNo(u64::from_le_bytes(field(block, 32)));
    if no != id.no {
        return Err(HeaderProblem::OtherSegment(no));
    }
    let facts = [
        ("key epoch", epoch == id.key_epoch),
        ("salt", block[48..80] == id.salt),
        ("suite", block[44] == keyring.suite().id()),
        (
            "unit length",
            u32::from_le_bytes(field(block, 12)) == UNIT_LEN as u32,
        ),
    ];
    match facts.into_iter().find(|(_, same)| !same) {
        Some((what, _)) => Err(HeaderProblem::Differs(what)),
        None => Ok(()),
    }
}

fn field<const N: usize>(block: &[u8; BLOCK_LEN], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&block[at..at + N]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkeys::{keyring, keyring_of};

    const ID: SegmentId = SegmentId {
        no: SegmentNo(7),
        key_epoch: 1,
        salt: [0x5a; 32],
    };

    #[test]
    fn a_header_is_what_the_format_says() {
        let block = encode(&ID, &keyring()).unwrap();
        assert_eq!(&block[..16], b"SRSEGMNT\x01\0\0\0\0\x40\0\0");
        assert_eq!(&block[16..32], keyring().room().as_bytes());
        assert_eq!(&block[32..48], b"\x07\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0");
        assert_eq!(block[48..80], [0x5a; 32]);
        assert!(block[80..4064].iter().all(|b| *b == 0));
        assert_eq!(check(&block, &ID, &keyring()), Ok(()));
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let good = encode(&ID, &keyring()).unwrap();
        for at in (0..128).chain(4000..4096) {
            let mut block = good;
            block[at] ^= 0x10;
            check(&block, &ID, &keyring()).expect_err("a changed header passed");
        }
    }

    #[test]
    fn a_wrong_header_is_refused_by_name() {
        let keyring = keyring();
        let of = |id: &SegmentId| encode(id, &keyring).unwrap();
        let refused = |block, problem| assert_eq!(check(&block, &ID, &keyring), Err(problem));

        refused([0; BLOCK_LEN], HeaderProblem::NotASegment);
        let mut newer = of(&ID);
        newer[8] = 2;
        refused(newer, HeaderProblem::NewerFormat { found: 2 });
        let other = keyring_of([9; 16]);
        refused(
            encode(&ID, &other).unwrap(),
            HeaderProblem::OtherRoom(other.room()),
        );
        let mut epoch = of(&ID);
        epoch[40] = 200;
        refused(epoch, HeaderProblem::UnknownEpoch(200));
        let mut forged = of(&ID);
        forged[4095] ^= 1;
        refused(forged, HeaderProblem::Forged);
        refused(
            of(&SegmentId {
                no: SegmentNo(8),
                ..ID
            }),
            HeaderProblem::OtherSegment(SegmentNo(8)),
        );
        refused(
            of(&SegmentId {
                salt: [0; 32],
                ..ID
            }),
            HeaderProblem::Differs("salt"),
        );
    }
}
