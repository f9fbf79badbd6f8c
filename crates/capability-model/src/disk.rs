//! The disk: its checks in their order (`netdisk/src/server/check.rs`), groups, and what runs.

use std::collections::BTreeSet;

use crate::check::Check;
use crate::history::Broken;
use crate::message::{EXPIRES, Key, Mode, Order, Outcome, Reply, Request, Who};
use crate::protocol::Protocol;

/// A request that passed the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Passed {
    pub(crate) request: Request,
    /// The time when it passed.
    pub(crate) at: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Disk {
    pub(crate) boot: u8,
    pub(crate) epoch: u8,
    /// Nonces of the present epoch and of the one before, a bit each.
    seen: [u64; 2],
    /// How often groups were set in this boot.
    pub(crate) sequence: u8,
    group: Option<u8>,
    /// Revoked grants, a bit each.
    revoked: u8,
    pub(crate) blocks: [u8; 2],
    /// Not counted as running yet.
    pub(crate) passed: BTreeSet<Passed>,
    pub(crate) running: BTreeSet<Passed>,
    /// The revocation that waits for what runs.
    pub(crate) draining: Option<Request>,
    /// How far the wall clock was set back.
    pub(crate) set_back: u8,
    // Ghost: nonces that acted.
    acted: u64,
    /// The nonce of the last change; honest ones rise.
    changed: Option<u8>,
}

impl Disk {
    pub(crate) fn new() -> Self {
        Self {
            boot: 0,
            epoch: 0,
            seen: [0; 2],
            sequence: 0,
            group: Some(0),
            revoked: 0,
            blocks: [0; 2],
            passed: BTreeSet::new(),
            running: BTreeSet::new(),
            draining: None,
            set_back: 0,
            acted: 0,
            changed: None,
        }
    }

    /// Everything in memory is forgotten.
    pub(crate) fn restart(&mut self) {
        self.boot += 1;
        self.epoch = 0;
        self.seen = [0; 2];
        self.sequence = 0;
        self.group = None;
        self.revoked = 0;
        self.passed.clear();
        self.running.clear();
        self.draining = None;
    }

    pub(crate) fn next_epoch(&mut self) {
        self.epoch += 1;
        self.seen = [0, self.seen[0]];
    }

    /// Takes a request; the reply if there is one at once.
    pub(crate) fn receive(
        &mut self,
        of: &Protocol,
        now: u8,
        request: Request,
        broken: &mut Broken,
    ) -> Option<Reply> {
        let authentic = self.is_authentic(of, &request);
        let refused = |disk: &Self, outcome| {
            // Signed exactly when the request is authentic; other refusals are not accepted by anybody.
            authentic.then(|| disk.reply(&request, outcome))
        };
        if of.has(Check::Boot) && request.boot != self.boot {
            return refused(self, Outcome::StaleBoot);
        }
        // An epoch is over for who is two behind. One that has not come is refused, too.
        let in_time =
            request.epoch == self.epoch || request.epoch.checked_add(1) == Some(self.epoch);
        if of.has(Check::Epoch) && !in_time {
            return refused(self, Outcome::StaleEpoch);
        }
        if !self.allows(of, &request) || self.is_expired(of, now, &request) || !authentic {
            return None;
        }
        if let Some(capability) = request.capability {
            let grant = capability.grant();
            let (block, writes) = match request.order {
                Order::Read { block } => (block, false),
                Order::Write { block, .. } => (block, true),
                Order::SetGroup(_) | Order::Revoke(_) => return None,
            };
            if of.has(Check::Mode) && writes && grant.mode == Mode::Read {
                return None;
            }
            if of.has(Check::Coverage) && grant.block != block {
                return None;
            }
        }
        if let Order::Write { value, .. } = request.order
            && of.has(Check::PayloadTag)
            && request.payload != value
        {
            return None;
        }
        let bit = 1 << request.nonce;
        if of.has(Check::ReplayFilter) && self.seen.iter().any(|seen| seen & bit != 0) {
            return None;
        }
        self.seen[usize::from(request.epoch != self.epoch)] |= bit;
        broken.late |= request.author != Who::Eve
            && (request.signed_in.0 != self.boot || self.epoch > request.signed_in.1 + 1);
        match request.order {
            Order::SetGroup(group) => {
                if of.has(Check::Sequence) && request.sequence != self.sequence {
                    return Some(self.reply(&request, Outcome::OutOfSequence(self.sequence)));
                }
                self.sequence += 1;
                broken.managed |= request.author != Who::Server;
                broken.overtaken |= self.changed > Some(request.nonce);
                self.changed = Some(request.nonce);
                if self.group != Some(group) {
                    self.group = Some(group);
                    self.revoked = 0;
                }
                Some(self.reply(&request, Outcome::Done))
            }
            Order::Revoke(grant) => {
                broken.managed |= request.author != Who::Server;
                self.revoked |= 1 << grant;
                self.draining = Some(request);
                None
            }
            Order::Read { .. } | Order::Write { .. } => {
                self.passed.insert(Passed { request, at: now });
                None
            }
        }
    }

