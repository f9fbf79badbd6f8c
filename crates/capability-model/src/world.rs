//! Everything together: who can do what next, and what it leads to.

use std::collections::BTreeSet;

use stateright::{Model, Property};

use crate::check::{Check, Setup};
use crate::disk::{Disk, Passed};
use crate::message::{Body, Capability, Key, Message, Mode, Order, Outcome, Reply, Request, Who};
use crate::property::{self, Broken, Reached};
use crate::server::Server;

/// Who may do what to which block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grant {
    pub(crate) client: Who,
    pub(crate) mode: Mode,
    pub(crate) block: u8,
}

/// Alice works with block 0. Eve may read it, and write block 1.
pub(crate) const GRANTS: [Grant; 3] = [
    Grant {
        client: Who::Alice,
        mode: Mode::Both,
        block: 0,
    },
    Grant {
        client: Who::Eve,
        mode: Mode::Read,
        block: 0,
    },
    Grant {
        client: Who::Eve,
        mode: Mode::Both,
        block: 1,
    },
];
const ALICES: u8 = 0;
const EVES: [u8; 2] = [1, 2];

/// The last time at which a capability is valid.
pub(crate) const EXPIRES: u8 = 0;
/// What Eve writes.
const EVES_VALUE: u8 = 255;
/// Eve's nonces are from here on.
const EVES_NONCES: u8 = 48;

/// How often each thing may happen.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Requests of Alice.
    pub requests: u8,
    /// Requests of the metadata server.
    pub orders: u8,
    /// Messages that Eve makes herself.
    pub forgeries: u8,
    /// Restarts of the disk.
    pub restarts: u8,
    /// Ends of epochs.
    pub epochs: u8,
    /// Steps of time.
    pub ticks: u8,
}

/// The protocol, with a rule less perhaps.
#[derive(Debug, Clone)]
pub struct Protocol {
    setup: Setup,
    without: Option<Check>,
    bounds: Bounds,
}

impl Protocol {
    /// The protocol with every rule.
    pub fn new(setup: Setup, bounds: Bounds) -> Self {
        Self {
            setup,
            without: None,
            bounds,
        }
    }

    /// The protocol without one rule.
    pub fn without(self, check: Check) -> Self {
        Self {
            without: Some(check),
            ..self
        }
    }

    pub(crate) fn has(&self, check: Check) -> bool {
        let part = match check {
            Check::PayloadTag => self.is_secure(),
            Check::MessagesInTls | Check::Certificate => !self.is_secure(),
            _ => true,
        };
        part && self.without != Some(check)
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.setup == Setup::Secure
    }
}

/// Alice, an honest client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Alice {
    boot: u8,
    epoch: u8,
    waits: Option<Waits>,
}

/// A request that waits for its reply.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Waits {
    request: Request,
    // Ghost: what the block had since.
    values: BTreeSet<u8>,
}

/// What is counted against the bounds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Spent {
    requests: u8,
    orders: u8,
    forgeries: u8,
    revocations: u8,
}

/// A state of everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub(crate) disk: Disk,
    pub(crate) server: Server,
    alice: Alice,
    network: BTreeSet<Message>,
    pub(crate) now: u8,
    /// Whether Alice's connection ends at Eve.
    at_eves: bool,
    spent: Spent,
    pub(crate) broken: Broken,
    pub(crate) reached: Reached,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action(Step);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    AliceSends(Order),
    AliceStopsWaiting,
    ServerRevokes(u8),
    ServerSends(Order),
    ServerStopsWaiting,
    ServerTakesAsExpired,
    Deliver(Message),
    Begin(Passed),
    Finish(Passed),
    AnswerRevocation,
    Restart,
    NextEpoch,
    Tick,
    SetClockBack,
    EveSends(Message),
    EveAnswersAlice,
}

impl World {
    /// Puts a message of an honest sender on its way.
    fn send(&mut self, of: &Protocol, body: Body) {
        let in_tls = of.has(Check::MessagesInTls) && !self.at_eves;
        self.broken.seen |= !in_tls;
        self.network.insert(Message { in_tls, body });
    }

