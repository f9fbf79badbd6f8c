//! What a device seems to hold, by the marks that formats leave: so that nobody formats over something by mistake.
//!
//! A mark proves nothing, and no mark does not prove that there is nothing.

use std::io;

use device::Device;

use crate::common::{VolumeError, io_error};
use crate::open::recognise;

/// Name, first byte, mark.
const MARKS: &[(&str, u64, &[u8])] = &[
    (
        "an ext2, ext3 or ext4 file system",
        1024 + 56,
        &[0x53, 0xef],
    ),
    ("an F2FS file system", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    ("an XFS file system", 0, b"XFSB"),
    ("a Btrfs file system", 0x1_0040, b"_BHRfS_M"),
    ("an NTFS file system", 3, b"NTFS    "),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("a BitLocker volume", 3, b"-FVE-FS-"),
    ("a FAT file system", 0x36, b"FAT"),
    ("a FAT file system", 0x52, b"FAT32"),
    ("an APFS container", 32, b"NXSB"),
    ("an HFS+ file system", 1024, b"H+"),
    ("an HFS+ file system", 1024, b"HX"),
    ("a SquashFS file system", 0, b"hsqs"),
    ("an ISO 9660 file system", 0x8001, b"CD001"),
    ("a swap area", 4086, b"SWAPSPACE2"),
    ("an LVM physical volume", 512, b"LABELONE"),
    ("a RAID member", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("a GUID partition table", 512, b"EFI PART"),
    ("a qcow2 image", 0, b"QFI\xfb"),
    ("a partition table", 510, &[0x55, 0xaa]),
];

/// Bytes at the beginning in which anything but zeros counts as something.
const LOOKED_AT: u64 = 64 << 10;

/// What the device seems to hold, in words; `None` where its beginning is zeros and no mark is found.
pub fn holds(device: &dyn Device) -> Result<Option<String>, VolumeError> {
    // A volume that is damaged, or of a version nobody knows, is one nevertheless.
    match recognise(device) {
        Ok(Some(format)) => return Ok(Some(format!("an encrypted volume: {format}"))),
        Ok(None) => {}
        Err(error @ VolumeError::Io { .. }) => return Err(error),
        Err(error) => return Ok(Some(format!("an encrypted volume ({error})"))),
    }
    for (name, at, mark) in MARKS {
        let mut found = vec![0; mark.len()];
        match device.read_at(&mut found, *at) {
            Ok(()) if found == *mark => return Ok(Some((*name).to_owned())),
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(e) => return Err(io_error("looking for what is there")(e)),
        }
    }
    let mut start = vec![0; device.len().min(LOOKED_AT) as usize];
    device
        .read_at(&mut start, 0)
        .map_err(io_error("looking for what is there"))?;
    Ok(start
        .iter()
        .any(|&b| b != 0)
        .then(|| "data of an unknown kind".to_owned()))
}

#[cfg(test)]
mod tests {
    use device::MemoryDevice;

    use super::*;

    #[test]
    fn each_mark_is_named_and_zeros_are_nothing() {
        let empty = MemoryDevice::new(1 << 20);
        assert_eq!(holds(&empty).unwrap(), None);
        for (name, at, mark) in MARKS {
            let device = MemoryDevice::new(1 << 20);
            device.write_at(mark, *at).unwrap();
            assert_eq!(holds(&device).unwrap().as_deref(), Some(*name));
        }
        for (bytes, word) in [
            (&b"LUKS\xba\xbe\x00\x01"[..], "LUKS1"),
            (b"LUKS\xba\xbe\x00\x02", "LUKS2"),
            (b"x", "unknown"),
        ] {
            let device = MemoryDevice::new(4096);
            device.write_at(bytes, 0).unwrap();
            assert!(holds(&device).unwrap().unwrap().contains(word));
        }
        assert_eq!(holds(&MemoryDevice::new(0)).unwrap(), None);
    }

    #[test]
    fn a_second_luks2_header_and_an_android_footer_count() {
        let device = MemoryDevice::new(1 << 20);
        device.write_at(b"SKUL\xba\xbe", 0x8000).unwrap();
        assert!(holds(&device).unwrap().unwrap().contains("LUKS2"));
        let device = MemoryDevice::new(1 << 20);
        device
            .write_at(&0xd0b5_b1c4_u32.to_le_bytes(), (1 << 20) - 16384)
            .unwrap();
        assert!(
            holds(&device)
                .unwrap()
                .unwrap()
                .contains("encrypted volume")
        );
    }
}
