//! What every engine must do, whichever it is.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use room::{NewCredential, NewRoom, OpenOptions, Room};
use storage::{OpenMode, Storage};
use strongroom_bucket::{BucketStorage, Created, HEAD, LogError, LogPlace};

use crate::made::{arc, create, noise, open, options, read, two_machines, write};
use crate::store::{Store, contents, list};

fn wait<T>(task: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(task)
}

#[test]
fn a_number_is_taken_once_and_needs_the_one_before() {
    const LARGE: [u8; 3 * HEAD] = [20; 3 * HEAD];
    let log = Store::new().engine().unwrap();
    wait(async {
        log.prepare().await.unwrap();
        log.prepare().await.unwrap();
        let create = |number, record: &'static [u8], before: &'static [u8]| {
            log.create("r/a", number, record.into(), before)
        };
        assert_eq!(create(1, b"one", b"").await.unwrap(), Created::Ours);
        assert_eq!(create(1, b"one", b"").await.unwrap(), Created::Ours);
        assert_eq!(create(1, b"other", b"").await.unwrap(), Created::Taken);
        let is_lost = |lost: LogError, number: u64| {
            assert!(
                matches!(&lost, LogError::Refused(ErrorKind::InvalidData, why) if why.contains(&format!("commit {number}"))),
                "{lost:?}"
            );
        };
        is_lost(create(3, b"three", b"two").await.unwrap_err(), 2);
        // The one before is there, and is another one.
        for before in [&b"other"[..], b"onf", b"ona", b"one more"] {
            is_lost(create(2, b"x", before).await.unwrap_err(), 1);
        }
        assert_eq!(create(2, &LARGE, b"one").await.unwrap(), Created::Ours);
        for last in [19, 21, 255] {
            let mut other = LARGE[..HEAD].to_vec();
            *other.last_mut().unwrap() = last;
            let refused = log.create("r/a", 3, "x"[..].into(), &other).await;
            is_lost(refused.unwrap_err(), 2);
        }
        let third = create(3, b"x", &LARGE[..HEAD]).await;
        assert_eq!(third.unwrap(), Created::Ours);
        for number in 4..12 {
            assert_eq!(create(number, b"x", b"x").await.unwrap(), Created::Ours);
        }
        assert_eq!(log.get("r/a", 1).await.unwrap().unwrap(), "one");
        assert_eq!(log.list("r/a", 8).await.unwrap(), [9, 10, 11]);
        // Another room, whose name begins with the first one's.
        assert!(log.list("r", 0).await.unwrap().is_empty());
        assert_eq!(
            log.create("r/a/b", 1, "two"[..].into(), b"").await.unwrap(),
            Created::Ours
        );
        log.delete("r/a", &[1, 2, 3, 99]).await.unwrap();
        assert_eq!(log.get("r/a", 1).await.unwrap(), None);
        assert_eq!(
            log.list("r/a", 0).await.unwrap(),
            (4..12).collect::<Vec<_>>()
        );
        assert_eq!(log.list("r/a/b", 0).await.unwrap(), [1]);
        // A writer whose next number was removed with the one before, long ago.
        create(3, b"late", b"x").await.unwrap_err();
    });
}

/// The worst that could happen: an older state, taken for the newest.
#[test]
fn a_room_is_opened_with_its_log_or_not_at_all() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let storage = create(&store, dir.path(), options()).unwrap();
    write(&storage, "f", b"old").unwrap();
    storage.checkpoint().unwrap();
    write(&storage, "g", b"new").unwrap();
    drop(storage);
    let open_with = |store: &Store, log| {
        let elsewhere = tempfile::tempdir().unwrap();
        let mut options = options();
        options.log = log;
        let opened = BucketStorage::open(arc(store), "rooms/a", elsewhere.path(), options.clone());
        options.read_only = true;
        let read = BucketStorage::open(arc(store), "rooms/a", elsewhere.path(), options);
        let (opened, read) = (
            opened.unwrap_err().to_string(),
            read.unwrap_err().to_string(),
        );
        assert_eq!(opened, read);
        opened
    };
    let address = store.log().unwrap().address().unwrap();
    let refused = open_with(&store, None);
    assert!(
        refused.contains("--log") && refused.contains(&address),
        "{refused}"
    );
    let refused = open_with(&store, Store::new().engine());
    assert!(refused.contains("has no commits of this room"), "{refused}");
    let other = Store::new();
    drop(create(&other, dir.path(), options()).unwrap());
    let refused = open_with(&store, other.engine());
    assert!(refused.contains("another room"), "{refused}");
    // The object is lost: checkpoints say the same.
    let bare = Store::with_log(None);
    for (name, bytes) in contents(&store, "rooms/a") {
        if !name.ends_with("/log") && !name.contains("/commits/") {
            crate::store::overwrite(&bare, &name, bytes);
        }
    }
    let refused = open_with(&bare, None);
    assert!(refused.contains("--log"), "{refused}");
    let refused = open_with(&bare, store.engine());
    assert!(refused.contains("does not say"), "{refused}");
    // A room without a log, and one named all the same.
    let plain = Store::with_log(None);
    drop(create(&plain, dir.path(), options()).unwrap());
    let refused = open_with(&plain, store.engine());
    assert!(refused.contains("has none"), "{refused}");
    let storage = open(&store, dir.path(), options()).unwrap();
    assert_eq!(read(&storage, "g").unwrap(), b"new");
}

