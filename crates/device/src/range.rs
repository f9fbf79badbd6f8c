//! Whether a range is within a device, and the errors when it is not.

use std::io;

/// `UnexpectedEof` unless `offset..offset + len` is within `0..of`.
pub fn to_read(of: u64, offset: u64, len: u64) -> io::Result<()> {
    within(of, offset, len).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// `StorageFull` unless `offset..offset + len` is within `0..of`.
pub fn to_write(of: u64, offset: u64, len: u64) -> io::Result<()> {
    within(of, offset, len).ok_or_else(|| io::ErrorKind::StorageFull.into())
}

/// What a read-only device answers.
pub fn read_only() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the device is read-only")
}

/// What a device answers that would have to write every zero.
pub(crate) fn not_fast() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "zeros are no faster than data here",
    )
}

/// The whole units of `unit` bytes in a range within a device: offset and length.
pub(crate) fn whole_units(offset: u64, len: u64, unit: u64) -> (u64, u64) {
    let end = (offset + len) / unit * unit;
    match offset.checked_next_multiple_of(unit) {
        Some(start) if start < end => (start, end - start),
        _ => (offset, 0),
    }
}

fn within(of: u64, offset: u64, len: u64) -> Option<()> {
    (offset.checked_add(len)? <= of).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_whose_end_overflows_is_outside() {
        assert!(to_read(u64::MAX, u64::MAX, 1).is_err());
        assert!(to_write(4096, 1, u64::MAX).is_err());
        assert!(to_read(4096, 4096, 0).is_ok());
    }

    #[test]
    fn only_whole_units_are_left_of_a_range() {
        assert_eq!(whole_units(1, 8192, 4096), (4096, 4096));
        assert_eq!(whole_units(0, 4096, 4096), (0, 4096));
        assert_eq!(whole_units(1, 4094, 4096).1, 0);
        assert_eq!(whole_units(u64::MAX - 10, 5, 4096).1, 0);
    }
}
