//! The exit codes: one list, which docs/commands.md repeats. A number never changes its meaning.

use std::process::ExitCode;

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything asked for was done.
    Ok = 0,
    /// Something failed that has no number of its own; the message says what.
    Failed = 1,
    /// The command line cannot be understood, or contradicts itself.
    Usage = 2,
    /// The passphrase, key or identity is wrong for this room or volume.
    WrongCredential = 3,
    /// Another process has the room or volume open, of which the message names that of a room; or another machine, of a room in a bucket; or
    /// the system uses a block device.
    InUse = 4,
    /// Data or catalog are damaged; `check` found something, or a file could not be read.
    Damaged = 5,
    /// Both copies of the header are damaged, or a volume's header says what cannot be.
    HeaderDamaged = 6,
    /// The room was created by a newer version, or a volume requires what is not known here.
    Newer = 7,
    /// The room is older than this machine saw it last.
    RolledBack = 8,
    /// No space left where the room, or a copy's target, is stored.
    NoSpace = 9,
    /// There is no room, or no volume, there.
    NotARoom = 10,
    /// The room is not mounted, or its mountpoint is not a room's.
    NotMounted = 11,
    /// Mounting is not possible here: `/dev/fuse`, `fusermount3` or the mountpoint.
    CannotMount = 12,
    /// The mounted room is in use: files are open or it is somebody's working directory.
    Busy = 13,
    /// Stopped by the user; what was done so far is kept.
    Interrupted = 14,
}

impl Exit {
    /// Every code, in the order of their numbers.
    pub const ALL: [Exit; 15] = [
        Exit::Ok,
        Exit::Failed,
        Exit::Usage,
        Exit::WrongCredential,
        Exit::InUse,
        Exit::Damaged,
        Exit::HeaderDamaged,
        Exit::Newer,
        Exit::RolledBack,
        Exit::NoSpace,
        Exit::NotARoom,
        Exit::NotMounted,
        Exit::CannotMount,
        Exit::Busy,
        Exit::Interrupted,
    ];

    /// The number the shell sees: 0 to 14.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The code with this number; `Failed` for one that is not in the list.
    pub fn from_code(code: u8) -> Exit {
        Exit::ALL
            .get(usize::from(code))
            .copied()
            .unwrap_or(Exit::Failed)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_number() {
        for (number, exit) in Exit::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(exit.code()), number);
            assert_eq!(Exit::from_code(exit.code()), exit);
        }
        assert_eq!(Exit::from_code(200), Exit::Failed);
    }

    #[test]
    fn the_manual_lists_every_code() {
        let manual = include_str!("../../../docs/commands.md");
        for exit in Exit::ALL {
            assert!(
                manual.contains(&format!("\n| {} |", exit.code())),
                "docs/commands.md lacks exit code {}",
                exit.code()
            );
        }
    }
}
