//! How a new key slot derives its key, as the command line says it.

use clap::ValueEnum;
use volume::luks::{Hash, KdfOptions};

use crate::error::{Error, Result};

/// The ways of deriving.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// Argon2id: memory-hard, LUKS2's default
    Argon2id,
    /// Argon2i, for old programs
    Argon2i,
    /// PBKDF2: LUKS1's only one; for boot loaders that know no Argon2
    Pbkdf2,
}

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Work of the new key slot's derivation")]
pub(super) struct KdfArgs {
    /// The derivation [default: argon2id for LUKS2, pbkdf2 for LUKS1]
    #[arg(long, value_enum)]
    kdf: Option<Kind>,
    /// Argon2's memory in MiB [default: half of the machine's, at most 1024]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=4096))]
    kdf_memory: Option<u32>,
    /// Argon2's passes over the memory
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(4..=1024))]
    kdf_passes: Option<u32>,
    /// Argon2's lanes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4))]
    kdf_lanes: Option<u32>,
    /// PBKDF2's iterations [default: 2000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1000..))]
    kdf_iterations: Option<u32>,
    /// PBKDF2's hash
    #[arg(long, value_name = "HASH", value_parser = hash)]
    kdf_hash: Option<Hash>,
}

pub(super) fn hash(name: &str) -> std::result::Result<Hash, String> {
    Hash::of_name(name).map_err(|e| e.to_string())
}

impl KdfArgs {
    /// Whether anything was asked for.
    pub(super) fn any(&self) -> bool {
        self.kdf.is_some()
            || self.kdf_memory.is_some()
            || self.kdf_passes.is_some()
            || self.kdf_lanes.is_some()
            || self.kdf_iterations.is_some()
            || self.kdf_hash.is_some()
    }

    /// What was asked for, `default` where nothing was.
    pub(super) fn options(&self, default: KdfOptions) -> Result<KdfOptions> {
        let of_argon2 =
            self.kdf_memory.is_some() || self.kdf_passes.is_some() || self.kdf_lanes.is_some();
        let of_pbkdf2 = self.kdf_iterations.is_some() || self.kdf_hash.is_some();
        let start = match self.kdf {
            None => default,
            Some(Kind::Pbkdf2) => KdfOptions::PBKDF2,
            Some(Kind::Argon2id) => KdfOptions::argon2id(),
            Some(Kind::Argon2i) => match KdfOptions::argon2id() {
                KdfOptions::Argon2 {
                    memory_kib,
                    passes,
                    lanes,
                    ..
                } => KdfOptions::Argon2 {
                    i: true,
                    memory_kib,
                    passes,
                    lanes,
                },
                other => other,
            },
        };
        Ok(match start {
            KdfOptions::Argon2 {
                i,
                memory_kib,
                passes,
                lanes,
            } => {
                if of_pbkdf2 {
                    return Err(Error::usage(
                        "--kdf-iterations and --kdf-hash are PBKDF2's; with Argon2 there are --kdf-memory, --kdf-passes and \
                         --kdf-lanes",
                    ));
                }
                KdfOptions::Argon2 {
                    i,
                    memory_kib: self.kdf_memory.map_or(memory_kib, |mib| mib << 10),
                    passes: self.kdf_passes.unwrap_or(passes),
                    lanes: self.kdf_lanes.unwrap_or(lanes),
                }
            }
            KdfOptions::Pbkdf2 { hash, iterations } => {
                if of_argon2 {
                    return Err(Error::usage(
                        "--kdf-memory, --kdf-passes and --kdf-lanes are Argon2's; with PBKDF2 there are --kdf-iterations and \
                         --kdf-hash",
                    ));
                }
                KdfOptions::Pbkdf2 {
                    hash: self.kdf_hash.unwrap_or(hash),
                    iterations: self.kdf_iterations.unwrap_or(iterations),
                }
            }
        })
    }
}

/// A new passphrase or key file.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "The new key (a passphrase is asked for when none is given)")]
pub(super) struct NewKeyArgs {
    /// Read the new passphrase from FILE ("-": one line of standard input)
    #[arg(long, value_name = "FILE", group = "new_volume_key")]
    new_passphrase_file: Option<std::path::PathBuf>,
    /// Make the content of FILE the new key
    #[arg(long, value_name = "FILE", group = "new_volume_key")]
    new_key_file: Option<std::path::PathBuf>,
}

impl NewKeyArgs {
    /// The files that the command reads for it.
    pub(super) fn keep(&self, profile: &mut confine::Profile) {
        let files = [&self.new_passphrase_file, &self.new_key_file];
        profile.read.extend(files.into_iter().flatten().cloned());
    }

    pub(super) fn read(&self, of: &std::path::Path) -> Result<zeroize::Zeroizing<Vec<u8>>> {
        use crate::credentials;
        let secret = match &self.new_key_file {
            Some(file) => credentials::secret_file(file, credentials::KEY_FILE_MAX)?,
            None => credentials::passphrase_given(
                self.new_passphrase_file.as_deref(),
                &of.display().to_string(),
                crate::ask::new_passphrase,
            )?,
        };
        Ok(zeroize::Zeroizing::new(secret.expose().to_vec()))
    }
}
