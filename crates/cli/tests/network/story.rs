//! What a writer did to its files and the answers that it got, kept outside the mount; and what therefore may be found.
//!
//! 1. An operation's beginning is in the journal before it is begun, its end after it was answered.
//! 2. A page may be of any version from the last one acknowledged as durable to the last begun. An operation that was
//!    answered with an error may have been done or not: it counts as begun.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use super::pages::{PAGE, pages_of, version_of};

/// What is done to a file. Every operation is one version of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All pages in place, then closed.
    Write,
    /// All pages in place, then `fsync`.
    Sync,
    /// A new file, synced, renamed over the old one.
    Replace,
    /// Removed.
    Remove,
    /// Nothing new: an `fsync` of what is there.
    Settle,
}

impl Kind {
    const ALL: [Kind; 5] = [
        Kind::Write,
        Kind::Sync,
        Kind::Replace,
        Kind::Remove,
        Kind::Settle,
    ];

    /// Whether success means that it survives everything.
    fn is_durable(self) -> bool {
        self != Kind::Write
    }
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub kind: Kind,
    pub file: u64,
    pub version: u64,
    /// How it was answered: `None` if never, else the error's number, 0 for success.
    pub ended: Option<i32>,
}

/// The writer's side: one line before, one after each operation.
#[derive(Debug)]
pub struct Journal(File);

impl Journal {
    pub fn append(path: &Path) -> Self {
        let file = File::options().create(true).append(true).open(path);
        Self(file.unwrap())
    }

    pub fn began(&mut self, kind: Kind, file: u64, version: u64) {
        let kind = Kind::ALL.iter().position(|k| *k == kind).unwrap();
        self.line(&format!("b {kind} {file} {version}\n"));
    }

    /// The client was killed: what it had not made durable may be gone.
    pub fn killed(&mut self) {
        self.line("k\n");
    }

    /// `error`: its number, 0 for success.
    pub fn ended(&mut self, error: i32) {
        self.line(&format!("e {error}\n"));
    }

    fn line(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
    }
}

/// The contents of a journal.
#[derive(Debug, Default, Clone)]
pub struct Story(pub Vec<Entry>);

