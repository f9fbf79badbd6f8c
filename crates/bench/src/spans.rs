//! Listens to the spans of the program itself, and adds up where its threads spend their time.
//!
//! ```text
//! request       ├──────────────────────────────────┤      own: 34 - 20 - 6
//! catalog          ├──────────────────┤                   own: 20 - 8
//! device read          ├──────┤                           own: 8
//! opening                               ├────┤            own: 6
//! ```
//!
//! 1. A span's *own* time is its time less that of the spans opened within it by the same thread: the own times of one
//!    thread never count a nanosecond twice. Those of several threads do, which then shows as a negative rest.
//! 2. What is counted happened in a stack that began with [`OPERATION`] (a measured call) or
//!    [`REQUEST`] (a mounted room's answer to one). Everything else, as the room's own thread and its
//!    commits, is kept apart as *elsewhere*.
//! 3. Adding up takes no lock: the parts are atomic counters, the stacks belong to their threads.
//!
//! It deliberately does not know what the names mean, nor what was measured from outside.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use room::spans::{REQUEST, TARGET};
use rustix::time::{ClockId, clock_gettime};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, Subscriber};
use tracing::{Event, Metadata};

use crate::model::{Parts, SubOperation};

/// A call that is measured, as [`Spans::operation`] opens it.
pub const OPERATION: &str = "operation";

/// Different names at most; those beyond are counted as the last.
const NAMES_MAX: usize = 24;
/// Set in the ids of these spans, so that no other subscriber's spans are taken for one.
const OURS: u64 = 1 << 62;

/// What the spans of all threads add up to. Made once, for the whole process: [`Spans::listen`].
pub struct Spans {
    now: Box<dyn Fn() -> u64 + Send + Sync>,
    names: [OnceLock<&'static str>; NAMES_MAX],
    here: [Sum; NAMES_MAX],
    elsewhere: [Sum; NAMES_MAX],
}

#[derive(Debug, Default)]
struct Sum {
    own_ns: AtomicU64,
    whole_ns: AtomicU64,
    times: AtomicU64,
}

/// A span that a thread is in.
struct Frame {
    name: usize,
    since: u64,
    within: u64,
}

thread_local! {
    static STACK: RefCell<Vec<Frame>> = const { RefCell::new(Vec::new()) };
}

static GLOBAL: OnceLock<Arc<Spans>> = OnceLock::new();

impl fmt::Debug for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Spans").field(&self.snapshot()).finish()
    }
}

