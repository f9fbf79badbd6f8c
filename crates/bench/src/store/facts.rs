//! What the host says of a path: file system, mount options, block device.
//!
//! It deliberately does not know what a path is used for.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::model::StoreFacts;
use crate::run_file::unescape;

/// Facts of whatever lies at `path`, with label, kind and target still to be filled in.
pub(crate) fn of_path(path: &Path) -> StoreFacts {
    let mount = mount_of(path);
    StoreFacts {
        file_system: mount.as_ref().map(|mount| mount.kind.clone()),
        mount_options: mount.as_ref().map(|mount| mount.options.clone()),
        device: device(path),
        ..StoreFacts::default()
    }
}

/// Whether a process serves the file system at `path`.
pub(crate) fn is_fuse(path: &Path) -> bool {
    mount_of(path).is_some_and(|mount| mount.kind.starts_with("fuse"))
}

#[derive(Debug)]
struct Mount {
    kind: String,
    options: String,
}

/// The mount a path lies on, proc_pid_mountinfo(5).
fn mount_of(path: &Path) -> Option<Mount> {
    let path = path.canonicalize().ok()?;
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    let mut best: Option<(usize, Mount)> = None;
    for line in table.split(|byte| *byte == b'\n') {
        let mut halves = line.splitn(2, |byte| *byte == b'-');
        let words: Vec<_> = halves.next()?.split(|byte| *byte == b' ').collect();
        // "-" may stand in a name, too: the separator is the word " - ".
        let Some(at) = find(line, b" - ") else {
            continue;
        };
        let after: Vec<_> = line[at + 3..].split(|byte| *byte == b' ').collect();
        let (Some(point), Some(options), [kind, _, super_options]) =
            (words.get(4), words.get(5), &after[..])
        else {
            continue;
        };
        let point = PathBuf::from(unescape(point));
        let length = point.as_os_str().len();
        // Of two mounts on one point the later hides the earlier.
        if path.starts_with(&point) && best.as_ref().is_none_or(|(most, _)| length >= *most) {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let mount = Mount {
                kind: text(kind),
                options: merged(&text(options), &text(super_options)),
            };
            best = Some((length, mount));
        }
    }
    best.map(|(_, mount)| mount)
}

fn find(line: &[u8], what: &[u8]) -> Option<usize> {
    line.windows(what.len()).position(|window| window == what)
}

/// The mount's own options and those of its file system, each once.
fn merged(own: &str, of_super: &str) -> String {
    let mut options: Vec<&str> = own.split(',').collect();
    for option in of_super.split(',') {
        if !options.contains(&option) && !(option == "rw" && options.contains(&"ro")) {
            options.push(option);
        }
    }
    options.join(",")
}

/// The block device below a path, as in "vda (model)", from sysfs.
fn device(path: &Path) -> Option<String> {
    let meta = std::fs::metadata(path).ok()?;
    let number = if meta.file_type().is_block_device() {
        meta.rdev()
    } else {
        meta.dev()
    };
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let at = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
        .canonicalize()
        .ok()?;
    let name = at.file_name()?.as_bytes();
    let name = String::from_utf8_lossy(name).into_owned();
    // A partition's model stands with its disk, one directory up.
    let model = ["device/model", "../device/model", "loop/backing_file"]
        .iter()
        .find_map(|model| std::fs::read_to_string(at.join(model)).ok());
    Some(match model {
        Some(model) => format!("{name} ({})", model.trim()),
        None => name,
    })
}

/// The file behind a loop device.
pub(crate) fn loop_file(device: &Path) -> Option<PathBuf> {
    let number = std::fs::metadata(device).ok()?.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let at = format!("/sys/dev/block/{major}:{minor}/loop/backing_file");
    let name = std::fs::read(at).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proc_file_system_is_known_by_its_name() {
        let mount = mount_of(Path::new("/proc/self")).unwrap();
        assert_eq!(mount.kind, "proc");
        assert!(!mount.options.is_empty());
        assert!(!is_fuse(Path::new("/proc")));
    }

    #[test]
    fn options_are_said_once() {
        assert_eq!(merged("rw,relatime", "rw,discard"), "rw,relatime,discard");
        assert_eq!(merged("ro,relatime", "rw"), "ro,relatime");
    }
}
