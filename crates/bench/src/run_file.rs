//! What a run makes, written down before it is made, so that whatever kills the run, [`clean`] finds and removes it.
//!
//! 1. A work directory or mount is in the run file, on disk, before it exists; it leaves the file after it is gone.
//! 2. Only what is ours is removed: a directory that the run file names, with our name and our mark in it (or empty, for a
//!    run killed between the two), and never across a mount: where something is mounted below that we did not mount,
//!    nothing is removed.
//! 3. A run whose process lives is left alone; a process is its number and the moment it began.
//!
//! It deliberately does not know what is in a work directory.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

mod mounts;

pub use mounts::{is_mounted, mounted_below, unmount};

/// How the name of a work directory begins.
pub const PREFIX: &str = ".strongroom-bench-";
/// The file in a work directory that says whose it is.
const MARK: &str = ".strongroom-bench";
/// How long a directory that refuses to become empty is tried: a process that served it may still be ending.
const REMOVE_FOR: Duration = Duration::from_secs(20);

/// One thing a run makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Item {
    /// A directory on the host, and the token its mark holds.
    Directory { path: HexPath, token: String },
    /// A mountpoint in such a directory.
    Mount { path: HexPath },
    /// A directory in somebody's room, reached with the room's key.
    InRoom { room: HexPath, path: String },
}

/// A path, which need not be text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct HexPath(PathBuf);

impl From<HexPath> for String {
    fn from(path: HexPath) -> String {
        let bytes = path.0.as_os_str().as_bytes();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl TryFrom<String> for HexPath {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        let digits = text.as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        bytes
            .filter(|_| digits.len().is_multiple_of(2))
            .map(|bytes| HexPath(std::ffi::OsString::from_vec(bytes).into()))
            .ok_or_else(|| "no path in hexadecimal digits".to_owned())
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    pid: u32,
    /// In clock ticks since the machine began: field 22 of `/proc/PID/stat`, proc_pid_stat(5).
    pid_began: u64,
    items: Vec<Item>,
}

/// The run file of this process.
#[derive(Debug)]
pub struct Run {
    path: PathBuf,
    state: Mutex<State>,
}

impl Run {
    /// Begins a run whose file is kept below `state_dir`, usually [`default_dir`].
    ///
    /// # Errors
    /// Where that cannot be written: then nothing is measured, since nothing could be cleaned.
    pub fn begin(state_dir: &Path) -> Result<Arc<Run>> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(state_dir)
            .map_err(|e| Error::io(state_dir, "making the directory of run files", e))?;
        let pid = std::process::id();
        let path = state_dir.join(format!("run-{pid}-{}.json", token()));
        let run = Run {
            path,
            state: Mutex::new(State {
                pid,
                pid_began: began(pid).unwrap_or(0),
                items: Vec::new(),
            }),
        };
        Ok(Arc::new(run))
    }

    /// Makes a work directory below `under`, with nothing in it but its mark.
    ///
    /// # Errors
    /// What the system says; nothing is left then.
    pub fn directory(self: &Arc<Self>, under: &Path) -> Result<WorkDir> {
        let under = under
            .canonicalize()
            .map_err(|e| Error::io(under, "finding the directory to work in", e))?;
        let token = token();
        let path = under.join(format!("{PREFIX}{token}"));
        let item = Item::Directory {
            path: HexPath(path.clone()),
            token: token.clone(),
        };
        self.note(item)?;
        let work = WorkDir {
            run: self.clone(),
            path: path.clone(),
            token: token.clone(),
            gone: false,
        };
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|e| Error::io(&path, "making the work directory", e))?;
        write_mark(&path, &token).map_err(|e| Error::io(&path, "marking the work directory", e))?;
        Ok(work)
    }

    /// Writes down that something will be mounted at `path`.
    ///
    /// # Errors
    /// Where the run file cannot be written: then do not mount.
    pub fn will_mount(&self, path: &Path) -> Result<()> {
        self.note(Item::Mount {
            path: HexPath(path.to_owned()),
        })
    }

    /// Nothing is mounted at `path` any more.
    pub fn unmounted(&self, path: &Path) {
        self.forget(|item| matches!(item, Item::Mount { path: HexPath(at) } if at == path));
    }

    /// Writes down that a directory `path` will be made in the room `room`.
    ///
    /// # Errors
    /// As [`will_mount`](Self::will_mount).
    pub fn will_make_in_room(&self, room: &Path, path: &str) -> Result<()> {
        self.note(Item::InRoom {
            room: HexPath(room.to_owned()),
            path: path.to_owned(),
        })
    }

