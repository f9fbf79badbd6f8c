//! Accounts of segments: [gathered](super::gathered), because each record of the log has new ones and only an opening reads them.

use std::collections::BTreeMap;

use super::rows::{self, to_sql};
use super::schema;
use super::{Catalog, State};
use crate::{Result, SegmentAccount, SegmentNo};

/// By segment; `None` where the row goes. At most as many as the room has segments.
pub(super) type Accounts = BTreeMap<SegmentNo, Option<SegmentAccount>>;

impl State {
    /// Writes the gathered accounts.
    pub(super) fn write_accounts(&mut self) -> Result<()> {
        for (no, account) in std::mem::take(&mut self.gathered.get_mut().accounts) {
            let no = to_sql(no.0);
            match account {
                Some(SegmentAccount { id, length, live }) => self.run(
                    schema::PUT_SEGMENT,
                    (no, id.key_epoch, &id.salt[..], length, live),
                )?,
                None => self.run(schema::DELETE_SEGMENT, [no])?,
            };
        }
        Ok(())
    }
}

impl Catalog {
    /// All segment accounts, by number.
    pub fn segments(&self) -> Result<Vec<SegmentAccount>> {
        self.read_tables(|state| state.all(schema::SEGMENTS, (), rows::segment))
    }
}
