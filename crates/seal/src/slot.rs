//! One key slot: the master key wrapped for one credential.
//!
//! Invariants:
//! 1. Every slot has a fresh 32-byte salt, so its wrapping key is used once.
//! 2. What the wrapping covers (room, slot number, kind, cost, salt) cannot be changed without the slot
//!    ceasing to open. Label, time and recipients' texts are covered by the header's code, which every
//!    opening checks.
//!
//! The wrapping key, by kind; `derive` is the derivation at the top of `keys`, with the slot's salt:
//!
//! | kind | wrapping key |
//! |---|---|
//! | passphrase, key file | derive(Argon2id(secret, salt, cost, 32 bytes), salt, `slot passphrase` or `slot key file`) |
//! | raw key | derive(the 32 bytes, salt, `slot raw key`) |
//! | recipients | derive(the 32 bytes inside the age file, salt, `slot recipients`) |
//! | passphrase and key file | derive(Argon2id(passphrase, salt, cost, 32 bytes, secret value K = the file's content), salt, `slot passphrase and key file`) |

use std::io::{Read, Write};
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::derive::derive;
use crate::plugin;
use crate::recipients::{self, NamedIdentity, recipient_plugin};
use crate::secret::fill_random;
use crate::wrap::WrappedKey;
use crate::{
    Argon2Cost, Credential, KEY_LEN, LABEL_LEN_MAX, MasterKey, NamedRecipient, NewCredential,
    RoomId, SALT_LEN, SealError, Secret, SlotKind,
};

/// The most recipients one slot has.
pub(crate) const RECIPIENTS_MAX: usize = 64;
/// The most bytes of a recipient's text.
const RECIPIENT_LEN_MAX: usize = 4096;
/// The most bytes of a slot's age file.
pub(crate) const AGE_FILE_LEN_MAX: usize = 64 * 1024;

type SlotSecret = Zeroizing<[u8; KEY_LEN]>;

/// What a slot needs beside its salt, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlotMethod {
    Passphrase(Argon2Cost),
    KeyFile(Argon2Cost),
    RawKey,
    Recipients {
        texts: Vec<String>,
        age_file: Vec<u8>,
    },
    PassphraseAndKeyFile(Argon2Cost),
}

/// A slot as the header keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeySlot {
    pub(crate) id: u32,
    pub(crate) label: String,
    pub(crate) created_unix_s: u64,
    pub(crate) salt: [u8; SALT_LEN],
    pub(crate) method: SlotMethod,
    pub(crate) wrapped: WrappedKey,
}

/// One key slot, for listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotInfo {
    /// Its number, 0 to 31.
    pub id: u32,
    /// Its kind.
    pub kind: SlotKind,
    /// What its owner calls it; may be empty.
    pub label: String,
    /// When it was made, in seconds since 1970.
    pub created_unix_s: u64,
    /// The work, for passphrases and key files.
    pub cost: Option<Argon2Cost>,
    /// The recipients' texts; empty for other kinds.
    pub recipients: Vec<String>,
}

impl SlotMethod {
    pub(crate) fn kind(&self) -> SlotKind {
        match self {
            SlotMethod::Passphrase(_) => SlotKind::Passphrase,
            SlotMethod::KeyFile(_) => SlotKind::KeyFile,
            SlotMethod::RawKey => SlotKind::RawKey,
            SlotMethod::Recipients { .. } => SlotKind::Recipients,
            SlotMethod::PassphraseAndKeyFile(_) => SlotKind::PassphraseAndKeyFile,
        }
    }

    pub(crate) fn cost(&self) -> Option<Argon2Cost> {
        match self {
            SlotMethod::Passphrase(cost)
            | SlotMethod::KeyFile(cost)
            | SlotMethod::PassphraseAndKeyFile(cost) => Some(*cost),
            SlotMethod::RawKey | SlotMethod::Recipients { .. } => None,
        }
    }
}

