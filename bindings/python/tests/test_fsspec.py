"""A room for whatever speaks fsspec: its own suite of tests for file systems, pandas with Parquet, and what becomes of secrets."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import fsspec.tests.abstract as abstract
import pandas as pd
import pyarrow.dataset
import pyarrow.parquet
import pytest
from conftest import CHEAP, KEY
from fsspec.callbacks import Callback
from fsspec.implementations.local import LocalFileSystem, make_path_posix
from fsspec.transaction import Transaction

import strongroom
from strongroom.fsspec import StrongroomFileSystem

SECRET = "hunter2-correct-horse"


@pytest.fixture
def fs(room: strongroom.Room) -> StrongroomFileSystem:
    """A file system of the test's room."""
    return StrongroomFileSystem(room)


@pytest.fixture(autouse=True)
def close_all() -> Iterator[None]:
    """Closes what the test opened by name."""
    yield
    for _, known in list(type(StrongroomFileSystem)._instances.values()):
        known.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[strongroom.Room]:
    """One room for all of fsspec's own tests, emptied after each."""
    where = tmp_path_factory.mktemp("shared")
    with strongroom.create(where / "room", key=KEY, state_dir=where / "state") as room:
        yield room


class RoomFixtures(abstract.AbstractFixtures):  # type: ignore[misc]
    """What fsspec's own tests run on."""

    @pytest.fixture
    def fs(self, shared: strongroom.Room) -> Iterator[StrongroomFileSystem]:
        fs = StrongroomFileSystem(shared, auto_mkdir=True)
        yield fs
        fs.rm("/", recursive=True)

    @pytest.fixture
    def fs_path(self, fs: StrongroomFileSystem) -> str:
        fs.makedirs("/tests")
        return "/tests"

    @pytest.fixture
    def fs_sanitize_path(self) -> Any:
        return make_path_posix

    @pytest.fixture
    def local_fs(self) -> LocalFileSystem:
        return LocalFileSystem(auto_mkdir=True)


class TestFsspecCopy(abstract.AbstractCopyTests, RoomFixtures):  # type: ignore[misc]
    """fsspec's."""


class TestFsspecGet(abstract.AbstractGetTests, RoomFixtures):  # type: ignore[misc]
    """fsspec's."""


class TestFsspecPut(abstract.AbstractPutTests, RoomFixtures):  # type: ignore[misc]
    """fsspec's."""


class TestFsspecOpen(abstract.AbstractOpenTests, RoomFixtures):  # type: ignore[misc]
    """fsspec's."""


class TestFsspecPipe(abstract.AbstractPipeTests, RoomFixtures):  # type: ignore[misc]
    """fsspec's."""


def frame() -> pd.DataFrame:
    return pd.DataFrame({"n": range(10_000), "text": [f"row {n} é" for n in range(10_000)], "part": [n % 3 for n in range(10_000)]})


def test_pandas_writes_and_reads_parquet_in_a_room(room: strongroom.Room, location: Path) -> None:
    room.close()
    (location.parent / "key").write_bytes(os.urandom(64))
    with strongroom.open(location, key=KEY) as again:
        again.add_key(key_file=location.parent / "key")
    options = {"room": str(location), "key_file": str(location.parent / "key")}
    frame().to_parquet("strongroom://a.parquet", storage_options=options)
    pd.testing.assert_frame_equal(pd.read_parquet("strongroom://a.parquet", storage_options=options), frame())
    columns = pd.read_parquet("strongroom://a.parquet", columns=["n"], storage_options=options)
    assert columns.shape == (10_000, 1)
    frame().to_csv("strongroom://a.csv.gz", index=False, storage_options=options)
    pd.testing.assert_frame_equal(pd.read_csv("strongroom:///a.csv.gz", storage_options=options), frame())
    fs = fsspec.filesystem("strongroom", **options)
    fs.close()
    with strongroom.open(location, key=KEY) as again:
        assert sorted(path.name for path in again.root.iterdir()) == ["a.csv.gz", "a.parquet"]
    # Nothing of it is in plain text beside the segments.
    assert not any(b"PAR1" in path.read_bytes() for path in (location / "segments").iterdir())


