//! Just enough of Apple's property lists: the value that follows a key. Values that only refer to others are none.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Bytes of the longest value of interest, as it is written.
const LONGEST: usize = 4096;

/// The text behind each `<key>name</key>`.
fn behind<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let key = format!("<key>{name}</key>");
    let mut rest = text;
    std::iter::from_fn(move || {
        let at = rest.find(&key)?;
        rest = &rest[at + key.len()..];
        Some(rest)
    })
}

/// The content of the element that the text begins with, if it is of this kind: `<string ID="3">content</string>`.
fn element<'a>(text: &'a str, kind: &str) -> Option<&'a str> {
    let text = text.trim_start().strip_prefix('<')?.strip_prefix(kind)?;
    if !text.starts_with([' ', '>']) {
        return None;
    }
    let (_, inner) = text.split_once('>')?;
    let (content, _) = inner.split_once('<')?;
    (content.len() <= LONGEST).then_some(content)
}

/// The bytes of each value of this name.
pub(super) fn all(text: &str, name: &str) -> impl Iterator<Item = Vec<u8>> {
    behind(text, name)
        .filter_map(|rest| {
            let written: String = element(rest, "data")?
                .chars()
                .filter(|c| !c.is_ascii_whitespace())
                .collect();
            STANDARD.decode(written).ok()
        })
        .filter(|value| !value.is_empty())
        .collect::<Vec<_>>()
        .into_iter()
}

/// The first text of this name.
pub(super) fn text(text: &str, name: &str) -> Option<String> {
    behind(text, name)
        .find_map(|rest| element(rest, "string"))
        .map(str::to_owned)
}

/// The text that these begin with.
pub(super) fn first_text(text: &str) -> Option<&str> {
    element(text, "string")
}

/// The first number of this name.
pub(super) fn number(text: &str, name: &str) -> Option<u64> {
    let digits = behind(text, name)
        .find_map(|rest| element(rest, "integer"))?
        .trim();
    match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_behind_their_keys() {
        let list = "<dict><key>a</key><string ID=\"1\">x</string><key>n</key> <integer size=\"32\">0x10</integer>\
            <key>d</key><data ID=\"2\">AQ\nID</data><key>d</key><data/><key>d</key><reference IDREF=\"2\"/>\
            <key>t</key><integer>12</integer></dict>";
        assert_eq!(text(list, "a").as_deref(), Some("x"));
        assert_eq!(number(list, "n"), Some(16));
        assert_eq!(number(list, "t"), Some(12));
        assert_eq!(all(list, "d").collect::<Vec<_>>(), [vec![1, 2, 3]]);
        assert_eq!(text(list, "n"), None);
        assert_eq!(number(list, "none"), None);
    }

    #[test]
    fn what_is_cut_short_is_no_value() {
        for cut in [
            "<key>a</key>",
            "<key>a</key><string",
            "<key>a</key><string>x",
            "<key>a</key><stringy>x<",
        ] {
            assert_eq!(text(cut, "a"), None, "{cut}");
        }
    }
}
