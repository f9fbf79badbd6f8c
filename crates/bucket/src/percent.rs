//! `%41` in places of logs.

/// Undoes it; `None` where that is not possible.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        (bytes, rest) = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: &u8| (*byte as char).to_digit(16);
                bytes.push((digit(high)? * 16 + digit(low)?) as u8);
                (bytes, after)
            }
            (b'%', _) => return None,
            (byte, after) => {
                bytes.push(*byte);
                (bytes, after)
            }
        };
    }
    String::from_utf8(bytes).ok()
}
