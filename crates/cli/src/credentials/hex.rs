//! Secrets as hexadecimal text in JSON: any bytes fit, and no decoder has to guess.

use std::fmt;

use room::Secret;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

use crate::hex::decode;

/// A secret that is written as lowercase hexadecimal digits. Prints as `Secret(..)`.
#[derive(Debug, Clone)]
pub struct HexSecret(pub(crate) Secret);

impl Serialize for HexSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&encode(self.0.expose()))
    }
}

impl<'de> Deserialize<'de> for HexSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Digits;
        impl Visitor<'_> for Digits {
            type Value = HexSecret;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an even number of hexadecimal digits")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<HexSecret, E> {
                // The text itself is not put into the error: it may be most of a secret.
                decode(text.as_bytes())
                    .map(|bytes| HexSecret(Secret::new(bytes)))
                    .ok_or_else(|| E::custom("not hexadecimal digits"))
            }
        }
        deserializer.deserialize_str(Digits)
    }
}

/// Lowercase hexadecimal, two digits a byte.
pub(crate) fn encode(bytes: &[u8]) -> Zeroizing<String> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = Zeroizing::new(String::with_capacity(bytes.len() * 2));
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_travels_unchanged_and_unprinted() {
        let secret = HexSecret(Secret::new(vec![0, 255, b'\n', 7]));
        let json = serde_json::to_string(&secret).unwrap();
        assert_eq!(json, "\"00ff0a07\"");
        let back: HexSecret = serde_json::from_str(&json).unwrap();
        assert_eq!(back.0.expose(), secret.0.expose());
        assert_eq!(format!("{back:?}"), "HexSecret(Secret(..))");
    }

    #[test]
    fn what_is_not_hexadecimal_is_refused() {
        for bad in ["\"0\"", "\"0g\"", "\"é\"", "7", "null"] {
            assert!(serde_json::from_str::<HexSecret>(bad).is_err(), "{bad}");
        }
    }
}
