//! age and SSH recipients and identities, from the texts people have of them.
//!
//! Recipients and identities of a plugin start its program, `age-plugin-NAME` in `PATH`, when they are used: the age library does.
//!
//! 1. Which program starts is said by a recipient or an identity that the caller gives. A slot's age file, which anyone with
//!    write access to the header can replace, names none.
//! 2. A plugin learns the key of a slot's age file, never the master key.
//! 3. An error of a plugin names its program.

use std::fmt;
use std::io::BufReader;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use age::{DecryptError, EncryptError};

use crate::{SealError, Secret};

/// A recipient and the text it was read from, which the header keeps for listing and for wrapping again.
pub struct NamedRecipient {
    /// What wraps.
    pub recipient: Arc<dyn age::Recipient + Send + Sync>,
    /// `age1…`, `age1PLUGIN1…` or an SSH public key.
    pub text: String,
    /// After this time without an answer its plugin's program is ended. `None`, as it was read: it may wait for a person.
    pub limit: Option<Duration>,
}

/// The program that sealing for this recipient starts: `age-plugin-NAME`. `None` for recipients that need none.
pub fn recipient_plugin(text: &str) -> Option<String> {
    if native(text).is_some() {
        return None;
    }
    let recipient = text.parse::<age::plugin::Recipient>().ok()?;
    Some(program(recipient.plugin()))
}

fn program(plugin: &str) -> String {
    format!("age-plugin-{plugin}")
}

/// A recipient of the age format itself: X25519, or a tagged one of hardware (P-256, with or without ML-KEM-768).
fn native(text: &str) -> Option<Arc<dyn age::Recipient + Send + Sync>> {
    if let Ok(recipient) = text.parse::<age::x25519::Recipient>() {
        return Some(Arc::new(recipient));
    }
    if let Ok(recipient) = text.parse::<age::tag::Recipient>() {
        return Some(Arc::new(recipient));
    }
    match text.parse::<age::tagpq::Recipient>() {
        Ok(recipient) => Some(Arc::new(recipient)),
        Err(_) => None,
    }
}

impl NamedRecipient {
    /// Reads `age1…`, `age1tag1…`, `age1tagpq1…`, `age1PLUGIN1…`, `ssh-ed25519 …` or `ssh-rsa …`. A plugin that wants to
    /// ask something asks through `callbacks`.
    ///
    /// # Errors
    /// [`SealError::BadRecipient`] for anything else, or when the plugin is not installed.
    pub fn parse(text: &str, callbacks: impl age::Callbacks) -> Result<NamedRecipient, SealError> {
        let text = text.trim();
        let recipient: Arc<dyn age::Recipient + Send + Sync> = if text.starts_with("ssh-") {
            match text.parse::<age::ssh::Recipient>() {
                Ok(recipient) => Arc::new(recipient),
                Err(error) => return Err(bad_recipient(text, &format!("{error:?}"))),
            }
        } else if let Some(recipient) = native(text) {
            recipient
        } else if let Ok(recipient) = text.parse::<age::plugin::Recipient>() {
            let name = recipient.plugin().to_owned();
            let plugin = age::plugin::RecipientPluginV1::new(&name, &[recipient], &[], callbacks);
            Arc::new(plugin.map_err(|_| bad_recipient(text, &missing(&name)))?)
        } else {
            return Err(bad_recipient(
                text,
                "it is none of the forms age1… and ssh-…",
            ));
        };
        Ok(NamedRecipient {
            recipient,
            text: text.to_owned(),
            limit: None,
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

fn missing(plugin: &str) -> String {
    format!(
        "the program {} is not in PATH: install it, or add its directory to PATH",
        program(plugin)
    )
}

/// An identity, and the program it starts.
pub struct NamedIdentity {
    /// What unwraps.
    pub identity: Arc<dyn age::Identity + Send + Sync>,
    /// `age-plugin-NAME`, for an identity of a plugin.
    pub program: Option<String>,
    /// After this time without an answer that program is ended. `None`, as it was read: it may wait for a person.
    pub limit: Option<Duration>,
}

impl fmt::Debug for NamedIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamedIdentity({:?}, ..)", self.program)
    }
}

impl<I: age::Identity + Send + Sync + 'static> From<I> for NamedIdentity {
    fn from(identity: I) -> NamedIdentity {
        NamedIdentity {
            identity: Arc::new(identity),
            program: None,
            limit: None,
        }
    }
}

/// Reads an identity file: an age identity file (X25519 and plugin identities, one a line) or an SSH
/// private key. A key with a passphrase of its own, and plugins, ask through `callbacks`.
///
/// # Errors
/// [`SealError::BadIdentity`] when it is neither, holds no identity, or its plugin is not installed.
pub fn parse_identities(
    file: &Secret,
    callbacks: impl age::Callbacks,
) -> Result<Vec<NamedIdentity>, SealError> {
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
        return Ok(vec![identity.with_callbacks(callbacks).into()]);
    }
    let mut identities = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Ok(identity) = line.parse::<age::x25519::Identity>() {
            identities.push(identity.into());
        } else if let Ok(identity) = line.parse::<age::plugin::Identity>() {
            let name = identity.plugin().to_owned();
            let plugin = age::plugin::IdentityPluginV1::new(&name, &[identity], callbacks.clone());
            identities.push(NamedIdentity {
                identity: Arc::new(plugin.map_err(|_| bad(&missing(&name)))?),
                program: Some(program(&name)),
                limit: None,
            });
        } else if line.starts_with("AGE-SECRET-KEY-PQ-1") {
            return Err(bad(
                &"a post-quantum identity is used through its plugin: convert the file with `age-plugin-pq -identity`",
            ));
        } else {
            // The line itself may be a secret.
            return Err(bad(&format!("line {} is no identity", at + 1)));
        }
    }
    if identities.is_empty() {
        return Err(bad(&"the file holds no identity"));
    }
    Ok(identities)
}

