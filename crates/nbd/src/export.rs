//! What is served: devices by name.

use std::sync::Arc;

use device::Device;

use crate::proto::{STRING_MAX, flag};

/// A device under a name.
#[derive(Debug, Clone)]
pub struct Export {
    /// At most 4096 bytes; the empty name is what clients ask for who ask for none.
    pub name: String,
    /// For people; at most 4096 bytes.
    pub description: String,
    /// Its contents. All connections share it, so a flush asked for by one covers what was written through any.
    pub device: Arc<dyn Device>,
    /// Refuses changes also where the device takes them.
    pub read_only: bool,
}

impl Export {
    /// Whether changes are refused.
    pub fn is_read_only(&self) -> bool {
        self.read_only || self.device.is_read_only()
    }

    /// The transmission flags: what a client may do.
    pub(crate) fn flags(&self, structured: bool) -> u16 {
        let mut flags = flag::HAS_FLAGS | flag::FLUSH | flag::FUA | flag::MULTI_CONN | flag::CACHE;
        if self.is_read_only() {
            flags |= flag::READ_ONLY;
        } else {
            flags |= flag::TRIM | flag::WRITE_ZEROES | flag::FAST_ZERO;
        }
        if structured {
            flags |= flag::DF;
        }
        flags
    }
}

/// All exports of a server, each name once.
#[derive(Debug)]
pub(crate) struct Exports(Vec<Export>);

/// Why exports cannot be served together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// None at all.
    #[error("nothing to serve was named")]
    Nothing,
    /// A name twice.
    #[error("two exports are named '{0}': give each a name of its own")]
    Twice(String),
    /// Longer than the protocol allows, or with a NUL in it.
    #[error("the export's name or description is longer than 4096 bytes, or has a NUL in it")]
    Name,
}

impl Exports {
    /// The first is what clients get who ask for no name, unless one has the empty name.
    pub(crate) fn new(exports: Vec<Export>) -> Result<Self, ExportError> {
        if exports.is_empty() {
            return Err(ExportError::Nothing);
        }
        for (i, export) in exports.iter().enumerate() {
            for text in [&export.name, &export.description] {
                if text.len() > STRING_MAX || text.contains('\0') {
                    return Err(ExportError::Name);
                }
            }
            if exports[..i].iter().any(|other| other.name == export.name) {
                return Err(ExportError::Twice(export.name.clone()));
            }
        }
        Ok(Self(exports))
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<&Export> {
        let exact = self.0.iter().find(|export| export.name.as_bytes() == name);
        match exact {
            None if name.is_empty() => self.0.first(),
            found => found,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Export> {
        self.0.iter()
    }
}
