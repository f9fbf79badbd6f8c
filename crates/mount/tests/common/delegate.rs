//! What a double of a file system has of a room.

/// Methods of a `FileSystem` that are those of the field `room`: most, and those that are listed.
#[macro_export]
macro_rules! delegate_to_room {
    ($($name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $crate::delegate_to_room! { @
            $($name($($arg: $type),*) $(-> $result)?;)*
            set_attributes(no: room::InodeNo, set: &room::SetAttr) -> room::Result<room::Inode>;
            make(parent: room::InodeNo, name: &[u8], new: &room::NewFile) -> room::Result<room::Inode>;
            create_tmpfile(parent: room::InodeNo, new: &room::NewFile) -> room::Result<room::Inode>;
            link(no: room::InodeNo, parent: room::InodeNo, name: &[u8]) -> room::Result<room::Inode>;
            unlink(parent: room::InodeNo, name: &[u8]) -> room::Result<()>;
            rmdir(parent: room::InodeNo, name: &[u8]) -> room::Result<()>;
            rename(parent: room::InodeNo, name: &[u8], new_parent: room::InodeNo, new_name: &[u8], mode: room::RenameMode) -> room::Result<()>;
            read_link(no: room::InodeNo) -> room::Result<Vec<u8>>;
            read_dir(no: room::InodeNo, after: u64, limit: usize) -> room::Result<Vec<(room::DirEntry, room::Inode)>>;
            begin_read_dir(no: room::InodeNo, after: u64, limit: usize) -> room::Result<(Vec<(room::DirEntry, room::Inode)>, u64)>;
            touch_atime(no: room::InodeNo);
            hold(no: room::InodeNo);
            release(no: room::InodeNo, count: u64);
            read(no: room::InodeNo, offset: u64, buf: &mut [u8]) -> room::Result<usize>;
            write(no: room::InodeNo, offset: u64, data: &[u8]) -> room::Result<()>;
            fallocate(no: room::InodeNo, what: room::Fallocate, offset: u64, len: u64) -> room::Result<()>;
            seek(no: room::InodeNo, offset: u64, to: room::SeekTo) -> room::Result<u64>;
            copy_range(from: room::InodeNo, from_offset: u64, to: room::InodeNo, to_offset: u64, len: u64) -> room::Result<u64>;
            fsync(no: room::InodeNo) -> room::Result<()>;
            sync() -> room::Result<()>;
            set_xattr(no: room::InodeNo, name: &[u8], value: &[u8], mode: room::XattrMode, drop_setgid: bool) -> room::Result<()>;
            remove_xattr(no: room::InodeNo, name: &[u8]) -> room::Result<()>;
            xattr_names(no: room::InodeNo) -> room::Result<Vec<Vec<u8>>>;
            space() -> room::Result<room::RoomSpace>;
        }
    };
    (@ $($name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(fn $name(&self, $($arg: $type),*) $(-> $result)? {
            self.room.$name($($arg),*)
        })*
    };
}
