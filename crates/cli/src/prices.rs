//! What a store of objects bills: a table of prices, and an estimate by it.
//!
//! It knows no store: the usual table is one price list of one day, and a file replaces it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::wire::StoreReply;

/// Prices in one currency. A file has them as JSON with these names; what it leaves out is zero.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Prices {
    /// Where they are from, and of which day.
    pub(crate) source: String,
    /// For example USD.
    pub(crate) currency: String,
    /// 1000 PUT or LIST requests.
    pub(crate) put_1000: f64,
    /// 1000 GET requests.
    pub(crate) get_1000: f64,
    /// 1000 removals.
    pub(crate) delete_1000: f64,
    /// A month of 2^30 bytes.
    pub(crate) storage_gib_month: f64,
    /// 2^30 bytes read.
    pub(crate) read_gib: f64,
}

impl Prices {
    /// List prices of the first step of use, without taxes and free allowances.
    pub(crate) fn usual() -> Self {
        Self {
            source: "AWS S3 Standard, us-east-1, list prices of March 2026, read over the internet"
                .into(),
            currency: "USD".into(),
            put_1000: 0.005,
            get_1000: 0.0004,
            delete_1000: 0.0,
            storage_gib_month: 0.023,
            read_gib: 0.09,
        }
    }

    pub(crate) fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).map_err(|e| Error::host(file, e))?;
        let prices: Self = serde_json::from_str(&text)
            .map_err(|e| Error::usage(format!("{}: not a table of prices: {e}", file.display())))?;
        Ok(prices)
    }

    /// What the requests and bytes since the opening cost, and a month of what is stored.
    pub(crate) fn estimate(&self, store: &StoreReply) -> (f64, f64) {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let thousands = |requests: u64| requests as f64 / 1000.0;
        let requests = thousands(store.puts + store.lists) * self.put_1000
            + thousands(store.gets) * self.get_1000
            + thousands(store.deletes) * self.delete_1000
            + gib(store.bytes_got) * self.read_gib;
        (
            requests,
            gib(store.bytes.unwrap_or(0)) * self.storage_gib_month,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bill_has_requests_and_storage() {
        let store = StoreReply {
            objects: Some(3),
            bytes: Some(10 << 30),
            puts: 900,
            gets: 5000,
            lists: 100,
            deletes: 7,
            bytes_put: 1,
            bytes_got: 2 << 30,
        };
        let (requests, month) = Prices::usual().estimate(&store);
        assert!(
            (requests - (0.005 + 0.002 + 0.18)).abs() < 1e-9,
            "{requests}"
        );
        assert!((month - 0.23).abs() < 1e-9, "{month}");
    }

    #[test]
    fn a_table_is_read_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("prices");
        std::fs::write(&file, r#"{"currency": "EUR", "get_1000": 0.5}"#).unwrap();
        let prices = Prices::read(&file).unwrap();
        assert_eq!((prices.currency.as_str(), prices.put_1000), ("EUR", 0.0));
        std::fs::write(&file, r#"{"get": 0.5}"#).unwrap();
        assert!(Prices::read(&file).is_err());
    }
}
