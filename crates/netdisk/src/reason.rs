//! Why a disk refuses a request: one reason for each check, in the order of the checks.

/// A reason. Its number is what travels in a reply; 0 there means that the request was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reason {
    /// Sizes, operation or version are not of the protocol.
    Malformed = 1,
    /// Signed for another incarnation of the disk server.
    StaleBoot = 2,
    /// Signed for an epoch that is over, or not yet.
    StaleEpoch = 3,
    /// The capability is another disk's.
    WrongDisk = 4,
    /// The capability's group is not valid.
    UnknownGroup = 5,
    /// The capability was revoked.
    Revoked = 6,
    /// The capability's time is over.
    Expired = 7,
    /// The header's MAC does not hold.
    NotAuthentic = 8,
    /// The capability's mode does not allow the operation.
    ModeNotAllowed = 9,
    /// The blocks are not all covered by the capability.
    OutsideCapability = 10,
    /// The blocks are not all on the disk.
    OutsideDisk = 11,
    /// The payload's MAC does not hold.
    PayloadNotAuthentic = 12,
    /// The nonce was seen before (or, one time in a thousand at most, looks so).
    Replayed = 13,
    /// The disk's storage failed.
    Storage = 14,
    /// No space left below the disk.
    NoSpace = 15,
    /// Not now: no memory for the payload in time, or the server stops. Nothing was done.
    Busy = 16,
    /// A later metadata server has set the groups.
    Overtaken = 17,
    /// Another change of the metadata server's was made since this one was signed.
    OutOfSequence = 18,
    /// The disk is another room's.
    OtherRoom = 19,
}

impl Reason {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Reason; 19] = [
        Reason::Malformed,
        Reason::StaleBoot,
        Reason::StaleEpoch,
        Reason::WrongDisk,
        Reason::UnknownGroup,
        Reason::Revoked,
        Reason::Expired,
        Reason::NotAuthentic,
        Reason::ModeNotAllowed,
        Reason::OutsideCapability,
        Reason::OutsideDisk,
        Reason::PayloadNotAuthentic,
        Reason::Replayed,
        Reason::Storage,
        Reason::NoSpace,
        Reason::Busy,
        Reason::Overtaken,
        Reason::OutOfSequence,
        Reason::OtherRoom,
    ];

    /// Its number: 1 to 19.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The reason with this number.
    pub fn from_code(code: u8) -> Option<Self> {
        let index = usize::from(code).checked_sub(1)?;
        Self::ALL.get(index).copied()
    }

    /// Its name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Malformed => "malformed",
            Reason::StaleBoot => "stale_boot",
            Reason::StaleEpoch => "stale_epoch",
            Reason::WrongDisk => "wrong_disk",
            Reason::UnknownGroup => "unknown_group",
            Reason::Revoked => "revoked",
            Reason::Expired => "expired",
            Reason::NotAuthentic => "not_authentic",
            Reason::ModeNotAllowed => "mode_not_allowed",
            Reason::OutsideCapability => "outside_capability",
            Reason::OutsideDisk => "outside_disk",
            Reason::PayloadNotAuthentic => "payload_not_authentic",
            Reason::Replayed => "replayed",
            Reason::Storage => "storage",
            Reason::NoSpace => "no_space",
            Reason::Busy => "busy",
            Reason::Overtaken => "overtaken",
            Reason::OutOfSequence => "out_of_sequence",
            Reason::OtherRoom => "other_room",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_number() {
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(reason.code()), index + 1);
            assert_eq!(Reason::from_code(reason.code()), Some(reason));
        }
        assert_eq!(Reason::from_code(0), None);
        assert_eq!(Reason::from_code(20), None);
    }
}
