//! Locks of ranges are held, split, joined and refused as the kernel does it: the same random calls on a file of this machine,
//! with one open file description for each holder, and on the table of the metadata server.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Instant;

use crate::common::lock;
use metadata_proto::rpc::SessionId;
use metadata_server::locks::{Holder, Locks};
use room::{InodeNo, Lock, LockKind, LockOwner, LockTable};

/// Locks of open file descriptions (fcntl(2), `F_OFD_SETLK`): those of POSIX, but for who holds them.
mod sys {
    #![allow(unsafe_code)]

    use super::*;

    fn flock(lock: Lock) -> libc::flock {
        // SAFETY: a structure of integers, for which zeros are a value.
        let mut flock: libc::flock = unsafe { std::mem::zeroed() };
        flock.l_type = match lock.kind {
            LockKind::Shared => libc::F_RDLCK,
            LockKind::Exclusive => libc::F_WRLCK,
            LockKind::Unlock => libc::F_UNLCK,
        } as libc::c_short;
        flock.l_whence = libc::SEEK_SET as libc::c_short;
        flock.l_start = lock.start as libc::off_t;
        flock.l_len = match lock.end {
            u64::MAX => 0,
            end => (end - lock.start + 1) as libc::off_t,
        };
        flock
    }

    pub(super) fn set(file: &File, lock: Lock) -> bool {
        // SAFETY: the descriptor is open and the structure valid for the call.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &flock(lock)) };
        done == 0
    }

    /// The lock in the way.
    pub(super) fn test(file: &File, lock: Lock) -> Option<(LockKind, u64, u64)> {
        let mut flock = flock(lock);
        // SAFETY: as above; the kernel writes into the structure.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut flock) };
        assert_eq!(done, 0);
        let kind = match i32::from(flock.l_type) {
            libc::F_UNLCK => return None,
            libc::F_RDLCK => LockKind::Shared,
            _ => LockKind::Exclusive,
        };
        let start = flock.l_start as u64;
        let end = match flock.l_len {
            0 => u64::MAX,
            len => start + len as u64 - 1,
        };
        Some((kind, start, end))
    }
}

fn holder(n: usize) -> Holder {
    Holder {
        session: SessionId(n as u64 / 2),
        owner: LockOwner(n as u64),
    }
}

#[test]
fn ranges_are_locked_as_the_kernel_locks_them() {
    const NO: InodeNo = InodeNo(1);
    const TABLE: LockTable = LockTable::Posix;
    for seed in 1..=20u64 {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path());
        let files: Vec<File> = (0..4).map(|_| open().unwrap()).collect();
        let locks = Locks::default();
        let mut dice = fastrand::Rng::with_seed(seed);
        let (mut taken, mut refused) = (0, 0);
        for n in 0..2000 {
            let who = dice.usize(..4);
            let (a, b) = (dice.u64(..40), dice.u64(..40));
            let (start, end) = (a.min(b), a.max(b));
            let end = if dice.u64(..8) == 0 { u64::MAX } else { end };
            let kinds = [LockKind::Shared, LockKind::Exclusive, LockKind::Unlock];
            let kind = kinds[dice.usize(..3)];
            let wanted = lock(kind, start, end);
            let kernel = sys::set(&files[who], wanted);
            let ours = locks.set(NO, TABLE, holder(who), wanted, false, Instant::now());
            assert_eq!(
                kernel,
                ours.is_ok(),
                "seed {seed}, step {n}: {who} {wanted:?}"
            );
            if kernel {
                taken += 1;
            } else {
                refused += 1;
            }
            for (tester, file) in files.iter().enumerate() {
                let start = dice.u64(..40);
                let asked = lock(kinds[dice.usize(..2)], start, start + dice.u64(..10));
                let kernel = sys::test(file, asked);
                let ours = locks.test(NO, TABLE, holder(tester), asked);
                // Of several conflicting locks either may be reported.
                assert_eq!(
                    kernel.is_some(),
                    ours.is_some(),
                    "seed {seed}, step {n}: {tester} asks {asked:?}: kernel {kernel:?}, ours {ours:?}"
                );
                if let (Some(kernel), Some(ours)) = (kernel, ours)
                    && kernel.1 == ours.start
                    && kernel.0 == ours.kind
                    && ours.kind == LockKind::Exclusive
                {
                    assert_eq!(kernel.2, ours.end, "seed {seed}, step {n}");
                }
            }
        }
        assert!(
            taken > 100 && refused > 100,
            "{taken} taken, {refused} refused"
        );
    }
}
