//! Opening, closing, making durable, and attributes with what is on its way from here.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use metadata_proto::rpc::{
    Change, Changed, MetadataClient, Opening, Posix, Refusal, Reply, SessionId,
};
use model::{Access, Error, Inode, InodeNo, NewFile, Result, spans};
use tarpc::client::RpcError;
use tarpc::context::Context;

use super::calls::{PAUSE, rest};
use super::client::ClientCore;
use super::errors::{WriteBackError, error, gone, unexpected};
use super::files::File;
use super::link::{Attempt, Connected};
use super::names::Name;

/// How often attributes are fetched again because data was committed meanwhile.
const ROUNDS: usize = 5;

/// What a change that answers with an inode answered.
pub(super) fn inode(changed: Changed) -> Result<Inode> {
    match changed {
        Changed::Inode(inode) | Changed::Opened(inode, ..) => Ok(*inode),
        Changed::Done | Changed::Copied(_) => Err(unexpected()),
    }
}

/// What is reported of a commit, and of what was lost up to its end: the final error of the commit says more.
fn reported<T>(committed: Result<T>, lost: Option<WriteBackError>) -> Result<T> {
    match (committed, lost) {
        (Err(e), _) if WriteBackError::of(&e).is_some() => Err(e),
        (_, Some(lost)) => Err(lost.error()),
        (committed, None) => committed,
    }
}

impl ClientCore {
    /// As [`ClientCore::call`]; also the generation of the session that answered.
    pub(super) fn call_in<T, F, R>(&self, ask: F) -> Result<(T, u64)>
    where
        F: Fn(MetadataClient, Context, SessionId) -> R,
        R: Future<Output = std::result::Result<Reply<T>, RpcError>>,
    {
        loop {
            let before = self.connected(self.deadline())?.session.generation;
            let answer = self.call(&ask)?;
            let after = self.adopted.load(Ordering::Acquire);
            if before == after {
                return Ok((answer, after));
            }
        }
    }

