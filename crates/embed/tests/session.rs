//! What every language relies on, tried where it is decided: closing, threads, forks, handles. What files do is the contract's.
#![allow(missing_docs)]

use std::sync::atomic::{AtomicBool, Ordering};

use embed::{Argon2Cost, Error, File, Key, Kind, OpenMode, OpenOptions, Session, Whence, guard};

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn key() -> Key {
        Key::Raw([7; 32].as_slice().into())
    }

    fn options(&self) -> OpenOptions {
        OpenOptions::with_state_dir(self.0.path().join("state"))
    }

    fn create(&self) -> Session {
        Session::create(
            self.0.path().join("room"),
            Self::key(),
            None,
            self.options(),
        )
        .unwrap()
    }

    fn open_or_create(&self) -> Session {
        match self.0.path().join("room").exists() {
            true => self.open(),
            false => self.create(),
        }
    }

    fn open(&self) -> Session {
        Session::open(self.0.path().join("room"), Self::key(), self.options()).unwrap()
    }
}

const BOTH: OpenMode = OpenMode {
    read: true,
    truncate: false,
    ..OpenMode::WRITE
};

fn content(session: &Session, path: &str) -> Vec<u8> {
    let file = session.open_file(path, OpenMode::READ).unwrap();
    let mut all = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(0, &mut all).unwrap(), all.len());
    all
}

#[test]
fn a_closed_room_refuses_its_files_too_and_can_be_opened_again_while_they_are_held() {
    let place = Place::new();
    let session = place.create();
    let file = session.open_file("/a", BOTH).unwrap();
    file.write(b"kept").unwrap();
    let other = session.clone();
    session.close().unwrap();
    session.close().unwrap();
    assert!(!other.is_open());
    let refused: [Error; 5] = [
        file.write(b"x").unwrap_err(),
        file.read_at(0, &mut [0; 4]).unwrap_err(),
        file.stat().unwrap_err(),
        file.seek(Whence::End, 0).unwrap_err(),
        other.stat("/a", true).unwrap_err(),
    ];
    assert!(
        refused.iter().all(|e| e.kind() == Kind::Closed),
        "{refused:?}"
    );
    let again = place.open();
    assert_eq!(content(&again, "/a"), b"kept");
    // Only now: it must not release what the other opening holds.
    drop(file);
    assert_eq!(content(&again, "/a"), b"kept");
}

#[test]
fn closing_waits_for_writers_and_loses_nothing_acknowledged() {
    let place = Place::new();
    let session = place.create();
    let stop = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8u8)
            .map(|n| {
                let file = session.open_file(format!("/{n}"), BOTH).unwrap();
                let stop = &stop;
                scope.spawn(move || {
                    let mut written = 0;
                    loop {
                        match file.write(&[n; 1000]) {
                            Ok(()) => written += 1000,
                            Err(e) => {
                                assert_eq!(e.kind(), Kind::Closed);
                                assert!(stop.load(Ordering::SeqCst), "closed by nobody");
                                return written;
                            }
                        }
                    }
                })
            })
            .collect();
        while session.stat("/7", true).unwrap().size < 50_000 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::SeqCst);
        session.close().unwrap();
        let written: Vec<usize> = writers.into_iter().map(|w| w.join().unwrap()).collect();
        written
    });
    let session = place.open();
    for (n, len) in written.into_iter().enumerate() {
        assert_eq!(content(&session, &format!("/{n}")), vec![n as u8; len]);
    }
}

#[test]
fn lines_that_eight_threads_append_are_all_there_and_whole() {
    const EACH: usize = 500;
    let place = Place::new();
    let session = place.create();
    let mode = OpenMode {
        append: true,
        ..BOTH
    };
    std::thread::scope(|scope| {
        for n in 0..8u8 {
            let file = session.open_file("/log", mode).unwrap();
            scope.spawn(move || (0..EACH).for_each(|_| file.write(&[n; 100]).unwrap()));
        }
    });
    let log = content(&session, "/log");
    assert_eq!(log.len(), 8 * EACH * 100);
    let mut counts = [0; 8];
    for line in log.chunks(100) {
        assert!(line.iter().all(|b| *b == line[0]), "a line of two threads");
        counts[usize::from(line[0])] += 1;
    }
    assert_eq!(counts, [EACH; 8]);
}

#[test]
fn a_close_within_a_transaction_is_refused_and_an_abandoned_one_is_as_if_it_had_never_begun() {
    let place = Place::new();
    let session = place.create();
    session.make_dir("/kept", 0o755).unwrap();
    session.begin().unwrap();
    session.make_dir("/gone", 0o755).unwrap();
    assert_eq!(session.close().unwrap_err().kind(), Kind::Busy);
    assert!(session.exists("/gone").unwrap());
    session.abandon().unwrap();
    let session = place.open();
    assert!(session.exists("/kept").unwrap() && !session.exists("/gone").unwrap());
}

