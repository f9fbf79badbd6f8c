//! The mount of a path: kind, options and source of its file system (`proc_pid_mountinfo(5)`).
//!
//! It is found by the mount's number, which `statx(2)` returns: no path is compared, so no name can be mistaken.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// As in "ext4", "fuse.gocryptfs".
    pub kind: String,
    /// Options of the mount and of the file system, as in "rw,relatime,discard".
    pub options: String,
    /// As in "/dev/vda1"; of FUSE whatever it says of itself.
    pub source: PathBuf,
}

/// The mount of `path`; `None` when the kernel does not report it (before Linux 5.8) or `/proc` is not there.
pub fn of(path: &Path) -> Option<Mount> {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    let reported = StatxFlags::from_bits_retain(found.stx_mask);
    if !reported.contains(StatxFlags::MNT_ID) {
        return None;
    }
    parse(
        &std::fs::read_to_string("/proc/self/mountinfo").ok()?,
        found.stx_mnt_id,
    )
}

/// The line of `mountinfo` whose mount has this number.
fn parse(mountinfo: &str, number: u64) -> Option<Mount> {
    let line = mountinfo
        .lines()
        .find(|line| line.split(' ').next().and_then(|id| id.parse().ok()) == Some(number))?;
    // 36 35 98:0 /root /mount/point options [optional fields] - kind source super-options
    let (left, right) = line.split_once(" - ")?;
    let of_mount = left.split(' ').nth(5)?;
    let mut right = right.split(' ');
    let (kind, source, of_file_system) = (right.next()?, right.next()?, right.next()?);
    let mut options: Vec<&str> = of_mount.split(',').collect();
    for option in of_file_system.split(',') {
        if !options.contains(&option) {
            options.push(option);
        }
    }
    Some(Mount {
        kind: kind.to_owned(),
        options: options.join(","),
        source: unescape(source),
    })
}

impl Mount {
    /// Where an overlay writes.
    pub(crate) fn upper_directory(&self) -> Option<PathBuf> {
        let upper = (self.kind == "overlay").then(|| {
            self.options
                .split(',')
                .find_map(|option| option.strip_prefix("upperdir="))
        });
        upper.flatten().map(unescape)
    }
}

/// Space, tab, newline and backslash are `\040`, `\011`, `\012` and `\134` there.
fn unescape(field: &str) -> PathBuf {
    let bytes = field.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        let code = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        out.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 4 } else { 1 };
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_is_found_by_number_and_its_options_joined() {
        let lines = "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,discard\n\
                     23 22 0:5 / /a rw - overlay over\\040lay rw,lowerdir=/l,upperdir=/up\\040per\n";
        let root = parse(lines, 22).expect("found");
        assert_eq!(
            (root.kind.as_str(), root.options.as_str()),
            ("ext4", "rw,relatime,discard")
        );
        let overlay = parse(lines, 23).expect("found");
        assert_eq!(overlay.source, Path::new("over lay"));
        assert_eq!(overlay.upper_directory(), Some(PathBuf::from("/up per")));
        assert_eq!(parse(lines, 2), None);
    }

    #[test]
    fn proc_is_found_to_be_proc() {
        assert_eq!(of(Path::new("/proc")).expect("found").kind, "proc");
    }
}