def test_pandas_takes_files_of_a_room(room: strongroom.Room) -> None:
    with (room / "a.parquet").open("wb") as file:
        frame().to_parquet(file)
    with (room / "a.parquet").open("rb") as file:
        pd.testing.assert_frame_equal(pd.read_parquet(file), frame())
    with (room / "a.csv").open("w") as text:
        frame().to_csv(text, index=False)
    with (room / "a.csv").open() as text:
        pd.testing.assert_frame_equal(pd.read_csv(text), frame())


def test_pyarrow_writes_and_reads_a_partitioned_dataset(fs: StrongroomFileSystem) -> None:
    fs.mkdir("set")
    pyarrow.parquet.write_to_dataset(pyarrow.Table.from_pandas(frame()), "/set", partition_cols=["part"], filesystem=fs)
    assert sorted(Path(name).name for name in fs.ls("set", detail=False)) == ["part=0", "part=1", "part=2"]
    table = pyarrow.dataset.dataset("/set", filesystem=fs, partitioning="hive").to_table()
    assert table.num_rows == 10_000


def test_urls_name_files_of_a_room(location: Path) -> None:
    strongroom.create(location, passphrase=SECRET, cost=CHEAP).close()
    options = {"room": location, "passphrase": SECRET}
    with fsspec.open("strongroom://notes.txt", "w", **options) as file:
        file.write("text")
    chained = f"strongroom://notes.txt::file://{location}"
    for url in (chained, f"strongroom:///notes.txt::{location}"):
        with fsspec.open(url, "r", strongroom={"passphrase": SECRET}) as file:
            assert file.read() == "text"
    fs, path = fsspec.core.url_to_fs("strongroom://notes.txt", **options)
    assert path == "/notes.txt"
    assert fs is fsspec.filesystem("strongroom", **options)
    assert fs.unstrip_protocol(path) == "strongroom:///notes.txt"
    with pytest.raises(TypeError, match="which room"):
        fsspec.filesystem("strongroom", passphrase=SECRET)
    with pytest.raises(ValueError, match="memory"):
        fsspec.open("strongroom://notes.txt::memory://room", strongroom={"passphrase": SECRET})


def test_secrets_are_in_nothing_that_is_kept_or_shown(location: Path) -> None:
    strongroom.create(location, passphrase=SECRET, cost=CHEAP).close()
    fs = fsspec.filesystem("strongroom", room=location, passphrase=SECRET)
    shown = [repr(fs), str(fs), repr(fs.storage_options), repr(fs.storage_args), fs._fs_token, repr(vars(fs))]
    shown += [repr(type(StrongroomFileSystem)._instances), repr(StrongroomFileSystem._cache), fs.fsid]
    shown += [repr(fsspec.open("strongroom://a", room=location, passphrase=SECRET))]
    for refused in (lambda: pickle.dumps(fs), fs.to_json, fs.to_dict):
        with pytest.raises(TypeError, match="key_file") as caught:
            refused()
        shown.append(repr(caught.value))
    assert not any(SECRET in text for text in shown)
    assert not any(KEY.hex() in text for text in shown)


def test_a_file_system_opened_by_a_key_file_can_be_pickled(location: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"what is in here is in no pickle")
    strongroom.create(location, key_file=tmp_path / "key").close()
    fs = fsspec.filesystem("strongroom", room=location, key_file=tmp_path / "key")
    pickled = pickle.dumps(fs)
    assert b"what is in here" not in pickled
    assert pickle.loads(pickled) is fs
    assert "what is in here" not in fs.to_json()
    assert fsspec.AbstractFileSystem.from_json(fs.to_json()) is fs


