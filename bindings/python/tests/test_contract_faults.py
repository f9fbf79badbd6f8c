"""The contract of all bindings: an exception for every fault, and nothing lost. See tests/contract/cases.tsv."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import KEY

import strongroom
from strongroom import Room

Reopen = Callable[[Room], Room]
Python = Callable[..., "subprocess.CompletedProcess[str]"]


def flip(path: Path, places: range) -> None:
    data = bytearray(path.read_bytes())
    for place in places:
        data[place] ^= 0x40
    path.write_bytes(data)


def test_damaged_segment(room: Room, location: Path, reopen: Reopen) -> None:
    (room / "bad").write_bytes(os.urandom(300_000))
    room.close()
    for segment in (location / "segments").iterdir():
        # Behind the header of 4 KiB, a byte of each block.
        flip(segment, range(4096 + 100, segment.stat().st_size, 4096))
    with strongroom.open(location, key=KEY) as again:
        for read in (
            (again / "bad").read_bytes,
            lambda: again.open_file("bad").read_at(150_000, 1),
            lambda: (again / "bad").open("rb").read(10),
        ):
            with pytest.raises(strongroom.CorruptError) as caught:
                read()
            assert caught.value.errno == 5
            assert caught.value.filename == "/bad" or caught.value.filename == "bad"
        (again / "good").write_text("goes on")
        assert (again / "good").read_text() == "goes on"
        assert (again / "bad").stat().st_size == 300_000


def test_damaged_catalog(room: Room, location: Path) -> None:
    for n in range(500):
        room.open_file(f"file number {n}", "x").close()
    room.close()
    size = (location / "catalog.db").stat().st_size
    flip(location / "catalog.db", range(100, size, 1000))
    with pytest.raises(strongroom.CorruptError), strongroom.open(location, key=KEY) as again:
        list(again.root.iterdir())


def test_damaged_header(room: Room, location: Path) -> None:
    (room / "a").write_text("kept")
    room.close()
    header, backup = location / "header.json", location / "header.backup.json"
    good = header.read_bytes()
    header.write_bytes(b"x" * len(good))
    with strongroom.open(location, key=KEY) as again:
        assert (again / "a").read_text() == "kept"
    for copy in (header, backup):
        copy.write_bytes(b"x" * len(good))
    with pytest.raises(strongroom.CorruptError):
        strongroom.open(location, key=KEY)


def uses_of_a_file(file: strongroom.File) -> Iterator[Callable[[], object]]:
    yield lambda: file.read_at(0, 1)
    yield lambda: file.readinto_at(0, bytearray(1))
    yield lambda: file.write_at(0, b"x")
    yield lambda: file.readinto(bytearray(1))
    yield lambda: file.write(b"x")
    yield lambda: file.seek(0)
    yield file.size
    yield lambda: file.truncate(0)
    yield file.sync
    yield file.attributes
    yield lambda: file.change(mode=0)


def uses_of_a_room(room: Room) -> Iterator[Callable[[], object]]:
    path = room / "a"
    yield room.sync
    yield room.info
    yield room.space
    yield room.keys
    yield room.__enter__
    yield lambda: room.transaction().__enter__()
    yield lambda: room.in_transaction
    yield lambda: room.read_only
    yield lambda: room.add_key(key=KEY)
    yield lambda: room.change_key(0, key=KEY)
    yield lambda: room.remove_key(0)
    yield lambda: room.open("a")
    yield lambda: room.open_file("a")
    yield lambda: room.rename("a", "b")
    yield lambda: room.getxattr("a", "user.a")
    yield lambda: room.setxattr("a", "user.a", b"")
    yield lambda: room.removexattr("a", "user.a")
    yield lambda: room.listxattr("a")
    yield path.stat
    yield path.exists
    yield lambda: list(path.iterdir())
    yield lambda: list(path.glob("*"))
    yield path.mkdir
    yield path.rmdir
    yield path.unlink
    yield lambda: path.rename("b")
    yield lambda: path.symlink_to("b")
    yield lambda: path.hardlink_to("b")
    yield path.readlink
    yield lambda: path.chmod(0o600)
    yield path.utime
    yield lambda: path.truncate(0)
    yield path.touch
    yield path.read_bytes
    yield lambda: path.write_text("x")


def test_closed_file(room: Room) -> None:
    file = room.open_file("a", "w+")
    file.close()
    file.close()
    assert file.closed
    for use in uses_of_a_file(file):
        with pytest.raises(ValueError):
            use()
    for buffering in (0, -1):
        with (room / "a").open("rb+", buffering=buffering) as raw:
            pass
        raw.close()
        for use in (raw.read, raw.tell, raw.fileno, raw.flush, raw.isatty, raw.readable, lambda: raw.write(b""), lambda: raw.seek(0)):
            with pytest.raises(ValueError):
                use()


def test_closed_room(room: Room) -> None:
    (room / "a").write_text("text")
    room.close()
    room.close()
    assert room.closed
    for use in uses_of_a_room(room):
        with pytest.raises(strongroom.ClosedError):
            use()
    with pytest.raises(ValueError):
        (room / "a").stat()


def test_close_room_with_files_open(room: Room, location: Path) -> None:
    native = room.open_file("native", "w+")
    native.write(b"native")
    text, binary = (room / "text").open("w"), (room / "binary").open("wb")
    # In Python's buffers only.
    text.write("text")
    binary.write(b"binary")
    room.close()
    for use in uses_of_a_file(native):
        with pytest.raises(strongroom.ClosedError):
            use()
    text.write("more")
    for file in (text, binary):
        with pytest.raises(strongroom.ClosedError):
            file.write("x" * 1_000_000 if file is text else b"x" * 1_000_000)
            file.flush()
    for closing in (native.close, text.close, binary.close):
        try:
            closing()
        except strongroom.ClosedError:
            # It says that what was written after the room was closed is nowhere.
            assert closing != native.close
    with strongroom.open(location, key=KEY) as again:
        for name in ("native", "text", "binary"):
            assert (again / name).read_text() == name


def test_close_room_while_used(room: Room, location: Path) -> None:
    done: list[set[str]] = [set() for _ in range(8)]
    started = threading.Barrier(9)

    def work(n: int) -> None:
        started.wait()
        for turn in range(100_000):
            name = f"f{n} {turn}"
            try:
                with room.open_file(name, "w") as file:
                    file.write(name.encode())
            except strongroom.ClosedError:
                return
            done[n].add(name)

    with ThreadPoolExecutor(8) as pool:
        all_of_them = [pool.submit(work, n) for n in range(8)]
        started.wait()
        while not all(done):
            time.sleep(0.001)
        room.close()
        for one in all_of_them:
            one.result()
    with strongroom.open(location, key=KEY) as again:
        for names in done:
            for name in names:
                assert (again / name).read_text() == name


def test_handle_two_threads(room: Room) -> None:
    data = os.urandom(100_000)
    (room / "a").write_bytes(data)
    # Who shares a position writes anywhere.
    (room / "b").write_bytes(data)
    for _ in range(10):
        file = room.open_file("a", "r+")
        raw = (room / "a").open("rb+")
        read = threading.Event()

        def positional(file: strongroom.File = file, read: threading.Event = read) -> int:
            right = 0
            try:
                while True:
                    assert file.read_at(right, 100) == data[right : right + 100]
                    right = (right + 1) % 99_900
                    read.set()
            except ValueError:
                return right
            finally:
                read.set()

        def at_position(file: strongroom.File = file) -> None:
            try:
                while True:
                    file.seek(0)
                    file.readinto(bytearray(1_000))
                    file.seek(50_000)
                    file.write(data[50_000:50_010])
                    file.seek(0)
            except ValueError:
                return

        def buffered(raw: object = raw) -> None:
            try:
                while True:
                    raw.seek(1)  # type: ignore[attr-defined]
                    raw.read(5_000)  # type: ignore[attr-defined]
            except ValueError:
                return

        with ThreadPoolExecutor(5) as pool:
            works = [pool.submit(work) for work in (positional, positional, buffered, buffered)]
            read.wait()
            file.close()
            raw.close()
            for work in works:
                work.result()
        other = room.open_file("b", "r+")
        with ThreadPoolExecutor(2) as pool:
            works = [pool.submit(at_position, other) for _ in range(2)]
            other.read_at(0, 1)
            other.close()
            for work in works:
                work.result()


def test_handle_never_existed(room: Room) -> None:
    # Nothing makes a handle but the room that opens it.
    for kind in (strongroom.File, type(room._session)):
        with pytest.raises(TypeError):
            kind()
        with pytest.raises(TypeError):
            kind.__new__(kind)
    for nothing in (None, 3, object()):
        with pytest.raises(TypeError):
            strongroom.File.read_at(nothing, 0, 1)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            room._session.stat(nothing, True)  # type: ignore[arg-type]
        with pytest.raises((TypeError, AttributeError)):
            strongroom.Room(nothing, "x").close()  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_exit_with_room_open(room: Room, location: Path, python: Python) -> None:
    room.close()
    ends = {
        "falls off": "",
        "sys.exit": "sys.exit(0)",
        "exception": "raise RuntimeError('on purpose')",
        "thread": "import threading\nthreading.Thread(target=lambda: (room / 'thread').write_text('x')).start()",
        "daemons": "import threading\ndef use():\n    while True: (room / 'busy').write_text('x')\n"
        "for _ in range(4): threading.Thread(target=use, daemon=True).start()",
        "transaction": "begun = room.transaction()\nbegun.__enter__()\n(room / 'never').write_text('x')",
        "cycle": "room.me = room\nfile.me = [file]\ndel room, file",
    }
    for how, end in ends.items():
        ended = python(f"""
