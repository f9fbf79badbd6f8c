//! TLS 1.3 after its handshake: application data in records (RFC 8446, 5), sealed and opened without the buffers of a library.
//!
//! 1. A sequence number is used once: it counts up before a record can leave, and sealing ends before the cipher's limit.
//! 2. Nothing of a record is handed out before its tag held.
//! 3. Only data and the farewell are taken: whoever sends tickets, key updates or empty records is not a peer of ours.
//!
//! It deliberately does not shake hands: `rustls` does, and hands over the keys. Why is in
//! `docs/decisions/0011-netdisk-protocol.md`.

use std::io;
use std::ops::Range;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use rustls::crypto::cipher::{self, Iv, make_tls13_aad};
use rustls::{ConnectionTrafficSecrets, ContentType};

/// Bytes before what is sealed of a record: its outer type, the version and the length.
const HEADER: usize = 5;
const TAG: usize = 16;
/// Most bytes of data in a record.
const DATA_MAX: usize = 1 << 14;
/// Most bytes that are sealed in one: data, type and padding, and the tag.
const SEALED_MAX: usize = DATA_MAX + 256;
/// Bytes of records that are sealed, or received, at once, nine full ones: 128 KiB and their head, which stay in a processor's cache.
const BATCH: usize = 9 * (HEADER + DATA_MAX + 1 + TAG);

/// The keys of one direction.
struct Keys {
    key: LessSafeKey,
    iv: Iv,
    sequence: u64,
}

impl Keys {
    fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> io::Result<Self> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(invalid("its cipher is not known here")),
        };
        let key = UnboundKey::new(algorithm, key.as_ref())
            .map_err(|_| invalid("its key is of another length than its cipher's"))?;
        Ok(Self {
            key: LessSafeKey::new(key),
            iv,
            sequence,
        })
    }

    /// The nonce of the next record (RFC 8446, 5.3).
    fn nonce(&mut self) -> Nonce {
        let nonce = cipher::Nonce::new(&self.iv, self.sequence).0;
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Seals what is sent.
pub(crate) struct Sealer {
    keys: Keys,
    /// The sequence number that the cipher may not reach.
    end: u64,
    batch: Vec<u8>,
}

impl Sealer {
    /// `limit`: most records under one key.
    pub(crate) fn new(keys: (u64, ConnectionTrafficSecrets), limit: u64) -> io::Result<Self> {
        Ok(Self {
            keys: Keys::new(keys)?,
            end: limit,
            batch: Vec::new(),
        })
    }

    /// Hands `parts` to `send` as records, some at a time. What fits goes into one; else each part begins one, so that a large
    /// payload can be opened where it belongs.
    pub(crate) fn seal(
        &mut self,
        parts: &[&[u8]],
        mut send: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.batch.clear();
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if (1..=DATA_MAX).contains(&len) {
            self.record(parts)?;
        } else {
            for data in parts.iter().flat_map(|part| part.chunks(DATA_MAX)) {
                if self.batch.len() + HEADER + data.len() + 1 + TAG > BATCH {
                    send(&self.batch)?;
                    self.batch.clear();
                }
                self.record(&[data])?;
            }
        }
        send(&self.batch)
    }

    fn record(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        if self.keys.sequence >= self.end {
            return Err(io::Error::other("the keys of this connection are used up"));
        }
        let data: usize = parts.iter().map(|part| part.len()).sum();
        let header = make_tls13_aad(data + 1 + TAG);
        self.batch.extend_from_slice(&header);
        let start = self.batch.len();
        for part in parts {
            self.batch.extend_from_slice(part);
        }
        self.batch.push(ContentType::ApplicationData.into());
        let nonce = self.keys.nonce();
        let text = &mut self.batch[start..];
        let tag = self
            .keys
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(header), text)
            .map_err(|_| io::Error::other("a record could not be sealed"))?;
        self.batch.extend_from_slice(tag.as_ref());
        Ok(())
    }
}

/// Opens what is received.
pub(crate) struct Opener {
    keys: Keys,
    bytes: Vec<u8>,
    /// What was received and not opened yet.
    sealed: Range<usize>,
    /// What was opened and not handed out yet.
    data: Range<usize>,
}

impl Opener {
    pub(crate) fn new(keys: (u64, ConnectionTrafficSecrets)) -> io::Result<Self> {
        Ok(Self {
            keys: Keys::new(keys)?,
            bytes: vec![0; BATCH + HEADER + SEALED_MAX],
            sealed: 0..0,
            data: 0..0,
        })
    }

