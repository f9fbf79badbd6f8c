//! Whether the files of an audit log are whole, and as they were written.
//!
//! 1. With the key of the first entry: every entry is one that the server wrote, in its place. Without it: the chain holds, which anyone
//!    could have computed.
//! 2. One fault does not hide others: the check goes on with the next entry.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::chain::{self, Broken, Common, Key, Place};
use super::state::entries_of_state;

/// Longest line, bytes.
const LINE_MAX: u64 = 1 << 20;
/// A server has written a whole line after this time.
const WRITTEN: Duration = Duration::from_millis(100);
/// Most entries between two that are at hand: each costs some hundred nanoseconds.
const SKIP_MAX: u64 = 1 << 33;
/// Further faults are only counted.
const FAULTS_MAX: usize = 100;

/// What is known of a log before it is looked at.
#[derive(Debug, Default)]
pub struct Expected<'a> {
    /// The key of its first entry.
    pub key: Option<&'a Key>,
    /// Files before the first one given are elsewhere.
    pub partial: bool,
    /// It had at least so many entries once.
    pub entries: u64,
}

/// What was found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Report {
    /// The log's name.
    pub log: String,
    /// Files read.
    pub files: usize,
    /// Entries read.
    pub entries: u64,
    /// The number of the entry that would be next.
    pub next: u64,
    /// When the first and the last one were written.
    pub times: Option<(String, String)>,
    /// The server stopped in an orderly way after the last one.
    pub stopped: bool,
    /// Each was checked with its key.
    pub authenticated: bool,
    /// What is wrong, in sentences.
    pub faults: Vec<String>,
    /// Faults that are not listed.
    pub more: u64,
}

impl Report {
    fn fault(&mut self, what: String) {
        match self.faults.len() < FAULTS_MAX {
            true => self.faults.push(what),
            false => self.more += 1,
        }
    }
}

fn lines(path: &Path) -> io::Result<BufReader<File>> {
    Ok(BufReader::with_capacity(1 << 16, File::open(path)?))
}

/// The next line with its newline, if it has one; empty at the end.
fn next_line(lines: &mut BufReader<File>) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    lines.take(LINE_MAX).read_until(b'\n', &mut line)?;
    if !line.is_empty() && !line.ends_with(b"\n") {
        // A server may be about to write the rest.
        std::thread::sleep(WRITTEN);
        lines.take(LINE_MAX).read_until(b'\n', &mut line)?;
    }
    Ok(line)
}

/// The files of a log: those of a directory, or as given.
fn expand(paths: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in paths {
        if !path.is_dir() {
            all.push(path.clone());
            continue;
        }
        for entry in path.read_dir()? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with("audit.") && name.ends_with(".jsonl") {
                all.push(entry.path());
            }
        }
    }
    Ok(all)
}

/// The files of a log, in the order of their names.
///
/// # Errors
/// Where a directory cannot be read.
pub fn files(paths: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let mut all = expand(paths)?;
    all.sort_unstable();
    Ok(all)
}

/// The files in their order, and faults of those that have none.
fn in_order(paths: &[PathBuf], report: &mut Report) -> io::Result<Vec<(u64, Common, PathBuf)>> {
    let mut numbered = BTreeMap::new();
    for path in expand(paths)? {
        let mut line = next_line(&mut lines(&path)?)?;
        line.pop();
        match chain::parse(&line) {
            Ok(first) if first.file.is_some() && first.log.is_some() => {
                let number = first.file.unwrap_or_default();
                if let Some((_, other)) = numbered.insert(number, (first, path.clone())) {
                    report.fault(format!(
                        "{} and {} are both file {number} of the log",
                        other.display(),
                        path.display()
                    ));
                }
            }
            _ => report.fault(format!(
                "{}: does not begin as a file of an audit log",
                path.display()
            )),
        }
    }
    let numbered = numbered.into_iter();
    Ok(numbered
        .map(|(number, (first, path))| (number, first, path))
        .collect())
}

/// Where the check is.
struct Check<'a> {
    place: Place,
    key: Option<Key>,
    report: &'a mut Report,
}

