//! The numbers by which clients know inodes: the room's, enciphered.
//!
//! 1. A number cannot be guessed: a file is reached by a user who may search its path, or who got the number from one who may.
//!    Without this, counting inode numbers would reach readable files in directories that others may not search.
//! 2. The same inode has the same number for all clients, for as long as the room exists; 0 (none) and 1 (the root) stay.
//!
//! The cipher is FF1 (NIST SP 800-38G) with AES-256 over the 64 bits of a number; results that are 0 or 1 are enciphered again
//! (cycle walking), so that it stays a permutation. It takes microseconds and is asked for several times in each call, so the pairs
//! used last are kept.

use aes::Aes256;
use fpe::ff1::{BinaryNumeralString, FF1};
use metadata_proto::rpc::{Change, Changed};
use parking_lot::Mutex;
use room::{DirEntry, Inode, InodeNo, Room};
use zeroize::Zeroizing;

use crate::audit::Seen;

const NOTE: &str = "metadata.handles";
/// What a decoy's key is derived for (BLAKE3's key derivation).
const DECOYS: &str = "strongroom 2026-11 numbers of inodes that reach nothing";

/// Pairs kept, for each direction: 128 KiB together.
const KEPT: usize = 4096;

/// The cipher, and the key of decoys.
pub(crate) struct Handles {
    cipher: FF1<Aes256>,
    decoys: Zeroizing<[u8; 32]>,
    kept: Mutex<Kept>,
}

/// Pairs of a room's number and its clients' number, each in the place that one of the two chooses. Places without a pair hold 0 and 0,
/// which is one.
struct Kept {
    by_room: Box<[(u64, u64); KEPT]>,
    by_client: Box<[(u64, u64); KEPT]>,
}

impl Kept {
    fn client_of(&self, room: u64) -> Option<u64> {
        let (known, client) = self.by_room[place(room)];
        (known == room).then_some(client)
    }

    fn room_of(&self, client: u64) -> Option<u64> {
        let (room, known) = self.by_client[place(client)];
        (known == client).then_some(room)
    }

    fn keep(&mut self, room: u64, client: u64) {
        self.by_room[place(room)] = (room, client);
        self.by_client[place(client)] = (room, client);
    }
}

fn place(number: u64) -> usize {
    number as usize % KEPT
}

impl std::fmt::Debug for Handles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handles(..)")
    }
}

