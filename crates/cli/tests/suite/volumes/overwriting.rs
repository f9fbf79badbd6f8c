//! What is never written over, also with `--force`: the volume itself, and what somebody uses.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use device::{Access, FileDevice};

use super::{CHEAP, WITH, fails, ok, place, plain};
use crate::common::Sandbox;
use crate::common::setting::Disk;

/// The image was emptied before its first byte was read.
#[test]
fn the_volume_itself_is_neither_exported_over_nor_imported() {
    let sandbox = place(&[]);
    let before = fs::read(sandbox.path("v.img")).unwrap();
    fs::hard_link(sandbox.path("v.img"), sandbox.path("linked")).unwrap();
    symlink("v.img", sandbox.path("link")).unwrap();
    for target in ["v.img", "linked", "link"] {
        let export = ["export", "v.img", target, "--force", WITH[0], WITH[1]];
        fails(&sandbox, 2, "is the volume itself", &export);
        assert!(fs::read(sandbox.path("v.img")).unwrap() == before);
    }

    let apart = detached();
    let before = fs::read(apart.path("data.img")).unwrap();
    for (command, other) in [
        ("export", "head"),
        ("export", "data.img"),
        ("import", "data.img"),
    ] {
        let mut args = vec![command, "data.img", other, "--header", "head"];
        args.extend(WITH);
        if command == "export" {
            args.push("--force");
        }
        fails(&apart, 2, "is the volume itself", &args);
        assert!(fs::read(apart.path("data.img")).unwrap() == before);
    }
    ok(
        &apart,
        &["check", "data.img", "--header", "head", WITH[0], WITH[1]],
    );
}

/// A volume whose header is in the file `head`.
fn detached() -> Sandbox {
    let sandbox = Sandbox::empty();
    let mut args = vec!["format", "data.img", "--size", "1MiB", "--header", "head"];
    args.extend(WITH);
    args.extend(CHEAP);
    ok(&sandbox, &args);
    fs::write(sandbox.path("plain"), plain(1 << 20)).unwrap();
    let mut args = vec!["import", "data.img", "plain", "--header", "head"];
    args.extend(WITH);
    ok(&sandbox, &args);
    sandbox
}

#[test]
fn an_image_that_somebody_uses_is_not_exported_over() {
    let sandbox = place(&[]);
    fs::write(sandbox.path("used"), plain(8192)).unwrap();
    let export = ["export", "v.img", "used", "--force", WITH[0], WITH[1]];
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let used = FileDevice::open(&sandbox.path("used"), access).unwrap();
        fails(&sandbox, 4, "in use by another process", &export);
        drop(used);
        assert!(fs::read(sandbox.path("used")).unwrap() == plain(8192));
    }
    ok(&sandbox, &export);
}

/// A loop device; it goes with the value.
struct Attached<'s> {
    sandbox: &'s Sandbox,
    device: String,
}

impl<'s> Attached<'s> {
    /// `None` where there are no loop devices.
    fn over(sandbox: &'s Sandbox, image: &str) -> Option<Self> {
        let attached = Command::new("losetup")
            .args(["--find", "--show", image])
            .current_dir(sandbox.path(""))
            .output()
            .ok()
            .filter(|output| output.status.success());
        let Some(attached) = attached else {
            eprintln!("skipped: no loop device can be had here");
            return None;
        };
        let device = String::from_utf8(attached.stdout).unwrap();
        Some(Self {
            sandbox,
            device: device.trim().to_owned(),
        })
    }

    fn run(&self, program: &str, args: &[&str]) -> bool {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.sandbox.path(""));
        command.output().unwrap().status.success()
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        self.run("losetup", &["-d", &self.device]);
    }
}

/// A loop device with a mounted file system; all of it goes with the value.
struct Mounted<'s>(Attached<'s>);

impl<'s> Mounted<'s> {
    /// `None` where there are no loop devices.
    fn new(sandbox: &'s Sandbox) -> Option<Self> {
        fs::write(sandbox.path("disk"), vec![0; 32 << 20]).unwrap();
        let attached = Attached::over(sandbox, "disk")?;
        fs::create_dir(sandbox.path("at")).unwrap();
        assert!(attached.run("mkfs.ext4", &["-q", &attached.device]));
        if !attached.run("mount", &[&attached.device, "at"]) {
            eprintln!("skipped: nothing can be mounted here");
            return None;
        }
        Some(Self(attached))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        self.0.run("umount", &["at"]);
    }
}