impl Spans {
    /// With a clock of nanoseconds, which is read twice a span.
    pub fn with_clock(now: impl Fn() -> u64 + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            now: Box::new(now),
            names: Default::default(),
            here: Default::default(),
            elsewhere: Default::default(),
        })
    }

    /// Listens from here on to all threads of this process, by CLOCK_MONOTONIC_RAW; everything that is not a span of the
    /// program goes to `others`. Only the first call of a process has an effect, and none has where another subscriber
    /// was installed before: `None` then.
    pub fn listen(others: impl Subscriber + Send + Sync) -> Option<Arc<Self>> {
        let spans = Self::with_clock(|| {
            let now = clock_gettime(ClockId::MonotonicRaw);
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
        });
        tracing::subscriber::set_global_default(spans.clone().over(others)).ok()?;
        Some(GLOBAL.get_or_init(|| spans).clone())
    }

    /// The one that listens in this process, if one does.
    pub fn global() -> Option<Arc<Self>> {
        GLOBAL.get().cloned()
    }

    /// A subscriber that gives the program's spans to this, and the rest to `others`.
    pub fn over(self: Arc<Self>, others: impl Subscriber + Send + Sync) -> impl Subscriber {
        Listener {
            spans: self,
            others: Box::new(others),
        }
    }

    /// Runs a measured call: the spans opened by it in this thread are counted.
    pub fn operation<T>(run: impl FnOnce() -> T) -> T {
        let _span = tracing::trace_span!(target: TARGET, OPERATION).entered();
        run()
    }

    /// The sums up to now. Spans that are open are not in them.
    pub fn snapshot(&self) -> Snapshot {
        let of = |sums: &[Sum; NAMES_MAX]| {
            self.names
                .iter()
                .zip(sums)
                .map_while(|(name, sum)| {
                    Some(Total {
                        name: name.get()?,
                        own_ns: sum.own_ns.load(Ordering::Relaxed),
                        whole_ns: sum.whole_ns.load(Ordering::Relaxed),
                        times: sum.times.load(Ordering::Relaxed),
                    })
                })
                .filter(|total| total.times > 0)
                .collect()
        };
        Snapshot {
            here: of(&self.here),
            elsewhere: of(&self.elsewhere),
        }
    }

    fn index(&self, name: &'static str) -> usize {
        for (index, slot) in self.names.iter().enumerate() {
            if *slot.get_or_init(|| name) == name {
                return index;
            }
        }
        NAMES_MAX - 1
    }

    fn enter(&self, name: usize) {
        let since = (self.now)();
        STACK.with_borrow_mut(|stack| {
            stack.push(Frame {
                name,
                since,
                within: 0,
            });
        });
    }

    fn exit(&self, name: usize) {
        let now = (self.now)();
        STACK.with_borrow_mut(|stack| {
            // Spans here are entered by guards, so they end in turn; one that does not is left out rather than guessed.
            let Some(frame) = stack.pop_if(|frame| frame.name == name) else {
                return;
            };
            let whole = now.saturating_sub(frame.since);
            if let Some(outer) = stack.last_mut() {
                outer.within += whole;
            }
            let root = stack.first().unwrap_or(&frame).name;
            self.add(root, name, whole, whole.saturating_sub(frame.within));
        });
    }

    /// What was timed elsewhere, within the present span.
    fn reported(&self, name: usize, ns: u64) {
        STACK.with_borrow_mut(|stack| {
            if let Some(outer) = stack.last_mut() {
                outer.within += ns;
            }
            let root = stack.first().map_or(name, |frame| frame.name);
            self.add(root, name, ns, ns);
        });
    }

    fn add(&self, root: usize, name: usize, whole_ns: u64, own_ns: u64) {
        let sums = match self.names[root].get() {
            Some(&(OPERATION | REQUEST)) => &self.here,
            _ => &self.elsewhere,
        };
        let sum = &sums[name];
        sum.own_ns.fetch_add(own_ns, Ordering::Relaxed);
        sum.whole_ns.fetch_add(whole_ns, Ordering::Relaxed);
        sum.times.fetch_add(1, Ordering::Relaxed);
    }
}

struct Listener {
    spans: Arc<Spans>,
    others: Box<dyn Subscriber + Send + Sync>,
}

fn ours(metadata: &Metadata<'_>) -> bool {
    metadata.target() == TARGET
}

/// The time in an event.
struct EventNanoseconds(u64);

impl Visit for EventNanoseconds {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "ns" {
            self.0 = value;
        }
    }
    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

/// The name's place in the id of a span of the program.
fn name_in(id: &Id) -> Option<usize> {
    let id = id.into_u64();
    (id & OURS != 0).then_some((id & !OURS) as usize)
}

impl Subscriber for Listener {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if ours(metadata) {
            Interest::always()
        } else {
            self.others.register_callsite(metadata)
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        ours(metadata) || self.others.enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(tracing::level_filters::LevelFilter::TRACE)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        if ours(span.metadata()) {
            Id::from_u64(OURS | self.spans.index(span.metadata().name()) as u64)
        } else {
            self.others.new_span(span)
        }
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        if name_in(span).is_none() {
            self.others.record(span, values);
        }
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        if name_in(span).is_none() {
            self.others.record_follows_from(span, follows);
        }
    }

    fn event_enabled(&self, event: &Event<'_>) -> bool {
        ours(event.metadata()) || self.others.event_enabled(event)
    }

    fn event(&self, event: &Event<'_>) {
        if ours(event.metadata()) {
            let mut reported = EventNanoseconds(0);
            event.record(&mut reported);
            self.spans
                .reported(self.spans.index(event.metadata().name()), reported.0);
        } else {
            self.others.event(event);
        }
    }

