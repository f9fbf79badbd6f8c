"""The contract of all bindings: reading and writing files. See tests/contract/cases.tsv."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable

import pytest

import strongroom
from strongroom import Room

MIB = 1 << 20
BOUNDARIES = [n * size for size in (4096, 8192) for n in range(1, 5)] + [MIB, 2 * MIB]
Reopen = Callable[[Room], Room]


def pattern(length: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(length)


def test_create_write_read(room: Room, reopen: Reopen) -> None:
    (room / "a").write_bytes(b"hello")
    assert (room / "a").read_bytes() == b"hello"
    with reopen(room) as again:
        assert (again / "a").read_bytes() == b"hello"


def test_getattr_create_truncate(room: Room) -> None:
    path = room / "a"
    with pytest.raises(FileNotFoundError):
        path.stat()
    path.touch()
    assert path.stat().st_size == 0
    for size in (0, 100_000, 0):
        path.truncate(size)
        assert path.stat().st_size == size


def test_write_read_sizes(room: Room) -> None:
    for size in (10, 100, 1_000, 10_000, 100_000, 1_000_000):
        path, data = room / f"s{size}", pattern(size)
        path.write_bytes(data)
        assert path.read_bytes() == data
        path.truncate(0)
        assert path.stat().st_size == 0
        path.write_bytes(data)
        path.open("wb").close()
        assert path.stat().st_size == 0


def test_read_single_bytes(room: Room) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    data, places = pattern(1_000_000), random.Random(seed)
    (room / "a").write_bytes(data)
    with room.open_file("a") as file:
        for _ in range(10_000):
            at = places.randrange(len(data))
            assert file.read_at(at, 1) == data[at : at + 1]


def test_read_beyond_end(room: Room) -> None:
    (room / "a").write_bytes(b"0123456789")
    with room.open_file("a") as file:
        buffer = bytearray(100)
        assert file.readinto_at(4, buffer) == 6
        assert buffer[:6] == b"456789"
        assert file.read_at(10, 5) == b"" == file.read_at(1 << 40, 5)
        assert file.readinto_at(10, buffer) == 0


def test_read_bigger_than_file(room: Room) -> None:
    data = pattern(800)
    (room / "a").write_bytes(data)
    with room.open_file("a") as file:
        assert file.read_at(200, 200) == data[200:400]
        assert file.read_at(0, 2_000) == data


def test_truncate_down(room: Room) -> None:
    data = pattern(20_000)
    for length in (19_999, 16_384, 8_193, 8_192, 4_095, 1, 0):
        with (room / "a").open("wb+") as file:
            file.write(data)
            file.truncate(length)
            file.seek(0)
            assert file.read() == data[:length]
            file.truncate(20_000)
            file.seek(0)
            assert file.read() == data[:length] + bytes(20_000 - length)


def test_truncate_up(room: Room) -> None:
    (room / "a").write_bytes(b"abc")
    (room / "a").truncate(100_000)
    assert (room / "a").read_bytes() == b"abc" + bytes(99_997)


def test_truncate_sparse(room: Room) -> None:
    size = 5_000_000_000
    (room / "a").touch()
    (room / "a").truncate(size)
    room.sync()
    assert room.space().stored < MIB
    assert (room / "a").stat().st_blocks * 512 < MIB
    with room.open_file("a") as file:
        assert file.size() == size
        assert file.read_at(size - 1, 10) == b"\0"


def test_write_block_boundaries(room: Room) -> None:
    for boundary in BOUNDARIES:
        for length in (boundary - 1, boundary, boundary + 1):
            data = pattern(length, length)
            (room / "a").write_bytes(data)
            assert (room / "a").read_bytes() == data


def test_write_across_boundaries(room: Room) -> None:
    whole = bytearray(pattern(2 * MIB + 8192))
    (room / "a").write_bytes(whole)
    with room.open_file("a", "r+") as file:
        for boundary in BOUNDARIES:
            for start in (boundary - 3, boundary - 2, boundary - 1, boundary):
                three = pattern(3, start)
                whole[start : start + 3] = three
                assert file.write_at(start, three) == 3
    assert (room / "a").read_bytes() == whole


def test_write_gaps(room: Room) -> None:
    for gap in (100, 10_000, 1_000_000):
        path = room / f"g{gap}"
        with path.open("wb") as file:
            file.write(b"start")
            file.seek(gap)
            file.write(b"end")
        assert path.stat().st_size == gap + 3
        assert path.read_bytes() == b"start" + bytes(gap - 5) + b"end"


def test_write_empty(room: Room) -> None:
    (room / "a").write_bytes(b"abc")
    with room.open_file("a", "r+") as file:
        assert file.write_at(1, b"") == 0
        assert file.write_at(1_000, b"") == 0
    assert (room / "a").read_bytes() == b"abc"


def test_append(room: Room) -> None:
    (room / "a").write_bytes(b"one")
    with (room / "a").open("ab", buffering=0) as file:
        assert file.tell() == 3
        file.seek(0)
        file.write(b"two")
        file.seek(1)
        file.write(b"three")
    assert (room / "a").read_bytes() == b"onetwothree"


def test_append_new(room: Room) -> None:
    with (room / "a").open("a") as file:
        file.write("new")
    assert (room / "a").read_text() == "new"


def test_seek(room: Room) -> None:
    (room / "a").write_bytes(b"0123456789")
    for buffering in (0, -1):
        with (room / "a").open("rb+", buffering=buffering) as file:
            assert file.seek(3) == 3
            assert file.read(2) == b"34"
            assert file.tell() == 5
            assert file.seek(-1, os.SEEK_CUR) == 4
            assert file.seek(-2, os.SEEK_END) == 8
            assert file.write(b"x") == 1
            assert file.tell() == 9
            for where in ((-1, os.SEEK_SET), (-10, os.SEEK_CUR), (-11, os.SEEK_END)):
                with pytest.raises((ValueError, OSError)):
                    file.seek(*where)
                assert file.tell() == 9
    assert (room / "a").read_bytes() == b"01234567x9"


def test_positional_io(room: Room) -> None:
    with room.open_file("a", "w+") as file:
        file.write(b"0123456789")
        file.seek(4)
        assert file.read_at(0, 2) == b"01"
        file.write_at(8, b"xy")
        assert file.readinto_at(1, bytearray(3)) == 3
        assert file.tell() == 4


def test_open_missing(room: Room) -> None:
    for mode in ("r", "rb", "r+"):
        with pytest.raises(FileNotFoundError) as caught:
            (room / "missing").open(mode)
        assert caught.value.filename == "/missing"
    assert list(room.root.iterdir()) == []


def test_create_existing(room: Room) -> None:
    (room / "a").write_bytes(b"kept")
    (room / "a").open("a").close()
    (room / "a").open("r+").close()
    assert (room / "a").read_bytes() == b"kept"


def test_create_truncate_new(room: Room) -> None:
    (room / "a").open("w").close()
    assert (room / "a").stat().st_size == 0


def test_create_truncate_existing(room: Room) -> None:
    (room / "a").write_bytes(b"gone")
    (room / "a").open("w").close()
    assert (room / "a").stat().st_size == 0


def test_create_exclusive(room: Room) -> None:
    (room / "a").open("x").close()
    (room / "a").write_bytes(b"kept")
    (room / "link").symlink_to("nowhere")
    for name in ("a", "link"):
        with pytest.raises(FileExistsError):
            (room / name).open("x")
    assert (room / "a").read_bytes() == b"kept"
    assert not (room / "nowhere").exists()


def test_open_directory(room: Room) -> None:
    (room / "d").mkdir()
    for mode in ("r", "w", "a"):
        with pytest.raises(IsADirectoryError):
            (room / "d").open(mode)


def test_read_only_handle(room: Room) -> None:
    (room / "a").write_bytes(b"kept")
    for buffering in (0, -1):
        with (room / "a").open("rb", buffering=buffering) as file:
            with pytest.raises(io.UnsupportedOperation):
                file.write(b"x")
            with pytest.raises(io.UnsupportedOperation):
                file.truncate(1)
        with (room / "b").open("wb", buffering=buffering) as file, pytest.raises(io.UnsupportedOperation):
            file.read(1)
    assert (room / "a").read_bytes() == b"kept"


def test_unlink_open(room: Room) -> None:
    with (room / "a").open("wb+") as file:
        file.write(b"before")
        file.flush()
        (room / "a").unlink()
        assert not (room / "a").exists()
        file.write(b" after")
        file.seek(0)
        assert file.read() == b"before after"


def test_unlink_directory(room: Room) -> None:
    (room / "d").mkdir()
    (room / "f").touch()
    with pytest.raises(IsADirectoryError):
        (room / "d").unlink()
    with pytest.raises(NotADirectoryError):
        (room / "f").rmdir()
    assert (room / "d").is_dir()
    assert (room / "f").is_file()


def test_big_io(room: Room) -> None:
    data = bytes(64 * MIB - 4) + b"tail"
    with room.open_file("a", "w+") as file:
        assert file.write_at(0, data) == len(data)
        assert file.read_at(0, len(data)) == data
        # What no memory has: only what is there is allocated, and what no length is, is refused.
        assert len(file.read_at(len(data) - 4, (1 << 63) - 1)) == 4
        with pytest.raises(OverflowError):
            file.read_at(0, 1 << 64)
        with pytest.raises((OverflowError, ValueError)):
            file.read_at(0, -1)
        with pytest.raises(ValueError):
            file.read_at(-1, 1)
        with pytest.raises(OSError):
            file.write_at((1 << 63) - 1, b"xx")
    assert (room / "a").stat().st_size == len(data)


def test_xattrs(room: Room) -> None:
    (room / "a").touch()
    room.setxattr("a", "user.one", b"1")
    room.setxattr("a", "user.two", b"\0two")
    assert room.listxattr("a") == ["user.one", "user.two"]
    assert room.getxattr("a", "user.two") == b"\0two"
    with pytest.raises(FileExistsError):
        room.setxattr("a", "user.one", b"x", how="create")
    room.setxattr("a", "user.one", b"replaced", how="replace")
    assert room.getxattr("a", "user.one") == b"replaced"
    room.removexattr("a", "user.one")
    for refused in (
        lambda: room.getxattr("a", "user.one"),
        lambda: room.removexattr("a", "user.one"),
        lambda: room.setxattr("a", "user.one", b"x", how="replace"),
    ):
        with pytest.raises(OSError) as caught:
            refused()
        assert not isinstance(caught.value, strongroom.Error)
    assert room.listxattr(room / "a") == ["user.two"]
