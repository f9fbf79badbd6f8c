//! Credentials from the command line's point of view: which options name them, how their bytes are read, and the form in
//! which they go to another process of ours (the serving one through a pipe, a mounted room through its control socket).
//!
//! 1. Bytes of secrets are held in types that wipe them.
//! 2. One trailing newline of a passphrase file is stripped; nothing else is ever changed.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use room::{Argon2Cost, Credential, NewCredential, Secret};
use serde::{Deserialize, Serialize};

use crate::ask;
use crate::error::{Error, Result};

mod command;
mod hex;
pub(crate) use command::{Printed, run as passphrase_of_command};
pub(crate) use hex::HexSecret;

/// The largest key file, in bytes.
pub(crate) const KEY_FILE_MAX: u64 = 1 << 20;
/// The largest passphrase and the largest identity file, in bytes.
const SMALL_FILE_MAX: u64 = 64 << 10;

/// What opens the room.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "What opens the room (asked for when none is given)")]
pub struct CredentialArgs {
    /// Read the passphrase from FILE ("-": one line of standard input); one trailing newline is stripped
    #[arg(long, value_name = "FILE", group = "credential")]
    pub(crate) passphrase_file: Option<PathBuf>,
    /// Run CMD with sh, and take what it prints as the passphrase; one trailing newline is stripped
    #[arg(long, value_name = "CMD", group = "credential")]
    pub(crate) passphrase_command: Option<String>,
    /// What CMD printed, once it ran.
    #[arg(skip)]
    pub(crate) printed: Printed,
    /// Use the content of FILE as the key (up to 1 MiB, every byte counts); with a passphrase option, both together
    #[arg(long, value_name = "FILE", conflicts_with_all = ["raw_key_file", "identity"])]
    pub(crate) key_file: Option<PathBuf>,
    /// Ask for the passphrase that goes with the key file
    #[arg(long, requires = "key_file", conflicts_with_all = ["passphrase_file", "passphrase_command"])]
    pub(crate) ask_passphrase: bool,
    /// Read a raw key from FILE: 32 bytes, or 64 hexadecimal digits
    #[arg(long, value_name = "FILE", group = "credential")]
    pub(crate) raw_key_file: Option<PathBuf>,
    /// Use an age identity file or an SSH private key
    #[arg(long, value_name = "FILE", group = "credential")]
    pub(crate) identity: Option<PathBuf>,
}

impl CredentialArgs {
    /// Whether any option was given.
    pub(crate) fn any(&self) -> bool {
        self.names_passphrase()
            || self.key_file.is_some()
            || self.raw_key_file.is_some()
            || self.identity.is_some()
    }

    /// Whether an option says where the passphrase comes from.
    pub(crate) fn names_passphrase(&self) -> bool {
        self.passphrase_file.is_some() || self.passphrase_command.is_some()
    }

    /// Runs what can no longer be run once the process is confined.
    pub(crate) fn run_commands(&self) -> Result<()> {
        match &self.passphrase_command {
            Some(command) => self.printed.by(command).map(drop),
            None => Ok(()),
        }
    }

    fn passphrase(&self, of: &str) -> Result<Secret> {
        match &self.passphrase_command {
            Some(command) => self.printed.by(command),
            None => passphrase_given(self.passphrase_file.as_deref(), of, ask::passphrase),
        }
    }

    /// The credential that the options name; without any, asks for the passphrase of `of`.
    pub fn credential(&self, of: &str) -> Result<Credential> {
        self.read(of)?.credential()
    }

    /// Reads what the options name; without any, asks for the passphrase of `of`.
    pub(crate) fn read(&self, of: &str) -> Result<Given> {
        if let Some(file) = &self.key_file {
            let content = secret_file(file, KEY_FILE_MAX)?;
            if !self.names_passphrase() && !self.ask_passphrase {
                return Ok(Given::of(GivenKind::KeyFile, content));
            }
            let given = Given::of(GivenKind::PassphraseAndKeyFile, self.passphrase(of)?);
            return Ok(Given {
                key_file: Some(HexSecret(content)),
                ..given
            });
        }
        if let Some(file) = &self.raw_key_file {
            return Ok(Given::of(GivenKind::RawKey, raw_key_file(file)?));
        }
        if let Some(file) = &self.identity {
            let content = secret_file(file, SMALL_FILE_MAX)?;
            return Ok(Given::of(GivenKind::Identity, content));
        }
        Ok(Given::of(GivenKind::Passphrase, self.passphrase(of)?))
    }
}

