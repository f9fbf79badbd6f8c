//! Answers SEEK_DATA and SEEK_HOLE after the kernel has passed on what programs wrote.
//!
//! The kernel asks for the next data or hole without writing its cache back first, so the answer would miss what was just
//! written. Nothing tells which files have such data (they are opened without asking us), so the whole mount is written
//! back; it is little or nothing, for the kernel writes back at every close.
//!
//! 1. The thread that waits for the write-back is none of those that serve requests, for they serve it.
//! 2. Questions that arrive while one write-back runs share the next.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crate::error::MountError;
use crate::keeper::Keeper;

/// A question with its answer's way back.
pub(crate) struct Seek(Box<dyn FnOnce() + Send>);

impl Seek {
    /// `answer` finds the answer and sends it; it does not panic.
    pub(crate) fn new(answer: impl FnOnce() + Send + 'static) -> Self {
        Self(Box::new(answer))
    }
}

impl fmt::Debug for Seek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seek")
    }
}

/// Takes questions. The thread behind it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Seeker(Sender<Seek>);

impl Seeker {
    pub(crate) fn start(keeper: Arc<Keeper>) -> Result<(Self, JoinHandle<()>), MountError> {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new()
            .name("strongroom-seek".to_owned())
            .spawn(move || run(&receiver, &keeper))
            .map_err(MountError::Thread)?;
        Ok((Self(sender), thread))
    }

    /// Has the question answered soon. If the thread is gone it is dropped, which answers with an I/O error.
    pub(crate) fn ask(&self, seek: Seek) {
        let _ = self.0.send(seek);
    }
}

fn run(receiver: &Receiver<Seek>, keeper: &Keeper) {
    while let Ok(first) = receiver.recv() {
        let more: Vec<Seek> = receiver.try_iter().collect();
        keeper.write_back();
        for seek in std::iter::once(first).chain(more) {
            (seek.0)();
        }
    }
}
