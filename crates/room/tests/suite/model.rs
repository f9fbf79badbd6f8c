//! The room against a plain model in memory, under random operations, with crashes and openings in between.
//! Failures print the seed; `STRONGROOM_MODEL_SEED` runs one seed alone, `STRONGROOM_MODEL_STEPS` sets the length.

use crate::common::model::{ALL, Model, compare, step, with_seeds};
use crate::common::{Place, copy_tree};
use fastrand::Rng;
use room::{FileSystem as _, InodeNo};

fn run(seed: u64, steps: u64) {
    let mut r = Rng::with_seed(seed);
    let mut place = Place::new();
    let mut room = place.create();
    let mut model = Model::default();
    let mut durable = model.clone();
    let mut story = Vec::new();
    for at in 0..steps {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            step(&room, &mut model, &mut r, &ALL)
        }));
        match done {
            Ok(line) => story.push(line),
            Err(e) => {
                eprintln!(
                    "seed {seed}, step {at}; before it: {:#?}",
                    &story[story.len().saturating_sub(12)..]
                );
                std::panic::resume_unwind(e);
            }
        }
        match r.u64(..40) {
            0 => {
                room.sync().unwrap();
                durable = model.clone();
                story.push("sync".into());
            }
            1 => {
                room.close().unwrap();
                room = place.open();
                durable = model.clone();
                story.push("close and open".into());
            }
            2 => {
                let crashed = Place::new();
                copy_tree(&place.room_dir(), &crashed.room_dir());
                drop(room);
                place = crashed;
                room = place.open();
                model = durable.clone();
                story.push("crash".into());
            }
            3 => {
                let same = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    compare(&room, &model)
                }));
                if let Err(e) = same {
                    eprintln!(
                        "seed {seed}, after step {at}: {:#?}",
                        &story[story.len().saturating_sub(20)..]
                    );
                    std::panic::resume_unwind(e);
                }
            }
            _ => {}
        }
    }
    compare(&room, &model);
    for name in model.names.keys() {
        room.unlink(InodeNo::ROOT, name.as_bytes()).unwrap();
    }
    let room = place.reopen(room);
    assert_eq!(
        room.space().unwrap().live,
        0,
        "seed {seed}: space is lost after everything was deleted"
    );
}

#[test]
fn a_room_behaves_as_a_plain_model_under_random_operations() {
    with_seeds(6, 400, run);
}
