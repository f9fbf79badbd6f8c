//! libsqlfs's functions on rooms, so that programs written for it link and run: `include/sqlfs.h`.
//!
//! To begin with, copy `examples/notes.c`.
//!
//! What was the path of a container file is the directory of a room, which is made where nothing is. The names, arguments and results are
//! libsqlfs's (its master of 2019); where its results say two things, they are those that its users' programs were written against:
//!
//! 1. `sqlfs_open…`, `sqlfs_close`, transactions and `sqlfs_is_dir` answer 1 for success and 0 for failure, `sqlfs_init…` and
//!    `sqlfs_destroy` 0 for success, `sqlfs_proc_…` 0 or a count for success and else the negative error number, which `errno` has too.
//! 2. A `sqlfs_t *` is a handle that nobody looks behind: NULL is the container opened last, as in a thread of libsqlfs; one that was
//!    closed is an error.
//! 3. There are no containers without a key: `sqlfs_open` and `sqlfs_init` refuse.
//!
//! Not kept are faults: names with `[` are names, hard links and extended attributes work, `rename` replaces an empty directory, nothing is
//! made below a directory that is missing. It deliberately does not read libsqlfs's files: `strongroom import` does.

mod answer;
mod metadata;
mod mount;
mod open;
mod operations;
mod trees;
mod values;

pub use answer::sqlfs_last_error;
pub use metadata::*;
pub use open::*;
pub use operations::*;
pub use trees::*;
pub use values::*;

/// What `sqlfs.h` leaves undefined: a handle, dressed as a pointer.
#[allow(non_camel_case_types)]
pub enum sqlfs_t {}
