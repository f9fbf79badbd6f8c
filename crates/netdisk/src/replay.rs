//! The replay filter: which nonces were used, in bounded memory.
//!
//! Two Bloom filters, of the present epoch and the one before, as in the paper (section 5.3). A request names its epoch, and
//! its MAC covers that; one of an earlier epoch is refused without looking.
//!
//! 1. A nonce that was taken is refused for as long as its epoch is accepted.
//! 2. A nonce that was not taken is refused with a chance of at most 1 in 1000: each filter takes at most as many as allow
//!    that, then the epoch advances.
//! 3. Where a nonce's bits are depends on a key of this boot: a client that chooses nonces cannot choose bits.
//! 4. Memory is two times the filter's bits, and never changes.

use std::time::{Duration, Instant};

use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;

use crate::Reason;
use crate::keys::random;

/// Bits set for each nonce, as in the paper.
const HASHES: u64 = 9;
/// Bits per nonce at which nine hashes give one false positive in a thousand: `(1 - e^(-9 / 14.5))^9 = 0.00097`.
const BITS_PER_NONCE: f64 = 14.5;

/// How large the filter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterSize {
    /// Binary logarithm of one filter's bits: 13 to 32. Memory is `2^bits_log2 / 4` bytes for the two.
    pub bits_log2: u32,
    /// The epoch also advances after this long, so that a request somebody held back dies within twice this time.
    pub epoch_max: Duration,
}

impl Default for FilterSize {
    /// 4 MiB in all; an epoch is 1.16 million requests, so 11 seconds at 100,000 requests a second; one minute at most.
    fn default() -> Self {
        Self {
            bits_log2: 24,
            epoch_max: Duration::from_secs(60),
        }
    }
}

impl FilterSize {
    /// Requests in one epoch.
    pub fn requests_per_epoch(&self) -> u64 {
        // Far below 2^53.
        ((1u64 << self.bits_log2) as f64 / BITS_PER_NONCE) as u64
    }

    /// Bytes of memory for both filters.
    pub fn memory_bytes(&self) -> u64 {
        (1 << self.bits_log2) / 4
    }
}

/// The filter.
#[derive(Debug)]
pub(crate) struct ReplayFilter {
    size: FilterSize,
    key: [u8; 16],
    epoch: u64,
    epoch_began: Instant,
    present: Bloom,
    before: Bloom,
}

impl ReplayFilter {
    pub(crate) fn new(size: FilterSize, now: Instant) -> Self {
        Self::with_key(size, now, random())
    }

    fn with_key(mut size: FilterSize, now: Instant, key: [u8; 16]) -> Self {
        size.bits_log2 = size.bits_log2.clamp(13, 32);
        Self {
            size,
            key,
            epoch: 1,
            epoch_began: now,
            present: Bloom::new(size.bits_log2),
            before: Bloom::new(size.bits_log2),
        }
    }

    /// The present epoch, from 1; advances it where its time is over.
    pub(crate) fn epoch(&mut self, now: Instant) -> u64 {
        let age = now.saturating_duration_since(self.epoch_began);
        if age >= self.size.epoch_max {
            self.advance(now);
        }
        if age >= 2 * self.size.epoch_max {
            // Nobody asked for long: what was signed in the last epoch is as old.
            self.advance(now);
        }
        self.epoch
    }

    /// Takes a nonce of an epoch. `StaleEpoch` where that is not the present one or the one before, `Replayed` where the nonce
    /// was taken already or seems so.
    pub(crate) fn take(
        &mut self,
        epoch: u64,
        nonce: &[u8; 16],
        now: Instant,
    ) -> Result<(), Reason> {
        let present = self.epoch(now);
        let most = self.size.requests_per_epoch();
        let bits = self.bits(nonce);
        if epoch == present {
            if self.present.taken >= most {
                self.advance(now);
                // What was the present filter is now the one before, and may take a few that come late.
                return self.take_late(bits);
            }
            self.present.take(bits)
        } else if epoch.checked_add(1) == Some(present) {
            self.take_late(bits)
        } else {
            Err(Reason::StaleEpoch)
        }
    }

    /// Into the filter of the epoch before; a quarter more than full is too much.
    fn take_late(&mut self, bits: (u64, u64)) -> Result<(), Reason> {
        let most = self.size.requests_per_epoch();
        if self.before.taken >= most + most / 4 {
            return Err(Reason::StaleEpoch);
        }
        self.before.take(bits)
    }

    /// Nonces taken in the present epoch.
    pub(crate) fn taken(&self) -> u64 {
        self.present.taken
    }

    fn advance(&mut self, now: Instant) {
        std::mem::swap(&mut self.present, &mut self.before);
        self.present.clear();
        self.epoch += 1;
        self.epoch_began = now;
    }

    fn bits(&self, nonce: &[u8; 16]) -> (u64, u64) {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(nonce);
        let hash = hasher.finish128();
        (hash.h1, hash.h2)
    }
}

/// One Bloom filter; nine indexes of two hashes (Kirsch and Mitzenmacher, "Less hashing, same performance", 2006).
#[derive(Debug)]
struct Bloom {
    words: Vec<u64>,
    mask: u64,
    taken: u64,
}

