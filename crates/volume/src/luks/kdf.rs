//! From a passphrase to the key of a key slot's area: Argon2id, Argon2i and PBKDF2; and what a header may ask for.
//!
//! 1. Costs come from headers that nobody vouches for: they are checked against [`Limits`] before anything is allocated.
//! 2. Argon2 is version 0x13, without secret and associated data (LUKS2 specification, section 3.2.4; RFC 9106).

use std::num::NonZeroU32;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use zeroize::{Zeroize, Zeroizing};

use super::error::{LuksError, Result};
use super::hash::Hash;

/// Bytes of a salt that is made here: what LUKS1 has room for, and what cryptsetup uses in LUKS2.
pub(super) const SALT_LEN: usize = 32;
/// Iterations over the volume key for its digest. The key is random and as long as the cipher wants it: no number of
/// iterations makes it harder to guess. The least that cryptsetup takes.
pub(super) const DIGEST_ITERATIONS: u32 = 1000;
/// Iterations that cryptsetup takes for the least.
const PBKDF2_LEAST: u32 = 1000;
/// KiB that cryptsetup takes for the least, and for the most.
const ARGON2_KIB: std::ops::RangeInclusive<u32> = 32..=4 << 20;
/// Lanes that cryptsetup allows.
const ARGON2_LANES: std::ops::RangeInclusive<u32> = 1..=4;
/// Passes that cryptsetup takes for the least with Argon2.
const ARGON2_PASSES_LEAST: u32 = 4;

/// What a header may ask of this machine to derive one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most memory for Argon2, in KiB. 2 GiB by default: cryptsetup's own default is at most 1 GiB.
    pub memory_kib: u32,
    /// Most work for Argon2, memory times passes, in KiB. 128 GiB by default, about a minute or two.
    pub work_kib: u64,
    /// Most iterations of PBKDF2. 200 million by default, about a minute or two.
    pub iterations: u32,
    /// Most lanes of Argon2. 64 by default.
    pub lanes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_kib: 2 << 20,
            work_kib: 128 << 20,
            iterations: 200_000_000,
            lanes: 64,
        }
    }
}

impl Limits {
    /// Whatever the header asks for; for headers that are trusted.
    pub const NONE: Self = Self {
        memory_kib: u32::MAX,
        work_kib: u64::MAX,
        iterations: u32::MAX,
        lanes: u32::MAX,
    };
}

/// How a new key slot shall derive its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KdfOptions {
    /// Argon2id, or Argon2i; LUKS2 only.
    Argon2 {
        /// Argon2i instead of Argon2id.
        i: bool,
        /// Memory, 32 KiB to 4 GiB.
        memory_kib: u32,
        /// Passes over it, at least 4.
        passes: u32,
        /// Lanes, 1 to 4.
        lanes: u32,
    },
    /// PBKDF2.
    Pbkdf2 {
        /// Of the HMAC.
        hash: Hash,
        /// At least 1000.
        iterations: u32,
    },
}

impl KdfOptions {
    /// PBKDF2 with SHA-256, about two seconds: for LUKS1, and for boot loaders that know no Argon2.
    pub const PBKDF2: Self = Self::Pbkdf2 {
        hash: Hash::Sha256,
        iterations: 2_000_000,
    };

    /// Argon2id with 4 passes, 4 lanes, and 1 GiB of memory or half of what the machine has: cryptsetup's largest default.
    pub fn argon2id() -> Self {
        // A machine that will not say is taken for small.
        let kib = memory_of_the_machine_kib().unwrap_or(0);
        Self::Argon2 {
            i: false,
            memory_kib: u32::try_from((kib / 2).clamp(64 << 10, 1 << 20)).unwrap_or(1 << 20),
            passes: ARGON2_PASSES_LEAST,
            lanes: 4,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let bad = |text: String| Err(LuksError::Option(text));
        match *self {
            Self::Argon2 {
                memory_kib,
                passes,
                lanes,
                ..
            } => {
                if !ARGON2_KIB.contains(&memory_kib) {
                    return bad(format!(
                        "Argon2 takes 32 to 4194304 KiB of memory, not {memory_kib}"
                    ));
                }
                if passes < ARGON2_PASSES_LEAST {
                    return bad(format!("Argon2 takes 4 passes or more, not {passes}"));
                }
                if !ARGON2_LANES.contains(&lanes) {
                    return bad(format!("Argon2 takes 1 to 4 lanes, not {lanes}"));
                }
                Ok(())
            }
            Self::Pbkdf2 { iterations, .. } if iterations < PBKDF2_LEAST => bad(format!(
                "PBKDF2 takes 1000 iterations or more, not {iterations}"
            )),
            Self::Pbkdf2 { .. } => Ok(()),
        }
    }

    /// With a fresh salt.
    pub(super) fn with_salt(&self) -> Result<Kdf> {
        let salt = random::<SALT_LEN>()?.to_vec();
        let algorithm = match *self {
            Self::Argon2 {
                i,
                memory_kib,
                passes,
                lanes,
            } => KdfAlgorithm::Argon2 {
                i,
                memory_kib,
                passes,
                lanes,
            },
            Self::Pbkdf2 { hash, iterations } => KdfAlgorithm::Pbkdf2 {
                hash: hash.name().to_owned(),
                iterations,
            },
        };
        Ok(Kdf { salt, algorithm })
    }
}

fn memory_of_the_machine_kib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

pub(super) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| LuksError::Derivation(e.to_string()))?;
    Ok(bytes)
}

