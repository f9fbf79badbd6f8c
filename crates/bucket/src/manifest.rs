//! The room's files as of one commit: their names, lengths, and the objects that hold their bytes.
//!
//! 1. It is the sum of the commits up to its number: a writer and a reader come to the same by [`Manifest::apply`].
//! 2. What a commit says is checked: no range leaves its object, no file has two meanings. What is not so is an error, never a panic.
//! 3. `live` of an object is the number of its bytes that files have. At zero the object can go.

use std::collections::btree_map::Entry as MapEntry;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::names::ObjectName;
use crate::pieces::{Pieces, Source};
use crate::record::{self, Id, Op, Record};

/// The longest file, in bytes.
pub(crate) const LENGTH_MAX: u64 = i64::MAX as u64;

/// Bytes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) object: ObjectName,
    pub(crate) at: u64,
}

impl Source for Stored {
    fn skip(&self, bytes: u64) -> Self {
        Self {
            at: self.at + bytes,
            ..*self
        }
    }
    fn keep(&self, _bytes: u64) -> Self {
        *self
    }
    fn continues(&self, len: u64, next: &Self) -> bool {
        self.object == next.object && self.at + len == next.at
    }
}

/// What a name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Entry {
    Directory,
    File(u64),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileMap {
    pub(crate) len: u64,
    pub(crate) pieces: Pieces<Stored>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) size: u64,
    pub(crate) live: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// The commit, and its id. Zero: there is none.
    pub(crate) number: u64,
    pub(crate) id: Id,
    /// The id of the first commit: no two rooms have the same.
    pub(crate) origin: Id,
    /// The commit with which the last writer began.
    pub(crate) epoch: u64,
    /// Whether that writer has not closed the room.
    pub(crate) is_open: bool,
    /// Within how many milliseconds that writer commits again; 0: it does not say.
    pub(crate) lease_ms: u32,
    /// All commits with which a writer began: they are never removed.
    pub(crate) begins: BTreeSet<u64>,
    pub(crate) names: BTreeMap<String, Entry>,
    pub(crate) files: BTreeMap<u64, FileMap>,
    pub(crate) objects: BTreeMap<ObjectName, Object>,
    /// Objects that no file has bytes of.
    pub(crate) idle: BTreeSet<ObjectName>,
    pub(crate) next_file: u64,
}

/// A manifest as a checkpoint has it.
#[derive(Serialize, Deserialize)]
struct Image {
    origin: Id,
    epoch: u64,
    is_open: bool,
    begins: Vec<u64>,
    names: Vec<(String, Entry)>,
    objects: Vec<(ObjectName, u64)>,
    next_file: u64,
    /// File, length, pieces.
    files: Vec<(u64, u64, Vec<PieceImage>)>,
    lease_ms: u32,
}

/// Offset, length, object, place in it.
type PieceImage = (u64, u64, ObjectName, u64);

impl Manifest {
    /// Applies the next commit.
    pub(crate) fn apply(&mut self, record: &Record) -> Result<(), String> {
        if record.number != self.number + 1 || record.previous != self.id {
            return Err(
                "does not follow the commit before it: two writers' commits are mixed".into(),
            );
        }
        if !record.data.is_empty() {
            let object = Object {
                size: record.data.len() as u64,
                live: 0,
            };
            let name = ObjectName::Commit(record.number);
            self.objects.insert(name, object);
            self.idle.insert(name);
        }
        for op in &record.ops {
            self.change(op, record.number)
                .map_err(|why| format!("is malformed: {why}"))?;
        }
        if self.number == 0 {
            self.origin = record.id;
        }
        (self.number, self.id) = (record.number, record.id);
        Ok(())
    }

