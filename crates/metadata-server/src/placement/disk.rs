//! One disk: its ticket, and what was written to it and is not known to be durable.
//!
//! 1. A write is noted with the disk's boot before anybody counts it as written. A flush under another boot than a write
//!    noted before it fails, and every later one does: what was written is lost.
//! 2. A flush is tried again while the disk cannot be reached, for a bounded time.
//! 3. A ticket that the disk refuses is renewed, a bounded number of times.
//! 4. A write of this server's that had no answer may still be done, though it was repeated. So its ticket is worthless before any
//!    block is free for others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netdisk::{BlockExtent, Boot, DiskError, DiskId, Ticket};
use parking_lot::{Mutex, RwLock};

use super::link::{Disk, Keeper, failed};
use super::{DurabilityError, FlushLimit, UNIT_BLOCKS};

/// How often a ticket is renewed for one request.
const RENEWALS: u32 = 3;
/// Between two tries of a flush.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Attached {
    pub(super) id: DiskId,
    link: RwLock<Arc<dyn Disk>>,
    keeper: Arc<dyn Keeper>,
    ticket: Mutex<Option<Ticket>>,
    /// Units of space in all.
    pub(super) units: u32,
    /// Takes no new segments.
    pub(super) closed: AtomicBool,
    /// The last request did not reach it.
    down: AtomicBool,
    /// Held during a flush: after a wait for it, everything written before is durable.
    flushing: Mutex<()>,
    unflushed: Mutex<Unflushed>,
    /// A write had no answer, and the ticket of that time is not known to be worthless.
    unanswered: AtomicBool,
}

#[derive(Debug, Default)]
struct Unflushed {
    /// Boot of what was written and not flushed yet.
    boot: Option<Boot>,
    /// The disk's boot as it was seen last.
    seen: Option<Boot>,
    /// What was acknowledged is not there any more.
    lost: bool,
}

impl Unflushed {
    fn written(&mut self, boot: Boot) {
        self.lost |= self.boot.is_some_and(|before| before != boot);
        self.boot = Some(boot);
        self.seen = Some(boot);
    }
}

impl Attached {
    pub(super) fn new(
        id: DiskId,
        link: Arc<dyn Disk>,
        keeper: Arc<dyn Keeper>,
        blocks: u64,
    ) -> Self {
        Self {
            id,
            link: RwLock::new(link),
            keeper,
            ticket: Mutex::default(),
            units: u32::try_from(blocks / UNIT_BLOCKS).unwrap_or(u32::MAX),
            closed: AtomicBool::new(false),
            down: AtomicBool::new(false),
            flushing: Mutex::default(),
            unflushed: Mutex::default(),
            unanswered: AtomicBool::new(false),
        }
    }

    pub(super) fn set_link(&self, link: Arc<dyn Disk>) {
        *self.link.write() = link;
    }

    /// Whether the last request reached it.
    pub(super) fn is_up(&self) -> bool {
        !self.down.load(Ordering::Relaxed)
    }

    fn seen<T>(&self, done: Result<T, DiskError>) -> Result<T, DiskError> {
        let down = matches!(done, Err(DiskError::Unreachable(_)));
        if self.down.swap(down, Ordering::Relaxed) != down {
            match &done {
                Err(e) => tracing::warn!(disk = ?self.id, "{e}"),
                Ok(_) => tracing::info!(disk = ?self.id, "the disk answers again"),
            }
        }
        done
    }

    fn link(&self) -> Arc<dyn Disk> {
        self.link.read().clone()
    }

    fn ticket(&self, refused: Option<&Ticket>) -> Result<Ticket, DiskError> {
        let mut held = self.ticket.lock();
        let fresh = match (&*held, refused) {
            (Some(ticket), None) => return Ok(ticket.clone()),
            // Somebody else was refused too, and has renewed it.
            (Some(ticket), Some(old)) if ticket.capability != old.capability => {
                return Ok(ticket.clone());
            }
            (_, refused) => self.keeper.ticket(self.id, refused.is_some())?,
        };
        *held = Some(fresh.clone());
        Ok(fresh)
    }

