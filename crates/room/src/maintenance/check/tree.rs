//! The tree: every name leads to an inode, every inode has as many names as it says, every directory is reached from
//! the root.
//!
//! Inodes are looked at [`INODES_AT_ONCE`] at a time, so that memory does not grow with the room; directories are kept
//! all at once.

use std::collections::HashMap;

use catalog::{Catalog, DirEntry, FileKind, Inode, InodeNo, Result};

use super::repair::Repair;
use super::{Look, inode_text, kind_text, text};

/// Inodes whose names are counted in one walk over all names: about 64 MiB.
const INODES_AT_ONCE: usize = 1 << 20;
/// Rows read at once.
const PAGE: usize = 1024;

/// What names say about an inode.
struct Facts {
    no: InodeNo,
    kind: FileKind,
    nlink: u32,
    names: u32,
}

/// What is known of a directory.
struct Directory {
    parent: InodeNo,
    nlink: u32,
    /// The directory in which it has a name, the first if there are several.
    named_in: Option<InodeNo>,
    names: u32,
    subdirectories: u32,
    visit: Visit,
}

/// How far the walk up from each directory has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visit {
    New,
    Here,
    Done,
}

pub(super) fn look(catalog: &Catalog, look: &mut Look) -> Result<()> {
    let mut directories = HashMap::new();
    let mut after = InodeNo(0);
    loop {
        let facts = inodes(catalog, after, look, &mut directories)?;
        let last = facts
            .last()
            .map(|f| f.no)
            .filter(|_| facts.len() >= INODES_AT_ONCE);
        names(catalog, facts, after, last, look)?;
        match last {
            Some(last) => after = last,
            None => break,
        }
    }
    if !directories.contains_key(&InodeNo::ROOT) {
        look.find("there is no root directory");
        look.incomplete = true;
        return Ok(());
    }
    entries(catalog, look, &mut directories)?;
    judge(&mut directories, look);
    Ok(())
}

/// The next inodes, each looked at by itself.
fn inodes(
    catalog: &Catalog,
    after: InodeNo,
    look: &mut Look,
    directories: &mut HashMap<InodeNo, Directory>,
) -> Result<Vec<Facts>> {
    let mut facts = Vec::new();
    let mut after = after;
    while facts.len() < INODES_AT_ONCE {
        let page = catalog.all_inodes(after, PAGE)?;
        let Some(last) = page.last() else { break };
        after = last.no;
        for inode in &page {
            alone(catalog, inode, look)?;
            facts.push(Facts {
                no: inode.no,
                kind: inode.kind,
                nlink: inode.nlink,
                names: 0,
            });
            if inode.kind == FileKind::Directory {
                look.directories += 1;
                let directory = Directory {
                    parent: inode.parent,
                    nlink: inode.nlink,
                    named_in: None,
                    names: 0,
                    subdirectories: 0,
                    visit: Visit::New,
                };
                directories.insert(inode.no, directory);
            } else {
                look.files += 1;
            }
        }
    }
    Ok(facts)
}

/// What must hold of an inode whatever the others are.
fn alone(catalog: &Catalog, inode: &Inode, look: &mut Look) -> Result<()> {
    let name = inode_text(inode.no);
    if inode.no == InodeNo::ROOT && inode.kind != FileKind::Directory {
        look.find(format!("the root is a {}", kind_text(inode.kind)));
    }
    if inode.size > i64::MAX as u64 {
        look.find(format!("{name}: its size is {}", inode.size));
    }
    if (inode.kind == FileKind::Symlink) == inode.target.is_empty() {
        look.find(format!(
            "{name}: a {} with a target of {} bytes",
            kind_text(inode.kind),
            inode.target.len()
        ));
    }
    if inode.kind != FileKind::Directory && inode.parent != InodeNo(0) {
        look.find_and_repair(
            format!(
                "{name}: a {} says that inode {} is its directory",
                kind_text(inode.kind),
                inode.parent.0
            ),
            Repair::Parent {
                no: inode.no,
                parent: InodeNo(0),
            },
        );
    }
    if !inode.has_xattrs && !catalog.xattr_names(inode.no)?.is_empty() {
        look.find_and_repair(
            format!("{name}: its extended attributes are hidden"),
            Repair::ShowXattrs { no: inode.no },
        );
    }
    Ok(())
}

/// Counts the names of these inodes, which are in order and all there are from behind `after` to `last`, or to the end.
fn names(
    catalog: &Catalog,
    mut facts: Vec<Facts>,
    after: InodeNo,
    last: Option<InodeNo>,
    look: &mut Look,
) -> Result<()> {
    each_entry(catalog, |parent, entry| {
        if entry.inode <= after || last.is_some_and(|last| entry.inode > last) {
            return Ok(());
        }
        let place = || format!("`{}` in inode {}", text(&entry.name), parent.0);
        let Ok(index) = facts.binary_search_by_key(&entry.inode, |f| f.no) else {
            look.find_and_repair(
                format!(
                    "the name {} leads to inode {}, which is not there",
                    place(),
                    entry.inode.0
                ),
                Repair::RemoveName {
                    parent,
                    name: entry.name.clone(),
                },
            );
            return Ok(());
        };
        facts[index].names += 1;
        let kind = facts[index].kind;
        if kind != entry.kind {
            let (said, is) = (kind_text(entry.kind), kind_text(kind));
            look.find_and_repair(
                format!("the name {} says {said}, but leads to a {is}", place()),
                Repair::Kind {
                    parent,
                    name: entry.name.clone(),
                    inode: entry.inode,
                    kind,
                },
            );
        }
        Ok(())
    })?;
    for f in facts.iter().filter(|f| f.kind != FileKind::Directory) {
        match (f.names, f.nlink) {
            (names, nlink) if names == nlink => {}
            (0, nlink) => look.find_and_repair(
                format!(
                    "{}: a {} without a name, which should have {nlink}",
                    inode_text(f.no),
                    kind_text(f.kind)
                ),
                Repair::Adopt {
                    no: f.no,
                    kind: f.kind,
                },
            ),
            (names, nlink) => look.find_and_repair(
                format!("{}: {names} names, {nlink} are counted", inode_text(f.no)),
                Repair::Links {
                    no: f.no,
                    nlink: names,
                },
            ),
        }
    }
    Ok(())
}