/// How a key slot derives its key, as its header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kdf {
    pub(super) salt: Vec<u8>,
    pub(super) algorithm: KdfAlgorithm,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KdfAlgorithm {
    Argon2 {
        i: bool,
        memory_kib: u32,
        passes: u32,
        lanes: u32,
    },
    /// The hash by its name: a slot whose hash is not known must not keep the others from opening.
    Pbkdf2 { hash: String, iterations: u32 },
}

impl Kdf {
    /// Whether the limits allow it; `slot` is for the message.
    pub(super) fn within(&self, limits: &Limits, slot: u8) -> Result<()> {
        let asked: Vec<(&'static str, u64, u64)> = match self.algorithm {
            KdfAlgorithm::Argon2 {
                memory_kib,
                passes,
                lanes,
                ..
            } => vec![
                (
                    "Argon2 memory in KiB",
                    memory_kib.into(),
                    limits.memory_kib.into(),
                ),
                (
                    "Argon2 work in KiB times passes",
                    u64::from(memory_kib) * u64::from(passes),
                    limits.work_kib,
                ),
                ("Argon2 lanes", lanes.into(), limits.lanes.into()),
            ],
            KdfAlgorithm::Pbkdf2 { iterations, .. } => vec![(
                "PBKDF2 iterations",
                iterations.into(),
                limits.iterations.into(),
            )],
        };
        match asked.into_iter().find(|(_, wanted, limit)| wanted > limit) {
            None => Ok(()),
            Some((what, wanted, limit)) => Err(LuksError::TooCostly {
                slot,
                what,
                wanted,
                limit,
            }),
        }
    }

    /// The key of `len` bytes. The caller has looked at the limits.
    pub(super) fn derive(&self, secret: &[u8], len: usize) -> Result<Zeroizing<Vec<u8>>> {
        let mut out = Zeroizing::new(vec![0; len]);
        match &self.algorithm {
            KdfAlgorithm::Pbkdf2 { hash, iterations } => {
                let iterations = NonZeroU32::new(*iterations)
                    .ok_or_else(|| LuksError::Malformed("PBKDF2 with no iterations".into()))?;
                Hash::of_name(hash)?.pbkdf2(iterations, &self.salt, secret, &mut out);
            }
            KdfAlgorithm::Argon2 {
                i,
                memory_kib,
                passes,
                lanes,
            } => {
                let failed = |e: argon2::Error| LuksError::Derivation(e.to_string());
                let params =
                    Params::new(*memory_kib, *passes, *lanes, Some(len)).map_err(failed)?;
                let algorithm = if *i {
                    Algorithm::Argon2i
                } else {
                    Algorithm::Argon2id
                };
                let mut memory = WorkingMemory::of(params.block_count())?;
                Argon2::new(algorithm, Version::V0x13, params)
                    .hash_password_into_with_memory(
                        secret,
                        &self.salt,
                        &mut out,
                        memory.0.as_mut_slice(),
                    )
                    .map_err(failed)?;
            }
        }
        Ok(out)
    }
}

/// Argon2's memory, which the library leaves to the caller to wipe.
struct WorkingMemory(Vec<Block>);

impl WorkingMemory {
    fn of(blocks: usize) -> Result<Self> {
        let mut memory = Vec::new();
        memory.try_reserve_exact(blocks).map_err(|_| {
            LuksError::Derivation(format!("there is no memory for {blocks} blocks of 1 KiB"))
        })?;
        memory.resize(blocks, Block::new());
        Ok(Self(memory))
    }
}

impl Drop for WorkingMemory {
    fn drop(&mut self) {
        for block in &mut self.0 {
            block.zeroize();
        }
    }
}
