//! A network disk whose blocks are in a bucket.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use device::Device;
use netdisk::StoredDevice;
use netdisk::server::MachineTime;
use service::Stop;
use storage::WriterState;

use crate::bucket;
use crate::error::{Error, Result, io_exit};
use crate::exit::Exit;

/// What the commands say about their options.
pub(super) const HELP: &str = "In a bucket (--store s3://BUCKET/PREFIX) the options of every room in a bucket work here too: --cache DIR, \
    --cache-size SIZE, --log PLACE, --store-timeout SECONDS, --take-over.";

/// The message has the place already.
fn failed(error: std::io::Error) -> Error {
    let exit = match error.kind() {
        std::io::ErrorKind::ResourceBusy => Exit::InUse,
        _ => io_exit(&error),
    };
    Error::said(exit, error.to_string())
}

/// Makes a disk in the bucket that a directory represents.
pub(super) fn create(dir: &Path, size: u64) -> Result<StoredDevice> {
    let storage = bucket::create_storage(dir).map_err(failed)?;
    StoredDevice::create(storage, size, Arc::new(MachineTime)).map_err(|e| {
        bucket::discard(dir);
        Error::host(&bucket::room_name(dir), e)
    })
}

/// Why a process may not serve its disk any more.
#[derive(Debug, Clone, Default)]
pub(super) struct Ended(Arc<OnceLock<WriterState>>);

impl Ended {
    /// The error with which the process ends; it says nothing to its clients before.
    pub(super) fn error(&self, dir: &Path) -> Option<Error> {
        let (exit, why) = match self.0.get()? {
            WriterState::Overtaken(why) => (Exit::InUse, why),
            WriterState::Failed(why) => (Exit::Failed, why),
            WriterState::Current => return None,
        };
        Some(Error::said(
            exit,
            format!("{}: {why}", bucket::room_name(dir).display()),
        ))
    }
}

/// Opens the disk in the bucket that a directory represents. When it has ended the process is asked to stop, and nothing is answered. The calling
/// thread is the one that stops the server: no client waits for its calls, and they return.
pub(super) fn open(dir: &Path, stop: &Stop, ended: &Ended) -> Result<Arc<StoredDevice>> {
    let storage = bucket::storage(dir, false).map_err(failed)?;
    let storage = storage.ok_or_else(|| Error::failed("it is in no bucket"))?;
    let (stop, ended) = (stop.clone(), ended.clone());
    let stopping = std::thread::current().id();
    let end = move |why: &WriterState| {
        let _ = ended.0.set(why.clone());
        stop.ask();
        if std::thread::current().id() == stopping {
            return;
        }
        loop {
            // An answer, even a refusal, is for the one that has the disk now. The process is about to end.
            std::thread::park();
        }
    };
    let device = StoredDevice::open(storage, Arc::new(MachineTime), end).map_err(|e| {
        let place = bucket::room_name(dir);
        match e.kind() {
            std::io::ErrorKind::NotFound => {
                let words =
                    "it is not a network disk's store; make one with `strongroom disk init`";
                Error::failed(format!("{}: {words}", place.display()))
            }
            _ => Error::host(&place, e),
        }
    })?;
    let device = Arc::new(device);
    device
        .tend()
        .map_err(|e| Error::failed(format!("no thread could be started: {e}")))?;
    tracing::debug!(bytes = device.len(), "the disk is open in its bucket");
    Ok(device)
}
