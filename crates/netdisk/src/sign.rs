//! What makes a message authentic: the tag of its payload and the MAC of its head, made and checked.
//!
//! Bytes of a head: its fields, the tag, the MAC over both. What answers a request is signed together with that request's nonce,
//! which is not sent back: so a reply answers one request only.
//!
//! 1. A head's MAC covers its payload through the tag: one can be refused before the other has come.

use crate::bytes::array_at;
use crate::frame::{
    NONCE_LEN, REPLY_FIELDS, REPLY_LEN, REQUEST_FIELDS, REQUEST_LEN, ReplyHead, RequestHead,
};
use crate::keys::{MAC_LEN, MessageKeys, TAG_LEN, mac, mac_holds, tag, tag_holds};

const REQUEST_SIGNED: usize = REQUEST_LEN - MAC_LEN;
const REPLY_SIGNED: usize = REPLY_LEN - MAC_LEN;

/// A request's head, signed where there are keys.
pub(crate) fn request(
    head: &RequestHead,
    payload: &[u8],
    keys: Option<&MessageKeys>,
) -> [u8; REQUEST_LEN] {
    let mut out = [0; REQUEST_LEN];
    out[..REQUEST_FIELDS].copy_from_slice(&head.encode());
    if let Some(keys) = keys {
        if !payload.is_empty() {
            let tag = tag(&keys.request_payload, &out[..REQUEST_FIELDS], payload);
            out[REQUEST_FIELDS..REQUEST_SIGNED].copy_from_slice(&tag);
        }
        let mac = mac(&keys.request, &out[..REQUEST_SIGNED]);
        out[REQUEST_SIGNED..].copy_from_slice(&mac);
    }
    out
}

/// Whether a request's head is authentic.
pub(crate) fn request_holds(raw: &[u8; REQUEST_LEN], keys: &MessageKeys) -> bool {
    let made = array_at(raw, REQUEST_SIGNED);
    mac_holds(&keys.request, &raw[..REQUEST_SIGNED], &made)
}

/// Whether the payload is the one of a request whose head is authentic.
pub(crate) fn request_payload_holds(
    raw: &[u8; REQUEST_LEN],
    payload: &[u8],
    keys: &MessageKeys,
) -> bool {
    let made = array_at(raw, REQUEST_FIELDS);
    payload.is_empty()
        || tag_holds(
            &keys.request_payload,
            &raw[..REQUEST_FIELDS],
            payload,
            &made,
        )
}

/// A reply's head, signed for the request with this nonce where there are keys.
pub(crate) fn reply(
    head: &ReplyHead,
    payload: &[u8],
    signer: Option<(&MessageKeys, &[u8; NONCE_LEN])>,
) -> [u8; REPLY_LEN] {
    let mut out = [0; REPLY_LEN];
    out[..REPLY_FIELDS].copy_from_slice(&head.encode());
    if let Some((keys, nonce)) = signer {
        let mut signed = answering(nonce, &out);
        let (fields, made) = signed.split_at_mut(NONCE_LEN + REPLY_FIELDS);
        if !payload.is_empty() {
            made.copy_from_slice(&tag(&keys.reply_payload, fields, payload));
            out[REPLY_FIELDS..REPLY_SIGNED].copy_from_slice(made);
        }
        out[REPLY_SIGNED..].copy_from_slice(&mac(&keys.reply, &signed));
    }
    out
}

/// Whether a reply's head is authentic, and answers the request with this nonce.
pub(crate) fn reply_holds(
    raw: &[u8; REPLY_LEN],
    nonce: &[u8; NONCE_LEN],
    keys: &MessageKeys,
) -> bool {
    let made = array_at(raw, REPLY_SIGNED);
    mac_holds(&keys.reply, &answering(nonce, raw), &made)
}

/// Whether the payload is the one of a reply whose head is authentic.
pub(crate) fn reply_payload_holds(
    raw: &[u8; REPLY_LEN],
    nonce: &[u8; NONCE_LEN],
    payload: &[u8],
    keys: &MessageKeys,
) -> bool {
    let made = array_at(raw, REPLY_FIELDS);
    let head = &answering(nonce, raw)[..NONCE_LEN + REPLY_FIELDS];
    payload.is_empty() || tag_holds(&keys.reply_payload, head, payload, &made)
}

/// The nonce of the request, then what is signed of the reply.
fn answering(nonce: &[u8; NONCE_LEN], raw: &[u8; REPLY_LEN]) -> [u8; NONCE_LEN + REPLY_SIGNED] {
    let mut out = [0; NONCE_LEN + REPLY_SIGNED];
    out[..NONCE_LEN].copy_from_slice(nonce);
    out[NONCE_LEN..].copy_from_slice(&raw[..REPLY_SIGNED]);
    out
}

const _: () = {
    assert!(REQUEST_FIELDS + TAG_LEN == REQUEST_SIGNED);
    assert!(REPLY_FIELDS + TAG_LEN == REPLY_SIGNED);
};
