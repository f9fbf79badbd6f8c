//! Whether a disk accepts a request. The checks, in their order, and nothing else.
//!
//! Sizes (when the head was parsed), boot and epoch, disk, group, revocation, expiry, the header's MAC, mode, extents, the
//! payload's MAC, replay. What is cheap and what most refusals are for comes first.
//!
//! 1. A nonce is taken only after every MAC of its request held.
//! 2. A refusal is signed exactly when the request's header was authentic; a client accepts no other. So nobody on the way
//!    can make a client sign for an epoch that has not come, and hold that back.
//! 3. Keys are kept for a capability only after its MAC held, and for a bounded number of capabilities a connection.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use lru::LruCache;
use parking_lot::Mutex;

use crate::frame::{Op, REQUEST_LEN, RequestHead};
use crate::groups::{Groups, Running};
use crate::keys::{CapabilityKey, MessageKeys, random};
use crate::replay::{FilterSize, ReplayFilter};
use crate::{Capability, ClientId, DiskKey, KeyFile, Protection, Reason, Store, sign};

use super::clock::Clock;

/// Capabilities whose keys a connection keeps.
const KEYS_MAX: usize = 64;

/// What a request may be done with.
pub(crate) struct Access {
    /// `None`: the metadata server's.
    pub(crate) capability: Option<Capability>,
    pub(crate) keys: MessageKeys,
    /// Derived from a key that was renewed: accepted until then, by the disk's clock.
    until: Option<u64>,
}

impl Access {
    /// Whether it is the metadata server's: by the management key, or by a capability that it gave itself.
    pub(crate) fn is_operator(&self) -> bool {
        self.client().is_none_or(|client| client == ClientId(0))
    }

    /// The client that it was given to; `None` for the management key.
    pub(crate) fn client(&self) -> Option<ClientId> {
        self.capability.as_ref().map(|capability| capability.client)
    }
}

/// Keys of the capabilities that a connection used last.
pub(crate) struct KeyCache(LruCache<Box<[u8]>, Arc<Access>>);

impl KeyCache {
    pub(crate) fn new() -> Self {
        // A constant above 0.
        Self(LruCache::new(
            NonZeroUsize::new(KEYS_MAX).expect("not zero"),
        ))
    }
}

/// What the checks of a header said.
pub(crate) struct Verdict {
    /// The keys that the reply is signed with; `None` where the request is not authentic, or nothing is protected.
    pub(crate) access: Option<Arc<Access>>,
    pub(crate) refused: Option<Reason>,
}

pub(crate) struct Guard {
    pub(crate) protection: Protection,
    pub(crate) groups: Groups,
    pub(crate) boot: [u8; 16],
    pub(crate) clock: Clock,
    filter: Mutex<ReplayFilter>,
    filter_size: FilterSize,
    /// The filter's epoch, to look at without a lock.
    epoch: AtomicU64,
    /// The present one first.
    keys: Vec<Derived>,
}

/// What is derived from a key of the disk.
struct Derived {
    capability_key: CapabilityKey,
    management: Arc<Access>,
    until: Option<u64>,
}

impl Derived {
    fn of(key: &DiskKey, until: Option<u64>) -> Self {
        Self {
            capability_key: CapabilityKey::of(key),
            management: Arc::new(Access {
                capability: None,
                keys: MessageKeys::management(key),
                until,
            }),
            until,
        }
    }
}

impl Guard {
    pub(crate) fn new(
        keys: &KeyFile,
        protection: Protection,
        filter: FilterSize,
        clock: Clock,
    ) -> Self {
        let previous = keys.previous.as_ref();
        let mut derived = vec![Derived::of(&keys.key, None)];
        derived.extend(previous.map(|it| Derived::of(&it.key, Some(it.until))));
        Self {
            protection,
            groups: Groups::default(),
            boot: random(),
            clock,
            filter: Mutex::new(ReplayFilter::new(filter, Instant::now())),
            filter_size: filter,
            epoch: AtomicU64::new(1),
            keys: derived,
        }
    }

    /// Whether nothing is protected.
    pub(crate) fn is_open(&self) -> bool {
        self.protection == Protection::Open
    }

    /// Everything that can be said before the payload is there.
    pub(crate) fn check_head(
        &self,
        head: &RequestHead,
        raw: &[u8; REQUEST_LEN],
        capability: &[u8],
        cache: &mut KeyCache,
        store: &Store,
    ) -> Verdict {
        if self.is_open() {
            return Verdict {
                access: None,
                refused: on_disk(head, store).err(),
            };
        }
        let mut fresh = false;
        let access = if head.op.manages() {
            self.derive(raw, |derived| derived.management.clone())
        } else if let Some(access) = cache.0.get(capability)
            && self.in_time(access.until)
        {
            access.clone()
        } else {
            let Some(parsed) = Capability::parse(capability) else {
                return Verdict {
                    access: None,
                    refused: Some(Reason::Malformed),
                };
            };
            fresh = true;
            self.derive(raw, |derived| {
                Arc::new(Access {
                    capability: Some(parsed.clone()),
                    keys: MessageKeys::of(&derived.capability_key.secret(capability)),
                    until: derived.until,
                })
            })
        };
        let early = self.before_mac(head, &access, store).err();
        if !sign::request_holds(raw, &access.keys) {
            return Verdict {
                access: None,
                refused: Some(early.unwrap_or(Reason::NotAuthentic)),
            };
        }
        if fresh {
            cache.0.put(capability.into(), access.clone());
        }
        let refused = early.or_else(|| after_mac(head, &access, store).err());
        Verdict {
            access: Some(access),
            refused,
        }
    }

