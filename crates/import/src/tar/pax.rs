//! Records of an extended header: "LENGTH KEY=VALUE\n", the length counting all of it (POSIX.1-2001, pax, "Extended Header").

use super::Moment;

/// Keys of access lists as text: of access, and default.
pub(super) const ACLS: [&str; 2] = ["SCHILY.acl.access", "SCHILY.acl.default"];

/// A key and its value.
pub(super) type Record = (Vec<u8>, Vec<u8>);

/// All records, or why they are none.
pub(super) fn records(mut data: &[u8]) -> Result<Vec<Record>, &'static str> {
    const BAD: &str = "an extended header is not what it must be";
    let mut found = Vec::new();
    while !data.is_empty() && data[0] != 0 {
        let space = data.iter().take(20).position(|b| *b == b' ').ok_or(BAD)?;
        let len = number(&data[..space])
            .and_then(|len| usize::try_from(len).ok())
            .ok_or(BAD)?;
        let record = data.get(space + 1..len).ok_or(BAD)?;
        let record = record.strip_suffix(b"\n").ok_or(BAD)?;
        let equals = record.iter().position(|b| *b == b'=').ok_or(BAD)?;
        found.push((record[..equals].to_vec(), record[equals + 1..].to_vec()));
        data = &data[len..];
    }
    Ok(found)
}

/// Adds a record.
pub(super) fn add(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest;
    // The length counts its own digits.
    while rest + digits(len) != len {
        len = rest + digits(len);
    }
    out.extend_from_slice(len.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn digits(number: usize) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Decimal digits and nothing else.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Seconds with a fraction, such as "-1.25"; digits beyond nanoseconds are ignored.
pub(super) fn moment(text: &[u8]) -> Option<Moment> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let mut parts = text.splitn(2, |b| *b == b'.');
    let secs = i64::try_from(number(parts.next()?)?).ok()?;
    let fraction = parts.next().unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut nanos = 0;
    for at in 0..9 {
        nanos = nanos * 10 + u32::from(fraction.get(at).map_or(0, |b| b - b'0'));
    }
    Some(match (negative, nanos) {
        (false, nanos) => (secs, nanos),
        (true, 0) => (-secs, 0),
        (true, nanos) => (-secs - 1, 1_000_000_000 - nanos),
    })
}

/// The same, written.
pub(super) fn moment_text((secs, nanos): Moment) -> String {
    let (sign, secs, nanos) = if secs < 0 && nanos > 0 {
        ("-", (secs + 1).unsigned_abs(), 1_000_000_000 - nanos)
    } else if secs < 0 {
        ("-", secs.unsigned_abs(), 0)
    } else {
        ("", secs.unsigned_abs(), nanos)
    };
    let text = format!("{sign}{secs}.{nanos:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A name of an attribute within a key, as GNU tar writes it: `=` would end the key.
pub(super) fn escape(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b'%' => out.extend_from_slice(b"%25"),
            b'=' => out.extend_from_slice(b"%3D"),
            other => out.push(*other),
        }
    }
    out
}

/// And back.
pub(super) fn unescape(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((byte, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"%25") {
            out.push(b'%');
            rest = after;
        } else if let Some(after) = rest.strip_prefix(b"%3D") {
            out.push(b'=');
            rest = after;
        } else {
            out.push(*byte);
            rest = after;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn records_come_back(list: Vec<(String, Vec<u8>)>) {
            let list: Vec<_> = list.into_iter().map(|(key, value)| (key.replace('=', "").into_bytes(), value)).collect();
            let mut out = Vec::new();
            for (key, value) in &list {
                add(&mut out, key, value);
            }
            proptest::prop_assert_eq!(records(&out).unwrap(), list);
        }

        #[test]
        fn no_bytes_make_reading_records_fail_hard(data: Vec<u8>) {
            let _ = records(&data);
            let _ = moment(&data);
        }

        #[test]
        fn moments_and_names_come_back(secs in -1_000_000_000_000_i64..1_000_000_000_000, nanos in 0_u32..1_000_000_000, name: Vec<u8>) {
            proptest::prop_assert_eq!(moment(moment_text((secs, nanos)).as_bytes()), Some((secs, nanos)));
            proptest::prop_assert_eq!(unescape(&escape(&name)), name);
        }
    }

    #[test]
    fn the_length_of_a_record_counts_itself() {
        let mut out = Vec::new();
        add(&mut out, b"path", &[b'x'; 91]);
        assert!(out.starts_with(b"101 path="), "{}", out.len());
        // With two digits it would have a hundred bytes, which takes three.
        assert_eq!(out.len(), 101);
        assert_eq!(moment(b"-0.5"), Some((-1, 500_000_000)));
        for bad in [
            b"5 a=b\n".as_slice(),
            b"99 a=b\n",
            b"6 a:b\n",
            b"x",
            b"18446744073709551616 a=b\n",
        ] {
            assert!(records(bad).is_err(), "{bad:?}");
        }
    }
}