def test_a_room_that_is_open_is_not_handed_out_for_another_key(location: Path) -> None:
    strongroom.create(location, passphrase=SECRET, cost=CHEAP).close()
    fs = fsspec.filesystem("strongroom", room=location, passphrase=SECRET)
    assert fsspec.filesystem("strongroom", room=str(location), passphrase=SECRET.encode()) is fs
    for wrong in ({"passphrase": "wrong"}, {"key": KEY}, {}, {"key_file": "/dev/null"}):
        with pytest.raises(strongroom.WrongKeyError):
            fsspec.filesystem("strongroom", room=location, **wrong)
    fs.close()
    with pytest.raises(strongroom.WrongKeyError):
        fsspec.filesystem("strongroom", room=location, passphrase="wrong")
    again = fsspec.filesystem("strongroom", room=location, passphrase=SECRET)
    assert again is not fs
    assert not again.room.closed


class Counting(Callback):  # type: ignore[misc]
    """Keeps the values it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[int] = []

    def call(self, hook_name: str | None = None, **kwargs: Any) -> None:
        self.values.append(self.value)


def test_callbacks_get_the_progress(fs: StrongroomFileSystem, tmp_path: Path) -> None:
    data = os.urandom(3_500_000)
    (tmp_path / "in").write_bytes(data)
    for move in (
        lambda callback: fs.put_file(str(tmp_path / "in"), "a", callback=callback),
        lambda callback: fs.get_file("a", str(tmp_path / "out"), callback=callback),
    ):
        callback = Counting()
        move(callback)
        assert (callback.size, callback.value) == (len(data), len(data))
        assert len(callback.values) > 3
        assert callback.values == sorted(callback.values)
    assert (tmp_path / "out").read_bytes() == data == fs.cat("a")


def test_files_of_a_transaction_appear_together_at_its_end(fs: StrongroomFileSystem) -> None:
    fs.pipe("kept", b"old")
    fs.pipe("log", b"one")
    with fs.transaction:
        for name in ("a", "b", "kept"):
            with fs.open(name, "wb") as file:
                file.write(name.encode())
        with fs.open("log", "ab") as file:
            file.write(b"two")
        with fs.open("x", "xb") as file:
            file.write(b"x")
        with fs.open("text", "w") as file:
            file.write("text")
        assert not fs.exists("a")
        assert fs.cat("kept") == b"old"
    assert sorted(fs.ls("", detail=False)) == ["/a", "/b", "/kept", "/log", "/text", "/x"]
    assert [fs.cat(name) for name in ("kept", "log", "text")] == [b"kept", b"onetwo", b"text"]
    with pytest.raises(RuntimeError), fs.transaction:
        with fs.open("c", "wb") as file:
            file.write(b"gone")
        raise RuntimeError
    assert sorted(fs.ls("", detail=False)) == ["/a", "/b", "/kept", "/log", "/text", "/x"]
    assert not fs.room.closed
    with pytest.raises(FileExistsError), fs.transaction:
        with fs.open("d", "xb") as file:
            file.write(b"mine")
        fs.room.path("d").write_bytes(b"theirs")
    assert fs.cat("d") == b"theirs"
    assert len(fs.ls("")) == 7
    fs.pipe("after", b"at once")
    assert fs.cat("after") == b"at once"


def test_a_transaction_that_fails_ends_with_any_fsspec(fs: StrongroomFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    def complete(self: Transaction, commit: bool = True) -> None:
        """As some versions of fsspec have it: a file that fails leaves the transaction open."""
        while self.files:
            file = self.files.popleft()
            file.commit() if commit else file.discard()
        self.fs._intrans = False
        self.fs._transaction = None
        self.fs = None

    monkeypatch.setattr(Transaction, "complete", complete)
    with pytest.raises(FileExistsError), fs.transaction:
        for name in ("a", "b", "c"):
            with fs.open(name, "xb") as file:
                file.write(b"mine")
        fs.room.path("b").write_bytes(b"theirs")
    fs.pipe("after", b"data")
    assert sorted(fs.ls("", detail=False)) == ["/a", "/after", "/b"]
    assert [fs.cat(name) for name in ("a", "b", "after")] == [b"mine", b"theirs", b"data"]
    fs.start_transaction()
    fs.pipe("d", b"data")
    fs.open("e", "wb").detach()
    with pytest.raises(ValueError, match="detached"):
        fs.end_transaction()
    assert not fs.room.closed
    fs.start_transaction()
    fs.pipe("f", b"data")
    fs.end_transaction()
    with pytest.raises(RuntimeError), fs.transaction:
        fs.open("g", "wb").detach()
        fs.pipe("h", b"data")
        raise RuntimeError
    fs.pipe("i", b"data")
    assert sorted(fs.ls("", detail=False)) == ["/a", "/after", "/b", "/d", "/f", "/i"]


def test_files_and_directories(fs: StrongroomFileSystem) -> None:
    fs.mkdir("d/e")
    with pytest.raises(FileExistsError):
        fs.mkdir("d")
    with pytest.raises(FileNotFoundError):
        fs.pipe("missing/f", b"")
    fs.pipe("d/f", b"0123456789")
    assert fs.cat_file("d/f", 2, 5) == b"234"
    assert fs.cat_file("d/f", -3) == b"789"
    assert fs.cat_file("d/f", end=-8) == b"01"
    assert fs.cat_file("d/f", 20, 30) == b""
    assert fs.cat_ranges(["d/f", "/d/f"], [0, 4], [2, 6]) == [b"01", b"45"]
    assert fs.head("d/f", 2) == b"01"
    assert fs.read_block("d/f", 3, 2) == b"34"
    info = fs.info("d/f")
    assert (info["name"], info["size"], info["type"], info["nlink"]) == ("/d/f", 10, "file", 1)
    assert fs.info("")["type"] == fs.info("/")["type"] == "directory"
    assert fs.ls("d/f", detail=False) == ["/d/f"]
    assert {one["name"]: one["type"] for one in fs.ls("d")} == {"/d/e": "directory", "/d/f": "file"}
    assert fs.created("d/f") <= fs.modified("d/f")
    key = fs.ukey("d/f")
    with fs.open("d/f", "ab") as file:
        file.write(b"!")
    assert fs.ukey("d/f") != key
    assert fs.cat("d/f") == b"0123456789!"
    fs.mv("d", "moved")
    assert fs.cat("moved/f") == b"0123456789!"
    fs.cp_file("moved/f", "moved/f")
    assert fs.cat("moved/f") == b"0123456789!"
    fs.symlink("moved/f", "link")
    assert fs.islink("link")
    assert fs.info("link")["destination"] == "/moved/f"
    fs.link("moved/f", "second")
    assert fs.info("second")["nlink"] == 2
    fs.touch("second", truncate=False)
    assert fs.size("second") == 11
    assert fs.du("") >= 11
    assert fs.glob("mov*/*") == ["/moved/e", "/moved/f"]
    assert fs.find("") == ["/link", "/moved/f", "/second"]
    with pytest.raises(OSError):
        fs.rm("moved")
    fs.symlink("/moved", "moved/e/up")
    fs.rm("moved", recursive=True)
    assert fs.exists("second")
    fs.rm("/*", recursive=True)
    assert fs.ls("") == []
    with pytest.raises(io.UnsupportedOperation):
        fs.open("r", "wb").fileno()
    with pytest.raises(FileNotFoundError):
        fs.rm("nothing")


def test_names_with_magic_letters_are_files_of_their_own(fs: StrongroomFileSystem) -> None:
    for name in ("a[1]", "a1", "a*"):
        fs.pipe_file(name, name.encode())
    fs.rm_file("a[1]")
    assert fs.cat_file("a1") == b"a1"
    fs.rm("a*")
    assert fs.ls("", detail=False) == ["/a1"]