    fn change(&mut self, op: &Op, number: u64) -> Result<(), String> {
        match op {
            Op::Begin => {
                self.epoch = number;
                self.is_open = true;
                self.lease_ms = 0;
                self.begins.insert(number);
            }
            Op::End => self.is_open = false,
            Op::Lease { ms } => self.lease_ms = *ms,
            Op::Directory { path } => {
                let name = self.names.entry(path.clone());
                let MapEntry::Vacant(name) = name else {
                    return Err(format!("a directory {path} that is there"));
                };
                name.insert(Entry::Directory);
            }
            Op::File { path, file } => {
                if self.names.contains_key(path) || *file < self.next_file || *file == u64::MAX {
                    return Err(format!("a file {path} that is there"));
                }
                self.names.insert(path.clone(), Entry::File(*file));
                self.files.insert(*file, FileMap::default());
                self.next_file = file + 1;
            }
            Op::Rename { from, to } => {
                let Some(Entry::File(file)) = self.names.get(from).copied() else {
                    return Err(format!("no file {from}"));
                };
                match self.names.insert(to.clone(), Entry::File(file)) {
                    Some(Entry::File(replaced)) if replaced != file => self.forget(replaced),
                    Some(Entry::Directory) => return Err(format!("{to} is a directory")),
                    _ => {}
                }
                if from != to {
                    self.names.remove(from);
                }
            }
            Op::Remove { path } => match self.names.remove(path) {
                Some(Entry::File(file)) => self.forget(file),
                _ => return Err(format!("no file {path}")),
            },
            Op::Length { file, len } => {
                let map = self.files.get_mut(file).ok_or("no such file")?;
                if *len > LENGTH_MAX {
                    return Err("a file is too long".into());
                }
                map.len = *len;
                let cut = map.pieces.cut(*len, u64::MAX);
                self.unrefer(cut);
            }
            Op::Hole { file, offset, len } => {
                let cut = self.range(*file, *offset, *len)?.cut(*offset, offset + len);
                self.unrefer(cut);
            }
            Op::Data {
                file,
                offset,
                len,
                object,
                at,
            } => {
                let size = self.objects.get(object).ok_or("no such object")?.size;
                if at.checked_add(*len).is_none_or(|end| end > size) {
                    return Err("a range outside its object".into());
                }
                let stored = Stored {
                    object: *object,
                    at: *at,
                };
                let cut = self.range(*file, *offset, *len)?.put(*offset, *len, stored);
                if *len > 0 {
                    self.objects.get_mut(object).expect("just seen").live += len;
                    self.idle.remove(object);
                }
                self.unrefer(cut);
            }
            Op::Object { name, size } => {
                if matches!(name, ObjectName::Commit(_)) || self.objects.contains_key(name) {
                    return Err("an object that is there".into());
                }
                self.objects.insert(
                    *name,
                    Object {
                        size: *size,
                        live: 0,
                    },
                );
                self.idle.insert(*name);
            }
            Op::Deleted { name } => {
                if self.objects.get(name).is_some_and(|object| object.live > 0) {
                    return Err("an object in use is gone".into());
                }
                self.objects.remove(name);
                self.idle.remove(name);
            }
        }
        Ok(())
    }

    /// The pieces of a file, for a change of a range inside its length.
    fn range(&mut self, file: u64, offset: u64, len: u64) -> Result<&mut Pieces<Stored>, String> {
        let map = self.files.get_mut(&file).ok_or("no such file")?;
        match offset.checked_add(len) {
            Some(end) if end <= map.len => Ok(&mut map.pieces),
            _ => Err("a range behind the end of its file".into()),
        }
    }

    fn forget(&mut self, file: u64) {
        if let Some(mut map) = self.files.remove(&file) {
            let cut = map.pieces.cut(0, u64::MAX);
            self.unrefer(cut);
        }
    }

    fn unrefer(&mut self, cut: Vec<crate::pieces::Piece<Stored>>) {
        for piece in cut {
            if let Some(object) = self.objects.get_mut(&piece.source.object) {
                object.live = object.live.saturating_sub(piece.len);
                if object.live == 0 {
                    self.idle.insert(piece.source.object);
                }
            }
        }
    }

    /// Forgets commits that no file has bytes of: what is left of them is in a checkpoint.
    pub(crate) fn forget_idle_commits(&mut self) {
        let objects = &mut self.objects;
        self.idle.retain(|name| {
            let is_commit = matches!(name, ObjectName::Commit(_));
            if is_commit {
                objects.remove(name);
            }
            !is_commit
        });
    }

    /// Bytes that files have in objects.
    pub(crate) fn live(&self) -> u64 {
        self.objects.values().map(|object| object.live).sum()
    }

    /// The bytes of a checkpoint of this state.
    pub(crate) fn encode(&self, has_log: bool) -> Vec<Bytes> {
        let pieces = |map: &FileMap| {
            let pieces = map.pieces.iter();
            pieces
                .map(|p| (p.offset, p.len, p.source.object, p.source.at))
                .collect()
        };
        let image = Image {
            origin: self.origin,
            epoch: self.epoch,
            is_open: self.is_open,
            begins: self.begins.iter().copied().collect(),
            names: self.names.iter().map(|(k, v)| (k.clone(), *v)).collect(),
            objects: self.objects.iter().map(|(k, v)| (*k, v.size)).collect(),
            next_file: self.next_file,
            lease_ms: self.lease_ms,
            files: self
                .files
                .iter()
                .map(|(file, map)| (*file, map.len, pieces(map)))
                .collect(),
        };
        record::encode_checkpoint(self.number, &self.id, &image, has_log)
    }

