//! What the machine went through: time stolen by its host, frequencies, room left.
//!
//! The roots of `/proc` and `/sys` are passed in: a test lays a tree of its own.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel's files are.
#[derive(Debug, Clone)]
pub struct Roots {
    /// `/proc`.
    pub proc_root: PathBuf,
    /// `/sys`.
    pub sys_root: PathBuf,
}

impl Default for Roots {
    fn default() -> Roots {
        Roots {
            proc_root: PathBuf::from("/proc"),
            sys_root: PathBuf::from("/sys"),
        }
    }
}

/// The machine at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostCounters {
    /// Ticks of all processors together, idle ones included (`proc_stat(5)`).
    pub ticks: Option<u64>,
    /// Of them those that the host gave to others.
    pub stolen_ticks: Option<u64>,
    /// Current frequency of each processor, kHz; empty where the kernel does not report it.
    pub frequencies_khz: Vec<u64>,
}

impl HostCounters {
    /// Reads them.
    pub fn read(roots: &Roots) -> HostCounters {
        let stat = fs::read_to_string(roots.proc_root.join("stat")).unwrap_or_default();
        let (ticks, stolen_ticks) = parse_ticks(&stat).unzip();
        HostCounters {
            ticks,
            stolen_ticks,
            frequencies_khz: frequencies(&roots.sys_root),
        }
    }

    /// Share of the processors' time that the host took between `earlier` and this, 0 to 1.
    pub fn stolen_since(&self, earlier: &HostCounters) -> Option<f64> {
        let all = self.ticks?.checked_sub(earlier.ticks?)?;
        let stolen = self.stolen_ticks?.saturating_sub(earlier.stolen_ticks?);
        (all > 0).then(|| stolen as f64 / all as f64)
    }

    /// The largest change of a processor's frequency since `earlier`, as a share of the frequency it had.
    pub fn frequency_change_since(&self, earlier: &HostCounters) -> Option<f64> {
        earlier
            .frequencies_khz
            .iter()
            .zip(&self.frequencies_khz)
            .filter(|(then, _)| **then > 0)
            .map(|(then, now)| then.abs_diff(*now) as f64 / *then as f64)
            .reduce(f64::max)
    }
}

/// All ticks and the stolen ones, of the line of all processors. Guest time is within user time already.
fn parse_ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line
        .split_ascii_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    let stolen = *fields.get(7)?;
    Some((fields[..8].iter().sum(), stolen))
}

fn frequencies(sys: &Path) -> Vec<u64> {
    let mut found: Vec<(u32, u64)> = fs::read_dir(sys.join("devices/system/cpu"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let number = entry
                .file_name()
                .to_str()?
                .strip_prefix("cpu")?
                .parse()
                .ok()?;
            let khz = fs::read_to_string(entry.path().join("cpufreq/scaling_cur_freq")).ok()?;
            Some((number, khz.trim().parse().ok()?))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, khz)| khz).collect()
}

/// Room left in a file system.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Space {
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes free for who is not root.
    pub free_bytes: u64,
    /// Share of inodes free, 0 to 1; `None` for a file system that makes them as needed.
    pub free_inodes: Option<f64>,
}

/// Space left where `path` is.
pub fn space(path: &Path) -> Option<Space> {
    let found = rustix::fs::statvfs(path).ok()?;
    let free_inodes = (found.f_files > 0).then(|| found.f_favail as f64 / found.f_files as f64);
    Some(Space {
        bytes: found.f_blocks * found.f_frsize,
        free_bytes: found.f_bavail * found.f_frsize,
        free_inodes,
    })
    .filter(|space| space.bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_the_kernels_files_is_read() {
        let tree = tempfile::tempdir().expect("a directory");
        let roots = Roots {
            proc_root: tree.path().join("proc"),
            sys_root: tree.path().join("sys"),
        };
        let put = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().expect("parent")).expect("made");
            fs::write(path, text).expect("written");
        };
        put(
            roots.proc_root.join("stat"),
            "cpu  10 0 10 70 0 0 0 10 5 0\n",
        );
        let cpu = roots.sys_root.join("devices/system/cpu");
        put(cpu.join("cpu0/cpufreq/scaling_cur_freq"), "2000000\n");
        put(cpu.join("cpufreq/boost"), "1\n");
        let before = HostCounters::read(&roots);
        put(
            roots.proc_root.join("stat"),
            "cpu  60 0 10 95 0 0 0 35 5 0\n",
        );
        put(cpu.join("cpu0/cpufreq/scaling_cur_freq"), "1000000\n");
        let after = HostCounters::read(&roots);
        assert_eq!(after.stolen_since(&before), Some(0.25));
        assert_eq!(after.frequency_change_since(&before), Some(0.5));
    }

    #[test]
    fn missing_kernel_data_is_unknown_not_zero() {
        let none = HostCounters::default();
        assert_eq!(none.stolen_since(&none), None);
        assert_eq!(none.frequency_change_since(&none), None);
    }

    #[test]
    fn this_machine_has_ticks() {
        let now = HostCounters::read(&Roots::default());
        assert!(now.ticks.expect("ticks") > 0);
    }
}
