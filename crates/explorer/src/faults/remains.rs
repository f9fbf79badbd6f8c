//! What is left of a recorded storage when the power goes at the end and nothing survives but what was synced.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use storage::parent;

use crate::image::{Content, Entry, Image};
use crate::record::{Event, FileId, Log};

#[derive(Debug, Clone, Copy)]
enum Node {
    Dir,
    File(FileId),
}

/// A file as it is and as it is on the disk.
#[derive(Debug, Default)]
struct File {
    now: Content,
    durable: Content,
    /// Blocks written since the last sync, whether it failed or not: those of a failed one are marked clean and never
    /// reach the disk, unless they are written again.
    dirty: BTreeSet<u64>,
}

const BLOCK: u64 = 4096;

impl File {
    fn touch(&mut self, offset: u64, len: u64) {
        self.dirty
            .extend(offset / BLOCK..(offset + len).div_ceil(BLOCK));
    }

    /// The pages that are dirty reach the disk, and the length.
    fn sync(&mut self) {
        self.durable.set_len(self.now.len());
        let mut bytes = vec![0; BLOCK as usize];
        for block in std::mem::take(&mut self.dirty) {
            let start = block * BLOCK;
            let end = (start + BLOCK).min(self.now.len());
            if start < end {
                let piece = &mut bytes[..(end - start) as usize];
                self.now.read(start, piece);
                self.durable.write(start, piece);
            }
        }
    }
}

/// The tree of a log with nothing in it that no sync covers.
pub(crate) fn remains(log: &Log) -> Image {
    let mut names: BTreeMap<String, Node> = BTreeMap::new();
    let mut files: HashMap<FileId, File> = HashMap::new();
    for (path, entry) in log.start.entries() {
        let node = match entry {
            Entry::Dir => Node::Dir,
            Entry::File(content) => {
                let id = log.files[path];
                let file = files.entry(id).or_default();
                (file.now, file.durable) = (content.clone(), content.clone());
                Node::File(id)
            }
        };
        names.insert(path.to_owned(), node);
    }
    let mut durable = names.clone();
    for event in &log.events {
        match event {
            Event::Create { file, path } => {
                files.insert(*file, File::default());
                names.insert(path.to_string(), Node::File(*file));
            }
            Event::Locked { file, path, note } => {
                let content = Content::from(&note[..]);
                let kept = files.entry(*file).or_default();
                (kept.now, kept.durable) = (content.clone(), content);
                names.insert(path.to_string(), Node::File(*file));
                durable.insert(path.to_string(), Node::File(*file));
            }
            Event::CreateDir { path } => {
                names.insert(path.to_string(), Node::Dir);
            }
            Event::Rename { from, to } => {
                if let Some(node) = names.remove(&**from) {
                    names.insert(to.to_string(), node);
                }
            }
            Event::Remove { path } => {
                names.remove(&**path);
            }
            Event::SyncDir { dir } => {
                durable.retain(|path, _| parent(path) != &**dir);
                let inside = names.iter().filter(|(path, _)| parent(path) == &**dir);
                durable.extend(inside.map(|(path, node)| (path.clone(), *node)));
            }
            Event::Write { file, offset, data } => {
                let file = files.entry(*file).or_default();
                file.now.write(*offset, data);
                file.touch(*offset, data.len() as u64);
            }
            Event::SetLen { file, len } => {
                let file = files.entry(*file).or_default();
                let (from, to) = (file.now.len().min(*len), file.now.len().max(*len));
                file.now.set_len(*len);
                // A page that was cut and comes back is zeros.
                file.touch(from, to - from);
            }
            Event::Punch { file, offset, len } => {
                let file = files.entry(*file).or_default();
                file.now.zero(*offset, *len);
                file.touch(*offset, *len);
            }
            Event::Sync { file } => files.entry(*file).or_default().sync(),
            Event::Dropped { file } => files.entry(*file).or_default().dirty.clear(),
            Event::Mark(_) => {}
        }
    }
    let mut image = Image::new();
    for (path, node) in &durable {
        // A name in a directory that is gone cannot be reached.
        let reachable = parent(path).is_empty() || durable.contains_key(parent(path));
        let entry = match node {
            Node::Dir => Entry::Dir,
            Node::File(id) => Entry::File(
                files
                    .get(id)
                    .map_or_else(Content::default, |f| f.durable.clone()),
            ),
        };
        if reachable {
            image.insert(path.clone(), entry);
        }
    }
    image
}

#[cfg(test)]
mod tests {
    use storage::{OpenMode, Storage, StorageFile};

    use super::*;
    use crate::record::Recorder;

    fn after(what: impl Fn(&Recorder, &dyn StorageFile)) -> Image {
        let recorder = Recorder::new();
        let file = recorder.open("f", OpenMode::CreateNew).unwrap();
        file.write_at(b"one", 0).unwrap();
        file.sync().unwrap();
        recorder.sync_dir("").unwrap();
        what(&recorder, &*file);
        remains(&recorder.log_so_far())
    }

    fn with(bytes: &[u8]) -> Image {
        Image::new().with_file("f", bytes)
    }

    #[test]
    fn what_no_sync_covers_is_gone() {
        assert_eq!(after(|_, _| {}), with(b"one"));
        let unsynced = after(|recorder, file| {
            file.write_at(b"two", 0).unwrap();
            recorder.rename("f", "g").unwrap();
            recorder.open("h", OpenMode::CreateNew).unwrap();
        });
        assert_eq!(unsynced, with(b"one"));
        let synced = after(|_, file| {
            file.write_at(b"longer", 0).unwrap();
            file.sync().unwrap();
        });
        assert_eq!(synced, with(b"longer"));
    }

    #[test]
    fn what_a_failed_sync_dropped_no_later_sync_saves_unless_it_is_written_again() {
        let dropped = |again: bool| {
            after(move |recorder, file| {
                file.write_at(b"two", 0).unwrap();
                recorder.drop_unsynced("f").unwrap();
                if again {
                    file.write_at(b"two", 0).unwrap();
                }
                file.sync().unwrap();
            })
        };
        assert_eq!(dropped(false), with(b"one"));
        assert_eq!(dropped(true), with(b"two"));
    }
}