#[test]
fn a_log_that_has_a_room_of_this_name_gets_no_other() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    drop(create(&store, dir.path(), options()).unwrap());
    // An empty bucket of the same name.
    let mut options = options();
    options.log = store.engine();
    let empty = Store::with_log(None);
    let refused = BucketStorage::create(arc(&empty), "rooms/a", dir.path(), options).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    let said = refused.to_string();
    assert!(
        said.contains("in the log") && said.contains("tools of the store and the log"),
        "{said}"
    );
}

/// A standby was promoted that did not have the last commit, and the begin of another machine got its number. The first writer found a commit
/// of that number, took it for its own, and acknowledged the next one; the room could not be opened any more.
#[test]
fn a_writer_whose_last_commit_was_lost_and_replaced_acknowledges_nothing_more() {
    let (store, [here, there]) = (Store::new(), two_machines());
    let first = create(&store, here.path(), options()).unwrap();
    write(&first, "f", b"of the first").unwrap();
    write(&first, "lost", b"x").unwrap();
    let last = list(&store, "rooms/a/commits").len() as u64;
    wait(store.engine().unwrap().delete("rooms/a", &[last])).unwrap();
    let second = open(&store, there.path(), options()).unwrap();
    assert_eq!(second.writer(), last);
    let refused = write(&first, "g", b"of the first").unwrap_err().to_string();
    assert!(
        refused.contains(&format!("does not have commit {last}")),
        "{refused}"
    );
    write(&second, "g", b"of the second").unwrap();
    drop(first);
    drop(second);
    let storage = open(&store, here.path(), options()).unwrap();
    assert_eq!(storage.list("").unwrap(), ["f", "g"]);
    assert_eq!(read(&storage, "g").unwrap(), b"of the second");
}

/// A sync of very many small pieces is more than any record may be.
#[test]
fn a_record_that_is_too_large_for_its_log_is_in_the_store() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let mut options = options();
    options.checkpoint_commits = 4;
    options.grace = Duration::ZERO;
    let storage = create(&store, dir.path(), options.clone()).unwrap();
    let file = storage.open("f", OpenMode::CreateNew).unwrap();
    file.set_len(1 << 40).unwrap();
    for n in 0..100_000_u64 {
        file.write_at(&[1], n << 20).unwrap();
    }
    file.sync().unwrap();
    let is_large = store.engine().unwrap().record_max() < 32 << 20;
    assert_eq!(list(&store, "rooms/a/records").is_empty(), !is_large);
    storage.die();
    drop((file, storage));
    let storage = open(&store, dir.path(), options).unwrap();
    let file = storage.open("f", OpenMode::Read).unwrap();
    for n in [0, 1, 99_999_u64] {
        let mut found = [0; 2];
        file.read_at(&mut found, n << 20).unwrap();
        assert_eq!(found, [1, 0], "{n}");
    }
    let mut n = 0;
    let begin = Instant::now();
    while !list(&store, "rooms/a/records").is_empty() {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "it is not removed"
        );
        write(&storage, &format!("g{n}"), b"x").unwrap();
        n += 1;
    }
}

fn files_below(dir: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => files_below(&path, found),
            // Removed meanwhile, or a socket.
            path => found.extend(
                std::fs::read(&path)
                    .ok()
                    .map(|bytes| (path.display().to_string(), bytes)),
            ),
        }
    }
}

#[test]
fn what_the_engine_has_on_disk_shows_no_name_no_content_and_no_size_of_a_file() {
    const SIZE: usize = 1_234_577;
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let mut new = NewRoom::with_credential(NewCredential::RawKey(vec![7; 32].into()));
    new.open = OpenOptions::with_state_dir(dir.path().join("state"));
    let storage = Arc::new(create(&store, dir.path(), options()).unwrap());
    let room = Room::create_on(storage, new).unwrap();
    let content = b"and a very secret content ".repeat(SIZE / 26 + 1);
    for (name, len) in [("a-very-secret-name", SIZE), ("secret-name.small", 26)] {
        room.write_file(format!("/{name}"), &content[..len])
            .unwrap();
        room.open_file(format!("/{name}")).unwrap().sync().unwrap();
    }
    room.close().unwrap();
    let mut found = Vec::new();
    files_below(&crate::engine::stored(), &mut found);
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let has = |what: &[u8]| {
        let mut files = found.iter();
        files
            .find(|(_, bytes)| bytes.windows(what.len()).any(|part| part == what))
            .map(|(name, _)| name)
    };
    // The search finds what is there.
    assert!(has(b"rooms/a").is_some() && has(b"SRCOMMIT").is_some());
    let size = (SIZE as u64).to_le_bytes();
    for secret in [
        &b"secret-name"[..],
        b"secret content",
        &[7; 32],
        &size,
        SIZE.to_string().as_bytes(),
    ] {
        for form in [secret, hex(secret).as_bytes()] {
            assert_eq!(has(form), None, "{}", String::from_utf8_lossy(secret));
        }
    }
}

