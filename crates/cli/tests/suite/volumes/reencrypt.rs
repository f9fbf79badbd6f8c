//! A volume under a new key, and the program killed in the midst of it.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{CHEAP, WITH, cryptsetup_ok, fails, ok, opens, place, plain};
use crate::common::{Sandbox, words};

#[test]
fn a_volume_gets_a_new_key_and_cipher_and_keeps_its_contents() {
    let sandbox = place(&[]);
    fs::write(sandbox.path("plain"), plain(8 << 20)).unwrap();
    ok(&sandbox, &["import", "v.img", "plain", WITH[0], WITH[1]]);
    ok(&sandbox, &["header", "backup", "v.img", "old"]);
    let mut args =
        words("reencrypt v.img --cipher aes-cbc-essiv:sha256 --key-size 256 --sector-size 512");
    args.extend(WITH);
    args.extend(CHEAP);
    ok(&sandbox, &args);
    assert!(ok(&sandbox, &["export", "v.img", "-", WITH[0], WITH[1]]).out == plain(8 << 20));
    assert!(opens(&sandbox, "v.img", "key"));
    cryptsetup_ok(&sandbox, &["luksDump", "v.img"]);
}

/// Bytes of the volume that is killed: parts enough for every kill to find one.
const CONTENTS: usize = 24 << 20;
/// Headers that are written before each kill: the first ones, where the reencryption begins; then some parts of the data.
const KILLS: [u64; 8] = [1, 1, 2, 3, 5, 2, 7, 4];
const TIMEOUT: Duration = Duration::from_secs(120);

/// How often the header was written: both copies' numbers, the larger one. A torn one says anything, so it is bounded by its magic.
fn sequence(image: &Path) -> u64 {
    let image = fs::File::open(image).unwrap();
    let of = |offset: u64, magic: &[u8; 6]| {
        let mut start = [0; 24];
        image.read_exact_at(&mut start, offset).unwrap();
        let number = u64::from_be_bytes(*start[16..].first_chunk().unwrap());
        start.starts_with(magic).then_some(number)
    };
    let both = [of(0, b"LUKS\xba\xbe"), of(0x4000, b"SKUL\xba\xbe")];
    both.into_iter().flatten().max().unwrap()
}

/// Runs the reencryption and kills it (9) when `headers` more were written. False if it ended before.
fn killed(sandbox: &Sandbox, args: &[&str], headers: u64) -> bool {
    let image = sandbox.path("v.img");
    let until = sequence(&image) + headers;
    let mut child = sandbox
        .command(["volume", "reencrypt", "v.img"].iter().chain(args))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "it failed by itself: {status}");
            return false;
        }
        if sequence(&image) >= until {
            child.kill().unwrap();
            return !child.wait().unwrap().success();
        }
        if begun.elapsed() > TIMEOUT {
            let _ = child.kill();
            let _ = child.wait();
            panic!("no header is written any more");
        }
        thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn a_reencryption_that_is_killed_again_and_again_goes_on_and_loses_nothing() {
    let sandbox = place(&[]);
    fs::File::options()
        .write(true)
        .open(sandbox.path("v.img"))
        .unwrap()
        .set_len((16 << 20) + CONTENTS as u64)
        .unwrap();
    fs::write(sandbox.path("plain"), plain(CONTENTS)).unwrap();
    ok(&sandbox, &["import", "v.img", "plain", WITH[0], WITH[1]]);
    let before = fs::read(sandbox.path("v.img")).unwrap();
    let first: Vec<&str> = ["--cipher", "aes-cbc-essiv:sha256", "--key-size", "256"]
        .into_iter()
        .chain(WITH)
        .chain(CHEAP)
        .collect();
    let is_begun = || {
        let dump = ok(&sandbox, &["dump", "v.img"]).out;
        String::from_utf8_lossy(&dump).contains("online-reencrypt")
    };
    let mut kills = 0;
    for headers in KILLS {
        // What it shall be is said once; a killed one goes on as it was begun. Killed before its first header, it was not begun, and
        // behind its last it is done.
        let args = if is_begun() { &WITH[..] } else { &first[..] };
        kills += u32::from(killed(&sandbox, args, headers));
        cryptsetup_ok(&sandbox, &["luksDump", "v.img"]);
        if is_begun() {
            fails(
                &sandbox,
                1,
                "reencrypt",
                &["export", "v.img", "-", WITH[0], WITH[1]],
            );
        }
    }
    // Between being looked at and being killed it may get to its end.
    assert!(kills >= 2, "it was killed {kills} times only");
    if is_begun() {
        ok(&sandbox, &["reencrypt", "v.img", WITH[0], WITH[1]]);
    }
    let left = ok(&sandbox, &["dump", "v.img"]).out;
    let left = String::from_utf8_lossy(&left);
    assert!(
        !left.contains("online-reencrypt") && left.contains("aes-cbc-essiv"),
        "{left}"
    );
    assert!(ok(&sandbox, &["export", "v.img", "-", WITH[0], WITH[1]]).out == plain(CONTENTS));
    cryptsetup_ok(&sandbox, &["luksDump", "v.img"]);
    assert!(opens(&sandbox, "v.img", "key"));
    let after = fs::read(sandbox.path("v.img")).unwrap();
    let same = |at: &usize| before[*at..at + 4096] == after[*at..at + 4096];
    let stayed = (16 << 20..after.len()).step_by(4096).filter(same).count();
    assert_eq!(stayed, 0, "blocks are still under the old key");
}

/// A small file system in memory, mounted until this is dropped.
struct SmallDisk<'s>(&'s Sandbox);

impl<'s> SmallDisk<'s> {
    /// At `disk` in the sandbox. `None` where nothing can be mounted.
    fn new(sandbox: &'s Sandbox, options: &str) -> Option<Self> {
        fs::create_dir(sandbox.path("disk")).unwrap();
        let disk = Self(sandbox);
        if disk.mount(options) {
            return Some(disk);
        }
        eprintln!("skipped: nothing can be mounted here");
        None
    }

    fn mount(&self, options: &str) -> bool {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "tmpfs"]);
        let mounted = command.arg(self.0.path("disk")).output();
        mounted.is_ok_and(|mounted| mounted.status.success())
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path("disk")).output();
    }
}

/// The messages did not say that anything goes on, nor how.
#[test]
fn a_reencryption_on_a_full_disk_goes_on_when_there_is_space() {
    let sandbox = Sandbox::empty();
    // A header of 16 MiB, and half of the data.
    let Some(disk) = SmallDisk::new(&sandbox, "size=20m") else {
        return;
    };
    let mut format = vec!["format", "disk/v.img", "--size", "24MiB"];
    format.extend(WITH);
    format.extend(CHEAP);
    ok(&sandbox, &format);
    let export = ["export", "disk/v.img", "-", WITH[0], WITH[1]];
    let before = ok(&sandbox, &export).out;
    let to = |cipher| {
        let mut args = vec![
            "reencrypt",
            "disk/v.img",
            "--cipher",
            cipher,
            "--key-size",
            "256",
        ];
        args.extend(["--sector-size", "512"]);
        args.extend(WITH);
        args.extend(CHEAP);
        args
    };
    let reencrypt = to("aes-cbc-essiv:sha256");
    for _ in 0..2 {
        fails(&sandbox, 9, "the same command goes on", &reencrypt);
    }
    fails(&sandbox, 2, "under way", &to("aes-cbc-plain64"));
    fails(&sandbox, 1, "strongroom volume reencrypt", &export);
    assert!(disk.mount("remount,size=64m"));
    ok(&sandbox, &reencrypt);
    assert!(ok(&sandbox, &export).out == before);
}