    fn with_ticket<T>(
        &self,
        run: impl Fn(&dyn Disk, &Ticket) -> Result<T, DiskError>,
    ) -> Result<T, DiskError> {
        let link = self.link();
        let mut refused: Option<Ticket> = None;
        let mut renewals = 0;
        loop {
            let done =
                self.ticket(refused.as_ref())
                    .and_then(|ticket| match run(&*link, &ticket) {
                        Err(
                            e @ (DiskError::Revoked | DiskError::UnknownGroup | DiskError::Expired),
                        ) => {
                            refused = Some(ticket);
                            Err(e)
                        }
                        other => other,
                    });
            match done {
                Err(DiskError::Revoked | DiskError::UnknownGroup | DiskError::Expired)
                    if renewals < RENEWALS =>
                {
                    renewals += 1;
                }
                other => return self.seen(other),
            }
        }
    }

    pub(super) fn read(&self, start: u64, out: &mut [u8]) -> Result<(), DiskError> {
        let out = std::cell::RefCell::new(out);
        self.with_ticket(|link, ticket| link.read(ticket, start, &mut out.borrow_mut()))
    }

    pub(super) fn write(&self, start: u64, data: &[u8]) -> Result<(), DiskError> {
        let boot = self.with_ticket(|link, ticket| {
            // What others write meanwhile may count too; then it is renewed for nothing.
            let before = link.unanswered_writes();
            let written = link.write(ticket, start, data);
            if link.unanswered_writes() != before {
                self.unanswered.store(true, Ordering::SeqCst);
            }
            written
        })?;
        self.unflushed.lock().written(boot);
        Ok(())
    }

    /// Takes note of what somebody else wrote under this boot.
    pub(super) fn wrote(&self, boot: Boot) -> Result<(), DurabilityError> {
        self.is_present(boot)?;
        self.unflushed.lock().written(boot);
        Ok(())
    }

    /// Asks whether it is there.
    pub(super) fn ask(&self) -> Result<(), DiskError> {
        self.seen(self.link().boot()).map(drop)
    }

    /// Whether this is the disk's boot; `Lost` where it is over.
    pub(super) fn is_present(&self, boot: Boot) -> Result<(), DurabilityError> {
        let seen = self.unflushed.lock().seen;
        if seen != Some(boot) {
            // A later incarnation of the disk, or an earlier one: only the disk knows.
            let now = self
                .seen(self.link().boot())
                .map_err(|e| DurabilityError::Disk(failed(self.id, e)))?;
            if now != boot {
                self.unflushed.lock().seen = Some(now);
                return Err(DurabilityError::Lost);
            }
            self.unflushed.lock().seen = Some(now);
        }
        Ok(())
    }

    pub(super) fn is_dirty(&self) -> bool {
        let unflushed = self.unflushed.lock();
        unflushed.boot.is_some() || unflushed.lost
    }

    /// Makes durable what was written before.
    pub(super) fn flush(&self, timeout: &FlushLimit) -> Result<(), DurabilityError> {
        let _one = self.flushing.lock();
        let written = {
            let mut unflushed = self.unflushed.lock();
            if unflushed.lost {
                return Err(DurabilityError::Lost);
            }
            match unflushed.boot.take() {
                Some(boot) => boot,
                None => return Ok(()),
            }
        };
        let begun = Instant::now();
        let flushed = loop {
            match self.with_ticket(|link, ticket| link.flush(ticket)) {
                Err(DiskError::Unreachable(_) | DiskError::UnknownGroup)
                    if begun.elapsed() < timeout.flush && !timeout.is_over() =>
                {
                    std::thread::sleep(PAUSE);
                }
                other => break other,
            }
        };
        let mut unflushed = self.unflushed.lock();
        match flushed {
            Ok(boot) if boot == written => Ok(()),
            Ok(boot) => {
                unflushed.seen = Some(boot);
                unflushed.lost = true;
                Err(DurabilityError::Lost)
            }
            Err(e) => {
                // A later success proves nothing: the disk may report lost writes only once.
                unflushed.lost = true;
                Err(DurabilityError::Disk(failed(self.id, e)))
            }
        }
    }

    /// Gives blocks back, after nobody may touch them any more.
    pub(super) fn release(&self, extents: &[BlockExtent]) -> Result<(), DiskError> {
        let unanswered = self.unanswered.swap(false, Ordering::SeqCst);
        let renewed = match unanswered {
            true => self.keeper.renew(self.id),
            false => Ok(()),
        }
        .inspect_err(|_| self.unanswered.store(true, Ordering::SeqCst));
        self.seen(
            renewed
                .and_then(|()| self.keeper.revoke(self.id, extents))
                .and_then(|()| self.link().discard(extents)),
        )
    }
}
