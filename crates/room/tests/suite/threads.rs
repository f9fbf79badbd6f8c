//! Many threads in one room: each finds its own files as it left them, whatever the others do, and so does the next opening.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Place, pattern};
use room::{Error, FileKind, FileSystem as _, InodeNo, NewFile, RenameMode};

const THREADS: u64 = 4;
const ROUNDS: u64 = 60;

#[test]
fn threads_do_not_see_each_others_work_half_done() {
    let (place, room) = Place::with_room();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|t| {
                let room = &room;
                scope.spawn(move || {
                    for i in 0..ROUNDS {
                        let (name, moved) = (format!("t{t}-{i}"), format!("m{t}-{i}"));
                        let data = pattern(t * 1000 + i, 1000 + (i as usize * 9973) % 300_000);
                        room.write_file(format!("/{name}"), &data).unwrap();
                        if i % 3 == 0 {
                            room.sync().unwrap();
                        }
                        assert_eq!(room.read_file(format!("/{name}")).unwrap(), data);
                        room.rename(
                            InodeNo::ROOT,
                            name.as_bytes(),
                            InodeNo::ROOT,
                            moved.as_bytes(),
                            RenameMode::Replace,
                        )
                        .unwrap();
                        if i % 4 == 1 {
                            room.unlink(InodeNo::ROOT, moved.as_bytes()).unwrap();
                        }
                    }
                })
            })
            .collect();
        // One file that everybody writes whole: a reader finds one writer's block, never a mixture.
        let shared = room
            .make(
                InodeNo::ROOT,
                b"shared",
                &NewFile::of_kind(FileKind::Regular),
            )
            .unwrap()
            .no;
        room.write(shared, 0, &[0; 65536]).unwrap();
        let (room, done) = (&room, &done);
        for w in 1..=2_u8 {
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    room.write(shared, 0, &[w; 65536]).unwrap();
                }
            });
        }
        scope.spawn(move || {
            let mut buf = vec![9; 65536];
            while !done.load(Ordering::Relaxed) {
                room.read(shared, 0, &mut buf).unwrap();
                assert!(buf.iter().all(|b| *b == buf[0]), "a torn read");
            }
        });
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let names = room.read_dir(InodeNo::ROOT, 0, 10_000).unwrap();
                assert!(names.windows(2).all(|w| w[0].0.cookie < w[1].0.cookie));
            }
        });
        let results: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        done.store(true, Ordering::Relaxed);
        for result in results {
            result.unwrap();
        }
    });
    let room = place.reopen(room);
    for t in 0..THREADS {
        for i in 0..ROUNDS {
            let found = room.read_file(format!("/m{t}-{i}"));
            if i % 4 == 1 {
                assert!(matches!(found, Err(Error::NotFound)));
            } else {
                assert_eq!(
                    found.unwrap(),
                    pattern(t * 1000 + i, 1000 + (i as usize * 9973) % 300_000)
                );
            }
        }
    }
}
