//! Directories that were looked up just now, under leases of the server: their names are not asked for again.
//!
//! 1. A lease counts from before the name was asked for, by a clock that goes on while the machine is suspended.
//! 2. What this client changes does not wait for its own leases, so it ends them before it asks, and takes in none until there is an answer.
//!    A change to which no answer came may still be made: then none is taken in any more.
//! 3. Attributes are as new as the last answer that brought some: a file that is created here brings its directory's times.
//!
//! It deliberately does not know what a directory that is looked up is for.

use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use metadata_proto::rpc::{Change, Changed, DIRECTORY_AGE};
use model::{Error, FileKind, Inode, InodeNo, Result, Timestamp};
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

use super::names::{Name, Names};

/// Directories kept: about 64 KiB.
const KEPT: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// Time since the machine started.
type Moment = Duration;

#[derive(Debug)]
struct Known {
    inode: Inode,
    until: Moment,
}

#[derive(Debug)]
struct State {
    known: LruCache<Name, Known>,
    /// Changes under way after which something here may be old.
    under_way: usize,
    /// Counts them: what was asked for before one may be old.
    changes: u64,
}

/// The directories.
#[derive(Debug)]
pub(super) struct Directories(Mutex<State>);

/// When a name is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    at: Moment,
    changes: u64,
}

/// What a change makes old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Nothing,
    /// A directory's attributes, once it is made: the answer has the new ones.
    Times(InodeNo),
    /// A directory's attributes.
    Attributes(InodeNo),
    /// All leases.
    Leases,
}

fn now() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    // Neither part is negative.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What a change makes old; `is_file`: whether an inode is known not to be a directory.
fn ended_by(change: &Change, is_file: impl Fn(InodeNo) -> bool) -> Ended {
    match change {
        Change::Create { parent, .. } => Ended::Times(*parent),
        Change::Make { parent, .. }
        | Change::Link { parent, .. }
        | Change::Unlink { parent, .. } => Ended::Attributes(*parent),
        Change::SetAttributes { no, .. }
        | Change::SetXattr { no, .. }
        | Change::RemoveXattr { no, .. }
            if is_file(*no) =>
        {
            Ended::Nothing
        }
        Change::Rmdir { .. }
        | Change::Rename { .. }
        | Change::SetAttributes { .. }
        | Change::SetXattr { .. }
        | Change::RemoveXattr { .. } => Ended::Leases,
        Change::CreateTmpfile { .. } | Change::Fallocate { .. } | Change::CopyRange { .. } => {
            Ended::Nothing
        }
    }
}

impl State {
    fn new() -> Self {
        Self {
            known: LruCache::new(KEPT),
            under_way: 0,
            changes: 0,
        }
    }

    fn get(&mut self, name: &Name, now: Moment) -> std::result::Result<Inode, Asked> {
        match self.known.get(name) {
            Some(known) if now < known.until => Ok(known.inode.clone()),
            _ => Err(Asked {
                at: now,
                changes: self.changes,
            }),
        }
    }

    fn put(&mut self, asked: Asked, name: Name, inode: &Inode) {
        if self.under_way == 0 && self.changes == asked.changes {
            let known = Known {
                inode: inode.clone(),
                until: asked.at + DIRECTORY_AGE,
            };
            self.known.put(name, known);
        }
    }

    fn learn(&mut self, no: InodeNo, learn: impl Fn(&mut Inode)) {
        for (_, known) in &mut self.known {
            if known.inode.no == no {
                learn(&mut known.inode);
            }
        }
    }

    fn forget(&mut self, no: InodeNo) {
        let of_it = self.known.iter().filter(|(_, known)| known.inode.no == no);
        let names: Vec<_> = of_it.map(|(name, _)| name.clone()).collect();
        for name in &names {
            self.known.pop(name);
        }
    }

    fn begin(&mut self, ended: Ended) {
        match ended {
            Ended::Nothing | Ended::Times(_) => return,
            Ended::Attributes(no) => self.forget(no),
            Ended::Leases => self.known.clear(),
        }
        self.under_way += 1;
    }

    fn end(&mut self, ended: Ended, answer: &Result<Option<Changed>>) {
        let times = match answer {
            Ok(Some(Changed::Opened(_, _, at))) => Some(*at),
            _ => None,
        };
        let is_unknown = matches!(answer, Err(Error::Unreachable(_)));
        match (ended, times) {
            (Ended::Nothing, _) => return,
            (Ended::Times(no), Some(at)) => self.learn(no, |inode| created_in(inode, at)),
            (Ended::Times(no), None) => self.forget(no),
            (Ended::Leases, _) if is_unknown => return,
            (Ended::Attributes(_) | Ended::Leases, _) => self.under_way -= 1,
        }
        self.changes += 1;
    }
}

/// A directory's times after a file was created in it; of two, the later change counts.
fn created_in(directory: &mut Inode, at: Timestamp) {
    if directory.ctime < at {
        (directory.ctime, directory.mtime) = (at, at);
    }
}

