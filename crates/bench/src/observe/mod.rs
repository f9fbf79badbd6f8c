//! What the machine says while a round runs.
//!
//! ```text
//! clock   ──┐
//! block     │ devices beneath the store, from top to bottom, and their counters
//! process   ├─ Watch::begin ── the round ── Watch::finish ──> Evidence ──> validity
//! cache     │ pages of the very files
//! host    ──┘ stolen time, frequencies, room left
//! machine: what it was measured on;  ceilings: what no storage here can exceed
//! ```
//!
//! 1. The clocks are read last before the work and first after it: no counter is read on the round's time.
//! 2. What could not be had is `None` and named in [`Evidence::unobserved`], never zero.
//!
//! It deliberately does not judge: that is `validity`.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

pub mod block;
mod cache;
pub mod ceilings;
pub mod host;
#[cfg(test)]
pub(crate) mod loop_disk;
mod machine;
pub mod process;

use block::{BlockDevice, DeviceCounters};
pub(crate) use cache::files_beneath;
pub use cache::{CachedPages, cached};
pub use ceilings::Ceilings;
use host::{HostCounters, Roots, Space};
pub use machine::{machine, store_facts};
pub(crate) use process::holders_of;
use process::{Others, ProcessIo};

use crate::clock::{Clock, Elapsed, Reading};

/// What is watched: a store, and what serves it.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    /// The directory, file or block device that is measured; empty where it is not on this host's disks.
    pub path: PathBuf,
    /// Where its bytes are stored when there is a layer between, as the directory a FUSE daemon or a room keeps them in: it is
    /// judged by their pages and their device. Empty if `path` is all there is.
    pub backing: Vec<PathBuf>,
    /// Processes that serve it, as a FUSE daemon.
    pub servers: Vec<u32>,
}

/// Watches one store.
#[derive(Debug, Clone)]
pub struct Observer {
    subject: Subject,
    devices: Vec<BlockDevice>,
    /// Whether a process serves the store, or what it is stored in, and nobody here knows which.
    served_by_unknown: bool,
    /// Kernel threads that write the journal of the store's own file system.
    journals: Vec<u32>,
    roots: Roots,
}

impl Observer {
    /// Finds the devices beneath `subject`, once for all rounds.
    pub fn new(subject: Subject) -> Observer {
        Observer::with_roots(subject, Roots::default())
    }

    /// With another `/proc` and `/sys` for what concerns the host.
    pub fn with_roots(subject: Subject, roots: Roots) -> Observer {
        let at = subject.backing.first().unwrap_or(&subject.path);
        let devices = block::beneath(at);
        let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
        Observer {
            served_by_unknown: is_served_by_unknown(&subject),
            journals: process::journals_on(&names),
            subject,
            devices,
            roots,
        }
    }

    /// The devices beneath, from the top down; empty where there is none, as for memory and networks.
    pub fn devices(&self) -> &[BlockDevice] {
        &self.devices
    }

    /// Whether a call that reaches the store's device has to wait for it.
    pub fn waits(&self) -> bool {
        self.devices
            .last()
            .is_some_and(|device| !device.is_memory())
    }

    /// Begins a round over `files`: those that it will read or write, as far as they are open already.
    ///
    /// The last thing it does is to read the clock.
    pub fn begin<'a>(&'a self, clock: &'a dyn Clock, files: &[BorrowedFd<'_>]) -> Watch<'a> {
        let before = self.look(files);
        Watch {
            observer: self,
            clock,
            before,
            readings: vec![clock.read()],
        }
    }

    fn look(&self, files: &[BorrowedFd<'_>]) -> Look {
        let own = std::process::id();
        let mut ours = self.subject.servers.clone();
        ours.push(own);
        ours.extend(&self.journals);
        let at = self.subject.backing.first().unwrap_or(&self.subject.path);
        Look {
            others: process::others(&ours),
            cached: (!files.is_empty())
                .then(|| cache::cached_of(files))
                .flatten(),
            backing_cached: (!self.subject.backing.is_empty())
                .then(|| cache::cached_beneath(&self.subject.backing))
                .flatten(),
            space: host::space(at),
            own_io: process::io_of(own),
            servers: if self.served_by_unknown {
                None
            } else {
                let servers = self.subject.servers.iter();
                servers
                    .map(|pid| Some((process::io_of(*pid)?, process::cpu_s_of(*pid)?)))
                    .collect()
            },
            host: HostCounters::read(&self.roots),
            devices: self.devices.iter().map(BlockDevice::counters).collect(),
        }
    }
}

