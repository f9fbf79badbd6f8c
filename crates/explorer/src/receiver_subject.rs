//! A replica that receives: the streams come from a room in which a workload of the family `snapshots` ran. Each stream is a step, and
//! so is applying them for good. Of one workload in three the stream of the whole room is a step too.
//!
//! 1. A replica is equal to its room at that snapshot, whatever the explorer then compares crashes with.
//! 2. Every other workload sends only once, at its end: what came and went meanwhile is in deleted snapshots or nowhere.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use room::{NewSnapshot, ReplicaStatus, Room, SendRequest, Snapshots as _};
use storage::Storage;

use crate::explore::{Failure, Subject};
use crate::image::Image;
use crate::opening::{credential, options};
use crate::record::Recorder;
use crate::snapshot::Snapshot;
use crate::workload::{Session, Step, Workload, is_refusal, snapshots};

/// The receiver of what a workload leads to.
#[derive(Debug)]
pub struct ReceiverSubject {
    workload: Workload,
    every_snapshot: bool,
    from_nothing: bool,
    prepared: OnceLock<Result<Prepared, Failure>>,
}

#[derive(Debug)]
struct Prepared {
    /// The replica before the first step.
    start: Image,
    streams: Vec<Vec<u8>>,
    /// The replica after the last step.
    end: Snapshot,
}

fn said(e: room::Error) -> Failure {
    Failure(e.to_string())
}

/// The workloads whose rooms can be sent from: those that keep their keys.
pub fn receiving() -> Vec<Workload> {
    let mut all = Vec::new();
    for mut workload in snapshots() {
        if workload
            .steps
            .iter()
            .any(|step| matches!(step, Step::Rekey(_)))
        {
            continue;
        }
        workload.name = format!("receiving:{}", all.len());
        all.push(workload);
    }
    all
}

impl ReceiverSubject {
    /// The receiver of the workload of a number.
    pub fn new(number: usize, workload: Workload) -> Self {
        Self {
            workload,
            every_snapshot: number.is_multiple_of(2),
            from_nothing: number.is_multiple_of(3),
            prepared: OnceLock::new(),
        }
    }

    /// The one of a name: `receiving:N`.
    pub fn named(name: &str) -> Option<Self> {
        let number = name.strip_prefix("receiving:")?.parse().ok()?;
        let workload = receiving().into_iter().nth(number)?;
        Some(Self::new(number, workload))
    }

    fn prepared(&self) -> Result<&Prepared, Failure> {
        let prepared = self.prepared.get_or_init(|| self.prepare());
        prepared.as_ref().map_err(Clone::clone)
    }

    fn prepare(&self) -> Result<Prepared, Failure> {
        let source = Recorder::unlogged(&self.workload.start.image()?);
        let mut session = Session::open(source.storage()).map_err(said)?;
        session.back_up_to(Recorder::unlogged(&Image::new()).storage());
        let replica = Recorder::unlogged(&Image::new());
        // By number: a name can be another snapshot's later.
        let mut last = create(&session, "base")?;
        let nothing = replica.image();
        let whole = stream(&session, None, "base")?;
        receive(&replica, &whole)?;
        let (start, mut streams) = match self.from_nothing {
            true => (nothing, vec![whole]),
            false => (replica.image(), Vec::new()),
        };
        let mut put = |session: &Session, since: &str, to: &str| {
            let stream = stream(session, Some(since), to)?;
            receive(&replica, &stream)?;
            same(session, to, &open(&replica.storage()).map_err(said)?)?;
            streams.push(stream);
            Ok(())
        };
        for (number, step) in (1..).zip(&self.workload.steps) {
            match session.step(number, step) {
                Err(e) if !is_refusal(&e) => return Err(said(e)),
                _ => {}
            }
            let there = all(&session)?;
            let newest = there.iter().max_by_key(|s| s.number);
            let since = there.iter().find(|s| s.number == last);
            if let (true, Some(since), Some(newest)) = (self.every_snapshot, since, newest)
                && newest.number > last
            {
                put(&session, &since.name, &newest.name)?;
                last = newest.number;
            }
        }
        if let Some(since) = all(&session)?.iter().find(|s| s.number == last) {
            create(&session, "end")?;
            put(&session, &since.name, "end")?;
        }
        settle(&replica.storage())?;
        let end = look(&replica.storage())?;
        Ok(Prepared {
            start,
            streams,
            end,
        })
    }
}

fn room(session: &Session) -> Result<&Room, Failure> {
    session
        .room()
        .ok_or_else(|| Failure("the room is closed".into()))
}

fn create(session: &Session, name: &str) -> Result<u64, Failure> {
    let new = NewSnapshot { automatic: false };
    let created = room(session)?.create_snapshot(name, new);
    Ok(created.map_err(said)?.number)
}

fn all(session: &Session) -> Result<Vec<room::Snapshot>, Failure> {
    room(session)?.snapshots().map_err(said)
}

