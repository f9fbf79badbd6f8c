//! Runs a fuzz target over the files of its corpus, and writes the seeds of one. Part of the tests of each crate that
//! has targets, by `#[path]`; so that a plain `cargo test` holds what fuzzing once found.

use std::fs;
use std::path::{Path, PathBuf};

fn dir(target: &str) -> PathBuf {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    corpora.join(target)
}

/// Calls `run` with every file of the corpus, in the order of their names; a failing file is named.
pub(crate) fn each(target: &str, run: impl Fn(&[u8])) {
    let files = fs::read_dir(dir(target)).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 4, "the corpus of {target} is not there");
    for file in files {
        let named = Named(&file);
        run(&fs::read(&file).unwrap());
        drop(named);
    }
}

/// Puts these seeds in the place of the corpus's seeds; what else is there stays: it was found.
pub(crate) fn replace_seeds<'n>(target: &str, seeds: impl IntoIterator<Item = (&'n str, Vec<u8>)>) {
    let dir = dir(target);
    fs::create_dir_all(&dir).unwrap();
    let mut written = Vec::new();
    for (name, bytes) in seeds {
        let name = format!("seed-{name}");
        fs::write(dir.join(&name), bytes).unwrap();
        written.push(name);
    }
    for file in fs::read_dir(&dir).unwrap() {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        if name.starts_with("seed-") && !written.contains(&name) {
            fs::remove_file(file.path()).unwrap();
        }
    }
}

struct Named<'p>(&'p Path);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("with {}", self.0.display());
        }
    }
}