    fn enter(&self, span: &Id) {
        match name_in(span) {
            Some(name) => self.spans.enter(name),
            None => self.others.enter(span),
        }
    }

    fn exit(&self, span: &Id) {
        match name_in(span) {
            Some(name) => self.spans.exit(name),
            None => self.others.exit(span),
        }
    }

    fn clone_span(&self, id: &Id) -> Id {
        match name_in(id) {
            Some(_) => id.clone(),
            None => self.others.clone_span(id),
        }
    }

    fn try_close(&self, id: Id) -> bool {
        match name_in(&id) {
            Some(_) => true,
            None => self.others.try_close(id),
        }
    }
}

/// Sums at one moment, or between two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    here: Vec<Total>,
    elsewhere: Vec<Total>,
}

/// What the spans of one name add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Total {
    /// Their name.
    pub name: &'static str,
    /// Nanoseconds of their own: not in spans within them.
    pub own_ns: u64,
    /// Nanoseconds from beginning to end.
    pub whole_ns: u64,
    /// How many.
    pub times: u64,
}

impl Snapshot {
    /// What came since an earlier snapshot of the same [`Spans`].
    pub fn since(&self, earlier: &Self) -> Self {
        let less = |now: &[Total], then: &[Total]| {
            now.iter()
                .map(|total| {
                    let then = then.iter().find(|old| old.name == total.name);
                    let then = then.copied().unwrap_or(Total {
                        own_ns: 0,
                        whole_ns: 0,
                        times: 0,
                        ..*total
                    });
                    Total {
                        name: total.name,
                        own_ns: total.own_ns - then.own_ns,
                        whole_ns: total.whole_ns - then.whole_ns,
                        times: total.times - then.times,
                    }
                })
                .filter(|total| total.times > 0)
                .collect()
        };
        Self {
            here: less(&self.here, &earlier.here),
            elsewhere: less(&self.elsewhere, &earlier.elsewhere),
        }
    }

    /// The spans of this name in measured calls and requests.
    pub fn get(&self, name: &str) -> Option<&Total> {
        self.here.iter().find(|total| total.name == name)
    }

    /// The spans in measured calls and requests, in the order in which their names were first seen.
    pub fn totals(&self) -> &[Total] {
        &self.here
    }

    /// The spans of all other threads, which no measured call waited for: the room's own work in the background.
    pub fn elsewhere(&self) -> &[Total] {
        &self.elsewhere
    }

    /// How many spans there were.
    pub fn times(&self) -> u64 {
        self.here
            .iter()
            .chain(&self.elsewhere)
            .map(|t| t.times)
            .sum()
    }

    /// Where the time of `count` operations went that took `whole_ns` together, seen from outside.
    ///
    /// Where requests were answered, what is whole less them is the round trip: the way of the calls through the kernel and
    /// back. What is left is the time of the calls and requests in no part: the room's own code.
    pub fn parts(&self, store: &str, operation: &str, count: u64, whole_ns: u64) -> Parts {
        let each = 1.0 / count.max(1) as f64;
        let mut parts: Vec<SubOperation> = Vec::new();
        if let Some(requests) = self.get(REQUEST) {
            parts.push(SubOperation {
                name: "FUSE round trip".to_owned(),
                mean_ns: (whole_ns as f64 - requests.whole_ns as f64) * each,
                times: requests.times as f64 * each,
            });
        }
        parts.extend(
            self.here
                .iter()
                .filter(|total| ![OPERATION, REQUEST].contains(&total.name))
                .map(|total| SubOperation {
                    name: total.name.to_owned(),
                    mean_ns: total.own_ns as f64 * each,
                    times: total.times as f64 * each,
                }),
        );
        let covered: f64 = parts.iter().map(|part| part.mean_ns).sum();
        let whole = whole_ns as f64 * each;
        Parts {
            store: store.to_owned(),
            operation: operation.to_owned(),
            count,
            whole_ns: whole,
            parts,
            rest_ns: whole - covered,
            invalid: false,
        }
    }
}

#[cfg(test)]
mod tests;