/// Everything but the clocks, at one moment.
#[derive(Debug)]
struct Look {
    others: HashMap<u32, ProcessIo>,
    cached: Option<CachedPages>,
    backing_cached: Option<CachedPages>,
    space: Option<Space>,
    own_io: Option<ProcessIo>,
    /// Bytes and processor seconds of each, if all could be asked.
    servers: Option<Vec<(ProcessIo, f64)>>,
    host: HostCounters,
    devices: Vec<Option<DeviceCounters>>,
}

/// A round under way.
pub struct Watch<'a> {
    observer: &'a Observer,
    clock: &'a dyn Clock,
    before: Look,
    readings: Vec<Reading>,
}

impl Watch<'_> {
    /// Reads the clocks in the midst of the round, at the end of a slice: a clock that stalls or leaps is then seen where it does.
    pub fn mark(&mut self) {
        self.readings.push(self.clock.read());
    }

    /// When the round began, by the measuring clock.
    pub fn began_ns(&self) -> u64 {
        self.readings[0].raw_ns
    }

    /// Ends the round. `files` as for [`Observer::begin`], and those opened since.
    ///
    /// The first thing it does is to read the clock.
    pub fn finish(mut self, files: &[BorrowedFd<'_>]) -> Evidence {
        self.readings.push(self.clock.read());
        let observer = self.observer;
        // Dirty pages go out by themselves: they are looked at before anything else.
        let after = observer.look_after(files, &self.before);
        let first = self.readings[0];
        let last = self.readings[self.readings.len() - 1];
        let elapsed = last.since(&first);
        let devices = observer
            .devices
            .iter()
            .zip(self.before.devices.iter().zip(&after.devices))
            .filter_map(|(device, (before, after))| {
                Some(DeviceEvidence {
                    name: device.name.clone(),
                    memory: device.is_memory(),
                    write_cache: device.has_write_cache(),
                    did: after.as_ref()?.since(before.as_ref()?),
                })
            })
            .collect::<Vec<_>>();
        let servers = self
            .before
            .servers
            .zip(after.servers)
            .map(|(before, after)| {
                before.iter().zip(&after).fold(
                    (ProcessIo::default(), 0.0),
                    |(io, cpu), ((io_then, cpu_then), (io_now, cpu_now))| {
                        (io.and(&io_now.since(io_then)), cpu + (cpu_now - cpu_then))
                    },
                )
            });
        let own_io = self
            .before
            .own_io
            .zip(after.own_io)
            .map(|(before, after)| after.since(&before));
        let mut evidence = Evidence {
            elapsed,
            between: self
                .readings
                .windows(2)
                .map(|pair| pair[1].since(&pair[0]))
                .collect(),
            devices,
            own_io,
            server_io: servers.as_ref().map(|(io, _)| *io),
            cpu_s: servers
                .as_ref()
                .map(|(_, cpu)| cpu + elapsed.process_cpu_ns as f64 / 1e9),
            others: process::busiest(&self.before.others, &after.others),
            stolen: after.host.stolen_since(&self.before.host),
            frequency_change: after.host.frequency_change_since(&self.before.host),
            cached_before: self.before.cached,
            cached_after: after.cached,
            backing_cached_before: self.before.backing_cached,
            backing_cached_after: after.backing_cached,
            has_backing: !observer.subject.backing.is_empty(),
            space: after.space,
            unobserved: Vec::new(),
        };
        evidence.unobserved = unobserved(observer, &evidence);
        evidence
    }
}

