//! The numbers by which clients know inodes: the room's, enciphered.
//!
//! 1. Who was not told a number cannot guess it: a file is reached by who may search the way to it, or was told by who may. Without
//!    this, counting inode numbers would reach readable files in directories that nobody else may search.
//! 2. The same inode has the same number for all clients and for the room's whole life; 0 (none) and 1 (the root) stay.
//!
//! The cipher is a balanced Feistel network of ten rounds, as FF1 has (NIST SP 800-38G), over 64 bits, with keyed BLAKE3 as its
//! round function; results that are 0 or 1 are enciphered again (cycle walking), so that it stays a permutation.

use room::{DirEntry, Inode, InodeNo, Room};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::rpc::{Change, Changed};

const NOTE: &str = "metadata.handles";
const ROUNDS: u8 = 10;
/// What [`Handles::decoy`] hashes instead of a round's number.
const DECOY: u8 = 0xff;

#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct Handles([u8; 32]);

impl std::fmt::Debug for Handles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handles(..)")
    }
}

impl Handles {
    /// The room's; made where there are none yet.
    pub(super) fn of(room: &Room) -> room::Result<Self> {
        if let Some(mut note) = room.note(NOTE)? {
            let key = note.as_slice().try_into();
            note.zeroize();
            return key
                .map(Self)
                .map_err(|_| room::Error::Damaged(format!("note `{NOTE}` is not a key")));
        }
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|e| std::io::Error::other(e.to_string()))?;
        let made = Self(key);
        key.zeroize();
        room.set_note(NOTE, &made.0)?;
        Ok(made)
    }

    fn round(&self, round: u8, half: u32) -> u32 {
        let mut input = [0; 5];
        input[0] = round;
        input[1..].copy_from_slice(&half.to_le_bytes());
        let hash = blake3::keyed_hash(&self.0, &input);
        let [a, b, c, d, ..] = *hash.as_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    fn encipher(&self, number: u64) -> u64 {
        let (mut left, mut right) = ((number >> 32) as u32, number as u32);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.round(round, right));
        }
        u64::from(left) << 32 | u64::from(right)
    }

    fn decipher(&self, number: u64) -> u64 {
        let (mut left, mut right) = ((number >> 32) as u32, number as u32);
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ self.round(round, left), left);
        }
        u64::from(left) << 32 | u64::from(right)
    }

    /// The number that clients are told.
    pub(super) fn out(&self, no: InodeNo) -> InodeNo {
        let mut number = no.0;
        if number > 1 {
            number = self.encipher(number);
            while number <= 1 {
                number = self.encipher(number);
            }
        }
        InodeNo(number)
    }

    /// The room's number; what no client was told is hardly ever one.
    pub(super) fn into_room(&self, no: InodeNo) -> InodeNo {
        let mut number = no.0;
        if number > 1 {
            number = self.decipher(number);
            while number <= 1 {
                number = self.decipher(number);
            }
        }
        // The room's own are below 2^63; 0 is none.
        InodeNo(if number > i64::MAX as u64 { 0 } else { number })
    }

    /// A number that stands for an inode and reaches nothing.
    fn decoy(&self, no: InodeNo) -> InodeNo {
        let mut input = [0; 9];
        input[0] = DECOY;
        input[1..].copy_from_slice(&no.0.to_le_bytes());
        let hash = blake3::keyed_hash(&self.0, &input);
        let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
        InodeNo(u64::from_le_bytes([a, b, c, d, e, f, g, h]).max(2))
    }

    /// An inode as clients are told it.
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
            Changed::Done | Changed::Copied(_) => changed,
        }
    }

    /// A change with the room's numbers.
    pub(super) fn change(&self, mut change: Change) -> Change {
        let room = |no: &mut InodeNo| *no = self.into_room(*no);
        match &mut change {
            Change::Make { parent, .. }
            | Change::MakeUnnamed { parent, .. }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back_and_root_and_none_stay() {
        let handles = Handles([3; 32]);
        for no in (0..2000).chain([1 << 32, 1 << 62, (1 << 63) - 1]) {
            let out = handles.out(InodeNo(no));
            assert_eq!(handles.into_room(out), InodeNo(no));
            assert_eq!(out.0 <= 1, no <= 1);
            assert_eq!(out.0 == no, no <= 1);
            assert_ne!(handles.decoy(InodeNo(no)), out);
        }
    }

    #[test]
    fn another_key_gives_other_numbers() {
        let (a, b) = (Handles([3; 32]), Handles([4; 32]));
        for no in 2..100 {
            assert_ne!(a.out(InodeNo(no)), b.out(InodeNo(no)));
        }
    }
}
