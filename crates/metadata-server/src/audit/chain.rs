//! The chain of an audit log: one line of JSON for each entry, bound to the line before and sealed by a key that is then erased.
//!
//! 1. `prev` is the BLAKE3 hash of the whole line before. Everybody can check it: edits, cuts in the middle and another order show.
//! 2. `mac` is a keyed BLAKE3 hash of the line up to it, under a key that belongs to this entry alone. The key of the next entry is
//!    derived from it, one way, and it is erased: a forward-secure log (Schneier and Kelsey 1998). An intruder cannot
//!    compute the keys of what was logged before, and so cannot write it again.
//! 3. A key has one purpose: what derives the next key does not compute hashes.
//!
//! It deliberately does not know files, or what the events are.

use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

const NEXT: &str = "strongroom 2026-11 audit log: key of the next entry";
const MAC: &str = "strongroom 2026-11 audit log: authentication of one entry";
const NAME: &str = "strongroom 2026-11 audit log: name of the log";
/// First line of a key file.
const KEY_FILE: &str = "strongroom-audit-key-1";
/// `,"mac":"` with 64 digits and `"}` after it.
const MAC_LEN: usize = 8 + 64 + 2;
const MAC_BEGINS: &str = ",\"mac\":\"";

/// The key of an entry; with that of the first one, the whole log is verified. Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Zeroizing<[u8; 32]>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// A random one.
    pub(super) fn random() -> std::io::Result<Self> {
        let mut key = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *key).map_err(|e| std::io::Error::other(e.to_string()))?;
        Ok(Self(key))
    }

    /// Reads a key file.
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_hex(text.strip_prefix(KEY_FILE)?.trim())
    }

    /// What a key file holds.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{KEY_FILE}\n{}\n", *self.to_hex()))
    }

    pub(super) fn from_hex(digits: &str) -> Option<Self> {
        let bytes = blake3::Hash::from_hex(digits).ok()?;
        Some(Self(Zeroizing::new(bytes.into())))
    }

    pub(super) fn to_hex(&self) -> Zeroizing<String> {
        let digits = blake3::Hash::from(*self.0).to_hex();
        Zeroizing::new(digits.to_string())
    }

    /// What a log is called whose first key this is.
    pub(super) fn name(&self) -> String {
        let name = blake3::Hash::from(blake3::derive_key(NAME, &*self.0)).to_hex();
        name[..16].to_owned()
    }

    fn mac(&self, line: &[u8]) -> blake3::Hash {
        let mut key = blake3::derive_key(MAC, &*self.0);
        let mac = blake3::keyed_hash(&key, line);
        key.zeroize();
        mac
    }

    /// Becomes the next entry's key; this one is erased.
    fn advance(&mut self) {
        let next = Zeroizing::new(blake3::derive_key(NEXT, &*self.0));
        *self.0 = *next;
    }
}

/// A place in a chain: after so many entries.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The number of the next entry, from 0.
    pub(super) seq: u64,
    /// Hash of the line before.
    pub(super) prev: blake3::Hash,
}

impl Place {
    pub(super) fn first() -> Self {
        Self {
            seq: 0,
            prev: blake3::Hash::from([0; 32]),
        }
    }

    fn pass(&mut self, line: &[u8]) {
        self.seq += 1;
        self.prev = blake3::hash(line);
    }
}

#[derive(Serialize)]
struct Entry<'a, E: Serialize> {
    seq: u64,
    time: &'a str,
    #[serde(flatten)]
    event: &'a E,
    prev: &'a str,
}

/// Makes the next line, with its newline.
pub(super) fn line<E: Serialize>(
    place: &mut Place,
    key: &mut Key,
    time: &str,
    event: &E,
) -> Vec<u8> {
    let entry = Entry {
        seq: place.seq,
        time,
        event,
        prev: &place.prev.to_hex(),
    };
    // Plain structures of text and numbers: nothing here can fail to be JSON.
    let mut line = serde_json::to_vec(&entry).unwrap_or_default();
    line.pop();
    let mac = key.mac(&line);
    line.extend(MAC_BEGINS.as_bytes());
    line.extend(mac.to_hex().as_bytes());
    line.extend(b"\"}");
    place.pass(&line);
    key.advance();
    line.push(b'\n');
    line
}

