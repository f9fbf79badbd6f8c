//! The block devices beneath a path, and their counters.
//!
//! 1. The chain goes from what the file system sits on down to what the machine has: partition, device mapper, loop and the
//!    file system beneath it. Memory, networks and FUSE have none.
//! 2. Counters are the kernel's (`Documentation/block/stat.rst`, `Documentation/admin-guide/iostats.rst`); sectors are 512 bytes there.

use std::ffi::OsStr;
use std::fs;
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use mount::table;

/// How deep a chain may be: a loop device on a file system on a loop device ends somewhere.
const DEPTH_MAX: usize = 16;
const SECTOR: u64 = 512;

/// A block device as `/sys` knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockDevice {
    /// As in "vda1", "dm-0", "loop3".
    pub name: String,
    /// Its directory in `/sys`, with symbolic links resolved.
    sys: PathBuf,
    /// Major and minor number.
    pub number: (u32, u32),
}

/// Counters of a device, or what passed between two readings of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Read requests that ended.
    pub reads: u64,
    /// Bytes they read.
    pub read_bytes: u64,
    /// Write requests that ended.
    pub writes: u64,
    /// Bytes they wrote.
    pub written_bytes: u64,
    /// Flushes that ended: each is a request to the device to make its cache durable. `None` before Linux 5.5.
    pub flushes: Option<u64>,
    /// Time in which a request was in flight, milliseconds.
    pub busy_ms: u64,
}

/// Devices beneath `path`, from the top down; empty where there is none. A file system on several devices ends the chain.
pub fn beneath(path: &Path) -> Vec<BlockDevice> {
    let mut chain = Vec::new();
    let mut next = number_beneath(path, 0);
    while let Some(number) = next {
        if chain.len() >= DEPTH_MAX || chain.iter().any(|d: &BlockDevice| d.number == number) {
            break;
        }
        let Some(device) = BlockDevice::of(number) else {
            break;
        };
        next = device.below();
        chain.push(device);
    }
    chain
}

/// Whether a process serves the file system at `path`.
pub(crate) fn is_fuse(path: &Path) -> bool {
    table::containing(path).is_some_and(|mount| mount.kind.starts_with("fuse"))
}

