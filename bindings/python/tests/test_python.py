"""What Python expects of files, paths and objects: as `open` and pathlib do it on the operating system's own files."""

from __future__ import annotations

import array
import copy
import csv
import gc
import io
import json
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import threading
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from conftest import KEY

import strongroom
from strongroom import Room

Python = Callable[..., "subprocess.CompletedProcess[str]"]

BINARY = ["rb", "wb", "ab", "xb", "rb+", "wb+", "ab+", "xb+", "br", "+wb"]
TEXT = ["r", "w", "a", "x", "r+", "w+", "a+", "x+", "rt"]
INVALID = ["", "b", "t", "+", "rw", "rr", "rbt", "U", "q", "wx", "r++"]


def outcome(work: Callable[[], Any]) -> tuple[str, Any]:
    """A result or the kind of an exception, so that two can be compared."""
    try:
        return "result", work()
    except Exception as error:
        kind = next(kind for kind in type(error).__mro__ if kind.__module__ in ("builtins", "io", "_io"))
        return "error", kind.__name__


def use(opened: Any, text: bool) -> list[tuple[str, Any]]:
    """Everything a file object can be asked, one after the other."""
    data: Any = "line one\nline two\r\nend é" if text else b"line one\nline two\r\nend"
    with opened as file:
        return [
            outcome(step)
            for step in (
                lambda: (file.readable(), file.writable(), file.seekable(), file.isatty(), file.closed),
                lambda: file.write(data),
                file.tell,
                lambda: file.seek(0),
                file.readline,
                lambda: file.read(3),
                lambda: file.seek(0, os.SEEK_END),
                lambda: file.seek(2),
                file.readlines,
                lambda: file.truncate(5),
                lambda: file.seek(0),
                file.read,
                lambda: file.writelines([data, data]),
                file.flush,
                lambda: file.seek(0),
                lambda: list(file),
                lambda: file.seek(-1),
                lambda: file.read(-1),
            )
        ]


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("buffering", [-1, 0, 1, 10])
def test_files_do_what_those_of_the_built_in_open_do(room: Room, tmp_path: Path, there: bool, buffering: int) -> None:
    for mode in BINARY + TEXT:
        text = "b" not in mode
        if buffering == 1 and not text:
            continue
        if buffering == 0 and text:
            # Refused by both; by ours before the file is cut to nothing.
            continue
        name = f"f{mode}"
        if there:
            (tmp_path / name).write_bytes(b"what was there\nbefore")
            (room / name).write_bytes(b"what was there\nbefore")
        encoding = "utf-8" if text else None
        theirs = outcome(lambda: use(open(tmp_path / name, mode, buffering, encoding), text))  # noqa: B023
        ours = outcome(lambda: use((room / name).open(mode, buffering, encoding), text))  # noqa: B023
        assert ours == theirs, mode
        assert (room / name).exists() == (tmp_path / name).exists()
        if (room / name).exists():
            assert (room / name).read_bytes() == (tmp_path / name).read_bytes(), mode


def test_arguments_that_make_no_sense_are_refused_as_by_the_built_in_open(room: Room, tmp_path: Path) -> None:
    (room / "a").touch()
    (tmp_path / "a").touch()
    cases: list[tuple[Any, ...]] = [(mode,) for mode in INVALID]
    cases += [("r", 0), ("rb", -1, "utf-8"), ("rb", -1, None, "strict"), ("rb", -1, None, None, "\n")]
    cases += [("r", -1, None, None, "x"), ("r", -1, "no such encoding")]
    for case in cases:
        theirs = outcome(lambda: open(tmp_path / "a", *case).close())  # noqa: B023
        ours = outcome(lambda: (room / "a").open(*case).close())  # noqa: B023
        assert theirs[0] == "error"
        assert ours == theirs, case


def test_newlines_and_encodings_are_those_of_the_built_in_open(room: Room, tmp_path: Path) -> None:
    for newline in (None, "", "\n", "\r", "\r\n"):
        for encoding in ("utf-8", "utf-16", "latin-1", "utf-8-sig"):
            for opened in ((room / "a").open, (tmp_path / "a").open):
                with opened("w", encoding=encoding, newline=newline) as file:
                    file.write("ä\nb\r\nc\rd")
            assert (room / "a").read_bytes() == (tmp_path / "a").read_bytes()
            with (room / "a").open(encoding=encoding, newline=newline) as ours:
                with open(tmp_path / "a", encoding=encoding, newline=newline) as theirs:
                    assert ours.readlines() == theirs.readlines()
                    assert ours.newlines == theirs.newlines
    with (room / "a").open("w") as file:
        assert file.encoding == "utf-8"
    (room / "a").write_text("x", errors="strict", encoding="ascii")
    with pytest.raises(UnicodeEncodeError):
        (room / "a").write_text("ä", encoding="ascii")


