//! The container as a hostile keeper of it might return it: put together from all versions of its files that he saw.
//!
//! What opens is, in names, kinds and sizes, one moment of the room as it was committed, and every byte read is of that
//! moment or an error; with this machine's memory of the newest generation, it is the newest moment.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::common::stored::{self, create_on, open_on};
use crate::common::{Place, pattern, sound};
use room::{
    Credential, Error, FileKind, FileSystem as _, InodeNo, NewCredential, OpenOptions, Room, Secret,
};
use storage::testing::MemoryStorage;
use storage::{OpenMode, Storage};

const PAGE: usize = 4096;
const HEADERS: [&str; 2] = ["header.json", "header.backup.json"];

type Files = BTreeMap<String, Vec<u8>>;
/// Kind, size and, where it could be read, content of every path.
type Tree = BTreeMap<PathBuf, (FileKind, u64, Option<Vec<u8>>)>;

struct Moment {
    files: Files,
    tree: Tree,
}

struct History {
    moments: Vec<Moment>,
    /// What the machine that used the room remembers: the file's name and content.
    memory: (String, String),
}

fn raw_key(n: u8) -> Secret {
    Secret::from(vec![n; 32])
}

fn options(state: Option<PathBuf>) -> OpenOptions {
    OpenOptions {
        state_dir: state,
        ..stored::options()
    }
}

fn open(files: &Files, state: Option<PathBuf>) -> room::Result<Room> {
    open_on(storage_of(files), options(state))
}

fn storage_of(files: &Files) -> Arc<MemoryStorage> {
    let storage = MemoryStorage::new();
    storage.create_dir("segments").unwrap();
    for (name, bytes) in files {
        let file = storage.open(name, OpenMode::CreateNew).unwrap();
        file.write_at(bytes, 0).unwrap();
    }
    Arc::new(storage)
}

fn files_of(storage: &MemoryStorage) -> Files {
    let mut names = storage.list("").unwrap();
    names.retain(|name| name != "segments" && name != "lock");
    let segments = storage.list("segments").unwrap();
    names.extend(segments.iter().map(|name| format!("segments/{name}")));
    names
        .into_iter()
        .map(|name| {
            let bytes = storage::read_limited(storage, &name, 1 << 30).unwrap();
            (name, bytes)
        })
        .collect()
}

/// Everything in the room; `Err` where a name or an inode cannot be read.
fn tree_of(room: &Room) -> room::Result<Tree> {
    let mut tree = Tree::new();
    let mut dirs = vec![(InodeNo::ROOT, PathBuf::new())];
    while let Some((dir, at)) = dirs.pop() {
        for (entry, _) in room.read_dir(dir, 0, 1000)? {
            let path = at.join(std::str::from_utf8(&entry.name).unwrap());
            let inode = room.attributes(entry.inode)?;
            let content = if inode.kind == FileKind::Regular {
                let mut bytes = vec![0; inode.size as usize];
                match room.read(entry.inode, 0, &mut bytes) {
                    Ok(read) => Some(bytes).filter(|bytes| bytes.len() == read),
                    Err(Error::Corrupt { .. }) => None,
                    Err(error) => return Err(error),
                }
            } else {
                Some(Vec::new())
            };
            if inode.kind == FileKind::Directory {
                dirs.push((entry.inode, path.clone()));
            }
            tree.insert(path, (inode.kind, inode.size, content));
        }
    }
    Ok(tree)
}

/// A small history: files written, written over, renamed and removed, a slot added, a log moved into the catalog's file,
/// an opening, a new master key.
fn history() -> History {
    let state = tempfile::tempdir().unwrap();
    let storage = Arc::new(MemoryStorage::new());
    let room = create_on(storage.clone(), options(Some(state.path().to_owned())));
    let mut moments = Vec::new();
    let mut note = |room: &Room| {
        room.sync().unwrap();
        moments.push(Moment {
            files: files_of(&storage),
            tree: tree_of(room).unwrap(),
        });
    };
    let fill = |room: &Room, seed: u64| {
        for i in 0..12 {
            let data = pattern(seed * 100 + i, 3000 + 500 * i as usize);
            room.write_file(format!("/dir/file {i} of a name that takes space"), &data)
                .unwrap();
        }
    };
    note(&room);
    room.make_dir("/dir", false).unwrap();
    room.write_file("/kept", &pattern(1, 50_000)).unwrap();
    fill(&room, 1);
    note(&room);
    fill(&room, 2);
    note(&room);
    room.write_file("/kept", &pattern(2, 50_000)).unwrap();
    room.add_slot(NewCredential::RawKey(raw_key(8)), "second")
        .unwrap();
    note(&room);
    room.close().unwrap();
    let room = open_on(storage.clone(), options(Some(state.path().to_owned()))).unwrap();
    note(&room);
    let dir = room.lookup(InodeNo::ROOT, b"dir").unwrap().no;
    for i in 0..6 {
        let name = format!("file {i} of a name that takes space");
        room.unlink(dir, name.as_bytes()).unwrap();
    }
    room.write_file("/new", &pattern(3, 9_000)).unwrap();
    note(&room);
    room.rekey(&Credential::RawKey(raw_key(7)), &|_, _| true)
        .unwrap();
    note(&room);
    fill(&room, 3);
    note(&room);
    let tree = tree_of(&room).unwrap();
    room.close().unwrap();
    moments.push(Moment {
        files: files_of(&storage),
        tree,
    });
    let entry = std::fs::read_dir(state.path())
        .unwrap()
        .find(|file| {
            let name = file.as_ref().unwrap().file_name();
            name.to_string_lossy().ends_with(".generation")
        })
        .unwrap();
    let path = entry.unwrap().path();
    History {
        moments,
        memory: (
            path.file_name().unwrap().to_str().unwrap().to_owned(),
            std::fs::read_to_string(path).unwrap(),
        ),
    }
}

