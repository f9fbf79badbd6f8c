//! Snapshots against whole copies of a model, under random operations, deletions, compactions, openings and crashes.
//! Failures print the seed; `STRONGROOM_MODEL_SEED` runs one seed alone, `STRONGROOM_MODEL_STEPS` sets the length.

use std::collections::BTreeMap;

use crate::common::model::{ALL, Model, PLAIN, compare, step, with_seeds};
use crate::common::{Place, copy_tree, credential, sound};
use fastrand::Rng;
use room::{Error, FileSystem as _, InodeNo, NewSnapshot, Room, SetAttr, Snapshots as _};

const SNAPSHOTS_MAX: usize = 7;

/// A room and its snapshots.
#[derive(Clone, Default)]
struct World {
    now: Model,
    past: BTreeMap<String, Model>,
}

/// What is deleted goes only when the test says so: a copy of the directory is one moment.
fn open(place: &Place) -> Room {
    let mut options = place.options();
    options.background = false;
    Room::open(&place.room_dir(), &credential(), options).unwrap()
}

fn compare_all(room: &Room, world: &World) {
    compare(room, &world.now);
    let listed = room.snapshots().unwrap();
    let mut names: Vec<_> = listed.iter().map(|s| s.name.clone()).collect();
    names.sort();
    assert_eq!(names, world.past.keys().cloned().collect::<Vec<_>>());
    for (name, model) in &world.past {
        compare(&*room.snapshot(name).unwrap(), model);
    }
}

fn pick(world: &World, r: &mut Rng) -> Option<String> {
    let n = world.past.len() as u64;
    (n > 0).then(|| world.past.keys().nth(r.u64(..n) as usize).unwrap().clone())
}

/// Cuts a file, and appends to it what a file has in a snapshot, as far as blocks can be shared.
fn share(
    room: &Room,
    name: &str,
    (then, now): (&[u8], &mut Vec<u8>),
    (from, to): (InodeNo, InodeNo),
    r: &mut Rng,
) -> String {
    let offset = r.u64(..3) << 20;
    let len = match r.u64(..3) {
        0 => r.u64(..3) << 20,
        1 => r.u64(..3_000_000),
        _ => u64::MAX >> 1,
    };
    let size = r.u64(..offset + 1).min(now.len() as u64);
    room.set_attributes(to, &SetAttr::size(size)).unwrap();
    now.truncate(size as usize);
    let snapshots = room.snapshots().unwrap();
    let number = snapshots.iter().find(|s| s.name == name).unwrap().number;
    let rest = (then.len() as u64).saturating_sub(offset).min(len);
    match room.share_from_snapshot(number, from, to, offset, len) {
        Ok(done) => {
            let all_but_part = if offset + rest == then.len() as u64 {
                rest
            } else {
                rest >> 20 << 20
            };
            assert_eq!(done, all_but_part);
            let (at, end) = (offset as usize, (offset + done) as usize);
            if done > 0 {
                now.resize(end, 0);
                now[at..].copy_from_slice(&then[at..end]);
            }
        }
        Err(Error::NotSupported(_)) => assert!(rest < 1 << 20, "{offset}, {len}"),
        Err(e) => panic!("{e}"),
    }
    format!("{offset}, {len}")
}

