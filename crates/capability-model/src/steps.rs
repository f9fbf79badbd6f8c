//! Who can do what next, and what it leads to.

use std::collections::BTreeSet;

use stateright::{Model, Property};

use crate::check::Check;
use crate::disk::{Disk, Passed};
use crate::history::{Broken, Reached};
use crate::message::{Body, Message, Order, Outcome, Who};
use crate::property;
use crate::protocol::Protocol;
use crate::server::Server;
use crate::world::{ALICES, Alice, EVES, Spent, Waits, World};

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