fn stream(session: &Session, since: Option<&str>, to: &str) -> Result<Vec<u8>, Failure> {
    let request = SendRequest {
        to: to.into(),
        since: since.map(Into::into),
        ..SendRequest::default()
    };
    let scratch = Recorder::unlogged(&Image::new()).storage();
    let mut stream = Vec::new();
    let sent = room(session)?.send_through(&request, &scratch, &mut stream, &|_, _| true);
    sent.map_err(said)?;
    Ok(stream)
}

fn receive(replica: &Recorder, stream: &[u8]) -> Result<(), Failure> {
    let received = room::receive_on(&*replica.storage(), &mut &stream[..], &|_, _| true);
    received.map(drop).map_err(said)
}

fn open(storage: &Arc<dyn Storage>) -> room::Result<Room> {
    Room::open_on(storage.clone(), &credential(0), options().for_reading())
}

/// Compares what the replica is with the room's snapshot.
fn same(session: &Session, name: &str, replica: &Room) -> Result<(), Failure> {
    let of_snapshot = |seen: Snapshot| {
        let prefix = format!("@{name}");
        let mut seen = seen.timeless();
        seen.keys.clear();
        seen.tree.retain(|path, _| {
            path.strip_prefix(&*prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        seen
    };
    let there = of_snapshot(Snapshot::of(room(session)?).map_err(said)?);
    let here = of_snapshot(Snapshot::of(replica).map_err(said)?);
    match there == here && !here.tree.is_empty() {
        true => Ok(()),
        false => Err(Failure(format!(
            "the replica is not snapshot {name}:\n{}",
            there.differences(&here).join("\n")
        ))),
    }
}

/// Opens a replica and looks at all of it; empty, where there is none yet.
fn look(storage: &Arc<dyn Storage>) -> Result<Snapshot, Failure> {
    if is_nothing(storage)? {
        return Ok(Snapshot::default());
    }
    let replica = open(storage).map_err(said)?;
    let report = replica.check(true, false, &|_, _| true).map_err(said)?;
    if !report.findings.is_empty() || !report.lost.is_empty() {
        return Err(Failure(format!("{:?} {:?}", report.findings, report.lost)));
    }
    Snapshot::of(&replica).map_err(said)
}

fn is_nothing(storage: &Arc<dyn Storage>) -> Result<bool, Failure> {
    let status = ReplicaStatus::of_storage(&**storage, Path::new(""));
    Ok(status.map_err(said)?.moment.is_none())
}

fn settle(storage: &Arc<dyn Storage>) -> Result<(), Failure> {
    Room::settle_replica_on(storage.clone(), &credential(0), options()).map_err(said)
}

impl Subject for ReceiverSubject {
    type State = Snapshot;

    fn name(&self) -> String {
        self.workload.name.clone()
    }

    fn steps(&self) -> Vec<String> {
        let streams = self.prepared().map_or(0, |prepared| prepared.streams.len());
        let receive = (1..=streams).map(|nth| format!("receive {nth}"));
        receive.chain(["settle".into()]).collect()
    }

    fn start(&self) -> Result<Image, Failure> {
        Ok(self.prepared()?.start.clone())
    }

    fn run(&self, recorder: &Recorder) -> Result<Vec<Arc<Snapshot>>, Failure> {
        let prepared = self.prepared()?;
        let now = || {
            let storage = Recorder::unlogged(&recorder.image()).storage();
            if is_nothing(&storage)? {
                return Ok(Arc::default());
            }
            let seen = open(&storage).and_then(|replica| Snapshot::of(&replica));
            seen.map(Arc::new).map_err(said)
        };
        let mut seen = vec![now()?];
        for (step, stream) in (1..).zip(&prepared.streams) {
            recorder.begun(step);
            receive(recorder, stream)?;
            recorder.did(step);
            recorder.durable(step);
            seen.push(now()?);
        }
        let step = prepared.streams.len() + 1;
        recorder.begun(step);
        settle(&recorder.storage())?;
        recorder.did(step);
        recorder.durable(step);
        seen.push(now()?);
        Ok(seen)
    }

    fn verify(
        &self,
        storage: Arc<dyn Storage>,
        allowed: &[Arc<Snapshot>],
        thorough: bool,
    ) -> Result<usize, Failure> {
        let found = look(&storage)?;
        let Some(which) = allowed.iter().rposition(|state| state.agrees_with(&found)) else {
            let newest = allowed.last().map(|state| state.differences(&found));
            return Err(Failure(newest.unwrap_or_default().join("\n")));
        };
        if !thorough {
            return Ok(which);
        }
        let prepared = self.prepared()?;
        // It goes on: those that it has are refused, the others bring it to the last moment.
        for stream in &prepared.streams {
            let _ = room::receive_on(&*storage, &mut &stream[..], &|_, _| true);
        }
        settle(&storage)?;
        let end = look(&storage)?;
        match prepared.end.agrees_with(&end) {
            true => Ok(which),
            false => Err(Failure(format!(
                "it does not come to the last moment:\n{}",
                prepared.end.differences(&end).join("\n")
            ))),
        }
    }

    fn recover(&self, storage: Arc<dyn Storage>) -> Result<(), Failure> {
        if is_nothing(&storage)? {
            return Ok(());
        }
        settle(&storage)
    }
}
