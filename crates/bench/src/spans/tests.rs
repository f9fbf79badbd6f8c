use std::sync::atomic::AtomicU64;

use room::spans::{CATALOG, DEVICE_READ, NETWORK, OPENING, SEALING};
use tracing::subscriber::{NoSubscriber, with_default};

use super::*;

/// A clock that a test sets, one for each thread.
mod clock {
    use std::cell::Cell;
    thread_local!(static NOW: Cell<u64> = const { Cell::new(0) });
    pub(super) fn now() -> u64 {
        NOW.get()
    }
    pub(super) fn pass(ns: u64) {
        NOW.set(NOW.get() + ns);
    }
}

macro_rules! within {
    ($name:expr, $run:expr) => {{
        let _span = tracing::trace_span!(target: TARGET, $name).entered();
        $run
    }};
}

fn request() {
    within!(REQUEST, {
        clock::pass(3);
        within!(CATALOG, {
            clock::pass(2);
            within!(DEVICE_READ, clock::pass(8));
            clock::pass(10);
        });
        clock::pass(4);
        within!(OPENING, clock::pass(6));
        clock::pass(1);
    });
}

fn total(snapshot: &Snapshot, name: &str) -> (u64, u64, u64) {
    let total = snapshot.get(name).unwrap();
    (total.own_ns, total.whole_ns, total.times)
}

#[test]
fn time_within_a_span_counts_for_the_innermost_only() {
    let spans = Spans::with_clock(clock::now);
    with_default(spans.clone().over(NoSubscriber::new()), || {
        request();
        request();
    });
    let sums = spans.snapshot();
    assert_eq!(total(&sums, REQUEST), (16, 68, 2));
    assert_eq!(total(&sums, CATALOG), (24, 40, 2));
    assert_eq!(total(&sums, DEVICE_READ), (16, 16, 2));
    assert_eq!(total(&sums, OPENING), (12, 12, 2));
    assert_eq!(sums.times(), 8);
    assert!(sums.elsewhere().is_empty());
    // Own times are the whole once.
    assert_eq!(sums.totals().iter().map(|t| t.own_ns).sum::<u64>(), 68);
}

#[test]
fn what_was_timed_elsewhere_counts_within_the_present_span() {
    let spans = Spans::with_clock(clock::now);
    with_default(spans.clone().over(NoSubscriber::new()), || {
        within!(REQUEST, {
            within!(NETWORK, {
                clock::pass(9);
                tracing::event!(name: DEVICE_READ, target: TARGET, tracing::Level::TRACE, ns = 6_u64);
            });
            clock::pass(1);
        });
    });
    let sums = spans.snapshot();
    assert_eq!(total(&sums, DEVICE_READ), (6, 6, 1));
    assert_eq!(total(&sums, NETWORK), (3, 9, 1));
    assert_eq!(total(&sums, REQUEST), (1, 10, 1));
}

#[test]
fn threads_at_once_add_up_and_a_rest_below_zero_shows_it() {
    const THREADS: u64 = 8;
    const TIMES: u64 = 1000;
    let spans = Spans::with_clock(clock::now);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let listener = spans.clone().over(NoSubscriber::new());
            scope.spawn(|| with_default(listener, || (0..TIMES).for_each(|_| request())));
        }
    });
    let sums = spans.snapshot();
    assert_eq!(
        total(&sums, DEVICE_READ),
        (8 * THREADS * TIMES, 8 * THREADS * TIMES, THREADS * TIMES)
    );
    // From outside the eight threads took as long as one.
    let parts = sums.parts("mounted", "read", TIMES, 40 * TIMES);
    let of = |name: &str| parts.parts.iter().find(|part| part.name == name).unwrap();
    assert_eq!(of(DEVICE_READ).mean_ns, 64.0);
    assert_eq!(of(DEVICE_READ).times, 8.0);
    assert_eq!(of("FUSE round trip").mean_ns, 40.0 - 8.0 * 34.0);
    let sum: f64 = parts.parts.iter().map(|part| part.mean_ns).sum();
    assert_eq!(sum + parts.rest_ns, parts.whole_ns);
}

