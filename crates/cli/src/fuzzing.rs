//! What the fuzz targets for the control socket try, and what must hold whatever is sent.
//!
//! 1. A request that is read is written, read again and written again the same; nothing that is read is lost.
//! 2. Neither a refusal nor a log line of a request depends on a secret in it.
//! 3. An answer is read to its end or refused, whatever the process at the other end sends.

use std::sync::atomic::{AtomicUsize, Ordering};

use room::Secret;

use crate::control::client::{receive, unasked};
use crate::control::{Answer, Line, Reply, Request, WireError, encode_line, parse_request};
use crate::credentials::{HexSecret, NewGiven};
use crate::hex::{path_from_hex, path_to_hex};

#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;

/// A line that a client sends to the process that serves a mount.
pub fn request(bytes: &[u8]) {
    let request = match parse_request(bytes) {
        Ok(request) => request,
        Err(WireError::TooLong) => return assert!(bytes.len() > crate::control::REQUEST_LINE_MAX),
        Err(WireError::NotARequest(place)) => {
            let words = place.trim_start_matches("column ");
            let words = words.trim_start_matches(|c: char| c.is_ascii_digit());
            let known = [": Syntax error", ": Data error", ": Eof error"];
            return assert!(known.contains(&words), "{place}");
        }
    };
    let line = encode_line(&request);
    let (newline, text) = line.split_last().expect("a line has an end");
    assert!(*newline == b'\n' && !text.contains(newline));
    let again = parse_request(text).expect("what is written can be read");
    assert!(*encode_line(&again) == *line, "one request, two writings");

    let printed = format!("{request:?}");
    assert_eq!(printed, format!("{again:?}"));
    if let Request::Backup { target } = &request
        && let Ok(path) = path_from_hex(target)
    {
        assert_eq!(path_to_hex(&path), target.to_ascii_lowercase());
    }
    assert_eq!(printed, format!("{:?}", with_other_secrets(request)));
}

fn with_other_secrets(mut request: Request) -> Request {
    let other = |secret: &mut HexSecret| *secret = HexSecret(Secret::from("another secret"));
    let (with, new) = match &mut request {
        Request::AddSlot { with, new, .. } | Request::ChangeSlot { with, new, .. } => {
            (Some(with), Some(new))
        }
        Request::RemoveSlot { with, .. }
        | Request::HeaderBackup { with }
        | Request::Rekey { with, .. } => (Some(with), None),
        Request::Status {}
        | Request::Info {}
        | Request::Space {}
        | Request::Sync {}
        | Request::Slots {}
        | Request::Check { .. }
        | Request::Compact { .. }
        | Request::Backup { .. }
        | Request::CreateSnapshot { .. }
        | Request::SnapshotBeforeRestore {}
        | Request::SnapshotDuringRestore {}
        | Request::Snapshots {}
        | Request::RenameSnapshot { .. }
        | Request::DeleteSnapshot { .. }
        | Request::DiffSnapshots { .. }
        | Request::Removed { .. }
        | Request::SnapshotPolicy {}
        | Request::SetSnapshotPolicy { .. }
        | Request::PruneSnapshots { .. }
        | Request::SnapshotOfMoment { .. }
        | Request::Send { .. }
        | Request::AwaitClose {}
        | Request::Detached {} => (None, None),
    };
    if let Some(with) = with {
        other(&mut with.secret);
        with.key_file.iter_mut().for_each(other);
    }
    match new {
        Some(
            NewGiven::Passphrase { secret, .. }
            | NewGiven::KeyFile { secret, .. }
            | NewGiven::RawKey { secret },
        ) => other(secret),
        Some(NewGiven::PassphraseAndKeyFile {
            passphrase,
            key_file,
            ..
        }) => {
            other(passphrase);
            other(key_file);
        }
        Some(NewGiven::Recipients { .. }) | None => {}
    }
    request
}

