//! Sealing and opening the records of a room's log, and those of the changes that a replica gets.
//!
//! 1. Every record has a key of its own, derived from the key of its kind and 32 fresh random bytes. So two records never share a
//!    key and a nonce, also where memory was cloned and both copies go on.
//! 2. Nothing that does not verify is returned.

use std::fmt;

use aws_lc_rs::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroizing;

use crate::derive::derive;
use crate::memory::KeyPage;
use crate::{KEY_LEN, RoomId, SALT_LEN, SealError, Suite, Tag};

/// What the keys of records of one kind come from.
#[derive(Clone)]
struct Root {
    key: KeyPage,
    room: RoomId,
    suite: Suite,
    purpose: &'static str,
}

impl Root {
    fn seal(&self, salt: &[u8; SALT_LEN], header: &[u8], body: &mut [u8]) -> Tag {
        let tag =
            self.record_key(salt)
                .seal_in_place_separate_tag(nonce(), Aad::from(header), body);
        // The ciphers refuse only inputs of many gigabytes.
        let tag = tag.expect("a record is within the cipher's bounds");
        tag.as_ref()
            .try_into()
            .expect("both suites have 16-byte tags")
    }

    fn open(
        &self,
        salt: &[u8; SALT_LEN],
        header: &[u8],
        tag: &Tag,
        body: &mut [u8],
    ) -> Result<(), SealError> {
        let opened =
            self.record_key(salt)
                .open_in_place_separate_tag(nonce(), Aad::from(header), tag, body);
        match opened {
            Ok(_) => Ok(()),
            Err(_) => {
                body.fill(0);
                Err(SealError::MacMismatch)
            }
        }
    }

    fn record_key(&self, salt: &[u8; SALT_LEN]) -> LessSafeKey {
        let mut key = Zeroizing::new([0; KEY_LEN]);
        derive(
            self.key.bytes(),
            salt,
            self.purpose,
            &self.room,
            &[self.suite.id()],
            &mut key,
        );
        // Both suites have 32-byte keys, the only thing that could be refused.
        let key = UnboundKey::new(self.suite.algorithm(), &*key);
        LessSafeKey::new(key.expect("both suites take 32-byte keys"))
    }
}

macro_rules! record_key {
    ($(#[$docs:meta])* $name:ident, $purpose:literal) => {
        $(#[$docs])*
        #[derive(Clone)]
        pub struct $name(Root);

        impl $name {
            pub(crate) fn new(key: KeyPage, room: RoomId, suite: Suite) -> $name {
                $name(Root {
                    key,
                    room,
                    suite,
                    purpose: $purpose,
                })
            }

            /// Seals a record in place. `salt` is fresh and random; `header` is authenticated with it.
            pub fn seal(&self, salt: &[u8; SALT_LEN], header: &[u8], body: &mut [u8]) -> Tag {
                self.0.seal(salt, header, body)
            }

            /// Opens a record in place. When it fails, `body` holds nothing of it.
            ///
            /// # Errors
            /// [`SealError::MacMismatch`] where header, body or tag are not those of one record sealed under this key.
            pub fn open(
                &self,
                salt: &[u8; SALT_LEN],
                header: &[u8],
                tag: &Tag,
                body: &mut [u8],
            ) -> Result<(), SealError> {
                self.0.open(salt, header, tag, body)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(..)"))
            }
        }
    };
}

record_key! {
    /// The key that the key of every record of the log comes from.
    LogKey, "log record"
}
record_key! {
    /// The key that the key of every record of changes for a replica comes from.
    ChangesKey, "changes record"
}

/// A record's key seals once: its nonce is zero (RFC 5116, section 3.1, asks only that none repeats under a key).
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MasterKey;

    #[test]
    fn a_record_opens_only_with_its_key_salt_header_and_tag() {
        let (room, other) = (RoomId::random(), RoomId::random());
        let master = MasterKey::from_bytes(&[7; 32]);
        for suite in Suite::ALL {
            let key = master.log_key(&room, suite);
            let mut sealed = b"changes".to_vec();
            let tag = key.seal(&[1; 32], b"header", &mut sealed);
            assert_ne!(sealed, b"changes");
            let open = |key: &LogKey, salt: u8, header: &[u8], tag: &Tag| {
                let mut body = sealed.clone();
                key.open(&[salt; 32], header, tag, &mut body).map(|()| body)
            };
            assert_eq!(open(&key, 1, b"header", &tag).unwrap(), b"changes");
            assert!(open(&key, 2, b"header", &tag).is_err());
            assert!(open(&key, 1, b"another", &tag).is_err());
            assert!(open(&key, 1, b"header", &[0; 16]).is_err());
            assert!(open(&master.log_key(&other, suite), 1, b"header", &tag).is_err());
            let mut again = b"changes".to_vec();
            assert_ne!(key.seal(&[2; 32], b"header", &mut again), tag);
            let mut changes = b"changes".to_vec();
            assert_ne!(
                master
                    .changes_key(&room, suite)
                    .seal(&[1; 32], b"header", &mut changes),
                tag
            );
        }
    }
}
