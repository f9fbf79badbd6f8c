//! For tests: a file system on a loop device of its own, so that its counters are nobody else's. All of it goes with the value.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted loop device.
#[derive(Debug)]
pub(crate) struct LoopDisk {
    node: PathBuf,
    mounted: bool,
    // Last: the image and the mountpoint go when nothing uses them any more.
    directory: tempfile::TempDir,
}

impl LoopDisk {
    /// A disk of `mib` MiB with what `mkfs` makes (as in `["mkfs.ext4", "-q"]`), mounted with `options`. `None` without root, where there is
    /// nothing to try.
    pub(crate) fn new(mib: u64, mkfs: &[&str], options: &str) -> Option<LoopDisk> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not tried: only root may attach a loop device");
            return None;
        }
        let mut disk = LoopDisk::attached(&vec![0; (mib << 20) as usize]);
        run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(&disk.node));
        std::fs::create_dir(disk.path()).expect("a mountpoint");
        run(Command::new("mount")
            .args(["-o", options])
            .arg(&disk.node)
            .arg(disk.path()));
        disk.mounted = true;
        Some(disk)
    }

    /// A disk of one partition, not mounted. `None` without root.
    pub(crate) fn of_a_partition() -> Option<LoopDisk> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not tried: only root may attach a loop device");
            return None;
        }
        let disk = LoopDisk::attached(&vec![0; 4 << 20]);
        // Asked of the kernel, not read from a table: kernels differ in which tables they know.
        run(Command::new("addpart")
            .arg(&disk.node)
            .args(["1", "2048", "4096"]));
        Some(disk)
    }

    fn attached(content: &[u8]) -> LoopDisk {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        let image = directory.path().join("image");
        // Written, not sparse: allocating the image's blocks is not what a test looks at.
        std::fs::write(&image, content).expect("an image");
        let attach = Command::new("losetup")
            .args(["--find", "--show", "--partscan", "--direct-io=on"])
            .arg(&image)
            .output()
            .expect("losetup runs");
        assert!(attach.status.success(), "{attach:?}");
        LoopDisk {
            node: PathBuf::from(String::from_utf8_lossy(&attach.stdout).trim()),
            mounted: false,
            directory,
        }
    }

    /// With ext4.
    pub(crate) fn ext4(mib: u64) -> Option<LoopDisk> {
        LoopDisk::new(
            mib,
            &["mkfs.ext4", "-q", "-E", "lazy_itable_init=0"],
            "noatime",
        )
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }

    /// As in "/dev/loop3".
    pub(crate) fn node(&self) -> &Path {
        &self.node
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        // A test that failed is unwinding: say what could not be undone, and undo the rest.
        let undo = |command: &mut Command| match command.status() {
            Ok(status) if status.success() => {}
            other => eprintln!("{command:?}: {other:?}"),
        };
        // Another test's child may have a file of it open until it starts its program: the kernel then ends both when that is closed.
        if self.mounted {
            undo(Command::new("umount").arg("--lazy").arg(self.path()));
        }
        undo(Command::new("losetup").arg("--detach").arg(&self.node));
    }
}

fn run(command: &mut Command) {
    let done = command.output().expect("it runs");
    assert!(done.status.success(), "{command:?}: {done:?}");
}
