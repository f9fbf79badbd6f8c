//! Backups of headers with their key slots, in the form of cryptsetup's `luksHeaderBackup`: the bytes from the start of
//! the device to the end of the place for key slots.
//!
//! 1. A backup that is put back was checked as a header first, and fits before the data.
//! 2. Putting one back overwrites key slots, which no order of writes can undo: the header that was there stays in force
//!    until all material is written, and the one from the backup takes over with a higher sequence number. After a loss
//!    of power in between, put the backup back again.
//! 3. Without force a header takes the place only of one with the same key for the same data, and of none in the middle of
//!    a reencryption: the state of that is in the header, and goes with it.
//!
//! Anyone with a backup and a passphrase that was valid then can open the volume, whatever changed since.

use std::sync::Arc;

use device::Device;
use zeroize::Zeroizing;

use super::error::{LuksError, Result, io};
use super::{Header, Luks, v1};

/// Why a backup is not put back.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RestoreRefusal {
    /// It is of another volume.
    #[error(
        "the backup is of the volume {backup}, and the device has {device}; restore it by force if you are sure"
    )]
    OtherVolume {
        /// UUID in the backup.
        backup: String,
        /// UUID on the device.
        device: String,
    },
    /// The device has a header of another version or layout, so its data would begin elsewhere.
    #[error(
        "the device's header has its data at {device}, the backup's at {backup}; restore it by force if you are sure"
    )]
    OtherLayout {
        /// What the backup says.
        backup: String,
        /// What the device says.
        device: String,
    },
    /// It opens another key than the device's header: one that the data was under before a reencryption, as a rule.
    #[error(
        "the backup opens another key than the volume has now, as it does after a reencryption: restored, it makes the data unreadable; make a new backup, and restore this one by force only if the data is under its key"
    )]
    OtherKey,
    /// It was made during a reencryption, or with something else that the volume required; which goes on where the
    /// backup says, and not where the data is.
    #[error(
        "the backup is of a volume that required {0:?}, as it does during a reencryption, and says nothing of what was done to the data since; restore it by force if you are sure that this was nothing"
    )]
    BackupRequires(String),
    /// The device's header requires something that the one in the backup knows nothing of, as during a reencryption.
    #[error(
        "the volume requires {0:?}, as it does during a reencryption, of which a backup knows nothing: finish that first; restore the backup by force if you are sure"
    )]
    DeviceRequires(String),
    /// There is no header on the device that could be compared.
    #[error("the device has no LUKS header; restore the backup by force if you are sure")]
    NoHeader,
    /// The device's header cannot be compared.
    #[error(
        "the device's header cannot be read ({0}), so nobody knows whether the backup is of it; restore it by force if you are sure"
    )]
    Unreadable(String),
    /// The bytes are too few.
    #[error("the backup is cut short: {have} bytes of {need}")]
    Short {
        /// Bytes there are.
        have: u64,
        /// Bytes there must be.
        need: u64,
    },
}

/// The header of a device with its key slots. Both copies of a LUKS2 header are whole in it, also where one on the device
/// is not.
pub fn backup_header(device: &Arc<dyn Device>) -> Result<Zeroizing<Vec<u8>>> {
    let luks = Luks::read(Arc::clone(device))?;
    luks.check_places()?;
    let len = luks.backup_len();
    if len > device.len() {
        return Err(LuksError::TooSmall {
            what: "the header",
            have: device.len(),
            need: len,
        });
    }
    // At most 8 MiB and 128 MiB for LUKS2, 128 MiB for LUKS1.
    let mut bytes = Zeroizing::new(vec![0; len as usize]);
    // A copy of a LUKS2 header that is not whole may not be readable, and is made from the other one.
    let from = match &luks.header {
        Header::V2(header) if !header.is_whole() => 2 * header.binary.size,
        _ => 0,
    };
    device
        .read_at(&mut bytes[from as usize..], from)
        .map_err(io("reading the header"))?;
    if let Header::V1(header) = &luks.header {
        // The bytes around the slots have no meaning.
        let first = header
            .slots
            .iter()
            .map(|slot| header.material(slot).0)
            .min();
        let first = first.unwrap_or(0).clamp(v1::LEN as u64, len);
        bytes[v1::LEN..first as usize].fill(0);
        bytes[header.whole_region() as usize..].fill(0);
    }
    if let Header::V2(header) = &luks.header {
        let size = header.binary.size as usize;
        let [first, second] = header.encode()?;
        if !header.is_whole() {
            bytes[..size].copy_from_slice(&first);
            bytes[size..2 * size].copy_from_slice(&second);
        }
    }
    Ok(bytes)
}

/// Reads a backup that is whole.
///
/// # Errors
/// [`RestoreRefusal::Short`] and whatever is wrong with the header in it.
pub fn read_backup(backup: &[u8]) -> Result<Luks> {
    let held: Arc<dyn Device> = Arc::new(device::MemoryDevice::read_only(backup.to_vec()));
    let from = Luks::read(held)?;
    from.check_places()?;
    let len = from.backup_len();
    if (backup.len() as u64) < len {
        return Err(RestoreRefusal::Short {
            have: backup.len() as u64,
            need: len,
        }
        .into());
    }
    Ok(from)
}

