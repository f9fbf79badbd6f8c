//! age and SSH recipients and identities, from the texts people have of them.
//!
//! Plugin recipients and identities start their plugin's program when they are used; that is the age
//! library's doing.

use std::fmt;
use std::io::BufReader;

use crate::{SealError, Secret};

/// A recipient and the text it was read from, which the header keeps for listing and for wrapping again.
pub struct NamedRecipient {
    /// What wraps.
    pub recipient: Box<dyn age::Recipient + Send>,
    /// `age1…`, `age1PLUGIN1…` or an SSH public key.
    pub text: String,
}

/// Whether sealing for this recipient starts a plugin's program.
pub fn is_plugin_recipient(text: &str) -> bool {
    text.parse::<age::x25519::Recipient>().is_err()
        && text.parse::<age::plugin::Recipient>().is_ok()
}

impl NamedRecipient {
    /// Reads `age1…`, `age1PLUGIN1…`, `ssh-ed25519 …` or `ssh-rsa …`. A plugin that wants to ask something
    /// asks through `callbacks`.
    ///
    /// # Errors
    /// [`SealError::BadRecipient`] for anything else, or when the plugin is not installed.
    pub fn parse(text: &str, callbacks: impl age::Callbacks) -> Result<NamedRecipient, SealError> {
        let text = text.trim();
        let recipient: Box<dyn age::Recipient + Send> = if text.starts_with("ssh-") {
            match text.parse::<age::ssh::Recipient>() {
                Ok(recipient) => Box::new(recipient),
                Err(error) => return Err(bad_recipient(text, &format!("{error:?}"))),
            }
        } else if let Ok(recipient) = text.parse::<age::x25519::Recipient>() {
            Box::new(recipient)
        } else if let Ok(recipient) = text.parse::<age::plugin::Recipient>() {
            let name = recipient.plugin().to_owned();
            let plugin = age::plugin::RecipientPluginV1::new(&name, &[recipient], &[], callbacks);
            Box::new(plugin.map_err(|error| bad_recipient(text, &error.to_string()))?)
        } else {
            return Err(bad_recipient(
                text,
                "it is none of the forms age1… and ssh-…",
            ));
        };
        Ok(NamedRecipient {
            recipient,
            text: text.to_owned(),
        })
    }
}

impl fmt::Debug for NamedRecipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamedRecipient({})", self.text)
    }
}

fn bad_recipient(text: &str, problem: &str) -> SealError {
    let shown: String = text.chars().take(80).collect();
    SealError::BadRecipient(format!("`{shown}`: {problem}"))
}

/// Reads an identity file: an age identity file (X25519 and plugin identities, one a line) or an SSH
/// private key. A key with a passphrase of its own, and plugins, ask through `callbacks`.
///
/// # Errors
/// [`SealError::BadIdentity`] when it is neither, holds no identity, or its plugin is not installed.
pub fn parse_identities(
    file: &Secret,
    callbacks: impl age::Callbacks,
) -> Result<Vec<Box<dyn age::Identity + Send + Sync>>, SealError> {
    let bad = |problem: &dyn fmt::Display| SealError::BadIdentity(problem.to_string());
    let bytes = file.expose();
    let text = std::str::from_utf8(bytes).map_err(|error| bad(&error))?;
    if text.contains("-----BEGIN") {
        let identity = age::ssh::Identity::from_buffer(BufReader::new(bytes), None);
        let identity = identity.map_err(|error| bad(&error))?;
        if let age::ssh::Identity::Unsupported(_) = identity {
            return Err(bad(
                &"an SSH key of a kind age does not use; Ed25519 and RSA keys work",
            ));
        }
        return Ok(vec![Box::new(identity.with_callbacks(callbacks))]);
    }
    let parsed =
        age::IdentityFile::from_buffer(BufReader::new(bytes)).map_err(|error| bad(&error))?;
    let identities = parsed.with_callbacks(callbacks).into_identities();
    let identities = identities.map_err(|error| bad(&error))?;
    if identities.is_empty() {
        return Err(bad(&"the file holds no identity"));
    }
    Ok(identities)
}
