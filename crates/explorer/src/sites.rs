//! Which place in the code asked for a sync, and what happens without it.
//!
//! 1. A site is a kind of file and the innermost function of a room's crates in the call stack, with its line; where
//!    SQLite is in between, SQLite's function precedes it.
//! 2. Sites are found by walking the stack, so they need a build with line tables, and are no promise: they name places
//!    of one build.

use std::backtrace::Backtrace;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

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

/// Where the functions are that answer for a sync. What is above them is the test; `pages` and the storage only pass on.
const ASKERS: [&str; 3] = [
    "crates/room/src/",
    "crates/segments/src/",
    "crates/catalog/src/",
];

fn site(what: &str, trace: &str) -> String {
    let frames = frames(trace);
    let mut parts = vec![kind(what)];
    let Some(asker) = frames.iter().position(|f| f.asks() || f.helps()) else {
        parts.push("from outside".into());
        return parts.join(" < ");
    };
    // SQLite's innermost function that is not only a way to the file names the step.
    let passes = |f: &Frame<'_>| f.function == "sqlite3OsSync";
    let through = frames[..asker].iter().find(|f| f.is_c() && !passes(f));
    parts.extend(through.map(Frame::text));
    parts.push(frames[asker].text());
    // A helper answers with who used it.
    if frames[asker].helps() {
        parts.extend(
            frames[asker + 1..]
                .iter()
                .find(|f| f.asks())
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

/// A frame of the stack. Of functions that were inlined, line tables know the last part of the name only, so what counts
/// is the file.
#[derive(Debug)]
struct Frame<'t> {
    function: &'t str,
    path: &'t str,
    line: &'t str,
}

impl Frame<'_> {
    fn asks(&self) -> bool {
        ASKERS.iter().any(|dir| self.path.contains(dir))
    }

    /// Whether it is `storage::replace`.
    fn helps(&self) -> bool {
        self.path.ends_with("crates/storage/src/lib.rs") && self.name() == "replace"
    }

    fn is_c(&self) -> bool {
        self.path.ends_with(".c")
    }

    /// The last part of the function's name.
    fn name(&self) -> &str {
        let name = self.function.split("::{").next().unwrap_or_default();
        let name = name
            .split('<')
            .next()
            .filter(|n| !n.is_empty())
            .unwrap_or(name);
        name.trim_end_matches(':')
            .rsplit("::")
            .next()
            .unwrap_or(name)
    }

    fn text(&self) -> String {
        let name = self.name();
        match self.path.split_once("crates/") {
            Some((_, file)) => format!("{name} ({file}:{})", self.line),
            None => format!("{name}:{}", self.line),
        }
    }
}

/// The frames of a printed stack, innermost first: `  3: function`, then `at path:line:column`.
fn frames(trace: &str) -> Vec<Frame<'_>> {
    let mut frames: Vec<Frame<'_>> = Vec::new();
    for line in trace.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix("at ") {
            if let Some(last) = frames.last_mut() {
                let mut parts = place.rsplitn(3, ':').skip(1);
                last.line = parts.next().unwrap_or_default();
                last.path = parts.next().unwrap_or_default();
            }
        } else if let Some((number, function)) = line.split_once(": ")
            && number.chars().all(|c| c.is_ascii_digit())
        {
            frames.push(Frame {
                // Implementations of traits print as `<room::core::Core as Trait>::function`.
                function: function.rsplit(">::").next().unwrap_or(function),
                path: "",
                line: "",
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
   2: sync_due
             at ./crates/segments/src/store.rs:261:13
   3: <room::core::Core>::flush::{{closure}}
             at ./crates/room/src/commit.rs:7:1";
        assert_eq!(
            site("segments/00000000000000000007", trace),
            "segments/N < sync_due (segments/src/store.rs:261)"
        );
    }

    #[test]
    fn a_site_inside_sqlite_is_named_by_both_sides() {
        let trace = "   1: see
             at ./crates/explorer/src/sites.rs:58:5
   2: pages::vfs::sync
             at ./crates/pages/src/vfs.rs:258:5
   3: sqlite3OsSync
             at /registry/sqlcipher.c:20000:3
   4: sqlite3WalFrames
             at /registry/sqlcipher.c:69000:12
   5: sqlite3_step
             at /registry/sqlcipher.c:80000:12
   6: <strongroom_catalog::sql::Catalog>::commit_now
             at ./crates/catalog/src/sql/mod.rs:5:1";
        assert_eq!(
            site("catalog.db-wal", trace),
            "catalog.db-wal < sqlite3WalFrames:69000 < commit_now (catalog/src/sql/mod.rs:5)"
        );
    }

    #[test]
    fn a_helper_is_named_with_who_used_it() {
        let trace = "   1: strongroom_storage::replace
             at ./crates/storage/src/lib.rs:140:5
   2: room::header::write_both
             at ./crates/room/src/header.rs:80:9";
        assert_eq!(
            site("header.json.new", trace),
            "header.json.new < replace (storage/src/lib.rs:140) < write_both (room/src/header.rs:80)"
        );
    }
}
