//! Repairs: one for each fault that the check of the structure can find.
//!
//! 1. It is done while no change is under way, in memory and catalog at once; a commit makes it durable.
//! 2. Counts become what was counted. An inode that has no name gets one in a new directory `lost+found-<n>`; none is
//!    deleted.

use catalog::{Change, FileKind, InodeNo, SegmentNo};

use super::super::Maintenance;
use super::tree::each_entry;
use super::{inode_text, text};
use crate::Result;
use crate::blocks::BLOCK;
use crate::data::CHUNK_END;
use crate::inodes::State;
use crate::tree::directory_in_root;

/// Something to put right.
#[derive(Debug, Clone)]
pub(super) enum Repair {
    /// Blocks of a map that lead nowhere go; they read as zeros.
    DropBlocks {
        no: InodeNo,
        index: u64,
        first: u16,
        blocks: u16,
    },
    /// A map of an inode that is not there goes.
    DropOrphanChunk { no: InodeNo, index: u64 },
    /// Blocks beyond the end of the file go.
    CutEnd { no: InodeNo, index: u64, size: u64 },
    /// The extents of a chunk are marked as shared.
    Mark { no: InodeNo, index: u64 },
    /// Blocks that lead nowhere go from what is kept for a snapshot, which sees a hole there.
    DropKeptBlocks {
        key: (InodeNo, u64, u64),
        first: u16,
        blocks: u16,
    },
    /// What is kept of a chunk for a snapshot is marked as shared.
    MarkKept { key: (InodeNo, u64, u64) },
    /// The account of blocks that snapshots hold.
    Held { since: u64, until: u64, by: i64 },
    /// A count of shared units.
    Shared {
        segment: SegmentNo,
        position: u32,
        by: i64,
    },
    /// A segment's length.
    Length { segment: SegmentNo, length: u32 },
    /// A segment's live blocks.
    Live { segment: SegmentNo, live: u32 },
    /// The sum of blocks reserved for holes.
    Reserved { blocks: u64 },
    /// An inode's blocks.
    Blocks { no: InodeNo, blocks: u64 },
    /// An inode's names.
    Links { no: InodeNo, nlink: u32 },
    /// An inode's directory.
    Parent { no: InodeNo, parent: InodeNo },
    /// An inode has attributes.
    ShowXattrs { no: InodeNo },
    /// A name's kind.
    Kind {
        parent: InodeNo,
        name: Vec<u8>,
        inode: InodeNo,
        kind: FileKind,
    },
    /// A name that is not allowed.
    Rename {
        parent: InodeNo,
        name: Vec<u8>,
        to: Vec<u8>,
        inode: InodeNo,
        kind: FileKind,
    },
    /// A name that leads nowhere.
    RemoveName { parent: InodeNo, name: Vec<u8> },
    /// A directory within itself loses its name there.
    CutLoop { no: InodeNo },
    /// An inode without a name gets one.
    Adopt { no: InodeNo, kind: FileKind },
}

impl Repair {
    /// Counts are set first, as they were counted; what changes them comes after.
    fn rank(&self) -> u8 {
        match self {
            Self::CutEnd { .. } => 1,
            Self::Adopt { .. } => 2,
            _ => 0,
        }
    }
}

impl Maintenance {
    /// Puts right what was found; returns what was done. No change is under way.
    pub(super) fn repair(&self, repairs: &[Repair]) -> Result<Vec<String>> {
        let mut done = Vec::new();
        let mut sorted: Vec<&Repair> = repairs.iter().collect();
        sorted.sort_by_key(|m| m.rank());
        let mut shelter = None;
        for repair in sorted {
            let repaired = self.repair_one(repair, &mut shelter);
            self.tree.forget_found();
            done.push(repaired?);
        }
        if !done.is_empty() {
            self.commits.note_change();
        }
        Ok(done)
    }