#[test]
fn a_file_is_opened_as_its_mode_says() {
    let place = Place::new();
    let session = place.create();
    let open = |path: &str, mode| {
        session
            .open_file(path, mode)
            .map_err(|e| (e.kind(), e.errno()))
    };
    let create_new = OpenMode {
        create_new: true,
        ..BOTH
    };
    assert_eq!(
        open("/a", OpenMode::READ).unwrap_err(),
        (Kind::NotFound, libc::ENOENT)
    );
    drop(open("/a", create_new).unwrap());
    assert_eq!(
        open("/a", create_new).unwrap_err(),
        (Kind::Exists, libc::EEXIST)
    );
    assert_eq!(open("/", OpenMode::READ).unwrap_err().0, Kind::IsDirectory);
    assert_eq!(open("/a/b", BOTH).unwrap_err().0, Kind::NotDirectory);
    assert_eq!(open("/none/b", BOTH).unwrap_err().0, Kind::NotFound);
    let without_write = OpenMode {
        create: true,
        ..OpenMode::READ
    };
    assert_eq!(
        open("/a", without_write).unwrap_err().0,
        Kind::InvalidArgument
    );
    let reading = open("/a", OpenMode::READ).unwrap();
    assert_eq!(reading.write(b"x").unwrap_err().errno(), libc::EBADF);
    assert_eq!(reading.set_len(1).unwrap_err().errno(), libc::EBADF);
    let writing = open("/a", OpenMode::WRITE).unwrap();
    assert_eq!(writing.read(&mut [0]).unwrap_err().errno(), libc::EBADF);
    session.symlink(b"nowhere", "/dangling").unwrap();
    assert_eq!(open("/dangling", BOTH).unwrap_err().0, Kind::NotFound);
}

fn positions(file: &File) -> [u64; 2] {
    [file.position(), file.len().unwrap()]
}

#[test]
fn the_position_moves_with_reads_and_writes_and_not_before_the_start() {
    let place = Place::new();
    let session = place.create();
    let file = session.open_file("/a", BOTH).unwrap();
    file.write(b"0123456789").unwrap();
    assert_eq!(positions(&file), [10, 10]);
    assert_eq!(file.seek(Whence::End, -4).unwrap(), 6);
    let mut two = [0; 2];
    assert_eq!(file.read(&mut two).unwrap(), 2);
    assert_eq!((&two, file.position()), (b"67", 8));
    for (whence, by) in [
        (Whence::Start, -1),
        (Whence::Current, -9),
        (Whence::Start, i64::MIN),
    ] {
        assert_eq!(
            file.seek(whence, by).unwrap_err().kind(),
            Kind::InvalidArgument
        );
        assert_eq!(file.position(), 8);
    }
    assert_eq!(file.seek(Whence::End, 100).unwrap(), 110);
    assert_eq!(file.read(&mut two).unwrap(), 0);
    file.write(b"x").unwrap();
    assert_eq!(positions(&file), [111, 111]);
    assert_eq!(
        content(&session, "/a")[9..],
        [vec![b'9'], vec![0; 100], vec![b'x']].concat()
    );
}

#[test]
fn a_second_opener_a_wrong_key_and_no_room_are_distinguished() {
    let place = Place::new();
    let session = place.create();
    let dir = place.0.path().join("room");
    let open = |key| Session::open(&dir, key, place.options()).map_err(|e| e.kind());
    assert_eq!(open(Place::key()).unwrap_err(), Kind::Busy);
    let slot = session
        .add_key(
            Key::Passphrase("correct".into()),
            Some(Argon2Cost::LEAST),
            "spoken",
        )
        .unwrap();
    session.close().unwrap();
    assert_eq!(
        open(Key::Raw([8; 32].as_slice().into())).unwrap_err(),
        Kind::WrongKey
    );
    let session = open(Key::Passphrase("correct".into())).unwrap();
    session.remove_key(slot).unwrap();
    session.close().unwrap();
    assert_eq!(
        open(Key::Passphrase("correct".into())).unwrap_err(),
        Kind::WrongKey
    );
    let nothing = Session::open(place.0.path().join("none"), Place::key(), place.options());
    assert_eq!(nothing.unwrap_err().kind(), Kind::NotARoom);
}

/// An opening that cut the file took the room's lock a second time; between the two, somebody who closed the room waited for the first
/// and kept the second waiting, for ever.
#[test]
fn a_room_is_closed_while_files_are_opened_and_cut() {
    let place = Place::new();
    for _ in 0..20 {
        let (session, (done, all)) = (place.open_or_create(), std::sync::mpsc::channel());
        let (started, opening) = std::sync::mpsc::channel();
        for n in 0..4 {
            let (session, done, started) = (session.clone(), done.clone(), started.clone());
            std::thread::spawn(move || {
                let path = format!("/f{n}");
                while let Ok(file) = session.open_file(&path, OpenMode::WRITE) {
                    file.write(b"x").ok();
                    started.send(()).ok();
                }
                done.send(()).ok();
            });
        }
        opening.recv().unwrap();
        std::thread::spawn(move || {
            session.close().unwrap();
            done.send(())
        });
        for _ in 0..5 {
            all.recv_timeout(std::time::Duration::from_secs(60))
                .expect("it ends");
        }
    }
}

#[test]
fn a_panic_becomes_an_error_with_its_text() {
    let error = guard::<()>(|| panic!("number {}", 7)).unwrap_err();
    assert_eq!(error.kind(), Kind::Internal);
    assert!(error.to_string().contains("number 7"), "{error}");
}

/// A key file was given the least cost, also where its content was a passphrase.
#[test]
fn a_key_file_costs_as_much_to_try_as_a_passphrase() {
    let cost = Argon2Cost {
        memory_kib: 16 << 10,
        passes: 2,
        lanes: 1,
    };
    let key = Key::File(b"correct horse".as_slice().into());
    match key.new_credential(Some(cost)) {
        room::NewCredential::KeyFile { cost: set, .. } => assert_eq!(set, cost),
        other => panic!("{other:?}"),
    }
}
