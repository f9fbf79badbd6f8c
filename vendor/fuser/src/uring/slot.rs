//! The memory that one ring entry shares with the kernel: a request comes in it, and its answer
//! goes back in it.
//!
//! ```text
//! 0       4096            8192
//! headers ........ request payload: what follows the arguments of a request, then the answer
//!               ^ header and arguments are copied here, so that a request is contiguous, as it is
//!                 when it is read from the device
//! ```
//!
//! 1. Between a completion and the next commit, the memory belongs to this process.
//! 2. A short request is copied out before it is served. The payload is then free, and its answer is
//!    written there at once. A long one (a write) is served where it is, and its answer is kept
//!    aside until nobody looks at the request any more.

use std::alloc::Layout;
use std::fmt;
use std::io;
use std::io::IoSlice;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use log::error;
use parking_lot::Condvar;
use parking_lot::Mutex;
use zerocopy::FromBytes;
use zerocopy::IntoBytes;

use crate::channel::ChannelSender;
use crate::ll::fuse_abi as abi;

/// Bytes; the place of the payload. A page for what the kernel writes of a request's header, and a
/// page before the payload for the copy.
const PAYLOAD: usize = 8192;
/// Bytes; `struct fuse_uring_req_header`: 128 for the header, 128 for the arguments, and 32 for:
const REQ_HEADER: usize = 288;
const ARGUMENTS: usize = 128;
const MAX_ARGUMENTS: usize = 128;
/// `struct fuse_uring_ent_in_out`.
const IN_OUT: usize = 256;
const COMMIT_ID: usize = IN_OUT + 8;
const PAYLOAD_SIZE: usize = IN_OUT + 16;

const IN_HEADER: usize = size_of::<abi::fuse_in_header>();
/// Bytes; payloads up to this are copied out.
const SHORT: usize = 8192;

/// Memory for short requests, one for each thread.
#[repr(C, align(8))]
pub(super) struct Scratch([u8; IN_HEADER + MAX_ARGUMENTS + SHORT]);

impl Scratch {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self([0; IN_HEADER + MAX_ARGUMENTS + SHORT]))
    }
}

/// What is to be sent of an answer.
#[derive(Debug)]
struct Answer {
    error: i32,
    unique: u64,
    len: usize,
    /// The answer, where the payload was not free.
    aside: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
struct State {
    /// The payload belongs to the one who answers.
    free: bool,
    answer: Option<Answer>,
}

/// One entry.
pub(crate) struct Slot {
    memory: NonNull<u8>,
    payload_len: usize,
    pub(crate) device: ChannelSender,
    state: Mutex<State>,
    answered: Condvar,
}

// SAFETY: the memory is reached only by the thread of the ring, while it makes a request of it or
// commits; and by the one reply of that request, between the two and if `State::free` says so.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and the kernel no longer has the entry.
        unsafe { std::alloc::dealloc(self.memory.as_ptr(), Self::layout(self.payload_len)) }
    }
}

impl Slot {
    fn layout(payload_len: usize) -> Layout {
        Layout::from_size_align(PAYLOAD + payload_len, 4096).expect("a size that fits")
    }

