//! age and SSH recipients and identities, from the texts people have of them.
//!
//! Plugin recipients and identities start their plugin's program when they are used; that is the age library's doing.

use std::fmt;

use crate::{Secret, SealError};

/// A recipient and the text it was read from, which the header keeps for listing and for wrapping anew.
pub struct NamedRecipient {
    /// What wraps.
    pub recipient: Box<dyn age::Recipient + Send>,
    /// `age1…`, `age1PLUGIN1…` or an SSH public key.
    pub text: String,
}

impl NamedRecipient {
    /// Reads `age1…`, `age1PLUGIN1…`, `ssh-ed25519 …` or `ssh-rsa …`. A plugin that wants to ask something asks through
    /// `callbacks`.
    ///
    /// # Errors
    /// [`SealError::BadRecipient`] for anything else, or when the plugin is not installed.
    pub fn parse(text: &str, callbacks: impl age::Callbacks) -> Result<NamedRecipient, SealError> {
        let _ = (text, callbacks);
        todo!()
    }
}

impl fmt::Debug for NamedRecipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamedRecipient({})", self.text)
    }
}

/// Reads an identity file: an age identity file (X25519 and plugin identities, one a line) or an SSH private key.
///
/// # Errors
/// [`SealError::BadIdentity`] when it is neither, holds no identity, or its plugin is not installed.
pub fn parse_identities(
    file: &Secret,
    callbacks: impl age::Callbacks,
) -> Result<Vec<Box<dyn age::Identity + Send + Sync>>, SealError> {
    let _ = (file, callbacks);
    todo!()
}