/// What every line has.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Common {
    pub(super) seq: u64,
    pub(super) time: String,
    pub(super) event: String,
    pub(super) prev: String,
    /// Of the first entry of a file: its number, and the log's name.
    #[serde(default)]
    pub(super) file: Option<u64>,
    #[serde(default)]
    pub(super) log: Option<String>,
}

/// Why a line does not follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Broken {
    /// Not an entry.
    Malformed,
    /// Entries before it are missing, or it is one of another place.
    Number { found: u64 },
    /// The line before was changed.
    Chain,
    /// It was changed, or written with another key.
    Mac,
}

/// What a line says of itself.
pub(super) fn parse(line: &[u8]) -> Result<Common, Broken> {
    serde_json::from_slice(line).map_err(|_| Broken::Malformed)
}

/// Checks that a line, without its newline, is the next one. Without a key only what everybody can check.
pub(super) fn follow(
    place: &mut Place,
    key: Option<&mut Key>,
    line: &[u8],
) -> Result<Common, Broken> {
    let common = parse(line)?;
    if common.seq != place.seq {
        return Err(Broken::Number { found: common.seq });
    }
    if common.prev != *place.prev.to_hex() {
        return Err(Broken::Chain);
    }
    let signed = line.len().checked_sub(MAC_LEN).ok_or(Broken::Malformed)?;
    let (signed, mac) = line.split_at(signed);
    let mac = std::str::from_utf8(mac)
        .ok()
        .and_then(|mac| mac.strip_prefix(MAC_BEGINS)?.strip_suffix("\"}"))
        .and_then(|mac| blake3::Hash::from_hex(mac).ok())
        .ok_or(Broken::Malformed)?;
    if let Some(key) = key {
        // Compared in constant time.
        if key.mac(signed) != mac {
            return Err(Broken::Mac);
        }
        key.advance();
    }
    place.pass(line);
    Ok(common)
}

/// Goes to a later entry's key.
pub(super) fn skip(key: &mut Key, entries: u64) {
    for _ in 0..entries {
        key.advance();
    }
}

/// The place of a line that is the first one at hand.
pub(super) fn place_of(common: &Common) -> Option<Place> {
    Some(Place {
        seq: common.seq,
        prev: blake3::Hash::from_hex(&common.prev).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Event {
        event: &'static str,
        n: u64,
    }

    fn three() -> (Key, Vec<Vec<u8>>) {
        let first = Key(Zeroizing::new([7; 32]));
        let (mut place, mut key) = (Place::first(), first.clone());
        let lines = (0..3).map(|n| {
            let event = Event { event: "e", n };
            let mut line = line(&mut place, &mut key, "t", &event);
            line.pop();
            line
        });
        (first, lines.collect())
    }

    #[test]
    fn what_was_logged_follows_and_a_line_that_was_changed_does_not() {
        let (first, lines) = three();
        let (mut place, mut key) = (Place::first(), first.clone());
        for line in &lines {
            follow(&mut place, Some(&mut key), line).unwrap();
        }
        for at in 0..lines[0].len() {
            let mut changed = lines[0].clone();
            changed[at] ^= 1;
            let (mut place, mut key) = (Place::first(), first.clone());
            assert!(
                follow(&mut place, Some(&mut key), &changed).is_err(),
                "{at}"
            );
        }
        let mut key = first.clone();
        let missing = follow(&mut Place::first(), Some(&mut key), &lines[1]);
        assert_eq!(missing.unwrap_err(), Broken::Number { found: 1 });
    }

    #[test]
    fn a_later_key_does_not_make_an_earlier_entry() {
        let (first, lines) = three();
        let mut stolen = first.clone();
        skip(&mut stolen, 1);
        let event = Event { event: "e", n: 99 };
        let mut forged = line(&mut Place::first(), &mut stolen, "t", &event);
        forged.pop();
        // Without the key there is a chain that begins well, and breaks at the next line.
        let mut place = Place::first();
        follow(&mut place, None, &forged).unwrap();
        assert_eq!(
            follow(&mut place, None, &lines[1]).unwrap_err(),
            Broken::Chain
        );
        let mut key = first;
        let found = follow(&mut Place::first(), Some(&mut key), &forged);
        assert_eq!(found.unwrap_err(), Broken::Mac);
    }

    #[test]
    fn a_key_file_reads_back() {
        let key = Key::random().unwrap();
        assert_eq!(Key::parse(&key.to_text()), Some(key.clone()));
        assert_eq!(Key::parse(&key.to_hex()), None);
        assert_eq!(format!("{key:?}"), "Key(..)");
    }
}