def test_a_line_buffered_file_is_written_at_each_line(room: Room) -> None:
    with (room / "a").open("w", buffering=1) as file:
        file.write("one\n")
        assert (room / "a").read_text() == "one\n"


def test_the_modules_that_take_files_take_those_of_a_room(room: Room, tmp_path: Path) -> None:
    with (room / "a.zip").open("wb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("name", "zipped")
    with (room / "a.zip").open("rb") as file, zipfile.ZipFile(file) as archive:
        assert archive.read("name") == b"zipped"
    with (room / "a.tar").open("wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
        tar.add(__file__, "test.py")
    with (room / "a.tar").open("rb") as file, tarfile.open(fileobj=file) as tar:
        member = tar.extractfile("test.py")
        assert member is not None and member.read() == Path(__file__).read_bytes()
    with (room / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[1, "two"], [3, "four\nfive"]])
    with (room / "a.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["1", "two"], ["3", "four\nfive"]]
    with (room / "a.json").open("w") as file:
        json.dump({"a": [1, 2]}, file)
    with (room / "a.json").open() as file:
        assert json.load(file) == {"a": [1, 2]}
    data = os.urandom(3_000_000)
    (tmp_path / "host").write_bytes(data)
    with open(tmp_path / "host", "rb") as reader, (room / "in").open("wb") as writer:
        shutil.copyfileobj(reader, writer)
    assert (room / "in").read_bytes() == data
    # Pickles go into files; the files into no pickle.
    with (room / "a.pickle").open("wb") as file:
        pickle.dump([1, 2, 3], file)
    with (room / "a.pickle").open("rb") as file:
        assert pickle.load(file) == [1, 2, 3]


def test_what_works_with_descriptors_is_refused_clearly(room: Room) -> None:
    with (room / "a").open("wb") as file:
        with pytest.raises(io.UnsupportedOperation, match="no file descriptor"):
            file.fileno()
        with pytest.raises(io.UnsupportedOperation, match="no file descriptor"):
            subprocess.run(["true"], stdin=file, check=False)
    # Or a function that opens files of the host would open another one.
    assert not isinstance(room / "a", os.PathLike)
    with pytest.raises(TypeError):
        open(room / "a")  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        sqlite3.connect(room / "a")  # type: ignore[arg-type]


def test_pickling_and_copying_are_refused_with_what_to_do(room: Room) -> None:
    (room / "a").write_text("text")
    files = [(room / "a").open(mode, buffering) for mode, buffering in (("r", -1), ("rb", -1), ("rb", 0), ("ab", -1), ("rb+", -1))]
    for what in (room, room.open_file("a"), *files):
        for refused in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot pickle or copy .*open it there"):
                refused(what)
    with pytest.raises(TypeError, match=r"Pass str\(path\)"):
        pickle.dumps(room / "a")
    assert copy.copy(room / "a") == copy.deepcopy(room / "a") == room / "a"
    for file in files:
        file.close()


def test_all_kinds_of_buffers_are_read_into_and_written(room: Room) -> None:
    with room.open_file("a", "w+") as file:
        assert file.write(array.array("i", [1, 2, 3])) == 12
        assert file.write(memoryview(b"abcdef")[1:3]) == 2
        assert file.write(memoryview(b"")) == 0
        whole = array.array("i", [0, 0, 0])
        assert file.readinto_at(0, whole) == 12
        assert whole.tolist() == [1, 2, 3]
        part = bytearray(10)
        assert file.readinto_at(12, memoryview(part)[4:8]) == 2
        assert part == b"\0\0\0\0bc\0\0\0\0"
        assert file.readinto_at(0, bytearray()) == 0
        for bad in (b"read-only", memoryview(bytearray(10))[::2], "text", None, 3):
            with pytest.raises((TypeError, BufferError)):
                file.readinto_at(0, bad)  # type: ignore[arg-type]
        for bad in (memoryview(b"abcdef")[::2], "text", None, 3):
            with pytest.raises((TypeError, BufferError)):
                file.write(bad)  # type: ignore[arg-type]
        with pytest.raises(BufferError):
            # In use while a call has it.
            view = memoryview(part)
            part.append(1)
        view.release()


def test_other_threads_run_while_a_room_works(location: Path) -> None:
    """Half a second of key derivation blocks no other thread, or the loop here would pause all that time."""
    ticks, over = [0], threading.Event()

    def tick() -> None:
        while not over.wait(0.001):
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        strongroom.create(location, passphrase="x", cost=strongroom.Argon2Cost(65536, 8, 1)).close()
    finally:
        over.set()
        thread.join()
    assert ticks[0] > 5


def test_paths_are_those_of_pathlib(room: Room) -> None:
    for parts in (("a/b.tar.gz",), ("a", "b"), ("/a", "/b"), ("a", "../b"), ("a//b/./c",), (".hidden",), ("",), ("a/",)):
        ours, theirs = room.path(*parts), PurePosixPath("/", *parts)
        assert str(ours) == str(theirs) == ours.as_posix()
        for what in ("name", "stem", "suffix", "suffixes", "parts"):
            assert getattr(ours, what) == getattr(theirs, what)
        assert str(ours.parent) == str(theirs.parent)
        assert [str(one) for one in ours.parents] == [str(one) for one in theirs.parents]
        assert ours.match("*.gz") == theirs.match("*.gz")
    path = room / "a" / "b.txt"
    assert path == room.path("a/b.txt") == room.path("//a/b.txt")
    assert len({path, room / "a/b.txt"}) == 1
    assert str(path.with_name("c")) == "/a/c"
    assert str(path.with_suffix(".md")) == "/a/b.md"
    assert str(path.with_stem("d")) == "/a/d.txt"
    assert path.relative_to(room / "a") == PurePosixPath("b.txt")
    assert path.is_relative_to("/a")
    assert not path.is_relative_to("/b")
    assert sorted([room / "b", room / "a"]) == [room / "a", room / "b"]
    assert path.is_absolute()
    assert repr(path) == "RoomPath('/a/b.txt')"
    with pytest.raises(ValueError):
        path.relative_to("/b")


def tree(root: Any) -> None:
    for name in ("a/b/c.txt", "a/b/d.md", "a/e.txt", "f.txt", ".hidden/g.txt", "a/b[1].txt", "a/b1.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "link").symlink_to("a")


PATTERNS = ["*", "*.txt", "a/*", "*/*.txt", "**/*.txt", "a/**/*.md", "**/b*", "a/b[[]1].txt", "a/b[1].txt", "?.txt", "[a-f]", "link/*",
    "nothing/*", "a/./e.txt", "f.txt/*", "**/c.txt", "*/b/*"]  # fmt: skip


def test_glob_and_walk_find_what_those_of_pathlib_find(room: Room, tmp_path: Path) -> None:
    host = tmp_path / "host"
    host.mkdir()
    tree(host)
    tree(room.root)
    for pattern in PATTERNS:
        theirs = sorted(path.relative_to(host).as_posix() for path in host.glob(pattern))
        assert sorted(str(path.relative_to("/")) for path in room.root.glob(pattern)) == theirs, pattern
    for pattern in ("*.txt", "b*", "*"):
        theirs = sorted(path.relative_to(host).as_posix() for path in host.rglob(pattern))
        assert sorted(str(path.relative_to("/")) for path in room.root.rglob(pattern)) == theirs, pattern
    for top_down in (True, False):
        walked = [(str(path), sorted(dirs), sorted(files)) for path, dirs, files in room.root.walk(top_down)]
        theirs_walked = [
            (path[len(str(host)) :] or "/", sorted(d for d in dirs if d != "link"), sorted(files + (["link"] if "link" in dirs else [])))
            for path, dirs, files in os.walk(host, topdown=top_down)
        ]
        assert sorted(walked) == sorted(theirs_walked)
        assert (walked[0][0] == "/") == top_down
    with pytest.raises(NotImplementedError):
        list(room.root.glob("/a"))
    with pytest.raises(ValueError):
        list(room.root.glob(""))
    errors: list[OSError] = []
    assert list((room / "missing").walk(on_error=errors.append)) == []
    assert [type(error) for error in errors] == [FileNotFoundError]


def test_a_mask_for_permissions_is_heeded(room: Room) -> None:
    old = os.umask(0o027)
    try:
        (room / "d").mkdir()
        (room / "t").touch()
        (room / "w").write_text("x")
    finally:
        os.umask(old)
    assert (room / "d").stat().st_mode & 0o777 == 0o750
    assert (room / "t").stat().st_mode & 0o777 == 0o640 == (room / "w").stat().st_mode & 0o777


def test_errors_are_pythons_own_with_number_and_names(room: Room) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        (room / "missing").stat()
    assert (caught.value.errno, caught.value.filename, caught.value.filename2) == (2, "/missing", None)
    assert "'/missing'" in str(caught.value)
    with pytest.raises(FileNotFoundError) as caught:
        (room / "missing").rename("other")
    assert (caught.value.filename, caught.value.filename2) == ("/missing", "/other")
    with pytest.raises(strongroom.BusyError) as busy:
        strongroom.open(room.location, key=KEY)
    assert busy.value.filename == room.location
    for kind in (strongroom.CorruptError, strongroom.WrongKeyError, strongroom.ClosedError, strongroom.BusyError):
        assert issubclass(kind, strongroom.Error)
        assert issubclass(kind, OSError)
    assert issubclass(strongroom.ClosedError, ValueError)


def test_a_path_of_another_room_is_refused(room: Room, tmp_path: Path) -> None:
    with strongroom.create(tmp_path / "other", key=KEY) as other:
        (other / "a").write_text("theirs")
        for use in (
            lambda: room.open(other / "a"),
            lambda: room.open_file(other / "a"),
            lambda: room / (other / "a"),
            lambda: (room / "a").rename(other / "a"),
            lambda: room.rename("a", other / "b"),
        ):
            with pytest.raises(ValueError, match="another room"):
                use()
        assert room / "a" != other / "a"
        with pytest.raises(TypeError):
            room / 3  # type: ignore[operator]


def test_a_room_is_synced_while_other_threads_open_files(room: Room) -> None:
    over = threading.Event()

    def work(n: int) -> None:
        while not over.is_set():
            with (room / f"f{n}").open("w") as file:
                file.write("x")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            room.sync()
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_exactly_one_key_is_taken(location: Path, tmp_path: Path) -> None:
    for given in ({}, {"passphrase": "a", "key": KEY}, {"passphrase": "a", "key_file": tmp_path / "k", "key": KEY}, {"key": KEY, "key_file": tmp_path / "k"}):
        for make in (strongroom.create, strongroom.open):
            with pytest.raises(TypeError, match="give one of"):
                make(location, **given)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        strongroom.open(location, "correct horse")  # type: ignore[misc]
    with pytest.raises(FileNotFoundError) as caught:
        strongroom.open(location, key_file=tmp_path / "k")
    assert caught.value.filename == str(tmp_path / "k")
    for size in (0, (1 << 20) + 1):
        (tmp_path / "k").write_bytes(bytes(size))
        with pytest.raises(ValueError, match="1 byte to 1 MiB"):
            strongroom.create(location, key_file=tmp_path / "k")
    assert not location.exists()


def test_a_room_is_distinguished_from_an_older_copy_of_itself(room: Room, location: Path, tmp_path: Path) -> None:
    (room / "a").write_text("old")
    room.close()
    shutil.copytree(location, tmp_path / "copy")
    with strongroom.open(location, key=KEY) as again:
        (again / "a").write_text("new")
    shutil.rmtree(location)
    (tmp_path / "copy").rename(location)
    with pytest.raises(strongroom.RolledBackError):
        strongroom.open(location, key=KEY)
    # Elsewhere nobody remembers.
    strongroom.open(location, key=KEY, state_dir=tmp_path / "other").close()
    with strongroom.open(location, key=KEY, accept_rollback=True) as again:
        assert (again / "a").read_text() == "old"


def test_an_exception_in_a_transaction_closes_the_room_as_it_was(room: Room, location: Path) -> None:
    (room / "a").write_text("before")
    with pytest.raises(RuntimeError, match="on purpose"), room.transaction():
        (room / "a").write_text("within")
        with room.transaction():
            (room / "b").write_text("within")
            raise RuntimeError("on purpose")
    assert room.closed
    with strongroom.open(location, key=KEY) as again:
        assert (again / "a").read_text() == "before"
        assert not (again / "b").exists()


def test_a_transaction_and_a_sync_take_what_is_in_pythons_buffers(room: Room, location: Path, python: Python) -> None:
    room.close()
    for how in ("with room.transaction(): file.write('kept')", "file.write('kept'); room.sync()"):
        ended = python(f"""
room = strongroom.open(LOCATION, key=KEY, commit_interval_ms=0)
file = (room / "a").open("w")
{how}
os.kill(os.getpid(), 9)
""")
        assert ended.returncode == -9, ended.stderr
        with strongroom.open(location, key=KEY) as again:
            assert (again / "a").read_text() == "kept"
            (again / "a").unlink()


def test_a_file_that_was_detached_keeps_nothing_from_being_written(room: Room) -> None:
    text = (room / "text").open("w")
    text.write("kept in ")
    buffered = text.detach()
    buffered.write(b"text")
    binary = (room / "binary").open("wb")
    binary.write(b"kept in binary")
    raw = binary.detach()
    both = (room / "both").open("w+")
    both.write("kept in both")
    both.detach().detach()
    last = (room / "last").open("w")
    last.write("kept in last")
    room.sync()
    for name in ("text", "binary", "both", "last"):
        assert (room / name).read_text() == f"kept in {name}"
    last.write(", later")
    buffered.write(b", later")
    room.create_snapshot("now")
    with room.snapshot("now") as past:
        assert [(past / name).read_text() for name in ("text", "last")] == ["kept in text, later", "kept in last, later"]
    with room.transaction():
        last.write(", still later")
    assert not room.closed
    assert raw.write(b", later") == 7
    room.close()
    assert room.closed


def test_a_program_that_ends_with_a_detached_file_writes_the_others(location: Path, python: Python) -> None:
    ended = python("""
room = strongroom.create(LOCATION, key=KEY)
text = (room / "text").open("w")
buffered = text.detach()
buffered.write(b"kept")
last = (room / "last").open("w")
last.write("kept")
""")
    assert (ended.returncode, ended.stderr) == (0, "")
    with strongroom.open(location, key=KEY) as again:
        assert [(again / name).read_text() for name in ("text", "last")] == ["kept", "kept"]


def test_a_room_that_is_forgotten_is_committed(location: Path) -> None:
    room = strongroom.create(location, key=KEY, commit_interval_ms=0)
    file = (room / "a").open("w")
    file.write("kept")
    file.flush()
    # In a cycle: the collector finds all of it at once.
    room.own = [room, file]  # type: ignore[attr-defined]
    del room, file
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
    with strongroom.open(location, key=KEY) as again:
        assert (again / "a").read_text() == "kept"


def test_a_file_keeps_its_room(location: Path) -> None:
    file = (strongroom.create(location, key=KEY) / "a").open("w+")
    gc.collect()
    file.write("kept")
    file.seek(0)
    assert file.read() == "kept"
    file.close()
    del file
    gc.collect()
    strongroom.open(location, key=KEY).close()


def test_children_of_multiprocessing_have_no_room(room: Room, location: Path, python: Python) -> None:
    room.close()
    ended = python("""
import multiprocessing, warnings
warnings.simplefilter("ignore")
room = strongroom.open(LOCATION, key=KEY)
file = (room / "a").open("w")
file.write("of the parent")
def child():
    try:
        (room / "b").write_text("of the child")
    except strongroom.ClosedError:
        sys.exit(7)
if __name__ == "__main__":
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=child) for _ in range(3)]
    for one in processes: one.start()
    for one in processes: one.join(30)
    print([one.exitcode for one in processes])
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    print(os.waitpid(pid, 0)[1])
""")
    assert ended.stdout.split("\n")[:2] == ["[7, 7, 7]", "0"], ended.stderr
    assert ended.returncode == 0
    with strongroom.open(location, key=KEY) as again:
        assert (again / "a").read_text() == "of the parent"
        assert not (again / "b").exists()


def test_subinterpreters_are_refused(python: Python) -> None:
    module = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    ended = python(f'''
import {module} as interpreters
one = interpreters.create()
interpreters.run_string(one, """
try:
    import strongroom
except ImportError as error:
    print(error)
""")
''')
    assert ended.returncode == 0, ended.stderr
    assert "subinterpreter" in ended.stdout


def test_nothing_shows_a_secret(location: Path) -> None:
    room = strongroom.create(location, passphrase="hunter2", cost=strongroom.Argon2Cost(8192, 1, 1))
    shown = repr(room) + str(vars(room)) + repr(room._session) + repr(room.keys()) + repr(room.info())
    assert "hunter2" not in shown
    room.close()
    assert "closed" in repr(room)


def test_everything_public_says_what_it_does() -> None:
    for name in strongroom.__all__:
        item = getattr(strongroom, name)
        if name == "__version__":
            continue
        assert item.__doc__, name
        for member, value in vars(item).items() if isinstance(item, type) else ():
            if not member.startswith("_") and callable(value):
                assert value.__doc__, f"{name}.{member}"
