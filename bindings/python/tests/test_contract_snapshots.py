"""The contract of all bindings: snapshots. See tests/contract/cases.tsv."""

from __future__ import annotations

import datetime
import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import KEY

import strongroom
from strongroom import Room

Reopen = Callable[[Room], Room]


def refused(number: int, call: Callable[[], object]) -> None:
    with pytest.raises(OSError) as caught:
        call()
    assert caught.value.errno == number


def test_snapshot_read(room: Room) -> None:
    (room / "papers").mkdir()
    letter = room / "papers" / "letter"
    letter.write_text("first")
    (room / "link").symlink_to("papers/letter")
    room.setxattr(letter, "user.a", b"1")
    room.create_snapshot("monday")
    letter.write_text("second, and longer")
    (room / "new").touch()
    (room / "link").unlink()
    with room.snapshot("monday") as past:
        assert (past / "papers" / "letter").read_text() == "first"
        assert (past / "link").read_text() == "first"
        assert str((past / "link").readlink()) == "papers/letter"
        assert past.getxattr("/papers/letter", "user.a") == b"1"
        assert sorted(path.name for path in past.root.iterdir()) == ["link", "papers"]
        assert past.read_only
        assert not room.read_only
        for change in (
            lambda: (past / "new").write_text("x"),
            lambda: (past / "d").mkdir(),
            lambda: (past / "link").unlink(),
            lambda: (past / "link").rename(past / "other"),
            lambda: (past / "papers").chmod(0o700),
            lambda: past.create_snapshot("other"),
        ):
            refused(errno.EROFS, change)
    assert past.closed
    assert letter.read_text() == "second, and longer"


def test_snapshot_names(room: Room) -> None:
    assert (room.snapshots(), room.held_by_snapshots()) == ([], 0)
    (room / "big").write_bytes(b"1" * (1 << 20))
    # What an open file has in its buffer is in the snapshot too.
    file = (room / "buffered").open("w")
    file.write("text")
    made = room.create_snapshot("monday")
    file.close()
    with room.snapshot("monday") as past:
        assert (past / "buffered").read_text() == "text"
    assert abs(made.created - datetime.datetime.now(datetime.UTC)) < datetime.timedelta(hours=1)
    (room / "big").unlink()
    room.create_snapshot("tuesday")
    first, second = room.snapshots()
    assert (first.name, first.exclusive, first.automatic) == ("monday", 1 << 20, False)
    assert (second.name, second.exclusive) == ("tuesday", 0)
    assert room.held_by_snapshots() == 1 << 20
    for exists in (lambda: room.create_snapshot("monday"), lambda: room.rename_snapshot("monday", "tuesday")):
        with pytest.raises(FileExistsError):
            exists()
    refused(errno.EINVAL, lambda: room.create_snapshot("a/b"))
    for missing in (
        lambda: room.rename_snapshot("sunday", "x"),
        lambda: room.delete_snapshot("sunday"),
        lambda: room.snapshot("sunday"),
    ):
        with pytest.raises(FileNotFoundError, match="sunday"):
            missing()
    with room.transaction(), pytest.raises(strongroom.BusyError):
        room.create_snapshot("x")
    room.rename_snapshot("monday", "first")
    room.delete_snapshot("tuesday")
    assert [snapshot.name for snapshot in room.snapshots()] == ["first"]


def test_snapshot_deleted(room: Room) -> None:
    (room / "a").write_text("a")
    room.create_snapshot("monday")
    past = room.snapshot("monday")
    file = past.open_file("/a")
    room.delete_snapshot("monday")
    room.create_snapshot("monday")
    refused(errno.ESTALE, lambda: file.read_at(0, 1))
    refused(errno.ESTALE, lambda: (past / "a").stat())
    past.close()


def test_snapshot_closed(room: Room, reopen: Reopen) -> None:
    (room / "a").write_text("a")
    room.create_snapshot("monday")
    one, other = room.snapshot("monday"), room.snapshot("monday")
    file = other.open_file("/a")
    one.close()
    one.close()
    with pytest.raises(strongroom.ClosedError):
        (one / "a").stat()
    assert file.read_at(0, 1) == b"a"
    room = reopen(room)
    for closed in (lambda: file.read_at(0, 1), lambda: (other / "a").stat()):
        with pytest.raises(strongroom.ClosedError):
            closed()
    assert [snapshot.name for snapshot in room.snapshots()] == ["monday"]
    room.close()


def test_snapshot_read_only(room: Room, location: Path) -> None:
    (room / "a").write_text("then")
    room.create_snapshot("monday")
    (room / "a").write_text("now")
    room.close()
    with strongroom.open(location, key=KEY, read_only=True) as again:
        assert len(again.snapshots()) == 1
        with again.snapshot("monday") as past:
            assert (past / "a").read_text() == "then"
        assert len(again.diff("monday")) == 1
        for change in (
            lambda: again.create_snapshot("x"),
            lambda: again.rename_snapshot("monday", "x"),
            lambda: again.delete_snapshot("monday"),
            lambda: again.restore("monday", "/a"),
        ):
            refused(errno.EROFS, change)


def test_snapshot_diff(room: Room) -> None:
    (room / "changed").write_text("1")
    (room / "kept").write_text("1")
    (room / "removed").write_text("123")
    room.create_snapshot("monday")
    (room / "changed").write_text("22")
    (room / "kept").rename(room / "renamed")
    (room / "removed").unlink()
    room.create_snapshot("tuesday")
    (room / "new").touch()
    changes = [(one.what, one.path, one.source, one.before, one.after) for one in room.diff("monday", "tuesday")]
    assert changes == [
        ("changed", "/changed", None, 1, 2),
        ("removed", "/removed", None, 3, None),
        ("renamed", "/renamed", "/kept", 1, 1),
    ]
    assert [(one.what, one.path) for one in room.diff("tuesday")] == [("added", "/new")]
    with pytest.raises(FileNotFoundError):
        room.diff("monday", "sunday")


def test_snapshot_restore(room: Room, reopen: Reopen) -> None:
    (room / "papers").mkdir()
    letter = room / "papers" / "letter"
    letter.write_text("then")
    letter.chmod(0o640)
    room.create_snapshot("monday")
    letter.write_text("spoiled")
    letter.chmod(0o600)
    (room / "papers" / "later").touch()
    assert room.restore("monday", letter, room / "first") == 1
    assert ((room / "first").read_text(), letter.read_text()) == ("then", "spoiled")
    with pytest.raises(FileNotFoundError):
        room.restore("monday", "/papers/later")
    assert (room / "papers" / "later").exists()
    room.restore("monday", "/papers")
    assert letter.read_text() == "then"
    assert letter.stat().st_mode & 0o777 == 0o640
    assert not (room / "papers" / "later").exists()
    room.restore("monday", "/")
    room = reopen(room)
    assert [path.name for path in room.root.iterdir()] == ["papers"]
    room.close()


def test_snapshot_threads(room: Room) -> None:
    (room / "a").write_text("a")
    ended = threading.Event()

    def write() -> None:
        byte = 0
        while not ended.is_set():
            byte = (byte + 1) % 256
            (room / "a").write_bytes(bytes([byte]) * 100_000)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(10):
            room.create_snapshot("s")
            with room.snapshot("s") as past:
                assert (past / "a").read_bytes() == (past / "a").read_bytes()
            room.delete_snapshot("s")
    finally:
        ended.set()
        thread.join()