/// Why the recipients of a slot could not be used: `programs` are those that their plugins start.
pub(crate) fn not_wrapped(programs: &[String], error: &EncryptError) -> SealError {
    match error {
        EncryptError::Plugin(errors) => said(&programs.join(", "), errors),
        EncryptError::Io(error) if !programs.is_empty() => broken(&programs.join(", "), error),
        other => SealError::age(other),
    }
}

/// What went wrong with an identity's plugin, in words that name it.
pub(crate) fn of_plugin(program: &str, error: &DecryptError) -> SealError {
    match error {
        DecryptError::Plugin(errors) => said(program, errors),
        DecryptError::InvalidMac | DecryptError::DecryptionFailed => SealError::age(format!(
            "{program} returned a wrong key, or the slot's age file is damaged"
        )),
        DecryptError::Io(error) => broken(program, error),
        other => SealError::age(format!("{program}: {other}")),
    }
}

/// A plugin's program was ended because it did not answer.
pub(crate) fn too_late(program: &str, limit: Option<Duration>) -> SealError {
    SealError::age(format!(
        "{program} did not answer within {} s and was ended: is its device there? STRONGROOM_PLUGIN_TIMEOUT=SECONDS gives it longer",
        limit.unwrap_or_default().as_secs()
    ))
}

fn said(program: &str, errors: &[impl fmt::Display]) -> SealError {
    let messages: Vec<_> = errors.iter().map(ToString::to_string).collect();
    SealError::age(format!("{program}: {}", messages.join("; ")))
}

fn broken(program: &str, error: &std::io::Error) -> SealError {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, InvalidData};
    let problem = match error.kind() {
        ConnectionAborted | BrokenPipe => "ended before it answered",
        InvalidData => "answered with what is not the plugin protocol",
        _ => return SealError::age(format!("{program}: {error}")),
    };
    SealError::age(format!(
        "{program} {problem}; set AGEDEBUG=plugin to see what it says (keys are shown too)"
    ))
}

/// Why a plugin cannot start, if it cannot: the age library takes that for a plugin that has no key.
pub(crate) fn cannot_start(program: &str) -> Option<SealError> {
    let mut command = Command::new(program);
    command.arg("--age-plugin=identity-v1").current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    match command.stderr(Stdio::null()).spawn() {
        Ok(mut child) => {
            // It has nothing to read and ends by itself, unless it is broken.
            let _ = child.kill();
            let _ = child.wait();
            None
        }
        Err(error) => Some(SealError::age(format!(
            "{program} could not be started: {error}"
        ))),
    }
}
