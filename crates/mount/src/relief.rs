//! The thread of [back-pressure](crate::pressure): does what the threads that serve requests order, and may notify the kernel.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::MountError;
use crate::keeper::Keeper;
use crate::kernel::Kernel;
use crate::pressure::{Order, Orders};
use crate::server::Server;

/// How often to look whether others took space of the storage.
const OTHERS: Duration = Duration::from_secs(2);
/// How often to ask the kernel to forget files whose length is wrong: it does not report the close that makes it possible.
const PRUNE: Duration = Duration::from_millis(250);

/// What the thread works with.
pub(crate) struct Duties {
    pub(crate) server: Weak<Server>,
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) keeper: Arc<Keeper>,
    /// Device of the mount's files.
    pub(crate) device: u64,
}

/// Looks for the first time, and starts the thread, which ends with the server.
pub(crate) fn start(orders: Orders, duties: Duties) -> Result<JoinHandle<()>, MountError> {
    if let Some(server) = duties.server.upgrade() {
        server.pressure.begin(duties.device, &*server.room);
    }
    std::thread::Builder::new()
        .name("strongroom-space".to_owned())
        .spawn(move || duties.run(&orders.0))
        .map_err(MountError::Thread)
}

impl Duties {
    fn run(&self, orders: &Receiver<Order>) {
        let mut pruned = Instant::now();
        let mut wait = OTHERS;
        loop {
            let order = orders.recv_timeout(wait);
            let Some(server) = self.server.upgrade() else {
                return;
            };
            match order {
                Ok(order) => self.carry_out(order, &server),
                // Others may take space of the storage too.
                Err(RecvTimeoutError::Timeout) => server.pressure.look(&*server.room),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if pruned.elapsed() >= PRUNE {
                server.pressure.prune(&self.kernel);
                pruned = Instant::now();
            }
            wait = match server.pressure.has_wrong_lengths() {
                true => PRUNE,
                false => OTHERS,
            };
        }
    }

    fn carry_out(&self, order: Order, server: &Server) {
        match order {
            Order::Ask(no) => self.kernel.attributes_changed(no),
            Order::AskAll => {
                for no in server.known() {
                    self.kernel.attributes_changed(no);
                }
            }
            Order::WriteBack => {
                server.pressure.write_back_begins();
                self.keeper.begin_write_back();
            }
            Order::Drop(no, offset) => self.kernel.drop_cache(no, offset),
        }
    }
}