/// The file behind a loop device.
pub(crate) fn loop_file(device: &Path) -> Option<PathBuf> {
    let (major, minor) = split(fs::metadata(device).ok()?.st_rdev());
    let at = format!("/sys/dev/block/{major}:{minor}/loop/backing_file");
    let name = fs::read(at).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

/// Number of the device that holds `path`: its own if it is one.
fn number_beneath(path: &Path, depth: usize) -> Option<(u32, u32)> {
    let found = fs::metadata(path).ok()?;
    if found.file_type().is_block_device() {
        return Some(split(found.st_rdev()));
    }
    let number = split(found.st_dev());
    if number.0 != 0 {
        return Some(number);
    }
    // An anonymous number: Btrfs names its device as the mount's source, overlay its upper directory.
    let mount = table::containing(path)?;
    if let Some(upper) = upper_directory(&mount) {
        return (depth < DEPTH_MAX)
            .then(|| number_beneath(&upper, depth + 1))
            .flatten();
    }
    let source = fs::metadata(&mount.source).ok()?;
    source
        .file_type()
        .is_block_device()
        .then(|| split(source.st_rdev()))
}

/// Where an overlay writes.
fn upper_directory(mount: &table::Mount) -> Option<PathBuf> {
    (mount.kind == "overlay").then(|| mount.path_option("upperdir"))?
}

fn split(number: u64) -> (u32, u32) {
    (rustix::fs::major(number), rustix::fs::minor(number))
}

impl BlockDevice {
    fn of(number: (u32, u32)) -> Option<BlockDevice> {
        let link = format!("/sys/dev/block/{}:{}", number.0, number.1);
        let sys = fs::canonicalize(link).ok()?;
        let name = sys.file_name()?.to_str()?.to_owned();
        Some(BlockDevice { name, sys, number })
    }

    /// What this one is made of, if that is one thing.
    fn below(&self) -> Option<(u32, u32)> {
        if self.sys.join("partition").exists() {
            return numbers_in(self.sys.parent()?);
        }
        if let Ok(backing) = fs::read_to_string(self.sys.join("loop/backing_file")) {
            return number_beneath(Path::new(backing.trim_end_matches('\n')), 0);
        }
        let mut slaves = fs::read_dir(self.sys.join("slaves")).ok()?.flatten();
        let only = slaves.next()?;
        if slaves.next().is_some() {
            return None;
        }
        numbers_in(&only.path())
    }

    /// Its counters now; `None` once it is gone.
    pub fn counters(&self) -> Option<DeviceCounters> {
        parse(&fs::read_to_string(self.sys.join("stat")).ok()?)
    }

    /// Whether it is memory: there is nothing to wait for.
    pub fn is_memory(&self) -> bool {
        ["ram", "zram", "pmem"].iter().any(|kind| {
            self.name
                .strip_prefix(kind)
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
    }

    /// Whether it says it has a cache of its own that a flush must empty.
    pub fn has_write_cache(&self) -> bool {
        let of = |sys: &Path| fs::read_to_string(sys.join("queue/write_cache")).ok();
        let said = of(&self.sys).or_else(|| of(self.sys.parent()?));
        said.is_some_and(|said| said.trim() == "write back")
    }

    /// Its node, as in "/dev/vda".
    pub fn node(&self) -> PathBuf {
        Path::new("/dev").join(self.name.replace('!', "/"))
    }

    /// Vendor and model, where the kernel reports them.
    pub fn model(&self) -> Option<String> {
        let model = fs::read_to_string(self.sys.join("device/model")).ok()?;
        let vendor = fs::read_to_string(self.sys.join("device/vendor")).unwrap_or_default();
        // For virtio and PCI the "vendor" is a number that says nothing to a person.
        let vendor = Some(vendor.trim()).filter(|vendor| !vendor.starts_with("0x"));
        let both = format!("{} {}", vendor.unwrap_or_default(), model.trim());
        Some(both.trim().to_owned())
    }
}

impl DeviceCounters {
    /// From `earlier` to these.
    pub fn since(&self, earlier: &DeviceCounters) -> DeviceCounters {
        DeviceCounters {
            reads: self.reads.saturating_sub(earlier.reads),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            writes: self.writes.saturating_sub(earlier.writes),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
            flushes: self
                .flushes
                .zip(earlier.flushes)
                .map(|(now, then)| now.saturating_sub(then)),
            busy_ms: self.busy_ms.saturating_sub(earlier.busy_ms),
        }
    }
}

fn numbers_in(sys: &Path) -> Option<(u32, u32)> {
    let said = fs::read_to_string(sys.join("dev")).ok()?;
    let (major, minor) = said.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn parse(stat: &str) -> Option<DeviceCounters> {
    let fields: Vec<u64> = stat
        .split_ascii_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    Some(DeviceCounters {
        reads: *fields.first()?,
        read_bytes: fields.get(2)? * SECTOR,
        writes: *fields.get(4)?,
        written_bytes: fields.get(6)? * SECTOR,
        busy_ms: *fields.get(9)?,
        flushes: fields.get(15).copied(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_with_and_without_flushes() {
        let new = "1 2 3 4 5 6 7 8 0 10 11 12 13 14 15 16 17";
        let read = parse(new).expect("parsed");
        assert_eq!((read.read_bytes, read.written_bytes), (1536, 3584));
        assert_eq!((read.busy_ms, read.flushes), (10, Some(16)));
        let old = parse("1 2 3 4 5 6 7 8 0 10 11").expect("parsed");
        assert_eq!(old.flushes, None);
        assert_eq!(parse("1 2 3"), None);
    }

    #[test]
    fn memory_has_no_device() {
        assert_eq!(beneath(Path::new("/proc/self")), []);
        assert_eq!(beneath(Path::new("/dev/shm")), []);
    }

    #[test]
    fn only_whole_names_are_memory() {
        let named = |name: &str| BlockDevice {
            name: name.to_owned(),
            sys: PathBuf::new(),
            number: (1, 0),
        };
        assert!(named("zram0").is_memory() && named("ram1").is_memory());
        assert!(!named("vda").is_memory() && !named("ramen").is_memory());
    }

    #[test]
    fn a_partition_is_on_its_disk_and_that_on_the_device_of_its_image() {
        let Some(disk) = crate::observe::loop_disk::LoopDisk::of_a_partition() else {
            return;
        };
        let name = disk.node().file_name().expect("a name").to_string_lossy();
        let partition = disk.node().with_file_name(format!("{name}p1"));
        let chain = beneath(&partition);
        assert_eq!(chain[0].node(), partition);
        assert_eq!(chain[1].node(), disk.node());
        assert_eq!(
            chain[2..],
            beneath(Path::new(env!("CARGO_MANIFEST_DIR")))[..]
        );
        assert_eq!(chain[0].has_write_cache(), chain[1].has_write_cache());
        assert!(chain[0].counters().is_some());
    }
}
