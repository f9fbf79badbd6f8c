//! Clients, rooms, machines and disks at work.

use std::collections::VecDeque;

use hdrhistogram::Histogram;

use crate::calibration::{
    CALLS_MAX, CONNECT, Cost, HANDSHAKES_MAX, HEARTBEAT, HEARTBEAT_PAUSE, RETRY, ROUND_TRIP,
    SECOND, network_threads,
};
use crate::{Events, Latency, Log, Mix, Station, Step, Time};

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Setup {
    /// How many clients.
    pub clients: usize,
    /// What each does.
    pub mix: Mix,
    /// Rooms, each with a metadata server of its own.
    pub rooms: usize,
    /// How unequal rooms are: the n-th has clients by 1/n^skew. 0: all the same.
    pub skew: f64,
    /// Machines with metadata servers.
    pub machines: usize,
    /// Processors of each.
    pub processors: usize,
    /// How long a sync of a room's log takes.
    pub log: Latency,
    /// Network disks. Each room has its data on all of them.
    pub disks: usize,
    /// Requests that a disk does in a second, apart from their bytes.
    pub disk_requests: f64,
    /// Bytes a second of a disk.
    pub disk_bytes: f64,
    /// What is measured; as much passes before it.
    pub measured: Time,
    /// The first machine fails.
    pub failure: Option<Failure>,
    /// Of all that is random.
    pub seed: u64,
}

/// A machine is away, and its rooms with it.
#[derive(Debug, Clone, Copy)]
pub struct Failure {
    /// From then on.
    pub at: Time,
    /// For so long: until a server of these rooms answers again.
    pub pause: Time,
}

/// How much of something is used, from 0 to 1.
#[derive(Debug, Clone)]
pub struct Use {
    /// Of what.
    pub of: &'static str,
    /// In the mean over all of them.
    pub mean: f64,
    /// The one that is used most.
    pub most: f64,
}

/// What came out.
#[derive(Debug, Clone)]
pub struct Report {
    /// Operations a second.
    pub operations: f64,
    /// Milliseconds of half of the operations, and of 99 in 100.
    pub p50_ms: f64,
    /// See above.
    pub p99_ms: f64,
    /// Mean milliseconds.
    pub mean_ms: f64,
    /// Syncs of logs a second.
    pub syncs: f64,
    /// What is used, the scarcest first.
    pub used: Vec<Use>,
    /// Seconds after the return of a failed machine until its clients were connected again, if one failed.
    pub reconnected: Option<f64>,
    /// Seconds of the longest operation.
    pub longest: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A client begins an operation.
    Begin(usize),
    /// The next step of its operation.
    Go(usize),
    Heartbeat(usize),
    /// The first machine fails.
    Fail,
    /// A client tries to connect again.
    Connect(usize),
    Connected(usize),
    /// From here on it is measured.
    Measure,
}

#[derive(Debug, Clone, Copy)]
struct Client {
    room: usize,
    operation: usize,
    step: usize,
    began: Time,
    connected: bool,
    /// Its operation goes on when it is connected.
    stopped: bool,
}

#[derive(Debug)]
struct Room {
    machine: usize,
    connections: Station,
    in_turn: Station,
    log: Log,
    running: usize,
    waiting: VecDeque<usize>,
    /// Clients that wait for their handshake, and how many are under way.
    handshakes: VecDeque<usize>,
    shaking: usize,
}

#[derive(Debug)]
struct System<'a> {
    setup: &'a Setup,
    random: fastrand::Rng,
    events: Events<Event>,
    now: Time,
    clients: Vec<Client>,
    rooms: Vec<Room>,
    machines: Vec<Station>,
    disks: Vec<Station>,
    took: Histogram<u64>,
    /// When the first machine is back, where it failed.
    back: Time,
    reconnected: Option<f64>,
}

/// Runs the simulation.
pub fn simulate(setup: &Setup) -> Report {
    let mut system = System::new(setup);
    let end = 2 * setup.measured;
    let mut before = None;
    while let Some((now, event)) = system.events.take() {
        if now >= end {
            break;
        }
        system.now = now;
        if event == Event::Measure {
            before = Some(system.uses());
            system.took.clear();
        }
        system.handle(event);
    }
    system.report(&before.expect("measuring begins before the end"))
}

/// Which room of which weight goes to which machine: the heaviest first, each to the machine that has least.
fn place(weights: &[f64], machines: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_unstable_by(|a, b| weights[*b].total_cmp(&weights[*a]).then(a.cmp(b)));
    let (mut load, mut on) = (vec![0.0_f64; machines], vec![0; weights.len()]);
    for room in order {
        let least = (0..machines).min_by(|a, b| load[*a].total_cmp(&load[*b]));
        let least = least.expect("there is a machine");
        on[room] = least;
        load[least] += weights[room];
    }
    on
}

