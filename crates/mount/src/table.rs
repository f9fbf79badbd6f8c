//! The kernel's list of mounts, as a process sees it (proc_pid_mountinfo(5)).
//!
//! Names in it may be any bytes but for their escapes, so the list is read as bytes. Nothing here touches a mount: one whose process
//! has died, or is this process, may not answer.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its number, as statx(2) returns it.
    pub id: u64,
    /// Device of its files, as stat(2) returns it.
    pub device: u64,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// As in "ext4", "fuse.strongroom".
    pub kind: String,
    /// What is mounted, as in "/dev/vda1". Of FUSE whatever its program says; of a room its directory.
    pub source: PathBuf,
    /// Options of the mount and of the file system, as in "rw,relatime,discard". Escapes are left in.
    pub options: String,
}

impl Mount {
    /// Whether it has an option without a value.
    pub fn has_option(&self, name: &str) -> bool {
        self.options.split(',').any(|option| option == name)
    }

    /// The value of an option, as text.
    pub fn option(&self, name: &str) -> Option<&str> {
        let mut options = self.options.split(',');
        options.find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }

    /// The value of an option that is a path.
    pub fn path_option(&self, name: &str) -> Option<PathBuf> {
        Some(unescape(self.option(name)?.as_bytes()))
    }
}

/// Every mount that this process sees, in the kernel's order. Empty where there is no `/proc`.
pub fn all() -> Vec<Mount> {
    std::fs::read("/proc/self/mountinfo").map_or_else(|_| Vec::new(), |table| parse(&table))
}

/// Every mount that another process sees.
///
/// # Errors
/// That its list cannot be read: it has ended, or is another user's.
pub fn of_process(pid: u32) -> io::Result<Vec<Mount>> {
    std::fs::read(format!("/proc/{pid}/mountinfo")).map(|table| parse(&table))
}

/// The mount at exactly this path, which is absolute and without symbolic links; the one on top where there are several.
pub fn at(mountpoint: &Path) -> Option<Mount> {
    // A later line covers an earlier one.
    let mut mounts = all().into_iter().rev();
    mounts.find(|mount| mount.mountpoint == mountpoint)
}

/// The mount that a path is in, by its number: no path is compared, so no name can be mistaken. `None` where the kernel does not
/// report the number (before Linux 5.8).
pub fn containing(path: &Path) -> Option<Mount> {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    let reported = StatxFlags::from_bits_retain(found.stx_mask);
    let known = reported.contains(StatxFlags::MNT_ID);
    known.then(|| all().into_iter().find(|mount| mount.id == found.stx_mnt_id))?
}

/// The mounts of a list.
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
    let (own, [kind, source, of_file_system]) = (
        fields[..dash].first_chunk::<6>()?,
        fields[dash + 1..].first_chunk()?,
    );
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let [id, _, device, _, mountpoint, of_mount] = *own;
    let (major, minor) = str::from_utf8(device).ok()?.split_once(':')?;
    let mut options = text(of_mount);
    for option in text(of_file_system).split(',') {
        if !options.split(',').any(|known| known == option) {
            options.push(',');
            options.push_str(option);
        }
    }
    Some(Mount {
        id: str::from_utf8(id).ok()?.parse().ok()?,
        device: rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?),
        mountpoint: unescape(mountpoint),
        kind: text(kind),
        source: unescape(source),
        options,
    })
}

/// Space, tab, newline and backslash are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code =
            digits.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_read_and_odd_names_are_read_back() {
        let table = b"22 1 254:1 / / rw,relatime shared:1 master:2 - ext4 /dev/vda1 rw,discard\n\
            90 22 0:50 / /mnt/a\\040b\\134c\xff rw,nosuid - fuse.strongroom /home/x/my\\040room rw,user_id=7,default_permissions\n\
            91 22 0:51 / /a rw - overlay over\\040lay rw,lowerdir=/l,upperdir=/up\\040per\n";
        let [root, room, overlay] = &parse(table)[..] else {
            panic!("three mounts");
        };
        assert_eq!((root.id, root.kind.as_str()), (22, "ext4"));
        assert_eq!(root.options, "rw,relatime,discard");
        assert_eq!(
            room.mountpoint,
            PathBuf::from(OsString::from_vec(b"/mnt/a b\\c\xff".to_vec()))
        );
        assert_eq!(room.source, Path::new("/home/x/my room"));
        assert_eq!(room.device, rustix::fs::makedev(0, 50));
        assert!(room.has_option("default_permissions") && !room.has_option("user_id"));
        assert_eq!(room.option("user_id"), Some("7"));
        assert_eq!(overlay.source, Path::new("over lay"));
        assert_eq!(overlay.path_option("upperdir"), Some("/up per".into()));
    }

    #[test]
    fn a_line_cut_short_is_nothing() {
        for line in [
            "",
            "-",
            "- fuse.strongroom",
            "1 2 3 4 5 6 -",
            "1 2 3 4 5 - a b c",
        ] {
            assert_eq!(parse(line.as_bytes()), []);
        }
        assert_eq!(unescape(br"a\04\9"), Path::new(r"a\04\9"));
    }

    #[test]
    fn proc_is_found_to_be_proc() {
        let proc = at(Path::new("/proc")).expect("mounted");
        assert_eq!(proc.kind, "proc");
        assert_eq!(containing(Path::new("/proc/version")), Some(proc));
        assert_eq!(at(Path::new("/proc/self")), None);
    }
}
