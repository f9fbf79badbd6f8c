//! The room's id.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::SealError;
use crate::secret::{array_from_hex, fill_random, to_hex};

/// Identifies a room: 16 random bytes, written as 32 lowercase hexadecimal digits. Not a
/// secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoomId([u8; 16]);

impl RoomId {
    /// A fresh one.
    pub fn random() -> RoomId {
        let mut bytes = [0; 16];
        fill_random(&mut bytes);
        RoomId(bytes)
    }

    /// The id with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> RoomId {
        RoomId(bytes)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for RoomId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for RoomId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RoomId({self})")
    }
}

impl FromStr for RoomId {
    type Err = SealError;

    fn from_str(text: &str) -> Result<RoomId, SealError> {
        array_from_hex(text)
            .map(RoomId)
            .ok_or_else(|| SealError::BadRoomId(text.to_owned()))
    }
}

impl Serialize for RoomId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RoomId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RoomId, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}