impl<'a> System<'a> {
    fn new(setup: &'a Setup) -> Self {
        let mut random = fastrand::Rng::with_seed(setup.seed);
        let weights: Vec<f64> = (0..setup.rooms)
            .map(|n| ((n + 1) as f64).powf(-setup.skew))
            .collect();
        let room = |n: usize| {
            let at = (n as f64 + 0.5) / setup.clients as f64;
            pick(weights.iter().copied(), at)
        };
        let clients: Vec<Client> = (0..setup.clients)
            .map(|n| Client {
                room: room(n),
                operation: 0,
                step: 0,
                began: 0,
                connected: true,
                stopped: false,
            })
            .collect();
        let mut events = Events::default();
        for client in 0..clients.len() {
            events.at(random.u64(0..=setup.mix.pause), Event::Begin(client));
            events.at(random.u64(0..HEARTBEAT_PAUSE), Event::Heartbeat(client));
        }
        events.at(setup.measured, Event::Measure);
        if let Some(failure) = setup.failure {
            events.at(failure.at, Event::Fail);
        }
        let room = |machine| Room {
            machine,
            connections: Station::new(network_threads(setup.processors)),
            in_turn: Station::new(1),
            log: Log::default(),
            running: 0,
            waiting: VecDeque::new(),
            handshakes: VecDeque::new(),
            shaking: 0,
        };
        let on = place(&weights, setup.machines);
        Self {
            setup,
            random,
            events,
            now: 0,
            clients,
            rooms: on.into_iter().map(room).collect(),
            machines: (0..setup.machines)
                .map(|_| Station::new(setup.processors))
                .collect(),
            disks: (0..setup.disks).map(|_| Station::new(1)).collect(),
            took: Histogram::new(3).expect("a histogram of three digits"),
            back: 0,
            reconnected: None,
        }
    }

