//! The kernel's list of mounts, as this process sees it (`/proc/self/mountinfo`, proc(5)).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A mounted room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) mountpoint: PathBuf,
    /// What was mounted: the room's directory.
    pub(crate) source: PathBuf,
    /// Device of its files, as stat(2) has it.
    pub(crate) device: u64,
    /// The user who mounted it.
    pub(crate) user: Option<u32>,
}

impl Mount {
    /// Whether it is a mount of the room in `dir` by this user.
    pub(crate) fn is_of(&self, dir: &Path) -> bool {
        let id = |path: &Path| {
            let meta = std::fs::metadata(path).ok()?;
            Some((meta.dev(), meta.ino()))
        };
        self.user == Some(rustix::process::getuid().as_raw())
            && id(dir).is_some_and(|room| id(&self.source) == Some(room))
    }
}

/// The room mounted at exactly this (canonical) path, if one is.
pub(crate) fn strongroom_at(mountpoint: &Path) -> Option<Mount> {
    // A later line covers an earlier one.
    rooms()
        .into_iter()
        .rev()
        .find(|mount| mount.mountpoint == mountpoint)
}

/// Every mounted room.
pub(crate) fn rooms() -> Vec<Mount> {
    std::fs::read("/proc/self/mountinfo")
        .map(|table| parse(&table))
        .unwrap_or_default()
}

/// Everything that is mounted right below a (canonical) directory, without touching it: a mount may answer no more.
pub(crate) fn mountpoints_in(dir: &Path) -> Vec<PathBuf> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    table
        .split(|b| *b == b'\n')
        .filter_map(|line| line.split(|b| *b == b' ').nth(4))
        .map(unescape)
        .filter(|mountpoint| mountpoint.parent() == Some(dir))
        .collect()
}

/// Every mounted room that a process sees; where its table cannot be read, those that this process sees.
pub(crate) fn rooms_of(pid: u32) -> Vec<Mount> {
    match std::fs::read(format!("/proc/{pid}/mountinfo")) {
        Ok(table) => parse(&table),
        Err(_) => rooms(),
    }
}

/// The process in the background that serves the mount at exactly this (canonical) path, by its command line.
pub(crate) fn process_of(mountpoint: &Path) -> Option<u32> {
    let serves = |line: &[u8]| {
        let mut words = line.split(|b| *b == 0).skip(1);
        words.next() == Some(b"serve-mount")
            && words.nth(1).map(OsStr::from_bytes) == Some(mountpoint.as_os_str())
    };
    std::fs::read_dir("/proc")
        .ok()?
        .flatten()
        .find_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            (line.starts_with(b"strongroom\0") && serves(&line)).then_some(pid)
        })
}

fn parse(table: &[u8]) -> Vec<Mount> {
    table
        .split(|b| *b == b'\n')
        .filter_map(parse_line)
        .collect()
}

/// One line: `ID PARENT MAJ:MIN ROOT MOUNTPOINT OPTIONS [TAG...] - TYPE SOURCE SUPEROPTIONS`.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let (kind, source) = (fields.get(dash + 1)?, fields.get(dash + 2)?);
    let (device, mountpoint) = (fields.get(2)?, fields.get(4)?);
    let options = fields.get(dash + 3).copied().unwrap_or_default();
    let user = options
        .split(|b| *b == b',')
        .find_map(|option| option.strip_prefix(b"user_id="));
    (*kind == b"fuse.strongroom").then(|| Mount {
        mountpoint: unescape(mountpoint),
        source: unescape(source),
        device: parse_device(device).unwrap_or_default(),
        user: user.and_then(number),
    })
}

fn parse_device(field: &[u8]) -> Option<u64> {
    let mut numbers = field.split(|b| *b == b':').map(number);
    Some(rustix::fs::makedev(numbers.next()??, numbers.next()??))
}

fn number(digits: &[u8]) -> Option<u32> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Space, tab, newline and backslash are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        if *first == b'\\'
            && let Some(digits) = after.get(..3)
            && let Ok(byte) = u8::from_str_radix(&String::from_utf8_lossy(digits), 8)
        {
            bytes.push(byte);
            rest = &after[3..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// An absolute path with its directory resolved but not its last name, which may be a mount that answers no more.
pub(crate) fn without_touching(path: &Path) -> std::io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    // A slash at the end would have the last name touched.
    let bytes = path.as_os_str().as_bytes();
    let end = bytes
        .iter()
        .rposition(|b| *b != b'/')
        .map_or(1, |at| at + 1);
    let path = Path::new(std::ffi::OsStr::from_bytes(&bytes[..end]));
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => path.canonicalize(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rooms_are_found_and_odd_names_are_read_back() {
        let table = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            90 22 0:50 / /mnt/a\\040b\\134c rw,nosuid,nodev - fuse.strongroom /home/x/my\\040room rw,user_id=0\n\
            91 22 0:51 / /mnt/other rw - fuse.sshfs host: rw\n";
        let expected = Mount {
            mountpoint: "/mnt/a b\\c".into(),
            source: "/home/x/my room".into(),
            device: rustix::fs::makedev(0, 50),
            user: Some(0),
        };
        assert_eq!(parse(table), [expected]);
    }

    #[test]
    fn a_line_cut_short_is_nothing() {
        for line in [&b""[..], b"-", b"- fuse.strongroom", b"1 2 3 4 5 6 -"] {
            assert_eq!(parse_line(line), None);
        }
    }
}
