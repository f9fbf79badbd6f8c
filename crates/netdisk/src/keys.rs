//! Every key of the protocol, what it is derived from, and the two MACs. Pure functions.
//!
//! 1. One key, one purpose: a disk key only derives; requests, replies and payloads of each have keys of their own, so that
//!    nothing said in one direction can be sent back in the other.
//! 2. A key of GMAC is used for one payload: it is derived from the head that goes with it, which has the nonce.
//!
//! Heads have keyed BLAKE3 with 32 bytes of output (<https://github.com/BLAKE3-team/BLAKE3-specs>, section 2.3), payloads GMAC with
//! AES-256 (NIST SP 800-38D, section 3); why is in `docs/decisions/0011-netdisk-protocol.md`.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::bytes::array_at;
use crate::capability::{Capability, DiskKey, Secret, Ticket};

/// Bytes of a head's MAC.
pub(crate) const MAC_LEN: usize = 32;
/// Bytes of a payload's tag.
pub(crate) const TAG_LEN: usize = 16;

const CAPABILITY_CONTEXT: &str = "strongroom 2026 netdisk v1 capability secrets";
const MANAGEMENT_CONTEXT: &str = "strongroom 2026 netdisk v1 management";
const MESSAGES_LABEL: &[u8] = b"strongroom netdisk v2 message keys";

/// Makes the secrets of capabilities.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct CapabilityKey([u8; 32]);

impl CapabilityKey {
    pub(crate) fn of(disk: &DiskKey) -> Self {
        Self(blake3::derive_key(CAPABILITY_CONTEXT, disk.bytes()))
    }

    pub(crate) fn secret(&self, capability: &[u8]) -> Secret {
        Secret(*blake3::keyed_hash(&self.0, capability).as_bytes())
    }
}

impl DiskKey {
    /// The capability with its secret.
    pub fn ticket(&self, capability: Capability) -> Ticket {
        let secret = CapabilityKey::of(self).secret(&capability.encode());
        Ticket { capability, secret }
    }
}

/// The keys of messages under one capability, or of management.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(crate) struct MessageKeys {
    pub(crate) request: [u8; 32],
    pub(crate) request_payload: [u8; 32],
    pub(crate) reply: [u8; 32],
    pub(crate) reply_payload: [u8; 32],
}

impl MessageKeys {
    /// Those of a capability with this secret.
    pub(crate) fn of(secret: &Secret) -> Self {
        Self::derive(&secret.0)
    }

    /// Those with which the metadata server manages the disk.
    pub(crate) fn management(disk: &DiskKey) -> Self {
        let mut key = blake3::derive_key(MANAGEMENT_CONTEXT, disk.bytes());
        let keys = Self::derive(&key);
        key.zeroize();
        keys
    }

    fn derive(key: &[u8; 32]) -> Self {
        let mut out = [0; 128];
        blake3::Hasher::new_keyed(key)
            .update(MESSAGES_LABEL)
            .finalize_xof()
            .fill(&mut out);
        let part = |i: usize| array_at(&out, i * 32);
        let keys = Self {
            request: part(0),
            request_payload: part(1),
            reply: part(2),
            reply_payload: part(3),
        };
        out.zeroize();
        keys
    }
}

/// The MAC of a head.
pub(crate) fn mac(key: &[u8; 32], head: &[u8]) -> [u8; MAC_LEN] {
    *blake3::keyed_hash(key, head).as_bytes()
}

/// Whether `mac` is the MAC of a head; takes the same time wherever it differs.
pub(crate) fn mac_holds(key: &[u8; 32], head: &[u8], mac: &[u8; MAC_LEN]) -> bool {
    blake3::keyed_hash(key, head) == blake3::Hash::from_bytes(*mac)
}

/// The tag of the payload that goes with a head, whose bytes never come twice under `key`. Where they do after all, with two
/// payloads, an observer of both tags can forge others for this head, and for nothing else.
pub(crate) fn tag(key: &[u8; 32], head: &[u8], payload: &[u8]) -> [u8; TAG_LEN] {
    let (key, nonce) = payload_key(key, head);
    let tag = key
        .seal_in_place_separate_tag(nonce, Aad::from(payload), &mut [])
        .expect("a payload is far shorter than what GCM can authenticate");
    array_at(tag.as_ref(), 0)
}

/// Whether `tag` is the one of the payload that goes with a head; takes the same time wherever it differs.
pub(crate) fn tag_holds(key: &[u8; 32], head: &[u8], payload: &[u8], tag: &[u8; TAG_LEN]) -> bool {
    let (key, nonce) = payload_key(key, head);
    key.open_separate_gather(nonce, Aad::from(payload), &[], tag, &mut [])
        .is_ok()
}

fn payload_key(key: &[u8; 32], head: &[u8]) -> (LessSafeKey, Nonce) {
    let mut one_time = *blake3::keyed_hash(key, head).as_bytes();
    let key = UnboundKey::new(&AES_256_GCM, &one_time).expect("32 bytes are a key of AES-256");
    one_time.zeroize();
    (
        LessSafeKey::new(key),
        Nonce::assume_unique_for_key([0; aws_lc_rs::aead::NONCE_LEN]),
    )
}

/// `N` bytes that nobody can foresee.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    // Without randomness nothing here is safe, and Linux never refuses it once it has started.
    getrandom::fill(&mut out).expect("the kernel gives random bytes");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_keys_are_the_same() {
        let disk = DiskKey::new([7; 32]);
        let capability = MessageKeys::of(&CapabilityKey::of(&disk).secret(b"capability"));
        let management = MessageKeys::management(&disk);
        let mut all: Vec<[u8; 32]> = [&capability, &management]
            .into_iter()
            .flat_map(|keys| {
                [
                    keys.request,
                    keys.request_payload,
                    keys.reply,
                    keys.reply_payload,
                ]
            })
            .collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 8);
    }

    #[test]
    fn a_mac_holds_for_its_head_and_key_only() {
        let made = mac(&[1; 32], b"head");
        assert!(mac_holds(&[1; 32], b"head", &made));
        assert!(!mac_holds(&[2; 32], b"head", &made));
        assert!(!mac_holds(&[1; 32], b"heat", &made));
    }

    #[test]
    fn a_tag_holds_for_its_payload_head_and_key_only() {
        let made = tag(&[1; 32], b"head", b"payload");
        assert!(tag_holds(&[1; 32], b"head", b"payload", &made));
        assert!(!tag_holds(&[2; 32], b"head", b"payload", &made));
        assert!(!tag_holds(&[1; 32], b"heat", b"payload", &made));
        assert!(!tag_holds(&[1; 32], b"head", b"payloae", &made));
        assert!(!tag_holds(&[1; 32], b"head", b"payload\0", &made));
        for bit in 0..TAG_LEN * 8 {
            let mut other = made;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!tag_holds(&[1; 32], b"head", b"payload", &other));
        }
    }
}