impl Check<'_> {
    /// Goes on with an entry wherever it is in the chain.
    fn resume_at(&mut self, common: &Common) -> bool {
        let Some(place) = chain::place_of(common) else {
            return false;
        };
        let Some(ahead) = place.seq.checked_sub(self.place.seq) else {
            return false;
        };
        if ahead > SKIP_MAX {
            return false;
        }
        if let Some(key) = &mut self.key {
            chain::skip(key, ahead);
        }
        self.place = place;
        true
    }

    fn line(&mut self, at: &str, line: &[u8]) {
        let broken = match chain::follow(&mut self.place, self.key.as_mut(), line) {
            Ok(common) => return self.passed(common),
            Err(broken) => broken,
        };
        let expected = self.place.seq;
        let what = match broken {
            Broken::Malformed => "is not an entry".to_owned(),
            Broken::Number { found } if found > expected => {
                format!("entries {expected} to {} before it are missing", found - 1)
            }
            Broken::Number { found } => format!("entry {found} where {expected} is expected"),
            Broken::Chain => "does not follow the line before it, which was changed".to_owned(),
            Broken::Mac => "was changed, or not written by the server".to_owned(),
        };
        self.report.fault(format!("{at}: {what}"));
        let Ok(common) = chain::parse(line) else {
            return;
        };
        if broken == Broken::Mac {
            // Its own place is right: the next one is looked for behind it.
            let next = Common {
                seq: common.seq + 1,
                ..common.clone()
            };
            self.resume_at(&next);
            self.place.prev = blake3::hash(line);
            return self.passed(common);
        }
        if self.resume_at(&common) {
            match chain::follow(&mut self.place, self.key.as_mut(), line) {
                Ok(common) => self.passed(common),
                Err(_) => self
                    .report
                    .fault(format!("{at}: was changed, or not written by the server")),
            }
        }
    }

    fn passed(&mut self, common: Common) {
        let report = &mut *self.report;
        report.entries += 1;
        report.stopped = common.event == "stop";
        let first = report.times.take().map(|(first, _)| first);
        let first = first.unwrap_or_else(|| common.time.clone());
        report.times = Some((first, common.time));
    }
}

/// Checks files of one log: those named, and all in directories that are named.
///
/// # Errors
/// Where one cannot be read.
pub fn verify(paths: &[PathBuf], expected: &Expected<'_>) -> io::Result<Report> {
    let mut report = Report {
        authenticated: expected.key.is_some(),
        ..Report::default()
    };
    let files = in_order(paths, &mut report)?;
    report.files = files.len();
    let directories = paths.iter().filter(|path| path.is_dir());
    let states = directories.filter_map(|dir| entries_of_state(dir));
    let state = states.max();
    let least = state.unwrap_or_default().max(expected.entries);
    let Some((number, first, _)) = files.first() else {
        // A new one has no file before a server writes it.
        if state.is_none() || least > 0 {
            report.fault("there is no file of an audit log".into());
        }
        return Ok(report);
    };
    report.log = first.log.clone().unwrap_or_default();
    if let Some(key) = expected.key
        && key.name() != report.log
    {
        let log = report.log.clone();
        report.fault(format!("the key is not that of log {log}"));
        return Ok(report);
    }
    if *number != 1 && !expected.partial {
        let before = number.saturating_sub(1);
        report.fault(format!("files 1 to {before} of the log are missing"));
    }
    let mut check = Check {
        place: Place::first(),
        key: expected.key.cloned(),
        report: &mut report,
    };
    if *number != 1 && !check.resume_at(first) {
        let path = files[0].2.display();
        check
            .report
            .fault(format!("{path}: its first entry has an impossible number"));
        return Ok(report);
    }
    let mut following = *number;
    for (number, first, path) in &files {
        let shown = path.display();
        if *number != following {
            check.report.fault(format!(
                "files {following} to {} of the log are missing",
                number - 1
            ));
        }
        following = number + 1;
        if first.log.as_ref() != Some(&check.report.log) {
            check.report.fault(format!("{shown}: is of another log"));
            continue;
        }
        let mut lines = lines(path)?;
        for at in 1.. {
            let line = next_line(&mut lines)?;
            if line.is_empty() {
                break;
            }
            let at = format!("{shown}:{at}");
            match line.strip_suffix(b"\n") {
                Some(line) => check.line(&at, line),
                None => check.report.fault(format!("{at}: is cut off")),
            }
        }
    }
    let next = check.place.seq;
    report.next = next;
    if next < least {
        report.fault(format!(
            "the log had {least} entries and has {next}: its end was cut off"
        ));
    }
    Ok(report)
}