    fn repair_one(&self, repair: &Repair, shelter: &mut Option<InodeNo>) -> Result<String> {
        let catalog = self.catalog.get();
        Ok(match repair {
            Repair::DropBlocks {
                no,
                index,
                first,
                blocks,
            } => {
                // Its units were left out of all counts: nothing is discarded with it.
                self.edit(*no, |core, cell, state| {
                    core.data
                        .changed_chunk(cell, state, *index)?
                        .replace(*first, *blocks, &[]);
                    Ok(())
                })?;
                let offset = index * catalog::CHUNK_LEN + u64::from(*first) * BLOCK;
                format!(
                    "{}: {} bytes from byte {offset} are zeros now",
                    inode_text(*no),
                    u64::from(*blocks) * BLOCK
                )
            }
            Repair::DropOrphanChunk { no, index } => {
                let nothing = catalog::Chunk::default();
                catalog.apply(&[Change::put_chunk(*no, *index, &nothing)])?;
                format!("{}: its left-over map {index} is gone", inode_text(*no))
            }
            Repair::CutEnd { no, index, size } => {
                self.edit(*no, |core, cell, state| {
                    let end = size.div_ceil(BLOCK);
                    let from = end
                        .saturating_sub(index * u64::from(CHUNK_END))
                        .min(u64::from(CHUNK_END)) as u16;
                    core.data
                        .replace(cell, state, *index, from, CHUNK_END - from, &[])
                })?;
                format!("{}: what lay beyond its end is gone", inode_text(*no))
            }
            Repair::Reserved { blocks } => {
                self.data.reservations().correct(*blocks);
                format!("{blocks} blocks are counted as reserved for holes")
            }
            Repair::Mark { no, index } => {
                self.edit(*no, |core, cell, state| {
                    core.data
                        .changed_chunk(cell, state, *index)?
                        .mark_shared(0, CHUNK_END);
                    Ok(())
                })?;
                format!("{}: chunk {index} is marked as shared", inode_text(*no))
            }
            Repair::DropKeptBlocks { key, first, blocks } => {
                // As for files.
                self.edit_past(*key, |kept| {
                    kept.rewrite(*first, *blocks, &[]);
                })?;
                format!(
                    "inode {}: {} bytes kept for snapshot {} are zeros now",
                    key.0.0,
                    u64::from(*blocks) * BLOCK,
                    key.2
                )
            }
            Repair::MarkKept { key } => {
                self.edit_past(*key, |kept| kept.mark_shared(0, CHUNK_END))?;
                format!(
                    "inode {}: what is kept for snapshot {} is marked as shared",
                    key.0.0, key.2
                )
            }
            Repair::Held { since, until, by } => {
                catalog.apply(&[Change::count_space(*since, *until, *by)])?;
                format!("the blocks of snapshots after {since} up to {until} are counted now")
            }
            Repair::Shared {
                segment,
                position,
                by,
            } => {
                catalog.apply(&[Change::share_unit(*segment, *position, *by)])?;
                format!(
                    "segment {}, block {position}: the count of references is right now",
                    segment.0
                )
            }
            Repair::Length { segment, length } => {
                self.blocks.accounts().lengthen(*segment, *length);
                format!("segment {}: {length} blocks are counted now", segment.0)
            }
            Repair::Live { segment, live } => {
                self.blocks.accounts().correct(*segment, *live);
                format!("segment {}: {live} live blocks are counted now", segment.0)
            }
            Repair::Blocks { no, blocks } => {
                self.edit(*no, |_, _, state| {
                    self.data.set_blocks(state, *blocks);
                    Ok(())
                })?;
                format!("{}: {blocks} blocks are counted now", inode_text(*no))
            }
            Repair::Links { no, nlink } => {
                self.edit(*no, |_, _, state| {
                    state.inode.nlink = *nlink;
                    Ok(())
                })?;
                format!("{}: {nlink} names are counted now", inode_text(*no))
            }
            Repair::Parent { no, parent } => {
                self.edit(*no, |_, _, state| {
                    state.inode.parent = *parent;
                    Ok(())
                })?;
                format!("{}: its directory is noted", inode_text(*no))
            }
            Repair::ShowXattrs { no } => {
                self.edit(*no, |_, _, state| {
                    state.inode.has_xattrs = true;
                    Ok(())
                })?;
                format!(
                    "{}: its extended attributes are seen again",
                    inode_text(*no)
                )
            }
            Repair::Kind {
                parent,
                name,
                inode,
                kind,
            } => {
                catalog.apply(&[Change::put_entry(*parent, name, *inode, *kind)])?;
                format!(
                    "the name `{}` in inode {} says its kind",
                    text(name),
                    parent.0
                )
            }
            Repair::Rename {
                parent,
                name,
                to,
                inode,
                kind,
            } => {
                catalog.apply(&[
                    Change::remove_entry(*parent, name),
                    Change::put_entry(*parent, to, *inode, *kind),
                ])?;
                format!(
                    "the name `{}` in inode {} is `{}` now",
                    text(name),
                    parent.0,
                    text(to)
                )
            }
            Repair::RemoveName { parent, name } => {
                catalog.apply(&[Change::remove_entry(*parent, name)])?;
                format!("the name `{}` in inode {} is gone", text(name), parent.0)
            }
            Repair::CutLoop { no } => {
                let mut names = Vec::new();
                each_entry(&catalog, |parent, entry| {
                    if entry.inode == *no {
                        names.push((parent, entry.name));
                    }
                    Ok(())
                })?;
                let changes: Vec<_> = names
                    .iter()
                    .map(|(parent, name)| Change::remove_entry(*parent, name))
                    .collect();
                catalog.apply(&changes)?;
                format!("{}: the directory is taken out of itself", inode_text(*no))
            }
            Repair::Adopt { no, kind } => self.adopt(*no, *kind, shelter)?,
        })
    }

