//! The header of a room: what it is made of, and everything that opens or changes it.
//!
//! Invariants:
//! 1. A header read from bytes hands out no key, and cannot be changed or written, before its code was
//!    verified as a whole under the master key.
//! 2. It has at least one slot, at most [`SLOTS_MAX`], with different numbers.
//! 3. Every change raises the revision.
//!
//! It does not know where headers are kept or that there are two copies. Its text is in `text`, the change of a
//! room's master key in `rekey`.

pub(crate) mod text;

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::slot::KeySlot;
use crate::wrap::WrappedKey;
use crate::{
    CatalogKey, Credential, HeaderError, MAC_LEN, MasterKey, NewCredential, RoomId, SLOTS_MAX,
    SealError, SlotInfo, SlotKind, Suite, UNIT_LEN,
};

/// The format this version writes, and the newest it reads.
pub const FORMAT: u32 = 1;

/// The features a room may require that this version has.
pub(crate) const KNOWN_FEATURES: &[&str] =
    &[CATALOG_PAGES, RESERVATIONS, APPEND_NONCES, POSITION_KEYS];

/// The feature of a room beside whose catalog there is a table of its pages. Every new room has it.
const CATALOG_PAGES: &str = "catalog-pages";

/// The feature of a room in which space can be reserved for holes of files. Every new room has it.
const RESERVATIONS: &str = "reservations";

/// The feature of a room whose extents carry a random part of their units' nonces. Every new room has it.
const APPEND_NONCES: &str = "append-nonces";

/// The feature of a room in which, from some epoch on, each position of a segment has its own key. Every room on network disks
/// has it.
pub(crate) const POSITION_KEYS: &str = "position-keys";

/// A room's header.
#[derive(Clone, Debug)]
pub struct Header {
    pub(crate) room: RoomId,
    pub(crate) suite: Suite,
    pub(crate) created_unix_s: u64,
    pub(crate) revision: u64,
    pub(crate) epoch: u32,
    pub(crate) features: Vec<String>,
    /// With the feature [`POSITION_KEYS`]: the first epoch in which each position has its own key.
    pub(crate) positions_from: Option<u32>,
    pub(crate) slots: Vec<KeySlot>,
    pub(crate) previous: Option<Previous>,
    /// The bytes it was read from, and their code; none for a header made here.
    pub(crate) read: Option<ReadFrom>,
    /// Which master key the header was verified under: see [`fingerprint`].
    pub(crate) verified: OnceLock<[u8; MAC_LEN]>,
}

/// The master key of before an unfinished rekey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Previous {
    pub(crate) epoch: u32,
    pub(crate) wrapped: WrappedKey,
}

#[derive(Clone, Debug)]
pub(crate) struct ReadFrom {
    pub(crate) body: Vec<u8>,
    pub(crate) mac: [u8; MAC_LEN],
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

impl Header {
    /// A header for a new room, with a fresh id and master key and one slot, number 0.
    ///
    /// # Errors
    /// [`SealError::BadLabel`], [`SealError::CostOutOfBounds`], [`SealError::EmptySecret`],
    /// [`SealError::RawKeyLength`], [`SealError::Age`], [`SealError::BadRecipient`], [`SealError::Derivation`],
    /// [`SealError::Header`] for recipients that make it too long to be read: what is wrong with the slot asked for.
    pub fn create(
        suite: Suite,
        first: NewCredential,
        label: &str,
    ) -> Result<(Header, MasterKey), SealError> {
        let (room, master, now) = (RoomId::random(), MasterKey::random(), now_unix_s());
        let slot = KeySlot::make(&room, 0, &master, &first, label, now)?;
        text::check_len(std::slice::from_ref(&slot))?;
        let header = Header {
            room,
            suite,
            created_unix_s: now,
            revision: 1,
            epoch: 1,
            features: [CATALOG_PAGES, RESERVATIONS, APPEND_NONCES]
                .map(str::to_owned)
                .to_vec(),
            positions_from: None,
            slots: vec![slot],
            previous: None,
            read: None,
            verified: OnceLock::from(fingerprint(&master, &room)),
        };
        Ok((header, master))
    }

    /// Reads a header whose slots ask for no more work than an [`Argon2Cost`](crate::Argon2Cost) may. It is not yet verified:
    /// [`Header::unlock`] does that.
    ///
    /// # Errors
    /// See [`HeaderError`]: each says what cannot be read and why.
    pub fn parse(bytes: &[u8]) -> Result<Header, HeaderError> {
        text::read(bytes)
    }

