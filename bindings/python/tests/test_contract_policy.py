"""The contract of all bindings: policies for automatic snapshots. See tests/contract/cases.tsv."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from conftest import KEY

import strongroom
from strongroom import Room, SnapshotPolicy


def names(room: Room) -> list[str]:
    return [snapshot.name for snapshot in room.snapshots()]


def test_snapshot_policy(room: Room, location: Path) -> None:
    assert room.snapshot_policy() is None
    with pytest.raises(FileNotFoundError):
        room.prune_snapshots()
    assert room.apply_snapshot_policy() == (None, [], None)
    for malformed in (
        SnapshotPolicy(),
        SnapshotPolicy(weekly=1, min_free_percent=100),
        SnapshotPolicy(weekly=1, min_free_percent=300),
    ):
        with pytest.raises(OSError) as caught:
            room.set_snapshot_policy(malformed)
        assert caught.value.errno == errno.EINVAL
    for impossible in (SnapshotPolicy(weekly=-1), SnapshotPolicy(weekly=1 << 32)):
        with pytest.raises(OverflowError):
            room.set_snapshot_policy(impossible)
    policy = SnapshotPolicy(weekly=5, min_free_percent=10)
    room.set_snapshot_policy(policy)
    room.close()
    with strongroom.open(location, key=KEY, read_only=True) as again:
        assert again.snapshot_policy() == policy
        assert again.prune_snapshots(dry_run=True) == []
        for change in (
            lambda: again.set_snapshot_policy(policy),
            again.clear_snapshot_policy,
            again.apply_snapshot_policy,
            again.prune_snapshots,
        ):
            with pytest.raises(OSError) as caught:
                change()
            assert caught.value.errno == errno.EROFS
    with strongroom.open(location, key=KEY) as again:
        again.clear_snapshot_policy()
        again.clear_snapshot_policy()
        assert again.snapshot_policy() is None
        assert again.snapshots() == []


def test_snapshot_policy_apply(room: Room) -> None:
    (room / "big").write_bytes(b"1" * (1 << 20))
    # What an open file has in its buffer is in the snapshot too.
    file = (room / "buffered").open("w")
    file.write("text")
    room.set_snapshot_policy(SnapshotPolicy(weekly=5))
    first = room.apply_snapshot_policy()
    file.close()
    automatic = first.created
    assert automatic is not None
    assert automatic.automatic
    assert automatic.name.startswith("auto-")
    assert (names(room), first.deleted) == ([automatic.name], [])
    assert first.next_due is not None
    assert first.next_due > automatic.created
    with room.snapshot(automatic.name) as past:
        assert (past / "buffered").read_text() == "text"
    second = room.apply_snapshot_policy()
    assert second.next_due is not None
    assert second.created is None or second.next_due > first.next_due
    (room / "big").unlink()
    room.create_snapshot("mine")
    with room.transaction():
        for busy in (room.apply_snapshot_policy, room.prune_snapshots):
            with pytest.raises(strongroom.BusyError):
                busy()
    assert room.prune_snapshots() == []
    space = room.space()
    if space.available / 99 < space.total / 100:
        room.set_snapshot_policy(SnapshotPolicy(weekly=5, min_free_percent=99))
        goes = room.prune_snapshots(dry_run=True)[0]
        assert (goes.name, goes.exclusive) == (automatic.name, 1 << 20)
        assert automatic.name in names(room)
        report = room.apply_snapshot_policy()
        assert (report.created, report.deleted[0].name) == (None, automatic.name)
        assert automatic.name not in names(room)
    assert "mine" in names(room)
