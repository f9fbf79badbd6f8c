//! Another command at work on the mounted room while the writers write: until the kill it must not fail.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::common::CHEAP;
use super::journal::now;
use fastrand::Rng;

pub const PASS: [&str; 2] = ["--passphrase-file", "pass"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attendant {
    Nobody,
    Sync,
    Compact,
    Check,
    Backup,
    ChangeKey,
    Rekey,
}

impl Attendant {
    pub fn draw(random: &mut Rng) -> Self {
        match random.u64(..16) {
            0 | 1 => Self::Sync,
            2 | 3 => Self::Compact,
            4 => Self::Check,
            5 => Self::Backup,
            6 => Self::ChangeKey,
            7 => Self::Rekey,
            _ => Self::Nobody,
        }
    }

    /// Its arguments.
    pub fn command(self) -> Vec<&'static str> {
        let mut command = match self {
            Self::Nobody => return Vec::new(),
            Self::Sync => vec!["sync", "room"],
            Self::Compact => vec!["compact", "room", "--thinner-than", "95"],
            Self::Check => vec!["check", "room", "--read-data"],
            Self::Backup => vec!["backup", "room", "copy"],
            Self::ChangeKey => vec!["key", "change", "room", "--new-passphrase-file", "pass"],
            Self::Rekey => vec!["rekey", "room"],
        };
        if self == Self::ChangeKey {
            command.extend(CHEAP);
        }
        command.extend(PASS);
        command
    }
}

/// The attendant at work, in a thread that runs its command again and again.
pub struct Attending {
    stop: Arc<AtomicBool>,
    /// When the last sync that succeeded was asked for.
    last_sync: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Attending {
    /// Begins; without a command there is nothing to do.
    pub fn begin(who: Attendant, command: Option<Command>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let last_sync = Arc::new(AtomicU64::new(0));
        let (stopped, synced) = (stop.clone(), last_sync.clone());
        let thread = command.map(|mut command| {
            command.stdout(Stdio::null()).stderr(Stdio::piped());
            std::thread::spawn(move || {
                while !stopped.load(Ordering::SeqCst) {
                    let asked = now();
                    let output = command.output().unwrap();
                    // What was still at work when the kill was due may fail, or have found the room not mounted.
                    if stopped.load(Ordering::SeqCst) {
                        break;
                    }
                    assert!(
                        output.status.success(),
                        "{who:?} failed on the mounted room: {}",
                        String::from_utf8_lossy(&output.stderr)
                    );
                    if who == Attendant::Sync {
                        synced.store(asked, Ordering::SeqCst);
                    }
                }
            })
        });
        Self {
            stop,
            last_sync,
            thread,
        }
    }

    /// No further run is begun.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Waits for the end of the last run. When the last sync that succeeded was asked for; 0 if none was.
    pub fn last_sync(mut self) -> u64 {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        self.last_sync.load(Ordering::SeqCst)
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        self.stop();
    }
}
