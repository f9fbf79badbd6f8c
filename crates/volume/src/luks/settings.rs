//! What a LUKS2 header says besides its keys: label, subsystem, UUID, flags, length of the data.

use device::Device;
use serde_json::{Value, json};

use super::error::{LuksError, Result};
use super::v2::binary::check_text;
use super::v2::edit::size_json;
use super::{Header, Luks, v1};

/// Flags for activation that the specification knows (table 3.6); what they mean to the kernel's device-mapper.
pub(super) const FLAGS: [&str; 6] = [
    "allow-discards",
    "same-cpu-crypt",
    "submit-from-crypt-cpus",
    "no-journal",
    "no-read-workqueue",
    "no-write-workqueue",
];

impl Luks {
    /// Sets label and subsystem, at most 47 bytes each; empty for none.
    pub fn set_label(&mut self, label: &str, subsystem: &str) -> Result<()> {
        check_text("label", label, 48)?;
        check_text("subsystem", subsystem, 48)?;
        self.change(|header| {
            header.binary.label = label.to_owned();
            header.binary.subsystem = subsystem.to_owned();
            Ok(header.json.clone())
        })
    }

    /// Sets the UUID, in its usual form.
    pub fn set_uuid(&mut self, uuid: &str) -> Result<()> {
        let uuid = uuid::Uuid::try_parse(uuid)
            .map_err(|e| LuksError::Option(format!("no UUID: {e}")))?
            .to_string();
        if let Header::V1(header) = &mut self.header {
            let mut next = v1::Header::clone(header);
            next.uuid = uuid;
            return header.write(&*self.device, next);
        }
        self.change(|header| {
            header.binary.uuid = uuid;
            Ok(header.json.clone())
        })
    }

    /// Sets the flags for activation, in the place of those there are.
    pub fn set_flags(&mut self, flags: &[&str]) -> Result<()> {
        if let Some(unknown) = flags.iter().find(|flag| !FLAGS.contains(flag)) {
            return Err(LuksError::Option(format!(
                "the flag {unknown:?} is not known; known are {}",
                FLAGS.join(", ")
            )));
        }
        self.change(|header| {
            let mut json = header.json.clone();
            json["config"]["flags"] = json!(flags);
            Ok(json)
        })
    }

    /// Sets the length of the data in bytes, or with `None` lets it be all that `data` (the header's own device if it is
    /// no other) has. The data itself is neither moved nor read; bytes behind a shorter length stay on the device.
    pub fn resize(&mut self, data: Option<&dyn Device>, len: Option<u64>) -> Result<()> {
        let have = data.map_or(self.device.len(), Device::len);
        self.change(|header| {
            let (segment, crypt) = header.data_segment()?;
            if let Some(len) = len {
                if len == 0 || len % u64::from(crypt.sector_size) != 0 {
                    return Err(LuksError::Option(format!(
                        "the length must be a multiple of the sectors' {} bytes, not {len}",
                        crypt.sector_size
                    )));
                }
                let need = segment.offset.saturating_add(len);
                if need > have {
                    return Err(LuksError::TooSmall {
                        what: "the data",
                        have,
                        need,
                    });
                }
            }
            let number = header
                .metadata
                .segments
                .iter()
                .find(|(_, s)| !s.is_backup());
            let number = number.map(|(n, _)| n.to_string()).unwrap_or_default();
            let mut json = header.json.clone();
            let segment: &mut Value = &mut json["segments"][number];
            segment["size"] = size_json(len);
            Ok(json)
        })
    }

    /// Changes the header by `change`, which gives new JSON and may alter the binary part, and writes it.
    fn change(
        &mut self,
        change: impl FnOnce(&mut super::v2::Header) -> Result<Value>,
    ) -> Result<()> {
        self.check_requirements()?;
        self.repair_copies()?;
        match &mut self.header {
            Header::V1(_) => Err(LuksError::Unsupported(
                "LUKS1 has no label, no flags and no length of its own".into(),
            )),
            Header::V2(header) => {
                let mut next = header.clone();
                let json = change(&mut next)?;
                next.write(&*self.device, json)?;
                *header = next;
                Ok(())
            }
        }
    }
}
