//! What processes did: bytes, processor time, and who else was at work (`proc_pid_io(5)`, `proc_pid_stat(5)`).

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Bytes of a process, or what passed between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessIo {
    /// Asked for by read calls, from wherever it came. Calls of io_uring are not in it.
    pub called_read_bytes: u64,
    /// Given to write calls. Calls of io_uring are not in it.
    pub called_written_bytes: u64,
    /// Fetched from a device for this process.
    pub read_bytes: u64,
    /// Made dirty by this process, or written by it directly.
    pub written_bytes: u64,
}

impl ProcessIo {
    /// From `earlier` to these.
    pub fn since(&self, earlier: &ProcessIo) -> ProcessIo {
        ProcessIo {
            called_read_bytes: self
                .called_read_bytes
                .saturating_sub(earlier.called_read_bytes),
            called_written_bytes: self
                .called_written_bytes
                .saturating_sub(earlier.called_written_bytes),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
        }
    }

    /// Both together.
    pub fn and(&self, other: &ProcessIo) -> ProcessIo {
        ProcessIo {
            called_read_bytes: self.called_read_bytes + other.called_read_bytes,
            called_written_bytes: self.called_written_bytes + other.called_written_bytes,
            read_bytes: self.read_bytes + other.read_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
        }
    }
}

/// Bytes of process `pid`; `None` when it is gone or not ours to ask.
pub fn io_of(pid: u32) -> Option<ProcessIo> {
    parse_io(&fs::read_to_string(format!("/proc/{pid}/io")).ok()?)
}

fn parse_io(text: &str) -> Option<ProcessIo> {
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))?
            .parse()
            .ok()
    };
    Some(ProcessIo {
        called_read_bytes: field("rchar")?,
        called_written_bytes: field("wchar")?,
        read_bytes: field("read_bytes")?,
        written_bytes: field("write_bytes")?,
    })
}

