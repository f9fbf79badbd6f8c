//! The header's part of a rekey: from one master key to the next.
//!
//! Invariants:
//! 1. While a rekey is unfinished the header holds the old master key, wrapped under the new one, so an opened room has
//!    both.
//! 2. A slot is carried over only by someone who can wrap for it again; nothing is carried over unasked but
//!    recipients, whose texts the header's code vouches for.
//!
//! It does not know what is sealed with which key: the caller re-seals, then finishes.

use std::sync::OnceLock;

use crate::header::{Header, Previous, fingerprint, text};
use crate::plugin::UNATTENDED;
use crate::slot::{KeySlot, SlotMethod};
use crate::{Credential, MasterKey, NamedRecipient, NewCredential, SealError, SlotInfo};

impl Header {
    /// Gives the room a new master key. From here on the header is written and opened with `new`; `old`
    /// stays in it, wrapped, until [`Header::finish_rekey`].
    ///
    /// The catalog is rewritten under `new`: with the features that a new room has.
    ///
    /// Kept are the slots in `keep`, whose credentials must open them, wrapped again with a fresh salt at their old
    /// cost; and the recipients' slots whose recipients can still be used. Returned are the slots that had to go.
    ///
    /// # Errors
    /// Nothing has changed after any of them. [`SealError::RekeyUnderWay`]; [`SealError::HeaderForged`]
    /// when `old` is not this header's; [`SealError::NoSuchSlot`], [`SealError::KindMismatch`],
    /// [`SealError::WrongCredential`] for what is in `keep`; [`SealError::NothingKept`] when no slot would
    /// remain.
    pub fn begin_rekey(
        &mut self,
        old: &MasterKey,
        new: &MasterKey,
        keep: &[(u32, &Credential)],
    ) -> Result<Vec<SlotInfo>, SealError> {
        if self.previous.is_some() {
            return Err(SealError::RekeyUnderWay);
        }
        self.verify(old)?;
        for (id, _) in keep {
            self.position(*id)?;
        }
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for slot in &self.slots {
            let given = keep
                .iter()
                .find(|(id, _)| *id == slot.id)
                .map(|(_, credential)| *credential);
            match self.carried(slot, new, given)? {
                Some(slot) => kept.push(slot),
                None => gone.push(slot.info()),
            }
        }
        if kept.is_empty() {
            return Err(SealError::NothingKept);
        }
        text::check_len(&kept)?;
        let wrapped = new.wrap_previous(&self.room, self.epoch, old);
        self.previous = Some(Previous {
            epoch: self.epoch,
            wrapped,
        });
        self.epoch += 1;
        self.renew();
        self.slots = kept;
        self.revision += 1;
        self.verified = OnceLock::from(fingerprint(new, &self.room));
        Ok(gone)
    }

    /// The slot wrapped again; `None` when that is impossible here.
    fn carried(
        &self,
        slot: &KeySlot,
        new: &MasterKey,
        given: Option<&Credential>,
    ) -> Result<Option<KeySlot>, SealError> {
        if let Some(credential) = given {
            // A mistyped credential must not become the only one that opens the room.
            let opened = slot.open(&self.room, credential)?;
            let kind = credential.kind();
            let master = opened.ok_or(SealError::WrongCredential { kind })?;
            self.verify(&master)?;
        }
        let credential = match (&slot.method, given) {
            (SlotMethod::Passphrase(cost), Some(Credential::Passphrase(secret))) => {
                NewCredential::Passphrase {
                    secret: secret.clone(),
                    cost: *cost,
                }
            }
            (SlotMethod::KeyFile(cost), Some(Credential::KeyFile(secret))) => {
                NewCredential::KeyFile {
                    secret: secret.clone(),
                    cost: *cost,
                }
            }
            (
                SlotMethod::PassphraseAndKeyFile(cost),
                Some(Credential::PassphraseAndKeyFile {
                    passphrase,
                    key_file,
                }),
            ) => NewCredential::PassphraseAndKeyFile {
                passphrase: passphrase.clone(),
                key_file: key_file.clone(),
                cost: *cost,
            },
            (SlotMethod::RawKey, Some(Credential::RawKey(secret))) => {
                NewCredential::RawKey(secret.clone())
            }
            (SlotMethod::Recipients { texts, .. }, _) => {
                let parse = |text: &String| {
                    let recipient = NamedRecipient::parse(text, age::NoCallbacks)?;
                    Ok::<_, SealError>(NamedRecipient {
                        limit: Some(UNATTENDED),
                        ..recipient
                    })
                };
                match texts.iter().map(parse).collect() {
                    Ok(recipients) => NewCredential::Recipients(recipients),
                    Err(_) => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        let (id, label, created) = (slot.id, &slot.label, slot.created_unix_s);
        match KeySlot::make(&self.room, id, new, &credential, label, created) {
            // A recipient's plugin that is gone or wants to ask something: the slot goes, and the caller
            // says so.
            Err(SealError::Age(_)) => Ok(None),
            made => made.map(Some),
        }
    }

    /// Whether a rekey has begun and not ended.
    pub fn rekey_under_way(&self) -> bool {
        self.previous.is_some()
    }

    /// Forgets the master key of before. Call it when nothing sealed with it is left. Without a rekey it
    /// does nothing.
    pub fn finish_rekey(&mut self) {
        if self.previous.take().is_some() {
            self.revision += 1;
        }
    }
}