fn is_of(found: &Tree, moment: &Tree) -> bool {
    found.len() == moment.len()
        && found.iter().zip(moment).all(|(one, other)| {
            let ((path, (kind, size, content)), (path_then, (kind_then, size_then, then))) =
                (one, other);
            (path, kind, size) == (path_then, kind_then, size_then)
                && (content.is_none() || content == then)
        })
}

#[derive(Debug, Default)]
struct Outcomes {
    refused: usize,
    unreadable: usize,
    whole: usize,
}

impl History {
    fn newest(&self) -> &Moment {
        self.moments.last().unwrap()
    }

    /// Opens what the keeper returns, on a machine that never saw the room and on the one that used it.
    fn judge(&self, files: &Files, outcomes: &mut Outcomes, what: &dyn Fn() -> String) {
        for remembers in [false, true] {
            let state = tempfile::tempdir().unwrap();
            if remembers {
                std::fs::write(state.path().join(&self.memory.0), &self.memory.1).unwrap();
            }
            let opened = open(files, Some(state.path().to_owned()));
            let tree = match opened.and_then(|room| tree_of(&room)) {
                Ok(tree) => tree,
                Err(error) => {
                    self.is_named(&error, what);
                    outcomes.refused += 1;
                    continue;
                }
            };
            let allowed = match remembers {
                true => &self.moments[self.moments.len() - 1..],
                false => &self.moments[..],
            };
            assert!(
                allowed.iter().any(|moment| is_of(&tree, &moment.tree)),
                "{}: a room of no moment, memory {remembers}",
                what()
            );
            if tree.values().all(|(_, _, content)| content.is_some()) {
                outcomes.whole += 1;
            } else {
                outcomes.unreadable += 1;
            }
        }
    }

    fn is_named(&self, error: &Error, what: &dyn Fn() -> String) {
        assert!(
            matches!(
                error,
                Error::RolledBack { .. }
                    | Error::OldHeader { .. }
                    | Error::HeaderDamaged(_)
                    | Error::Damaged(_)
                    | Error::Catalog(_)
                    | Error::Corrupt { .. }
                    | Error::Seal(_)
                    | Error::WrongCredential(_)
            ),
            "{}: {error:?}",
            what()
        );
    }
}

#[test]
fn any_file_replaced_by_any_older_version_of_itself_is_found_or_one_moment() {
    let history = history();
    let mut outcomes = Outcomes::default();
    for (b, to) in history.moments.iter().enumerate() {
        for (a, from) in history.moments.iter().enumerate() {
            for name in from.files.keys().chain(to.files.keys()) {
                let mut files = to.files.clone();
                match from.files.get(name) {
                    Some(bytes) => files.insert(name.clone(), bytes.clone()),
                    None => files.remove(name),
                };
                history.judge(&files, &mut outcomes, &|| format!("{name} of {a} in {b}"));
            }
        }
    }
    println!("{outcomes:?}");
    assert!(outcomes.refused > 50 && outcomes.unreadable > 5 && outcomes.whole > 50);
}

#[test]
fn a_room_put_back_whole_is_refused_where_it_was_used_and_named() {
    let history = history();
    for (index, moment) in history.moments.iter().enumerate() {
        let state = tempfile::tempdir().unwrap();
        std::fs::write(state.path().join(&history.memory.0), &history.memory.1).unwrap();
        let opened = open(&moment.files, Some(state.path().to_owned()));
        if index + 1 == history.moments.len() {
            assert!(is_of(
                &tree_of(&opened.unwrap()).unwrap(),
                &history.newest().tree
            ));
        } else {
            assert!(
                matches!(opened, Err(Error::RolledBack { .. })),
                "moment {index}"
            );
        }
    }
}

#[test]
fn segments_put_in_each_others_place_are_found_when_they_are_read() {
    let history = history();
    let mut outcomes = Outcomes::default();
    for moment in &history.moments {
        let segments: Vec<&String> = moment
            .files
            .keys()
            .filter(|name| name.starts_with("segments/"))
            .collect();
        for one in &segments {
            for other in segments.iter().filter(|other| *other != one) {
                let mut files = moment.files.clone();
                files.insert((*one).clone(), moment.files[*other].clone());
                files.insert((*other).clone(), moment.files[*one].clone());
                history.judge(&files, &mut outcomes, &|| format!("{one} and {other}"));
            }
        }
    }
    println!("{outcomes:?}");
    assert!(outcomes.refused + outcomes.unreadable > 5);
}

