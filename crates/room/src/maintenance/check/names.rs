//! Paths of the few files that something was found about.

use std::collections::{HashMap, HashSet};

use catalog::{Catalog, InodeNo};

use super::super::Maintenance;
use super::tree::each_entry;
use crate::Result;
use crate::reports::{LostExtent, LostRange};

/// Directories above a file, at most: more are a loop.
const DEPTH_MAX: usize = 4096;
/// Names read at once.
const PAGE: usize = 1024;

impl Maintenance {
    /// The ranges with the paths of their files. A file with several names has the one found first.
    pub(crate) fn named(&self, lost: Vec<LostExtent>) -> Result<Vec<LostRange>> {
        if lost.is_empty() {
            return Ok(Vec::new());
        }
        let _swap = self.catalog.keep();
        let catalog = self.catalog.get();
        let wanted: HashSet<InodeNo> = lost.iter().map(|l| l.no).collect();
        let mut names: HashMap<InodeNo, (InodeNo, Vec<u8>)> = HashMap::new();
        let walked = each_entry(&catalog, |parent, entry| {
            if wanted.contains(&entry.inode) {
                names.entry(entry.inode).or_insert((parent, entry.name));
            }
            Ok(())
        });
        if let Err(e) = walked {
            tracing::warn!("not all names of damaged files are known: {e}");
        }
        let mut directories = HashMap::new();
        let mut out = Vec::with_capacity(lost.len());
        for LostExtent { no, offset, len } in lost {
            let path = names
                .get(&no)
                .and_then(|(parent, name)| path(&catalog, *parent, name, &mut directories));
            let path = path.unwrap_or_else(|| format!("inode {}", no.0));
            out.push(LostRange {
                path,
                inode: no.0,
                offset,
                len,
            });
        }
        Ok(out)
    }
}

/// The path of a name; `None` where what is above it is damaged.
fn path(
    catalog: &Catalog,
    parent: InodeNo,
    name: &[u8],
    directories: &mut HashMap<InodeNo, Option<(InodeNo, Vec<u8>)>>,
) -> Option<String> {
    let mut parts = vec![String::from_utf8_lossy(name).into_owned()];
    let mut at = parent;
    for _ in 0..DEPTH_MAX {
        if at == InodeNo::ROOT {
            parts.push(String::new());
            parts.reverse();
            return Some(parts.join("/"));
        }
        let (above, name) = directories
            .entry(at)
            .or_insert_with(|| find(catalog, at))
            .as_ref()?;
        parts.push(String::from_utf8_lossy(name).into_owned());
        at = *above;
    }
    None
}

/// A directory's own directory, and its name there.
fn find(catalog: &Catalog, no: InodeNo) -> Option<(InodeNo, Vec<u8>)> {
    let parent = catalog.inode(no).ok()??.parent;
    let mut after = 0;
    loop {
        let page = catalog.entries(parent, after, PAGE).ok()?;
        after = page.last()?.cookie;
        if let Some(entry) = page.into_iter().find(|entry| entry.inode == no) {
            return Some((parent, entry.name));
        }
    }
}
