//! Reencryption of a LUKS2 volume in place, to a new key and, if wanted, another cipher or sector size.
//!
//! It is LUKS2's own ("online-reencrypt-v2"), from the start of the data to its end, with a journal: cryptsetup can
//! resume what was begun here, and the other way round. A step:
//!
//! 1. The next part's old ciphertext is written to the journal, and made durable.
//! 2. The header says that this part is being written.
//! 3. The part is written under the new key, and made durable.
//! 4. The header says that it is done.
//!
//! Cut off before 2 or after 4, the part is whole; in between it comes from the journal again, whatever was torn. After the
//! last part the header says so, the old key's slots and the journal are wiped, and the header becomes that of the new
//! volume. Cut off there, it goes on with the new key alone: nothing is left to decrypt, and the old key may be gone
//! already, without which cryptsetup does not go on. Nothing but this can be done with the volume until it has ended.
//!
//! It deliberately does not encrypt plain data, decrypt for good, or go backwards: that is refused by name.

use std::ops::ControlFlow;
use std::sync::Arc;

use aws_lc_rs::digest;
use device::Device;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::error::{LuksError, Result, io};
use super::format::digest_of;
use super::hash::Hash;
use super::kdf::{self, DIGEST_ITERATIONS, KdfOptions, Limits, SALT_LEN};
use super::material;
use super::run::{REQUIREMENT, Run, Safety};
use super::v2::edit::{self, digest_json};
use super::v2::metadata::{Crypt, Metadata};
use super::{Confirmation, Header, Luks, VolumeKey, v2};
use crate::sector::SectorCipher;

/// Most bytes of a step, which are held in memory.
const STEP_MAX: u64 = 16 << 20;
/// Steps are multiples of this, the largest sector.
const STEP_ALIGN: u64 = 4096;

/// What shall be different afterwards. The key always is.
#[derive(Debug, Clone, Default)]
pub struct ReencryptOptions {
    /// As dm-crypt names it; `None` for the one there is.
    pub cipher: Option<String>,
    /// Bytes of the new key; `None` for as long as the old one.
    pub key_len: Option<usize>,
    /// Bytes of a sector; `None` for the size there is.
    pub sector_size: Option<u32>,
    /// For the new key slots; `None` for the default.
    pub kdf: Option<KdfOptions>,
    /// Key slots whose passphrase is not given are lost.
    pub drop_other_keys: bool,
}

/// How far a reencryption has come, in bytes of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Under the new key.
    pub done: u64,
    /// In all.
    pub total: u64,
}

impl Luks {
    /// Whether a reencryption was begun and has not ended. Until it has, nothing else can be done with the volume.
    pub fn is_reencrypting(&self) -> bool {
        match &self.header {
            Header::V1(_) => false,
            Header::V2(header) => header
                .metadata
                .requirements
                .iter()
                .any(|r| r == REQUIREMENT),
        }
    }