room = strongroom.open(LOCATION, key=KEY, commit_interval_ms=0)
closed = room / {how + " closed"!r}
closed.write_text("closed")
file = (room / {how + " open"!r}).open("w")
file.write("in the buffer")
raw = (room / {how + " raw"!r}).open("wb", buffering=0)
raw.write(b"raw")
del closed, raw
{end}
""")
        assert ended.returncode == (1 if how == "exception" else 0), (how, ended.stderr)
        match how:
            case "exception":
                assert "on purpose" in ended.stderr
            case "daemons":
                # Whose calls were errors from when the room was closed.
                assert "Fatal" not in ended.stderr
            case _:
                assert not ended.stderr, (how, ended.stderr)
        with strongroom.open(location, key=KEY) as again:
            assert (again / f"{how} closed").read_text() == "closed", how
            assert (again / f"{how} raw").read_text() == "raw", how
            # What is written while a transaction is open belongs to it, and this one was never completed.
            assert (again / f"{how} open").read_text() == ("" if how == "transaction" else "in the buffer")
            assert not (again / "never").exists()
            assert (again / "thread").exists() or how not in ("thread", "daemons", "transaction", "cycle")


def test_fork(room: Room, location: Path) -> None:
    (room / "a").write_text("parent")
    file, text = room.open_file("a", "r+"), (room / "b").open("w")
    text.write("of the parent")
    uses = [*uses_of_a_room(room), *uses_of_a_file(file)]
    child = os.fork()
    if child == 0:
        bad = 0
        try:
            for use in uses:
                try:
                    use()
                    bad += 1
                except strongroom.ClosedError:
                    pass
            try:
                text.write("of the child")
                text.flush()
                bad += 1
            except strongroom.ClosedError:
                pass
            bad += not room.closed
            room.abandon() if bad else None
            strongroom._room._at_exit()
            file.close()
        except BaseException:
            bad += 100
        os._exit(min(bad, 255))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert file.read_at(0, 10) == b"parent"
    text.close()
    room.close()
    with strongroom.open(location, key=KEY) as again:
        assert (again / "a").read_text() == "parent"
        assert (again / "b").read_text() == "of the parent"


def test_second_opener(room: Room, python: Python, location: Path) -> None:
    (room / "a").write_text("kept")
    ended = python("""
