//! The process that has a room mounted, not counting a process that has unmounted it and is still closing it.
//!
//! umount(8) returns when the mount is gone. The process that served it then still commits, and holds the room's lock.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::control::client::Client;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::mounts::{self, Mount};

/// How long a process that still answers may take to notice that its mount is gone. A mount that umount(8) removed lazily
/// looks the same for as long as files are open in it.
const NOTICING: Duration = Duration::from_secs(10);
/// How long the closing of a room is waited for.
const CLOSING: Duration = Duration::from_secs(300);
/// After how long the wait is reported.
const QUIET: Duration = Duration::from_secs(2);
/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(20);

/// The process that has the room in `dir` mounted. Waits for one that has unmounted it to close it.
pub(crate) fn mounted(dir: &Path) -> Result<Option<Client>> {
    let begun = Instant::now();
    let mut reported = false;
    loop {
        let pid = match Client::find(dir)? {
            Some(client)
                if is_elsewhere(&client, dir)?
                    || has_mounted(client.pid, |mount| mount.mountpoint == client.mountpoint) =>
            {
                return Ok(Some(client));
            }
            Some(client) if client.detached || begun.elapsed() > NOTICING => {
                return Ok(Some(client));
            }
            Some(client) => client.pid,
            None => match closing(dir) {
                Some(pid) if begun.elapsed() <= CLOSING => pid,
                _ => return Ok(None),
            },
        };
        if !reported && begun.elapsed() > QUIET {
            reported = true;
            tracing::warn!(
                "{}: waiting for process {pid}, which has unmounted the room and is closing it",
                dir.display()
            );
        }
        std::thread::sleep(INTERVAL);
    }
}

/// Refuses a process that names a place where this room is not mounted, or not any more.
pub(crate) fn no_mount(client: &Client) -> Error {
    let (pid, at) = (client.pid, client.mountpoint.display());
    let words = match serves(pid)
        && !has_mounted(pid, |mount| mount.mountpoint == client.mountpoint)
    {
        true => format!(
            "process {pid} still serves it: it was unmounted from {at} while files were open in it, or it was somebody's working \
             directory; the process ends when they are closed"
        ),
        false => format!(
            "process {pid} says that it has the room mounted at {at}, and this process sees no mount of it there"
        ),
    };
    Error::said(Exit::InUse, format!("{}: {words}", client.room.display()))
}

/// Whether the process sees such a mount.
fn has_mounted(pid: u32, such: impl Fn(&Mount) -> bool) -> bool {
    mounts::rooms_of(pid).iter().any(such)
}

/// The process that holds the room's lock, if it is one that serves mounts and has not, or no longer, mounted this one.
fn closing(dir: &Path) -> Option<u32> {
    let pid = holder(dir)?;
    let room = dir.canonicalize().ok()?;
    (serves(pid) && !has_mounted(pid, |mount| mount.source == room)).then_some(pid)
}

/// Whether a process that answered is one of another name space: nothing more is known of it than what it answered. One that is not seen
/// because it ended behind its answer gives no other.
fn is_elsewhere(client: &Client, dir: &Path) -> Result<bool> {
    Ok(!serves(client.pid) && Client::find(dir)?.is_some_and(|again| again.pid == client.pid))
}

/// Whether the process is this program, serving a mount.
fn serves(pid: u32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = line.split(|b| *b == 0);
    let program = words
        .next()
        .and_then(|path| path.rsplit(|b| *b == b'/').next());
    let command = words.find(|word| !word.starts_with(b"-"));
    program == Some(b"strongroom") && matches!(command, Some(b"serve-mount" | b"mount"))
}

/// The process that holds the room's lock, by the kernel's list of locks (proc_locks(5)).
fn holder(dir: &Path) -> Option<u32> {
    let path = dir.join("lock");
    let inode = std::fs::metadata(&path).ok()?.ino().to_string();
    let pid: u32 = std::fs::read_to_string(&path).ok()?.trim().parse().ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    holds(&locks, pid, &inode).then_some(pid)
}

/// `1: FLOCK  ADVISORY  WRITE PID MAJOR:MINOR:INODE 0 EOF`. The device is not compared: some file systems show another one
/// to stat(2).
fn holds(locks: &str, pid: u32, inode: &str) -> bool {
    let pid = pid.to_string();
    locks.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields[..], [_, "FLOCK", _, _, holder, file, ..]
            if holder == pid && file.rsplit(':').next() == Some(inode))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_found_by_process_and_inode() {
        let locks = "1: FLOCK  ADVISORY  WRITE 812 fe:00:1234 0 EOF\n\
            2: POSIX  ADVISORY  WRITE 900 fe:00:1234 0 EOF\n\
            2: -> FLOCK  ADVISORY  WRITE 901 fe:00:1234 0 EOF\n";
        assert!(holds(locks, 812, "1234"));
        assert!(!holds(locks, 812, "123"));
        assert!(!holds(locks, 900, "1234"), "a lock of another kind");
        assert!(!holds(locks, 901, "1234"), "one that only waits");
    }
}