fn run(seed: u64, steps: u64, kinds: &[u64]) {
    let mut r = Rng::with_seed(seed);
    let mut place = Place::new();
    place.create().close().unwrap();
    let mut room = open(&place);
    let mut world = World::default();
    let mut durable = world.clone();
    let mut story = Vec::new();
    for at in 0..steps {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let line = step(&room, &mut world.now, &mut r, kinds);
            story.push(line);
            if std::env::var("STRONGROOM_MODEL_CHECK").is_ok() {
                sound(&room);
                durable = world.clone();
            }
            match r.u64(..60) {
                0..6 if world.past.len() < SNAPSHOTS_MAX => {
                    let name = format!("s{at}");
                    room.create_snapshot(&name, NewSnapshot::default()).unwrap();
                    world.past.insert(name.clone(), world.now.clone());
                    durable = world.clone();
                    story.push(format!("snapshot {name}"));
                }
                6..9 => {
                    if let Some(name) = pick(&world, &mut r) {
                        story.push(format!("delete {name}"));
                        if kinds.len() < ALL.len() && r.bool() {
                            // What is deleted alone frees what was said.
                            room.tend().unwrap();
                            let all = room.snapshot_space().unwrap();
                            let own = all.iter().find(|(s, _)| s.name == name).unwrap().1;
                            let before = room.space().unwrap().live;
                            room.delete_snapshot(&name).unwrap();
                            room.tend().unwrap();
                            let freed = before - room.space().unwrap().live;
                            assert_eq!(freed, own.exclusive, "{name}");
                            story.push("tend".into());
                        } else {
                            room.delete_snapshot(&name).unwrap();
                        }
                        world.past.remove(&name);
                        durable = world.clone();
                    }
                }
                9 => {
                    if let Some(name) = pick(&world, &mut r) {
                        let to = format!("r{at}");
                        room.rename_snapshot(&name, &to).unwrap();
                        let model = world.past.remove(&name).unwrap();
                        world.past.insert(to, model);
                        durable = world.clone();
                        story.push(format!("rename {name}"));
                    }
                }
                10 | 11 => {
                    room.tend().unwrap();
                    durable = world.clone();
                    story.push("tend".into());
                }
                12 => {
                    room.compact(100, &|_, _| true).unwrap();
                    durable = world.clone();
                    story.push("compact".into());
                }
                13 => {
                    room.sync().unwrap();
                    durable = world.clone();
                    story.push("sync".into());
                }
                14 | 15 => {
                    sound(&room);
                    // It commits.
                    durable = world.clone();
                    story.push("check".into());
                }
                16 | 17 => compare_all(&room, &world),
                18..22 if kinds.len() == ALL.len() => {
                    // A file of a snapshot comes back, in the place of any file.
                    let Some(name) = pick(&world, &mut r) else {
                        return;
                    };
                    let past = &world.past[&name];
                    let files: Vec<_> = past.names.iter().collect();
                    let names: Vec<_> = world.now.names.iter().collect();
                    if files.is_empty() || names.is_empty() {
                        return;
                    }
                    let (source, i) = files[r.usize(..files.len())];
                    let (target, j) = names[r.usize(..names.len())];
                    let view = room.snapshot(&name).unwrap();
                    let from = view.lookup(InodeNo::ROOT, source.as_bytes()).unwrap().no;
                    let to = room.lookup(InodeNo::ROOT, target.as_bytes()).unwrap().no;
                    if r.bool() {
                        let what = share(
                            &room,
                            &name,
                            (&past.contents[*i], &mut world.now.contents[*j]),
                            (from, to),
                            &mut r,
                        );
                        story.push(format!(
                            "share {name} {source} {from:?} to {target} {to:?}: {what}"
                        ));
                        return;
                    }
                    room.copy_from_snapshot(&name, from, to).unwrap();
                    story.push(format!(
                        "restore {name} {source} {from:?} to {target} {to:?}"
                    ));
                    world.now.contents[*j] = past.contents[*i].clone();
                }
                _ => {}
            }
        }));
        if let Err(e) = done {
            eprintln!(
                "seed {seed}, step {at}; before it: {:#?}",
                &story[story.len().saturating_sub(30)..]
            );
            std::panic::resume_unwind(e);
        }
        match r.u64(..80) {
            0 => {
                room.close().unwrap();
                room = open(&place);
                durable = world.clone();
                story.push("close and open".into());
            }
            1 => {
                let crashed = Place::new();
                copy_tree(&place.room_dir(), &crashed.room_dir());
                drop(room);
                place = crashed;
                room = open(&place);
                world = durable.clone();
                story.push("crash".into());
            }
            _ => {}
        }
    }
    compare_all(&room, &world);
    sound(&room);
    for name in world.now.names.keys() {
        room.unlink(InodeNo::ROOT, name.as_bytes()).unwrap();
    }
    room.tend().unwrap();
    sound(&room);
    for (name, model) in &world.past {
        compare(&*room.snapshot(name).unwrap(), model);
    }
    while let Some(name) = pick(&world, &mut r) {
        room.delete_snapshot(&name).unwrap();
        world.past.remove(&name);
    }
    room.close().unwrap();
    let room = open(&place);
    room.tend().unwrap();
    sound(&room);
    assert_eq!(
        (
            room.space().unwrap().live,
            room.held_by_snapshots().unwrap()
        ),
        (0, 0),
        "seed {seed}: space is lost after everything was deleted"
    );
}

fn runs(kinds: &[u64]) {
    with_seeds(4, 300, |seed, steps| run(seed, steps, kinds));
}

#[test]
fn snapshots_see_what_whole_copies_do() {
    runs(&ALL);
}

#[test]
fn a_deleted_snapshot_frees_what_it_held_alone() {
    runs(&PLAIN);
}