impl Directories {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State::new()))
    }

    /// The directory that a name leads to; otherwise it is asked for now.
    pub(super) fn get(&self, name: &Name) -> std::result::Result<Inode, Asked> {
        // First, so that it is not later than what the answer says.
        let now = now();
        self.0.lock().get(name, now)
    }

    /// Takes in a lease.
    pub(super) fn put(&self, asked: Asked, name: Name, inode: &Inode) {
        self.0.lock().put(asked, name, inode);
    }

    /// Takes in attributes.
    pub(super) fn learn(&self, inode: &Inode) {
        if inode.kind == FileKind::Directory {
            self.0.lock().learn(inode.no, |known| {
                if known.ctime <= inode.ctime {
                    *known = inode.clone();
                }
            });
        }
    }

    /// A change is asked for: what it makes old.
    pub(super) fn begin(&self, change: &Change, names: &Names) -> Ended {
        let ended = ended_by(change, |no| names.get(no).is_some());
        self.0.lock().begin(ended);
        ended
    }

    /// It was answered.
    pub(super) fn end(&self, ended: Ended, answer: &Result<Option<Changed>>) {
        self.0.lock().end(ended, answer);
    }
}

#[cfg(test)]
mod tests {
    use metadata_proto::rpc::SessionId;
    use model::{Access, NewFile, SetAttr};

    use super::*;

    const START: Moment = Duration::from_secs(5);

    fn at(secs: i64) -> Timestamp {
        Timestamp { secs, nanos: 0 }
    }

    fn directory(no: u64) -> Inode {
        Inode::new(InodeNo(no), FileKind::Directory, at(1))
    }

    fn name(text: &str) -> Name {
        Name::new(InodeNo::ROOT, text.as_bytes())
    }

    /// A directory 7 under the name `d`, leased at the start.
    fn leased() -> State {
        let mut state = State::new();
        let asked = state.get(&name("d"), START).unwrap_err();
        state.put(asked, name("d"), &directory(7));
        state
    }

    fn has(state: &mut State) -> bool {
        state.get(&name("d"), START).is_ok()
    }

    #[test]
    fn a_lease_ends_by_itself() {
        let mut state = leased();
        let last = START + DIRECTORY_AGE - Duration::from_nanos(1);
        assert_eq!(state.get(&name("d"), last).unwrap(), directory(7));
        assert!(state.get(&name("e"), START).is_err());
        assert!(state.get(&name("d"), START + DIRECTORY_AGE).is_err());
    }

    #[test]
    fn what_is_changed_here_ends_leases_and_none_is_taken_in_meanwhile() {
        let done = || Ok(Some(Changed::Done));
        for ended in [Ended::Leases, Ended::Attributes(InodeNo(7))] {
            let mut state = leased();
            let before = state.get(&name("x"), START).unwrap_err();
            state.begin(ended);
            assert!(!has(&mut state), "{ended:?}");
            let meanwhile = state.get(&name("d"), START).unwrap_err();
            state.put(meanwhile, name("d"), &directory(7));
            assert!(!has(&mut state), "{ended:?}");
            state.end(ended, &done());
            for old in [before, meanwhile] {
                state.put(old, name("d"), &directory(7));
                assert!(!has(&mut state), "{ended:?}");
            }
            let after = state.get(&name("d"), START).unwrap_err();
            state.put(after, name("d"), &directory(7));
            assert!(has(&mut state), "{ended:?}");
        }
        let mut state = leased();
        state.begin(Ended::Attributes(InodeNo(8)));
        assert!(has(&mut state), "it is another directory's");
    }

    #[test]
    fn a_change_without_an_answer_ends_leases_for_good() {
        let mut state = leased();
        state.begin(Ended::Leases);
        state.end(Ended::Leases, &Err(Error::Unreachable("it".into())));
        let asked = state.get(&name("d"), START).unwrap_err();
        state.put(asked, name("d"), &directory(7));
        assert!(!has(&mut state));
    }

    #[test]
    fn a_created_file_changes_the_times_of_its_directory() {
        let mut state = leased();
        let asked = state.get(&name("e"), START).unwrap_err();
        let opened = |secs| {
            let file = Inode::new(InodeNo(9), FileKind::Regular, at(secs));
            Ok(Some(Changed::Opened(
                Box::new(file),
                SessionId(1),
                at(secs),
            )))
        };
        let ended = Ended::Times(InodeNo(7));
        state.begin(ended);
        state.end(ended, &opened(4));
        state.end(ended, &opened(3));
        let seen = state.get(&name("d"), START).unwrap();
        assert_eq!((seen.mtime, seen.ctime), (at(4), at(4)));
        state.put(asked, name("e"), &directory(8));
        assert!(state.get(&name("e"), START).is_err(), "it may be old");
        // An answer that was kept has no times.
        state.end(ended, &Ok(Some(Changed::Inode(Box::new(directory(9))))));
        assert!(!has(&mut state));
    }

    #[test]
    fn changes_of_files_end_nothing() {
        let (parent, no, name) = (InodeNo(7), InodeNo(9), b"f".to_vec());
        let new = NewFile::of_kind(FileKind::Regular);
        let set = |no| Change::SetAttributes {
            no,
            set: SetAttr::mode(0o600),
        };
        let create = Change::Create {
            parent,
            name: name.clone(),
            new,
            access: Access::WRITE,
        };
        let unlink = Change::Unlink {
            parent,
            name: name.clone(),
        };
        let is_file = |asked| asked == no;
        assert_eq!(ended_by(&set(no), is_file), Ended::Nothing);
        assert_eq!(ended_by(&set(parent), is_file), Ended::Leases);
        assert_eq!(ended_by(&create, is_file), Ended::Times(parent));
        assert_eq!(ended_by(&unlink, is_file), Ended::Attributes(parent));
        let rmdir = Change::Rmdir { parent, name };
        assert_eq!(ended_by(&rmdir, is_file), Ended::Leases);
    }
}