impl KeySlot {
    /// Wraps the master key for a credential.
    pub(crate) fn make(
        room: &RoomId,
        id: u32,
        master: &MasterKey,
        new: &NewCredential,
        label: &str,
        created_unix_s: u64,
    ) -> Result<KeySlot, SealError> {
        if label.len() > LABEL_LEN_MAX || label.chars().any(char::is_control) {
            return Err(SealError::BadLabel);
        }
        let is_empty = match new {
            NewCredential::Passphrase { secret, .. } | NewCredential::KeyFile { secret, .. } => {
                secret.expose().is_empty()
            }
            NewCredential::PassphraseAndKeyFile {
                passphrase,
                key_file,
                ..
            } => passphrase.expose().is_empty() || key_file.expose().is_empty(),
            NewCredential::RawKey(_) | NewCredential::Recipients(_) => false,
        };
        if is_empty {
            return Err(SealError::EmptySecret(new.kind()));
        }
        let mut salt = [0; SALT_LEN];
        fill_random(&mut salt);
        let (method, secret) = match new {
            NewCredential::Passphrase { secret, cost } => {
                cost.check()?;
                (SlotMethod::Passphrase(*cost), stretch(secret, &salt, cost)?)
            }
            NewCredential::KeyFile { secret, cost } => {
                cost.check()?;
                (SlotMethod::KeyFile(*cost), stretch(secret, &salt, cost)?)
            }
            NewCredential::RawKey(secret) => (SlotMethod::RawKey, raw(secret)?),
            NewCredential::Recipients(recipients) => {
                let mut secret = SlotSecret::default();
                fill_random(secret.as_mut_slice());
                let age_file = seal_for(recipients, &secret)?;
                let texts = recipients.iter().map(|named| named.text.clone()).collect();
                (SlotMethod::Recipients { texts, age_file }, secret)
            }
            NewCredential::PassphraseAndKeyFile {
                passphrase,
                key_file,
                cost,
            } => {
                cost.check()?;
                let method = SlotMethod::PassphraseAndKeyFile(*cost);
                (method, stretch_both(passphrase, key_file, &salt, cost)?)
            }
        };
        let key = wrapping_key(&secret, &salt, method.kind(), room);
        let data = associated_data(room, id, &method, &salt);
        let wrapped = WrappedKey::wrap(&key, &data, master);
        Ok(KeySlot {
            id,
            label: label.to_owned(),
            created_unix_s,
            salt,
            method,
            wrapped,
        })
    }

    /// The master key, when the credential opens this slot; `None` when it does not. The credential is of
    /// the slot's kind.
    pub(crate) fn open(
        &self,
        room: &RoomId,
        credential: &Credential,
    ) -> Result<Option<MasterKey>, SealError> {
        let secret = match (&self.method, credential) {
            (SlotMethod::Passphrase(cost), Credential::Passphrase(secret))
            | (SlotMethod::KeyFile(cost), Credential::KeyFile(secret)) => {
                stretch(secret, &self.salt, cost)?
            }
            (
                SlotMethod::PassphraseAndKeyFile(cost),
                Credential::PassphraseAndKeyFile {
                    passphrase,
                    key_file,
                },
            ) => stretch_both(passphrase, key_file, &self.salt, cost)?,
            (SlotMethod::RawKey, Credential::RawKey(secret)) => raw(secret)?,
            (SlotMethod::Recipients { age_file, .. }, Credential::Identities(identities)) => {
                match open_with(identities, age_file)? {
                    Some(secret) => secret,
                    None => return Ok(None),
                }
            }
            _ => {
                return Err(SealError::KindMismatch {
                    slot: self.id,
                    kind: self.method.kind(),
                });
            }
        };
        let key = wrapping_key(&secret, &self.salt, self.method.kind(), room);
        Ok(self.wrapped.unwrap(
            &key,
            &associated_data(room, self.id, &self.method, &self.salt),
        ))
    }

    pub(crate) fn info(&self) -> SlotInfo {
        let recipients = match &self.method {
            SlotMethod::Recipients { texts, .. } => texts.clone(),
            _ => Vec::new(),
        };
        SlotInfo {
            id: self.id,
            kind: self.method.kind(),
            label: self.label.clone(),
            created_unix_s: self.created_unix_s,
            cost: self.method.cost(),
            recipients,
        }
    }
}

/// What the wrapping of a slot covers, 84 bytes; numbers most significant byte first:
///
/// `"strongroom v1 slot" ‖ 0x00 ‖ room id (16) ‖ slot number (4) ‖ kind (1) ‖ memory in KiB (4) ‖ passes
/// (4) ‖ lanes (4) ‖ salt (32)`, the three numbers of the cost being 0 for kinds that have none.
pub(crate) fn associated_data(
    room: &RoomId,
    id: u32,
    method: &SlotMethod,
    salt: &[u8; SALT_LEN],
) -> Vec<u8> {
    let (memory_kib, passes, lanes) = method
        .cost()
        .map_or((0, 0, 0), |cost| (cost.memory_kib, cost.passes, cost.lanes));
    let mut data = b"strongroom v1 slot\0".to_vec();
    data.extend_from_slice(room.as_bytes());
    data.extend_from_slice(&id.to_be_bytes());
    data.push(method.kind().id());
    for number in [memory_kib, passes, lanes] {
        data.extend_from_slice(&number.to_be_bytes());
    }
    data.extend_from_slice(salt);
    data
}

pub(crate) fn wrapping_key(
    secret: &SlotSecret,
    salt: &[u8; SALT_LEN],
    kind: SlotKind,
    room: &RoomId,
) -> SlotSecret {
    let mut key = SlotSecret::default();
    derive(secret.as_slice(), salt, kind.purpose(), room, &[], &mut key);
    key
}

pub(crate) fn stretch(
    secret: &Secret,
    salt: &[u8; SALT_LEN],
    cost: &Argon2Cost,
) -> Result<SlotSecret, SealError> {
    let mut out = SlotSecret::default();
    cost.run(secret.expose(), &[], salt, &mut out)?;
    Ok(out)
}