    /// It is gone.
    pub fn gone_in_room(&self, room: &Path, path: &str) {
        self.forget(|item| {
            matches!(item, Item::InRoom { room: HexPath(at), path: name } if at == room && name == path)
        });
    }

    fn note(&self, item: Item) -> Result<()> {
        let mut state = self.state.lock();
        state.items.push(item);
        save(&self.path, &state).map_err(|e| {
            state.items.pop();
            Error::io(&self.path, "writing the run file", e)
        })
    }

    fn forget(&self, which: impl Fn(&Item) -> bool) {
        let mut state = self.state.lock();
        let before = state.items.len();
        state.items.retain(|item| !which(item));
        if state.items.len() == before {
            // Forgotten before: a second cleanup finds nothing.
            return;
        }
        // What stays in the file although it is gone only costs `clean` a look.
        let done = if state.items.is_empty() {
            fs::remove_file(&self.path)
        } else {
            save(&self.path, &state)
        };
        if let Err(error) = done {
            tracing::warn!(run = %self.path.display(), "the run file cannot be brought up to date: {error}");
        }
    }
}

/// A directory that is gone with everything in it when this is dropped.
#[derive(Debug)]
pub struct WorkDir {
    run: Arc<Run>,
    path: PathBuf,
    token: String,
    gone: bool,
}

impl WorkDir {
    /// Where it is: absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run that wrote it down.
    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// Removes it.
    ///
    /// # Errors
    /// What cannot be removed; it stays in the run file.
    pub fn remove(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.gone, true) {
            remove_ours(&self.path, &self.token)?;
            let ours = &self.path;
            self.run.forget(
                |item| matches!(item, Item::Directory { path: HexPath(at), .. } if at == ours),
            );
        }
        Ok(())
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::error!("{error}; when that is fixed, run: strongroom bench clean");
        }
    }
}

/// `$XDG_STATE_HOME/strongroom/bench-runs`, else below `~/.local/state`.
pub fn default_dir() -> Option<PathBuf> {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("strongroom/bench-runs"))
}

/// What [`clean`] did about one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaned {
    /// What it was about.
    pub path: PathBuf,
    /// What was done, or why nothing was.
    pub said: String,
    /// Whether something is left that somebody must look at.
    pub left: bool,
}

/// How [`clean`] removes a directory in a room: the room's directory, the path in it.
pub type InRoom<'a> = &'a dyn Fn(&Path, &str) -> Result<()>;

/// Removes what runs left whose process is gone.
///
/// # Errors
/// Where the run files cannot be listed; failures with single things are in the answer.
pub fn clean(state_dir: &Path, in_room: InRoom<'_>) -> Result<Vec<Cleaned>> {
    let mut done = Vec::new();
    let entries = match fs::read_dir(state_dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(done),
        Err(e) => return Err(Error::io(state_dir, "listing run files", e)),
    };
    for entry in entries {
        let entry = entry.map_err(|e| Error::io(state_dir, "listing run files", e))?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.starts_with("run-")) {
            clean_run(&entry.path(), in_room, &mut done);
        }
    }
    Ok(done)
}

fn clean_run(path: &Path, in_room: InRoom<'_>, done: &mut Vec<Cleaned>) {
    let mut say = |path: &Path, said: String, left: bool| {
        done.push(Cleaned {
            path: path.to_owned(),
            said,
            left,
        });
    };
    let state: State = match fs::read(path)
        .map_err(|e| e.to_string())
        .and_then(|text| serde_json::from_slice(&text).map_err(|e| e.to_string()))
    {
        Ok(state) => state,
        // The file is replaced as a whole: a part of one is of a run that had not made anything yet.
        Err(_) if path.extension().is_some_and(|end| end == "new") => {
            let _ = fs::remove_file(path);
            return;
        }
        Err(why) => return say(path, format!("not a run file, left alone: {why}"), true),
    };
    if began(state.pid).is_some_and(|began| began == state.pid_began) {
        return say(
            path,
            format!("its run goes on in process {}, left alone", state.pid),
            false,
        );
    }
    let mut left = Vec::new();
    // Mounts come after the directory they are in, and go before it.
    for item in state.items.iter().rev() {
        let (at, outcome) = match item {
            Item::Mount { path: HexPath(at) } if !is_mounted(at) => {
                (at, Ok("not mounted any more"))
            }
            Item::Mount { path: HexPath(at) } => (at, unmount(at).map(|()| "unmounted")),
            Item::Directory {
                path: HexPath(at),
                token,
            } => (
                at,
                remove_ours(at, token).map(|there| if there { "removed" } else { "already gone" }),
            ),
            Item::InRoom {
                room: HexPath(room),
                path,
            } => (room, in_room(room, path).map(|()| "removed in the room")),
        };
        match outcome {
            Ok(said) => say(at, said.to_owned(), false),
            Err(why) => {
                say(at, why.to_string(), true);
                left.push(item.clone());
            }
        }
    }
    left.reverse();
    let done = if left.is_empty() {
        fs::remove_file(path)
    } else {
        save(
            path,
            &State {
                items: left,
                ..state
            },
        )
    };
    if let Err(error) = done {
        say(path, format!("the run file: {error}"), true);
    }
}

