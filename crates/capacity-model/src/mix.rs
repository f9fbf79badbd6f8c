//! What programs do, as calls and visits.

use crate::Time;
use crate::calibration::{
    CHANGE, Cost, IN_TURN, LIST, LOOKUP, MAP, MS, OPEN, PLACE, PLACE_SYNC, SECOND,
};

/// One visit of an operation. Those of an operation come one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A request and its answer on the network.
    Network,
    /// A call begins: one of those that a room runs at the same time.
    Enter,
    /// Time of a thread that serves the room's connections. It is in the processor time too, so such a call takes that much longer here.
    Connections(Time),
    /// Processor time of the metadata server.
    Processor(Time),
    /// Work of a room that its other changes wait for.
    InTurn(Time),
    /// Until the change is durable.
    Log,
    /// The call ends.
    Leave,
    /// So many bytes to or from one of the disks.
    Disk(u64),
}

/// What a program does at once, as its client's mount does it.
#[derive(Debug, Clone)]
pub struct Operation {
    /// Its share of all operations, as a weight.
    pub weight: f64,
    /// One after the other.
    pub steps: Vec<Step>,
}

/// What the programs of a client do: one operation, then a pause.
#[derive(Debug, Clone)]
pub struct Mix {
    /// Between two operations, in the mean.
    pub pause: Time,
    /// Which operations.
    pub operations: Vec<Operation>,
}

/// A call that changes nothing.
fn call(cost: Cost) -> Vec<Step> {
    let (connections, processor) = (Step::Connections(cost.network), Step::Processor(cost.all));
    let [begin, end] = [Step::Enter, Step::Leave];
    vec![Step::Network, connections, begin, processor, end]
}

/// A call that changes something, and is durable when it is answered.
fn durable(cost: Cost) -> Vec<Step> {
    let mut steps = call(cost);
    steps.splice(4..4, [Step::InTurn(IN_TURN), Step::Log]);
    steps
}

fn disk(bytes: u64) -> Vec<Step> {
    const REQUEST: u64 = 1 << 20;
    let requests = bytes.div_ceil(REQUEST);
    let request = [Step::Network, Step::Disk(bytes / requests)];
    request.repeat(usize::try_from(requests).expect("few"))
}

/// Finds a file two directories down: no name is kept between calls.
fn find() -> Vec<Step> {
    call(LOOKUP).repeat(2)
}

fn stat() -> Vec<Step> {
    find()
}

fn list() -> Vec<Step> {
    [find(), call(LIST)].concat()
}

fn read(bytes: u64) -> Vec<Step> {
    [find(), call(OPEN), call(MAP), disk(bytes)].concat()
}

fn write(bytes: u64) -> Vec<Step> {
    [find(), durable(CHANGE), disk(bytes), call(PLACE)].concat()
}

fn write_synced(bytes: u64) -> Vec<Step> {
    [find(), durable(CHANGE), disk(bytes), durable(PLACE_SYNC)].concat()
}

fn change_name() -> Vec<Step> {
    [find(), durable(CHANGE)].concat()
}

impl Mix {
    /// With a mean pause, and operations by weight.
    pub fn new(pause: Time, operations: impl IntoIterator<Item = (f64, Vec<Step>)>) -> Self {
        let operations = operations.into_iter();
        let operations = operations
            .map(|(weight, steps)| Operation { weight, steps })
            .collect();
        Self { pause, operations }
    }

    /// Assumed: people at desks, an operation a second.
    pub fn home() -> Self {
        let (file, small) = (256 << 10, 16 << 10);
        Self::new(
            SECOND,
            [
                (60.0, stat()),
                (5.0, list()),
                (20.0, read(file)),
                (8.0, write(small)),
                (4.0, write_synced(small)),
                (3.0, change_name()),
            ],
        )
    }

    /// Assumed: a server of mailboxes, where each message is a file; a client is some hundred users.
    pub fn mail() -> Self {
        let message = 16 << 10;
        Self::new(
            200 * MS,
            [
                (30.0, stat()),
                (10.0, list()),
                (25.0, read(message)),
                (20.0, write_synced(message)),
                (15.0, change_name()),
            ],
        )
    }

    /// Assumed: a machine that compiles without a pause.
    pub fn build() -> Self {
        let source = 16 << 10;
        Self::new(
            20 * MS,
            [
                (70.0, stat()),
                (18.0, read(source)),
                (9.0, write(source)),
                (3.0, change_name()),
            ],
        )
    }

    /// Assumed: films and pictures, read from begin to end in pieces of 8 MiB.
    pub fn media() -> Self {
        let piece = 8 << 20;
        Self::new(
            SECOND,
            [(10.0, stat()), (80.0, read(piece)), (10.0, write(piece))],
        )
    }

    /// What `create_files` of the metadata server measures: new files of 4 KiB one after the other, their names found already.
    pub fn create_files(synced: bool) -> Self {
        let data = if synced {
            durable(PLACE_SYNC)
        } else {
            call(PLACE)
        };
        Self::new(0, [(1.0, [durable(CHANGE), disk(4096), data].concat())])
    }

    /// One of these by its name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "home" => Self::home(),
            "mail" => Self::mail(),
            "build" => Self::build(),
            "media" => Self::media(),
            _ => return None,
        })
    }
}
