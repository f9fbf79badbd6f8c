//! Tar streams, read and written: pax (POSIX.1-2001) with GNU's sparse files and the extended attributes of star, and to read also
//! ustar, GNU's own format and what was before.
//!
//! 1. A member's path is relative and has no `..`: what would lead out is cut away as GNU tar does (everything up to the last
//!    `..`), and the member says so.
//! 2. What a stream says of lengths is bounded before memory is taken: [`MAX_EXTENSION`] and [`MAX_RANGES`].
//!
//! Fields of headers are the `tar` crate's; the stream itself is read here, since that crate loses the holes of sparse files, knows
//! neither the pax form of them nor attributes with a newline, and puts no bound on extended headers.

mod pax;
mod reader;
mod sparse;
mod writer;

pub use reader::Reader;
pub use writer::Writer;

/// The most bytes that the extended headers of a member have.
pub const MAX_EXTENSION: u64 = 16 << 20;
/// The most ranges of data in a sparse file.
pub const MAX_RANGES: usize = 1 << 20;

/// Bytes of a block, of which everything takes a whole number.
const BLOCK: usize = 512;

/// A moment: seconds since 1970 and nanoseconds.
pub type Moment = (i64, u32);

/// What a member is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberKind {
    /// A regular file.
    File {
        /// Length in bytes, holes among them.
        size: u64,
        /// The ranges that hold data, first byte and end, in order; `None`: all of it.
        data: Option<Vec<(u64, u64)>>,
    },
    /// Another name of a member that came before.
    HardLink(Vec<Vec<u8>>),
    /// A symbolic link, with its target.
    Symlink(Vec<u8>),
    /// A directory.
    Directory,
    /// A FIFO.
    Fifo,
    /// A character device: major and minor number.
    CharDevice(u32, u32),
    /// A block device: major and minor number.
    BlockDevice(u32, u32),
    /// A kind that is not known here; its data is skipped.
    Other(u8),
}

/// One member of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The names of its path; none: the top itself.
    pub path: Vec<Vec<u8>>,
    /// Whether something was cut from the front of its path or of a hard link's target.
    pub cut: bool,
    /// What it is.
    pub kind: MemberKind,
    /// Permission bits with set-id and sticky.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of data.
    pub mtime: Moment,
    /// Last access, where the stream has it.
    pub atime: Option<Moment>,
    /// Extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Access lists as text, as GNU tar and star write them: of access, and default. Names in them are this machine's matter.
    pub acls: [Option<Vec<u8>>; 2],
}

/// The names of a path, without what would lead out of where it is put; and whether anything was cut.
fn inside(path: &[u8]) -> (Vec<Vec<u8>>, bool) {
    let mut parts = Vec::new();
    let mut cut = path.starts_with(b"/");
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.clear();
                cut = true;
            }
            _ => parts.push(part.to_vec()),
        }
    }
    (parts, cut)
}