    /// Counts a request as running, if it is still allowed.
    pub(crate) fn begin(&mut self, of: &Protocol, passed: Passed) {
        self.passed.remove(&passed);
        if !of.has(Check::SecondLook) || self.allows(of, &passed.request) {
            self.running.insert(passed);
        }
    }

    /// Does what a request asks for.
    pub(crate) fn finish(&mut self, running: Passed, returned: u8, broken: &mut Broken) -> Reply {
        self.running.remove(&running);
        let request = running.request;
        let bit = 1 << request.nonce;
        broken.repeated |= request.author != Who::Eve && self.acted & bit != 0;
        self.acted |= bit;
        let grant = request.capability.map(|capability| capability.grant);
        broken.after_revocation |= grant.is_some_and(|grant| returned & (1 << grant) != 0);
        let outcome = match request.order {
            Order::Write { block, value } => {
                let holder = request.capability.is_some_and(|capability| {
                    let grant = capability.grant();
                    grant.client == request.author
                        && grant.mode == Mode::Both
                        && grant.block == block
                });
                broken.forged |=
                    !holder || (request.author != Who::Eve && request.payload != value);
                self.blocks[usize::from(block)] = request.payload;
                Outcome::Done
            }
            Order::Read { block } => Outcome::Value(self.blocks[usize::from(block)]),
            Order::SetGroup(_) | Order::Revoke(_) => unreachable!("never runs"),
        };
        self.reply(&request, outcome)
    }

    /// Whether the revocation under way can be answered.
    pub(crate) fn is_drained(&self, of: &Protocol) -> bool {
        let Some(Order::Revoke(grant)) = self.draining.map(|request| request.order) else {
            return false;
        };
        !of.has(Check::Drain)
            || !self.running.iter().any(|running| {
                running
                    .request
                    .capability
                    .map(|capability| capability.grant)
                    == Some(grant)
            })
    }

    pub(crate) fn reply(&self, request: &Request, outcome: Outcome) -> Reply {
        Reply {
            nonce: request.nonce,
            mac: request.mac,
            boot: self.boot,
            epoch: self.epoch,
            outcome,
        }
    }

    fn is_authentic(&self, of: &Protocol, request: &Request) -> bool {
        if !of.has(Check::RequestMac) {
            return true;
        }
        match request.capability {
            Some(capability) => request.mac == Some(Key::Secret(capability)),
            None => {
                request.mac == Some(Key::Management)
                    || (!of.has(Check::ManagementKey) && request.mac.is_some())
            }
        }
    }

    fn allows(&self, of: &Protocol, request: &Request) -> bool {
        request.capability.is_none_or(|capability| {
            (!of.has(Check::Group) || self.group == Some(capability.group))
                && (!of.has(Check::Revocation) || self.revoked & (1 << capability.grant) == 0)
        })
    }

    fn is_expired(&self, of: &Protocol, now: u8, request: &Request) -> bool {
        let clock = if of.has(Check::SteadyClock) {
            now
        } else {
            now - self.set_back
        };
        of.has(Check::Expiry) && request.capability.is_some() && clock > EXPIRES
    }
}
