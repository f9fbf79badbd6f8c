//! Values of a LUKS2 header's JSON, taken with their path, so that an error says where it is.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::luks::error::{LuksError, Result};

/// A value and its path in the document.
#[derive(Clone)]
pub(super) struct Node<'v> {
    value: &'v Value,
    path: String,
}

impl<'v> Node<'v> {
    pub(super) fn root(value: &'v Value) -> Self {
        Self {
            value,
            path: String::new(),
        }
    }

    /// The value is not as it must be.
    pub(super) fn bad(&self, what: &str) -> LuksError {
        let path = if self.path.is_empty() {
            "the JSON"
        } else {
            &self.path
        };
        LuksError::Malformed(format!("{path} {what}"))
    }

    fn object(&self) -> Result<&'v Map<String, Value>> {
        self.value
            .as_object()
            .ok_or_else(|| self.bad("is no object"))
    }

    fn child(&self, name: &str, value: &'v Value) -> Self {
        // Names are a stranger's text, which may be long and drive a terminal.
        let name: String = name.chars().take(40).flat_map(char::escape_debug).collect();
        let path = if self.path.is_empty() {
            name
        } else {
            format!("{}.{name}", self.path)
        };
        Self { value, path }
    }

    /// A field that may be absent.
    pub(super) fn maybe(&self, name: &str) -> Result<Option<Self>> {
        Ok(self.object()?.get(name).map(|v| self.child(name, v)))
    }

    /// A field that must be there.
    pub(super) fn get(&self, name: &str) -> Result<Self> {
        self.maybe(name)?
            .ok_or_else(|| self.bad(&format!("has no {name:?}")))
    }

    /// An object whose names are numbers below 32.
    pub(super) fn numbered(&self) -> Result<BTreeMap<u8, Self>> {
        let entries = self.object()?.iter().map(|(name, value)| {
            let child = self.child(name, value);
            let number = slot_number(name).ok_or_else(|| child.bad("has no number below 32"))?;
            Ok((number, child))
        });
        entries.collect()
    }

    /// An array of the numbers of an object's entries, as text.
    pub(super) fn numbers(&self) -> Result<Vec<u8>> {
        let each = self.strings()?.into_iter().map(|name| {
            slot_number(name).ok_or_else(|| self.bad("lists what is no number below 32"))
        });
        each.collect()
    }

    pub(super) fn strings(&self) -> Result<Vec<&'v str>> {
        let array = self
            .value
            .as_array()
            .ok_or_else(|| self.bad("is no array"))?;
        let each = array.iter().map(|value| {
            value
                .as_str()
                .ok_or_else(|| self.bad("lists what is no text"))
        });
        each.collect()
    }

    /// Text without control characters.
    pub(super) fn str(&self) -> Result<&'v str> {
        match self.value.as_str() {
            Some(text) if !text.chars().any(char::is_control) => Ok(text),
            _ => Err(self.bad("is no text")),
        }
    }

    /// A JSON number.
    pub(super) fn u32(&self) -> Result<u32> {
        let number = self.value.as_u64().and_then(|n| u32::try_from(n).ok());
        number.ok_or_else(|| self.bad("is no number from 0 to 4294967295"))
    }

    /// A JSON number within bounds.
    pub(super) fn within(&self, range: std::ops::RangeInclusive<u32>) -> Result<u32> {
        let number = self.u32()?;
        if range.contains(&number) {
            Ok(number)
        } else {
            Err(self.bad(&format!(
                "is {number}, not {} to {}",
                range.start(),
                range.end()
            )))
        }
    }

    /// A number of 64 bits, which LUKS2 writes as decimal text.
    pub(super) fn u64(&self) -> Result<u64> {
        let text = self
            .value
            .as_str()
            .filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()));
        text.and_then(|text| text.parse().ok())
            .ok_or_else(|| self.bad("is no decimal number of 64 bits, as text"))
    }

    pub(super) fn base64(&self) -> Result<Vec<u8>> {
        let decoded = self.value.as_str().and_then(|t| STANDARD.decode(t).ok());
        decoded.ok_or_else(|| self.bad("is no base64"))
    }
}

/// `0` to `31`, written in one way only.
fn slot_number(name: &str) -> Option<u8> {
    let number: u8 = name.parse().ok()?;
    (number < super::SLOTS && number.to_string() == name).then_some(number)
}

pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}
