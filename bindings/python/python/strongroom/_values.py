"""What a room says about itself: facts, keys, snapshots, differences."""

from __future__ import annotations

import datetime
from typing import NamedTuple

_Snapshot = tuple[int, str, int, int, bool, int]
_PolicyReport = tuple[_Snapshot | None, list[_Snapshot], int | None]


class Argon2Cost(NamedTuple):
    """What one try of a passphrase costs: Argon2id's memory, passes and lanes."""

    memory_kib: int
    """8,192 (8 MiB) to 1,048,576 (1 GiB)."""
    passes: int
    """1 to 64."""
    lanes: int
    """1 to 16."""


class RoomInfo(NamedTuple):
    """Facts about a room."""

    id: str
    """Its identity."""
    format: int
    """Version of its format."""
    suite: str
    """Cipher suite of its data."""
    generation: int
    """Commits since it was made."""
    key_epoch: int
    """Rises with each rekey."""
    rekeying: bool
    """Whether a rekey is unfinished."""
    created: int
    """When it was made, in seconds since 1970."""
    slots: int
    """Key slots in use."""
    segments: int
    """Segments."""


class RoomSpace(NamedTuple):
    """Space of a room and of what holds it, in bytes."""

    total: int
    """Bytes of the storage below."""
    free: int
    """Free bytes of it."""
    available: int
    """Free bytes that may be used."""
    live: int
    """Bytes of file data held."""
    stored: int
    """Bytes of all segments."""
    inodes: int
    """Files of any kind."""


class KeySlot(NamedTuple):
    """One of the keys that open a room."""

    id: int
    """Its number, 0 to 31."""
    kind: str
    """Passphrase, key file, raw key or recipients, in words."""
    label: str
    """What its owner calls it; may be empty."""
    created: int
    """When it was made, in seconds since 1970."""
    cost: Argon2Cost | None
    """The work of one try, for passphrases and key files."""


class Snapshot(NamedTuple):
    """The whole room at one moment, under a name."""

    number: int
    """Rises with each snapshot, from 1, and is never used again."""
    name: str
    """Its name."""
    created: datetime.datetime
    """The moment, in UTC."""
    automatic: bool
    """Whether a policy created it, and may delete it."""
    exclusive: int
    """Bytes that it alone holds: deleting it frees as much."""


class SnapshotPolicy(NamedTuple):
    """How many automatic snapshots a room keeps: the newest of an hour, day and week. Only those that have one count.

        room.set_snapshot_policy(SnapshotPolicy(hourly=24, daily=7, weekly=5, min_free_percent=10))
    """

    hourly: int = 0
    """Hours of which one is kept."""
    daily: int = 0
    """Days in UTC, likewise."""
    weekly: int = 0
    """Weeks from Monday in UTC, likewise."""
    min_free_percent: int = 0
    """With less than this part of the storage free, the oldest go earlier, and none is created; 0 to 99."""


class PolicyReport(NamedTuple):
    """What applying a policy did."""

    created: Snapshot | None
    """The automatic snapshot that was due."""
    deleted: list[Snapshot]
    """The automatic snapshots that the policy does not keep any more, the oldest first; `exclusive` is what was freed with each."""
    next_due: datetime.datetime | None
    """When the next automatic snapshot is due, in UTC; None: the room has no policy."""


class Change(NamedTuple):
    """One difference between two moments of a room."""

    what: str
    """added, removed, renamed, changed (other contents or modification time) or attributes (nothing else)."""
    kind: str
    """file, directory, symlink, fifo, socket, char device or block device."""
    path: str
    """Its path; the later one, if there is a later one."""
    source: str | None
    """The earlier path of what was renamed."""
    before: int | None
    """Length in bytes before, of a regular file that was there."""
    after: int | None
    """Length in bytes after, likewise."""


def snapshot_of(fields: _Snapshot) -> Snapshot:
    """A snapshot as the native half has it."""
    number, name, secs, nanos, automatic, exclusive = fields
    created = datetime.datetime.fromtimestamp(secs, datetime.UTC).replace(microsecond=nanos // 1000)
    return Snapshot(number, name, created, automatic, exclusive)


def report_of(fields: _PolicyReport) -> PolicyReport:
    """A report as the native half has it."""
    created, deleted, next_due = fields
    return PolicyReport(
        None if created is None else snapshot_of(created),
        [snapshot_of(one) for one in deleted],
        None if next_due is None else datetime.datetime.fromtimestamp(next_due, datetime.UTC),
    )
