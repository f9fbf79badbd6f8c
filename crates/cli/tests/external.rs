//! Two suites that know nothing of rooms try one as a file system: pjdfstest and fsx. How each is run, and what is left
//! out and why, is in `tests/external`. Each runs in every setting: mounted by the kernel directly, mounted through
//! `fusermount3`, in a room that is nearly full, on shared storage, and in a bucket. The results must be the same.
#![allow(missing_docs)]

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::random::number;
use common::setting::{
    available, by_the_kernel, devices_of, in_a_bucket, nearly_full, on_shared_storage,
    through_fusermount3,
};
use common::{Sandbox, is_root, transport};

/// Tests that are skipped, by the beginning of the name after its group, each with its reason. Any other skip is a failure.
const SKIPPED: &[(&str, &str)] = &[
    (
        "erofs_",
        "remounts are switched off: tests/external/pjdfstest.toml says why",
    ),
    (
        "link_count_max",
        "a room's limit of links is far above what pathconf(3) can ask a FUSE mount for",
    ),
];

/// Operations of one fsx: it never unmaps what it reads through a mapping, and gets slower with each.
const FSX_PIECE: u64 = 20_000;

fn project() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// The tool, or `None`, said, if set-up has not built it.
fn tool(name: &str) -> Option<PathBuf> {
    let path = project().join("target/tools/bin").join(name);
    if !path.exists() {
        eprintln!("skipped: {name} is not built; run scripts/setup.sh test");
        return None;
    }
    Some(path)
}

/// The size of the disk of a nearly full room, and what is left of it, in MiB. The suites need less than is left, so that
/// "no space" is a failure.
const DISK: u64 = 640;
const LEFT: u64 = 208;

/// Threads that serve a mount.
const THREADS: usize = 8;

#[test]
fn every_pjdfstest_that_applies_passes() {
    by_the_kernel(|s| {
        pjdfstest(s, |s| {
            // Over io_uring there is one queue for each processor instead.
            if transport() == "device" {
                assert!(devices_of(s.pid()) >= THREADS, "each thread has its own");
            }
        });
    });
}

#[test]
fn every_pjdfstest_that_applies_passes_through_fusermount3() {
    through_fusermount3(|s| {
        pjdfstest(s, |s| assert_eq!(devices_of(s.pid()), 1, "all share one"));
    });
}

#[test]
fn every_pjdfstest_that_applies_passes_in_a_nearly_full_room() {
    nearly_full(DISK, LEFT, |s| pjdfstest(s, |_| {}));
}

#[test]
fn every_pjdfstest_that_applies_passes_on_shared_storage() {
    on_shared_storage(|s| pjdfstest(s, |_| {}));
}

#[test]
fn every_pjdfstest_that_applies_passes_in_a_bucket() {
    in_a_bucket(|s| pjdfstest(s, |_| {}));
}

