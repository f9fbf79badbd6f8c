//! Everything together: the state of all sides, what goes over the network, and what Eve can make of it.

use std::collections::BTreeSet;

use crate::check::Check;
use crate::disk::Disk;
use crate::history::{Broken, Reached};
use crate::message::{Body, Capability, Key, Message, Order, Outcome, Reply, Request, Who};
use crate::protocol::Protocol;
use crate::server::Server;

pub(crate) const ALICES: u8 = 0;
pub(crate) const EVES: [u8; 2] = [1, 2];

/// What Eve writes.
const EVES_VALUE: u8 = 255;
/// Eve's nonces are from here on.
const EVES_NONCES: u8 = 48;

/// Alice, an honest client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Alice {
    pub(crate) boot: u8,
    pub(crate) epoch: u8,
    pub(crate) waits: Option<Waits>,
}

/// A request that waits for its reply.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Waits {
    pub(crate) request: Request,
    // Ghost: what the block had since.
    pub(crate) values: BTreeSet<u8>,
}

/// What is counted against the bounds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Spent {
    pub(crate) requests: u8,
    pub(crate) orders: u8,
    pub(crate) forgeries: u8,
    pub(crate) revocations: u8,
}

/// A state of everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub(crate) disk: Disk,
    pub(crate) server: Server,
    pub(crate) alice: Alice,
    pub(crate) network: BTreeSet<Message>,
    pub(crate) now: u8,
    /// Whether Alice's connection ends at Eve.
    pub(crate) at_eves: bool,
    pub(crate) spent: Spent,
    pub(crate) broken: Broken,
    pub(crate) reached: Reached,
}

impl World {
    /// Puts a message of an honest sender on its way.
    pub(crate) fn send(&mut self, of: &Protocol, body: Body) {
        let in_tls = of.has(Check::MessagesInTls) && !self.at_eves;
        self.broken.seen |= !in_tls;
        self.network.insert(Message { in_tls, body });
    }

    pub(crate) fn request(
        &self,
        order: Order,
        capability: Option<Capability>,
        boot: u8,
        epoch: u8,
    ) -> Request {
        Request {
            capability,
            boot,
            epoch,
            sequence: match order {
                Order::SetGroup(_) => self.server.sequence,
                _ => 0,
            },
            nonce: self.spent.requests + self.spent.orders,
            order,
            payload: match order {
                Order::Write { value, .. } => value,
                _ => 0,
            },
            mac: Some(capability.map_or(Key::Management, Key::Secret)),
            author: if capability.is_some() {
                Who::Alice
            } else {
                Who::Server
            },
            signed_in: (self.disk.boot, self.disk.epoch),
        }
    }

    /// The capability of a grant that was issued last.
    pub(crate) fn newest(&self, grant: u8) -> Option<Capability> {
        (0..self.server.issued.len() as u8)
            .rev()
            .find(|group| self.server.issued[usize::from(*group)] & (1 << grant) != 0)
            .map(|group| Capability { grant, group })
    }

    /// Every capability that was issued for a grant.
    fn issued(&self, grant: u8) -> impl Iterator<Item = Capability> {
        (0..self.server.issued.len() as u8)
            .filter(move |group| self.server.issued[usize::from(*group)] & (1 << grant) != 0)
            .map(move |group| Capability { grant, group })
    }

    /// What Eve can make now.
    pub(crate) fn forgeries(&self, of: &Protocol) -> Vec<Message> {
        let mut made = Vec::new();
        let mut add = |body| {
            made.push(Message {
                in_tls: false,
                body,
            })
        };
        let by_eve = |capability, order, mac| {
            Body::Request(Request {
                capability,
                boot: self.disk.boot,
                epoch: self.disk.epoch,
                sequence: self.disk.sequence,
                nonce: EVES_NONCES + self.spent.forgeries,
                order,
                payload: EVES_VALUE,
                mac,
                author: Who::Eve,
                signed_in: (self.disk.boot, self.disk.epoch),
            })
        };
        let write = |block| Order::Write {
            block,
            value: EVES_VALUE,
        };
        for capability in EVES.iter().flat_map(|grant| self.issued(*grant)) {
            let secret = Some(Key::Secret(capability));
            for order in [write(0), write(1)] {
                add(by_eve(Some(capability), order, secret));
            }
            // As if she were the metadata server.
            add(by_eve(None, Order::SetGroup(0), secret));
        }
        for capability in self.issued(ALICES) {
            add(by_eve(Some(capability), write(0), None));
            if self.broken.learnt {
                add(by_eve(
                    Some(capability),
                    write(0),
                    Some(Key::Secret(capability)),
                ));
            }
        }
        let readable = self.network.iter().filter(|message| !message.in_tls);
        for message in readable {
            if let Body::Request(request) = message.body
                && request.author == Who::Alice
                && matches!(request.order, Order::Write { .. })
            {
                add(Body::Request(Request {
                    payload: EVES_VALUE,
                    ..request
                }));
            }
        }
        if of.is_secure()
            && let Some(waits) = &self.alice.waits
        {
            add(Body::Reply(Reply {
                nonce: waits.request.nonce,
                mac: None,
                boot: self.disk.boot,
                epoch: self.disk.epoch + 2,
                outcome: Outcome::StaleEpoch,
            }));
        }
        made
    }

    fn alice_receives(&mut self, reply: &Reply) {
        let Some(waits) = self.alice.waits.take() else {
            return;
        };
        match reply.outcome {
            Outcome::StaleBoot | Outcome::StaleEpoch => {
                (self.alice.boot, self.alice.epoch) = (reply.boot, reply.epoch);
            }
            Outcome::Value(value) => {
                self.reached.read = true;
                self.broken.misread |= !waits.values.contains(&value);
            }
            Outcome::OutOfSequence(_) => (),
            Outcome::Done => self.reached.write_after_restart |= self.disk.boot > 0,
        }
    }

    pub(crate) fn deliver(&mut self, of: &Protocol, message: Message) {
        if message.in_tls {
            self.network.remove(&message);
        }
        match message.body {
            Body::Request(request) => {
                if let Some(reply) = self.disk.receive(of, self.now, request, &mut self.broken)
                    && request.author != Who::Eve
                {
                    self.send(of, Body::Reply(reply));
                }
            }
            Body::Reply(reply) => {
                let fits = |nonce: u8, key: Option<Key>| {
                    (reply.nonce == nonce || !of.has(Check::ReplyNonce))
                        && (reply.mac == key
                            || (reply.mac.is_none() && !of.has(Check::SignedReplies)))
                };
                if let Some(waits) = &self.alice.waits
                    && fits(waits.request.nonce, waits.request.mac)
                {
                    self.alice_receives(&reply);
                } else if let Some((nonce, order)) = self.server.waits
                    && fits(nonce, Some(Key::Management))
                {
                    self.server.receive(of, &reply, order);
                }
            }
        }
    }
}
