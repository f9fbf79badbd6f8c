//! Answers to clients of the program that serves the room, kept in the commit that contains what they answer.
//!
//! 1. After a crash both are there, the operation and its answer, or neither: a client that asks again gets its first answer,
//!    or has the operation done for the first time.
//! 2. A slot keeps one answer, the newest.
//! 3. An answer takes no space that is for new data: what frees space is answered too.
//!
//! It deliberately does not know what an answer says, or who may ask for it.

use std::cell::RefCell;

use catalog::{CachedReply, Change, ClientKey};

use super::Room;
use crate::current::CurrentCatalog;
use crate::{Error, Result};

/// Which operation an answer is to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationId {
    /// Who asked.
    pub client: ClientKey,
    /// The client's slot.
    pub slot: u32,
    /// Rises with each operation of the slot, from 1.
    pub sequence: u64,
}

impl OperationId {
    fn reply(&self, answer: Vec<u8>) -> CachedReply {
        CachedReply {
            slot: self.slot,
            sequence: self.sequence,
            answer,
        }
    }
}

impl Room {
    /// Runs a short operation of this room and keeps its answer, so that one commit contains both. What fails changes nothing
    /// and keeps no answer. `operation` runs a second time only where the first one found no space.
    pub fn answering<T>(
        &self,
        id: &OperationId,
        operation: impl Fn() -> Result<T>,
        answer: impl Fn(&T) -> Vec<u8>,
    ) -> Result<T> {
        let parts = self.parts()?;
        // What is done is not done again, whatever becomes of its answer.
        let left = RefCell::new(None);
        let done = parts.space.with_what_is_left(|| {
            parts.commits.whole(|| {
                let done = operation()?;
                let reply = id.reply(answer(&done));
                match put_reply(&parts.catalog, id.client, &reply) {
                    Ok(()) => Ok(done),
                    Err(Error::NoSpace) => {
                        *left.borrow_mut() = Some(reply);
                        Ok(done)
                    }
                    Err(e) => Err(e),
                }
            })
        })?;
        if let Some(reply) = left.into_inner()
            && let Err(e) = self.keep(id.client, &reply)
        {
            // The operation is done. The missing answer matters only after a crash before the client has its answer.
            tracing::warn!("an answer to a client is not kept: {e}");
        }
        Ok(done)
    }

    /// Keeps the answer to an operation of several steps, which does no harm when it is done again.
    pub fn keep_answer(&self, id: &OperationId, answer: Vec<u8>) -> Result<()> {
        self.keep(id.client, &id.reply(answer))
    }

    fn keep(&self, client: ClientKey, reply: &CachedReply) -> Result<()> {
        let parts = self.parts()?;
        parts.space.with_what_is_left(|| {
            let _change = parts.commits.change()?;
            put_reply(&parts.catalog, client, reply)
        })
    }

    /// The answers kept for a client.
    pub fn answers(&self, client: ClientKey) -> Result<Vec<CachedReply>> {
        Ok(self.parts()?.catalog.get().replies(client)?)
    }

    /// The clients for which answers are kept.
    pub fn answered_clients(&self) -> Result<Vec<ClientKey>> {
        Ok(self.parts()?.catalog.get().reply_clients()?)
    }

    /// Forgets the answers to a client, with the next commit.
    pub fn forget_answers(&self, client: ClientKey) -> Result<()> {
        let parts = self.parts()?;
        let _change = parts.commits.change()?;
        Ok(parts.catalog.get().apply(&[Change::DropReplies(client)])?)
    }
}

fn put_reply(catalog: &CurrentCatalog, client: ClientKey, reply: &CachedReply) -> Result<()> {
    Ok(catalog.get().apply(&[Change::put_reply(client, reply)])?)
}