impl Story {
    /// A line that was cut short by a kill is none.
    pub fn read(path: &Path) -> Story {
        let mut story = Story::default();
        let text = std::fs::read_to_string(path).unwrap_or_default();
        for line in text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
        {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["b", kind, file, version] => story.0.push(Entry {
                    kind: Kind::ALL[kind.parse::<usize>().unwrap()],
                    file: file.parse().unwrap(),
                    version: version.parse().unwrap(),
                    ended: None,
                }),
                ["k"] => story.forget(),
                ["e", error] => story.0.last_mut().unwrap().ended = Some(error.parse().unwrap()),
                _ => panic!("no line of a journal: {line}"),
            }
        }
        story
    }

    /// The highest version of a file that was begun; 0 if none was.
    pub fn latest(&self, file: u64) -> u64 {
        let versions = self.of(file).map(|entry| entry.version);
        versions.max().unwrap_or(0)
    }

    /// How many operations succeeded.
    pub fn successes(&self) -> u64 {
        self.0.iter().filter(|entry| entry.ended == Some(0)).count() as u64
    }

    /// How many were acknowledged as durable.
    pub fn acknowledged(&self) -> u64 {
        let durable = |entry: &&Entry| entry.ended == Some(0) && entry.kind.is_durable();
        self.0.iter().filter(durable).count() as u64
    }

    /// The errors, with how often each came.
    pub fn errors(&self) -> std::collections::BTreeMap<i32, u64> {
        let mut errors = std::collections::BTreeMap::new();
        for error in self.0.iter().filter_map(|entry| entry.ended) {
            if error != 0 {
                *errors.entry(error).or_default() += 1;
            }
        }
        errors
    }

    fn of(&self, file: u64) -> impl DoubleEndedIterator<Item = &Entry> {
        self.0.iter().filter(move |entry| entry.file == file)
    }

    /// The last version of a file that must survive: what an operation acknowledged as durable made, or found.
    fn floor(&self, file: u64) -> u64 {
        let mut done = 0;
        let mut floor = 0;
        for entry in self.of(file).filter(|entry| entry.ended == Some(0)) {
            if entry.kind != Kind::Settle {
                done = entry.version;
            }
            if entry.kind.is_durable() {
                floor = done;
            }
        }
        floor
    }

    /// Whatever succeeded and was not durable counts as begun only.
    fn forget(&mut self) {
        let floors: std::collections::BTreeMap<u64, u64> = self
            .0
            .iter()
            .map(|entry| (entry.file, self.floor(entry.file)))
            .collect();
        for entry in &mut self.0 {
            if entry.version > floors[&entry.file] && entry.ended == Some(0) {
                entry.ended = None;
            }
        }
    }

    /// The version that a file has exactly, where nothing is open about it.
    pub fn exact(&self, file: u64) -> Option<(u64, bool)> {
        let last = self.of(file).rfind(|entry| entry.kind != Kind::Settle);
        match last {
            None => Some((0, false)),
            Some(entry) if entry.ended == Some(0) => {
                Some((entry.version, entry.kind != Kind::Remove))
            }
            Some(_) => None,
        }
    }

    /// Judges a file as it was found. `lived`: everything that succeeded must be there, as after an orderly end.
    pub fn judge(
        &self,
        seed: u64,
        writer: u64,
        file: u64,
        found: Option<&[u8]>,
        lived: bool,
    ) -> Result<(), String> {
        let latest = self.latest(file);
        let floor = if lived {
            let done = self
                .of(file)
                .rfind(|e| e.ended == Some(0) && e.kind != Kind::Settle);
            done.map_or(0, |entry| entry.version)
        } else {
            self.floor(file)
        };
        let removed =
            |entry: &Entry| entry.kind == Kind::Remove && (floor..=latest).contains(&entry.version);
        let may_lack = floor == 0 || self.of(file).any(removed);
        let wrong = |what: String| {
            let recorded: Vec<String> = self
                .of(file)
                .rev()
                .take(12)
                .map(|e| format!("{:?} {} {:?}", e.kind, e.version, e.ended))
                .collect();
            Err(format!(
                "writer {writer}, file {file}: {what}; it must be of a version from {floor} to {latest}{}. Its last operations, the newest first: {}",
                if may_lack { ", or lack" } else { "" },
                recorded.join(", ")
            ))
        };
        let Some(bytes) = found else {
            return match may_lack {
                true => Ok(()),
                false => wrong("it is not there".into()),
            };
        };
        let len = pages_of(file) * PAGE as u64;
        if bytes.len() as u64 > len || (!may_lack && (bytes.len() as u64) < len) {
            return wrong(format!("it has {} bytes instead of {len}", bytes.len()));
        }
        for (number, page) in (0..).zip(bytes.chunks(PAGE)) {
            match version_of(page, seed, writer, file, number) {
                Ok(0) if may_lack => {}
                Ok(version) if (floor.max(1)..=latest).contains(&version) => {}
                Ok(version) => return wrong(format!("page {number} is of version {version}")),
                Err(why) => return wrong(why),
            }
        }
        Ok(())
    }

    /// Judges a file as it is below `root`.
    pub fn judge_at(
        &self,
        root: &Path,
        seed: u64,
        writer: u64,
        file: u64,
        lived: bool,
    ) -> Result<(), String> {
        let path = path_of(root, writer, file);
        let mut bytes = Vec::new();
        let found = match File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes)) {
            Ok(_) => Some(&bytes[..]),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(format!("{}: {e}", path.display())),
        };
        self.judge(seed, writer, file, found, lived)
    }
}

/// Where a writer's file is.
pub fn path_of(root: &Path, writer: u64, file: u64) -> std::path::PathBuf {
    root.join(format!("writer{writer}"))
        .join(format!("file{file}"))
}

