//! What a small file costs: calls to the server, and requests to disks.

use std::collections::BTreeMap;

use room::{Access, FileKind, FileSystem, InodeNo, NewFile};

use super::common::Shared;

const FILES: u64 = 32;

/// Counts of calls by name, and of the disks' requests by operation.
fn counts(shared: &Shared) -> BTreeMap<String, u64> {
    let calls = shared.server().metrics().calls;
    let mut counts: BTreeMap<String, u64> = calls
        .iter()
        .map(|(name, count)| ((*name).to_owned(), count.done))
        .collect();
    for disk in &shared.disks {
        for (op, done) in disk.server.metrics().done {
            *counts.entry(format!("disk {op}")).or_default() += done;
        }
    }
    counts
}

/// Creates small files as a mount does; what that cost.
fn cost(shared: &Shared, fsync: bool) -> impl Fn(&str) -> u64 {
    let client = shared.client(if fsync { "synced" } else { "closed" }, 0);
    let name = format!("files-{fsync}");
    let new = NewFile::of_kind(FileKind::Directory);
    let directory = client.make(InodeNo::ROOT, name.as_bytes(), &new).unwrap();
    let create = |name: String| {
        let new = NewFile::of_kind(FileKind::Regular);
        let made = client.create(directory.no, name.as_bytes(), &new, Access::WRITE);
        let no = made.unwrap().no;
        client.write(no, 0, &[7; 4096]).unwrap();
        if fsync {
            client.fsync(no).unwrap();
        }
        client.flush(no).unwrap();
        client.close(no, Access::WRITE);
    };
    // Connections and places to write to are there afterwards.
    (0..4).for_each(|n| create(format!("first-{n}")));
    assert!(shared.has_log(), "no sync is a commit");
    let before = counts(shared);
    (0..FILES).for_each(|n| create(format!("file-{n}")));
    let after = counts(shared);
    move |name| {
        let of = |counts: &BTreeMap<String, u64>| counts.get(name).copied().unwrap_or(0);
        of(&after) - of(&before)
    }
}

#[test]
fn a_small_file_costs_two_calls_and_one_request_to_a_disk() {
    let shared = Shared::new();
    let closed = cost(&shared, false);
    for none in ["lookup", "attributes", "xattr", "open", "map", "sync"] {
        assert_eq!(closed(none), 0, "{none}");
    }
    for one in ["change", "place", "disk write"] {
        assert_eq!(closed(one), FILES, "{one}");
    }
    // A name waits for no disk. Places to write to are for many files.
    assert_eq!(closed("disk flush"), 0);
    assert!(closed("disk status") + closed("disk revoke") <= 4);
    // Many are reported together, on a machine that is not too slow for that.
    assert!(closed("close") <= FILES);

    let synced = cost(&shared, true);
    for none in ["lookup", "attributes", "xattr", "open", "map", "sync"] {
        assert_eq!(synced(none), 0, "{none}");
    }
    // The write itself makes it durable: nobody flushes the disk.
    for one in ["change", "place", "disk write_durable"] {
        assert_eq!(synced(one), FILES, "{one}");
    }
    for none in ["disk write", "disk flush"] {
        assert_eq!(synced(none), 0, "{none}");
    }
}

/// The C library takes 32 KiB at a time, in which there is a place for 819 of these names.
#[test]
fn a_listing_of_a_thousand_names_takes_three_calls() {
    let shared = Shared::new();
    let Some(mount) = shared.mount("lister") else {
        return;
    };
    mount.ok("seq 1000 1999 | sed 's/^/some-file/' | xargs touch");
    let before = counts(&shared);
    let names = std::fs::read_dir(mount.path("")).unwrap();
    assert_eq!(names.count(), 1000);
    let calls = |counts: &BTreeMap<String, u64>| counts.get("read_dir").copied().unwrap_or(0);
    assert_eq!(calls(&counts(&shared)) - calls(&before), 3);
}
