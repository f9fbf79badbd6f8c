//! Bytes that are wiped when they go out of use, and the hexadecimal writing of bytes.

use std::fmt;

use zeroize::Zeroizing;

/// A passphrase, the content of a key file, or a raw key: bytes that are wiped on drop and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the bytes over. Nothing else may hold a copy of them.
    pub fn new(bytes: Vec<u8>) -> Secret {
        Secret(Zeroizing::new(bytes))
    }

    /// The bytes themselves. Do not let them live longer than needed.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Secret {
    fn from(bytes: Vec<u8>) -> Secret {
        Secret::new(bytes)
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret::new(text.into_bytes())
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Secret {
        Secret::new(text.as_bytes().to_vec())
    }
}

impl From<&[u8]> for Secret {
    fn from(bytes: &[u8]) -> Secret {
        Secret::new(bytes.to_vec())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Lowercase hexadecimal, two digits a byte.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)] as char);
        text.push(DIGITS[usize::from(byte & 15)] as char);
    }
    text
}

/// The bytes of lowercase hexadecimal text; `None` for anything else. One value has one writing, so
/// uppercase is refused.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    fn digit(byte: u8) -> Option<u8> {
        match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        }
    }
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?))
        .collect()
}

/// The same, for a fixed number of bytes.
pub(crate) fn array_from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    from_hex(text)?.try_into().ok()
}

/// Fills the buffer from the operating system's generator.
pub(crate) fn fill_random(buffer: &mut [u8]) {
    // No generator of this process: a copy of its memory would draw the same. It fails only on a system without one, where
    // no key may be made.
    getrandom::fill(buffer).expect("the operating system has a random number generator");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_is_lowercase_and_even_or_refused() {
        assert_eq!(to_hex(&[0, 0x1f, 0xff]), "001fff");
        assert_eq!(from_hex("001fff"), Some(vec![0, 0x1f, 0xff]));
        for bad in ["0", "0g", "0F", " 0", "0é"] {
            assert_eq!(from_hex(bad), None, "{bad}");
        }
        assert_eq!(array_from_hex::<2>("001fff"), None);
    }

    #[test]
    fn a_secret_is_never_printed() {
        assert_eq!(format!("{:?}", Secret::from("horse")), "Secret(..)");
    }
}