/// What a new key slot is made for.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "The new key (a passphrase is asked for when none is given)")]
pub(crate) struct NewCredentialArgs {
    /// Read the new passphrase from FILE ("-": one line of standard input)
    #[arg(long, value_name = "FILE", group = "new_credential")]
    pub(crate) new_passphrase_file: Option<PathBuf>,
    /// Run CMD with sh, and take what it prints as the new passphrase
    #[arg(long, value_name = "CMD", group = "new_credential")]
    pub(crate) new_passphrase_command: Option<String>,
    /// Make the content of FILE the new key; with an option for a new passphrase, the slot needs both
    #[arg(long, value_name = "FILE", conflicts_with_all = ["new_raw_key_file", "new_recipient"])]
    pub(crate) new_key_file: Option<PathBuf>,
    /// Ask for a new passphrase that is needed beside the new key file
    #[arg(
        long,
        requires = "new_key_file",
        conflicts_with_all = ["new_passphrase_file", "new_passphrase_command"]
    )]
    pub(crate) ask_new_passphrase: bool,
    /// Make the 32 bytes (or 64 hexadecimal digits) in FILE the new key
    #[arg(long, value_name = "FILE", group = "new_credential")]
    pub(crate) new_raw_key_file: Option<PathBuf>,
    /// Let an age or SSH recipient open the room: age1..., age1PLUGIN1..., ssh-ed25519 ..., ssh-rsa ...; may be repeated
    #[arg(long, value_name = "RECIPIENT", group = "new_credential")]
    pub(crate) new_recipient: Vec<String>,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

/// Refuses recipients that nobody can be, before anything is asked for.
pub(crate) fn check_recipients(recipients: &[String]) -> Result<()> {
    recipients
        .iter()
        .try_for_each(|text| recipient(text).map(drop))
}

fn recipient(text: &str) -> Result<seal::NamedRecipient> {
    let recipient = seal::NamedRecipient::parse(text, ask::Terminal)
        .map_err(|e| Error::usage(e.to_string()))?;
    Ok(seal::NamedRecipient {
        limit: ask::plugin_limit()?,
        ..recipient
    })
}

impl NewCredentialArgs {
    /// Reads what the options name; without any, asks for a new passphrase for `of`.
    pub(crate) fn read(&self, of: &str) -> Result<NewGiven> {
        let cost = self.work.cost()?;
        let passphrase = || match &self.new_passphrase_command {
            Some(command) => passphrase_of_command(command),
            None => passphrase_given(self.new_passphrase_file.as_deref(), of, ask::new_passphrase),
        };
        if let Some(file) = &self.new_key_file {
            let both = self.ask_new_passphrase
                || self.new_passphrase_file.is_some()
                || self.new_passphrase_command.is_some();
            return NewGiven::with_key_file(file, both.then_some(passphrase), cost);
        }
        if let Some(file) = &self.new_raw_key_file {
            return Ok(NewGiven::RawKey {
                secret: HexSecret(raw_key_file(file)?),
            });
        }
        if !self.new_recipient.is_empty() {
            return Ok(NewGiven::Recipients {
                recipients: self.new_recipient.clone(),
            });
        }
        Ok(NewGiven::Passphrase {
            secret: HexSecret(passphrase()?),
            cost,
        })
    }
}

/// How much work a passphrase is given.
#[derive(Debug, Clone, Default, Args)]
#[command(
    next_help_heading = "Work of a passphrase's key derivation (measured to about a second when not given)"
)]
pub(crate) struct WorkArgs {
    /// Memory in MiB, 8 to 1024
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(8..=1024))]
    pub(crate) kdf_memory: Option<u32>,
    /// Passes over the memory, 1 to 64
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) kdf_passes: Option<u32>,
    /// Lanes, 1 to 16
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) kdf_lanes: Option<u32>,
}

impl WorkArgs {
    /// The cost asked for; `None`: measure.
    pub(crate) fn cost(&self) -> Result<Option<Argon2Cost>> {
        if self.kdf_memory.is_none() && self.kdf_passes.is_none() && self.kdf_lanes.is_none() {
            return Ok(None);
        }
        let cost = Argon2Cost {
            memory_kib: self.kdf_memory.unwrap_or(128) << 10,
            passes: self.kdf_passes.unwrap_or(3),
            lanes: self.kdf_lanes.unwrap_or(1),
        };
        cost.check().map_err(|e| Error::usage(e.to_string()))?;
        Ok(Some(cost))
    }
}

/// A credential as it travels.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Given {
    pub(crate) kind: GivenKind,
    pub(crate) secret: HexSecret,
    /// What goes with the passphrase where both are needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key_file: Option<HexSecret>,
}