#[cfg(test)]
mod tests {
    use super::super::pages::content;
    use super::*;

    fn story(all: &[(Kind, u64, Option<i32>)]) -> Story {
        let entry = |(kind, version, ended): &(Kind, u64, Option<i32>)| Entry {
            kind: *kind,
            file: 1,
            version: *version,
            ended: *ended,
        };
        Story(all.iter().map(entry).collect())
    }

    #[test]
    fn what_was_acknowledged_and_is_older_or_gone_is_noticed() {
        let it = story(&[
            (Kind::Sync, 1, Some(0)),
            (Kind::Sync, 2, Some(0)),
            (Kind::Write, 3, Some(0)),
            (Kind::Sync, 4, Some(5)),
        ]);
        let judge = |bytes: Option<&[u8]>, lived| it.judge(7, 0, 1, bytes, lived);
        for version in 2..=4 {
            assert_eq!(judge(Some(&content(7, 0, 1, version)), false), Ok(()));
        }
        assert!(judge(Some(&content(7, 0, 1, 1)), false).is_err(), "older");
        assert!(
            judge(Some(&content(7, 0, 1, 5)), false).is_err(),
            "never written"
        );
        assert!(
            judge(Some(&content(7, 0, 1, 2)), true).is_err(),
            "older, though all lived"
        );
        assert!(
            judge(Some(&content(7, 1, 1, 2)), false).is_err(),
            "another writer's"
        );
        assert!(judge(None, false).is_err(), "gone");
        assert!(judge(Some(&[]), false).is_err(), "emptied");
        let mut mixed = content(7, 0, 1, 2);
        mixed[PAGE..].copy_from_slice(&content(7, 0, 1, 4)[PAGE..]);
        assert_eq!(judge(Some(&mixed), false), Ok(()));
        mixed[PAGE + 100] ^= 1;
        assert!(judge(Some(&mixed), false).is_err(), "a bit is wrong");
        mixed[PAGE..].fill(0);
        assert!(judge(Some(&mixed), false).is_err(), "zeros");
    }

    #[test]
    fn a_file_may_lack_only_where_its_removal_was_begun() {
        let it = story(&[(Kind::Sync, 1, Some(0)), (Kind::Remove, 2, None)]);
        assert_eq!(it.judge(7, 0, 1, None, false), Ok(()));
        assert_eq!(it.judge(7, 0, 1, Some(&content(7, 0, 1, 1)), false), Ok(()));
        let it = story(&[(Kind::Remove, 1, Some(0)), (Kind::Replace, 2, Some(0))]);
        assert!(it.judge(7, 0, 1, None, false).is_err());
        let it = story(&[(Kind::Sync, 1, Some(0)), (Kind::Remove, 2, Some(0))]);
        assert!(
            it.judge(7, 0, 1, Some(&content(7, 0, 1, 1)), false)
                .is_err()
        );
    }

    #[test]
    fn a_killed_client_may_have_lost_what_it_had_not_synced() {
        let mut it = story(&[(Kind::Sync, 1, Some(0)), (Kind::Write, 2, Some(0))]);
        let judge = |it: &Story, version| it.judge(7, 0, 1, Some(&content(7, 0, 1, version)), true);
        assert!(judge(&it, 1).is_err());
        it.forget();
        assert_eq!((judge(&it, 1), judge(&it, 2)), (Ok(()), Ok(())));
        assert_eq!(it.exact(1), None);
    }

    #[test]
    fn an_fsync_covers_what_was_written_before() {
        let it = story(&[
            (Kind::Write, 1, Some(0)),
            (Kind::Write, 2, Some(0)),
            (Kind::Settle, 2, Some(0)),
        ]);
        assert!(
            it.judge(7, 0, 1, Some(&content(7, 0, 1, 1)), false)
                .is_err()
        );
        assert_eq!(it.judge(7, 0, 1, Some(&content(7, 0, 1, 2)), false), Ok(()));
    }
}