    /// Opens the header: tries every slot of the credential's kind, then verifies the header as a whole.
    ///
    /// A passphrase, key file or raw key is tried on all slots of its kind whether or not an earlier one
    /// opens, so the time it takes reveals nothing. Identities are tried until one opens a slot: they may ask
    /// for a touch or a PIN each time.
    ///
    /// # Errors
    /// [`SealError::WrongCredential`] and [`SealError::NoSuchKind`] when no slot opens,
    /// [`SealError::HeaderForged`] when one does and the header is not what was written;
    /// [`SealError::RawKeyLength`], [`SealError::Derivation`], [`SealError::Age`] when the credential could
    /// not be tried.
    pub fn unlock(&self, credential: &Credential) -> Result<Unlocked, SealError> {
        let kind = credential.kind();
        let mut opened = None;
        let mut failure = None;
        let mut tried = false;
        for slot in self.slots.iter().filter(|slot| slot.method.kind() == kind) {
            if opened.is_some() && kind == SlotKind::Recipients {
                break;
            }
            tried = true;
            match slot.open(&self.room, credential) {
                Ok(Some(master)) => {
                    opened.get_or_insert((slot.id, master));
                }
                Ok(None) => {}
                Err(error) => failure = Some(error),
            }
        }
        let Some((slot, master)) = opened else {
            return Err(match failure {
                Some(error) => error,
                None if tried => SealError::WrongCredential { kind },
                None => SealError::NoSuchKind { kind },
            });
        };
        let previous = self.unlock_with(&master)?;
        Ok(Unlocked {
            master,
            slot,
            previous,
        })
    }

    /// Verifies the header as [`verify`](Self::verify) does. Returns the epoch and master key before, while a rekey is unfinished.
    ///
    /// # Errors
    /// [`SealError::HeaderForged`] when the header is not what was written with this master key.
    pub fn unlock_with(&self, master: &MasterKey) -> Result<Option<(u32, MasterKey)>, SealError> {
        self.verify(master)?;
        let previous = self.previous.as_ref().map(|Previous { epoch, wrapped }| {
            let key = master.unwrap_previous(&self.room, *epoch, wrapped)?;
            Ok((*epoch, key))
        });
        previous.transpose()
    }

    /// Verifies the header as a whole under a master key already at hand.
    ///
    /// # Errors
    /// [`SealError::HeaderForged`] when the header is not what was written with this master key.
    pub fn verify(&self, master: &MasterKey) -> Result<(), SealError> {
        let mark = fingerprint(master, &self.room);
        if let Some(verified) = self.verified.get() {
            return if *verified == mark {
                Ok(())
            } else {
                Err(SealError::HeaderForged)
            };
        }
        // A header without `read` was made here and is marked verified from the start.
        let read = self.read.as_ref().ok_or(SealError::HeaderForged)?;
        let key = master.header_key(&self.room);
        key.verify(&read.body, &read.mac)
            .map_err(|_| SealError::HeaderForged)?;
        self.verified.get_or_init(|| mark);
        Ok(())
    }

    /// Whether bytes that [`parse`](Self::parse) does not know are another copy of this room's header, written by a newer version: not, where
    /// they only became unknown by damage. Those of a newer format always may be.
    pub fn is_newer_copy(&self, bytes: &[u8], master: &MasterKey) -> bool {
        text::is_newer(bytes, &self.room, master)
    }

    /// The bytes of the header file, authenticated under the master key. At most [`crate::HEADER_LEN_MAX`].
    ///
    /// # Panics
    /// When the header was neither made nor verified under this master key: writing it would sign what
    /// nobody has checked.
    pub fn encode(&self, master: &MasterKey) -> Vec<u8> {
        assert!(
            self.verify(master).is_ok(),
            "a header is written only after it was verified under the same master key"
        );
        text::write(self, master)
    }

    /// The format version.
    pub fn format(&self) -> u32 {
        FORMAT
    }

    /// The room's id.
    pub fn room_id(&self) -> RoomId {
        self.room
    }

    /// The suite data is sealed with.
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// Bytes sealed at once.
    pub fn unit_len(&self) -> usize {
        UNIT_LEN
    }

    /// When the room was created, in seconds since 1970.
    pub fn created_unix_s(&self) -> u64 {
        self.created_unix_s
    }

    /// 1 for a new room; every change raises it by one.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// This header as one that follows `other`, by its revision: what `other` changed of it is taken back.
    pub fn following(&self, other: &Header) -> Header {
        Header {
            revision: other.revision + 1,
            ..self.clone()
        }
    }

    /// Which master key the room has: 1 at first, raised by one when a rekey begins.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// What a program must have to use the room; all of it this version has.
    pub fn features(&self) -> &[String] {
        &self.features
    }

    /// The key of the room's catalog and its log, as the room's features ask for it. `master` is the room's.
    pub fn catalog_key(&self, master: &MasterKey) -> CatalogKey {
        let log = master.log_key(&self.room, self.suite);
        let key = master.catalog_key(&self.room).with_log(log);
        if self.has(CATALOG_PAGES) {
            key.with_digest(master.page_digest_key(&self.room))
        } else {
            key
        }
    }

    fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|name| name == feature)
    }

    fn require(&mut self, feature: &str) {
        if !self.has(feature) {
            self.features.push(feature.to_owned());
        }
    }

    /// Whether space can be reserved in the room for holes of files.
    pub fn has_reservations(&self) -> bool {
        self.has(RESERVATIONS)
    }

    /// From now on, space can be reserved in the room for holes of files.
    pub fn require_reservations(&mut self) {
        if !self.has_reservations() {
            self.require(RESERVATIONS);
            self.revision += 1;
        }
    }

    /// Whether each append to a segment draws a part of its nonces.
    pub fn has_append_nonces(&self) -> bool {
        self.has(APPEND_NONCES)
    }

    /// The first epoch in which each position of a segment has its own key; `None`: all units of a segment have one key.
    pub fn position_keys_from(&self) -> Option<u32> {
        self.positions_from
    }

    /// From the present epoch on, each position of a segment has its own key. For a room that has no segment of this epoch yet.
    pub fn require_position_keys(&mut self) {
        if self.positions_from.is_none() {
            self.require(POSITION_KEYS);
            self.positions_from = Some(self.epoch);
            self.revision += 1;
        }
    }

    /// The room's catalog and segments are about to be written again, with what they have not yet.
    pub(crate) fn renew(&mut self) {
        self.require(CATALOG_PAGES);
        self.require(APPEND_NONCES);
    }

    /// The slots, for listing, in the order of their numbers.
    pub fn slots(&self) -> Vec<SlotInfo> {
        self.slots.iter().map(KeySlot::info).collect()
    }

    /// Adds a slot under the lowest free number, which it returns.
    ///
    /// # Errors
    /// As for [`Header::create`], and [`SealError::SlotsFull`]; [`SealError::HeaderForged`] when `master`
    /// is not this header's.
    pub fn add_slot(
        &mut self,
        master: &MasterKey,
        new: NewCredential,
        label: &str,
    ) -> Result<u32, SealError> {
        self.verify(master)?;
        let taken = |id: &u32| self.slots.iter().any(|slot| slot.id == *id);
        let id = (0..SLOTS_MAX as u32)
            .find(|id| !taken(id))
            .ok_or(SealError::SlotsFull)?;
        let slot = KeySlot::make(&self.room, id, master, &new, label, now_unix_s())?;
        let at = self.slots.partition_point(|other| other.id < id);
        let mut slots = self.slots.clone();
        slots.insert(at, slot);
        self.take_slots(slots)?;
        Ok(id)
    }

    /// Removes a slot. An older copy of the header still opens with its credential: only a rekey shuts that
    /// out.
    ///
    /// # Errors
    /// [`SealError::NoSuchSlot`]; [`SealError::LastSlot`]; [`SealError::NotVerified`] before the header was
    /// opened.
    pub fn remove_slot(&mut self, id: u32) -> Result<(), SealError> {
        if self.verified.get().is_none() {
            return Err(SealError::NotVerified);
        }
        let at = self.position(id)?;
        if self.slots.len() == 1 {
            return Err(SealError::LastSlot(id));
        }
        self.slots.remove(at);
        self.revision += 1;
        Ok(())
    }

    /// Puts a new credential in a slot's place, under the same number; without a label it keeps the one it has.
    ///
    /// # Errors
    /// As for [`Header::add_slot`], and [`SealError::NoSuchSlot`].
    pub fn replace_slot(
        &mut self,
        master: &MasterKey,
        id: u32,
        new: NewCredential,
        label: Option<&str>,
    ) -> Result<(), SealError> {
        self.verify(master)?;
        let at = self.position(id)?;
        let label = label.unwrap_or(&self.slots[at].label);
        let slot = KeySlot::make(&self.room, id, master, &new, label, now_unix_s())?;
        let mut slots = self.slots.clone();
        slots[at] = slot;
        self.take_slots(slots)
    }

    pub(crate) fn position(&self, id: u32) -> Result<usize, SealError> {
        let found = self.slots.iter().position(|slot| slot.id == id);
        found.ok_or(SealError::NoSuchSlot(id))
    }

    /// Takes changed slots over, unless the header they make could not be read again.
    fn take_slots(&mut self, slots: Vec<KeySlot>) -> Result<(), SealError> {
        text::check_total_work(&slots)?;
        text::check_len(&slots)?;
        self.slots = slots;
        self.revision += 1;
        Ok(())
    }
}

/// A mark of the master key, kept in memory to notice a mix-up of keys. The header key never authenticates
/// these bytes as a header: a header starts with a brace.
pub(crate) fn fingerprint(master: &MasterKey, room: &RoomId) -> [u8; MAC_LEN] {
    master.header_key(room).mac(b"which master key")
}

fn now_unix_s() -> u64 {
    // A clock before 1970 is recorded as 1970: the time is for people to read only.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
