//! The processes that use a mount: what keeps it from being unmounted, as `/proc` shows it (proc(5)).
//!
//! It reads names of links and never touches the mount, which may not answer. Processes of other users are hidden from all but root.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::output;

/// A process, and one thing that it uses in a mount.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Use {
    pub(crate) pid: u32,
    /// The program's name, at most 15 bytes.
    pub(crate) program: String,
    pub(crate) how: How,
    pub(crate) path: PathBuf,
}

/// How a process uses a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum How {
    Open,
    WorkingDirectory,
    Root,
    Program,
    Mapped,
}

impl How {
    /// Words for a list.
    pub(crate) fn words(self) -> &'static str {
        match self {
            How::Open => "open",
            How::WorkingDirectory => "working directory",
            How::Root => "root directory",
            How::Program => "running",
            How::Mapped => "mapped",
        }
    }
}

/// What processes use in the mount at this path, whose files are on this device, as far as this user may see them; this process is not listed.
pub(crate) fn of(mountpoint: &Path, device: u64) -> Vec<Use> {
    let own = std::process::id();
    let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != own)
        .flat_map(|pid| of_process(pid, mountpoint, device))
        .collect()
}

fn of_process(pid: u32, mountpoint: &Path, device: u64) -> BTreeSet<Use> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let mut found: BTreeSet<(How, PathBuf)> = BTreeSet::new();
    let mut look = |how, link: PathBuf| {
        if let Ok(path) = std::fs::read_link(link)
            && path.starts_with(mountpoint)
        {
            found.insert((how, path));
        }
    };
    look(How::WorkingDirectory, process.join("cwd"));
    look(How::Root, process.join("root"));
    look(How::Program, process.join("exe"));
    let descriptors = std::fs::read_dir(process.join("fd"));
    for descriptor in descriptors.into_iter().flatten().flatten() {
        look(How::Open, descriptor.path());
    }
    let maps = std::fs::read(process.join("maps")).unwrap_or_default();
    for path in mapped(&maps, device) {
        found.insert((How::Mapped, path));
    }
    if found.is_empty() {
        return BTreeSet::new();
    }
    let name = std::fs::read(process.join("comm")).unwrap_or_default();
    let program = String::from_utf8_lossy(&name).trim_end().to_owned();
    let uses = found.into_iter().map(|(how, path)| Use {
        pid,
        program: program.clone(),
        how,
        path,
    });
    uses.collect()
}

/// Files of a device that a process has mapped: `START-END MODE OFFSET MAJOR:MINOR INODE PATH`, the numbers in hexadecimal.
fn mapped(maps: &[u8], device: u64) -> Vec<PathBuf> {
    let of_device = |line: &[u8]| {
        let mut fields = line.splitn(6, |b| *b == b' ');
        let numbers = std::str::from_utf8(fields.nth(3)?).ok()?;
        let (major, minor) = numbers.split_once(':')?;
        let number = |text| u32::from_str_radix(text, 16).ok();
        if rustix::fs::makedev(number(major)?, number(minor)?) != device {
            return None;
        }
        let path = fields.nth(1)?.trim_ascii_start();
        Some(PathBuf::from(OsStr::from_bytes(path)))
    };
    maps.split(|b| *b == b'\n').filter_map(of_device).collect()
}

/// The uses as lines of a message, no more than `max`.
pub(crate) fn lines(uses: &[Use], max: usize) -> String {
    let mut text = String::new();
    for one in uses.iter().take(max) {
        text.push_str(&format!(
            "\n  {} (process {}): {} {}",
            output::shown(one.program.as_ref()),
            one.pid,
            one.how.words(),
            output::shown_path(&one.path)
        ));
    }
    if let Some(more) = uses.len().checked_sub(max).filter(|more| *more > 0) {
        text.push_str(&format!("\n  and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_files_are_found_by_their_device() {
        let maps = b"7f00-7f10 r--p 00000000 00:32 12                 /mnt/a b\n\
            7f10-7f20 r--p 00000000 08:01 13                 /lib/x.so\n\
            7f20-7f30 rw-p 00000000 00:00 0\n7f30\n";
        let device = rustix::fs::makedev(0, 0x32);
        assert_eq!(mapped(maps, device), [PathBuf::from("/mnt/a b")]);
    }

    #[test]
    fn a_process_is_listed_with_what_it_uses() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .current_dir(&at)
            .spawn()
            .unwrap();
        let found = of(&at, u64::MAX);
        let _ = child.kill();
        let _ = child.wait();
        assert!(
            found.iter().any(|one| one.pid == child.id()
                && one.how == How::WorkingDirectory
                && one.path == at),
            "{found:?}"
        );
    }
}
