//! Every key of the protocol, what it is derived from, and the MAC. Pure functions.
//!
//! 1. One key, one purpose: a disk key only derives; requests, replies and payloads of each have keys of their own, so that
//!    nothing said in one direction can be sent back in the other.
//!
//! The MAC is keyed BLAKE3 with 32 bytes of output (<https://github.com/BLAKE3-team/BLAKE3-specs>, section 2.3); why is in
//! `docs/decisions/0011-netdisk-protocol.md`.

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::DiskKey;
use crate::capability::Secret;

/// Bytes of a MAC.
pub(crate) const TAG_LEN: usize = 32;

const CAPABILITY_CONTEXT: &str = "strongroom 2026 netdisk v1 capability secrets";
const MANAGEMENT_CONTEXT: &str = "strongroom 2026 netdisk v1 management";
const MESSAGES_LABEL: &[u8] = b"strongroom netdisk v1 message keys";

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
        let part = |i: usize| crate::capability::array_at(&out, i * 32);
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

/// The MAC of `data`.
pub(crate) fn tag(key: &[u8; 32], data: &[u8]) -> [u8; TAG_LEN] {
    *blake3::keyed_hash(key, data).as_bytes()
}

/// Whether `tag` is the MAC of `data`; takes the same time wherever it differs.
pub(crate) fn holds(key: &[u8; 32], data: &[u8], tag: &[u8; TAG_LEN]) -> bool {
    blake3::keyed_hash(key, data) == blake3::Hash::from_bytes(*tag)
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
    fn a_tag_holds_for_its_data_and_key_only() {
        let made = tag(&[1; 32], b"data");
        assert!(holds(&[1; 32], b"data", &made));
        assert!(!holds(&[2; 32], b"data", &made));
        assert!(!holds(&[1; 32], b"date", &made));
    }
}
