//! What is run in a round, and which of its processes is killed.

use fastrand::Rng;

/// What runs when something is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// `replicate` to a directory.
    Replicate,
    /// `replicate` to another host.
    ReplicateBySsh,
    /// `send` to `receive`; the kill comes after a random number of bytes.
    Pipe,
    /// `receive --verify --status`.
    Settle,
    Create,
    Delete,
    Prune,
    RestoreFile,
    RestoreAll,
    MountedCreate,
    MountedDelete,
    MountedPrune,
    MountedRestore,
    MountedReplicate,
}

use Act::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    None,
    /// The command, or the sender.
    Command,
    Receiver,
    /// What carries the bytes to the other host.
    Carrier,
    /// The process that serves the mount.
    Server,
}

impl Act {
    pub fn draw(random: &mut Rng, can_mount: bool) -> (Act, Victim) {
        let acts = [
            Replicate,
            Replicate,
            ReplicateBySsh,
            ReplicateBySsh,
            ReplicateBySsh,
            Pipe,
            Pipe,
            Pipe,
            Pipe,
            Settle,
            Create,
            Delete,
            Prune,
            RestoreFile,
            RestoreAll,
            MountedCreate,
            MountedDelete,
            MountedPrune,
            MountedRestore,
            MountedReplicate,
            MountedReplicate,
        ];
        let act = acts[random.usize(..acts.len())];
        if act.mounted() && !can_mount {
            return (Replicate, Victim::Command);
        }
        let victims: &[Victim] = match act {
            ReplicateBySsh => &[Victim::Command, Victim::Receiver, Victim::Carrier],
            Pipe => &[Victim::Command, Victim::Receiver],
            act if act.mounted() => &[Victim::Command, Victim::Server, Victim::Server],
            _ => &[Victim::Command],
        };
        (act, victims[random.usize(..victims.len())])
    }

    pub fn sends(self) -> bool {
        matches!(self, Replicate | ReplicateBySsh | Pipe | MountedReplicate)
    }

    pub fn mounted(self) -> bool {
        matches!(
            self,
            MountedCreate | MountedDelete | MountedPrune | MountedRestore | MountedReplicate
        )
    }
}
