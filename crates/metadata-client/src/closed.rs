//! Files that programs closed and the server still counts as open here: they are reported together.
//!
//! 1. None waits for longer than [`LOOK`](super::background::LOOK), and at most [`TOGETHER`] wait, or a few more of many threads.
//! 2. Names are removed after that: the space of a file that nobody has open is freed with its last name.

use metadata_proto::rpc::CLOSED_MAX;
use model::InodeNo;
use parking_lot::Mutex;

/// Files reported at once.
const TOGETHER: usize = 64;

#[derive(Debug, Default)]
struct State {
    /// The session's in which they are open.
    generation: u64,
    files: Vec<(InodeNo, u64)>,
}

#[derive(Debug, Default)]
pub(super) struct Closed(Mutex<State>);

impl Closed {
    /// Notes that `count` opens of a file are over; true: it is time to report them.
    pub(super) fn add(&self, generation: u64, no: InodeNo, count: u64) -> bool {
        let mut state = self.0.lock();
        if state.generation != generation {
            // The opens of another session are over with it. A later one is the newer.
            if state.generation > generation {
                return false;
            }
            state.generation = generation;
            state.files.clear();
        }
        state.files.push((no, count));
        state.files.len() >= TOGETHER
    }

    /// The first of them, as many as one message may have, with the generation of their session.
    pub(super) fn take(&self) -> (u64, Vec<(InodeNo, u64)>) {
        let mut state = self.0.lock();
        let count = state.files.len().min(CLOSED_MAX);
        (state.generation, state.files.drain(..count).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_newest_session_are_reported_together() {
        let closed = Closed::default();
        assert!(!closed.add(1, InodeNo(5), 1));
        assert!(!closed.add(2, InodeNo(6), 2));
        assert!(!closed.add(1, InodeNo(7), 1), "its session is over");
        assert_eq!(closed.take(), (2, vec![(InodeNo(6), 2)]));
        for at in 1..TOGETHER {
            assert!(!closed.add(2, InodeNo(at as u64), 1));
        }
        assert!(closed.add(2, InodeNo(9), 1));
        assert_eq!(closed.take().1.len(), TOGETHER);
        assert!(closed.take().1.is_empty());
        for at in 0..CLOSED_MAX + 3 {
            closed.add(2, InodeNo(at as u64), 1);
        }
        assert_eq!(closed.take().1.len(), CLOSED_MAX);
        assert_eq!(closed.take().1.len(), 3, "in another message");
    }
}