    /// Some bytes of data; 0 at the end. `receive` fetches what comes next, and its errors leave nothing undone.
    pub(crate) fn open(
        &mut self,
        out: &mut [u8],
        mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            if !self.data.is_empty() {
                let len = self.data.len().min(out.len());
                out[..len].copy_from_slice(&self.bytes[self.data.start..][..len]);
                self.data.start += len;
                return Ok(len);
            }
            let Some(len) = self.sealed_len()? else {
                if self.sealed.start > 0 {
                    self.bytes.copy_within(self.sealed.clone(), 0);
                    self.sealed = 0..self.sealed.len();
                }
                let got = receive(&mut self.bytes[self.sealed.end..])?;
                self.sealed.end += got;
                match got {
                    0 if self.sealed.is_empty() => return Ok(0),
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    _ => continue,
                }
            };
            let start = self.sealed.start + HEADER;
            self.sealed.start = start + len;
            let there = out.len() >= len - TAG;
            let bytes = &mut self.bytes[start..start + len];
            let (kind, data) = match there {
                true => self.keys.open_to(bytes, &mut out[..len - TAG])?,
                false => self.keys.open_in_place(bytes)?,
            };
            match kind {
                ContentType::ApplicationData if data == 0 => {
                    return Err(invalid("an empty record"));
                }
                ContentType::ApplicationData if there => return Ok(data),
                ContentType::ApplicationData => self.data = start..start + data,
                // Two bytes: level and description; 0 is "close_notify".
                ContentType::Alert => {
                    let text = if there { &out[..data] } else { &bytes[..data] };
                    return match text {
                        [_, 0] => Ok(0),
                        _ => Err(invalid("the peer ended with an alert")),
                    };
                }
                _ => return Err(invalid("neither data nor a farewell")),
            }
        }
    }

    /// How much is sealed in the next record; `None` where it is not there as a whole.
    fn sealed_len(&self) -> io::Result<Option<usize>> {
        let Some(header) = self.bytes[self.sealed.clone()].first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
        // At least the inner type.
        if !(TAG + 1..=SEALED_MAX).contains(&len) || *header != make_tls13_aad(len) {
            return Err(invalid("not a record of TLS 1.3"));
        }
        Ok((self.sealed.len() >= HEADER + len).then_some(len))
    }
}

impl Keys {
    /// Opens a record to where it belongs: its inner type, and how many bytes of `out` are data.
    fn open_to(&mut self, sealed: &[u8], out: &mut [u8]) -> io::Result<(ContentType, usize)> {
        let aad = Aad::from(make_tls13_aad(sealed.len()));
        let (text, tag) = sealed.split_at(sealed.len() - TAG);
        let nonce = self.nonce();
        self.key
            .open_separate_gather(nonce, aad, text, tag, out)
            .map_err(|_| invalid("a record is not authentic"))?;
        unpad(out)
    }

    /// Opens a record where it is: its inner type, and how many of the first bytes are data.
    fn open_in_place(&mut self, sealed: &mut [u8]) -> io::Result<(ContentType, usize)> {
        let aad = Aad::from(make_tls13_aad(sealed.len()));
        let nonce = self.nonce();
        let text = self
            .key
            .open_in_place(nonce, aad, sealed)
            .map_err(|_| invalid("a record is not authentic"))?;
        unpad(text)
    }
}

/// Data is followed by its type and zeros (RFC 8446, 5.4).
fn unpad(text: &[u8]) -> io::Result<(ContentType, usize)> {
    match text.iter().rposition(|byte| *byte != 0) {
        Some(at) if at <= DATA_MAX => Ok((text[at].into(), at)),
        _ => Err(invalid("a record without a type, or too long")),
    }
}

