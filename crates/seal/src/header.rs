//! The header of a room.

use crate::*;

/// A room's header.
#[derive(Clone, Debug)]
pub struct Header {}

/// One key slot, for listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotInfo {
    /// Its number, 0 to 31.
    pub id: u32,
    /// Its kind.
    pub kind: SlotKind,
    /// What its owner calls it; may be empty.
    pub label: String,
    /// When it was made, in seconds since 1970.
    pub created_unix_s: u64,
    /// The work, for passphrases and key files.
    pub cost: Option<Argon2Cost>,
    /// The recipients' texts.
    pub recipients: Vec<String>,
}

/// What opening a header yields.
#[derive(Debug)]
pub struct Unlocked {
    /// The room's master key.
    pub master: MasterKey,
    /// The slot that opened.
    pub slot: u32,
    /// While a rekey is unfinished: the epoch and master key of before.
    pub previous: Option<(u32, MasterKey)>,
}

#[allow(missing_docs, unused_variables)]
impl Header {
    pub fn create(suite: Suite, first: NewCredential, label: &str) -> Result<(Header, MasterKey), SealError> { todo!() }
    pub fn parse(bytes: &[u8]) -> Result<Header, HeaderError> { todo!() }
    pub fn parse_within(bytes: &[u8], limits: &CostLimits) -> Result<Header, HeaderError> { todo!() }
    pub fn unlock(&self, credential: &Credential) -> Result<Unlocked, SealError> { todo!() }
    /// Panics on a parsed header that was never unlocked or verified (that would sign what nobody checked).
    pub fn encode(&self, master: &MasterKey) -> Vec<u8> { todo!() }
    pub fn verify(&self, master: &MasterKey) -> Result<(), SealError> { todo!() }
    pub fn format(&self) -> u32 { todo!() }
    pub fn room_id(&self) -> RoomId { todo!() }
    pub fn suite(&self) -> Suite { todo!() }
    pub fn unit_len(&self) -> usize { todo!() }
    pub fn created_unix_s(&self) -> u64 { todo!() }
    /// Rises with each change (the functions that change the header raise it).
    pub fn revision(&self) -> u64 { todo!() }
    pub fn epoch(&self) -> u32 { todo!() }
    pub fn features(&self) -> &[String] { todo!() }
    pub fn slots(&self) -> Vec<SlotInfo> { todo!() }
    pub fn add_slot(&mut self, master: &MasterKey, new: NewCredential, label: &str) -> Result<u32, SealError> { todo!() }
    pub fn remove_slot(&mut self, id: u32) -> Result<(), SealError> { todo!() }
    /// Same number, new credential, fresh salt; `label` None keeps it.
    pub fn replace_slot(&mut self, master: &MasterKey, id: u32, new: NewCredential, label: Option<&str>) -> Result<(), SealError> { todo!() }
    /// Keeps the recipients' slots and those whose credential is given; returns the ones that had to go.
    pub fn begin_rekey(&mut self, old: &MasterKey, new: &MasterKey, keep: &[(u32, &Credential)]) -> Result<Vec<SlotInfo>, SealError> { todo!() }
    pub fn rekey_under_way(&self) -> bool { todo!() }
    pub fn finish_rekey(&mut self) { todo!() }
}