/// `mounted` looks at the mount before the suite begins.
fn pjdfstest(mut s: Sandbox, mounted: impl FnOnce(&Sandbox)) {
    let (true, Some(tool)) = (is_root(), tool("pjdfstest")) else {
        return;
    };
    // It becomes two other users, and makes device nodes.
    s.for_all_users = true;
    assert!(s.mount());
    mounted(&s);
    std::fs::set_permissions(
        s.path("mnt"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let second = s.path("second");
    std::fs::create_dir(&second).unwrap();
    let output = Command::new(tool)
        .arg("-c")
        .arg(project().join("tests/external/pjdfstest.toml"))
        .arg("-s")
        .arg(&second)
        .arg("-p")
        .arg(s.path("mnt"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    // A line is a test's name and its outcome; reasons and panics are indented or have more words.
    let outcomes: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (name, outcome) = (words.next()?, words.next()?);
            (words.next().is_none() && name.contains("::")).then_some((name, outcome))
        })
        .collect();
    let summary = text
        .lines()
        .rev()
        .find(|line| line.starts_with("Summary"))
        .unwrap_or("no summary");
    eprintln!("{summary}");
    let allowed = |name: &str| {
        name.split("::")
            .any(|part| SKIPPED.iter().any(|(skipped, _)| part.starts_with(skipped)))
    };
    let bad: Vec<_> = outcomes
        .iter()
        .filter(|(name, outcome)| !(*outcome == "ok" || *outcome == "skipped" && allowed(name)))
        .collect();
    assert!(bad.is_empty() && output.status.success(), "{bad:?}\n{text}");
    assert!(
        outcomes.len() > 390,
        "only {} tests ran: {summary}",
        outcomes.len()
    );
}

/// Operations of each fsx in `make test`: by the kernel directly, in each other setting, and where many a call is a
/// round trip: on shared storage, in a bucket.
const OPERATIONS: u64 = 60_000;
const OPERATIONS_ELSEWHERE: u64 = 20_000;
const OPERATIONS_SHARED: u64 = 6_000;
const OPERATIONS_BUCKET: u64 = 6_000;

#[test]
fn three_fsx_at_once_find_no_difference() {
    by_the_kernel(|s| fsx(&s, OPERATIONS));
}

#[test]
fn three_fsx_at_once_find_no_difference_through_fusermount3() {
    through_fusermount3(|s| fsx(&s, OPERATIONS_ELSEWHERE));
}

#[test]
fn three_fsx_at_once_find_no_difference_in_a_nearly_full_room() {
    nearly_full(DISK, LEFT, |s| {
        fsx(&s, OPERATIONS_ELSEWHERE);
        assert!(s.mount());
        // What was overwritten is free again.
        let left = available(&s.path("mnt"));
        s.umount();
        assert!(left > (LEFT - 16) << 20, "{left} bytes are left");
    });
}

#[test]
fn three_fsx_at_once_find_no_difference_on_shared_storage() {
    on_shared_storage(|s| fsx(&s, OPERATIONS_SHARED));
}

#[test]
fn three_fsx_at_once_find_no_difference_in_a_bucket() {
    in_a_bucket(|s| fsx(&s, OPERATIONS_BUCKET));
}

fn fsx(s: &Sandbox, operations: u64) {
    let Some(tool) = tool("fsx") else {
        return;
    };
    assert!(s.mount());
    let operations = number("STRONGROOM_FSX_OPS").unwrap_or(operations);
    let seed = number("STRONGROOM_SEED").unwrap_or(1);
    // Each in another mode; `make soak` has more. A failing thread panics, and the scope with it.
    std::thread::scope(|scope| {
        for (number, mode) in (0..).zip(["fsx", "fsx-unmapped", "fsx-odd"]) {
            let tool = &tool;
            scope.spawn(move || {
                let kept = s.path(format!("artifacts-{number}"));
                std::fs::create_dir(&kept).unwrap();
                for piece in 0..operations.div_ceil(FSX_PIECE) {
                    let few = FSX_PIECE.min(operations - piece * FSX_PIECE);
                    let mut fsx = Command::new(tool);
                    fsx.arg("-f")
                        .arg(project().join(format!("tests/external/{mode}.toml")))
                        .args(["-N", &few.to_string()])
                        .args(["-S", &(seed + number + piece * 1000).to_string(), "-P"])
                        .arg(&kept)
                        .arg(s.path(format!("mnt/fsx-{number}")));
                    let output = fsx.output().unwrap();
                    let text = String::from_utf8_lossy(&output.stdout);
                    let tail: Vec<&str> = text.lines().rev().take(40).collect();
                    assert!(
                        output.status.success() && text.contains("A-OK"),
                        "{fsx:?}: {}\n{}",
                        String::from_utf8_lossy(&output.stderr),
                        tail.into_iter().rev().collect::<Vec<_>>().join("\n")
                    );
                }
            });
        }
    });
    s.umount();
    // A served room is in use, and without its servers it has no data to check.
    if !s.is_shared() {
        s.with_pass(["check", "room", "--read-data"]);
    }
}