/// Looks at every name's directory, and at the names of directories.
fn entries(
    catalog: &Catalog,
    look: &mut Look,
    directories: &mut HashMap<InodeNo, Directory>,
) -> Result<()> {
    each_entry(catalog, |parent, entry| {
        let name = &entry.name;
        let place = format!("`{}` in inode {}", text(name), parent.0);
        let gone = || Repair::RemoveName {
            parent,
            name: name.clone(),
        };
        if !directories.contains_key(&parent) {
            look.find_and_repair(
                format!("the name {place}: there is no such directory"),
                gone(),
            );
            return Ok(());
        }
        if matches!(&name[..], b"." | b"..") {
            let to = format!("renamed-{}", entry.cookie).into_bytes();
            let repair = Repair::Rename {
                parent,
                name: name.clone(),
                to,
                inode: entry.inode,
                kind: entry.kind,
            };
            look.find_and_repair(format!("the name {place} is not allowed"), repair);
            return Ok(());
        }
        if directories.contains_key(&entry.inode) {
            if let Some(parent) = directories.get_mut(&parent) {
                parent.subdirectories += 1;
            }
            if let Some(directory) = directories.get_mut(&entry.inode) {
                directory.names += 1;
                let second = directory.named_in.is_some();
                if second || entry.inode == InodeNo::ROOT {
                    look.find_and_repair(
                        format!(
                            "the name {place} is a second one of directory {}",
                            entry.inode.0
                        ),
                        gone(),
                    );
                }
                directory.named_in.get_or_insert(parent);
            }
        }
        Ok(())
    })
}

/// What the names make of the directories.
fn judge(directories: &mut HashMap<InodeNo, Directory>, look: &mut Look) {
    if let Some(root) = directories.get_mut(&InodeNo::ROOT) {
        root.visit = Visit::Done;
        if root.parent != InodeNo::ROOT {
            look.find_and_repair(
                "the root says that it is elsewhere",
                Repair::Parent {
                    no: InodeNo::ROOT,
                    parent: InodeNo::ROOT,
                },
            );
        }
    }
    let mut all: Vec<InodeNo> = directories.keys().copied().collect();
    all.sort_unstable();
    for no in &all {
        follow(directories, *no, look);
    }
    for no in all {
        let directory = &directories[&no];
        let name = inode_text(no);
        if let Some(in_) = directory.named_in
            && directory.names == 1
            && directory.parent != in_
            && no != InodeNo::ROOT
        {
            look.find_and_repair(
                format!(
                    "{name}: the directory is in inode {}, but says inode {}",
                    in_.0, directory.parent.0
                ),
                Repair::Parent { no, parent: in_ },
            );
        }
        let links = 2 + directory.subdirectories;
        let unlinked = directory.names == 0 && directory.nlink == 0;
        if directory.nlink != links && !unlinked {
            look.find_and_repair(
                format!(
                    "{name}: {links} links to the directory, {} are counted",
                    directory.nlink
                ),
                Repair::Links { no, nlink: links },
            );
        }
    }
}

/// Goes up from a directory until the root, or a directory looked at before; finds what ends elsewhere.
fn follow(directories: &mut HashMap<InodeNo, Directory>, start: InodeNo, look: &mut Look) {
    let mut path = Vec::new();
    let mut at = start;
    while let Some(directory) = directories.get_mut(&at) {
        match directory.visit {
            Visit::Done => break,
            Visit::Here => {
                // Cut here, and what hangs below is reached again.
                look.find_and_repair(
                    format!("{}: the directory is inside itself", inode_text(at)),
                    Repair::CutLoop { no: at },
                );
                break;
            }
            Visit::New => {}
        }
        directory.visit = Visit::Here;
        path.push(at);
        let Some(above) = directory.named_in else {
            if directory.nlink > 0 || directory.subdirectories > 0 {
                look.find_and_repair(
                    format!("{}: a directory without a name", inode_text(at)),
                    Repair::Adopt {
                        no: at,
                        kind: FileKind::Directory,
                    },
                );
            }
            break;
        };
        at = above;
    }
    for no in path {
        if let Some(directory) = directories.get_mut(&no) {
            directory.visit = Visit::Done;
        }
    }
}

/// Calls for every name of the catalog.
pub(super) fn each_entry(
    catalog: &Catalog,
    mut each: impl FnMut(InodeNo, DirEntry) -> Result<()>,
) -> Result<()> {
    let mut after = (InodeNo(0), 0);
    loop {
        let page = catalog.all_entries(after, PAGE)?;
        let Some((parent, last)) = page.last() else {
            return Ok(());
        };
        after = (*parent, last.cookie);
        for (parent, entry) in page {
            each(parent, entry)?;
        }
    }
}
