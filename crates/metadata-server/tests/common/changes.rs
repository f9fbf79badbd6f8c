//! Changes that many tests ask for, in the order of their fields.

use metadata_proto::rpc::*;
use room::{InodeNo, NewFile, RenameMode};

pub fn to_make(parent: InodeNo, name: impl Into<Vec<u8>>, new: NewFile) -> Change {
    let name = name.into();
    Change::Make { parent, name, new }
}

pub fn to_unlink(parent: InodeNo, name: impl Into<Vec<u8>>) -> Change {
    let name = name.into();
    Change::Unlink { parent, name }
}

pub fn to_link(no: InodeNo, parent: InodeNo, name: impl Into<Vec<u8>>) -> Change {
    let name = name.into();
    Change::Link { no, parent, name }
}

pub fn to_rename(
    parent: InodeNo,
    name: impl Into<Vec<u8>>,
    new_parent: InodeNo,
    new_name: impl Into<Vec<u8>>,
) -> Change {
    Change::Rename {
        parent,
        name: name.into(),
        new_parent,
        new_name: new_name.into(),
        mode: RenameMode::Replace,
    }
}

pub fn to_copy(from: InodeNo, from_offset: u64, to: InodeNo, to_offset: u64, len: u64) -> Change {
    Change::CopyRange {
        from,
        from_offset,
        to,
        to_offset,
        len,
    }
}
