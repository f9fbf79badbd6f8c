//! Earlier results of this machine, and what changed between them.
//!
//! 1. A result is one file, written beside, brought to the disk and then renamed: it is there whole or not at all.
//! 2. At most [`KEPT`] are kept; the oldest go first. Nothing is removed whose name this module did not give.
//! 3. A file that cannot be read is named and left alone; the others are still shown.
//! 4. Only results of the same machine, command, options and stores are put against each other.
//!
//! It deliberately does not know how a measurement is made.

mod changes;

pub use changes::{Change, RowChange, between, text};

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::model::Report;
use crate::report::json;

/// Results that are kept.
pub const KEPT: usize = 200;

/// Ends the name of a result.
const SUFFIX: &str = ".json";

/// Results of this machine, in a directory of their own.
#[derive(Debug, Clone)]
pub struct History {
    dir: PathBuf,
}

/// A result that was kept.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Where.
    pub path: PathBuf,
    /// What.
    pub report: Report,
}

/// A file that is no result, and why.
#[derive(Debug)]
pub struct Skipped {
    /// Which.
    pub path: PathBuf,
    /// Why it could not be read.
    pub why: String,
}

/// Why the history could not be read or added to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is neither `XDG_STATE_HOME` nor `HOME`.
    #[error(
        "there is no directory for earlier results: set XDG_STATE_HOME or HOME to an absolute path"
    )]
    NoPlace,
    /// A system call failed.
    #[error("{what}: {source}; measurements are not affected, but this one is not remembered", what = path.display())]
    Io {
        /// On what.
        path: PathBuf,
        /// How.
        source: io::Error,
    },
}

impl History {
    /// That of the user: `$XDG_STATE_HOME/strongroom/bench`, else `~/.local/state/strongroom/bench` (XDG Base Directory
    /// Specification 0.8). Nothing is made until something is kept.
    pub fn of_the_user() -> Result<History, Error> {
        let absolute = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let state = absolute("XDG_STATE_HOME")
            .or_else(|| Some(absolute("HOME")?.join(".local/state")))
            .ok_or(Error::NoPlace)?;
        Ok(History::at(state.join("strongroom/bench")))
    }

    /// In a directory that is this module's alone.
    pub fn at(dir: impl Into<PathBuf>) -> History {
        History { dir: dir.into() }
    }

    /// Keeps a result, and lets the oldest go where there are too many. Where it is now.
    pub fn keep(&self, report: &Report) -> Result<PathBuf, Error> {
        fs::create_dir_all(&self.dir).map_err(at(&self.dir))?;
        let mut file = tempfile::Builder::new()
            .prefix(".new-")
            .tempfile_in(&self.dir)
            .map_err(at(&self.dir))?;
        file.write_all(json::text(report).as_bytes())
            .and_then(|()| file.write_all(b"\n"))
            .and_then(|()| file.as_file().sync_all())
            .map_err(at(file.path()))?;
        // Sorted by name, results are sorted by time; two of one second get a number.
        let began: String = report
            .began
            .chars()
            .filter(|letter| letter.is_ascii_alphanumeric())
            .collect();
        let command: String = report
            .command
            .chars()
            .filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-')
            .collect();
        for number in 0..1000 {
            let path = self
                .dir
                .join(format!("{began}-{number:03}-{command}{SUFFIX}"));
            file = match file.persist_noclobber(&path) {
                Ok(_) => {
                    fs::File::open(&self.dir)
                        .and_then(|dir| dir.sync_all())
                        .map_err(at(&self.dir))?;
                    self.forget()?;
                    return Ok(path);
                }
                Err(taken) if taken.error.kind() == io::ErrorKind::AlreadyExists => taken.file,
                Err(failed) => return Err(at(&path)(failed.error)),
            };
        }
        Err(at(&self.dir)(io::ErrorKind::AlreadyExists.into()))
    }

