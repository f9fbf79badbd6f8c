//! Answers SEEK_DATA and SEEK_HOLE after the kernel has passed on what programs wrote.
//!
//! The kernel asks for the next data or hole without writing its cache back first, so the answer would miss what was just
//! written. It is unknown which files have such data (they are opened without asking us), so each answer takes three steps:
//! the kernel is made to send what is dirty in the whole mount, in large writes (`syncfs`; it is little or nothing, for
//! the kernel writes back at every close); the writes that arrived are waited for; and the kernel must drop its copy of the
//! file from that offset on, which ends only when nothing of it is dirty or on its way any more. The last step alone would be
//! right, but slow: it sends page by page. The first alone would be wrong: since Linux 6.18 `syncfs` does not wait for FUSE.
//!
//! 1. The thread that waits is none of those that serve requests, for they serve the writes it waits for.
//! 2. Questions that arrive while one write-back runs share the next.
//! 3. While the last step waits, killing this process would leave the connection open until somebody unmounts by force
//!    (the thread waits in the kernel, with the device open). The second step is there so that there is nothing to
//!    wait for.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use model::InodeNo;

use crate::activity::Writes;
use crate::error::MountError;
use crate::keeper::Keeper;
use crate::kernel::Kernel;

/// A question with its answer's way back.
pub(crate) struct Seek {
    no: InodeNo,
    offset: u64,
    answer: Box<dyn FnOnce() + Send>,
}

impl Seek {
    /// What follows `offset` in `no`? `answer` finds the answer and sends it; it does not panic.
    pub(crate) fn new(no: InodeNo, offset: u64, answer: impl FnOnce() + Send + 'static) -> Self {
        Self {
            no,
            offset,
            answer: Box::new(answer),
        }
    }
}

/// Takes questions. The thread behind it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Seeker(Sender<Seek>);

impl Seeker {
    pub(crate) fn start(
        keeper: Arc<Keeper>,
        kernel: Arc<Kernel>,
        writes: Arc<Writes>,
    ) -> Result<(Self, JoinHandle<()>), MountError> {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new()
            .name("strongroom-seek".to_owned())
            .spawn(move || run(&receiver, &keeper, &kernel, &writes))
            .map_err(MountError::Thread)?;
        Ok((Self(sender), thread))
    }

    /// Has the question answered soon. If the thread is gone it is dropped, which answers with an I/O error.
    pub(crate) fn ask(&self, seek: Seek) {
        let _ = self.0.send(seek);
    }
}

fn run(receiver: &Receiver<Seek>, keeper: &Keeper, kernel: &Kernel, writes: &Writes) {
    while let Ok(first) = receiver.recv() {
        let more: Vec<Seek> = receiver.try_iter().collect();
        keeper.write_back();
        for seek in std::iter::once(first).chain(more) {
            writes.wait();
            kernel.drop_cache(seek.no, seek.offset);
            (seek.answer)();
        }
    }
}