impl Handles {
    /// The room's; made where there are none yet.
    pub(super) fn of(room: &Room) -> room::Result<Self> {
        if let Some(note) = room.note(NOTE)?.map(Zeroizing::new) {
            let key: &[u8; 32] = note
                .as_slice()
                .try_into()
                .map_err(|_| room::Error::Damaged(format!("note `{NOTE}` is not a key")))?;
            return Ok(Self::new(key));
        }
        let mut key = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *key).map_err(|e| std::io::Error::other(e.to_string()))?;
        room.set_note(NOTE, &*key)?;
        Ok(Self::new(&key))
    }

    fn new(key: &[u8; 32]) -> Self {
        Self {
            // A key of 32 bytes and two digits are what it takes.
            cipher: FF1::new(key, 2).expect("FF1 takes the radix 2"),
            decoys: Zeroizing::new(blake3::derive_key(DECOYS, key)),
            kept: Mutex::new(Kept {
                by_room: Box::new([(0, 0); KEPT]),
                by_client: Box::new([(0, 0); KEPT]),
            }),
        }
    }

    fn encipher(&self, number: u64) -> u64 {
        let digits = BinaryNumeralString::from_bytes_le(&number.to_le_bytes());
        let done = self.cipher.encrypt(&[], &digits);
        number_of(&done.expect("FF1 takes 64 digits"))
    }

    fn decipher(&self, number: u64) -> u64 {
        let digits = BinaryNumeralString::from_bytes_le(&number.to_le_bytes());
        let done = self.cipher.decrypt(&[], &digits);
        number_of(&done.expect("FF1 takes 64 digits"))
    }

    fn deciphered(&self, client: u64) -> u64 {
        let mut number = self.decipher(client);
        while number <= 1 {
            number = self.decipher(number);
        }
        number
    }

    /// The number that clients get.
    pub(super) fn out(&self, no: InodeNo) -> InodeNo {
        let mut number = no.0;
        if number > 1 {
            if let Some(known) = self.kept.lock().client_of(number) {
                return InodeNo(known);
            }
            number = self.encipher(number);
            while number <= 1 {
                number = self.encipher(number);
            }
            self.kept.lock().keep(no.0, number);
        }
        InodeNo(number)
    }

    /// The room's number; a number that no client got is almost never one.
    pub(super) fn room_number(&self, no: InodeNo) -> InodeNo {
        let mut number = no.0;
        if number > 1 {
            let known = self.kept.lock().room_of(number);
            number = known.unwrap_or_else(|| self.deciphered(number));
            if known.is_none() {
                self.kept.lock().keep(number, no.0);
            }
        }
        // The room's own are below 2^63; 0 is none.
        InodeNo(if number > i64::MAX as u64 { 0 } else { number })
    }

    /// A file that a client names.
    pub(super) fn seen(&self, client: InodeNo) -> Seen {
        let room = self.room_number(client);
        Seen { room, client }
    }

    /// A number that looks like an inode's and reaches nothing.
    fn decoy(&self, no: InodeNo) -> InodeNo {
        let hash = blake3::keyed_hash(&self.decoys, &no.0.to_le_bytes());
        let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
        InodeNo(u64::from_le_bytes([a, b, c, d, e, f, g, h]).max(2))
    }

    /// An inode as clients get it.
    pub(super) fn inode(&self, mut inode: Inode) -> Inode {
        inode.no = self.out(inode.no);
        inode.parent = self.out(inode.parent);
        inode
    }

    /// An entry of a directory. `veiled`: for who may list, and not search.
    pub(super) fn entry(
        &self,
        (mut entry, mut inode): (DirEntry, Inode),
        veiled: bool,
    ) -> (DirEntry, Inode) {
        if veiled {
            entry.inode = self.decoy(entry.inode);
            inode.no = entry.inode;
            return (entry, inode);
        }
        entry.inode = self.out(entry.inode);
        (entry, self.inode(inode))
    }

    pub(super) fn changed(&self, changed: Changed) -> Changed {
        match changed {
            Changed::Inode(inode) => Changed::Inode(Box::new(self.inode(*inode))),
            Changed::Opened(inode, session, directory) => {
                Changed::Opened(Box::new(self.inode(*inode)), session, directory)
            }
            Changed::Done | Changed::Copied(_) => changed,
        }
    }

    /// A change with the room's numbers.
    pub(super) fn change(&self, mut change: Change) -> Change {
        let room = |no: &mut InodeNo| *no = self.room_number(*no);
        match &mut change {
            Change::Make { parent, .. }
            | Change::Create { parent, .. }
            | Change::CreateTmpfile { parent, .. }
            | Change::Unlink { parent, .. }
            | Change::Rmdir { parent, .. } => room(parent),
            Change::Link { no, parent, .. } => {
                room(no);
                room(parent);
            }
            Change::Rename {
                parent, new_parent, ..
            } => {
                room(parent);
                room(new_parent);
            }
            Change::SetAttributes { no, .. }
            | Change::SetXattr { no, .. }
            | Change::RemoveXattr { no, .. }
            | Change::Fallocate { no, .. } => room(no),
            Change::CopyRange { from, to, .. } => {
                room(from);
                room(to);
            }
        }
        change
    }
}

fn number_of(digits: &BinaryNumeralString) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digits.to_bytes_le());
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back_and_root_and_none_stay() {
        let handles = Handles::new(&[3; 32]);
        for no in (0..2000).chain([1 << 32, 1 << 62, (1 << 63) - 1]) {
            let out = handles.out(InodeNo(no));
            assert_eq!(handles.room_number(out), InodeNo(no));
            assert_eq!(out.0 <= 1, no <= 1);
            assert_eq!(out.0 == no, no <= 1);
            assert_ne!(handles.decoy(InodeNo(no)), out);
        }
    }

    #[test]
    fn numbers_that_share_a_place_do_not_take_each_other_s() {
        let used = Handles::new(&[3; 32]);
        let numbers = (0..3).map(|turn| 7 + turn * KEPT as u64);
        for no in numbers.clone().chain(numbers) {
            let out = used.out(InodeNo(no));
            // One that has kept nothing says the same.
            let fresh = Handles::new(&[3; 32]);
            assert_eq!(fresh.room_number(out), InodeNo(no));
            assert_eq!(fresh.out(InodeNo(no)), out);
            assert_eq!(used.room_number(out), InodeNo(no));
            // Its place in the other direction has what is no number of the room.
            let forged = InodeNo(out.0 ^ 1 << 40);
            assert_eq!(used.room_number(forged), fresh.room_number(forged));
            assert_eq!(used.room_number(out), InodeNo(no));
        }
    }

    #[test]
    fn another_key_gives_other_numbers() {
        let (a, b) = (Handles::new(&[3; 32]), Handles::new(&[4; 32]));
        for no in 2..100 {
            assert_ne!(a.out(InodeNo(no)), b.out(InodeNo(no)));
        }
    }
}
