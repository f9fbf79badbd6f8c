//! Which place in the code asked for a sync, and what happens without it.
//!
//! 1. A site is a kind of file and the innermost function of a room's crates that asked, with its line; below it, where
//!    SQLite stands between, SQLite's function.
//! 2. Sites are found by walking the stack, so they need a build with line tables, and are no promise: they name places
//!    of one build.

use std::backtrace::Backtrace;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::campaign::Bounds;
use crate::explore::{Options, Report, Subject, explore};
use crate::states::Limits;

/// A place in the code that makes something durable: what kind of thing, and who asked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site(pub String);

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Sees every sync, counts them by site, and ignores those of one site.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    seen: Arc<Mutex<BTreeMap<Site, usize>>>,
    ignored: Option<Site>,
}

impl Watch {
    /// Sees only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ignores the syncs of a site.
    pub fn ignoring(site: Site) -> Self {
        Self {
            ignored: Some(site),
            ..Self::default()
        }
    }

    /// The sites seen so far, with how often.
    pub fn seen(&self) -> BTreeMap<Site, usize> {
        self.seen.lock().clone()
    }

    /// Notes a sync of `what` at the place of the caller; whether it counts.
    pub(crate) fn see(&self, what: &str) -> bool {
        let site = Site(site(what, &Backtrace::force_capture().to_string()));
        let counts = self.ignored.as_ref() != Some(&site);
        *self.seen.lock().entry(site).or_default() += 1;
        counts
    }
}

/// The sites that workloads and the recoveries from their crashes pass, each with the indices of the workloads that
/// pass it, those of few steps first.
pub fn users<S: Subject>(subjects: &[S], threads: usize) -> BTreeMap<Site, Vec<usize>> {
    let next = AtomicUsize::new(0);
    let users = Mutex::new(BTreeMap::<Site, Vec<usize>>::new());
    let few = Options {
        limits: Limits {
            bits: 2,
            samples: 1,
            tears: 0,
            seed: 1,
        },
        states_max: 6,
        recovery_every: 3,
        recovery_states_max: 1,
        ..Options::default()
    };
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(subject) = subjects.get(index) else {
                break;
            };
            let watch = Watch::new();
            explore(subject, &few, Some(watch.clone()), None);
            let mut users = users.lock();
            for (site, _) in watch.seen() {
                users.entry(site).or_default().push(index);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    let mut users = users.into_inner();
    for indices in users.values_mut() {
        indices.sort_by_key(|index| (subjects[*index].steps().len(), *index));
    }
    users
}

/// Explores workloads without the syncs of a site until one fails.
pub fn without<S: Subject>(
    site: &Site,
    subjects: &[&S],
    options: &Options,
    bounds: &Bounds,
) -> Report {
    let mut sum = Report::default();
    // Every recovery may be the one that misses the sync.
    let options = Options {
        recovery_every: options.recovery_every.min(4),
        ..options.clone()
    };
    for subject in subjects {
        let watch = Watch::ignoring(site.clone());
        sum.add(explore(*subject, &options, Some(watch), bounds.deadline));
        if !sum.failures.is_empty() || sum.cut_short || sum.distinct >= bounds.states_max {
            break;
        }
    }
    sum
}

/// Crates whose functions answer for a sync. What is above them is the test.
const ASKERS: [&str; 4] = ["room::", "segments::", "catalog::", "storage::replace"];

fn site(what: &str, trace: &str) -> String {
    let frames = frames(trace);
    let asks = |frame: &Frame<'_>| ASKERS.iter().any(|c| frame.function.starts_with(c));
    let mut parts = vec![kind(what)];
    let Some(asker) = frames.iter().position(asks) else {
        parts.push("from outside".into());
        return parts.join(" < ");
    };
    // SQLite's functions have no path; the innermost that is not only a way to the file names the step.
    let through = frames[..asker].iter().find(|f| {
        let passes = ["sqlite3OsSync", "sync", "_Unwind"];
        !f.function.contains("::")
            && !passes.iter().any(|p| f.function.starts_with(p))
            && !f.function.starts_with("__")
    });
    parts.extend(through.map(Frame::text));
    parts.push(frames[asker].text());
    // A helper answers with who used it.
    if frames[asker].function.starts_with("storage::replace") {
        parts.extend(
            frames[asker + 1..]
                .iter()
                .find(|f| asks(f))
                .map(Frame::text),
        );
    }
    parts.join(" < ")
}

/// What kind of file: numbers of segments do not matter.
fn kind(what: &str) -> String {
    match what.rsplit_once('/') {
        Some((dir, name)) if name.chars().all(|c| c.is_ascii_digit()) => format!("{dir}/N"),
        _ => what.to_owned(),
    }
}

#[derive(Debug)]
struct Frame<'t> {
    function: &'t str,
    line: Option<&'t str>,
}

impl Frame<'_> {
    fn text(&self) -> String {
        match self.line {
            Some(line) => format!("{}:{line}", self.function),
            None => self.function.to_owned(),
        }
    }
}

/// The frames of a printed stack, innermost first: `  3: function`, then `at path:line:column`.
fn frames(trace: &str) -> Vec<Frame<'_>> {
    let mut frames: Vec<Frame<'_>> = Vec::new();
    for line in trace.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix("at ") {
            if let Some(last) = frames.last_mut() {
                let mut parts = place.rsplit(':');
                parts.next();
                last.line = parts.next();
            }
        } else if let Some((number, function)) = line.split_once(": ")
            && number.chars().all(|c| c.is_ascii_digit())
        {
            // Implementations of traits print as `<room::core::Core as Trait>::function`.
            let function = function.trim_start_matches('<');
            frames.push(Frame {
                function,
                line: None,
            });
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_the_innermost_function_of_a_room() {
        let trace = "   0: std::backtrace::Backtrace::force_capture
             at /rustc/library/std/src/backtrace.rs:312:9
   1: <explorer::record::RecordedFile as storage::StorageFile>::sync
             at ./crates/explorer/src/record.rs:10:5
   2: segments::store::DirStore::sync_due
             at ./crates/segments/src/store.rs:261:13
   3: room::commit::flush
             at ./crates/room/src/commit.rs:7:1";
        assert_eq!(
            site("segments/00000000000000000007", trace),
            "segments/N < segments::store::DirStore::sync_due:261"
        );
    }

    #[test]
    fn a_site_inside_sqlite_is_named_by_both_sides() {
        let trace = "   1: <explorer::record::RecordedFile as storage::StorageFile>::sync
   2: pages::vfs::sync
   3: sqlite3OsSync
   4: sqlite3WalFrames
             at ./sqlite3.c:69000:12
   5: sqlite3_step
   6: rusqlite::raw_statement::RawStatement::step
   7: catalog::sql::SqlCatalog::commit_now
             at ./crates/catalog/src/sql.rs:5:1";
        assert_eq!(
            site("catalog.db-wal", trace),
            "catalog.db-wal < sqlite3WalFrames:69000 < catalog::sql::SqlCatalog::commit_now:5"
        );
    }

    #[test]
    fn a_helper_is_named_with_who_used_it() {
        let trace = "   1: storage::replace
             at ./crates/storage/src/lib.rs:140:5
   2: room::header::write_both
             at ./crates/room/src/header.rs:80:9";
        assert_eq!(
            site("header.json.new", trace),
            "header.json.new < storage::replace:140 < room::header::write_both:80"
        );
    }
}
