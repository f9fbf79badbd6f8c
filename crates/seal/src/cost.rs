//! How much work Argon2id (RFC 9106) is set to, and the bounds on it.
//!
//! Invariant: no cost outside its bounds is ever run. A header is read before it can be verified, so its
//! costs are an attacker's to choose; the bounds keep one from eating the machine's memory or a day of its
//! time.

use std::thread;
use std::time::{Duration, Instant};

use argon2::{Algorithm, Argon2, Block, Params, Version};
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use crate::{KEY_LEN, SealError};

/// What one run of Argon2id (version 0x13) takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argon2Cost {
    /// Memory in KiB; 8 MiB to 1 GiB.
    pub memory_kib: u32,
    /// Passes over the memory; 1 to 64.
    pub passes: u32,
    /// Lanes, each a thread where there are processors; 1 to 16.
    pub lanes: u32,
}

impl Argon2Cost {
    /// The least memory: 8 MiB.
    pub const MEMORY_KIB_MIN: u32 = 8 << 10;
    /// The most memory: 1 GiB.
    pub const MEMORY_KIB_MAX: u32 = 1 << 20;
    /// The most passes.
    pub const PASSES_MAX: u32 = 64;
    /// The most lanes.
    pub const LANES_MAX: u32 = 16;
    /// The most work of one slot, memory in KiB times passes: some tens of seconds on a common machine.
    pub const WORK_MAX: u64 = 16 << 20;
    /// The most work of all slots together: opening tries every slot.
    pub const TOTAL_WORK_MAX: u64 = 64 << 20;
    /// The least there is, for tests and for secrets that are strong by themselves.
    pub const LEAST: Argon2Cost = Argon2Cost {
        memory_kib: Self::MEMORY_KIB_MIN,
        passes: 1,
        lanes: 1,
    };

    /// The memory [`Argon2Cost::measured`] settles on: 128 MiB, so that opening a room stays under 256 MiB
    /// in all.
    const MEASURED_MEMORY_KIB: u32 = 128 << 10;

    /// A cost that takes this machine about `target`, found by one run of about 50 ms: 128 MiB and as many
    /// passes as fit, or one pass over less memory where the machine is slow. Always within the bounds.
    pub fn measured(target: Duration) -> Argon2Cost {
        let lanes = thread::available_parallelism().map_or(1, |n| n.get().min(4) as u32);
        let probe = Argon2Cost {
            memory_kib: 32 << 10,
            passes: 1,
            lanes,
        };
        let start = Instant::now();
        let mut out = [0; KEY_LEN];
        if probe
            .run(b"probe", &[], &[0; crate::SALT_LEN], &mut out)
            .is_err()
        {
            return Argon2Cost::LEAST;
        }
        let seconds_per_kib = start.elapsed().as_secs_f64().max(1e-6) / f64::from(probe.memory_kib);
        let work = target.as_secs_f64() / seconds_per_kib;
        let memory = work.clamp(
            f64::from(Self::MEMORY_KIB_MIN),
            f64::from(Self::MEASURED_MEMORY_KIB),
        );
        let passes = (work / memory)
            .round()
            .clamp(1.0, f64::from(Self::PASSES_MAX));
        Argon2Cost {
            memory_kib: memory as u32 & !1023,
            passes: passes as u32,
            lanes,
        }
    }

    /// Memory in KiB times passes: what the time goes with.
    pub fn work(&self) -> u64 {
        u64::from(self.memory_kib) * u64::from(self.passes)
    }

    /// Checks that each number is within its bounds.
    ///
    /// # Errors
    /// [`SealError::CostOutOfBounds`] with the number that is outside.
    pub fn check(&self) -> Result<(), SealError> {
        let bounds = [
            (
                "the memory in KiB",
                self.memory_kib.into(),
                Self::MEMORY_KIB_MIN.into(),
                Self::MEMORY_KIB_MAX.into(),
            ),
            (
                "the number of passes",
                self.passes.into(),
                1,
                Self::PASSES_MAX.into(),
            ),
            (
                "the number of lanes",
                self.lanes.into(),
                1,
                Self::LANES_MAX.into(),
            ),
            (
                "the work (memory in KiB times passes)",
                self.work(),
                1,
                Self::WORK_MAX,
            ),
        ];
        for (what, value, min, max) in bounds {
            if !(min..=max).contains(&value) {
                return Err(SealError::CostOutOfBounds {
                    what,
                    value,
                    min,
                    max,
                });
            }
        }
        Ok(())
    }

    /// Runs Argon2id, version 0x13, without associated data. `key` is its secret value K, empty for none. The working memory
    /// is wiped.
    ///
    /// # Errors
    /// [`SealError::Derivation`] when the memory cannot be had.
    pub(crate) fn run(
        &self,
        secret: &[u8],
        key: &[u8],
        salt: &[u8],
        out: &mut [u8; KEY_LEN],
    ) -> Result<(), SealError> {
        #[cfg(test)]
        tests::RUNS.with(|runs| runs.set(runs.get() + 1));
        let failed = |error: argon2::Error| SealError::Derivation(error.to_string());
        let params = Params::new(self.memory_kib, self.passes, self.lanes, Some(KEY_LEN));
        let params = params.map_err(failed)?;
        let mut memory = WorkingMemory::of(params.block_count())?;
        Argon2::new_with_secret(key, Algorithm::Argon2id, Version::V0x13, params)
            .map_err(failed)?
            .hash_password_into_with_memory(secret, salt, out, memory.0.as_mut_slice())
            .map_err(failed)
    }
}

/// Argon2's memory, from which a passphrase's candidates could be checked faster than from the slot; the
/// library leaves the wiping to the caller.
struct WorkingMemory(Vec<Block>);

impl WorkingMemory {
    fn of(blocks: usize) -> Result<WorkingMemory, SealError> {
        let mut memory = Vec::new();
        let reserved = memory.try_reserve_exact(blocks);
        reserved.map_err(|error| SealError::Derivation(error.to_string()))?;
        memory.resize(blocks, Block::new());
        Ok(WorkingMemory(memory))
    }
}

impl Drop for WorkingMemory {
    fn drop(&mut self) {
        for block in &mut self.0 {
            block.zeroize();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{Credential, Header, NewCredential, Suite};

    thread_local! {
        /// Derivations by this thread.
        pub(super) static RUNS: Cell<u32> = const { Cell::new(0) };
    }

    #[test]
    fn the_work_of_opening_does_not_reveal_which_slot_opened_or_whether_one_did() {
        let new = |text: &str| NewCredential::Passphrase {
            secret: text.into(),
            cost: Argon2Cost::LEAST,
        };
        let (mut header, master) = Header::create(Suite::Aes256Gcm, new("first"), "").unwrap();
        header.add_slot(&master, new("second"), "").unwrap();
        header.add_slot(&master, new("third"), "").unwrap();
        for text in ["first", "third", "wrong"] {
            let before = RUNS.with(Cell::get);
            let opened = header.unlock(&Credential::Passphrase(text.into()));
            assert_eq!(opened.is_ok(), text != "wrong");
            assert_eq!(RUNS.with(Cell::get) - before, 3, "{text}");
        }
    }
}