try:
    strongroom.open(LOCATION, key=KEY)
except strongroom.BusyError as error:
    print(error.errno)
""")
    assert (ended.returncode, ended.stdout.strip()) == (0, "16"), ended.stderr
    with pytest.raises(strongroom.BusyError):
        strongroom.open(location, key=KEY)
    assert (room / "a").read_text() == "kept"


def test_read_only_room(room: Room, location: Path) -> None:
    (room / "a").write_text("kept")
    room.close()
    with strongroom.open(location, key=KEY, read_only=True) as again:
        assert again.read_only
        assert (again / "a").read_text() == "kept"
        path = again / "a"
        for change in (
            lambda: path.write_text("x"),
            lambda: path.open("r+"),
            lambda: path.open("a"),
            lambda: (again / "b").touch(),
            path.unlink,
            lambda: path.rename("b"),
            lambda: path.chmod(0),
            lambda: path.truncate(0),
            lambda: (again / "d").mkdir(),
            lambda: (again / "l").symlink_to("a"),
            lambda: (again / "l").hardlink_to("a"),
            lambda: again.setxattr("a", "user.a", b""),
            lambda: again.add_key(key=bytes(32)),
            lambda: again.transaction().__enter__(),
        ):
            with pytest.raises(OSError) as caught:
                change()
            assert caught.value.errno == 30
        again.sync()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MiB, unmounted afterwards whatever happened."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    where = tmp_path / "disk"
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", where], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", where], check=True)


def test_disk_full(small_disk: Path) -> None:
    with strongroom.create(small_disk / "room", key=KEY) as room:
        (room / "before").write_text("kept")
        room.sync()
        with pytest.raises(OSError) as caught:
            for n in range(100):
                (room / f"f{n}").write_bytes(os.urandom(1 << 20))
                room.sync()
        assert caught.value.errno == 28
        assert (room / "before").read_text() == "kept"
        for path in list(room.root.glob("f*")):
            path.unlink()
        deadline = time.monotonic() + 30
        while True:
            try:
                room.sync()
                (room / "after").write_bytes(bytes(100_000))
                room.sync()
                break
            except OSError as error:
                assert error.errno == 28
                assert time.monotonic() < deadline
                time.sleep(0.05)
    with strongroom.open(small_disk / "room", key=KEY) as again:
        assert (again / "before").read_text() == "kept"
        assert (again / "after").stat().st_size == 100_000


def test_errors_have_text(room: Room, location: Path, tmp_path: Path) -> None:
    secret = "hunter2-correct-horse"
    (room / "d/e").mkdir(parents=True)
    (room / "f").touch()
    texts = set()
    for wrong in (
        lambda: (room / "missing").stat(),
        lambda: (room / "d").mkdir(),
        lambda: (room / "d").rmdir(),
        lambda: (room / "d").unlink(),
        lambda: (room / "f").rmdir(),
        lambda: room.open_file("f").write_at(0, b"x"),
        lambda: strongroom.open(location, key=KEY),
        lambda: strongroom.open(tmp_path, passphrase=secret),
        lambda: room.add_key(passphrase=secret, key=KEY),
        lambda: room.add_key(key=secret.encode()),
        lambda: room.add_key(key_file=tmp_path / "missing"),
    ):
        with pytest.raises((OSError, ValueError, TypeError)) as caught:
            wrong()
        text = getattr(caught.value, "strerror", None) or str(caught.value)
        assert len(text) > 5
        assert secret not in repr(caught.value)
        assert KEY.hex() not in repr(caught.value)
        texts.add(text)
    assert len(texts) == 11, texts


