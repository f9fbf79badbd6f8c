//! Opens what a crash left and compares it with what is allowed.
//!
//! 1. The room must open by itself, show one of the allowed moments whole, and be free of findings.
//! 2. The tree comes from one commit point. The header, with the keys, is a file of its own that is replaced in one step:
//!    it may be of another allowed moment than the tree, not of none.
//! 3. Both copies of the header are whole, the backup not newer than the first.
//! 4. A panic is a failure like any other.
//!
//! It deliberately does not know how the state came about.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use room::{CHUNK_LEN, Error, FileSystem as _, InodeNo, Room};
use storage::Storage;

use crate::explore::Failure;
use crate::opening::{KEYS, credential, open_with, options};
use crate::snapshot::{Node, Snapshot};

/// Bytes of the largest header that is looked at.
const HEADER_MAX: u64 = 256 << 10;
/// Lines of differences that a failure shows.
const SHOWN: usize = 12;

/// How thoroughly a state is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct How {
    /// Also change the room, close it, and open it again.
    pub thorough: bool,
    /// Accept a header older than the room remembers: for workloads that put one in place.
    pub accept_old_header: bool,
    /// Do not compare times: for snapshots of another run.
    pub timeless: bool,
    /// Let each file be of another allowed moment: after a commit that found no space for some of them.
    pub blended: bool,
}

/// Opens the room, compares it with each allowed snapshot, checks it with all data, and, if asked, uses it. Returns the
/// place in `allowed` of the latest snapshot it shows.
///
/// # Errors
/// What is wrong, in several lines where needed.
pub fn verify(
    storage: Arc<dyn Storage>,
    allowed: &[Arc<Snapshot>],
    how: How,
) -> Result<usize, Failure> {
    let looked = catch_unwind(AssertUnwindSafe(|| look(&storage, allowed, how)));
    looked.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(Failure(format!("the room panicked: {text}")))
    })
}

/// Opens the room, reads it and closes it, without times: all it shows is durable then.
///
/// # Errors
/// What is wrong.
pub(crate) fn acknowledge(
    storage: &Arc<dyn Storage>,
    accept_old_header: bool,
) -> room::Result<Snapshot> {
    let room = open(storage, accept_old_header)?;
    let found = Snapshot::of(&room)?.timeless();
    room.close()?;
    Ok(found)
}

/// Opens the room and closes it: what is recorded when a recovery itself is interrupted.
///
/// # Errors
/// What is wrong.
pub fn recover(storage: Arc<dyn Storage>, accept_old_header: bool) -> Result<(), Failure> {
    let done = catch_unwind(AssertUnwindSafe(|| {
        open(&storage, accept_old_header)
            .and_then(Room::close)
            .map_err(|e| Failure(format!("the room fails to open and close: {e}")))
    }));
    done.unwrap_or_else(|_| Err(Failure("the room panicked".into())))
}

fn open(storage: &Arc<dyn Storage>, accept_old_header: bool) -> room::Result<Room> {
    let mut first = None;
    for key in 0..KEYS {
        match open_with(storage, &credential(key), options()) {
            Err(e @ Error::WrongCredential(_)) => {
                first.get_or_insert(e);
            }
            Err(Error::OldHeader { .. }) if accept_old_header => {
                let options = room::OpenOptions {
                    accept_rollback: true,
                    ..options()
                };
                return open_with(storage, &credential(key), options);
            }
            other => return other,
        }
    }
    Err(first.unwrap_or(Error::NotFound))
}

fn look(storage: &Arc<dyn Storage>, allowed: &[Arc<Snapshot>], how: How) -> Result<usize, Failure> {
    let about = |what: &'static str| move |e: room::Error| Failure(format!("{what}: {e} ({e:?})"));
    both_headers(&**storage, how.accept_old_header)?;
    let room = open(storage, how.accept_old_header).map_err(about("the room fails to open"))?;
    let found = Snapshot::of(&room).map_err(about("the room cannot be read"))?;
    let compared = if how.timeless {
        found.timeless()
    } else {
        found.clone()
    };
    let which = match place(allowed, &compared) {
        Err(_) if how.blended && is_blend(allowed, &compared) => allowed.len() - 1,
        other => other?,
    };
    check(&room, &compared)?;
    if how.thorough {
        use_it(room, storage, &found, how)?;
    } else {
        // What a close writes belongs to nobody here; the storage goes with the state.
        drop(room);
    }
    Ok(which)
}

/// Neither copy of the header may be missing or torn: a crash must not use up the spare one.
fn both_headers(storage: &dyn Storage, accept_old_header: bool) -> Result<(), Failure> {
    let revision = |name: &str| {
        let bytes = storage::read_limited(storage, name, HEADER_MAX);
        let bytes = bytes.map_err(|e| Failure(format!("{name} cannot be read: {e}")))?;
        let header = seal::Header::parse(&bytes);
        header
            .map(|header| header.revision())
            .map_err(|e| Failure(format!("{name} is not whole: {e}")))
    };
    let (first, backup) = (revision("header.json")?, revision("header.backup.json")?);
    if first < backup && !accept_old_header {
        return Err(Failure(format!(
            "the header is of revision {first}, its backup of revision {backup}"
        )));
    }
    Ok(())
}