    fn request(
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
    fn newest(&self, grant: u8) -> Option<Capability> {
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
    fn forgeries(&self, of: &Protocol) -> Vec<Message> {
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
            Outcome::Done => self.reached.write_after_restart |= self.disk.boot > 0,
        }
    }

    fn deliver(&mut self, of: &Protocol, message: Message) {
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

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let broken = Broken {
            learnt: !self.has(Check::SecretsInTls),
            ..Broken::default()
        };
        vec![World {
            disk: Disk::new(),
            server: Server::new(),
            alice: Alice::default(),
            network: BTreeSet::new(),
            now: 0,
            at_eves: false,
            spent: Spent::default(),
            broken,
            reached: Reached::default(),
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let (bounds, spent) = (&self.bounds, &world.spent);
        let mut can = |step| actions.push(Action(step));
        if world.alice.waits.is_some() {
            can(Step::AliceStopsWaiting);
        } else if spent.requests < bounds.requests && world.newest(ALICES).is_some() {
            let value = 1 + spent.requests;
            can(Step::AliceSends(Order::Write { block: 0, value }));
            can(Step::AliceSends(Order::Read { block: 0 }));
            if !self.is_secure() && !self.has(Check::Certificate) && !world.at_eves {
                can(Step::EveAnswersAlice);
            }
        }
        if world.server.waits.is_some() {
            can(Step::ServerStopsWaiting);
        } else if spent.orders < bounds.orders
            && let Some(order) = world.server.next()
        {
            can(Step::ServerSends(order));
        }
        if spent.revocations == 0 {
            can(Step::ServerRevokes(ALICES));
            can(Step::ServerRevokes(EVES[1]));
        }
        if world.server.takes_as_expired(self, world.now) {
            can(Step::ServerTakesAsExpired);
        }
        for message in &world.network {
            can(Step::Deliver(*message));
        }
        for passed in &world.disk.passed {
            can(Step::Begin(*passed));
        }
        for running in &world.disk.running {
            can(Step::Finish(*running));
        }
        if world.disk.is_drained(self) {
            can(Step::AnswerRevocation);
        }
        if world.disk.boot < bounds.restarts {
            can(Step::Restart);
        }
        if world.disk.epoch < bounds.epochs {
            can(Step::NextEpoch);
        }
        // No request takes longer than the margin: one step of time.
        let mut under_way = world.disk.passed.iter().chain(&world.disk.running);
        if world.now < bounds.ticks && under_way.all(|passed| passed.at == world.now) {
            can(Step::Tick);
        }
        if !self.has(Check::SteadyClock) && world.disk.set_back < world.now {
            can(Step::SetClockBack);
        }
        if spent.forgeries < bounds.forgeries {
            for message in world.forgeries(self) {
                can(Step::EveSends(message));
            }
        }
    }

    fn next_state(&self, last: &World, Action(step): Action) -> Option<World> {
        let mut world = last.clone();
        match step {
            Step::AliceSends(order) => {
                let alice = &world.alice;
                let request = world.request(order, world.newest(ALICES), alice.boot, alice.epoch);
                world.alice.waits = Some(Waits {
                    request,
                    values: BTreeSet::from([world.disk.blocks[0]]),
                });
                world.send(self, Body::Request(request));
                world.spent.requests += 1;
            }
            Step::AliceStopsWaiting => world.alice.waits = None,
            Step::ServerRevokes(grant) => {
                world.server.revokes = Some(grant);
                world.spent.revocations += 1;
            }
            Step::ServerSends(order) => {
                let request = world.request(order, None, world.server.boot, world.server.epoch);
                world.server.waits = Some((request.nonce, order));
                world.send(self, Body::Request(request));
                world.spent.orders += 1;
            }
            Step::ServerStopsWaiting => world.server.waits = None,
            Step::ServerTakesAsExpired => world.server.returns(),
            Step::Deliver(message) => world.deliver(self, message),
            Step::Begin(passed) => world.disk.begin(self, passed),
            Step::Finish(running) => {
                let reply = world
                    .disk
                    .finish(running, world.server.returned, &mut world.broken);
                if let Some(waits) = &mut world.alice.waits {
                    waits.values.insert(world.disk.blocks[0]);
                }
                if running.request.author != Who::Eve {
                    world.send(self, Body::Reply(reply));
                }
            }
            Step::AnswerRevocation => {
                if let Some(request) = world.disk.draining.take() {
                    let reply = world.disk.reply(&request, Outcome::Done);
                    if request.author == Who::Server {
                        world.send(self, Body::Reply(reply));
                    }
                }
            }
            Step::Restart => world.disk.restart(),
            Step::NextEpoch => world.disk.next_epoch(),
            Step::Tick => world.now += 1,
            Step::SetClockBack => world.disk.set_back = world.now,
            // She can choose the moment: that it arrives at once loses no attack.
            Step::EveSends(message) => {
                world.deliver(self, message);
                world.spent.forgeries += 1;
            }
            Step::EveAnswersAlice => world.at_eves = true,
        }
        // What changes nothing is no step.
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        property::properties()
    }
}
