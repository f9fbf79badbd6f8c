//! Answers to clients are in the commit that contains what they answer.

use crate::common::{Place, credential, sound};
use room::{
    CachedReply, ClientKey, Error, FileKind, FileSystem as _, InodeNo, NewFile, OperationId,
    Progress, Room,
};

const GO: Progress<'static> = &|_, _| true;
const CLIENT: ClientKey = ClientKey([7; 32]);

fn id(slot: u32, sequence: u64) -> OperationId {
    OperationId {
        client: CLIENT,
        slot,
        sequence,
    }
}

fn make(room: &Room, id: OperationId, name: &str) -> room::Result<InodeNo> {
    let new = NewFile::of_kind(FileKind::Regular);
    room.answering(
        &id,
        || Ok(room.make(InodeNo::ROOT, name.as_bytes(), &new)?.no),
        |no| no.0.to_le_bytes().to_vec(),
    )
}

fn answer(slot: u32, sequence: u64, no: InodeNo) -> CachedReply {
    CachedReply {
        slot,
        sequence,
        answer: no.0.to_le_bytes().to_vec(),
    }
}

#[test]
fn a_crash_leaves_an_operation_with_its_answer_or_neither() {
    let (place, room) = Place::with_room();
    let kept = make(&room, id(0, 1), "kept").unwrap();
    room.sync().unwrap();
    make(&room, id(0, 2), "lost").unwrap();
    make(&room, id(1, 1), "lost too").unwrap();
    // What failed has no answer, and the slot keeps the one it had.
    assert!(matches!(make(&room, id(2, 1), "kept"), Err(Error::Exists)));
    room.fail_for_test();
    drop(room);
    let room = place.open();
    assert_eq!(room.answers(CLIENT).unwrap(), [answer(0, 1, kept)]);
    for lost in ["lost", "lost too"] {
        let found = room.lookup(InodeNo::ROOT, lost.as_bytes());
        assert!(matches!(found, Err(Error::NotFound)));
    }
    assert_eq!(room.lookup(InodeNo::ROOT, b"kept").unwrap().no, kept);
}

#[test]
fn answers_are_in_backups_and_outlive_a_rekey_until_they_are_forgotten() {
    let (place, room) = Place::with_room();
    let first = make(&room, id(0, 1), "first").unwrap();
    let second = make(&room, id(63, 9), "second").unwrap();
    let answers = [answer(0, 1, first), answer(63, 9, second)];
    let target = place.dir.path().join("backup");
    room.backup(&target, GO).unwrap();
    assert!(room.rekey(&credential(), GO).unwrap().finished);
    assert_eq!(room.answers(CLIENT).unwrap(), answers);
    sound(&room);
    let room = place.reopen(room);
    assert_eq!(room.answers(CLIENT).unwrap(), answers);
    assert_eq!(room.answered_clients().unwrap(), [CLIENT]);
    room.forget_answers(CLIENT).unwrap();
    room.close().unwrap();
    assert!(place.open().answered_clients().unwrap().is_empty());
    let mut options = place.options();
    options.state_dir = Some(place.dir.path().join("elsewhere"));
    let copy = Room::open(&target, &credential(), options).unwrap();
    assert_eq!(copy.answers(CLIENT).unwrap(), answers);
}

#[test]
fn operations_that_are_answered_and_commits_do_not_wait_for_each_other() {
    let (_place, room) = Place::with_room();
    std::thread::scope(|scope| {
        for slot in 0..4 {
            let room = &room;
            scope.spawn(move || {
                for sequence in 1..=50 {
                    make(room, id(slot, sequence), &format!("{slot} {sequence}")).unwrap();
                    room.sync().unwrap();
                }
            });
        }
    });
    let answers = room.answers(CLIENT).unwrap();
    let newest: Vec<_> = answers.iter().map(|a| (a.slot, a.sequence)).collect();
    assert_eq!(newest, [(0, 50), (1, 50), (2, 50), (3, 50)]);
}
