//! How fast a session may have capabilities made: each uses up a revocation bit of its group, and a group whose bits ran out
//! costs everybody a question.
//!
//! Invariant: a session that is not remembered may have [`BURST`] made at once, so one that is as well off is forgotten.

use std::collections::HashMap;
use std::time::Instant;

use metadata_proto::rpc::SessionId;

/// Made at once.
const BURST: u32 = 16384;
/// Made in a second, in the long run.
const RATE: u32 = 4096;
/// Sessions remembered before those that need not be are forgotten.
const REMEMBERED: usize = 4096;

#[derive(Debug)]
struct Account {
    left: u32,
    at: Instant,
}

impl Account {
    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at);
        let more = (passed.as_millis() * u128::from(RATE) / 1000).min(u128::from(BURST)) as u32;
        // What is less than one stays with the time.
        if more > 0 {
            self.left = (self.left + more).min(BURST);
            self.at = now;
        }
    }
}

/// What sessions had made lately, on one disk.
#[derive(Debug, Default)]
pub(super) struct RateLimit(HashMap<SessionId, Account>);

impl RateLimit {
    /// Whether one more may be made for a session; then it counts as made.
    pub(super) fn take(&mut self, session: SessionId, now: Instant) -> bool {
        if self.0.len() >= REMEMBERED && !self.0.contains_key(&session) {
            self.0.retain(|_, account| {
                account.fill(now);
                account.left < BURST
            });
        }
        let account = self.0.entry(session).or_insert(Account {
            left: BURST,
            at: now,
        });
        account.fill(now);
        let may = account.left > 0;
        account.left -= u32::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_session_has_a_burst_and_then_so_many_a_second_whatever_others_do() {
        let mut limit = RateLimit::default();
        let begun = Instant::now();
        let made = |limit: &mut RateLimit, session, at| {
            (0..3 * BURST)
                .filter(|_| limit.take(SessionId(session), at))
                .count() as u32
        };
        assert_eq!(made(&mut limit, 1, begun), BURST);
        assert_eq!(made(&mut limit, 2, begun), BURST);
        let later = |ms| begun + Duration::from_millis(ms);
        assert_eq!(made(&mut limit, 1, later(1000)), RATE);
        assert_eq!(made(&mut limit, 1, later(1500)), RATE / 2);
        assert_eq!(made(&mut limit, 1, later(3_600_000)), BURST);
    }

    #[test]
    fn sessions_that_had_nothing_made_lately_are_forgotten() {
        let mut limit = RateLimit::default();
        let begun = Instant::now();
        for session in 0..10 * REMEMBERED as u64 {
            assert!(limit.take(SessionId(session), begun + Duration::from_millis(session)));
        }
        assert!(limit.0.len() <= REMEMBERED, "{}", limit.0.len());
    }
}
