//! The metadata server: it revokes, and gives a restarted disk a new group.

use crate::check::Check;
use crate::message::{EXPIRES, GRANTS, Order, Outcome, Reply};
use crate::protocol::Protocol;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    pub(crate) boot: u8,
    pub(crate) epoch: u8,
    pub(crate) sequence: u8,
    pub(crate) group: u8,
    /// Whether the disk still has to be given the group.
    pub(crate) sets_group: bool,
    /// The request that waits for its reply: its nonce, and what it asks for.
    pub(crate) waits: Option<(u8, Order)>,
    /// The grant that is being revoked.
    pub(crate) revokes: Option<u8>,
    /// Grants whose revocation has returned, a bit each.
    pub(crate) returned: u8,
    /// Grants that were issued, a bit each, by group.
    pub(crate) issued: Vec<u8>,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self {
            boot: 0,
            epoch: 0,
            sequence: 0,
            group: 0,
            sets_group: false,
            waits: None,
            revokes: None,
            returned: 0,
            issued: vec![(1 << GRANTS.len()) - 1],
        }
    }

    /// What it asks the disk for next.
    pub(crate) fn next(&self) -> Option<Order> {
        if self.sets_group {
            Some(Order::SetGroup(self.group))
        } else {
            self.revokes.map(Order::Revoke)
        }
    }

    pub(crate) fn receive(&mut self, of: &Protocol, reply: &Reply, order: Order) {
        self.waits = None;
        match (reply.outcome, order) {
            (Outcome::StaleBoot, _) => {
                (self.boot, self.epoch) = (reply.boot, reply.epoch);
                self.sequence = 0;
                if of.has(Check::FreshGroup) {
                    self.group += 1;
                }
                self.sets_group = true;
                // What the disk forgot cannot be used: its group is never valid again.
                self.returns();
            }
            (Outcome::StaleEpoch, _) => self.epoch = reply.epoch,
            (Outcome::OutOfSequence(sequence), _) => self.sequence = sequence,
            (Outcome::Done, Order::SetGroup(group)) => {
                self.sequence += 1;
                self.sets_group = false;
                let held = !self.returned & !self.revokes.map_or(0, |grant| 1 << grant);
                self.issued.resize(usize::from(group) + 1, 0);
                self.issued[usize::from(group)] |= held & ((1 << GRANTS.len()) - 1);
            }
            (Outcome::Done, Order::Revoke(_)) => self.returns(),
            _ => {}
        }
    }

    /// Whether what was issued has expired, even for a disk that cannot be reached.
    pub(crate) fn takes_as_expired(&self, of: &Protocol, now: u8) -> bool {
        let margin = u8::from(of.has(Check::ExpiryMargin));
        self.revokes.is_some() && now > EXPIRES + margin
    }

    pub(crate) fn returns(&mut self) {
        if let Some(grant) = self.revokes.take() {
            self.returned |= 1 << grant;
        }
    }
}