/// All that a process sends to a client that has asked it something: lines of progress, an answer, or anything else.
pub fn answer(bytes: &[u8]) {
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    let reported = AtomicUsize::new(0);
    let reply = receive(
        bytes,
        &|_, _| {
            reported.fetch_add(1, Ordering::Relaxed);
            true
        },
        &unasked,
    );
    let reported = reported.into_inner();
    assert!(reported <= lines);
    if reported > 0 {
        let stopped = receive(bytes, &|_, _| false, &unasked).map_err(|error| error.exit());
        assert!(matches!(stopped, Err(crate::Exit::Interrupted)));
    }
    let Ok(reply) = reply else {
        return;
    };
    assert!(reported < lines, "an answer is a line of its own");
    if let Reply::Slots(slots) = &reply {
        for slot in slots {
            assert!(!crate::commands::key::people(slot).is_empty());
        }
    }
    let line = encode_line(&Line::Answer(Answer::Done(reply)));
    let again = receive(&**line, &|_, _| false, &unasked).expect("what is written can be read");
    let again = encode_line(&Line::Answer(Answer::Done(again)));
    assert!(*again == *line, "one answer, two writings");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{
        BackupReply, ChangeReply, CheckReply, CompactReply, InfoReply, LostReply, REQUEST_LINE_MAX,
        RekeyReply, RemovedReply, SlotReply, SnapshotReply, SnapshotsReply, SpaceReply,
    };
    use crate::credentials::{Given, GivenKind};

    #[test]
    fn every_request_of_the_corpus_keeps_the_promises() {
        corpus::each("request", request);
    }

    #[test]
    fn every_answer_of_the_corpus_keeps_the_promises() {
        corpus::each("answer", answer);
    }

    #[test]
    fn a_request_line_that_is_too_long_is_refused_unread() {
        let line = vec![b' '; REQUEST_LINE_MAX + 1];
        assert!(matches!(parse_request(&line), Err(WireError::TooLong)));
        request(&line);
    }

    fn policy() -> room::SnapshotPolicy {
        room::SnapshotPolicy {
            hourly: 24,
            daily: 7,
            weekly: u32::MAX,
            min_free_percent: 10,
        }
    }

    #[test]
    #[ignore = "rewrites the seeds of fuzz/corpus/request"]
    fn make_requests() {
        let secret = || HexSecret(Secret::from("open sesame"));
        let with = |kind| Given::of(kind, Secret::from("open sesame"));
        let cost = Some(room::Argon2Cost::LEAST);
        let add = |new| Request::AddSlot {
            with: with(GivenKind::Passphrase),
            new,
            label: "Zo\u{eb} \"laptop\"".into(),
        };
        let recipients = vec!["age1qqqqqq".into(), "ssh-ed25519 AAAA".into()];
        let requests = [
            ("status", Request::Status {}),
            ("slots", Request::Slots {}),
            ("await-close", Request::AwaitClose {}),
            ("detached", Request::Detached {}),
            (
                "add-passphrase",
                add(NewGiven::Passphrase {
                    secret: secret(),
                    cost,
                }),
            ),
            (
                "add-key-file",
                add(NewGiven::KeyFile {
                    secret: secret(),
                    cost: None,
                }),
            ),
            ("add-raw-key", add(NewGiven::RawKey { secret: secret() })),
            ("add-recipients", add(NewGiven::Recipients { recipients })),
            (
                "remove-slot",
                Request::RemoveSlot {
                    with: with(GivenKind::KeyFile),
                    slot: 31,
                    force: true,
                },
            ),
            (
                "change-slot",
                Request::ChangeSlot {
                    with: with(GivenKind::RawKey),
                    slot: None,
                    new: NewGiven::RawKey { secret: secret() },
                },
            ),
            (
                "header-backup",
                Request::HeaderBackup {
                    with: with(GivenKind::Identity),
                },
            ),
            (
                "check",
                Request::Check {
                    read_data: true,
                    repair: false,
                },
            ),
            ("compact", Request::Compact { percent: 50 }),
            (
                "create-snapshot",
                Request::CreateSnapshot {
                    name: Some("Zo\u{eb}'s".into()),
                },
            ),
            (
                "diff-snapshots",
                Request::DiffSnapshots {
                    from: "monday".into(),
                    to: None,
                },
            ),
            ("removed", Request::Removed { since: None }),
            (
                "set-snapshot-policy",
                Request::SetSnapshotPolicy {
                    policy: Some(policy()),
                },
            ),
            ("prune-snapshots", Request::PruneSnapshots { dry_run: true }),
            (
                "backup",
                Request::Backup {
                    target: path_to_hex("/media/back\u{1b}up".as_ref()),
                },
            ),
        ];
        let mut seeds = Vec::from(requests.map(|(name, request)| {
            let line = encode_line(&request);
            (name, line[..line.len() - 1].to_vec())
        }));
        // Not requests.
        for (name, text) in [
            ("unknown-field", r#"{"op":"status","more":1}"#),
            (
                "not-hexadecimal",
                r#"{"op":"rekey","with":{"kind":"passphrase","secret":"sesame"}}"#,
            ),
            (
                "unknown-kind",
                r#"{"op":"rekey","with":{"kind":"sesame","secret":"00"}}"#,
            ),
            ("cut", r#"{"op":"rekey","with":{"kind":"#),
        ] {
            seeds.push((name, text.as_bytes().to_vec()));
        }
        corpus::replace_seeds("request", seeds);
    }

    #[test]
    #[ignore = "rewrites the seeds of fuzz/corpus/answer"]
    fn make_answers() {
        let space = SpaceReply {
            total: u64::MAX,
            free: 1 << 40,
            available: 1 << 39,
            live: 5,
            stored: 6,
            reserved: 8,
            inodes: 7,
            snapshots: 9,
        };
        let slot = |created| SlotReply {
            slot: 3,
            kind: "passphrase".into(),
            label: "Ann".into(),
            created,
            kdf_memory_kib: Some(8192),
            kdf_passes: Some(1),
            kdf_lanes: None,
            recipients: vec!["age1qqqqqq".into()],
            plugins: Vec::new(),
        };
        let snapshot = |automatic| SnapshotReply {
            number: 7,
            name: "monday".into(),
            created: (1_700_000_000, 999_999_999),
            automatic,
            exclusive: 4096,
        };
        let replies = [
            ("nothing", Reply::Nothing),
            (
                "status",
                Reply::Status {
                    transport: None,
                    pid: 4242,
                    mountpoint: path_to_hex("/mnt".as_ref()),
                    read_only: false,
                    snapshot: Some("monday".into()),
                    snapshots: Some(path_to_hex(".snapshots".as_ref())),
                    detached: false,
                },
            ),
            (
                "info",
                Reply::Info(InfoReply {
                    id: "00112233445566778899aabbccddeeff".into(),
                    format: 1,
                    suite: "aes-256-gcm".into(),
                    generation: 99,
                    key_epoch: 2,
                    rekeying: true,
                    created: 1_700_000_000,
                    slots: 2,
                    segments: 3,
                    snapshots: 4,
                    space,
                    store: None,
                }),
            ),
            ("space", Reply::Space(space)),
            (
                "slots",
                Reply::Slots(vec![slot(1_700_000_000), slot(u64::MAX)]),
            ),
            ("slot", Reply::Slot(31)),
            ("header", Reply::Header("7b7d".into())),
            (
                "check",
                Reply::Check(CheckReply {
                    findings: vec!["a finding".into()],
                    lost: vec![LostReply {
                        path: "/a/b".into(),
                        inode: 9,
                        offset: 4096,
                        length: 1,
                    }],
                    ..CheckReply::default()
                }),
            ),
            (
                "compacted",
                Reply::Compacted(CompactReply {
                    segments_rewritten: 1,
                    bytes_moved: 2,
                    bytes_given_back: 3,
                    unreadable: vec!["/a".into()],
                    stopped: true,
                }),
            ),
            (
                "backup",
                Reply::Backup(BackupReply {
                    generation: 1,
                    segments_copied: 2,
                    segments_kept: 3,
                    bytes_copied: 4,
                    problems: vec!["segment 1 is missing".into()],
                }),
            ),
            ("snapshot", Reply::Snapshot(snapshot(true))),
            (
                "snapshots",
                Reply::Snapshots(SnapshotsReply {
                    snapshots: vec![snapshot(true), snapshot(false)],
                    held: 1 << 20,
                }),
            ),
            (
                "changes",
                Reply::Changes(vec![ChangeReply {
                    change: "renamed".into(),
                    kind: "file".into(),
                    path: path_to_hex("/b".as_ref()),
                    from: Some(path_to_hex("/a".as_ref())),
                    before: Some(1),
                    after: None,
                }]),
            ),
            (
                "removed",
                Reply::Removed(vec![RemovedReply {
                    path: path_to_hex("/a".as_ref()),
                    kind: "file".into(),
                    snapshots: vec!["monday".into()],
                    files: 1,
                    bytes: 2,
                    modified: (3, 4),
                }]),
            ),
            ("policy", Reply::Policy(Some(policy()))),
            ("pruned", Reply::Pruned(vec![snapshot(true)])),
            (
                "rekeyed",
                Reply::Rekeyed(RekeyReply {
                    dropped_slots: vec![slot(0)],
                    segments_resealed: 1,
                    finished: true,
                    unreadable: Vec::new(),
                }),
            ),
        ];
        let failed = Line::Answer(Answer::Failed {
            exit: 3,
            message: "the passphrase does not open this room".into(),
        });
        let progress = |done| encode_line(&Line::Progress(done, 100)).to_vec();
        let working = [progress(1), progress(99), encode_line(&failed).to_vec()].concat();
        let mut seeds = vec![("failed-while-working", working)];
        seeds.extend(replies.map(|(name, reply)| {
            let line = encode_line(&Line::Answer(Answer::Done(reply)));
            (name, line.to_vec())
        }));
        corpus::replace_seeds("answer", seeds);
    }
}
