//! A replica that keeps snapshots which the room has deleted.

use std::path::PathBuf;

use crate::common::{Place, credential, pattern, sound};
use room::{NewSnapshot, OpenOptions, Room, SendRequest, Snapshots as _, Timestamp};

struct Pair {
    place: Place,
    room: Room,
}

impl Pair {
    fn new() -> Self {
        let place = Place::new();
        let room = place.create();
        Self { place, room }
    }

    fn target(&self) -> PathBuf {
        self.place.dir.path().join("replica")
    }

    fn options(&self, read_only: bool) -> OpenOptions {
        OpenOptions {
            read_only,
            background: false,
            ..self.place.options()
        }
    }

    /// Writes the file and takes a snapshot; when that was.
    fn snapshot(&self, name: &str, data: &[u8]) -> Timestamp {
        self.room.write_file("/file", data).unwrap();
        let new = NewSnapshot::default();
        let created = self.room.create_snapshot(name, new).unwrap().created;
        // The next one is younger.
        while room::now() <= created {
            std::thread::yield_now();
        }
        created
    }

    fn replicate(&self, since: Option<&str>, to: &str, keep_since: Option<Timestamp>) {
        let request = SendRequest {
            to: to.into(),
            since: since.map(Into::into),
            keep_since,
            ..SendRequest::default()
        };
        let mut out = Vec::new();
        self.room.send(&request, &mut out, &|_, _| true).unwrap();
        let options = self.options(false);
        room::receive(&self.target(), &mut &out[..], &options, &|_, _| true).unwrap();
    }

    fn delete(&self, name: &str) {
        self.room.delete_snapshot(name).unwrap();
        self.room.tend().unwrap();
    }

    fn apply(&self) {
        Room::settle_replica(&self.target(), &credential(), self.options(false)).unwrap();
    }

    /// The replica's snapshots, and what the file is in each.
    fn holds(&self, expected: &[(&str, &[u8])]) {
        let replica = Room::open(&self.target(), &credential(), self.options(true)).unwrap();
        let names = replica.snapshots().unwrap().into_iter();
        let names: Vec<String> = names.map(|snapshot| snapshot.name).collect();
        let there: Vec<&str> = expected.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, there);
        for (name, data) in expected {
            let snapshot = replica.snapshot(name).unwrap();
            let no = room::resolve(&*snapshot, "/file".as_ref(), true)
                .unwrap()
                .no;
            let mut found = vec![0; data.len()];
            assert_eq!(snapshot.read(no, 0, &mut found).unwrap(), data.len());
            assert!(found == *data, "{name}");
        }
        sound(&replica);
    }
}

#[test]
fn snapshots_that_the_room_deletes_stay_until_their_time() {
    let pair = Pair::new();
    let data: Vec<_> = (1..6).map(|n| pattern(n, 300_000)).collect();
    pair.snapshot("monday", &data[0]);
    pair.replicate(None, "monday", Some(Timestamp::default()));
    let tuesday = pair.snapshot("tuesday", &data[1]);
    pair.replicate(Some("monday"), "tuesday", Some(Timestamp::default()));
    pair.delete("monday");
    pair.snapshot("wednesday", &data[2]);
    pair.replicate(Some("tuesday"), "wednesday", Some(Timestamp::default()));
    let all: [(&str, &[u8]); 3] = [
        ("monday", &data[0]),
        ("tuesday", &data[1]),
        ("wednesday", &data[2]),
    ];
    pair.holds(&all);
    pair.apply();
    pair.holds(&all);
    // Tuesday is as old as may be, and monday older.
    pair.delete("tuesday");
    pair.snapshot("thursday", &data[3]);
    pair.replicate(Some("wednesday"), "thursday", Some(tuesday));
    let later: [(&str, &[u8]); 3] = [
        ("tuesday", &data[1]),
        ("wednesday", &data[2]),
        ("thursday", &data[3]),
    ];
    pair.holds(&later);
    pair.apply();
    pair.holds(&later);
    // Without the option the replica has what the room has.
    pair.snapshot("friday", &data[4]);
    pair.replicate(Some("thursday"), "friday", None);
    pair.apply();
    pair.holds(&[
        ("wednesday", &data[2]),
        ("thursday", &data[3]),
        ("friday", &data[4]),
    ]);
}

#[test]
fn a_snapshot_that_stays_gives_its_name_to_a_new_one() {
    let pair = Pair::new();
    let data: Vec<_> = (1..5).map(|n| pattern(n, 100_000)).collect();
    let keep = Some(Timestamp::default());
    pair.snapshot("daily", &data[0]);
    pair.snapshot("daily-1", &data[1]);
    pair.replicate(None, "daily-1", keep);
    pair.delete("daily");
    pair.snapshot("daily", &data[2]);
    pair.replicate(Some("daily-1"), "daily", keep);
    let all: [(&str, &[u8]); 3] = [
        ("daily-1-", &data[0]),
        ("daily-1", &data[1]),
        ("daily", &data[2]),
    ];
    pair.holds(&all);
    pair.apply();
    pair.holds(&all);
}