/// The contents were written over the volume that they came from, and the command ended well.
#[test]
fn a_loop_device_over_the_volume_itself_is_neither_exported_to_nor_imported_into() {
    let sandbox = place(&[]);
    let before = fs::read(sandbox.path("v.img")).unwrap();
    fs::hard_link(sandbox.path("v.img"), sandbox.path("linked")).unwrap();
    let Some(attached) = Attached::over(&sandbox, "v.img") else {
        return;
    };
    let device = &*attached.device;
    for args in [
        ["export", "v.img", device, "--force", WITH[0], WITH[1]],
        ["export", "linked", device, "--force", WITH[0], WITH[1]],
        ["export", device, "linked", "--force", WITH[0], WITH[1]],
    ] {
        fails(&sandbox, 2, "is the volume itself", &args);
    }
    let import = ["import", device, "linked", WITH[0], WITH[1]];
    fails(&sandbox, 2, "is the volume itself", &import);
    assert!(fs::read(sandbox.path("v.img")).unwrap() == before);
}

/// A file was looked at by its locks alone, and a loop device has none.
#[test]
fn the_image_of_a_mounted_loop_device_is_not_written_to() {
    let sandbox = place(&[]);
    let Some(mounted) = Mounted::new(&sandbox) else {
        return;
    };
    symlink("disk", sandbox.path("link")).unwrap();
    let name = &*mounted.0.device;
    for image in ["disk", "link"] {
        let mut format = vec!["format", image, "--force"];
        format.extend(WITH);
        format.extend(CHEAP);
        fails(&sandbox, 4, name, &format);
        let export = ["export", "v.img", image, "--force", WITH[0], WITH[1]];
        fails(&sandbox, 4, name, &export);
        let init = ["disk", "init", "--store", image, "--force"];
        let init = sandbox.run(init.iter().chain(&["--key-out", "disk.key"]));
        assert_eq!(init.code, 4, "{}", init.err);
        let served = sandbox.run(["serve", "nbd", "--socket", "socket", image]);
        assert_eq!(served.code, 4, "{}", served.err);
    }
    fs::write(sandbox.path("at/file"), b"is there").unwrap();
    assert!(mounted.0.run("umount", &["at"]));
    assert!(mounted.0.run("losetup", &["-d", name]));
    let mut format = vec!["format", "disk", "--force"];
    format.extend(WITH);
    format.extend(CHEAP);
    ok(&sandbox, &format);
}

/// An export that found no space left a file of the volume's length, the rest of it zeros.
#[test]
fn an_export_that_fails_leaves_no_file_that_looks_whole() {
    let sandbox = place(&[]);
    let data = plain(8 << 20);
    fs::write(sandbox.path("plain"), &data).unwrap();
    ok(&sandbox, &["import", "v.img", "plain", WITH[0], WITH[1]]);
    let Some(_small) = Disk::mounted(&sandbox.path("small"), 6) else {
        return;
    };
    let export = ["export", "v.img", "small/out", WITH[0], WITH[1]];
    fails(&sandbox, 9, "small/out: no space left", &export);
    let left = fs::metadata(sandbox.path("small/out")).unwrap().len();
    assert!(left < data.len() as u64, "{left}");
}

#[test]
fn a_mounted_device_is_not_written_to() {
    let sandbox = place(&[]);
    let Some(mounted) = Mounted::new(&sandbox) else {
        return;
    };
    let device = &*mounted.0.device;
    let refused = |args: &[&str]| fails(&sandbox, 4, "mounted", args);
    let mut format = vec!["format", device, "--force"];
    format.extend(WITH);
    format.extend(CHEAP);
    refused(&format);
    refused(&["export", "v.img", device, "--force", WITH[0], WITH[1]]);
    let served = sandbox.run(["serve", "nbd", "--socket", "socket", device]);
    assert_eq!(served.code, 4, "{}", served.err);
    assert!(served.err.contains("mounted"), "{}", served.err);
    assert!(mounted.0.run("umount", &["at"]));
    let before = fs::read(sandbox.path("v.img")).unwrap();
    let import = ["import", "v.img", device, WITH[0], WITH[1]];
    fails(&sandbox, 9, "is longer", &import);
    assert!(fs::read(sandbox.path("v.img")).unwrap() == before);
    ok(&sandbox, &format);
    // The contents of the volume fit.
    ok(
        &sandbox,
        &["export", "v.img", device, "--force", WITH[0], WITH[1]],
    );
}
