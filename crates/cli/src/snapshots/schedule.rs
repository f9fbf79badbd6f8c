//! Applies the room's snapshot policy in the process that has the room mounted, or serves it.
//!
//! Once a minute, so that a policy set meanwhile counts. It never keeps a room from being closed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use room::Room;

use crate::error::{Error, Result};

/// How often the policy is looked at.
const INTERVAL: Duration = Duration::from_secs(60);

/// The thread; it ends with this.
#[derive(Debug)]
pub(crate) struct Schedule {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Does something with a room while it is open; `None`: it is not, and will not be again.
pub(crate) type WithRoom = Box<dyn Fn(&dyn Fn(&Room) -> Result<()>) -> Option<Result<()>> + Send>;

impl Schedule {
    /// Begins for the room in `dir`, which is open here and can be changed.
    pub(crate) fn of_room(dir: PathBuf, room: &Arc<Room>) -> std::io::Result<Schedule> {
        let room = Arc::downgrade(room);
        let with: WithRoom = Box::new(move |work| Some(work(&*room.upgrade()?)));
        Self::start(dir, with)
    }

    /// Begins for the room in `dir`.
    pub(crate) fn start(dir: PathBuf, with_room: WithRoom) -> std::io::Result<Schedule> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("snapshots".into())
            .spawn(move || run(&dir, &with_room, &stopped))?;
        Ok(Schedule {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Schedule {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn run(dir: &Path, with_room: &WithRoom, stopped: &Receiver<()>) {
    let mut last_error = String::new();
    loop {
        let Some(done) = with_room(&|room| tick(dir, room)) else {
            return;
        };
        match done {
            Ok(()) => last_error.clear(),
            // Once is enough for what fails every minute.
            Err(e) if e.to_string() == last_error => {}
            Err(e) => {
                last_error = e.to_string();
                tracing::warn!("snapshot policy: {e}");
            }
        }
        match stopped.recv_timeout(INTERVAL) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Does what is due now. The log names no snapshots: it is not in the room.
fn tick(dir: &Path, room: &Room) -> Result<()> {
    let applied = room
        .apply_snapshot_policy()
        .map_err(|e| Error::room(dir, e))?;
    if applied.created.is_some() {
        tracing::info!("snapshot policy: created an automatic snapshot");
    }
    if !applied.deleted.is_empty() {
        let count = crate::words::count(applied.deleted.len() as u64, "automatic snapshot");
        tracing::info!("snapshot policy: deleted {count}");
    }
    Ok(())
}