    /// Changes what is kept of a chunk for a snapshot. Counts are set as they were counted.
    fn edit_past(
        &self,
        (inode, index, until): (InodeNo, u64, u64),
        change: impl FnOnce(&mut catalog::KeptChunk),
    ) -> Result<()> {
        let catalog = self.catalog.get();
        let mut kept = catalog.kept_chunk(inode, index, until)?;
        change(&mut kept);
        catalog.apply(&[Change::keep_chunk(inode, index, until, &kept)])?;
        // What is in memory is as old as the catalog's was.
        self.data.inodes().drop_kept((inode, index, until));
        Ok(())
    }

    /// Changes what is known of an inode.
    fn edit(
        &self,
        no: InodeNo,
        change: impl FnOnce(
            &Maintenance,
            &std::sync::Arc<crate::inodes::Cell>,
            &mut State,
        ) -> Result<()>,
    ) -> Result<()> {
        let cell = self.data.cell(no)?;
        let mut state = cell.state.write();
        change(self, &cell, &mut state)?;
        state.row_dirty = true;
        self.data.mark_dirty(&cell);
        Ok(())
    }

    fn adopt(&self, no: InodeNo, kind: FileKind, shelter: &mut Option<InodeNo>) -> Result<String> {
        let parent = match shelter {
            Some(no) => *no,
            None => *shelter.insert(self.make_shelter()?),
        };
        let name = format!(
            "{}-{}",
            if kind == FileKind::Directory {
                "directory"
            } else {
                "file"
            },
            no.0
        );
        self.catalog
            .get()
            .apply(&[Change::put_entry(parent, name.as_bytes(), no, kind)])?;
        self.edit(no, |_, _, state| {
            if kind == FileKind::Directory {
                state.inode.parent = parent;
                state.inode.nlink = state.inode.nlink.max(2);
            } else {
                state.inode.nlink = 1;
            }
            Ok(())
        })?;
        if kind == FileKind::Directory {
            self.edit(parent, |_, _, state| {
                state.inode.nlink += 1;
                Ok(())
            })?;
        }
        Ok(format!(
            "{}: it is in a lost+found directory now, as `{name}`",
            inode_text(no)
        ))
    }

    /// Creates a directory for files without a name.
    fn make_shelter(&self) -> Result<InodeNo> {
        let catalog = self.catalog.get();
        let mut n = 1;
        let name = loop {
            let name = format!("lost+found-{n}").into_bytes();
            if catalog.lookup(InodeNo::ROOT, &name)?.is_none() {
                break name;
            }
            n += 1;
        };
        let (uid, gid) = {
            let root = self.data.cell(InodeNo::ROOT)?;
            let state = root.state.read();
            (state.inode.uid, state.inode.gid)
        };
        let no = catalog.new_inode();
        let inode = directory_in_root(no, 0o700, (uid, gid), self.env.now());
        let name = Some((InodeNo::ROOT, &name[..]));
        self.tree.enter(&inode, &[], name)?;
        self.edit(InodeNo::ROOT, |_, _, state| {
            state.inode.nlink += 1;
            Ok(())
        })?;
        Ok(no)
    }
}