/// A writer works while something happens to its engine. Nothing that it acknowledged is lost, and it goes on afterwards.
pub(crate) fn goes_on(place: String, happens: impl FnOnce()) {
    let (store, here, there) = (
        Store::with_log(Some(place)),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let mut options = options();
    options.timeout = Duration::from_secs(60);
    let storage = create(&store, here.path(), options.clone()).unwrap();
    let (is_over, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let more = |count: u64| {
        let (begin, from) = (Instant::now(), acknowledged.load(Ordering::SeqCst));
        while acknowledged.load(Ordering::SeqCst) < from + count {
            assert!(
                begin.elapsed() < Duration::from_secs(90),
                "the writer does not go on"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0.. {
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                write(&storage, &format!("f{n}"), &noise(n, 4096)).unwrap();
                acknowledged.fetch_add(1, Ordering::SeqCst);
            }
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            more(20);
            happens();
            more(20);
        }));
        is_over.store(true, Ordering::SeqCst);
        writer.join().unwrap();
        done.unwrap();
    });
    storage.die();
    drop(storage);
    let storage = open(&store, there.path(), options).unwrap();
    for n in 0..acknowledged.load(Ordering::SeqCst) {
        assert!(
            read(&storage, &format!("f{n}")).unwrap() == noise(n, 4096),
            "f{n}"
        );
    }
}

/// It came between the end of the writer and the note of that, and made the begin of the next one look like a theft.
#[test]
fn nothing_is_committed_behind_the_end_of_a_writer() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let storage = create(&store, dir.path(), options()).unwrap();
    write(&storage, "f", b"x").unwrap();
    let file = storage.open("f", OpenMode::ReadWrite).unwrap();
    file.write_at(b"late", 0).unwrap();
    store.mute("/last", 1);
    std::thread::scope(|scope| {
        scope.spawn(|| drop(storage));
        while store.left_mute() > 0 {
            std::thread::yield_now();
        }
        let refused = file.sync().unwrap_err().to_string();
        assert!(refused.contains("closed"), "{refused}");
    });
}

#[test]
fn an_engine_that_is_not_there_is_named_without_a_password() {
    let place = crate::engine::place().unwrap();
    let scheme = place.split(':').next().unwrap();
    let place = LogPlace::parse(&format!("{scheme}://ada:s3cret@127.0.0.1:1/x")).unwrap();
    let (store, dir) = (Store::with_log(None), tempfile::tempdir().unwrap());
    let mut options = options();
    options.timeout = Duration::from_millis(100);
    options.log = Some(place.open("b").unwrap());
    let refused = BucketStorage::create(arc(&store), "rooms/a", dir.path(), options).unwrap_err();
    let said = refused.to_string();
    assert!(
        said.contains("127.0.0.1:1") && said.contains("refused"),
        "{said}"
    );
    assert!(!said.contains("s3cret"), "{said}");
}

/// A writer with all files of its place goes on; without one, or with another's, it is refused with words about certificates.
pub(crate) fn knows_certificates(place: &str, options: [&str; 3], dir: &Path) {
    let with = |files: &[(&str, &str)]| {
        let files = files.iter().map(|(option, file)| {
            let path = dir.join(file);
            format!("{option}={}", path.display())
        });
        let separator = if place.contains('?') { '&' } else { '?' };
        let place = format!("{place}{separator}{}", files.collect::<Vec<_>>().join("&"));
        let mut options = crate::made::options();
        options.timeout = Duration::from_secs(4);
        let (store, here) = (Store::with_log(Some(place)), tempfile::tempdir().unwrap());
        let storage = create(&store, here.path(), options)?;
        write(&storage, "f", b"x")
    };
    let [authority, certificate, key] = options;
    let own = [(certificate, "rooms.pem"), (key, "rooms.key")];
    let refused = with(&own).unwrap_err().to_string().to_lowercase();
    assert!(refused.contains("certificate"), "{refused}");
    let refused = with(&[(authority, "ca.pem")]).unwrap_err();
    let refused = refused.to_string().to_lowercase();
    assert!(refused.contains("certificate"), "{refused}");
    with(&[(authority, "ca.pem"), own[0], own[1]]).unwrap();
}
