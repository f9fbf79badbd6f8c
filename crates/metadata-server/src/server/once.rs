//! A client's operations, each done once, and answered again as the first time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use metadata_proto::rpc::{Change, Changed, Delay, Posix, Refusal, Reply, SessionId};

use super::caller::{Caller, Here};
use super::changes::Losses;
use super::refusals::refusal;
use super::replies::{Asked, Client, Outcome};
use crate::audit::About;

/// Longest wait for a change that an earlier call began.
const CHANGE_WAIT: Duration = Duration::from_secs(120);

impl Caller {
    /// Runs what a client's slot is asked for, until it is neither under way nor waiting for the one before.
    pub(super) async fn once<T: Send + 'static>(
        &self,
        (name, about): (&'static str, About),
        session: SessionId,
        work: impl Fn(&Here, &Client) -> Reply<Option<T>> + Send + Sync + 'static,
    ) -> Reply<T> {
        let until = tokio::time::Instant::now() + CHANGE_WAIT;
        let work = Arc::new(work);
        loop {
            let (incarnation, asked) = self.here(session)?;
            let key = asked
                .client()
                .ok_or(Refusal::Posix(Posix::InvalidArgument))?;
            let replies = &incarnation.replies;
            let client = match replies.attached(&key) {
                Some(client) => client,
                // The other connections of this thread go on meanwhile: it may be the only one.
                None => tokio::task::block_in_place(|| replies.attach(&incarnation.room, key))
                    .map_err(refusal)?,
            };
            drop((incarnation, asked));
            let answered = client.answered().notified();
            tokio::pin!(answered);
            answered.as_mut().enable();
            let (work, asked) = (work.clone(), client.clone());
            // Asked and begun by one thread, so that nothing that is begun is left.
            let reply = self
                .within(name, session, about, move |here| work(here, &asked))
                .await?;
            match reply {
                Some(done) => return Ok(done),
                None if tokio::time::timeout_at(until, answered).await.is_err() => {
                    return Err(Refusal::NotNow(Delay::UnderWay));
                }
                None => {}
            }
        }
    }
}

/// Whether a change made a file without a name that ended with the session that held it: it is made once more.
pub(super) fn is_lost((_, session): &Here, change: &Change, answer: &Reply<Changed>) -> bool {
    match (change, answer) {
        (Change::CreateTmpfile { .. }, Ok(Changed::Inode(inode))) => !session.has_open(inode.no),
        _ => false,
    }
}

/// The first answer to an operation that was done. `settled`: one of an earlier incarnation may be given.
pub(super) fn first_answer(
    here: &Here,
    client: &Client,
    (slot, sequence): (u32, u64),
    done: Asked,
    settled: bool,
) -> Reply<Changed> {
    match done {
        Asked::Answered(answer) => answer,
        Asked::Kept(answer) if settled => answer,
        Asked::Kept(_) => Err(Refusal::NotNow(Delay::Disk)),
        Asked::Revoke(changed, losses) => revoke(here, client, slot, sequence, changed, &losses),
        Asked::New | Asked::UnderWay => Err(Refusal::NotNow(Delay::UnderWay)),
    }
}

/// Goes on revoking the rights that an earlier change removes.
fn revoke(
    (incarnation, _): &Here,
    client: &Client,
    slot: u32,
    sequence: u64,
    changed: Changed,
    losses: &Arc<Losses>,
) -> Reply<Changed> {
    let revoked = catch_unwind(AssertUnwindSafe(|| losses.revoke(incarnation)));
    let done = matches!(revoked, Ok(Ok(())));
    let outcome = match done {
        true => Outcome::Answered(Ok(changed.clone())),
        false => Outcome::Revoking(changed.clone(), losses.clone()),
    };
    client.answer(slot, sequence, outcome);
    match done {
        true => Ok(changed),
        false => Err(Refusal::NotNow(Delay::Disk)),
    }
}
