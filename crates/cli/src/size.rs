//! Sizes as people write them on the command line.

/// Parses a size: a number of bytes, or with K, M, G, T (powers of 1024; "KiB" and "k" mean the same).
pub fn bytes(text: &str) -> std::result::Result<u64, String> {
    let wrong = || format!("'{text}' is not a size: write it as 4096, 64KiB, 256MiB or 2GiB");
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number
        .checked_mul(1 << shift)
        .filter(|size| *size > 0)
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("64KiB"), Ok(65536));
        assert_eq!(bytes("1g"), Ok(1 << 30));
        for wrong in ["", "0", "-1", "1.5M", "4 KB", "16777216T", "x"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
