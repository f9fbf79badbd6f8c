//! `strongroom import` and `export` through the real program.

mod containers;
mod directories;
mod kill;
mod peers;
mod streams;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::common::Sandbox;

/// Everything about a source that an import must not change: names, bytes, modes, times of change, attributes.
fn state(path: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    state_into(path, &mut found);
    found
}

fn state_into(path: &Path, found: &mut BTreeMap<PathBuf, String>) {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::symlink_metadata(path).unwrap();
    let mut words = format!(
        "{:o} {}:{} {}.{} {}",
        meta.mode(),
        meta.uid(),
        meta.gid(),
        meta.mtime(),
        meta.mtime_nsec(),
        meta.nlink()
    );
    if meta.is_file() {
        // FNV-1a, of a sparse file's ends only.
        let bytes = if meta.len() > 32 << 20 {
            Vec::new()
        } else {
            std::fs::read(path).unwrap()
        };
        let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
            (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3)
        });
        words.push_str(&format!(" {} {hash:x}", meta.len()));
    }
    found.insert(path.to_owned(), words);
    if meta.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            state_into(&entry.unwrap().path(), found);
        }
    }
}

/// What an import says, as JSON.
fn import(s: &Sandbox, args: &[&str]) -> serde_json::Value {
    let mut all = vec!["import", "--json"];
    all.extend(args);
    serde_json::from_str(&s.with_pass(all)).unwrap()
}

/// Takes a tree out of the room into a fresh directory.
fn taken_out(s: &Sandbox, from: &str) -> PathBuf {
    let out = s.path("taken out");
    if out.exists() {
        std::fs::remove_dir_all(&out).unwrap();
    }
    s.with_pass(["cp", "-a", from, "taken out"]);
    out
}

/// No file under way, and none beside another, is left anywhere in a tree.
fn nothing_is_left(root: &Path) {
    let mut stack = vec![root.to_owned()];
    while let Some(path) = stack.pop() {
        let name = path.file_name().unwrap_or_default().as_bytes().to_owned();
        assert!(
            !name.starts_with(b".strongroom"),
            "{} is left",
            path.display()
        );
        let mut names = vec![0; 4096];
        if let Ok(len) = rustix::fs::llistxattr(&path, &mut names[..]) {
            let listed = String::from_utf8_lossy(&names[..len]).into_owned();
            assert!(
                !listed.contains("strongroom"),
                "{}: {listed}",
                path.display()
            );
        }
        if path.symlink_metadata().unwrap().is_dir() {
            stack.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
}