impl Bloom {
    fn new(bits_log2: u32) -> Self {
        Self {
            words: vec![0; 1 << (bits_log2 - 6)],
            mask: (1 << bits_log2) - 1,
            taken: 0,
        }
    }

    fn take(&mut self, (first, step): (u64, u64)) -> Result<(), Reason> {
        // An odd step meets no bit twice.
        let step = step | 1;
        let mut new = false;
        for i in 0..HASHES {
            let bit = first.wrapping_add(step.wrapping_mul(i)) & self.mask;
            let word = &mut self.words[(bit >> 6) as usize];
            let one = 1 << (bit & 63);
            new |= *word & one == 0;
            *word |= one;
        }
        if new {
            self.taken += 1;
            Ok(())
        } else {
            Err(Reason::Replayed)
        }
    }

    fn clear(&mut self) {
        self.words.fill(0);
        self.taken = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: FilterSize = FilterSize {
        bits_log2: 18,
        epoch_max: Duration::from_secs(60),
    };

    fn nonce(i: u64) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&i.to_le_bytes());
        out
    }

    fn filter(now: Instant) -> ReplayFilter {
        ReplayFilter::with_key(SMALL, now, [9; 16])
    }

    #[test]
    fn a_nonce_is_taken_once_while_its_epoch_is_accepted() {
        let now = Instant::now();
        let mut filter = filter(now);
        assert_eq!(filter.take(1, &nonce(1), now), Ok(()));
        assert_eq!(filter.take(1, &nonce(1), now), Err(Reason::Replayed));
        let later = now + SMALL.epoch_max;
        assert_eq!(filter.take(1, &nonce(1), later), Err(Reason::Replayed));
        assert_eq!(filter.epoch(later), 2);
        assert_eq!(filter.take(1, &nonce(2), later), Ok(()));
        assert_eq!(filter.take(1, &nonce(2), later), Err(Reason::Replayed));
        let latest = later + SMALL.epoch_max;
        assert_eq!(filter.take(1, &nonce(3), latest), Err(Reason::StaleEpoch));
        assert_eq!(filter.take(4, &nonce(3), latest), Err(Reason::StaleEpoch));
        assert_eq!(
            filter.take(u64::MAX, &nonce(3), latest),
            Err(Reason::StaleEpoch)
        );
        assert_eq!(filter.take(0, &nonce(3), latest), Err(Reason::StaleEpoch));
    }

    #[test]
    fn at_most_one_new_nonce_in_a_thousand_is_refused_over_whole_epochs() {
        let now = Instant::now();
        let mut filter = filter(now);
        let per_epoch = SMALL.requests_per_epoch();
        let (mut refused, mut last_tenth) = (0, 0);
        for epoch in 1..=4 {
            for i in 0..per_epoch {
                let taken = filter.take(epoch, &nonce(epoch * per_epoch + i), now);
                assert_ne!(taken, Err(Reason::StaleEpoch));
                refused += u64::from(taken.is_err());
                last_tenth += u64::from(taken.is_err() && i > per_epoch * 9 / 10);
            }
            // The filter is full but for what was refused: fill it, so that the epoch ends.
            let mut i = 0;
            while filter.epoch == epoch {
                let _ = filter.take(epoch, &nonce(1 << 40 | epoch << 32 | i), now);
                i += 1;
            }
        }
        assert!(refused * 1000 <= 4 * per_epoch, "{refused}");
        // Where it is fullest it must be near the promise, else the filter is not what it says.
        assert!(last_tenth > 0);
    }

    #[test]
    fn an_epoch_ends_when_its_filter_is_full() {
        let now = Instant::now();
        let mut filter = filter(now);
        let mut taken = 0;
        for i in 0..SMALL.requests_per_epoch() + 100 {
            taken += u64::from(filter.take(1, &nonce(i), now).is_ok());
        }
        assert_eq!(filter.epoch(now), 2);
        assert!(taken > SMALL.requests_per_epoch());
        for i in 0..SMALL.requests_per_epoch() + 100 {
            assert_eq!(filter.take(1, &nonce(i), now), Err(Reason::Replayed));
        }
        let most = SMALL.requests_per_epoch() * 5 / 4;
        for i in 0..2 * most {
            let _ = filter.take(1, &nonce(1 << 40 | i), now);
        }
        assert_eq!(
            filter.take(1, &nonce(1 << 41), now),
            Err(Reason::StaleEpoch)
        );
        assert_eq!(filter.epoch(now), 2);
    }

    #[test]
    fn what_was_held_back_for_two_epochs_is_dead_also_where_nobody_asked_meanwhile() {
        let now = Instant::now();
        let mut filter = filter(now);
        let later = now + 2 * SMALL.epoch_max;
        assert_eq!(filter.take(1, &nonce(1), later), Err(Reason::StaleEpoch));
    }

    #[test]
    fn the_memory_is_what_is_stated() {
        let size = FilterSize::default();
        let filter = ReplayFilter::new(size, Instant::now());
        let words = filter.present.words.len() + filter.before.words.len();
        assert_eq!(words as u64 * 8, size.memory_bytes());
        assert_eq!(size.memory_bytes(), 4 << 20);
        assert!(size.requests_per_epoch() > 1_100_000);
    }
}
