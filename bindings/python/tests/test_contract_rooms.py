"""The contract of all bindings: keys, threads and transactions. See tests/contract/cases.tsv."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import CHEAP, KEY

import strongroom
from strongroom import Room

Reopen = Callable[[Room], Room]
Python = Callable[..., "subprocess.CompletedProcess[str]"]

# Keys


def test_open_wrong_passphrase(location: Path) -> None:
    strongroom.create(location, passphrase="correct horse", cost=CHEAP).close()
    for wrong in ("wrong horse", "correct horses", "correct hors", b"correct horse\0"):
        with pytest.raises(strongroom.WrongKeyError):
            strongroom.open(location, passphrase=wrong)
    with pytest.raises((strongroom.WrongKeyError, ValueError, OSError)):
        strongroom.open(location, passphrase="")
    strongroom.open(location, passphrase=b"correct horse").close()


def test_open_wrong_raw_key(location: Path, tmp_path: Path) -> None:
    strongroom.create(location, key=KEY).close()
    with pytest.raises(strongroom.WrongKeyError):
        strongroom.open(location, key=bytes(32))
    for length in (0, 1, 16, 31, 33):
        with pytest.raises(OSError):
            strongroom.open(location, key=bytes(length))
        with pytest.raises(OSError):
            strongroom.create(tmp_path / "other", key=bytes(length))
        assert not (tmp_path / "other" / "header.json").exists()
    strongroom.open(location, key=bytearray(KEY)).close()


def test_open_not_a_room(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("file")
    (tmp_path / "directory").mkdir()
    for name in ("file", "directory", "missing"):
        with pytest.raises(strongroom.NotARoomError) as caught:
            strongroom.open(tmp_path / name, key=KEY)
        assert caught.value.filename == str(tmp_path / name)


def test_create_existing_room(room: Room, location: Path, reopen: Reopen, tmp_path: Path) -> None:
    (room / "a").write_text("kept")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "f").touch()
    for where in (location, tmp_path / "full"):
        with pytest.raises(FileExistsError):
            strongroom.create(where, key=bytes(32))
    with reopen(room) as again:
        assert (again / "a").read_text() == "kept"


def test_change_key_open(room: Room, location: Path) -> None:
    (room / "a").write_text("text")
    room.change_key(room.keys()[0].id, key=bytes(32))
    assert (room / "a").read_text() == "text"
    room.close()
    with pytest.raises(strongroom.WrongKeyError):
        strongroom.open(location, key=KEY)
    with strongroom.open(location, key=bytes(32)) as again:
        assert (again / "a").read_text() == "text"


def test_change_key_closed(room: Room, location: Path) -> None:
    (room / "a").write_text("text")
    room.close()
    keys = [KEY, b"1" * 32, b"2" * 32]
    for old, new in zip(keys, keys[1:], strict=False):
        with strongroom.open(location, key=old) as again:
            again.change_key(again.keys()[0].id, key=new)
    for old in keys[:-1]:
        with pytest.raises(strongroom.WrongKeyError):
            strongroom.open(location, key=old)
    with strongroom.open(location, key=keys[-1]) as again:
        assert (again / "a").read_text() == "text"


def test_add_remove_key(room: Room, location: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(os.urandom(100))
    by_file = room.add_key(key_file=tmp_path / "key", label="spare")
    by_word = room.add_key(passphrase="correct horse", cost=CHEAP)
    assert [(slot.id, slot.label) for slot in room.keys()] == [(0, ""), (by_file, "spare"), (by_word, "")]
    assert room.keys()[2].cost == CHEAP
    room.close()
    strongroom.open(location, passphrase="correct horse").close()
    with strongroom.open(location, key_file=tmp_path / "key") as again:
        again.remove_key(0)
        again.remove_key(by_word)
        with pytest.raises(OSError):
            again.remove_key(by_file)
    with pytest.raises(strongroom.WrongKeyError):
        strongroom.open(location, key=KEY)
    strongroom.open(location, key_file=tmp_path / "key").close()


def test_room_info(room: Room) -> None:
    (room / "a").write_bytes(bytes(range(256)) * 400)
    room.sync()
    info, space = room.info(), room.space()
    assert len(info.id) >= 32
    assert info.suite
    assert info.generation > 0
    assert info.slots == 1
    assert space.live >= 102_400
    assert space.inodes == 2
    assert space.available > 0
    assert not room.read_only
    assert room.location == str(room.location)


# Threads


def eight(work: Callable[[int], object]) -> None:
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, n) for n in range(8)]:
            done.result()


def test_threads_own_files(room: Room) -> None:
    def work(n: int) -> None:
        for turn in range(20):
            data = bytes([n, turn]) * 5_000
            (room / f"f{n}").write_bytes(data)
            assert (room / f"f{n}").read_bytes() == data

    eight(work)


def test_threads_one_file(room: Room) -> None:
    with room.open_file("a", "w+") as file:

        def work(n: int) -> None:
            for turn in range(20):
                file.write_at((turn * 8 + n) * 5_000, bytes([n]) * 5_000)

        eight(work)
        data = file.read_at(0, file.size())
    assert data == b"".join(bytes([n]) * 5_000 for n in range(8)) * 20


def test_threads_append(room: Room) -> None:
    def work(n: int) -> None:
        with (room / "log").open("ab", buffering=0) as file:
            for turn in range(100):
                file.write(f"{n} {turn} {'x' * (turn % 50)}\n".encode())

    eight(work)
    lines = (room / "log").read_text().splitlines()
    assert sorted(lines) == sorted(f"{n} {turn} {'x' * (turn % 50)}" for n in range(8) for turn in range(100))


def test_threads_open_close(room: Room) -> None:
    def work(n: int) -> None:
        for turn in range(50):
            path = room / f"f{(n + turn) % 4}"
            try:
                match (n + turn) % 3:
                    case 0:
                        path.write_bytes(bytes(5_000))
                    case 1:
                        assert set(path.read_bytes()) <= {0}
                    case 2:
                        path.unlink()
            except FileNotFoundError:
                pass

    eight(work)


# Transactions


def test_transaction_complete(room: Room, reopen: Reopen) -> None:
    with room.transaction() as same:
        assert same is room
        assert room.in_transaction
        (room / "a").write_text("a")
        (room / "d").mkdir()
    assert not room.in_transaction
    with reopen(room) as again:
        assert (again / "a").read_text() == "a"
        assert (again / "d").is_dir()


def test_transaction_nested(room: Room, location: Path, python: Python) -> None:
    room.close()
    # The inner one completes, and the process is killed before the outer one does.
    ended = python("""