#[test]
fn a_catalog_page_of_another_moment_is_found_or_makes_one_moment() {
    let history = history();
    let mut outcomes = Outcomes::default();
    let name = "catalog.db";
    for (b, to) in history.moments.iter().enumerate() {
        for (a, from) in history.moments.iter().enumerate() {
            let pages = from.files[name].len().min(to.files[name].len()) / PAGE;
            for page in 0..pages {
                let range = page * PAGE..(page + 1) * PAGE;
                let mut files = to.files.clone();
                let into = &mut files.get_mut(name).unwrap()[range.clone()];
                if into == &from.files[name][range.clone()] {
                    continue;
                }
                into.copy_from_slice(&from.files[name][range]);
                let what = || format!("page {page} of {a} in {b}");
                history.judge(&files, &mut outcomes, &what);
            }
        }
    }
    println!("{outcomes:?}");
    assert!(outcomes.refused > 50);
}

#[test]
fn parts_of_the_log_of_another_moment_are_found_or_make_one_moment() {
    let history = history();
    let mut outcomes = Outcomes::default();
    let name = "catalog.db-wal";
    for (b, to) in history.moments.iter().enumerate() {
        for (a, from) in history.moments.iter().enumerate() {
            let (Some(old), Some(new)) = (from.files.get(name), to.files.get(name)) else {
                continue;
            };
            let end = old.iter().rposition(|byte| *byte != 0).unwrap_or(0);
            for at in (0..end.min(new.len())).step_by(64 + 4152 * 3) {
                let mut files = to.files.clone();
                let into = &mut files.get_mut(name).unwrap()[at..];
                let len = old.len().min(at + into.len()) - at;
                into[..len].copy_from_slice(&old[at..at + len]);
                history.judge(&files, &mut outcomes, &|| {
                    format!("the log of {a} from byte {at} in {b}")
                });
            }
        }
    }
    println!("{outcomes:?}");
    assert!(outcomes.refused + outcomes.whole > 50);
}

#[test]
fn a_header_of_another_moment_is_never_the_way_back_for_a_slot() {
    let history = history();
    for (b, to) in history.moments.iter().enumerate() {
        for (a, from) in history.moments.iter().enumerate() {
            let mut files = to.files.clone();
            for name in HEADERS {
                files.insert(name.into(), from.files[name].clone());
            }
            let opened = open(&files, None);
            let same = from.files[HEADERS[0]] == to.files[HEADERS[0]];
            // A newer header on an older catalog is what a crash between the two leaves.
            if a < b && !same {
                assert!(opened.is_err(), "header of {a} in {b}");
            }
        }
    }
}

#[test]
fn an_older_catalog_put_where_a_rekey_leaves_its_new_one_is_one_moment_or_refused() {
    let history = history();
    let mut outcomes = Outcomes::default();
    for (b, to) in history.moments.iter().enumerate() {
        for (a, from) in history.moments.iter().enumerate() {
            for parts in [
                &[("catalog.db", "catalog.db.new")][..],
                &[("catalog.db-pages", "catalog.db.new-pages")],
                &[
                    ("catalog.db", "catalog.db.new"),
                    ("catalog.db-pages", "catalog.db.new-pages"),
                ],
                &[("catalog.db-wal", "catalog.db.new-wal")],
                &[("catalog.db", "catalog.db-journal")],
            ] {
                let mut files = to.files.clone();
                for (old, name) in parts {
                    if let Some(bytes) = from.files.get(*old) {
                        files.insert((*name).to_owned(), bytes.clone());
                    }
                }
                history.judge(&files, &mut outcomes, &|| {
                    format!("{parts:?} of {a} in {b}")
                });
            }
        }
    }
    println!("{outcomes:?}");
    assert!(outcomes.refused > 20 && outcomes.whole > 100);
}

/// The number of the next segment was taken from the names of files, and the catalog remembered it: the room never took anything again.
#[test]
fn a_file_that_claims_the_last_number_of_a_segment_does_not_use_the_numbers_up() {
    let place = Place::new();
    let room = place.create();
    room.write_file("/one", b"before").unwrap();
    room.close().unwrap();
    for no in [u64::MAX, u64::MAX - 1] {
        let planted = place.room_dir().join(format!("segments/{no:020}"));
        std::fs::write(&planted, b"planted").unwrap();
        let room = place.open();
        room.write_file("/two", b"after").unwrap();
        room.close().unwrap();
        assert!(
            !planted.exists(),
            "what the catalog does not know is removed"
        );
    }
    let room = place.open();
    assert_eq!(room.read_file("/one").unwrap(), b"before");
    assert_eq!(room.read_file("/two").unwrap(), b"after");
    sound(&room);
}