    pub(super) fn new(payload_len: usize, device: ChannelSender) -> io::Result<Arc<Self>> {
        // SAFETY: the layout is not empty.
        let memory = unsafe { std::alloc::alloc_zeroed(Self::layout(payload_len)) };
        let memory = NonNull::new(memory).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Arc::new(Self {
            memory,
            payload_len,
            device,
            state: Mutex::default(),
            answered: Condvar::new(),
        }))
    }

    /// What the kernel asks for when an entry is registered: headers, and payload.
    pub(super) fn iovecs(&self) -> [libc::iovec; 2] {
        let at = |offset, len| libc::iovec {
            // SAFETY: both are inside the allocation.
            iov_base: unsafe { self.memory.as_ptr().add(offset) }.cast(),
            iov_len: len,
        };
        [at(0, REQ_HEADER), at(PAYLOAD, self.payload_len)]
    }

    /// # Safety
    /// The thread of the ring, with a request or before registering; `offset + len` is in the
    /// headers.
    unsafe fn header(&self, offset: usize, len: usize) -> &[u8] {
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(offset), len) }
    }

    fn number<const N: usize>(&self, offset: usize) -> [u8; N] {
        // SAFETY: called by the thread of the ring with offsets of fields.
        unsafe { self.header(offset, N) }
            .try_into()
            .expect("N bytes")
    }

    pub(super) fn commit_id(&self) -> u64 {
        u64::from_ne_bytes(self.number(COMMIT_ID))
    }

    /// The opcode of the request that has come.
    pub(super) fn opcode(&self) -> u32 {
        u32::from_ne_bytes(self.number(4))
    }

    /// The inode of the request that has come.
    pub(super) fn inode(&self) -> u64 {
        u64::from_ne_bytes(self.number(16))
    }

    /// The request that has come, contiguous. `None` when its lengths contradict each other.
    ///
    /// # Safety
    /// Called by the thread of the ring, once for each completion. What is returned must be out of
    /// use before the entry is committed.
    pub(super) unsafe fn request<'a>(&'a self, scratch: &'a mut Scratch) -> Option<&'a [u8]> {
        let total = u32::from_ne_bytes(self.number(0)) as usize;
        let payload = u32::from_ne_bytes(self.number(PAYLOAD_SIZE)) as usize;
        let arguments = total.checked_sub(IN_HEADER)?.checked_sub(payload)?;
        if arguments > MAX_ARGUMENTS || payload > self.payload_len {
            return None;
        }
        let front = IN_HEADER + arguments;
        // Structures are read where they are, so they must be aligned.
        let short = payload <= SHORT || front % 8 != 0;
        *self.state.lock() = State {
            free: short,
            answer: None,
        };
        // SAFETY: all lengths were compared with the sizes of what they are in; the places do not
        // overlap. Nobody writes to the payload while a long request is looked at (2. above).
        unsafe {
            let base = self.memory.as_ptr();
            let to = if short {
                if payload > SHORT {
                    return None;
                }
                let to = scratch.0.as_mut_ptr();
                to.add(front)
                    .copy_from_nonoverlapping(base.add(PAYLOAD), payload);
                to
            } else {
                base.add(PAYLOAD - front)
            };
            to.copy_from_nonoverlapping(base, IN_HEADER);
            to.add(IN_HEADER)
                .copy_from_nonoverlapping(base.add(ARGUMENTS), arguments);
            Some(std::slice::from_raw_parts(to, total))
        }
    }

    /// The place for an answer of `size` bytes, where it may be written without another copy.
    ///
    /// # Safety
    /// Called by the one reply of the present request.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn room(&self, size: usize) -> Option<&mut [u8]> {
        if !self.state.lock().free || size > self.payload_len {
            return None;
        }
        // SAFETY: the payload is the reply's, and all of it was written before (by zeros at least).
        Some(unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().add(PAYLOAD), size) })
    }

    /// Answers with the `len` bytes that were written to [`room`](Self::room).
    pub(crate) fn answer_in_place(&self, unique: u64, len: usize) {
        self.put(Answer {
            error: 0,
            unique,
            len,
            aside: None,
        });
    }

    /// Answers with what would be written to the device: a header, and what follows it.
    pub(crate) fn answer(&self, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let (header, body) = bufs.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let header = abi::fuse_out_header::read_from_bytes(header)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let len: usize = body.iter().map(|b| b.len()).sum();
        let mut answer = Answer {
            error: header.error,
            unique: header.unique,
            len,
            aside: None,
        };
        if len > self.payload_len {
            error!("an answer of {len} bytes is longer than the kernel's buffer");
            (answer.error, answer.len) = (-libc::EIO, 0);
        } else if len > 0 {
            // SAFETY: this is the one reply of the request.
            match unsafe { self.room(len) } {
                Some(room) => copy(body, room),
                None => {
                    let mut aside = vec![0; len];
                    copy(body, &mut aside);
                    answer.aside = Some(aside);
                }
            }
        }
        self.put(answer);
        Ok(())
    }

    /// Answers for requests of which nobody else does.
    pub(super) fn answer_error(&self, unique: u64, error: i32) {
        self.put(Answer {
            error: -error,
            unique,
            len: 0,
            aside: None,
        });
    }

    fn put(&self, answer: Answer) {
        self.state.lock().answer = Some(answer);
        self.answered.notify_one();
    }

    pub(super) fn is_answered(&self) -> bool {
        self.state.lock().answer.is_some()
    }

    /// Returns when the request is answered, or with `false` after this time.
    pub(super) fn wait_for(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        let is_open = |state: &mut State| state.answer.is_none();
        let waited = self.answered.wait_while_for(&mut state, is_open, time);
        !waited.timed_out()
    }

    /// Writes the answer where the kernel takes it from.
    ///
    /// # Safety
    /// Called by the thread of the ring, after the request is out of use.
    pub(super) unsafe fn write_answer(&self) {
        let Some(answer) = self.state.lock().answer.take() else {
            return;
        };
        let len = size_of::<abi::fuse_out_header>() + answer.len;
        let header = abi::fuse_out_header {
            len: len as u32,
            error: answer.error,
            unique: answer.unique,
        };
        let put = |offset: usize, bytes: &[u8]| {
            // SAFETY: inside the allocation: fields of the headers, or an answer that fits.
            unsafe {
                self.memory
                    .as_ptr()
                    .add(offset)
                    .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
        };
        put(0, header.as_bytes());
        put(PAYLOAD_SIZE, &(answer.len as u32).to_ne_bytes());
        if let Some(aside) = answer.aside {
            put(PAYLOAD, &aside);
        }
    }
}

fn copy(from: &[IoSlice<'_>], to: &mut [u8]) {
    let mut at = 0;
    for part in from {
        to[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
}
