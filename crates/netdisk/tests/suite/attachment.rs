//! A file system that was mounted again, or a device that was attached again, may lack what was not flushed: it is another
//! incarnation, though boot, device numbers and inode are the same.

use std::path::{Path, PathBuf};
use std::process::Command;

use device::{Access, FileDevice};
use netdisk::Surroundings;

/// Mounts and a loop device that end with the test.
#[derive(Default)]
struct Cleanup {
    mounts: Vec<PathBuf>,
    device: Option<String>,
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        for path in &self.mounts {
            let _ = Command::new("umount").arg(path).status();
        }
        if let Some(device) = &self.device {
            let _ = Command::new("losetup").args(["-d", device]).status();
        }
    }
}

fn try_run(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

fn run(program: &str, args: &[&str]) -> String {
    try_run(program, args).unwrap_or_else(|| panic!("{program} {args:?}"))
}

fn origin(store: &Path) -> Vec<u8> {
    let device = FileDevice::open(store, Access::ReadWrite).unwrap();
    Surroundings::of(&device, Path::new("key")).origin
}

#[test]
fn a_file_system_mounted_again_and_a_device_attached_again_are_other_origins() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (image, at, bound) = (path("image"), path("at"), path("bound"));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    std::fs::File::create(&image)
        .unwrap()
        .set_len(16 << 20)
        .unwrap();
    if !rustix::process::geteuid().is_root()
        || try_run("mkfs.ext4", &["-q", &text(&image)]).is_none()
    {
        eprintln!("skipped: it needs root and mkfs.ext4");
        return;
    }
    let Some(device) = try_run("losetup", &["--find", "--show", &text(&image)]) else {
        eprintln!("skipped: no loop device can be had here");
        return;
    };
    let mut cleanup = Cleanup {
        mounts: Vec::new(),
        device: Some(device.clone()),
    };
    std::fs::create_dir(&at).unwrap();
    std::fs::create_dir(&bound).unwrap();
    let mount = || run("mount", &[&device, &text(&at)]);
    mount();
    cleanup.mounts = vec![bound.clone(), at.clone()];
    let store = at.join("store");
    drop(FileDevice::create(&store, 1 << 20).unwrap());
    let first = origin(&store);
    assert!(origin(&store) == first, "an opening is no loss");
    run("mount", &["--bind", &text(&at), &text(&bound)]);
    assert!(
        origin(&bound.join("store")) == first,
        "nor is another way to it"
    );
    run("umount", &[&text(&bound)]);
    run("umount", &[&text(&at)]);
    mount();
    let second = origin(&store);
    assert!(second != first, "mounted again");
    assert!(origin(&store) == second);
    run("umount", &[&text(&at)]);

    let attached = origin(Path::new(&device));
    assert!(origin(Path::new(&device)) == attached);
    run("losetup", &["-d", &device]);
    cleanup.device = None;
    if try_run("losetup", &[&device, &text(&image)]).is_none() {
        eprintln!("skipped in part: somebody else took {device}");
        return;
    }
    cleanup.device = Some(device.clone());
    assert!(origin(Path::new(&device)) != attached, "attached again");
}
