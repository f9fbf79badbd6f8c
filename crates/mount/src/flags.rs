//! File flags as ioctls of the kernel carry them: FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR.
//!
//! 1. Who may change flags is decided before they are asked for: the kernel compares the new ones with those that are
//!    answered here, and refuses a change to processes without CAP_LINUX_IMMUTABLE.
//! 2. Flags that a room does not have are refused, not dropped.

use model::{Access, FileFlags, Inode};

use crate::errno::Errno;

const GETFLAGS: u32 = request(READ, b'f', 1, size_of::<libc::c_long>());
const SETFLAGS: u32 = request(WRITE, b'f', 2, size_of::<libc::c_long>());
const FSGETXATTR: u32 = request(READ, b'X', 31, FSXATTR_LEN);
const FSSETXATTR: u32 = request(WRITE, b'X', 32, FSXATTR_LEN);

const WRITE: u32 = 1;
const READ: u32 = 2;
/// Bytes of `struct fsxattr`: five numbers of 32 bits, the first of which is the flags, and 8 spare bytes.
const FSXATTR_LEN: usize = 28;

/// FS_IMMUTABLE_FL, FS_APPEND_FL.
const IOCTL_BITS: [(u32, FileFlags); 2] =
    [(0x10, FileFlags::IMMUTABLE), (0x20, FileFlags::APPEND_ONLY)];
/// FS_XFLAG_IMMUTABLE, FS_XFLAG_APPEND.
const XFLAG_BITS: [(u32, FileFlags); 2] =
    [(0x8, FileFlags::IMMUTABLE), (0x10, FileFlags::APPEND_ONLY)];

/// A request number as `_IOR` and `_IOW` make it.
const fn request(direction: u32, kind: u8, number: u32, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | (kind as u32) << 8 | number
}

/// What an ioctl asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ioctl {
    /// The flags, as FS_IOC_GETFLAGS has them.
    Get,
    /// The flags, as FS_IOC_FSGETXATTR has them.
    GetExtended,
    /// Other flags.
    Set(FileFlags),
}

/// Takes an ioctl apart; `ENOTTY` for any other.
pub(crate) fn parse(command: u32, data: &[u8]) -> Result<Ioctl, Errno> {
    match command {
        GETFLAGS => Ok(Ioctl::Get),
        FSGETXATTR => Ok(Ioctl::GetExtended),
        SETFLAGS => Ok(Ioctl::Set(flags(number(data)?, &IOCTL_BITS)?)),
        FSSETXATTR => {
            let (first, others) = data.split_at_checked(4).ok_or(Errno::EINVAL)?;
            // Extent sizes and projects are nothing that a room has.
            match others.iter().all(|byte| *byte == 0) {
                true => Ok(Ioctl::Set(flags(number(first)?, &XFLAG_BITS)?)),
                false => Err(Errno::EOPNOTSUPP),
            }
        }
        _ => Err(Errno::ENOTTY),
    }
}

fn number(data: &[u8]) -> Result<u32, Errno> {
    let bytes = data.first_chunk().ok_or(Errno::EINVAL)?;
    Ok(u32::from_ne_bytes(*bytes))
}

fn flags(bits: u32, known: &[(u32, FileFlags)]) -> Result<FileFlags, Errno> {
    let all = known.iter().fold(0, |all, (bit, _)| all | bit);
    if bits & !all != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let set = known.iter().filter(|(bit, _)| bits & bit != 0);
    Ok(set.fold(FileFlags::NONE, |flags, (_, flag)| flags.and(*flag)))
}

fn bits(flags: FileFlags, known: &[(u32, FileFlags)]) -> u32 {
    let set = known.iter().filter(|(_, flag)| flags.and(*flag) == flags);
    set.fold(0, |bits, (bit, _)| bits | bit)
}

/// The answer to [`Ioctl::Get`].
pub(crate) fn plain(flags: FileFlags) -> [u8; 4] {
    bits(flags, &IOCTL_BITS).to_ne_bytes()
}

/// The answer to [`Ioctl::GetExtended`].
pub(crate) fn extended(flags: FileFlags) -> [u8; FSXATTR_LEN] {
    let mut answer = [0; FSXATTR_LEN];
    answer[..4].copy_from_slice(&bits(flags, &XFLAG_BITS).to_ne_bytes());
    answer
}

/// Whether a file with these flags may be opened so.
pub(crate) fn check_open(inode: &Inode, access: Access, append: bool) -> Result<(), Errno> {
    let refused = access.write && (inode.flags.immutable() || inode.flags.append_only() && !append);
    match refused {
        true => Err(Errno(libc::EPERM)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_numbers_are_those_of_linux() {
        // x86_64 and aarch64; a long has 8 bytes there.
        if size_of::<libc::c_long>() == 8 {
            assert_eq!((GETFLAGS, SETFLAGS), (0x8008_6601, 0x4008_6602));
        }
        assert_eq!((FSGETXATTR, FSSETXATTR), (0x801c_581f, 0x401c_5820));
    }

    #[test]
    fn flags_are_read_back_as_they_were_set_and_unknown_ones_are_refused() {
        for flags in (0..4).filter_map(FileFlags::from_bits) {
            assert_eq!(parse(SETFLAGS, &plain(flags)), Ok(Ioctl::Set(flags)));
            assert_eq!(parse(FSSETXATTR, &extended(flags)), Ok(Ioctl::Set(flags)));
        }
        let nodump = 0x40u32.to_ne_bytes();
        assert_eq!(parse(SETFLAGS, &nodump), Err(Errno::EOPNOTSUPP));
        let mut project = extended(FileFlags::NONE);
        project[12] = 1;
        assert_eq!(parse(FSSETXATTR, &project), Err(Errno::EOPNOTSUPP));
        assert_eq!(parse(SETFLAGS, &[0; 3]), Err(Errno::EINVAL));
        assert_eq!(parse(FSSETXATTR, &[]), Err(Errno::EINVAL));
        assert_eq!(parse(0x5401, &[]), Err(Errno::ENOTTY));
    }
}