/// The latest allowed snapshot that shows this tree.
fn place(allowed: &[Arc<Snapshot>], found: &Snapshot) -> Result<usize, Failure> {
    let Some(which) = allowed.iter().rposition(|a| a.tree == found.tree) else {
        let nearest = allowed
            .iter()
            .enumerate()
            .map(|(n, a)| (a.differences(found), n))
            .min_by_key(|(lines, _)| lines.len());
        let Some((mut lines, n)) = nearest else {
            return Err(Failure("nothing is allowed".into()));
        };
        let more = lines.len().saturating_sub(SHOWN);
        lines.truncate(SHOWN);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        return Err(Failure(format!(
            "the tree is none of the {} allowed; nearest to number {n} of them:\n  {}",
            allowed.len(),
            lines.join("\n  ")
        )));
    };
    if !allowed.iter().any(|a| a.keys == found.keys) {
        let allowed: Vec<_> = allowed.iter().map(|a| &a.keys).collect();
        return Err(Failure(format!(
            "keys that open the room: {:?}, allowed: {allowed:?}",
            found.keys
        )));
    }
    Ok(which)
}

/// Whether every name, there or not, is as in one of the allowed snapshots, whatever the numbers of files. The data of a file may
/// be older than what else is known of it, in each chunk by itself: what was gathered there found no space.
pub(crate) fn is_blend(allowed: &[Arc<Snapshot>], found: &Snapshot) -> bool {
    let mut names = allowed
        .iter()
        .flat_map(|s| s.tree.keys())
        .chain(found.tree.keys());
    let as_somewhere = |name: &String| {
        let states: Vec<_> = allowed.iter().map(|s| s.tree.get(name)).collect();
        let Some(here) = found.tree.get(name) else {
            return states.contains(&None);
        };
        let is_new = states.contains(&None);
        let states: Vec<&Node> = states.into_iter().flatten().collect();
        let expected = with_data_of(here, here);
        // A step may have made a file together with its data.
        let lacks_all = is_new && here.content.as_ref().is_some_and(Vec::is_empty);
        states
            .iter()
            .any(|node| with_data_of(node, here) == expected)
            && (lacks_all && here.size == 0 || is_blend_of_data(&states, here))
    };
    names.all(as_somewhere) && allowed.iter().any(|s| s.keys == found.keys)
}

/// A file with the data of another, for comparing the rest; without its number.
fn with_data_of(node: &Node, other: &Node) -> Node {
    let mut with = node.clone();
    with.no = InodeNo(0);
    with.size = other.size;
    with.times[1] = other.times[1];
    with.content.clone_from(&other.content);
    with
}

/// Whether each chunk of a file is as in one of these states of it, which goes as far there as the file does.
fn is_blend_of_data(states: &[&Node], found: &Node) -> bool {
    let is_somewhere = |(index, hash): (usize, &u128)| {
        let end = (index as u64 + 1) * CHUNK_LEN;
        states.iter().any(|node| {
            let content = node.content.as_ref();
            node.size.min(end) == found.size.min(end)
                && content.is_some_and(|hashes| hashes.get(index) == Some(hash))
        })
    };
    let has_content = match &found.content {
        None => states.iter().any(|node| node.content.is_none()),
        Some(hashes) if hashes.is_empty() => states.iter().any(|node| node.size == found.size),
        Some(hashes) => hashes.iter().enumerate().all(is_somewhere),
    };
    has_content && states.iter().any(|node| node.times[1] == found.times[1])
}

/// Checks with all data. Only what the snapshot itself says is damaged may be found.
fn check(room: &Room, expected: &Snapshot) -> Result<(), Failure> {
    let report = room
        .check(true, false, &|_, _| true)
        .map_err(|e| Failure(format!("the check fails: {e}")))?;
    let damaged = |path: &str| {
        expected
            .tree
            .get(path.trim_start_matches('/'))
            .is_some_and(|node| node.content.is_none())
    };
    let lost: Vec<_> = report.lost.iter().filter(|l| !damaged(&l.path)).collect();
    // Damage that is expected is also found, in words that name its segment; nothing else may be.
    let expects_damage = expected.tree.values().any(|n| n.content.is_none());
    let is_expected = |finding: &String| expects_damage && finding.contains("do not open");
    let sound = report.findings.iter().all(is_expected);
    if sound && lost.is_empty() && !report.stopped {
        return Ok(());
    }
    Err(Failure(format!(
        "the check finds: {:?}, lost: {lost:?}",
        report.findings
    )))
}

/// Writes, reads, removes, commits, closes, opens again, and compares once more.
fn use_it(
    room: Room,
    storage: &Arc<dyn Storage>,
    found: &Snapshot,
    how: How,
) -> Result<(), Failure> {
    const NAME: &str = "/written after the crash";
    let data = crate::workload::bytes(77, 40_000);
    let root = found.tree.get("").map(|node| node.times);
    let used = (|| {
        room.write_file(NAME, &data)?;
        room.sync()?;
        if room.read_file(NAME)? != data {
            return Err(Error::Damaged("what was written reads otherwise".into()));
        }
        let (parent, name) = room.resolve_parent(NAME.as_ref())?;
        room.unlink(parent, name)?;
        let [atime, mtime, ctime, btime] = root.unwrap_or_default();
        room.set_attributes(
            parent,
            &room::SetAttr {
                atime: Some(room::SetTime::At(atime)),
                mtime: Some(room::SetTime::At(mtime)),
                ctime: Some(ctime),
                btime: Some(btime),
                ..room::SetAttr::default()
            },
        )?;
        room.close()
    })();
    used.map_err(|e| Failure(format!("the room cannot be used: {e} ({e:?})")))?;
    let room = open(storage, how.accept_old_header)
        .map_err(|e| Failure(format!("the room fails to open a second time: {e}")))?;
    let again = Snapshot::of(&room)
        .map_err(|e| Failure(format!("the room cannot be read a second time: {e}")))?;
    if again != *found {
        return Err(Failure(format!(
            "opened a second time the room differs:\n  {}",
            found.differences(&again).join("\n  ")
        )));
    }
    check(&room, found)
}
