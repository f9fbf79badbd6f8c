//! Every tree that a crash may leave, from a log of operations.
//!
//! What a crash keeps, with nothing assumed beyond POSIX:
//!
//! 1. What was done to a file before it was synced is there. Everything later may be there or not, each operation on
//!    its own: a write in any subset of its 512-byte sectors, its length apart from its data.
//! 2. A sector is old or new as a whole: it holds what the file held there after one of the writes that touched it.
//! 3. Names made, replaced and removed before their directory was synced are as they were then. Later changes may be
//!    there or not, each on its own; a rename within a directory is one change, a rename between two is two.
//! 4. A synced file may lose its name, and a name may be there with an empty file, while its directory is not synced.
//!
//! A state has an id, the point and the choice, from which it alone can be made again. At a point only such states are
//! listed as the operation before it made possible: the others were listed at earlier points. After a mark that raises
//! what is acknowledged all of them are listed again.

mod choose;
mod disk;

use std::fmt;
use std::str::FromStr;

use crate::image::Image;
use crate::record::{Event, Log, Mark};

pub use choose::{Choice, Keep, Limits};
pub use disk::{Change, Disk, Pending, SECTOR};

/// Names a state: the number of events before the crash, and which of the states possible then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateId {
    /// Events before the crash.
    pub point: usize,
    /// Index among the choices listed at the point.
    pub choice: usize,
}

impl fmt::Display for StateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.point, self.choice)
    }
}

impl FromStr for StateId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text
            .split_once(':')
            .and_then(|(point, choice)| Some((point.parse().ok()?, choice.parse().ok()?)));
        match parts {
            Some((point, choice)) => Ok(Self { point, choice }),
            None => Err(format!("{text} is not POINT:CHOICE")),
        }
    }
}

/// A place in a log where the power may go.
#[derive(Debug)]
pub struct Point<'d> {
    /// Events before it.
    pub index: usize,
    /// The last step acknowledged as durable; 0 for none.
    pub durable: usize,
    /// The last step begun; 0 for none.
    pub begun: usize,
    /// Whether all states are listed here, not only those that the last event made possible.
    pub all: bool,
    /// The disk at this moment.
    pub disk: &'d Disk,
}

impl Point<'_> {
    /// What may survive here, in an order that only log and limits decide.
    pub fn choices(&self, limits: &Limits) -> Vec<Choice> {
        choose::choices(self, limits)
    }

    /// The tree that one choice leaves.
    pub fn image(&self, choice: &Choice) -> Image {
        self.disk.image(choice)
    }
}

/// Walks a log and stops at each point at which new states are possible; `visit` says whether to go on.
pub fn walk(log: &Log, mut visit: impl FnMut(&Point<'_>) -> bool) {
    let mut disk = Disk::new(log);
    let (mut durable, mut begun) = (0, 0);
    let first = Point {
        index: 0,
        durable,
        begun,
        all: true,
        disk: &disk,
    };
    if !visit(&first) {
        return;
    }
    for (index, event) in log.events.iter().enumerate() {
        disk.apply(index, event);
        let mut all = false;
        match event {
            Event::Mark(Mark::Begun(step)) => begun = *step,
            Event::Mark(Mark::Durable(step)) if *step > durable => {
                durable = *step;
                all = true;
            }
            _ => {}
        }
        let news = disk.pending().last().is_some_and(|p| p.event == index);
        if !all && !news {
            continue;
        }
        let point = Point {
            index: index + 1,
            durable,
            begun,
            all,
            disk: &disk,
        };
        if !visit(&point) {
            return;
        }
    }
}
