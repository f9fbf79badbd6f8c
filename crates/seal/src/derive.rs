//! How one key comes from another.
//!
//! The derivation, for a reader in another language: `HKDF(salt, key material, info, 32 bytes)` with
//! `info = "strongroom v1 " ‖ purpose ‖ 0x00 ‖ room id (16 bytes) ‖ context`. An absent salt is the empty one.
//!
//! | key | key material | salt | purpose | context |
//! |---|---|---|---|---|
//! | header | master key | none | `header` | |
//! | catalog | master key | none | `catalog` | |
//! | page digest | master key | none | `page digest` | |
//! | data | master key | none | `data` | |
//! | log | master key | none | `log` | |
//! | log record | log key | the record's 32-byte salt | `log record` | suite number, 1 byte |
//! | moment | master key | none | `moment` | |
//! | changes | master key | none | `changes` | |
//! | changes record | changes key | the record's 32-byte salt | `changes record` | suite number, 1 byte |
//! | segment header | master key | none | `segment header` | |
//! | previous master | master key | none | `previous master` | |
//! | segment | data key | the segment's 32-byte salt | `segment` | suite number, 1 byte |
//! | root of a segment's positions | data key | the segment's 32-byte salt | `segment positions` | suite number, 1 byte |
//! | slot, by kind | see `slot` | the slot's 32-byte salt | `slot passphrase`, `slot key file`, `slot raw key`, `slot recipients` | |

use aws_lc_rs::hkdf;

use crate::{KEY_LEN, RoomId};

/// The length in bytes of a segment's salt and of a key slot's salt.
pub const SALT_LEN: usize = 32;

/// The length type `aws-lc-rs` asks for when it fills a buffer by HKDF.
struct KeyLen;

impl hkdf::KeyType for KeyLen {
    fn len(&self) -> usize {
        KEY_LEN
    }
}

/// One 32-byte HKDF-SHA-256 derivation; the info layout is at the top of this file (RFC 5869, sections
/// 2.2 and 2.3).
pub(crate) fn derive(
    material: &[u8],
    salt: &[u8],
    purpose: &str,
    room: &RoomId,
    context: &[u8],
    out: &mut [u8; KEY_LEN],
) {
    let info: [&[u8]; 5] = [
        b"strongroom v1 ",
        purpose.as_bytes(),
        &[0],
        room.as_bytes(),
        context,
    ];
    hkdf::Salt::new(hkdf::HKDF_SHA256, salt)
        .extract(material)
        .expand(&info, KeyLen)
        .and_then(|okm| okm.fill(out))
        // 32 bytes are far below HKDF's bound of 255 hashes.
        .expect("HKDF fills 32 bytes");
}