    /// Asks what must not be asked twice; `None` where nobody knows whether it was done.
    pub(super) fn call_once_in_session<T, F, R>(&self, ask: F) -> Result<Option<Reply<T>>>
    where
        F: FnOnce(MetadataClient, Context, SessionId) -> R,
        R: Future<Output = std::result::Result<Reply<T>, RpcError>>,
    {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::METADATA).entered();
        let deadline = self.deadline();
        let connected = self.connected(deadline)?;
        match self.link.attempt(&connected, deadline, ask) {
            Attempt::Answer(answer) => Ok(Some(answer)),
            Attempt::Unknown(why) => {
                tracing::debug!("asking the metadata server: {why}");
                Ok(None)
            }
        }
    }

    pub(super) fn open_file(&self, no: InodeNo, access: Access) -> Result<Inode> {
        let Some(slot) = self.opening.take(self.deadline()) else {
            return Err(self.too_late());
        };
        let file = self.files.get_or_new(no);
        // Asked again, in this session or another: it counts once in each.
        let opening = Opening::New(slot.once());
        loop {
            let before = file.state.lock().placings;
            let opened = self.call_in(|client, context, session| async move {
                client.open(context, session, opening, no, access).await
            });
            let (inode, generation) = match opened {
                Ok(opened) => opened,
                Err(e) => {
                    drop(file);
                    self.files.tidy(no);
                    return Err(gone(e));
                }
            };
            self.judge(&file);
            // While no session is taken up: one that was since has passed over this open, which ended with the one before.
            let _standing = self.standing.lock();
            if self.adopted.load(Ordering::Acquire) != generation {
                continue;
            }
            let name = self.names.get(no);
            let mut state = file.state.lock();
            state.opened(generation);
            state.learn(&inode, before);
            state.name = name.or(state.name.take());
            return Ok(state.seen(inode));
        }
    }

    /// Makes a regular file and opens it.
    pub(super) fn create_file(
        &self,
        parent: InodeNo,
        name: &[u8],
        new: &NewFile,
        access: Access,
    ) -> Result<Inode> {
        let changed = self.change(Change::Create {
            parent,
            name: name.to_vec(),
            new: new.clone(),
            access,
        })?;
        let session = match &changed {
            Changed::Opened(_, session, _) => Some(*session),
            _ => None,
        };
        let inode = inode(changed)?;
        self.reached(&inode, Name::new(parent, name));
        let now = self.connected(self.deadline())?.session;
        let standing = self.standing.lock();
        if session != Some(now.id) || self.adopted.load(Ordering::Acquire) != now.generation {
            drop(standing);
            // Refused, which the server says again; or its session ended, and the open with it.
            return self.open_file(inode.no, access);
        }
        let file = self.files.get_or_new(inode.no);
        let mut state = file.state.lock();
        state.opened(now.generation);
        // Others here may have it open already.
        state.learn(&inode, 0);
        state.name = Some(Name::new(parent, name));
        Ok(state.seen(inode))
    }

    /// Opens a file again in a new session; `false`: the session is gone as well.
    pub(super) fn reopen(
        &self,
        connected: &Connected,
        file: &File,
        deadline: Instant,
    ) -> Result<bool> {
        let no = file.no;
        let generation = connected.session.generation;
        let name = {
            let mut state = file.state.lock();
            if state.opens == 0 {
                return Ok(true);
            }
            // A close from now on is reported in this session, also where the answer to this is lost.
            (state.generation, state.server_opens) = (generation, 1);
            state.name.clone()
        };
        let again = || {
            self.link
                .attempt(connected, deadline, |client, context, session| async move {
                    let opening = Opening::Again;
                    client
                        .open(context, session, opening, no, Access::READ)
                        .await
                })
        };
        let mut answer = again();
        if let (Attempt::Answer(Err(Refusal::Posix(Posix::Stale))), Some(name)) = (&answer, name) {
            // The server has not seen a name of it. What it says to this one shows in the next answer.
            let look = |client: MetadataClient, context, session| async move {
                let Name { parent, name } = name;
                client.lookup(context, session, parent, name.to_vec()).await
            };
            let _ = self.link.attempt(connected, deadline, look);
            answer = again();
        }
        let mut state = file.state.lock();
        match answer {
            Attempt::Answer(Ok(inode)) => state.set_inode(&inode),
            Attempt::Answer(Err(Refusal::Posix(Posix::NotFound))) => {
                tracing::warn!(inode = no.0, "an open file is gone");
                state.gone = true;
            }
            // What may not be read any more may still be written, and a name may be seen later: the server says so then.
            Attempt::Answer(Err(Refusal::Posix(_))) => state.server_opens = 0,
            Attempt::Answer(Err(Refusal::NoSession | Refusal::NotNow(_))) | Attempt::Unknown(_) => {
                return Ok(false);
            }
            Attempt::Answer(Err(refusal)) => return Err(error(refusal)),
        }
        Ok(true)
    }

    pub(super) fn close_file(&self, no: InodeNo) {
        let Some(file) = self.files.get(no) else {
            return;
        };
        // What a mapping wrote comes after the last flush.
        let unplaced = file.state.lock().has_unplaced();
        if unplaced && let Err(e) = self.flush_file(&file) {
            tracing::error!("{}", super::errors::words(no, &e));
        }
        let (count, generation, soon) = {
            let mut state = file.state.lock();
            state.opens = state.opens.saturating_sub(1);
            if state.opens > 0 {
                return;
            }
            // Somebody may wait for its locks, or for the space of a file without a name.
            let awaited = !state.locks.is_empty() || state.lost_locks;
            let soon = awaited || state.inode.as_ref().is_none_or(|i| i.nlink == 0);
            (state.gone, state.lost_locks) = (false, false);
            state.locks.clear();
            state.loss = None;
            if let Some(lost) = state.lost.take() {
                tracing::error!(inode = no.0, "written data was lost: {}", lost.error());
            }
            let count = std::mem::take(&mut state.server_opens);
            (count, state.generation, soon)
        };
        drop(file);
        self.files.tidy(no);
        if count > 0 && (self.closed.add(generation, no, count) || soon) {
            self.send_closed();
        }
    }

    /// Reports files that were closed.
    pub(super) fn send_closed(&self) {
        let (generation, closed) = self.closed.take();
        if !closed.is_empty() {
            self.report_closed(generation, closed);
        }
    }

    /// Reports files that were closed in the session of this generation. Opens end with their session in any case.
    pub(super) fn report_closed(&self, generation: u64, closed: Vec<(InodeNo, u64)>) {
        let deadline = self.deadline();
        let Some(slot) = self.opening.take(deadline) else {
            return;
        };
        let once = slot.once();
        let mut pause = PAUSE.0;
        while let Ok(connected) = self.connected(deadline)
            && connected.session.generation == generation
        {
            let closed = closed.clone();
            let close = |client: MetadataClient, context, session| async move {
                client.close(context, session, once, closed).await
            };
            match self.link.attempt(&connected, deadline, close) {
                Attempt::Answer(Err(Refusal::NotNow(_))) => rest(&mut pause, deadline),
                Attempt::Answer(_) => return,
                Attempt::Unknown(why) => tracing::debug!("closing files: {why}"),
            }
            if Instant::now() >= deadline {
                return;
            }
        }
    }

    /// The result of a close: earlier losses first. They stay for an fsync to report: the one who closes may have written nothing.
    pub(super) fn flush_and_report(&self, no: InodeNo) -> Result<()> {
        let Some(file) = self.files.get(no) else {
            return Ok(());
        };
        let committed = self.flush_file(&file);
        let mut state = file.state.lock();
        state.notified = true;
        reported(committed, state.lost)
    }

    /// Commits for an fsync; earlier losses first. True: everything is durable already.
    fn sync_and_report(&self, no: InodeNo) -> Result<bool> {
        let Some(file) = self.files.get(no) else {
            return Ok(false);
        };
        let committed = self.commit_file(&file, true);
        let lost = file.state.lock().lost.take();
        reported(committed, lost)
    }

    /// See [`FileSystem::newest_loss`](model::FileSystem::newest_loss).
    pub(super) fn newest_loss_of(&self, no: InodeNo) -> Option<(u64, Error)> {
        let loss = self.files.get(no)?.state.lock().loss;
        loss.map(|(number, lost)| (number, lost.error()))
    }

    pub(super) fn fsync_file(&self, no: InodeNo) -> Result<()> {
        self.in_one_incarnation(|incarnation| {
            if !self.sync_and_report(no)? {
                self.sync_server()?;
            }
            Ok((self.incarnation() == incarnation).then_some(()))
        })
    }

    /// Makes committed data and changes durable.
    pub(super) fn sync_server(&self) -> Result<()> {
        // A server whose storage failed opens its room again; lost data is committed again.
        let (settled, generation) = self.patiently(self.deadline(), || {
            self.call_in(
                |client, context, session| async move { client.sync(context, session).await },
            )
        })?;
        self.settle(settled, generation);
        Ok(())
    }

    /// Attributes, with what is on its way from here.
    pub(super) fn attributes_of(&self, no: InodeNo) -> Result<Inode> {
        let mut rounds = 0;
        loop {
            let placings = |file: Arc<File>| file.state.lock().placings;
            let before = self.files.get(no).map_or(0, placings);
            if let Some(file) = self.files.get(no) {
                self.judge(&file);
            }
            let mut inode = self.call(|client, context, session| async move {
                client.attributes(context, session, no).await
            })?;
            let Some(file) = self.files.get(no) else {
                self.directories.learn(&inode);
                return Ok(inode);
            };
            let mut state = file.state.lock();
            if state.placings != before {
                // Data may have been committed between the request and its answer.
                rounds += 1;
                if rounds < ROUNDS {
                    continue;
                }
                inode.size = inode.size.max(state.size());
            }
            state.set_inode(&inode);
            return Ok(state.seen(inode));
        }
    }

    /// How programs here are to see an inode that came with something asked for after `before` placings of all files.
    pub(super) fn learned(&self, before: u64, inode: Inode) -> Result<Inode> {
        let no = inode.no;
        let Some(file) = self.files.get(no) else {
            return Ok(inode);
        };
        let mut state = file.state.lock();
        if self.placings.load(Ordering::Acquire) == before && !state.is_unjudged() {
            state.set_inode(&inode);
            return Ok(state.seen(inode));
        }
        drop(state);
        self.attributes_of(no)
    }

    /// Asks for what depends on a file's data that was written here.
    pub(super) fn call_in_order<T>(&self, no: InodeNo, call: impl Fn() -> Result<T>) -> Result<T> {
        self.in_one_incarnation(|incarnation| {
            if let Some(file) = self.files.get(no) {
                self.flush_file(&file)?;
            }
            let answer = call();
            match self.incarnation() == incarnation {
                true => answer.map(Some),
                false => Ok(None),
            }
        })
    }

    /// Makes a change that depends on the order of a file's data: after all of it, and all of `source`, is committed, and before
    /// more of it is. With `data`, it changes the data itself.
    pub(super) fn change_in_order(
        &self,
        no: InodeNo,
        source: Option<InodeNo>,
        change: Change,
        data: bool,
    ) -> Result<Changed> {
        let Some(file) = self.files.get(no) else {
            return self.change(change);
        };
        self.in_one_incarnation(|incarnation| {
            if let Some(source) = source.and_then(|no| self.files.get(no)) {
                self.flush_file(&source)?;
            }
            let _alone = file.flushing.lock();
            if let Err(e) = self.flush_locked(&file) {
                file.state.lock().note_error(&e);
                return Err(e);
            }
            let before = {
                let mut state = file.state.lock();
                // Until there is an answer.
                state.unsure = true;
                state.placings
            };
            // A server that restarted in between lost committed data: that is committed again first.
            let Some(changed) = self.change_in_incarnation(&change, Some(incarnation))? else {
                return Ok(None);
            };
            let mut state = file.state.lock();
            // Durable, and with it everything that came before: a second commit of that would undo this, or take its time of modification for
            // another client's.
            self.budget.release(state.settle_all());
            if data {
                state.outdate();
            }
            if let Changed::Inode(inode) = &changed {
                state.learn(inode, before);
            }
            Ok(Some(changed))
        })
    }
}