/// The kinds of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum GivenKind {
    /// A passphrase.
    Passphrase,
    /// A key file's content.
    KeyFile,
    /// 32 bytes.
    RawKey,
    /// An identity file's content.
    Identity,
    /// A passphrase; a key file's content is beside it.
    PassphraseAndKeyFile,
}

impl Given {
    /// A credential of one secret.
    pub(crate) fn of(kind: GivenKind, secret: Secret) -> Given {
        Given {
            kind,
            secret: HexSecret(secret),
            key_file: None,
        }
    }

    /// In the place of a credential for a process that needs none.
    pub(crate) fn nothing() -> Given {
        Given::of(GivenKind::Passphrase, Secret::new(Vec::new()))
    }

    /// What was given, as it was read.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.secret.0.expose()
    }

    /// Whether it starts an age plugin, which is another program.
    pub(crate) fn uses_plugin(&self) -> bool {
        self.kind == GivenKind::Identity && names_plugin(self.bytes())
    }

    /// The credential itself. An encrypted identity asks for its passphrase here.
    pub(crate) fn credential(&self) -> Result<Credential> {
        let secret = self.secret.0.clone();
        let key_file = self.key_file.as_ref().map(|content| content.0.clone());
        if key_file.is_some() != (self.kind == GivenKind::PassphraseAndKeyFile) {
            return Err(Error::usage(
                "a key file beside another credential than a passphrase",
            ));
        }
        if let Some(key_file) = key_file {
            let passphrase = secret;
            return Ok(Credential::PassphraseAndKeyFile {
                passphrase,
                key_file,
            });
        }
        Ok(match self.kind {
            GivenKind::Passphrase | GivenKind::PassphraseAndKeyFile => {
                Credential::Passphrase(secret)
            }
            GivenKind::KeyFile => Credential::KeyFile(secret),
            GivenKind::RawKey => Credential::RawKey(secret),
            GivenKind::Identity => {
                let mut identities = seal::parse_identities(&secret, ask::Terminal)
                    .map_err(|e| Error::usage(e.to_string()))?;
                let limit = ask::plugin_limit()?;
                for identity in &mut identities {
                    identity.limit = limit;
                }
                Credential::Identities(identities)
            }
        })
    }
}

/// Whether a file of age identities has one of a plugin. An encrypted file does not show that.
pub(crate) fn names_plugin(identities: &[u8]) -> bool {
    identities
        .split(|byte| *byte == b'\n')
        .any(|line| line.trim_ascii_start().starts_with(b"AGE-PLUGIN-"))
}

/// A new credential as it travels.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum NewGiven {
    /// A passphrase.
    Passphrase {
        /// The passphrase.
        secret: HexSecret,
        /// Its work; `None`: measured where the key is made.
        cost: Option<Argon2Cost>,
    },
    /// A key file.
    KeyFile {
        /// Its content.
        secret: HexSecret,
        /// Its work; `None`: measured where the key is made.
        cost: Option<Argon2Cost>,
    },
    /// A raw key.
    RawKey {
        /// 32 bytes.
        secret: HexSecret,
    },
    /// age or SSH recipients.
    Recipients {
        /// Their texts.
        recipients: Vec<String>,
    },
    /// A passphrase and a key file, both needed.
    PassphraseAndKeyFile {
        /// The passphrase.
        passphrase: HexSecret,
        /// The file's content.
        key_file: HexSecret,
        /// Their work; `None`: measured where the key is made.
        cost: Option<Argon2Cost>,
    },
}

impl NewGiven {
    /// A key file, alone or with the passphrase that `passphrase` gets.
    pub(crate) fn with_key_file(
        key_file: &Path,
        passphrase: Option<impl FnOnce() -> Result<Secret>>,
        cost: Option<Argon2Cost>,
    ) -> Result<NewGiven> {
        let content = HexSecret(secret_file(key_file, KEY_FILE_MAX)?);
        let Some(passphrase) = passphrase else {
            let secret = content;
            return Ok(NewGiven::KeyFile { secret, cost });
        };
        Ok(NewGiven::PassphraseAndKeyFile {
            passphrase: HexSecret(passphrase()?),
            key_file: content,
            cost,
        })
    }

    /// Whether it starts an age plugin, which is another program.
    pub(crate) fn uses_plugin(&self) -> bool {
        match self {
            Self::Recipients { recipients } => recipients
                .iter()
                .any(|text| seal::recipient_plugin(text).is_some()),
            _ => false,
        }
    }