    /// Prepares a reencryption: a new key, in slots for these passphrases, each of which must open the volume now; and a
    /// journal in what is left of the place for key slots. No data is touched; [`Luks::reencrypt`] goes on from here.
    /// `data` is the device of the data where it is another.
    pub fn begin_reencryption(
        &mut self,
        data: Option<&dyn Device>,
        passphrases: &[&[u8]],
        options: &ReencryptOptions,
        limits: &Limits,
    ) -> Result<()> {
        let kdf = options.kdf.clone().unwrap_or_else(|| self.default_kdf());
        kdf.check()?;
        self.check_requirements()?;
        let mut opened = Vec::new();
        let mut old_key = None;
        for passphrase in passphrases {
            let (key, slot) = self.unlock(passphrase, limits)?;
            opened.push(slot);
            old_key = Some(key);
        }
        let Some(old_key) = old_key else {
            return Err(LuksError::Option(
                "at least one passphrase is needed".into(),
            ));
        };
        self.check_no_slot_is_lost(&opened, options)?;
        self.repair_copies()?;
        let data_len = data.map_or(self.device.len(), Device::len);
        let Header::V2(header) = &mut self.header else {
            return Err(LuksError::Unsupported("reencrypting LUKS1 volumes".into()));
        };
        let (segment, crypt) = header.data_segment()?;
        let new_crypt = Crypt {
            encryption: options
                .cipher
                .clone()
                .unwrap_or_else(|| crypt.encryption.clone()),
            sector_size: options.sector_size.unwrap_or(crypt.sector_size),
            ..crypt.clone()
        };
        let rest = data_len.saturating_sub(segment.offset);
        let total = segment.size.unwrap_or(rest);
        if total > rest || total == 0 {
            return Err(LuksError::TooSmall {
                what: "the data",
                have: data_len,
                need: segment.offset.saturating_add(total.max(512)),
            });
        }
        let sector = u64::from(new_crypt.sector_size.max(crypt.sector_size));
        if sector > 4096 || !total.is_multiple_of(sector) {
            return Err(LuksError::Option(format!(
                "the data's {total} bytes are not whole sectors of {sector} bytes"
            )));
        }
        let mut new_key =
            Zeroizing::new(vec![0; options.key_len.unwrap_or(old_key.expose().len())]);
        getrandom::fill(&mut new_key).map_err(|e| LuksError::Derivation(e.to_string()))?;
        SectorCipher::new(
            &new_crypt.encryption,
            &new_key,
            new_crypt.sector_size as usize,
        )?;

        let salt = kdf::random::<SALT_LEN>()?;
        let digest = digest_of(Hash::Sha256, &new_key, &salt, 32)?;
        let new_key = VolumeKey {
            bytes: new_key,
            digest: digest.clone(),
        };
        let mut next = (**header).clone();
        let old_digest = header.data_digest()?.0;
        let new_digest = next.free_digest()?;
        next.adopt(|json| {
            json["digests"][new_digest.to_string()] =
                digest_json(&[], &[], &salt, &digest, DIGEST_ITERATIONS);
        })?;
        for passphrase in passphrases {
            let slot = next.free_slot(None)?;
            let json = next.new_slot(
                &*self.device,
                &new_key,
                &new_crypt.encryption,
                passphrase,
                &kdf,
            )?;
            let json = next.with_slot(slot, json, new_digest)?;
            next.adopt(|now| *now = json)?;
        }
        let slot = next.free_slot(None)?;
        let run = Run {
            slot,
            area: next.largest_gap(STEP_ALIGN)?,
            old: (segment.offset, segment.size, crypt.clone()),
            new: new_crypt,
            old_digest,
            new_digest,
            done: 0,
            hot: None,
            total,
            safety: Safety::Journal,
            ended: false,
        };
        let json = run.begun(&next, &old_key, &new_key)?;
        header.write(&*self.device, json)
    }

    fn check_no_slot_is_lost(&self, opened: &[u8], options: &ReencryptOptions) -> Result<()> {
        let lost: Vec<String> = self
            .slots_that_open()?
            .iter()
            .filter(|slot| !opened.contains(slot))
            .map(u8::to_string)
            .collect();
        if lost.is_empty() || options.drop_other_keys {
            return Ok(());
        }
        Err(LuksError::Option(format!(
            "key slots {} would be lost: give their passphrases too, or say that they shall go",
            lost.join(", ")
        )))
    }

    /// Goes on with a reencryption from wherever it is, to the end (`true`), or until `progress` breaks it off (`false`),
    /// which is asked after each step. The passphrase must open the old key and the new one; when all data is done, the new
    /// one is enough.
    ///
    /// # Errors
    /// [`LuksError::Unsupported`] where there is none, or one that only cryptsetup can finish.
    pub fn reencrypt(
        &mut self,
        data: Option<Arc<dyn Device>>,
        passphrase: &[u8],
        limits: &Limits,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<bool> {
        let own = data.is_none();
        let data = data.unwrap_or_else(|| Arc::clone(&self.device));
        let Header::V2(header) = &self.header else {
            return Err(LuksError::Unsupported("reencrypting LUKS1 volumes".into()));
        };
        let mut run = Run::of(header)?;
        if own && run.old.0 < header.region() {
            return Err(LuksError::DataElsewhere);
        }
        run.measure(data.len())?;
        let total = run.total;
        let new_key = self.unlock_for(run.new_digest, passphrase, limits)?;
        if run.ended {
            let Header::V2(header) = &mut self.header else {
                unreachable!("it was seen above");
            };
            header.repair_copies(&*self.device)?;
            run.finish(header, &*self.device)?;
            // There is nothing left to break off.
            let _ = progress(Progress { done: total, total });
            return Ok(true);
        }
        let old_key = self.unlock_for(run.old_digest, passphrase, limits)?;
        let Header::V2(header) = &mut self.header else {
            unreachable!("it was seen above");
        };
        run.verify(header, &old_key, &new_key, limits)?;
        let mut mover = Mover {
            old: SectorCipher::new(
                &run.old.2.encryption,
                old_key.expose(),
                run.old.2.sector_size as usize,
            )?,
            new: SectorCipher::new(
                &run.new.encryption,
                new_key.expose(),
                run.new.sector_size as usize,
            )?,
            header,
            device: &*self.device,
            data: &*data,
            keys: (&old_key, &new_key),
            run,
        };
        mover.header.repair_copies(mover.device)?;
        loop {
            let done = mover.step()?;
            let flow = progress(Progress { done, total });
            if done == total {
                return Ok(true);
            }
            if flow.is_break() {
                return Ok(false);
            }
        }
    }

    fn unlock_for(&self, digest: u8, passphrase: &[u8], limits: &Limits) -> Result<VolumeKey> {
        let Header::V2(header) = &self.header else {
            unreachable!("the caller has seen that it is LUKS2");
        };
        let digest = &header.metadata.digests[&digest];
        let confirmation = Confirmation::of(digest)?;
        confirmation.within(limits)?;
        let mut hindrance = None;
        for slot in &digest.keyslots {
            match self.try_slot(*slot, &confirmation, passphrase, limits) {
                Ok(Some(key)) => return Ok(key),
                Ok(None) => {}
                Err(error) => hindrance = hindrance.or(Some(error)),
            }
        }
        Err(hindrance.unwrap_or(LuksError::WrongPassphrase))
    }
}

#[cfg(test)]
mod tests;

/// What moves data from the old key to the new one.
struct Mover<'m> {
    header: &'m mut v2::Header,
    device: &'m dyn Device,
    data: &'m dyn Device,
    old: SectorCipher,
    new: SectorCipher,
    keys: (&'m VolumeKey, &'m VolumeKey),
    run: Run,
}

