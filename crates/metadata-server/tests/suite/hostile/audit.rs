//! What the audit log of a server says of its users, and what it does not say.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use metadata_proto::rpc::*;
use metadata_server::audit::{AuditLog, Expected, Full, Key, Settings, verify};
use metadata_server::server::Config;
use room::{FileKind, InodeNo};
use storage::HostStorage;
use storage::testing::{Fault, FaultyStorage, Op, Times};

use crate::common::{Raw, World, to_rename};

fn audited(config: &mut Config) {
    config.audit = Some(Settings::new(config.room.with_file_name("audit")));
}

/// A server that goes on with a log, and the log's key.
fn world(change: fn(&mut Config)) -> (World, PathBuf, Key) {
    let mut world = World::new(1);
    world.stop();
    let dir = world.room_dir().with_file_name("audit");
    let key = AuditLog::create(&dir).unwrap();
    world.change = change;
    world.start();
    (world, dir, key)
}

fn text(dir: &std::path::Path) -> String {
    std::fs::read_to_string(dir.join("audit.00000001.jsonl")).unwrap()
}

/// Entries that have all these parts.
fn count(text: &str, parts: &[String]) -> usize {
    let has = |line: &&str| parts.iter().all(|part| line.contains(part.as_str()));
    text.lines().filter(has).count()
}

fn of(user: &str, event: &str, inode: InodeNo) -> [String; 3] {
    [
        format!("\"user\":\"{user}\""),
        format!("\"event\":\"{event}\""),
        format!("\"inode\":\"{}\"", inode.0),
    ]
}

#[test]
fn the_log_has_who_opened_changed_removed_and_was_refused_what_and_no_names() {
    let (mut world, dir, key) = world(audited);
    let root = world.client("root", 0, &[0]);
    let bob = world.client("bob", 1001, &[1001]);
    let parent = InodeNo::ROOT;
    let file = root
        .make(parent, "secret-plan", FileKind::Regular, 0o600)
        .unwrap();
    let folder = root
        .make(parent, "secret-place", FileKind::Directory, 0o700)
        .unwrap();
    root.open(file.no, true, true).unwrap();
    root.close(file.no).unwrap();
    assert!(bob.open(file.no, true, false).is_err());
    assert!(bob.chmod(file.no, 0o777).is_err());
    root.chmod(file.no, 0o640).unwrap();
    root.change(to_rename(parent, "secret-plan", folder.no, "secret-end"))
        .unwrap();
    // Nothing that our clients do: data without an open file.
    root.map(file.no).unwrap();
    root.unlink(folder.no, "secret-end").unwrap();
    world.server().remove_user("bob").unwrap();
    assert!(Raw::connect(&world, bob.identity.clone(), None).is_err());
    world.stop();
    let text = text(&dir);
    assert_eq!(count(&text, &of("root", "open", file.no)), 1, "{text}");
    assert_eq!(count(&text, &of("root", "unopened", file.no)), 1);
    assert_eq!(count(&text, &of("bob", "refused", file.no)), 2);
    assert_eq!(count(&text, &of("root", "rights-changed", file.no)), 1);
    assert!(text.contains("\"mode\":\"0600\"") && text.contains("\"mode\":\"0640\""));
    assert_eq!(count(&text, &of("root", "moved", file.no)), 1);
    assert_eq!(count(&text, &of("root", "removed", file.no)), 1);
    for event in ["user-added", "session-begin", "session-end", "user-removed"] {
        let event = format!("\"event\":\"{event}\"");
        assert!(count(&text, std::slice::from_ref(&event)) > 0, "{event}");
    }
    assert!(text.contains("\"why\":\"key-removed\""));
    assert!(text.contains("\"event\":\"connections-refused\""));
    assert!(!text.contains("secret"), "{text}");
    let expected = Expected {
        key: Some(&key),
        ..Expected::default()
    };
    let report = verify(&[dir], &expected).unwrap();
    assert_eq!(report.faults, Vec::<String>::new());
    assert!(report.stopped);
}

#[test]
fn what_is_done_while_no_server_runs_is_in_the_log_of_the_next_one() {
    let (mut world, dir, _) = world(audited);
    world.stop();
    let open = room::OpenOptions {
        state_dir: Some(world.path().join("state")),
        ..Default::default()
    };
    let credential = crate::common::credential();
    let beside = metadata_server::server::Beside::open(
        &world.room_dir(),
        &credential,
        open,
        &metadata_server::server::InDirectory,
    )
    .unwrap();
    let mut disk = world.disks[0].enrolled();
    disk.address.address = "127.0.0.1:9".into();
    beside.add_disk(disk).unwrap();
    beside.room.close().unwrap();
    world.start();
    let parts = ["disk-added", "offline", "127.0.0.1:9", "\"at\":"].map(String::from);
    assert_eq!(count(&text(&dir), &parts), 1);
    world.stop();
    world.start();
    assert_eq!(count(&text(&dir), &parts), 1);
}

static FULL: OnceLock<Arc<FaultyStorage<HostStorage>>> = OnceLock::new();

fn full(config: &mut Config) {
    let dir = config.room.with_file_name("audit");
    let storage =
        FULL.get_or_init(|| Arc::new(FaultyStorage::new(HostStorage::open(&dir).unwrap())));
    config.audit = Some(Settings {
        full: Full::Refuse,
        storage: Some(storage.clone()),
        ..Settings::new(dir)
    });
}

#[test]
fn what_cannot_be_recorded_is_not_done_until_there_is_space() {
    let (mut world, dir, key) = world(full);
    let root = world.client("root", 0, &[0]);
    let file = root
        .make(InodeNo::ROOT, "a", FileKind::Regular, 0o600)
        .unwrap();
    let storage = FULL.get().unwrap();
    storage.refuse(Op::Write, 1, Fault::NoSpace, Times::Always);
    // The first one finds out; it is recorded when there is space.
    let _ = root.open(file.no, true, false);
    let waits = Err(Refusal::NotNow(Delay::Disk));
    assert_eq!(root.open(file.no, true, false).map(drop), waits);
    assert_eq!(root.chmod(file.no, 0o640).map(drop), waits);
    assert_eq!(root.unlink(InodeNo::ROOT, "a").map(drop), waits);
    assert!(world.server().add_user("eve", 7, &[7]).is_err());
    assert_eq!(root.attributes(file.no).unwrap().mode, 0o600);
    storage.heal();
    // The server tries again every second.
    let long = Instant::now() + Duration::from_secs(30);
    while let Err(refusal) = root.open(file.no, true, false) {
        assert!(Instant::now() < long, "{refusal:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    root.unlink(InodeNo::ROOT, "a").unwrap();
    world.stop();
    let text = text(&dir);
    assert_eq!(count(&text, &of("root", "open", file.no)), 2, "{text}");
    let expected = Expected {
        key: Some(&key),
        ..Expected::default()
    };
    assert_eq!(verify(&[dir], &expected).unwrap().faults.len(), 0);
}