/// The key file's content is Argon2's secret value K (RFC 9106, section 3.1), which is hashed with its length beside the
/// passphrase: each guess at a passphrase needs the file, and costs the same work.
pub(crate) fn stretch_both(
    passphrase: &Secret,
    key_file: &Secret,
    salt: &[u8; SALT_LEN],
    cost: &Argon2Cost,
) -> Result<SlotSecret, SealError> {
    let mut out = SlotSecret::default();
    cost.run(passphrase.expose(), key_file.expose(), salt, &mut out)?;
    Ok(out)
}

fn raw(secret: &Secret) -> Result<SlotSecret, SealError> {
    let bytes = secret.expose();
    let mut out = SlotSecret::default();
    if bytes.len() != out.len() {
        return Err(SealError::RawKeyLength(bytes.len()));
    }
    out.copy_from_slice(bytes);
    Ok(out)
}

fn seal_for(recipients: &[NamedRecipient], secret: &SlotSecret) -> Result<Vec<u8>, SealError> {
    if recipients.len() > RECIPIENTS_MAX {
        let problem = format!("a slot has at most {RECIPIENTS_MAX} recipients");
        return Err(SealError::BadRecipient(problem));
    }
    if !recipients.iter().all(|named| is_allowed(&named.text)) {
        let problem = format!(
            "a recipient's text has at most {RECIPIENT_LEN_MAX} bytes and no control characters"
        );
        return Err(SealError::BadRecipient(problem));
    }
    let list: Vec<_> = recipients.iter().map(|r| r.recipient.clone()).collect();
    let seal = move || {
        let each = list.iter().map(|r| &**r as &dyn age::Recipient);
        age::Encryptor::with_recipients(each)
    };
    let mut programs: Vec<_> = recipients
        .iter()
        .filter_map(|named| recipient_plugin(&named.text))
        .collect();
    programs.dedup();
    let sealed = match programs.is_empty() {
        true => seal(),
        false => {
            let limit = recipients.iter().find_map(|named| named.limit);
            plugin::call(limit, seal)
                .ok_or_else(|| recipients::too_late(&programs.join(", "), limit))?
        }
    };
    let encryptor = sealed.map_err(|error| recipients::not_wrapped(&programs, &error))?;
    let mut file = Vec::new();
    let mut writer = encryptor.wrap_output(&mut file).map_err(SealError::age)?;
    writer
        .write_all(secret.as_slice())
        .map_err(SealError::age)?;
    writer.finish().map_err(SealError::age)?;
    if file.len() > AGE_FILE_LEN_MAX {
        return Err(SealError::Age(format!(
            "its file is longer than {AGE_FILE_LEN_MAX} bytes"
        )));
    }
    Ok(file)
}

/// Whether a recipient's text is allowed in a header: it is shown to people, perhaps before it is verified.
pub(crate) fn is_allowed(recipient: &impl AsRef<str>) -> bool {
    let text = recipient.as_ref();
    text.len() <= RECIPIENT_LEN_MAX && !text.chars().any(char::is_control)
}

/// The key inside an age file. An identity that fails does not keep the next from being tried.
fn open_with(identities: &[NamedIdentity], file: &[u8]) -> Result<Option<SlotSecret>, SealError> {
    let mut failure = None;
    for named in identities {
        match open_with_one(named, file) {
            Ok(None) => {}
            Ok(opened) => return Ok(opened),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(None), Err)
}

fn open_with_one(named: &NamedIdentity, file: &[u8]) -> Result<Option<SlotSecret>, SealError> {
    let tried = match &named.program {
        None => try_identity(&*named.identity, file)?,
        Some(program) => {
            let (identity, file) = (Arc::clone(&named.identity), file.to_vec());
            plugin::call(named.limit, move || try_identity(&*identity, &file))
                .ok_or_else(|| recipients::too_late(program, named.limit))??
        }
    };
    match (tried, &named.program) {
        (Ok(secret), _) => Ok(Some(secret)),
        (Err(age::DecryptError::NoMatchingKeys), None) => Ok(None),
        (Err(age::DecryptError::NoMatchingKeys), Some(program)) => {
            recipients::cannot_start(program).map_or(Ok(None), Err)
        }
        (Err(error), None) => Err(SealError::age(error)),
        (Err(error), Some(program)) => Err(recipients::of_plugin(program, &error)),
    }
}

/// What an identity makes of an age file.
fn try_identity(
    identity: &dyn age::Identity,
    file: &[u8],
) -> Result<Result<SlotSecret, age::DecryptError>, SealError> {
    let decryptor = age::Decryptor::new_buffered(file).map_err(SealError::age)?;
    let mut reader = match decryptor.decrypt(std::iter::once(identity)) {
        Ok(reader) => reader,
        Err(error) => return Ok(Err(error)),
    };
    let mut secret = SlotSecret::default();
    reader
        .read_exact(secret.as_mut_slice())
        .map_err(SealError::age)?;
    // One byte more than a secret has would show a file that this program did not make.
    match reader.read(&mut [0]) {
        Ok(0) => Ok(Ok(secret)),
        Ok(_) => Err(SealError::Age(
            "the slot's age file holds more than a key".into(),
        )),
        Err(error) => Err(SealError::age(error)),
    }
}
