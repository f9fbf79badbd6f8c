//! A room as a [file system](FileSystem) that can be mounted: each call is the method of its name.

use model::{
    Available, DirEntry, Fallocate, FileSystem, Inode, InodeNo, NewFile, RenameMode, Result,
    RoomSpace, SeekTo, SetAttr, Timestamp, XattrMode,
};

use crate::Room;

/// Each is the method of the same name.
macro_rules! delegate {
    ($($name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        impl FileSystem for Room {
            $(fn $name(&self, $($arg: $type),*) $(-> $result)? {
                Room::$name(self, $($arg),*)
            })*
        }
    };
}

delegate! {
    lookup(parent: InodeNo, name: &[u8]) -> Result<Inode>;
    attributes(no: InodeNo) -> Result<Inode>;
    set_attributes(no: InodeNo, set: &SetAttr) -> Result<Inode>;
    make(parent: InodeNo, name: &[u8], new: &NewFile) -> Result<Inode>;
    create_tmpfile(parent: InodeNo, new: &NewFile) -> Result<Inode>;
    link(no: InodeNo, parent: InodeNo, name: &[u8]) -> Result<Inode>;
    unlink(parent: InodeNo, name: &[u8]) -> Result<()>;
    rmdir(parent: InodeNo, name: &[u8]) -> Result<()>;
    rename(parent: InodeNo, name: &[u8], new_parent: InodeNo, new_name: &[u8], mode: RenameMode) -> Result<()>;
    read_link(no: InodeNo) -> Result<Vec<u8>>;
    read_dir(no: InodeNo, after: u64, limit: usize) -> Result<Vec<(DirEntry, Inode)>>;
    begin_read_dir(no: InodeNo, after: u64, limit: usize) -> Result<(Vec<(DirEntry, Inode)>, u64)>;
    touch_atime(no: InodeNo);
    accessed_always(no: InodeNo);
    hold(no: InodeNo);
    release(no: InodeNo, count: u64);
    read(no: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize>;
    write(no: InodeNo, offset: u64, data: &[u8]) -> Result<()>;
    fallocate(no: InodeNo, what: Fallocate, offset: u64, len: u64) -> Result<()>;
    seek(no: InodeNo, offset: u64, to: SeekTo) -> Result<u64>;
    copy_range(from: InodeNo, from_offset: u64, to: InodeNo, to_offset: u64, len: u64) -> Result<u64>;
    fsync(no: InodeNo) -> Result<()>;
    sync() -> Result<()>;
    xattr(no: InodeNo, name: &[u8]) -> Result<Vec<u8>>;
    set_xattr(no: InodeNo, name: &[u8], value: &[u8], mode: XattrMode, drop_setgid: bool) -> Result<()>;
    remove_xattr(no: InodeNo, name: &[u8]) -> Result<()>;
    xattr_names(no: InodeNo) -> Result<Vec<Vec<u8>>>;
    space() -> Result<RoomSpace>;
    write_cached(no: InodeNo, offset: u64, data: &[u8]) -> Result<bool>;
    available() -> Result<Available>;
    stamp_by(clock: fn() -> Timestamp);
    has_flags() -> bool;
}
