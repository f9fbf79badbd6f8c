//! What can go wrong with keys, headers and sealed data.
//!
//! Invariant: no message carries a secret. [`HeaderError`] is about bytes that cannot be a header, found
//! before any key is known; [`SealError`] about everything after.

use crate::{HEADER_LEN_MAX, SLOTS_MAX};

/// Why a key, a credential or sealed data was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The bytes are not what was sealed with this key at this place. Restore the data from a copy.
    #[error("the sealed unit at block {block} does not verify: it was damaged, moved or replaced")]
    Corrupt {
        /// Index of the unit's first 4 KiB block in its segment.
        block: u64,
    },
    /// A message authentication code does not hold. Restore what it covers.
    #[error("the message authentication code does not match: the bytes were damaged or replaced")]
    MacMismatch,
    /// No slot of the credential's kind opens with it. Try another credential.
    #[error("the {kind} does not open this room")]
    WrongCredential {
        /// The kind of credential that was tried.
        kind: crate::SlotKind,
    },
    /// The room has no slot of the credential's kind. Use one of the kinds it has.
    #[error(
        "this room has no key slot of kind {kind}; `strongroom key list` shows the kinds it has"
    )]
    NoSuchKind {
        /// The kind of credential that was tried.
        kind: crate::SlotKind,
    },
    /// The credential opened a slot, but the header as a whole is not what the room wrote. Restore the header.
    #[error(
        "the header was changed by someone without the key: restore it with `strongroom header restore`"
    )]
    HeaderForged,
    /// No slot has this number.
    #[error("there is no key slot {0}; `strongroom key list` shows those there are")]
    NoSuchSlot(u32),
    /// The last slot was to be removed: nothing could open the room any more.
    #[error("key slot {0} is the last one: add another before removing it")]
    LastSlot(u32),
    /// All slots are taken.
    #[error("all {SLOTS_MAX} key slots are taken: remove one first")]
    SlotsFull,
    /// The credential given for a slot that is to be kept is of another kind than the slot.
    #[error("key slot {slot} is of kind {kind}, and the credential given for it is not")]
    KindMismatch {
        /// The slot.
        slot: u32,
        /// What kind it is.
        kind: crate::SlotKind,
    },
    /// A header was to be changed before it was opened and verified. Unlock it first.
    #[error("the header was not verified yet: open it with a credential before changing it")]
    NotVerified,
    /// A rekey would leave no slot that opens the room. Give the credential of one to keep.
    #[error("no key slot would open the room after the rekey: give the credential of one to keep")]
    NothingKept,
    /// A rekey would drop these slots, which are to be kept. Nothing has changed.
    #[error("a rekey would drop key slots that it cannot renew: {0}")]
    SlotsLost(String),
    /// A rekey is under way already. Finish it first.
    #[error("a rekey is under way: let it finish before starting another")]
    RekeyUnderWay,
    /// A raw key of another length than 32 bytes.
    #[error("a raw key is 32 bytes long, this one has {0}")]
    RawKeyLength(usize),
    /// An empty passphrase or key file.
    #[error("the {0} is empty")]
    EmptySecret(crate::SlotKind),
    /// A label that is too long or holds control characters.
    #[error("a key slot's label has at most {max} bytes and no control characters", max = crate::LABEL_LEN_MAX)]
    BadLabel,
    /// A cipher suite this version does not know.
    #[error(
        "unknown cipher suite `{0}`: this room was created by a newer version, or its header is damaged"
    )]
    UnknownSuite(String),
    /// A room id that is not 32 hexadecimal digits.
    #[error("a room id is 32 lowercase hexadecimal digits, `{0}` is not")]
    BadRoomId(String),
    /// A cost of key derivation outside its bounds.
    #[error("{what} of {value} is outside {min} to {max}")]
    CostOutOfBounds {
        /// Which number, with its unit.
        what: &'static str,
        /// What it is.
        value: u64,
        /// The least allowed.
        min: u64,
        /// The most allowed.
        max: u64,
    },
    /// Argon2 could not run, mostly for want of memory.
    #[error("the key derivation could not run: {0}; free some memory and try again")]
    Derivation(String),
    /// An age recipient or identity that cannot be read.
    #[error("not an age or SSH recipient this version can use: {0}")]
    BadRecipient(String),
    /// An age identity that cannot be read.
    #[error("not an age or SSH identity this version can use: {0}")]
    BadIdentity(String),
    /// An age recipient refused to encrypt, a slot's age file is damaged, or a plugin failed. One line.
    #[error("age could not wrap or open the key of a slot: {0}")]
    Age(String),
    /// The header cannot be read at all.
    #[error(transparent)]
    Header(#[from] HeaderError),
}

impl SealError {
    /// The error of keys that an error of a file system is, if it is one.
    pub fn of(error: &model::Error) -> Option<&Self> {
        match error {
            model::Error::Seal(e) => e.downcast_ref(),
            _ => None,
        }
    }

    /// What the age library says, which may take several lines.
    pub(crate) fn age(error: impl std::fmt::Display) -> SealError {
        let text = error.to_string();
        let lines = text.split(char::is_control).filter(|line| !line.is_empty());
        SealError::Age(lines.collect::<Vec<_>>().join(" "))
    }
}

impl From<SealError> for model::Error {
    fn from(e: SealError) -> Self {
        Self::Seal(Box::new(e))
    }
}

/// Why bytes cannot be read as a header.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// More bytes than a header ever has.
    #[error("the header has {0} bytes, more than the {HEADER_LEN_MAX} it may have")]
    TooLong(usize),
    /// Not the JSON a header is made of, or a field is missing, unknown or of the wrong type.
    #[error("the header is damaged: {0}")]
    Malformed(String),
    /// Made by a newer version.
    #[error(
        "the room has format {found}, this version reads up to {known}: use a newer version of strongroom"
    )]
    NewerFormat {
        /// What the header says.
        found: u32,
        /// The newest this version reads.
        known: u32,
    },
    /// The room needs something this version does not have.
    #[error(
        "the room needs the feature `{0}`, which this version does not have: use a newer version of strongroom"
    )]
    UnknownFeature(String),
    /// A suite this version does not know.
    #[error(
        "the room uses the cipher suite `{0}`, which this version does not know: use a newer version of strongroom"
    )]
    UnknownSuite(String),
    /// A slot kind this version does not know.
    #[error(
        "key slot {slot} is of kind `{kind}`, which this version does not know: use a newer version of strongroom"
    )]
    UnknownKind {
        /// The slot.
        slot: u32,
        /// What the header calls it.
        kind: String,
    },
    /// A field with an impossible value.
    #[error("the header is damaged: field `{field}` {problem}")]
    BadField {
        /// Which field.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// More slots than a header may have.
    #[error("the header has {0} key slots, more than the {SLOTS_MAX} it may have")]
    TooManySlots(usize),
    /// Two slots with one number.
    #[error("the header has key slot {0} twice")]
    DuplicateSlot(u32),
    /// The work a slot asks for is more than this machine shall do for an unverified header.
    #[error("key slot {slot} asks for too much work: {problem}")]
    Cost {
        /// The slot.
        slot: u32,
        /// Which bound is broken.
        problem: String,
    },
}