fn invalid(words: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words)
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opener").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> (u64, ConnectionTrafficSecrets) {
        let key = [7; 32].into();
        let iv = [9; 12].into();
        (0, ConnectionTrafficSecrets::Aes256Gcm { key, iv })
    }

    fn sealed(parts: &[&[u8]]) -> Vec<u8> {
        let mut all = Vec::new();
        Sealer::new(secrets(), 1 << 24)
            .unwrap()
            .seal(parts, |bytes| {
                assert!(bytes.len() <= BATCH);
                all.extend_from_slice(bytes);
                Ok(())
            })
            .unwrap();
        all
    }

    /// Everything that opens of `bytes`, which come `piece` at a time, by reads of `room` bytes.
    fn opened(bytes: &[u8], piece: usize, room: usize) -> io::Result<Vec<u8>> {
        let mut opener = Opener::new(secrets()).unwrap();
        let (mut rest, mut all) = (bytes, Vec::new());
        let mut out = vec![0; room];
        loop {
            let got = opener.open(&mut out, |into| {
                let (now, later) = rest.split_at(rest.len().min(piece).min(into.len()));
                into[..now.len()].copy_from_slice(now);
                rest = later;
                Ok(now.len())
            })?;
            if got == 0 {
                return Ok(all);
            }
            all.extend_from_slice(&out[..got]);
        }
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 31 / 7) as u8).collect()
    }

    #[test]
    fn what_was_sealed_opens_however_it_comes() {
        for len in [
            1,
            120,
            DATA_MAX - 120,
            DATA_MAX,
            DATA_MAX + 1,
            4 * DATA_MAX,
            300_000,
        ] {
            let (head, data) = (pattern(120), pattern(len));
            let bytes = sealed(&[&head, &data]);
            let whole = [head, data].concat();
            for (piece, room) in [
                (1 << 20, 1 << 20),
                (1 << 20, DATA_MAX),
                (1000, DATA_MAX + 1),
                (77, 40),
                (1, 1 << 20),
            ] {
                assert!(
                    opened(&bytes, piece, room).unwrap() == whole,
                    "{len} {piece} {room}"
                );
            }
        }
        assert!(sealed(&[&[]]).is_empty());
    }

    #[test]
    fn what_was_changed_left_out_repeated_or_cut_off_does_not_open() {
        let bytes = sealed(&[b"first"]);
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            for room in [2, 100] {
                assert!(opened(&other, 1 << 20, room).is_err(), "byte {at}");
            }
        }
        let full = sealed(&[&pattern(3 * DATA_MAX)]);
        let record = HEADER + DATA_MAX + 1 + TAG;
        let (first, rest) = full.split_at(record);
        assert!(opened(rest, 1 << 20, 100).is_err());
        assert!(opened(&[first, first].concat(), 1 << 20, 100).is_err());
        assert!(opened(&[first, &rest[record..]].concat(), 1 << 20, 100).is_err());
        assert!(opened(&full[..full.len() - 1], 1 << 20, 100).is_err());
        // An end between two records is an end: a message says its own length.
        assert_eq!(opened(first, 1 << 20, 100).unwrap().len(), DATA_MAX);
    }

    /// A record of any type, with padding.
    fn record(kind: ContentType, data: &[u8], padding: usize) -> Vec<u8> {
        let mut keys = Keys::new(secrets()).unwrap();
        let mut text = data.to_vec();
        text.push(kind.into());
        text.resize(text.len() + padding, 0);
        let header = make_tls13_aad(text.len() + TAG);
        let nonce = keys.nonce();
        keys.key
            .seal_in_place_append_tag(nonce, Aad::from(header), &mut text)
            .unwrap();
        [&header[..], &text].concat()
    }

    #[test]
    fn padding_and_farewells_are_understood_and_nothing_else_is_taken() {
        use ContentType::{Alert, ApplicationData, ChangeCipherSpec, Handshake};
        for room in [1, 1000] {
            let open = |bytes: Vec<u8>| opened(&bytes, 1 << 20, room);
            assert_eq!(open(record(ApplicationData, b"data", 99)).unwrap(), b"data");
            assert_eq!(open(record(Alert, &[1, 0], 0)).unwrap(), b"");
            assert!(open(record(Alert, &[2, 40], 0)).is_err());
            assert!(open(record(Alert, &[], 0)).is_err());
            // A session ticket, a key update.
            assert!(open(record(Handshake, &[4, 0, 0, 0], 0)).is_err());
            assert!(open(record(Handshake, &[24, 0, 0, 1, 0], 0)).is_err());
            assert!(open(record(ChangeCipherSpec, &[1], 0)).is_err());
            assert!(open(record(ApplicationData, b"", 0)).is_err());
            assert!(open(record(ContentType::Unknown(0), b"", 10)).is_err());
            assert!(open(record(ApplicationData, &pattern(DATA_MAX + 1), 0)).is_err());
            assert!(open([23, 3, 3, 0xff, 0xff].to_vec()).is_err());
            assert!(open([23, 3, 3, 0, 16].to_vec()).is_err());
            assert!(open([22, 3, 3, 0, 40].to_vec()).is_err());
        }
    }

    #[test]
    fn no_more_is_sealed_under_a_key_than_its_cipher_allows() {
        let mut sealer = Sealer::new(secrets(), 2).unwrap();
        let mut send = |data: &[u8]| sealer.seal(&[data], |_| Ok(()));
        send(b"one").unwrap();
        send(b"two").unwrap();
        send(b"three").unwrap_err();
        send(b"four").unwrap_err();
    }
}