    /// The state in a checkpoint. `Err` says what is wrong with the object, after its name.
    pub(crate) fn parse(number: u64, bytes: &Bytes, has_log: bool) -> Result<Manifest, String> {
        let (id, image): (Id, Image) = record::parse_checkpoint(number, bytes, has_log)?;
        let mut manifest = Manifest {
            number,
            id,
            origin: image.origin,
            epoch: image.epoch,
            is_open: image.is_open,
            lease_ms: image.lease_ms,
            begins: image.begins.into_iter().collect(),
            idle: image.objects.iter().map(|(name, _)| *name).collect(),
            objects: image
                .objects
                .into_iter()
                .map(|(name, size)| (name, Object { size, live: 0 }))
                .collect(),
            ..Manifest::default()
        };
        let malformed = |why: String| format!("is malformed: {why}");
        let mut maps: BTreeMap<u64, _> = image
            .files
            .into_iter()
            .map(|(file, len, pieces)| (file, (len, pieces)))
            .collect();
        for (path, entry) in image.names {
            let Entry::File(file) = entry else {
                manifest.names.insert(path, entry);
                continue;
            };
            let (len, pieces) = maps
                .remove(&file)
                .ok_or("is malformed: a name without file")?;
            manifest.names.insert(path, entry);
            manifest.files.insert(file, FileMap::default());
            manifest
                .change(&Op::Length { file, len }, number)
                .map_err(malformed)?;
            for (offset, len, object, at) in pieces {
                let data = Op::Data {
                    file,
                    offset,
                    len,
                    object,
                    at,
                };
                manifest.change(&data, number).map_err(malformed)?;
            }
        }
        let last = manifest
            .files
            .keys()
            .next_back()
            .map_or(0, |last| last.saturating_add(1));
        manifest.next_file = image.next_file.max(last);
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(manifest: &Manifest, ops: Vec<Op>, data: &'static [u8]) -> Record {
        Record {
            number: manifest.number + 1,
            id: [manifest.number as u8 + 1; 16],
            previous: manifest.id,
            ops,
            data: Bytes::from_static(data),
        }
    }

    const OBJECT: ObjectName = ObjectName::Data {
        epoch: 1,
        number: 0,
    };

    fn made() -> Manifest {
        let mut manifest = Manifest::default();
        let ops = vec![
            Op::Begin,
            Op::Directory { path: "d".into() },
            Op::File {
                path: "d/f".into(),
                file: 0,
            },
            Op::Object {
                name: OBJECT,
                size: 100,
            },
            Op::Length { file: 0, len: 50 },
            Op::Data {
                file: 0,
                offset: 10,
                len: 30,
                object: OBJECT,
                at: 70,
            },
            Op::Data {
                file: 0,
                offset: 15,
                len: 2,
                object: ObjectName::Commit(1),
                at: 1,
            },
        ];
        manifest.apply(&record(&manifest, ops, b"abc")).unwrap();
        manifest
    }

    #[test]
    fn live_bytes_follow_the_files_and_a_checkpoint_is_the_same_state() {
        let mut manifest = made();
        assert_eq!(manifest.objects[&OBJECT].live, 28);
        assert_eq!(manifest.live(), 30);
        for has_log in [false, true] {
            let bytes = Bytes::from(manifest.encode(has_log).concat());
            assert_eq!(Manifest::parse(1, &bytes, has_log).unwrap(), manifest);
            let refused = Manifest::parse(1, &bytes, !has_log).unwrap_err();
            assert!(refused.contains("a log"), "{refused}");
        }
        let removed = record(&manifest, vec![Op::Remove { path: "d/f".into() }], b"");
        manifest.apply(&removed).unwrap();
        assert_eq!(manifest.live(), 0);
        assert!(manifest.files.is_empty());
    }

    #[test]
    fn a_commit_of_another_history_is_refused() {
        let mut manifest = made();
        let mut other = record(&manifest, vec![], b"");
        other.previous = [9; 16];
        assert!(manifest.apply(&other).unwrap_err().contains("two writers"));
    }

    #[test]
    fn impossible_changes_are_refused() {
        let data = |offset, len, at| Op::Data {
            file: 0,
            offset,
            len,
            object: OBJECT,
            at,
        };
        for op in [
            data(0, 10, 95),
            data(45, 10, 0),
            data(u64::MAX, 2, 0),
            data(0, 1, u64::MAX),
            Op::Hole {
                file: 0,
                offset: 45,
                len: 10,
            },
            Op::Hole {
                file: 7,
                offset: 0,
                len: 1,
            },
            Op::Length {
                file: 0,
                len: u64::MAX,
            },
            Op::Remove { path: "x".into() },
            Op::Remove { path: "d".into() },
            Op::Rename {
                from: "d/f".into(),
                to: "d".into(),
            },
            Op::File {
                path: "y".into(),
                file: 0,
            },
            Op::Object {
                name: OBJECT,
                size: 1,
            },
            Op::Deleted { name: OBJECT },
        ] {
            let mut manifest = made();
            let bad = record(&manifest, vec![op.clone()], b"");
            assert!(manifest.apply(&bad).is_err(), "{op:?}");
        }
    }
}