#[test]
fn parts_and_rest_are_the_whole_and_the_rest_is_what_no_span_covers() {
    let spans = Spans::with_clock(clock::now);
    with_default(spans.clone().over(NoSubscriber::new()), || {
        Spans::operation(|| {
            clock::pass(5);
            within!(SEALING, clock::pass(20));
        });
    });
    let parts = spans.snapshot().parts("room", "write", 1, 27);
    assert_eq!(parts.parts.len(), 1);
    assert_eq!(parts.parts[0].mean_ns, 20.0);
    assert_eq!(parts.rest_ns, 7.0);
}

#[test]
fn work_that_no_measured_call_waits_for_is_kept_apart() {
    let spans = Spans::with_clock(clock::now);
    with_default(spans.clone().over(NoSubscriber::new()), || {
        within!(CATALOG, {
            clock::pass(1);
            within!(DEVICE_READ, clock::pass(2));
        });
        Spans::operation(|| within!(DEVICE_READ, clock::pass(4)));
    });
    let sums = spans.snapshot();
    assert_eq!(total(&sums, DEVICE_READ), (4, 4, 1));
    let elsewhere: Vec<_> = sums
        .elsewhere()
        .iter()
        .map(|t| (t.name, t.own_ns))
        .collect();
    assert!(elsewhere.contains(&(CATALOG, 1)) && elsewhere.contains(&(DEVICE_READ, 2)));
}

#[test]
fn a_difference_holds_what_came_between_two_snapshots_and_nothing_else() {
    let spans = Spans::with_clock(clock::now);
    with_default(spans.clone().over(NoSubscriber::new()), || {
        request();
        let before = spans.snapshot();
        assert_eq!(spans.snapshot().since(&before), Snapshot::default());
        Spans::operation(|| within!(SEALING, clock::pass(9)));
        let came = spans.snapshot().since(&before);
        assert_eq!(total(&came, SEALING), (9, 9, 1));
        assert_eq!(came.get(CATALOG), None);
    });
}

#[test]
fn other_spans_and_events_reach_the_other_subscriber_and_are_not_counted() {
    static EVENTS: AtomicU64 = AtomicU64::new(0);
    static SPANS: AtomicU64 = AtomicU64::new(0);
    struct Counts;
    impl Subscriber for Counts {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= tracing::Level::WARN
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1 + SPANS.fetch_add(1, Ordering::Relaxed))
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {
            EVENTS.fetch_add(1, Ordering::Relaxed);
        }
        fn enter(&self, id: &Id) {
            assert_eq!(id.into_u64() & OURS, 0);
        }
        fn exit(&self, id: &Id) {
            assert_eq!(id.into_u64() & OURS, 0);
        }
    }
    let spans = Spans::with_clock(clock::now);
    with_default(spans.clone().over(Counts), || {
        let _other = tracing::warn_span!("not ours").entered();
        tracing::warn!("heard");
        tracing::debug!("not wanted");
        request();
    });
    assert_eq!(EVENTS.load(Ordering::Relaxed), 1);
    assert_eq!(SPANS.load(Ordering::Relaxed), 1);
    assert_eq!(spans.snapshot().times(), 4);
}

#[test]
fn names_beyond_the_places_there_are_count_as_the_last() {
    let spans = Spans::with_clock(clock::now);
    let names: Vec<&'static str> = (0..NAMES_MAX + 5)
        .map(|n| &*Box::leak(format!("name {n}").into_boxed_str()))
        .collect();
    for name in &names {
        let index = spans.index(name);
        spans.enter(index);
        clock::pass(1);
        spans.exit(index);
    }
    let sums = spans.snapshot();
    assert_eq!(
        sums.elsewhere().iter().map(|t| t.times).sum::<u64>(),
        names.len() as u64
    );
}
