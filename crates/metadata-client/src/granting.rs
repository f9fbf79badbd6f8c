//! Asking the server for places to write to, and releasing them.

use metadata_proto::rpc::{GRANTS_MAX, MetadataClient};
use model::{Error, Result};

use super::client::ClientCore;
use super::grants::GrantedBlocks;
use super::link::{Attempt, Connected};

/// Disks written to side by side.
const LANES: usize = 4;

impl ClientCore {
    /// Up to `wanted` granted blocks; fewer at the end of a grant.
    pub(super) fn place_for(&self, wanted: u32) -> Result<GrantedBlocks> {
        for _ in 0..16 {
            let connected = self.connected(self.deadline())?;
            let generation = connected.session.generation;
            let lanes = self.disks.count().clamp(1, LANES);
            if let Some(place) = self.grants.take_open(generation, wanted, lanes) {
                return Ok(place);
            }
            // A session with few grants gets them from few segments.
            self.release_finished(&connected);
            let size = self.grants.next_size(wanted);
            let granted = self.patiently(self.deadline(), || {
                self.call_for_capability(|client, context, session| async move {
                    client.grant(context, session, size).await
                })
            })?;
            self.grants.add(granted, generation)?;
        }
        Err(Error::Unreachable(
            "the metadata server, whose sessions end at once,".into(),
        ))
    }

    /// Releases grants that are over, which may take as long as any call: rights are revoked on the disks. If the call does not
    /// arrive, they end with the session.
    pub(super) fn release_finished(&self, connected: &Connected) {
        let finished = self.grants.take_finished(connected.session.generation);
        for some in finished.chunks(GRANTS_MAX) {
            let some = some.to_vec();
            let give = |client: MetadataClient, context, session| async move {
                client.give_back(context, session, some).await
            };
            if let Attempt::Unknown(why) = self.link.attempt(connected, self.deadline(), give) {
                tracing::debug!("releasing grants: {why}");
            }
        }
    }
}