/// Processor time of process `pid` and of its children that it waited for, seconds; `None` when it is gone.
pub fn cpu_s_of(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = after_name(&stat)?;
    // utime, stime, cutime, cstime are fields 14 to 17; the name's end is the end of field 2.
    let ticks: Option<Vec<u64>> = (11..15).map(|at| fields.get(at)?.parse().ok()).collect();
    Some(ticks?.iter().sum::<u64>() as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Other processes that have a file in or below `dir` open, as far as this one may look.
pub fn holders_of(dir: &Path) -> Vec<u32> {
    // As the kernel shows it.
    let Ok(dir) = dir.canonicalize() else {
        return Vec::new();
    };
    let entries = |path: &str| fs::read_dir(path).into_iter().flatten().flatten();
    processes()
        .filter(|pid| *pid != std::process::id())
        .filter(|pid| {
            entries(&format!("/proc/{pid}/fd"))
                .any(|fd| fs::read_link(fd.path()).is_ok_and(|at| at.starts_with(&dir)))
        })
        .collect()
}

/// The fields after the name, which may hold anything, parentheses and spaces included.
fn after_name(stat: &str) -> Option<Vec<&str>> {
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace().collect())
}

/// Name of process `pid`, for a sentence.
pub fn name_of(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Kernel threads that write the journals of the file systems on `devices` (as in "vda1"): ext4's, which is named as in
/// "jbd2/vda1-8". What such a thread writes, the programs that change the file system have caused.
pub(crate) fn journals_on(devices: &[&str]) -> Vec<u32> {
    processes()
        .filter(|pid| {
            name_of(*pid).is_some_and(|name| {
                let device = name
                    .strip_prefix("jbd2/")
                    .and_then(|of| of.rsplit_once('-'));
                device.is_some_and(|(device, _)| devices.contains(&device))
            })
        })
        .collect()
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Bytes of every process that may be asked, but `ours`.
pub(crate) fn others(ours: &[u32]) -> HashMap<u32, ProcessIo> {
    processes()
        .filter(|pid| !ours.contains(pid))
        .filter_map(|pid| Some((pid, io_of(pid)?)))
        .collect()
}

/// Who of the others moved the most bytes between two looks, and how much all of them did. What a process did that came and
/// went between them is not seen.
pub(crate) fn busiest(before: &HashMap<u32, ProcessIo>, after: &HashMap<u32, ProcessIo>) -> Others {
    let mut found = Others::default();
    for (pid, now) in after {
        let then = before.get(pid).copied().unwrap_or_default();
        let did = now.since(&then);
        found.read_bytes += did.read_bytes;
        found.written_bytes += did.written_bytes;
        let moved = did.read_bytes + did.written_bytes;
        if moved > found.busiest_bytes {
            found.busiest_bytes = moved;
            found.busiest = Some(*pid);
        }
    }
    found
}

/// What other processes moved to and from devices, whichever those were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Others {
    /// Bytes fetched for them.
    pub read_bytes: u64,
    /// Bytes they made dirty or wrote.
    pub written_bytes: u64,
    /// Process that moved the most.
    pub busiest: Option<u32>,
    /// Bytes it moved.
    pub busiest_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::loop_disk::LoopDisk;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let fields = after_name("7 (a ) b) S 1 2 3").expect("split");
        assert_eq!(fields, ["S", "1", "2", "3"]);
    }

    #[test]
    fn io_is_parsed_by_name() {
        let text = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\n\
                    cancelled_write_bytes: 7\n";
        let io = parse_io(text).expect("parsed");
        assert_eq!((io.called_read_bytes, io.called_written_bytes), (1, 2));
        assert_eq!((io.read_bytes, io.written_bytes), (5, 6));
        assert_eq!(parse_io("rchar: 1\n"), None);
    }

    #[test]
    fn processes_with_a_file_open_are_found_and_no_others() {
        let [held, other] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        std::fs::create_dir(held.path().join("below")).expect("a directory");
        let file = held.path().join("below/file");
        std::fs::write(&file, b"").expect("a file");
        let mut holder = std::process::Command::new("sleep")
            .arg("600")
            .stdin(std::fs::File::open(&file).expect("the file"))
            .spawn()
            .expect("sleep");
        let found = [held.path(), other.path()].map(holders_of);
        holder.kill().expect("killed");
        holder.wait().expect("ended");
        // A process that another test is just starting may have it open too.
        assert!(found[0].contains(&holder.id()) && !found[1].contains(&holder.id()));
        assert!(holders_of(&held.path().join("nowhere")).is_empty());
    }

    #[test]
    fn the_journal_of_a_file_system_is_found_by_its_device() {
        let Some(disk) = LoopDisk::ext4(64) else {
            return;
        };
        let device = disk.node().file_name().and_then(|name| name.to_str());
        let found = journals_on(&[device.expect("a device")]);
        let names: Vec<_> = found.iter().map(|pid| name_of(*pid)).collect();
        assert_eq!(found.len(), 1, "{names:?}");
        assert!(journals_on(&["loop"]).is_empty());
    }

    #[test]
    fn what_this_process_writes_is_counted() {
        let own = std::process::id();
        let before = io_of(own).expect("asked");
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
        std::fs::write(file.path(), vec![1; 1 << 20]).expect("written");
        let did = io_of(own).expect("asked").since(&before);
        assert!(did.called_written_bytes >= 1 << 20, "{did:?}");
        assert!(did.written_bytes >= 1 << 20, "{did:?}");
    }

    #[test]
    fn the_busiest_of_the_others_is_named() {
        let io = |bytes| ProcessIo {
            read_bytes: bytes,
            ..ProcessIo::default()
        };
        let before = HashMap::from([(5, io(100)), (6, io(100))]);
        let after = HashMap::from([(5, io(150)), (6, io(900)), (7, io(30))]);
        let found = busiest(&before, &after);
        assert_eq!((found.busiest, found.busiest_bytes), (Some(6), 800));
        assert_eq!(found.read_bytes, 880);
    }
}
