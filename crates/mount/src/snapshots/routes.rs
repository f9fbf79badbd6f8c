//! Numbers for what [`numbers`] cannot express: directories that are reached through another directory
//! than the top, and everything beside the live tree where that has all numbers.
//!
//! The kernel keeps one place for each directory: if `a/.snapshots/monday/b` and `.snapshots/monday/a/b` had the same number, a lookup of
//! one would move the other. So a directory has a number for each *door*, the live directory whose `.snapshots` led to it.
//!
//! 1. A number is computed from the route, so it is the same after another mount. Two routes that collide get numbers next to each other.
//! 2. A route is known while the kernel holds its number, and for [`KEPT`] after it was last asked for: longer than from
//!    an answer to the hold that follows it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use model::InodeNo;
use parking_lot::Mutex;

use super::numbers;

/// For how long a route is known that nobody holds.
const KEPT: Duration = Duration::from_secs(60);

/// What a number means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// The directory of snapshots in a live directory.
    List(InodeNo),
    /// A file in a snapshot, and the live directory through whose snapshots it was reached.
    Past {
        door: InodeNo,
        /// The snapshot's number, from 1.
        snapshot: u64,
        inode: InodeNo,
    },
}

impl Route {
    /// Any number, as different as possible from those of other routes.
    fn mixed(&self) -> u64 {
        let (door, snapshot, inode) = match *self {
            Self::List(of) => (of, 0, of),
            Self::Past {
                door,
                snapshot,
                inode,
            } => (door, snapshot, inode),
        };
        // The finalizer of SplitMix64.
        let mix = |mut x: u64| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ x >> 31
        };
        mix(mix(mix(door.0) ^ snapshot) ^ inode.0)
    }
}

#[derive(Debug)]
struct Known {
    route: Route,
    holds: u64,
    asked: Instant,
}

#[derive(Debug, Default)]
struct Table {
    known: HashMap<InodeNo, Known>,
    /// Numbers that nobody may hold, each once for every time that this began.
    unheld: VecDeque<(Instant, InodeNo)>,
}

/// The routes by their numbers.
#[derive(Debug, Default)]
pub(super) struct Routes(Mutex<Table>);

impl Routes {
    /// The number of a route, known from now on.
    pub(super) fn number(&self, route: Route) -> InodeNo {
        self.0.lock().number(route, route.mixed(), Instant::now())
    }

    /// The route of a number.
    pub(super) fn find(&self, no: InodeNo) -> Option<Route> {
        let table = self.0.lock();
        table.known.get(&no).map(|known| known.route)
    }

    pub(super) fn hold(&self, no: InodeNo) {
        if let Some(known) = self.0.lock().known.get_mut(&no) {
            known.holds += 1;
        }
    }

    pub(super) fn release(&self, no: InodeNo, count: u64) {
        self.0.lock().release(no, count, Instant::now());
    }
}

impl Table {
    fn number(&mut self, route: Route, mixed: u64, now: Instant) -> InodeNo {
        self.sweep(now);
        let mut any = mixed;
        loop {
            let no = numbers::route(any);
            match self.known.entry(no) {
                Entry::Occupied(entry) if entry.get().route != route => {
                    any = any.wrapping_add(1);
                }
                Entry::Occupied(mut entry) => {
                    entry.get_mut().asked = now;
                    return no;
                }
                Entry::Vacant(entry) => {
                    entry.insert(Known {
                        route,
                        holds: 0,
                        asked: now,
                    });
                    self.unheld.push_back((now, no));
                    return no;
                }
            }
        }
    }

    fn release(&mut self, no: InodeNo, count: u64, now: Instant) {
        if let Some(known) = self.known.get_mut(&no) {
            known.holds = known.holds.saturating_sub(count);
            if known.holds == 0 {
                known.asked = now;
                self.unheld.push_back((now, no));
            }
        }
    }

    fn sweep(&mut self, now: Instant) {
        let is_old = |since: Instant| now.saturating_duration_since(since) > KEPT;
        while let Some((since, no)) = self.unheld.front().copied()
            && is_old(since)
        {
            self.unheld.pop_front();
            match self.known.get(&no) {
                Some(known) if known.holds == 0 && is_old(known.asked) => {
                    self.known.remove(&no);
                }
                Some(known) if known.holds == 0 => self.unheld.push_back((known.asked, no)),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(inode: u64) -> Route {
        Route::Past {
            door: InodeNo(5),
            snapshot: 3,
            inode: InodeNo(inode),
        }
    }

    #[test]
    fn a_route_keeps_its_number_and_another_door_has_another() {
        let (routes, again) = (Routes::default(), Routes::default());
        let no = routes.number(route(7));
        assert_eq!(routes.number(route(7)), no);
        assert_eq!(again.number(route(7)), no, "another mount");
        assert_eq!(routes.find(no), Some(route(7)));
        let other = Route::Past {
            door: InodeNo(6),
            snapshot: 3,
            inode: InodeNo(7),
        };
        assert_ne!(routes.number(other), no);
        let list = routes.number(Route::List(InodeNo(7)));
        assert_eq!(routes.find(list), Some(Route::List(InodeNo(7))));
        assert_eq!(routes.find(numbers::route(1)), None);
    }

    #[test]
    fn routes_that_collide_get_numbers_of_their_own() {
        let (mut table, now) = (Table::default(), Instant::now());
        let no = table.number(route(7), 9, now);
        let other = table.number(route(8), 9, now);
        assert_ne!(no, other);
        assert_eq!(table.number(route(7), 9, now), no);
        assert_eq!(table.number(route(8), 9, now), other);
    }

    #[test]
    fn a_held_route_stays_and_others_go_after_a_while() {
        let (mut table, start) = (Table::default(), Instant::now());
        let held = table.number(route(7), 1, start);
        table.known.get_mut(&held).unwrap().holds = 2;
        let asked = table.number(route(8), 2, start);
        table.number(route(9), 3, start);
        let later = start + KEPT / 2;
        assert_eq!(table.number(route(8), 2, later), asked);
        let at = start + KEPT + Duration::from_secs(1);
        table.sweep(at);
        assert_eq!(table.known.len(), 2, "one was asked for again, one is held");
        table.sweep(later + KEPT + Duration::from_secs(1));
        assert_eq!(table.known.len(), 1);
        assert!(table.unheld.is_empty());
        table.release(held, 1, at);
        assert!(table.unheld.is_empty());
        table.release(held, 1, at);
        table.sweep(at + KEPT * 2);
        assert!(table.known.is_empty() && table.unheld.is_empty());
    }
}
