//! What a target on the command line means.
//!
//! A word before a colon says what is to be made (`room:DIR`, `mounted:DIR`, `gocryptfs:DIR`, `directory:DIR`), or how a file is read
//! (`volume:IMAGE`); without one, the kind of file at the path decides. A file whose name looks like such a word is given as `./room:x`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use room::{Credential, Suite};

use super::{
    Store, directory::Directory, nbd::Nbd, room::RoomStore, served, single::Single, volume::Volume,
};
use crate::run_file::Run;
use crate::{Error, Result};

/// What opens the room in this directory.
pub type Key = Arc<dyn Fn(&Path) -> Result<Credential> + Send + Sync>;

/// Asked what opens the encrypted volume in this image, and how.
pub type AskVolumeKey =
    Arc<dyn Fn(&Path) -> Result<(volume::Credential, volume::OpenOptions)> + Send + Sync>;

/// What opens an encrypted volume.
#[derive(Clone)]
pub struct VolumeKey {
    /// The volume's header, where it is kept in a file of its own.
    pub header: Option<PathBuf>,
    /// Asked when there is a volume.
    pub ask: AskVolumeKey,
}

/// How stores are made.
#[derive(Clone)]
pub struct Making {
    /// Where everything is written down first.
    pub run: Arc<Run>,
    /// The store's name in the report.
    pub label: String,
    /// Whether the whole machine's caches are emptied where reads are to be cold. Root only.
    pub drop_caches: bool,
    /// The `strongroom` program, for mounting rooms.
    pub program: Option<std::path::PathBuf>,
    /// Suite of rooms that are made; `None`: the faster one here.
    pub suite: Option<Suite>,
    /// Asked when somebody's own room is opened.
    pub key: Option<Key>,
    /// What opens an encrypted volume.
    pub volume_key: Option<VolumeKey>,
}

impl Making {
    /// With nothing special.
    pub fn new(run: Arc<Run>, label: &str) -> Making {
        Making {
            run,
            label: label.to_owned(),
            drop_caches: false,
            program: None,
            suite: None,
            key: None,
            volume_key: None,
        }
    }
}

/// Makes or finds the store that `target` names.
///
/// # Errors
/// [`Error::Usage`] for what is no target; what making it says.
pub fn make(target: &str, making: &Making) -> Result<Box<dyn Store>> {
    if target.starts_with("nbd://") || target.starts_with("nbd+unix://") {
        return Ok(Box::new(Nbd::connect(target, making)?));
    }
    if let Some((word, under)) = target.split_once(':') {
        let under = Path::new(under);
        if let Some(kind) = served::Kind::ALL
            .into_iter()
            .find(|kind| kind.word() == word)
        {
            return Ok(Box::new(served::Served::make(kind, under, target, making)?));
        }
        match word {
            "room" => return Ok(Box::new(RoomStore::make(under, target, making)?)),
            "volume" => return Ok(Box::new(Volume::find(under, target, making)?)),
            "directory" => return Ok(Box::new(Directory::make(under, target, making)?)),
            _ => {}
        }
    }
    let path = Path::new(target);
    match std::fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(Error::Usage(format!(
            "{target}: there is no such file or directory; a store is a path, nbd://HOST/NAME, volume:IMAGE, or KIND:DIRECTORY with one of: \
             directory, room, {}",
            served::Kind::ALL.map(served::Kind::word).join(", ")
        ))),
        Err(e) => Err(Error::io(path, "looking at it", e)),
        Ok(meta) if !meta.is_dir() => Ok(Box::new(Single::find(path, target, making)?)),
        Ok(_) if path.join("header.json").exists() => {
            Ok(Box::new(RoomStore::find(path, target, making)?))
        }
        Ok(_) => Ok(Box::new(Directory::make(path, target, making)?)),
    }
}

/// Short names for targets, no two the same.
pub fn labels(targets: &[String]) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for target in targets {
        let kinds = served::Kind::ALL.map(served::Kind::word);
        let word = target.split_once(':').map(|(word, _)| word);
        let short = match word {
            Some(word)
                if kinds.contains(&word) || ["room", "directory", "volume"].contains(&word) =>
            {
                word
            }
            Some("nbd" | "nbd+unix") => target,
            _ => &name_of(target),
        };
        let mut label = short.to_owned();
        let mut number = 2;
        while labels.contains(&label) {
            label = format!("{short} ({number})");
            number += 1;
        }
        labels.push(label);
    }
    labels
}

/// The last name of a path; of "." and "..", the directory's own.
fn name_of(target: &str) -> String {
    let path = Path::new(target);
    let own = path
        .canonicalize()
        .ok()
        .filter(|_| path.file_name().is_none());
    let name = own.as_deref().unwrap_or(path).file_name();
    name.and_then(|name| name.to_str())
        .unwrap_or(target)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short_and_each_its_own() {
        let targets = [
            "/a/b",
            "/c/b",
            "room:/x",
            "room:/x",
            "/",
            "nbd://h/n",
            "a:b",
        ];
        assert_eq!(
            labels(&targets.map(String::from)),
            ["b", "b (2)", "room", "room (2)", "/", "nbd://h/n", "a:b"]
        );
    }
}
