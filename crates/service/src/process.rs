//! What the kernel reports about this process: memory, descriptors, threads, processor time; and how many descriptors it may have.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::measures::Measures;

/// Lets the process have as many open files as its hard limit allows. The soft one, mostly 1024, is for programs that use select(2);
/// a server with that takes fewer connections than its own limits say, and at its end nobody's, the operator's least of all. Best effort.
pub fn raise_file_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let both = Rlimit {
        current: maximum,
        maximum,
    };
    let _ = setrlimit(Resource::Nofile, both);
}

/// Adds them by Prometheus' usual names; what cannot be read is left out.
pub(crate) fn measure(measures: &mut Measures) {
    // proc_pid_stat(5): after the name, which ends with the last ')', the fields from the third on.
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<u64> = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().map(|f| f.parse().unwrap_or(0)))
        .into_iter()
        .flatten()
        .collect();
    let field = |number: usize| fields.get(number - 3).copied();
    if let (Some(user), Some(system)) = (field(14), field(15)) {
        measures.seconds(
            "process_cpu_seconds_total",
            "Processor time of user and system, in seconds.",
            (user + system) as f64 / clock_ticks_per_second() as f64,
        );
    }
    if let Some(threads) = field(20) {
        measures.gauge("process_threads", "Threads.", threads as f64);
    }
    if let Some(pages) = field(24) {
        measures.gauge(
            "process_resident_memory_bytes",
            "Resident memory, in bytes.",
            (pages * page_size() as u64) as f64,
        );
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        measures.gauge("process_open_fds", "Open descriptors.", open.count() as f64);
    }
    let limit = getrlimit(Resource::Nofile).current;
    if let Some(limit) = limit {
        measures.gauge("process_max_fds", "Most open descriptors.", limit as f64);
    }
}