room = strongroom.open(LOCATION, key=KEY)
with room.transaction():
    with room.transaction():
        (room / "a").write_text("a")
    assert room.in_transaction
    os.kill(os.getpid(), 9)
""")
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    with strongroom.open(location, key=KEY) as again:
        assert not (again / "a").exists()
        with pytest.raises(OSError) as caught:
            again._session.complete()
        assert caught.value.errno == 22


def test_transaction_close(room: Room, location: Path) -> None:
    (room / "before").write_text("kept")
    with pytest.raises(strongroom.BusyError), room.transaction():
        (room / "within").write_text("gone")
        room.close()
    # An exception in the block closes the room as it was before it.
    assert room.closed
    with strongroom.open(location, key=KEY) as again:
        assert [path.name for path in again.root.iterdir()] == ["before"]
        with pytest.raises(strongroom.ClosedError), again.transaction():
            (again / "within").write_text("gone")
            again.abandon()
    with strongroom.open(location, key=KEY) as again:
        assert [path.name for path in again.root.iterdir()] == ["before"]


def test_transaction_killed(room: Room, location: Path, python: Python) -> None:
    room.close()
    for completed in (False, True):
        ended = python(f"""
room = strongroom.open(LOCATION, key=KEY, commit_interval_ms=10)
kill = lambda: os.kill(os.getpid(), 9)
with room.transaction():
    for n in range(50):
        (room / f"f{{n}}").write_bytes(bytes(20_000))
    {"pass" if completed else "kill()"}
kill()
""")
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        with strongroom.open(location, key=KEY) as again:
            assert len(list(again.root.iterdir())) == (50 if completed else 0)
            assert all(path.stat().st_size == 20_000 for path in again.root.iterdir())


def test_sync_survives_kill(room: Room, location: Path, python: Python) -> None:
    room.close()
    ended = python("""
room = strongroom.open(LOCATION, key=KEY, commit_interval_ms=0)
file = (room / "a").open("w")
file.write("synced")
room.sync()
native = room.open_file("b", "w")
native.write(b"synced too")
native.sync()
os.kill(os.getpid(), 9)
""")
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    with strongroom.open(location, key=KEY) as again:
        assert (again / "a").read_text() == "synced"
        assert (again / "b").read_text() == "synced too"


# Whether the list and the tests are one


def test_every_case_has_a_test() -> None:
    here = Path(__file__).parent
    cases = here.parents[2] / "tests" / "contract" / "cases.tsv"
    ids = [line.split("\t")[0] for line in cases.read_text().splitlines() if line and not line.startswith("#")]
    assert len(ids) > 70
    tests = "".join(path.read_text() for path in here.glob("test_contract_*.py"))
    missing = [one for one in ids if f"\ndef test_{one}(" not in tests]
    assert not missing, f"cases of {cases} without a test here: {missing}"