    /// The new credential itself, its work measured if nobody set it.
    pub(crate) fn credential(&self) -> Result<NewCredential> {
        let measured = |cost: &Option<Argon2Cost>| {
            cost.unwrap_or_else(|| Argon2Cost::measured(std::time::Duration::from_secs(1)))
        };
        Ok(match self {
            NewGiven::Passphrase { secret, cost } => NewCredential::Passphrase {
                secret: secret.0.clone(),
                cost: measured(cost),
            },
            NewGiven::KeyFile { secret, cost } => NewCredential::KeyFile {
                secret: secret.0.clone(),
                cost: measured(cost),
            },
            NewGiven::RawKey { secret } => NewCredential::RawKey(secret.0.clone()),
            NewGiven::PassphraseAndKeyFile {
                passphrase,
                key_file,
                cost,
            } => NewCredential::PassphraseAndKeyFile {
                passphrase: passphrase.0.clone(),
                key_file: key_file.0.clone(),
                cost: measured(cost),
            },
            NewGiven::Recipients { recipients } => NewCredential::Recipients(
                recipients
                    .iter()
                    .map(|text| recipient(text))
                    .collect::<Result<_>>()?,
            ),
        })
    }
}

/// A passphrase from a file; without one, what `ask` gets at the terminal for `of`, or the next line of standard input where
/// nobody sits.
pub(crate) fn passphrase_given(
    file: Option<&Path>,
    of: &str,
    ask: impl FnOnce(&str) -> Result<Secret>,
) -> Result<Secret> {
    match file {
        Some(file) => passphrase_file(file),
        None if ask::somebody_is_there() => ask(of),
        None => passphrase_line(),
    }
}

/// A passphrase from a file, `-` being a line of standard input.
pub(crate) fn passphrase_file(path: &Path) -> Result<Secret> {
    if path.as_os_str() == "-" {
        return passphrase_line();
    }
    let secret = secret_file(path, SMALL_FILE_MAX)?;
    let bytes = secret.expose();
    ask::not_empty(Secret::from(bytes.strip_suffix(b"\n").unwrap_or(bytes)))
}

/// One line of standard input, its newline stripped. Byte by byte, so that a second line is left for a second secret.
fn passphrase_line() -> Result<Secret> {
    let mut line = zeroize::Zeroizing::new(Vec::with_capacity(SMALL_FILE_MAX as usize));
    let mut byte = [0];
    loop {
        match rustix::io::read(std::io::stdin(), &mut byte) {
            Ok(0) if line.is_empty() => {
                return Err(Error::usage(
                    "no passphrase: standard input is empty; type it at a terminal, or name a file with --passphrase-file",
                ));
            }
            Ok(0) => break,
            Ok(_) if byte == *b"\n" => break,
            Ok(_) if line.len() as u64 == SMALL_FILE_MAX => {
                return Err(Error::usage("the passphrase is longer than 64 KiB"));
            }
            Ok(_) => line.push(byte[0]),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => {
                return Err(Error::failed(format!(
                    "standard input: {}",
                    std::io::Error::from(e)
                )));
            }
        }
    }
    ask::not_empty(Secret::from(line.as_slice()))
}

/// The whole of a file that holds a secret.
pub(crate) fn secret_file(path: &Path, max: u64) -> Result<Secret> {
    let unreadable = |e| Error::host(path, e);
    // Room for one byte more than allowed: the buffer never moves, so no copy of the secret is left behind.
    let mut bytes = zeroize::Zeroizing::new(Vec::with_capacity(max as usize + 1));
    File::open(path)
        .map_err(unreadable)?
        .take(max + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > max {
        return Err(Error::usage(format!(
            "{}: larger than the {max} bytes such a file may have",
            path.display()
        )));
    }
    if bytes.is_empty() {
        return Err(Error::usage_at(path, "is empty"));
    }
    Ok(Secret::from(bytes.as_slice()))
}

/// A raw key: 32 bytes, or 64 hexadecimal digits with or without a newline.
pub(crate) fn raw_key_file(path: &Path) -> Result<Secret> {
    let secret = secret_file(path, SMALL_FILE_MAX)?;
    let bytes = secret.expose();
    if bytes.len() == seal::KEY_LEN {
        return Ok(secret);
    }
    let digits = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    if digits.len() == 2 * seal::KEY_LEN
        && let Some(key) = crate::hex::decode(digits)
    {
        return Ok(Secret::new(key));
    }
    Err(Error::usage(format!(
        "{}: a raw key is 32 bytes, or 64 hexadecimal digits; this file has {} bytes",
        path.display(),
        bytes.len()
    )))
}