    /// Removes the oldest beyond [`KEPT`].
    fn forget(&self) -> Result<(), Error> {
        let names = self.names()?;
        for path in &names[..names.len().saturating_sub(KEPT)] {
            match fs::remove_file(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at(path)(e)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Paths of results, oldest first.
    fn names(&self) -> Result<Vec<PathBuf>, Error> {
        let entries = match fs::read_dir(&self.dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(at(&self.dir))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(at(&self.dir))?;
            if entry.file_name().to_str().is_some_and(is_ours) {
                names.push(entry.path());
            }
        }
        names.sort();
        Ok(names)
    }

    /// All results, oldest first, and the files that could not be read.
    pub fn list(&self) -> Result<(Vec<Entry>, Vec<Skipped>), Error> {
        let (mut entries, mut skipped) = (Vec::new(), Vec::new());
        for path in self.names()? {
            let text = fs::read_to_string(&path).map_err(|e| e.to_string());
            match text.and_then(|text| json::read(&text).map_err(|e| e.to_string())) {
                Ok(report) => entries.push(Entry { path, report }),
                Err(why) => skipped.push(Skipped { path, why }),
            }
        }
        Ok((entries, skipped))
    }
}

/// A name that [`History::keep`] gives: a time, a number, a command.
fn is_ours(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(SUFFIX) else {
        return false;
    };
    let mut pieces = stem.splitn(3, '-');
    let time = pieces.next().is_some_and(|time| {
        time.len() >= 15 && time.starts_with(|c: char| c.is_ascii_digit()) && time.contains('T')
    });
    time && pieces
        .next()
        .is_some_and(|number| number.len() == 3 && number.bytes().all(|b| b.is_ascii_digit()))
        && pieces.next().is_some()
}

fn at(path: &Path) -> impl Fn(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io {
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn began(second: usize) -> Report {
        let mut report = sample::empty();
        report.began = format!("2026-11-22T08:{:02}:{:02}Z", second / 60, second % 60);
        report
    }

    #[test]
    fn what_is_kept_is_listed_in_its_order() {
        let dir = tempfile::tempdir().unwrap();
        let history = History::at(dir.path().join("a/b"));
        assert!(
            history.list().unwrap().0.is_empty(),
            "nothing is there, and that is no failure"
        );
        for second in [3, 1, 2, 2] {
            history.keep(&began(second)).unwrap();
        }
        let (entries, skipped) = history.list().unwrap();
        let times: Vec<&str> = entries
            .iter()
            .map(|entry| &entry.report.began[17..19])
            .collect();
        assert_eq!(times, ["01", "02", "02", "03"]);
        assert!(skipped.is_empty());
        assert_eq!(
            fs::read_dir(dir.path().join("a/b")).unwrap().count(),
            4,
            "nothing is left beside"
        );
    }

    #[test]
    fn the_oldest_go_and_foreign_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        let history = History::at(dir.path());
        for name in ["notes.json", "0.json", "keep-me.txt"] {
            fs::write(dir.path().join(name), "mine").unwrap();
        }
        for second in 0..KEPT + 3 {
            history.keep(&began(second)).unwrap();
        }
        let (entries, _) = history.list().unwrap();
        assert_eq!(entries.len(), KEPT);
        assert_eq!(entries[0].report.began, "2026-11-22T08:00:03Z");
        for name in ["notes.json", "0.json", "keep-me.txt"] {
            assert_eq!(fs::read(dir.path().join(name)).unwrap(), b"mine");
        }
    }

    #[test]
    fn a_damaged_file_is_named_and_the_others_are_shown() {
        let dir = tempfile::tempdir().unwrap();
        let history = History::at(dir.path());
        let torn = history.keep(&began(1)).unwrap();
        let newer = history.keep(&began(2)).unwrap();
        history.keep(&began(3)).unwrap();
        let text = fs::read_to_string(&torn).unwrap();
        fs::write(&torn, &text[..text.len() / 2]).unwrap();
        let text = fs::read_to_string(&newer).unwrap();
        fs::write(&newer, text.replacen("\"schema\":1", "\"schema\":99", 1)).unwrap();
        let (entries, skipped) = history.list().unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(skipped.len(), 2);
        assert_eq!(skipped[0].path, torn);
        assert!(skipped[0].why.contains("damaged"), "{}", skipped[0].why);
        assert!(
            skipped[1].why.contains("its form is 99"),
            "{}",
            skipped[1].why
        );
    }
}
