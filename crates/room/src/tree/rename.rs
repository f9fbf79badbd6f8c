//! Moving names, also over others and in exchange for others.

use std::sync::Arc;

use catalog::{Change, FileKind, InodeNo};

use super::{Tree, check_name};
use crate::flags::refuse_flagged;
use crate::inodes::Cell;
use crate::{Error, RenameMode, Result};

impl Tree {
    /// Moves a name.
    pub(crate) fn rename(
        &self,
        parent: InodeNo,
        name: &[u8],
        new_parent: InodeNo,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        check_name(name)?;
        check_name(new_name)?;
        let _change = self.commits.change()?;
        let _names = self.names.lock();
        let old_directory = self.directory_to_shrink(parent)?;
        let new_directory = self.directory(new_parent)?;
        let moved = self.find(parent, name)?;
        let target = match self.find(new_parent, new_name) {
            Ok(cell) => Some(cell),
            Err(Error::NotFound) => None,
            Err(e) => return Err(e),
        };
        match (mode, &target) {
            (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists),
            (RenameMode::Exchange, None) => return Err(Error::NotFound),
            _ => {}
        }
        if target.as_ref().is_some_and(|t| t.no == moved.no) {
            return Ok(());
        }
        refuse_flagged(&moved.state.read().inode)?;
        if let Some(target) = &target {
            refuse_flagged(&new_directory.state.read().inode)?;
            refuse_flagged(&target.state.read().inode)?;
        }
        let moved_kind = moved.state.read().inode.kind;
        let target_kind = target.as_ref().map(|t| t.state.read().inode.kind);
        if moved_kind == FileKind::Directory {
            self.refuse_loop(moved.no, new_parent)?;
        }
        if let (Some(target), Some(kind)) = (&target, target_kind) {
            if mode == RenameMode::Exchange {
                if kind == FileKind::Directory {
                    self.refuse_loop(target.no, parent)?;
                }
                return self.exchange(
                    &old_directory,
                    name,
                    &moved,
                    &new_directory,
                    new_name,
                    target,
                );
            }
            match (
                moved_kind == FileKind::Directory,
                kind == FileKind::Directory,
            ) {
                (true, false) => return Err(Error::NotDirectory),
                (false, true) => return Err(Error::IsDirectory),
                (true, true) if !self.catalog.get().is_empty(target.no)? => {
                    return Err(Error::NotEmpty);
                }
                _ => {}
            }
        }
        let catalog = self.catalog.get();
        if parent == new_parent && target.is_none() {
            // The position stays: a listing under way shows the file once.
            catalog.apply(&[Change::rename_entry(parent, name, new_name)])?;
        } else {
            // The replaced name exists all along, and keeps its position.
            catalog.apply(&[
                Change::remove_entry(parent, name),
                Change::put_entry(new_parent, new_name, moved.no, moved_kind),
            ])?;
        }
        self.found.forget(parent, name);
        self.found.forget(new_parent, new_name);
        self.moved(&moved, new_parent);
        let is_directory = i64::from(moved_kind == FileKind::Directory);
        let replaced_directory = i64::from(target_kind == Some(FileKind::Directory));
        if let Some(target) = &target {
            self.drop_name(target);
        }
        if parent == new_parent {
            self.touch_directory(&old_directory, -replaced_directory);
        } else {
            self.touch_directory(&old_directory, -is_directory);
            self.touch_directory(&new_directory, is_directory - replaced_directory);
        }
        Ok(())
    }

    fn exchange(
        &self,
        old_directory: &Arc<Cell>,
        name: &[u8],
        moved: &Arc<Cell>,
        new_directory: &Arc<Cell>,
        new_name: &[u8],
        target: &Arc<Cell>,
    ) -> Result<()> {
        let (moved_kind, target_kind) = (
            moved.state.read().inode.kind,
            target.state.read().inode.kind,
        );
        self.catalog.get().apply(&[
            Change::put_entry(new_directory.no, new_name, moved.no, moved_kind),
            Change::put_entry(old_directory.no, name, target.no, target_kind),
        ])?;
        self.found.forget(old_directory.no, name);
        self.found.forget(new_directory.no, new_name);
        self.moved(moved, new_directory.no);
        self.moved(target, old_directory.no);
        let gained = i64::from(moved_kind == FileKind::Directory)
            - i64::from(target_kind == FileKind::Directory);
        if old_directory.no == new_directory.no {
            self.touch_directory(old_directory, 0);
        } else {
            self.touch_directory(old_directory, -gained);
            self.touch_directory(new_directory, gained);
        }
        Ok(())
    }

    /// Notes that an inode's name moved.
    fn moved(&self, cell: &Arc<Cell>, new_parent: InodeNo) {
        let mut state = cell.state.write();
        if state.inode.kind == FileKind::Directory {
            state.inode.parent = new_parent;
        }
        self.data.touch_inode(cell, &mut state, self.env.now());
    }

    /// Refuses to move a directory below itself.
    fn refuse_loop(&self, moved: InodeNo, new_parent: InodeNo) -> Result<()> {
        let mut at = new_parent;
        loop {
            if at == moved {
                return Err(Error::InvalidArgument(
                    "a directory cannot be moved below itself",
                ));
            }
            if at == InodeNo::ROOT {
                return Ok(());
            }
            at = self.data.cell(at)?.state.read().inode.parent;
            if at == InodeNo(0) {
                return Err(Error::Damaged("a directory without a parent".into()));
            }
        }
    }
}
