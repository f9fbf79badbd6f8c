//! Keys of a container as paths: normalised, and refused where they cannot be one.
//!
//! libsqlfs takes any text for a key and never normalises it. Names written by Java may be modified UTF-8, where a letter
//! beyond U+FFFF is two surrogates of three bytes each ("CESU-8", Unicode Technical Report 26).

use std::borrow::Cow;

/// The longest name, in bytes.
pub(crate) const MAX_NAME: usize = 255;
/// The longest path, in bytes.
const MAX_PATH: usize = 4095;
/// The most names in a path.
const MAX_DEPTH: usize = 512;

/// The names of a key's path, or why it cannot be one.
pub(crate) fn parts(key: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    if key.is_empty() {
        return Err("its path is empty");
    }
    if key.len() > MAX_PATH {
        return Err("its path is longer than 4095 bytes");
    }
    if key.contains(&0) {
        return Err("its path has a NUL");
    }
    let mut found = Vec::new();
    for part in key.split(|b| *b == b'/') {
        match part {
            b"" | b"." => continue,
            b".." => return Err("its path has .. in it"),
            _ => {}
        }
        let part = utf8(part);
        if part.len() > MAX_NAME {
            return Err("a name in its path is longer than 255 bytes");
        }
        found.push(part.into_owned());
    }
    if found.len() > MAX_DEPTH {
        return Err("it is more than 512 directories deep");
    }
    Ok(found)
}

/// Whether a key is written as libsqlfs's own programs write one.
pub(crate) fn is_plain(key: &[u8], parts: &[Vec<u8>]) -> bool {
    let mut plain = Vec::with_capacity(key.len());
    for part in parts {
        plain.push(b'/');
        plain.extend_from_slice(part);
    }
    if plain.is_empty() {
        plain.push(b'/');
    }
    plain == key
}

/// Replaces pairs of surrogates by the letters they encode; every other byte stays as it is.
pub(crate) fn utf8(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = (0..text.len()).find(|at| pair(&text[*at..]).is_some()) else {
        return Cow::Borrowed(text);
    };
    let mut clean = text[..first].to_vec();
    let mut rest = &text[first..];
    while let Some((byte, after)) = rest.split_first() {
        if let Some(letter) = pair(rest) {
            clean.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            rest = &rest[6..];
        } else {
            clean.push(*byte);
            rest = after;
        }
    }
    Cow::Owned(clean)
}

/// The letter whose two surrogates are at the beginning.
fn pair(text: &[u8]) -> Option<char> {
    let &[
        0xED,
        high @ 0xA0..=0xAF,
        high_low @ 0x80..=0xBF,
        0xED,
        low @ 0xB0..=0xBF,
        low_low @ 0x80..=0xBF,
    ] = text.get(..6)?
    else {
        return None;
    };
    let half = |mid: u8, low: u8| u32::from(mid & 0x0F) << 6 | u32::from(low & 0x3F);
    char::from_u32(0x1_0000 + (half(high, high_low) << 10) + half(low, low_low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(key: &[u8]) -> Result<Vec<u8>, &'static str> {
        parts(key).map(|parts| parts.join(&b'/'))
    }

    #[test]
    fn a_path_is_normalised_and_never_leads_out() {
        for (key, path) in [
            ("/", ""),
            ("/a", "a"),
            ("//a///b/", "a/b"),
            ("/./a/.", "a"),
            ("a/b", "a/b"),
            ("/a[1]*?", "a[1]*?"),
            ("/...", "..."),
        ] {
            assert_eq!(joined(key.as_bytes()).unwrap(), path.as_bytes(), "{key}");
        }
        for key in ["", "/..", "/a/../b", "..", "/a\0b"] {
            assert!(joined(key.as_bytes()).is_err(), "{key:?}");
        }
        assert!(joined(&[b"/".as_slice(), &[b'a'; 256]].concat()).is_err());
        assert!(joined(&b"/a".repeat(513)).is_err());
        assert!(joined(&b"/a".repeat(512)).is_ok());
    }

    #[test]
    fn java_s_surrogates_become_the_letter_and_all_else_stays() {
        // U+1F600 in CESU-8 and in UTF-8.
        let name = b"/x\xED\xA0\xBD\xED\xB8\x80y";
        assert_eq!(joined(name).unwrap(), "x\u{1F600}y".as_bytes());
        for other in [
            b"\xED\xA0\xBD".as_slice(),
            b"\xED\xB8\x80\xED\xA0\xBD",
            b"\xFF\xFE",
            b"\xC0\x80",
            "ü€😀".as_bytes(),
        ] {
            assert_eq!(&*utf8(other), other);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_letter_comes_back_from_its_surrogates(text: String) {
            let mut cesu = Vec::new();
            for unit in text.encode_utf16() {
                if (0xD800..0xE000).contains(&unit) {
                    cesu.extend_from_slice(&[0xED, 0x80 | (unit >> 6 & 0x3F) as u8, 0x80 | (unit & 0x3F) as u8]);
                } else if let Some(letter) = char::from_u32(unit.into()) {
                    cesu.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
            proptest::prop_assert_eq!(&*utf8(&cesu), text.as_bytes());
        }
    }
}