    /// What is derived from the key that this request was signed with; from the present one where from none.
    fn derive(
        &self,
        raw: &[u8; REQUEST_LEN],
        derive: impl Fn(&Derived) -> Arc<Access>,
    ) -> Arc<Access> {
        let present = derive(&self.keys[0]);
        let previous = self.keys.get(1).filter(|it| self.in_time(it.until));
        match previous {
            Some(previous) if !sign::request_holds(raw, &present.keys) => {
                let access = derive(previous);
                if sign::request_holds(raw, &access.keys) {
                    return access;
                }
                present
            }
            _ => present,
        }
    }

    fn in_time(&self, until: Option<u64>) -> bool {
        until.is_none_or(|until| self.clock.now() <= until)
    }

    fn before_mac(&self, head: &RequestHead, access: &Access, store: &Store) -> Result<(), Reason> {
        if head.boot != self.boot {
            return Err(Reason::StaleBoot);
        }
        let epoch = self.epoch.load(Ordering::Acquire);
        if head.epoch != epoch && head.epoch.checked_add(1) != Some(epoch) {
            return Err(Reason::StaleEpoch);
        }
        if let Some(capability) = &access.capability {
            if capability.disk != store.id() {
                return Err(Reason::WrongDisk);
            }
            self.is_good(capability)?;
        }
        Ok(())
    }

    /// Whether a capability is of a valid group, not revoked and not expired.
    fn is_good(&self, capability: &Capability) -> Result<(), Reason> {
        self.groups.allowed(capability.group, capability.id)?;
        if self.clock.now() > capability.expires {
            return Err(Reason::Expired);
        }
        Ok(())
    }

    /// Whether what a request was allowed with would still be accepted.
    pub(crate) fn still_holds(&self, access: &Access) -> bool {
        let capability = access.capability.as_ref();
        self.in_time(access.until)
            && capability.is_none_or(|capability| self.is_good(capability).is_ok())
    }

    /// What is left when the payload is there. The request runs until the answer is dropped.
    pub(crate) fn check_rest(
        &self,
        head: &RequestHead,
        raw: &[u8; REQUEST_LEN],
        access: Option<&Access>,
        payload: &[u8],
    ) -> Result<Option<Running<'_>>, Reason> {
        let Some(access) = access else {
            return Ok(None);
        };
        let tagged = self.protection.tagged(payload);
        if !sign::request_payload_holds(raw, tagged, &access.keys) {
            return Err(Reason::PayloadNotAuthentic);
        }
        {
            let mut filter = self.filter.lock();
            let now = Instant::now();
            let taken = filter.take(head.epoch, &head.nonce, now);
            self.epoch.store(filter.epoch(now), Ordering::Release);
            taken?;
        }
        match &access.capability {
            // Once more, and in one step with being counted: it may have been revoked since.
            Some(capability) => self.groups.enter(capability.group, capability.id).map(Some),
            None => Ok(None),
        }
    }

    /// The present epoch, and the nonces taken in it; advances it where its time is over.
    pub(crate) fn epoch(&self) -> (u64, u64) {
        let mut filter = self.filter.lock();
        let epoch = filter.epoch(Instant::now());
        self.epoch.store(epoch, Ordering::Release);
        (epoch, filter.taken())
    }

    /// The epoch as last seen, for replies.
    pub(crate) fn reported_epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(crate) fn filter_size(&self) -> FilterSize {
        self.filter_size
    }
}

fn after_mac(head: &RequestHead, access: &Access, store: &Store) -> Result<(), Reason> {
    if let Some(capability) = &access.capability {
        let allowed = match head.op {
            Op::Read => capability.mode.reads(),
            Op::Write | Op::Flush | Op::WriteDurable => capability.mode.writes(),
            _ => false,
        };
        if !allowed {
            return Err(Reason::ModeNotAllowed);
        }
        if head.blocks > 0 && !capability.covers(head.start, u64::from(head.blocks)) {
            return Err(Reason::OutsideCapability);
        }
    }
    on_disk(head, store)
}

fn on_disk(head: &RequestHead, store: &Store) -> Result<(), Reason> {
    let data = !head.op.manages() && head.blocks > 0;
    if data && !store.has(head.start, u64::from(head.blocks)) {
        return Err(Reason::OutsideDisk);
    }
    Ok(())
}
