//! A replica that keeps snapshots which the room has deleted.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::common::{Place, credential, pattern, sound};
use room::{
    FileSystem as _, Keep, NewSnapshot, OpenOptions, Room, SendRequest, SnapshotPolicy,
    Snapshots as _, Timestamp,
};

fn keep_since(since: Timestamp) -> Keep {
    Keep {
        since: Some(since),
        ..Keep::default()
    }
}

struct Pair {
    place: Place,
    room: Room,
}

impl Pair {
    fn new() -> Self {
        let (place, room) = Place::with_room();
        Self { place, room }
    }

    fn target(&self) -> PathBuf {
        self.place.dir.path().join("replica")
    }

    fn options(&self, read_only: bool) -> OpenOptions {
        OpenOptions {
            read_only,
            ..self.place.options_without_thread()
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

    fn replicate(&self, since: Option<&str>, to: &str, keep: Keep) {
        let request = SendRequest {
            to: to.into(),
            since: since.map(Into::into),
            keep,
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
    pair.replicate(None, "monday", keep_since(Timestamp::default()));
    let tuesday = pair.snapshot("tuesday", &data[1]);
    pair.replicate(Some("monday"), "tuesday", keep_since(Timestamp::default()));
    pair.delete("monday");
    pair.snapshot("wednesday", &data[2]);
    pair.replicate(
        Some("tuesday"),
        "wednesday",
        keep_since(Timestamp::default()),
    );
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
    pair.replicate(Some("wednesday"), "thursday", keep_since(tuesday));
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
    pair.replicate(Some("thursday"), "friday", Keep::default());
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
    let keep = keep_since(Timestamp::default());
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

/// The moments that are the newest of one of the last `count` periods of `hours` from Monday.
fn newest_of_each(moments: &BTreeSet<i64>, count: usize, hours: i64) -> BTreeSet<i64> {
    let mut newest = BTreeSet::new();
    let mut periods = BTreeSet::new();
    for hour in moments.iter().rev() {
        let is_first = !periods.contains(&(hour / hours));
        if is_first && periods.len() < count {
            periods.insert(hour / hours);
            newest.insert(*hour);
        }
    }
    newest
}

#[test]
fn of_what_the_room_deletes_the_newest_of_each_period_stays() {
    const MONDAY: i64 = 4 * 24 * 3600;
    static HOUR: AtomicI64 = AtomicI64::new(0);
    let at = |hour: i64| Timestamp::new(MONDAY + hour * 3600, 0);
    let pair = Pair::new();
    pair.room.stamp_by(|| {
        Some(Timestamp::new(
            MONDAY + HOUR.load(Ordering::SeqCst) * 3600,
            0,
        ))
    });
    let name = |hour: i64| format!("hour-{hour}");
    let data = |hour: i64| pattern(hour as u64, 5000);
    let mut there = BTreeSet::new();
    let mut before: Option<i64> = None;
    // Not every hour has one, and there is a week without any.
    let hours = (0..360).step_by(5).chain((540..780).step_by(5));
    for (nth, hour) in hours.enumerate() {
        HOUR.store(hour, Ordering::SeqCst);
        pair.room.write_file("/file", &data(hour)).unwrap();
        // To a replica it does not matter who made one.
        let automatic = nth % 3 == 0;
        let new = NewSnapshot { automatic };
        pair.room.create_snapshot(&name(hour), new).unwrap();
        let keep = Keep {
            // In the middle, what is young stays besides.
            since: (nth % 50 > 40).then(|| at(hour - 30)),
            periods: Some(SnapshotPolicy {
                hourly: 3,
                daily: 4,
                weekly: 3,
                min_free_percent: 0,
            }),
        };
        pair.replicate(before.map(name).as_deref(), &name(hour), keep);
        there.insert(hour);
        let mut stays = newest_of_each(&there, 3, 1);
        stays.extend(newest_of_each(&there, 4, 24));
        stays.extend(newest_of_each(&there, 3, 24 * 7));
        if keep.since.is_some() {
            stays.extend(there.range(hour - 30..));
        }
        // What the room has stays too.
        stays.extend(before);
        there = stays;
        if let Some(before) = before {
            pair.delete(&name(before));
        }
        before = Some(hour);
        if nth % 10 == 0 {
            pair.apply();
        }
        if nth % 4 == 0 {
            let expected: Vec<_> = there.iter().map(|h| (name(*h), data(*h))).collect();
            let expected: Vec<_> = expected.iter().map(|(n, d)| (&n[..], &d[..])).collect();
            pair.holds(&expected);
        }
    }
}
