//! Where the time of small files goes, heard from the real room: through the library, and mounted by this process.
//!
//! In a program of its own, because there is one listener to a process, and one test, because it hears everything.
#![allow(missing_docs)]

use std::path::Path;
use std::sync::atomic::AtomicBool;

use bench::model::Parts;
use bench::progress::Quiet;
use bench::run_file::Run;
use bench::spans::Spans;
use bench::work::small_files::{self, Library, Maker, MountedHere, Options};
use tracing::subscriber::NoSubscriber;

#[test]
fn the_parts_of_every_operation_are_the_whole_in_the_library_and_mounted() {
    let spans = Spans::listen(NoSubscriber::new()).unwrap();
    let place = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let run = Run::begin(&place.path().join("state")).unwrap();
    let mut library = run.directory(place.path()).unwrap();
    let mut mounted = run.directory(place.path()).unwrap();
    let mut subjects: Vec<Maker<'_>> =
        vec![Box::new(|| Ok(Box::new(Library::new(library.path())?)))];
    let can_mount = Path::new("/dev/fuse").exists();
    if can_mount {
        subjects.push(Box::new(|| {
            Ok(Box::new(MountedHere::new(mounted.path(), run.clone())?))
        }));
    } else {
        eprintln!("half skipped: there is no /dev/fuse");
    }
    let options = Options {
        files: 12,
        ..Options::default()
    };
    let out = small_files::run(
        &options,
        subjects,
        Some(&spans),
        &Quiet,
        &AtomicBool::new(false),
    )
    .unwrap();

    for of in &out.parts {
        let sum: f64 = of.parts.iter().map(|part| part.mean_ns).sum();
        let whole = sum + of.rest_ns;
        assert!((whole - of.whole_ns).abs() < 1.0, "{of:?}");
        assert_eq!(of.count, 12);
    }
    let find = |store: &str, operation: &str| -> &Parts {
        let same = |of: &&Parts| of.store == store && of.operation == operation;
        out.parts.iter().find(same).unwrap()
    };
    let times = |of: &Parts, name: &str| {
        let part = of.parts.iter().find(|part| part.name == name);
        part.map_or(0.0, |part| part.times)
    };
    for store in ["room", "mounted room"]
        .iter()
        .take(1 + usize::from(can_mount))
    {
        // Each file is sealed once, made durable by one record of the log, and opened once. The first one is a commit.
        for operation in ["create", "write"] {
            let of = find(store, operation);
            assert_eq!(times(of, "sealing"), 1.0, "{of:?}");
            let syncs = times(of, "device sync");
            assert!((1.0..2.0).contains(&syncs), "{of:?}");
            assert!(times(of, "catalog") >= 1.0, "{of:?}");
        }
        let read = find(store, "read");
        assert_eq!(times(read, "opening"), 1.0, "{read:?}");
        assert!(times(read, "device read") >= 1.0, "{read:?}");
        assert_eq!(times(read, "sealing"), 0.0, "{read:?}");
        for operation in ["open", "chmod", "unlink"] {
            let of = find(store, operation);
            assert_eq!(times(of, "opening") + times(of, "sealing"), 0.0, "{of:?}");
        }
    }
    // One thread: no part overlaps another.
    for of in out.parts.iter().filter(|of| of.store == "room") {
        assert!(of.rest_ns >= 0.0, "{of:?}");
        assert_eq!(times(of, "FUSE round trip"), 0.0);
    }
    if can_mount {
        for operation in ["create", "read", "write", "chmod", "unlink"] {
            let of = find("mounted room", operation);
            assert!(times(of, "FUSE round trip") >= 1.0, "{of:?}");
        }
    }

    // Nothing is left: not mounted, and the directories can go.
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(
        !mounts.contains(&*place.path().to_string_lossy()),
        "{mounts}"
    );
    library.remove().unwrap();
    mounted.remove().unwrap();
    assert_eq!(
        std::fs::read_dir(place.path().join("state"))
            .unwrap()
            .count(),
        0
    );
}