    /// Work for a client that nobody waits for here: when its connection is done with it.
    fn beside(&mut self, client: usize, cost: Cost) -> Time {
        let room = &mut self.rooms[self.clients[client].room];
        self.machines[room.machine].serve(self.now, cost.all);
        room.connections.serve(self.now, cost.network)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Begin(client) => {
                let weights = self.setup.mix.operations.iter().map(|o| o.weight);
                let operation = pick(weights, self.random.f64());
                let this = &mut self.clients[client];
                (this.operation, this.step, this.began) = (operation, 0, self.now);
                self.go(client);
            }
            Event::Go(client) => self.go(client),
            Event::Heartbeat(client) => {
                if self.clients[client].connected {
                    self.beside(client, HEARTBEAT);
                }
                self.events
                    .at(self.now + HEARTBEAT_PAUSE, Event::Heartbeat(client));
            }
            Event::Fail => {
                let failure = self.setup.failure.expect("it was scheduled for one");
                self.back = self.now + failure.pause;
                for (n, client) in self.clients.iter_mut().enumerate() {
                    if self.rooms[client.room].machine == 0 {
                        client.connected = false;
                        let tried = self.back + self.random.u64(0..RETRY);
                        self.events.at(tried, Event::Connect(n));
                    }
                }
            }
            Event::Connect(client) => {
                let room = self.clients[client].room;
                let waiting = &mut self.rooms[room].handshakes;
                waiting.push_back(client);
                if waiting.len() > HANDSHAKES_MAX
                    && let Some(oldest) = waiting.pop_front()
                {
                    let again = self.now + self.random.u64(0..RETRY);
                    self.events.at(again, Event::Connect(oldest));
                }
                self.shake(room);
            }
            Event::Connected(client) => {
                let this = &mut self.clients[client];
                let room = this.room;
                this.connected = true;
                if std::mem::take(&mut this.stopped) {
                    self.events.at(self.now, Event::Go(client));
                }
                self.rooms[room].shaking -= 1;
                self.reconnected = Some(seconds(self.now - self.back));
                self.shake(room);
            }
            Event::Measure => (),
        }
    }

    /// Begins the next handshakes of a room, as many as it has threads for.
    fn shake(&mut self, room: usize) {
        while self.rooms[room].shaking < self.rooms[room].connections.servers()
            && let Some(client) = self.rooms[room].handshakes.pop_front()
        {
            self.rooms[room].shaking += 1;
            let done = self.beside(client, CONNECT);
            self.events.at(done, Event::Connected(client));
        }
    }

    /// Does a client's next step.
    fn go(&mut self, client: usize) {
        let setup = self.setup;
        let this = &mut self.clients[client];
        let (operation, began) = (this.operation, this.began);
        let Some(step) = setup.mix.operations[operation].steps.get(this.step) else {
            let took = self.took.record(self.now - began);
            took.expect("the histogram grows with what it is given");
            let pause = Latency::Exponential(setup.mix.pause).sample(&mut self.random);
            self.events.at(self.now + pause, Event::Begin(client));
            return;
        };
        let room = &mut self.rooms[this.room];
        let done = match *step {
            Step::Network => self.now + ROUND_TRIP,
            Step::Disk(bytes) => {
                let takes = 1.0 / setup.disk_requests + bytes as f64 / setup.disk_bytes;
                let disk = self.random.usize(..setup.disks);
                self.disks[disk].serve(self.now, (takes * SECOND as f64) as Time)
            }
            // What had begun is done: a few milliseconds of work are not worth more. What begins waits.
            Step::Connections(_) if !this.connected => {
                this.stopped = true;
                return;
            }
            Step::Connections(takes) => room.connections.serve(self.now, takes),
            Step::Enter => {
                if room.running == CALLS_MAX {
                    room.waiting.push_back(client);
                    return;
                }
                room.running += 1;
                self.now
            }
            Step::Leave => {
                match room.waiting.pop_front() {
                    Some(next) => {
                        self.clients[next].step += 1;
                        self.events.at(self.now, Event::Go(next));
                    }
                    None => room.running -= 1,
                }
                self.now
            }
            Step::Processor(takes) => self.machines[room.machine].serve(self.now, takes),
            Step::InTurn(takes) => room.in_turn.serve(self.now, takes),
            Step::Log => {
                let random = &mut self.random;
                room.log.join(self.now, || setup.log.sample(random))
            }
        };
        self.clients[client].step += 1;
        self.events.at(done, Event::Go(client));
    }

    /// Busy time so far: processors, turns, logs, disks, each with how many servers it has; and syncs.
    fn uses(&self) -> (Vec<(&'static str, Vec<f64>)>, u64) {
        let of = |station: &Station| seconds(station.busy()) / station.servers() as f64;
        let uses = vec![
            ("processors", self.machines.iter().map(of).collect()),
            (
                "connections",
                self.rooms.iter().map(|r| of(&r.connections)).collect(),
            ),
            (
                "changes in turn",
                self.rooms.iter().map(|r| of(&r.in_turn)).collect(),
            ),
            (
                "log",
                self.rooms.iter().map(|r| seconds(r.log.busy())).collect(),
            ),
            ("disks", self.disks.iter().map(of).collect()),
        ];
        (uses, self.rooms.iter().map(|room| room.log.syncs()).sum())
    }

    fn report(&self, before: &(Vec<(&'static str, Vec<f64>)>, u64)) -> Report {
        let (after, syncs) = self.uses();
        let took = seconds(self.setup.measured);
        let mut used: Vec<Use> = before
            .0
            .iter()
            .zip(&after)
            .map(|((of, before), (_, after))| {
                let each: Vec<f64> = before
                    .iter()
                    .zip(after)
                    .map(|(b, a)| (a - b) / took)
                    .collect();
                Use {
                    of,
                    mean: each.iter().sum::<f64>() / each.len() as f64,
                    most: each.iter().copied().fold(0.0, f64::max),
                }
            })
            .collect();
        used.sort_by(|a, b| b.most.total_cmp(&a.most));
        let ms = |ns: u64| ns as f64 / 1e6;
        Report {
            operations: self.took.len() as f64 / took,
            p50_ms: ms(self.took.value_at_quantile(0.5)),
            p99_ms: ms(self.took.value_at_quantile(0.99)),
            mean_ms: self.took.mean() / 1e6,
            syncs: (syncs - before.1) as f64 / took,
            used,
            reconnected: self.reconnected,
            longest: seconds(self.took.max()),
        }
    }
}

fn seconds(time: Time) -> f64 {
    time as f64 / SECOND as f64
}

/// The one of so many at a place from 0 to 1, if each is as wide as its weight.
fn pick(weights: impl Iterator<Item = f64> + Clone, at: f64) -> usize {
    let mut left = at * weights.clone().sum::<f64>();
    let chosen = weights.clone().position(|weight| {
        left -= weight;
        left < 0.0
    });
    chosen.unwrap_or(weights.count() - 1)
}