/// Puts a backup's header and key slots in the place of the device's. `force` does so also for another volume's, for
/// another key than the volume's, while either requires something (a reencryption has not ended), or where the device has
/// no header or none that can be read: the data can then be lost.
///
/// # Errors
/// [`LuksError::Restore`] and those of [`read_backup`], before anything is written.
pub fn restore_header(device: &Arc<dyn Device>, backup: &[u8], force: bool) -> Result<Luks> {
    let from = read_backup(backup)?;
    let len = from.backup_len();
    if len > device.len() {
        return Err(LuksError::TooSmall {
            what: "the header",
            have: device.len(),
            need: len,
        });
    }
    let now = match Luks::read(Arc::clone(device)) {
        Ok(now) => Some(now),
        // By force it is written over, which is what repairs a sector.
        Err(LuksError::Io { source, .. }) if !force => {
            return Err(RestoreRefusal::Unreadable(source.to_string()).into());
        }
        Err(_) => None,
    };
    if !force {
        compare(&from, now.as_ref())?;
    }
    let seqid = match now.as_ref().map(|luks| &luks.header) {
        Some(Header::V2(header)) => header.binary.seqid,
        _ => 0,
    };
    // Checked above to be no longer than the backup.
    let bytes = &backup[..len as usize];
    match from.header {
        Header::V1(header) => {
            let start = v1::LEN;
            // Where the last page of the backup ends there may be data.
            let end = header.whole_region() as usize;
            device
                .write_at(&bytes[start..end], start as u64)
                .map_err(io("writing the key slots"))?;
            device.flush().map_err(io("making the key slots durable"))?;
            device
                .write_at(&bytes[..start], 0)
                .map_err(io("writing the header"))?;
            device.flush().map_err(io("making the header durable"))?;
            Ok(Luks {
                device: Arc::clone(device),
                header: Header::V1(header),
            })
        }
        Header::V2(mut header) => {
            let start = 2 * header.binary.size;
            device
                .write_at(&bytes[start as usize..], start)
                .map_err(io("writing the key slots"))?;
            device.flush().map_err(io("making the key slots durable"))?;
            header.binary.seqid = header.binary.seqid.max(seqid);
            let relies_on_second = matches!(
                now.as_ref().and_then(Luks::copies),
                Some([first, _]) if *first != super::CopyState::Good
            );
            header.take_over(relies_on_second);
            let json = header.json.clone();
            header.write(&**device, json)?;
            Ok(Luks {
                device: Arc::clone(device),
                header: Header::V2(header),
            })
        }
    }
}

/// Whether a backup is of the volume on the device.
fn compare(from: &Luks, now: Option<&Luks>) -> Result<()> {
    let Some(now) = now else {
        return Err(RestoreRefusal::NoHeader.into());
    };
    if from.uuid() != now.uuid() {
        return Err(RestoreRefusal::OtherVolume {
            backup: from.uuid().to_owned(),
            device: now.uuid().to_owned(),
        }
        .into());
    }
    if let Some(name) = now.requirement() {
        return Err(RestoreRefusal::DeviceRequires(name).into());
    }
    if let Some(name) = from.requirement() {
        return Err(RestoreRefusal::BackupRequires(name).into());
    }
    let (backup, device) = (from.layout(), now.layout());
    if backup != device {
        return Err(RestoreRefusal::OtherLayout { backup, device }.into());
    }
    if from.key_digest() != now.key_digest() {
        return Err(RestoreRefusal::OtherKey.into());
    }
    Ok(())
}

impl Luks {
    fn backup_len(&self) -> u64 {
        match &self.header {
            Header::V1(header) => header.whole_region().next_multiple_of(4096),
            Header::V2(header) => header.region(),
        }
    }

    /// The first thing that is required of who opens the volume.
    fn requirement(&self) -> Option<String> {
        match &self.header {
            Header::V1(_) => None,
            Header::V2(header) => header.metadata.requirements.first().cloned(),
        }
    }

    /// Salt and digest of the data's key, which a key keeps as long as it is the volume's; `None` where nothing opens it.
    fn key_digest(&self) -> Option<(&[u8], &[u8])> {
        match &self.header {
            Header::V1(header) => Some((&header.digest_salt, &header.digest)),
            Header::V2(header) => {
                let digest = header.data_digest().ok()?.1;
                Some((&digest.salt, &digest.digest))
            }
        }
    }

    /// Whether what a backup takes in is the header's: LUKS1 has places for slots that are not in use, too. A LUKS2 header
    /// that reaches into data was made for data on another device.
    fn check_places(&self) -> Result<()> {
        match &self.header {
            Header::V1(header) => header.check_all_places(),
            Header::V2(_) => Ok(()),
        }
    }

    /// Where the data is, and how encrypted; for the message as well as for comparison.
    fn layout(&self) -> String {
        match &self.header {
            Header::V1(header) => {
                format!(
                    "byte {} (LUKS1, {})",
                    header.payload_bytes(),
                    header.cipher()
                )
            }
            Header::V2(header) => match header.data_segment() {
                Ok((segment, crypt)) => format!(
                    "byte {} (LUKS2, {}, sectors of {} bytes, a header of {} bytes)",
                    segment.offset,
                    crypt.encryption,
                    crypt.sector_size,
                    header.region()
                ),
                Err(error) => format!("no one place (LUKS2, {error})"),
            },
        }
    }
}
