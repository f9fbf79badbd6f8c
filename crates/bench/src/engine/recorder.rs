//! How long single calls took, and how much was done when.

use base64::Engine as _;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer as _, V2DeflateSerializer};

use crate::model::Distribution;

/// Slices that a round of full length has.
const SLICES: u64 = 50;
/// No slice is shorter, nanoseconds.
const SLICE_NS_MIN: u64 = 1_000_000;
/// A clock that leaps must not make the list endless.
const SLICES_MAX: u64 = 100_000;
/// Longest time distinguished from longer ones, nanoseconds: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// What one round's calls did.
#[derive(Debug, Clone)]
pub struct Recorder {
    /// Calls done.
    pub operations: u64,
    /// Bytes moved by them.
    pub bytes: u64,
    /// Nanoseconds of each, to three digits.
    pub latency: Histogram<u64>,
    began_ns: u64,
    slice_ns: u64,
    /// Operations and bytes that ended in each slice.
    slices: Vec<(u64, u64)>,
}

impl Recorder {
    /// For a round that began at `began_ns` and takes up to `limit_ns`.
    pub fn new(began_ns: u64, limit_ns: u64) -> Recorder {
        Recorder {
            operations: 0,
            bytes: 0,
            latency: empty_histogram(),
            began_ns,
            slice_ns: (limit_ns / SLICES).max(SLICE_NS_MIN),
            slices: Vec::with_capacity(2 * SLICES as usize),
        }
    }

    /// An operation of `bytes` that went from `from_ns` to `to_ns`.
    pub fn note(&mut self, from_ns: u64, to_ns: u64, bytes: u64) {
        self.note_call(from_ns, to_ns, 1, bytes);
    }

    /// A call that did so many operations at once; the time is the call's.
    pub fn note_call(&mut self, from_ns: u64, to_ns: u64, operations: u64, bytes: u64) {
        self.operations += operations;
        self.bytes += bytes;
        // A clock that goes back gives 0; the checks on clocks will say so.
        self.latency
            .saturating_record(to_ns.saturating_sub(from_ns));
        let slice = to_ns.saturating_sub(self.began_ns) / self.slice_ns;
        if slice < SLICES_MAX {
            let slice = slice as usize;
            if slice >= self.slices.len() {
                self.slices.resize(slice + 1, (0, 0));
            }
            self.slices[slice].0 += operations;
            self.slices[slice].1 += bytes;
        }
    }

    /// Takes in what another thread did in the same round.
    pub fn add(&mut self, other: &Recorder) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        // Both have the same bounds.
        let added = self.latency.add(&other.latency);
        debug_assert!(added.is_ok());
        if self.slices.len() < other.slices.len() {
            self.slices.resize(other.slices.len(), (0, 0));
        }
        for (mine, theirs) in self.slices.iter_mut().zip(&other.slices) {
            mine.0 += theirs.0;
            mine.1 += theirs.1;
        }
    }

    /// (operations, bytes) of each whole slice of a round that took `took_ns`, and a slice's length in nanoseconds.
    /// The last part, which is no whole slice, is left out.
    pub fn whole_slices(&self, took_ns: u64) -> (Vec<(u64, u64)>, u64) {
        let whole = took_ns / self.slice_ns;
        let whole = whole.min(SLICES_MAX) as usize;
        let mut slices = self.slices.clone();
        slices.resize(whole, (0, 0));
        (slices, self.slice_ns)
    }
}

fn empty_histogram() -> Histogram<u64> {
    // The bounds are fixed, and right.
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("bounds of a histogram")
}

/// All latencies of several rounds as the report has them; `None` where there are none.
pub fn distribution<'a>(
    rounds: impl IntoIterator<Item = &'a Histogram<u64>>,
) -> Option<Distribution> {
    let mut all = empty_histogram();
    for one in rounds {
        all.add(one).ok()?;
    }
    if all.is_empty() {
        return None;
    }
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(&all, &mut bytes)
        .ok()?;
    Some(Distribution {
        count: all.len(),
        p50_ns: all.value_at_quantile(0.5),
        p90_ns: all.value_at_quantile(0.9),
        p99_ns: all.value_at_quantile(0.99),
        p999_ns: all.value_at_quantile(0.999),
        max_ns: all.max(),
        histogram: base64::engine::general_purpose::STANDARD.encode(bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_and_times_add_up() {
        let mut one = Recorder::new(1_000, 50_000_000);
        one.note(1_000, 501_000, 10);
        one.note(501_000, 2_501_000, 20);
        let mut two = Recorder::new(1_000, 50_000_000);
        two.note(1_000, 2_601_000, 5);
        one.add(&two);
        assert_eq!((one.operations, one.bytes), (3, 35));
        let (slices, length) = one.whole_slices(3_500_000);
        assert_eq!(length, 1_000_000);
        assert_eq!(slices, [(1, 10), (0, 0), (2, 25)]);
    }

    #[test]
    fn a_clock_that_leaps_or_goes_back_does_no_harm() {
        let mut recorder = Recorder::new(1_000_000, 50_000_000);
        recorder.note(1_000_000, 1, 10);
        recorder.note(1, u64::MAX, 10);
        assert_eq!(recorder.operations, 2);
        assert!(recorder.whole_slices(u64::MAX).0.len() <= SLICES_MAX as usize);
    }

    #[test]
    fn a_distribution_can_be_read_back() {
        let mut recorder = Recorder::new(0, 1_000_000_000);
        for ns in 1..=1000 {
            recorder.note(0, ns * 1000, 1);
        }
        let reported = distribution([&recorder.latency]).unwrap();
        assert_eq!(reported.count, 1000);
        assert!(
            (499_000..=501_000).contains(&reported.p50_ns),
            "{reported:?}"
        );
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(&reported.histogram)
            .unwrap();
        let read: Histogram<u64> = hdrhistogram::serialization::Deserializer::new()
            .deserialize(&mut &bytes[..])
            .unwrap();
        assert_eq!(read.value_at_quantile(0.99), reported.p99_ns);
        assert!(distribution([]).is_none());
    }
}
