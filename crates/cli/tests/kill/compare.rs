//! Whether two trees are the same, whether one is between two others, and what is different.
//!
//! Two trees are the same if names, kinds, link targets, contents, modes, extended attributes and which names are one file
//! all are.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::model::{Kind, Node, Tree};

/// A page of the kernel's cache, in bytes: what a write through it reaches the room in.
const PAGE: usize = 4096;

impl Tree {
    /// What is other in `found`; empty if nothing is.
    pub fn differences(&self, found: &Tree) -> Vec<String> {
        let mut all = Vec::new();
        for name in self.names.keys().chain(
            found
                .names
                .keys()
                .filter(|name| !self.names.contains_key(*name)),
        ) {
            match (self.get(name), found.get(name)) {
                (Some(wanted), Some(is)) if wanted == is => {}
                (Some(wanted), Some(is)) => all.push(format!("{name}: {}", difference(wanted, is))),
                (wanted, _) => {
                    all.push(format!(
                        "{name}: {}",
                        if wanted.is_some() {
                            "is missing"
                        } else {
                            "should not be there"
                        }
                    ));
                }
            }
        }
        if all.is_empty() && self.links() != found.links() {
            all.push(format!(
                "which names are one file: {:?}, found {:?}",
                self.links(),
                found.links()
            ));
        }
        all
    }

    pub fn is_same(&self, found: &Tree) -> bool {
        self.names.len() == found.names.len()
            && self.names.keys().eq(found.names.keys())
            && self.links() == found.links()
            && self
                .names
                .keys()
                .all(|name| self.get(name) == found.get(name))
    }

    /// For each name the first one of the same file.
    fn links(&self) -> Vec<&str> {
        let mut first: BTreeMap<u64, &str> = BTreeMap::new();
        self.names
            .iter()
            .map(|(name, number)| *first.entry(*number).or_insert(name))
            .collect()
    }

    /// Whether `found` is what an operation that leads from `self` to `after` may leave when it is cut short: of a file it
    /// writes, each page old or new, and the length in between.
    pub fn may_become(&self, after: &Tree, found: &Tree) -> bool {
        let shape =
            |tree: &Tree| tree.names.keys().eq(found.names.keys()) && tree.links() == found.links();
        if !shape(self) && !shape(after) {
            return false;
        }
        let empty = Kind::File(Arc::default());
        found.names.keys().all(|name| {
            let (Some(new), Some(is)) = (after.get(name), found.get(name)) else {
                return false;
            };
            let old = self.get(name);
            let (Kind::File(new_bytes), Kind::File(is_bytes)) = (&new.kind, &is.kind) else {
                return new == is;
            };
            let Kind::File(old_bytes) = old.map_or(&empty, |old| &old.kind) else {
                return false;
            };
            new.mode == is.mode
                && new.xattrs == is.xattrs
                && is_between(old_bytes, new_bytes, is_bytes)
        })
    }
}

fn is_between(old: &[u8], new: &[u8], is: &[u8]) -> bool {
    if is.len() < old.len().min(new.len()) || is.len() > old.len().max(new.len()) {
        return false;
    }
    is.chunks(PAGE).enumerate().all(|(number, page)| {
        let from = number * PAGE;
        let equals = |whole: &[u8]| {
            let there = &whole[from.min(whole.len())..(from + page.len()).min(whole.len())];
            page[..there.len()] == *there && page[there.len()..].iter().all(|b| *b == 0)
        };
        equals(old) || equals(new)
    })
}

fn difference(wanted: &Node, is: &Node) -> String {
    match (&wanted.kind, &is.kind) {
        (Kind::File(wanted), Kind::File(is)) if wanted != is => {
            let at = wanted
                .iter()
                .zip(is.iter())
                .take_while(|(a, b)| a == b)
                .count();
            let line = |bytes: &[u8]| {
                let from = at / 64 * 64;
                bytes
                    .get(from..(from + 64).min(bytes.len()))
                    .unwrap_or_default()
                    .escape_ascii()
                    .to_string()
            };
            format!(
                "{} bytes, found {}; the first difference is at {at}: \"{}\", found \"{}\"",
                wanted.len(),
                is.len(),
                line(wanted),
                line(is)
            )
        }
        (a, b) if std::mem::discriminant(a) != std::mem::discriminant(b) => {
            "another kind of file".to_owned()
        }
        (Kind::Symlink(a), Kind::Symlink(b)) if a != b => format!("leads to {a}, found {b}"),
        _ if wanted.mode != is.mode => format!("mode {:o}, found {:o}", wanted.mode, is.mode),
        _ => format!(
            "extended attributes {:?}, found {:?}",
            wanted
                .xattrs
                .iter()
                .map(|(name, v)| (name, v.len()))
                .collect::<Vec<_>>(),
            is.xattrs
                .iter()
                .map(|(name, v)| (name, v.len()))
                .collect::<Vec<_>>()
        ),
    }
}