impl Mover<'_> {
    /// One step, or the recovery of one, and the end after the last; how far it is then.
    fn step(&mut self) -> Result<u64> {
        let len = match (self.run.hot, self.run.safety) {
            (Some(len), Safety::Checksums { hash, block }) => {
                self.rewrite_what_is_old(len, hash, block)?;
                len
            }
            (hot, _) => {
                let len = hot.map_or_else(|| self.journal(), Ok)?;
                self.rewrite(len)?;
                len
            }
        };
        self.run.done += len;
        if self.run.done < self.run.total {
            self.run.hot = None;
            let json = self.run.at(self.header);
            self.header.write(self.device, json)?;
        } else {
            let json = self.run.ending(self.header);
            self.header.write(self.device, json)?;
            self.run.finish(self.header, self.device)?;
        }
        Ok(self.run.done)
    }

    fn at(&self) -> u64 {
        self.run.old.0 + self.run.done
    }

    /// Keeps the next part in the journal, and says so in the header. Its length.
    fn journal(&mut self) -> Result<u64> {
        let room = self.run.area.size / STEP_ALIGN * STEP_ALIGN;
        let len = (self.run.total - self.run.done).min(room).min(STEP_MAX);
        // At most 16 MiB.
        let mut part = vec![0; len as usize];
        self.data
            .read_at(&mut part, self.at())
            .map_err(io("reading the data"))?;
        self.device
            .write_at(&part, self.run.area.offset)
            .map_err(io("writing the journal"))?;
        self.device
            .flush()
            .map_err(io("making the journal durable"))?;
        if self.run.safety != Safety::Journal {
            // Begun by cryptsetup with another way to be safe.
            self.run.safety = Safety::Journal;
            let json = self
                .run
                .with_journal(self.header, self.keys.0, self.keys.1)?;
            self.header.write(self.device, json)?;
        }
        self.run.hot = Some(len);
        let json = self.run.at(self.header);
        self.header.write(self.device, json)?;
        Ok(len)
    }

    /// Writes a part under the new key, from the journal.
    fn rewrite(&self, len: u64) -> Result<()> {
        // Checked to be no more than the journal, at most 128 MiB.
        let mut part = Zeroizing::new(vec![0; len as usize]);
        self.device
            .read_at(&mut part, self.run.area.offset)
            .map_err(io("reading the journal"))?;
        self.convert(&mut part, self.run.done);
        self.data
            .write_at(&part, self.at())
            .map_err(io("writing the data"))?;
        self.data.flush().map_err(io("making the data durable"))
    }

    /// Writes those blocks of a part under the new key that are still as they were: what cryptsetup left in the middle. It
    /// relies on it that a block is written wholly or not at all, as cryptsetup does.
    fn rewrite_what_is_old(&self, len: u64, hash: Hash, block: u64) -> Result<()> {
        let sum_len = hash.digest().output_len() as u64;
        let (mut at, step) = (0, STEP_ALIGN.max(block) * 256);
        while at < len {
            let now = step.min(len - at);
            // At most 16 MiB, and less of sums.
            let mut part = Zeroizing::new(vec![0; now as usize]);
            let mut sums = vec![0; (now / block * sum_len) as usize];
            self.data
                .read_at(&mut part, self.at() + at)
                .map_err(io("reading the data"))?;
            self.device
                .read_at(&mut sums, self.run.area.offset + at / block * sum_len)
                .map_err(io("reading the checksums"))?;
            let blocks = part.chunks_exact_mut(block as usize);
            for (number, (bytes, sum)) in
                blocks.zip(sums.chunks_exact(sum_len as usize)).enumerate()
            {
                if digest::digest(hash.digest(), bytes).as_ref() == sum {
                    let offset = self.run.done + at + number as u64 * block;
                    self.convert(bytes, offset);
                }
            }
            self.data
                .write_at(&part, self.at() + at)
                .map_err(io("writing the data"))?;
            at += now;
        }
        self.data.flush().map_err(io("making the data durable"))
    }

    /// From the old key to the new one; `offset` is that in the data.
    fn convert(&self, sectors: &mut [u8], offset: u64) {
        let number = self.run.old.2.iv_tweak.wrapping_add(offset / 512);
        self.old.decrypt(sectors, number);
        self.new.encrypt(sectors, number);
    }
}