impl Observer {
    fn look_after(&self, files: &[BorrowedFd<'_>], before: &Look) -> Look {
        let cached = (!files.is_empty())
            .then(|| cache::cached_of(files))
            .flatten();
        let backing_cached = before
            .backing_cached
            .and_then(|_| cache::cached_beneath(&self.subject.backing));
        Look {
            cached,
            backing_cached,
            ..self.look(&[])
        }
    }
}

/// Whether there is a process between the store and the disk that is none of its servers.
fn is_served_by_unknown(subject: &Subject) -> bool {
    let Some(at) = subject.backing.first() else {
        let path = &subject.path;
        let elsewhere = path.as_os_str().is_empty();
        let served = || block::is_fuse(path) && subject.servers.is_empty();
        return elsewhere || served() || is_loop_on_fuse(path);
    };
    block::is_fuse(at) || is_loop_on_fuse(at)
}

fn is_loop_on_fuse(path: &Path) -> bool {
    block::loop_file(path).is_some_and(|file| block::is_fuse(&file))
}

fn unobserved(observer: &Observer, evidence: &Evidence) -> Vec<String> {
    let mut missing = Vec::new();
    let mut unless = |there: bool, what: &str| {
        if !there {
            missing.push(what.to_owned());
        }
    };
    unless(
        !evidence.devices.is_empty() && evidence.devices.len() == observer.devices.len(),
        "no block device is known beneath the store: it is unknown which bytes reached one",
    );
    unless(evidence.own_io.is_some(), "/proc/self/io cannot be read");
    unless(
        !observer.served_by_unknown,
        "which process serves the store is not known: its bytes and its processor time are not either",
    );
    unless(
        evidence.server_io.is_some() || observer.served_by_unknown,
        "a process that serves the store cannot be asked for its bytes and its processor time",
    );
    missing
}

impl Observer {
    /// What this machine never reports, whatever is measured: a sentence each, to be said once.
    pub fn never_observed(&self) -> Vec<String> {
        let now = HostCounters::read(&self.roots);
        let mut never_observed = Vec::new();
        if now.ticks.is_none() {
            never_observed
                .push("/proc/stat cannot be read: whether the host took time away is not known");
        }
        if now.frequencies_khz.is_empty() {
            never_observed.push(
                "the kernel does not report the processors' frequency: whether it changed is not known",
            );
        }
        never_observed.into_iter().map(str::to_owned).collect()
    }
}

/// What a device beneath the store did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceEvidence {
    /// As in "vda".
    pub name: String,
    /// Whether it is memory in truth.
    pub memory: bool,
    /// Whether it has a cache that flushes empty.
    pub write_cache: bool,
    /// During the round.
    pub did: DeviceCounters,
}

/// Everything that was seen of a round.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence {
    /// From the first to the last reading.
    pub elapsed: Elapsed,
    /// From each reading to the next: one if [`Watch::mark`] was never called.
    pub between: Vec<Elapsed>,
    /// Devices beneath the store, from the top down.
    pub devices: Vec<DeviceEvidence>,
    /// Bytes of this process.
    pub own_io: Option<ProcessIo>,
    /// Bytes of the processes that serve the store, zero if there is none.
    pub server_io: Option<ProcessIo>,
    /// Processor seconds of this process and of those that serve the store.
    pub cpu_s: Option<f64>,
    /// What other processes moved to and from devices.
    pub others: Others,
    /// Share of all processors' time that the host took away, 0 to 1.
    pub stolen: Option<f64>,
    /// Largest change of a processor's frequency, as a share of what it was.
    pub frequency_change: Option<f64>,
    /// Pages of the round's files before it.
    pub cached_before: Option<CachedPages>,
    /// And after it.
    pub cached_after: Option<CachedPages>,
    /// Pages of the backing files before the round.
    pub backing_cached_before: Option<CachedPages>,
    /// And after it.
    pub backing_cached_after: Option<CachedPages>,
    /// Whether the store keeps its bytes in files elsewhere.
    pub has_backing: bool,
    /// Room left after the round.
    pub space: Option<Space>,
    /// What could not be had of this store, a sentence each; what the machine never reports is [`Observer::never_observed`].
    pub unobserved: Vec<String>,
}

impl Evidence {
    /// Time of the round, seconds, by the measuring clock. May be zero or negative with a clock that is wrong.
    pub fn seconds(&self) -> f64 {
        self.elapsed.raw_ns as f64 / 1e9
    }

    /// The device the store sits on: what it did is closest to what the store asked for.
    pub fn top(&self) -> Option<&DeviceEvidence> {
        self.devices.first()
    }

    /// The last device of the chain: what really reached the hardware, as far as this kernel sees.
    pub fn bottom(&self) -> Option<&DeviceEvidence> {
        self.devices.last()
    }
}

/// Whether a path is on, or is, something with a device beneath that can be waited for.
pub fn waits(path: &Path) -> bool {
    Observer::new(Subject {
        path: path.to_path_buf(),
        ..Subject::default()
    })
    .waits()
}
