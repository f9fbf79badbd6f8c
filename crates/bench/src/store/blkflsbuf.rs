//! One ioctl of block devices that no library of ours wraps.

#![allow(unsafe_code)]

use std::fs::File;

use rustix::ioctl;

/// Brings a device's dirty pages to it, and forgets them (`BLKFLSBUF`, include/uapi/linux/fs.h).
///
/// # Errors
/// `EACCES` without CAP_SYS_ADMIN, `ENOTTY` for what is no block device.
pub(super) fn flush_buffers(file: &File) -> std::io::Result<()> {
    const BLKFLSBUF: ioctl::Opcode = ioctl::opcode::none(0x12, 97);
    // SAFETY: BLKFLSBUF takes no argument and writes to no memory of ours; on what is no device it fails.
    Ok(unsafe { ioctl::ioctl(file, ioctl::NoArg::<BLKFLSBUF>::new()) }?)
}