impl v2::Header {
    fn free_digest(&self) -> Result<u8> {
        (0..v2::SLOTS)
            .find(|number| !self.metadata.digests.contains_key(number))
            .ok_or_else(|| LuksError::NoRoom("all 32 digests are in use".into()))
    }

    /// Changes the JSON without writing it.
    fn adopt(&mut self, change: impl FnOnce(&mut Value)) -> Result<()> {
        change(&mut self.json);
        self.metadata = Metadata::parse(&self.json, self.binary.size)?;
        Ok(())
    }
}

impl Run {
    /// Leaves nothing of the old key and of the journal; then the header is that of the new volume. Both copies of the
    /// header say already that it has come to this, so that this begins again wherever it was cut off. The other way
    /// round, nobody would know that a wipe is missing.
    fn finish(&self, header: &mut v2::Header, device: &dyn Device) -> Result<()> {
        // Whatever would be refused is refused before the wipe.
        let json = self.finished(header)?;
        Metadata::parse(&json, header.binary.size)?;
        for area in self.gone(header) {
            material::wipe(device, area.offset, area.size)?;
        }
        header.write(device, json)
    }

    /// The header's JSON at the beginning.
    fn begun(&self, header: &v2::Header, old: &VolumeKey, new: &VolumeKey) -> Result<Value> {
        let mut json = header.json.clone();
        json["keyslots"][self.slot.to_string()] = json!({
            "type": "reencrypt",
            "key_size": 1,
            "mode": "reencrypt",
            "direction": "forward",
            "priority": 0,
            "area": {
                "type": "journal",
                "offset": self.area.offset.to_string(),
                "size": self.area.size.to_string(),
            },
        });
        json["config"]["requirements"] = json!({ "mandatory": [REQUIREMENT] });
        let mut next = header.clone();
        next.json = json;
        self.place(&mut next.json);
        self.vouched(&next, old, new)
    }

    /// With the journal in the place of another way to be safe.
    fn with_journal(&self, header: &v2::Header, old: &VolumeKey, new: &VolumeKey) -> Result<Value> {
        let mut next = header.clone();
        next.json["keyslots"][self.slot.to_string()]["area"] = json!({
            "type": "journal",
            "offset": self.area.offset.to_string(),
            "size": self.area.size.to_string(),
        });
        self.vouched(&next, old, new)
    }

    /// With the digest, under both keys, of what says how the reencryption goes.
    fn vouched(&self, header: &v2::Header, old: &VolumeKey, new: &VolumeKey) -> Result<Value> {
        let mut json = header.json.clone();
        let slot = self.slot.to_string();
        // A digest of an earlier state goes.
        if let Some(digests) = json["digests"].as_object_mut() {
            digests.retain(|_, digest| digest["keyslots"] != json!([slot]));
        }
        let data = Run::statement(&json, self.slot, old, new)?;
        let salt = kdf::random::<SALT_LEN>()?;
        let digest = digest_of(Hash::Sha256, &data, &salt, 32)?;
        let number = (0..v2::SLOTS)
            .find(|number| json["digests"].get(number.to_string()).is_none())
            .ok_or_else(|| LuksError::NoRoom("all 32 digests are in use".into()))?;
        json["digests"][number.to_string()] =
            edit::digest_json(&[self.slot], &[], &salt, &digest, DIGEST_ITERATIONS);
        Ok(json)
    }
}