/// Removes a work directory if it is ours; whether there was one.
fn remove_ours(path: &Path, token: &str) -> Result<bool> {
    let refuse = |why: &str| {
        Err(Error::Refused(format!(
            "{}: {why}, so it is left alone; look at it, and remove it by hand",
            path.display()
        )))
    };
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(Error::io(path, "looking at what is to be removed", e)),
        Ok(meta) if !meta.is_dir() => return refuse("not the directory that was made"),
        Ok(_) => {}
    }
    let named = path.file_name().and_then(|name| name.to_str());
    if named != Some(&format!("{PREFIX}{token}")) {
        return refuse("not a name of ours");
    }
    if let Some(mount) = mounted_below(path) {
        return refuse(&format!("something is mounted at {}", mount.display()));
    }
    match fs::read_to_string(path.join(MARK)) {
        Ok(found) if found == token => {}
        Ok(_) => return refuse("its mark is of another run"),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            // Killed before it was marked, or while the mark went last: then it is empty.
            return fs::remove_dir(path)
                .map(|()| true)
                .map_err(|e| Error::io(path, "removing a directory without our mark", e));
        }
        Err(e) => return Err(Error::io(path, "reading the mark", e)),
    }
    let began = Instant::now();
    // The server of a mount from here writes its last after it is unmounted, and would re-create what is gone.
    while began.elapsed() < REMOVE_FOR && is_named_by_a_process(path) {
        std::thread::sleep(Duration::from_millis(20));
    }
    loop {
        let done = remove_all_but_mark(path)
            .and_then(|()| fs::remove_file(path.join(MARK)))
            .and_then(|()| fs::remove_dir(path));
        match done {
            Ok(()) => return Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound && !path.exists() => return Ok(true),
            Err(e) if began.elapsed() > REMOVE_FOR => {
                return Err(Error::io(path, "removing the work directory", e));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
        if !path.join(MARK).exists() {
            write_mark(path, token).map_err(|e| Error::io(path, "marking", e))?;
        }
    }
}

/// Whether a process beside this one has the directory's name among its arguments or in its environment, as those have
/// that serve a mount from there. Processes of other users are not visible.
fn is_named_by_a_process(path: &Path) -> bool {
    let name = path.as_os_str().as_bytes();
    let own = std::process::id().to_string();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|entry| {
            let id = entry.file_name();
            let id = id.as_bytes();
            id.iter().all(u8::is_ascii_digit) && id != own.as_bytes()
        })
        .any(|entry| {
            ["cmdline", "environ"].iter().any(|part| {
                fs::read(entry.path().join(part))
                    .is_ok_and(|bytes| bytes.windows(name.len()).any(|window| window == name))
            })
        })
}

/// The mark goes last, so that a removal that is killed can be gone on with.
fn remove_all_but_mark(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name() == MARK {
            continue;
        }
        // Neither of the two follows symbolic links.
        let done = if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())
        } else {
            fs::remove_file(entry.path())
        };
        match done {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

fn write_mark(path: &Path, token: &str) -> io::Result<()> {
    fs::write(path.join(MARK), token)
}

/// Replaces the file as a whole, and brings it to the disk.
fn save(path: &Path, state: &State) -> io::Result<()> {
    let fresh = path.with_extension("json.new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(&serde_json::to_vec(state)?)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Sixteen hexadecimal digits that nobody else draws.
fn token() -> String {
    format!("{:016x}", fastrand::u64(..))
}

/// When a process began, in clock ticks since the machine did; `None` if there is none.
fn began(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; what follows is field 3.
    let rest = stat.rsplit_once(')')?.1;
    let state = rest.split_whitespace().next()?;
    if state == "Z" || state == "X" {
        return None;
    }
    rest.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests;
