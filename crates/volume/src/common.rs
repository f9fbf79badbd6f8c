//! What every format takes and answers: credentials, options, errors.

use std::fmt;
use std::io;

use zeroize::Zeroizing;

use crate::luks::LuksError;

/// What opens a volume.
pub enum Credential {
    /// A passphrase, or the contents of a key file.
    Passphrase(Zeroizing<Vec<u8>>),
    /// The key that the contents are encrypted with, without any key slot.
    MasterKey(Zeroizing<Vec<u8>>),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passphrase(_) => "Passphrase(..)",
            Self::MasterKey(_) => "MasterKey(..)",
        })
    }
}

/// How a volume is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Refuse every change.
    pub read_only: bool,
    /// Pass discards down to the image: they show which sectors are unused.
    pub allow_discards: bool,
    /// Derive keys at whatever cost the header asks for. Otherwise costs that would eat the machine are refused.
    pub any_cost: bool,
}

/// Why a volume cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// No known format shows in it.
    #[error(
        "no encrypted volume is recognised in it; where its header is kept apart, name the header"
    )]
    NotAVolume,
    /// What the volume needs is not supported here.
    #[error("{0}")]
    Unsupported(String),
    /// Passphrase or key are not this volume's.
    #[error("{0}")]
    WrongCredential(String),
    /// The volume opens only together with the machine it was made on.
    #[error("{0}")]
    HardwareBound(String),
    /// Deriving the key would cost more than is allowed.
    #[error("{0}")]
    TooCostly(String),
    /// What the volume says of itself cannot be.
    #[error("the volume is damaged: {0}")]
    Damaged(String),
    /// A LUKS volume is not opened.
    #[error(transparent)]
    Luks(#[from] LuksError),
    /// The device below failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// What the device said.
        source: io::Error,
    },
}

/// For `map_err` on calls of a device.
pub(crate) fn io_error(what: &'static str) -> impl FnOnce(io::Error) -> VolumeError {
    move |source| VolumeError::Io { what, source }
}

/// How sure it is that the key is the right one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    /// The volume's metadata, or the beginning of the contents, agrees.
    Checked,
    /// There is nothing to check by, and the contents begin like no file system of a phone: they may be nonsense.
    Unknown,
}
