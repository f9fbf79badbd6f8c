"""The contract of all bindings: directories, names and links. See tests/contract/cases.tsv."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strongroom import Room

Reopen = Callable[[Room], Room]


def names(room: Room, path: str = "/") -> list[str]:
    return sorted(entry.name for entry in room.path(path).iterdir())


def test_mkdir(room: Room) -> None:
    (room / "d").mkdir()
    assert (room / "d").is_dir()
    with pytest.raises(FileExistsError):
        (room / "d").mkdir()
    (room / "d").mkdir(exist_ok=True)


def test_mkdir_nested(room: Room) -> None:
    path = room.root
    for n in range(20):
        path = path / f"level{n}"
        path.mkdir()
    (path / "leaf").write_text("deep")
    assert (path / "leaf").read_text() == "deep"
    assert len(path.parts) == 21


def test_mkdir_missing_parents(room: Room) -> None:
    with pytest.raises(FileNotFoundError):
        (room / "a/b/c").mkdir()
    with pytest.raises(FileNotFoundError):
        (room / "a/f").write_text("nowhere")
    assert names(room) == []


def test_mkdir_all(room: Room) -> None:
    (room / "a/b/c").mkdir(parents=True)
    assert (room / "a/b/c").is_dir()
    (room / "a/b/c/f").touch()
    (room / "a/b/c").mkdir(parents=True, exist_ok=True)
    with pytest.raises(FileExistsError):
        (room / "a/b/c").mkdir(parents=True)
    room.root.mkdir(parents=True, exist_ok=True)
    assert names(room, "/a/b/c") == ["f"]


def test_mkdir_below_file(room: Room) -> None:
    (room / "f").write_text("file")
    with pytest.raises(NotADirectoryError):
        (room / "f/d").mkdir()
    with pytest.raises(OSError):
        (room / "f/d/e").mkdir(parents=True)
    with pytest.raises(NotADirectoryError):
        (room / "f/x").write_text("nothing")
    assert (room / "f").read_text() == "file"


def test_rmdir(room: Room) -> None:
    (room / "d").mkdir()
    (room / "d").rmdir()
    assert not (room / "d").exists()
    with pytest.raises(FileNotFoundError):
        (room / "d").rmdir()


def test_rmdir_not_empty(room: Room) -> None:
    (room / "d").mkdir()
    (room / "d/f").write_text("kept")
    with pytest.raises(OSError) as caught:
        (room / "d").rmdir()
    assert caught.value.errno == 39
    assert (room / "d/f").read_text() == "kept"


def test_list(room: Room) -> None:
    (room / "d").mkdir()
    (room / "f").touch()
    (room / "l").symlink_to("f")
    assert names(room) == ["d", "f", "l"]
    assert [path.is_dir() for path in sorted(room.root.iterdir())] == [True, False, False]
    assert (room / "l").is_symlink()
    with pytest.raises(FileNotFoundError):
        list((room / "missing").iterdir())
    with pytest.raises(NotADirectoryError):
        list((room / "f").iterdir())


def test_list_many(room: Room) -> None:
    for n in range(5_000):
        room.open_file(f"f{n}", "x").close()
    assert len({path.name for path in room.root.iterdir()}) == 5_000 == len(names(room))


def test_rename_file(room: Room) -> None:
    (room / "a").write_text("text")
    (room / "d").mkdir()
    moved = (room / "a").rename("b")
    assert moved == room / "b"
    moved.replace(room / "d/c")
    assert (room / "d/c").read_text() == "text"
    assert names(room) == ["d"]


def test_rename_file_onto_file(room: Room) -> None:
    (room / "a").write_text("new")
    (room / "b").write_text("old")
    with (room / "b").open() as old:
        (room / "a").rename(room / "b")
        assert old.read() == "old"
    assert (room / "b").read_text() == "new"
    assert names(room) == ["b"]


def test_rename_dir_onto_empty_dir(room: Room) -> None:
    (room / "a").mkdir()
    (room / "a/f").touch()
    (room / "b").mkdir()
    (room / "a").rename("b")
    assert names(room) == ["b"]
    assert names(room, "b") == ["f"]


def test_rename_dir_onto_full_dir(room: Room) -> None:
    for name in ("a", "b"):
        (room / name).mkdir()
        (room / name / "f").write_text(name)
    with pytest.raises(OSError) as caught:
        (room / "a").rename("b")
    assert caught.value.errno == 39
    assert (caught.value.filename, caught.value.filename2) == ("/a", "/b")
    assert (room / "a/f").read_text() == "a"
    assert (room / "b/f").read_text() == "b"


def test_rename_file_onto_dir(room: Room) -> None:
    (room / "f").touch()
    (room / "d").mkdir()
    with pytest.raises(IsADirectoryError):
        (room / "f").rename("d")
    with pytest.raises(NotADirectoryError):
        (room / "d").rename("f")
    assert names(room) == ["d", "f"]


def test_rename_no_replace(room: Room) -> None:
    (room / "a").write_text("a")
    (room / "b").write_text("b")
    with pytest.raises(FileExistsError):
        room.rename("a", "b", how="no_replace")
    assert [(room / name).read_text() for name in "ab"] == ["a", "b"]
    room.rename("a", "b", how="exchange")
    assert [(room / name).read_text() for name in "ab"] == ["b", "a"]


def test_rename_into_itself(room: Room) -> None:
    (room / "d/e").mkdir(parents=True)
    with pytest.raises(OSError) as caught:
        (room / "d").rename("d/e/f")
    assert caught.value.errno == 22
    assert (room / "d/e").is_dir()


def test_rename_dir_with_children(room: Room) -> None:
    for name in ("dir", "dir1"):
        (room / name / "below").mkdir(parents=True)
        (room / name / "below/f").write_text(name)
    (room / "dir").rename("moved")
    assert (room / "moved/below/f").read_text() == "dir"
    assert (room / "dir1/below/f").read_text() == "dir1"
    assert not (room / "dir").exists()


SPECIAL = ["a[1]", "a1", "a*", "a?", "a%", "a'", 'a"', "a\\", "a b", " ", "a.", "-a", "a\nb", "[", "a[", "**", "%s", "'; --", "a_", "A1"]


def test_names_special(room: Room) -> None:
    for name in SPECIAL:
        (room / name).write_text(name)
    assert names(room) == sorted(SPECIAL)
    for name in SPECIAL:
        assert (room / name).read_text() == name
    (room / "a[1]").rename("b[2]")
    assert (room / "a1").read_text() == "a1"
    assert (room / "b[2]").read_text() == "a[1]"
    (room / "a*").unlink()
    left = [name for name in SPECIAL if name not in ("a[1]", "a*")] + ["b[2]"]
    assert names(room) == sorted(left)
    assert [path.name for path in room.root.glob("b[[]2]")] == ["b[2]"]


def test_names_unicode(room: Room, reopen: Reopen) -> None:
    # Composed and decomposed, and bytes that are no UTF-8.
    every = ["Größe", "日本語", "🗝️", "é", "e\u0301", "\udcff\udcfe", "ß"]
    for name in every:
        (room / name).write_text(name, errors="surrogateescape")
    with reopen(room) as again:
        assert names(again) == sorted(every)
        for name in every:
            assert (again / name).read_text(errors="surrogateescape") == name


def test_names_long(room: Room) -> None:
    for name in ("n" * 255, "🗝" * 63 + "abc"):
        assert len(name.encode()) == 255
        (room / name).write_text("long")
        assert (room / name).read_text() == "long"
        with pytest.raises(OSError) as caught:
            (room / (name + "x")).touch()
        assert caught.value.errno == 36
    assert len(names(room)) == 2


def test_paths_odd(room: Room) -> None:
    (room / "d/e").mkdir(parents=True)
    (room / "d/f").write_text("f")
    for odd in ("//d//f", "/d/./f", "d/e/../f", "/../../d/f", "d/e/../../d/f", "./d/f"):
        with room.open(odd) as file:
            assert file.read() == "f"
        assert (room / odd).read_text() == "f"
    assert (room / "..").samefile("/")
    with pytest.raises(FileNotFoundError):
        room.open("")
    for bad in ("a\0b", "\0"):
        with pytest.raises(ValueError):
            room.open(bad, "w")
        with pytest.raises(ValueError):
            (room / bad).exists()


def test_symlink(room: Room) -> None:
    (room / "d").mkdir()
    (room / "d/f").write_text("text")
    (room / "l").symlink_to("d/f")
    (room / "dl").symlink_to("/d")
    (room / "dangling").symlink_to("nowhere")
    assert (room / "l").readlink() == "d/f"
    assert (room / "l").read_text() == "text" == (room / "dl/f").read_text()
    assert (room / "l").stat().st_size == 4
    assert (room / "l").lstat().st_size == 3
    assert (room / "l").is_symlink()
    assert (room / "l").is_file()
    assert not (room / "dangling").exists()
    assert (room / "dangling").lstat().st_nlink == 1
    with pytest.raises(OSError):
        (room / "d/f").readlink()


def test_symlink_loop(room: Room) -> None:
    (room / "a").symlink_to("b")
    (room / "b").symlink_to("a")
    with pytest.raises(OSError) as caught:
        (room / "a").read_text()
    assert caught.value.errno == 40
    assert not (room / "a").exists()
    assert [path.name for path in room.root.rglob("*")] == ["a", "b"]


def test_hard_link(room: Room) -> None:
    (room / "a").write_text("one")
    (room / "b").hardlink_to(room / "a")
    (room / "b").write_text("two")
    assert (room / "a").read_text() == "two"
    assert (room / "a").stat().st_nlink == 2
    assert (room / "a").samefile(room / "b")
    (room / "a").unlink()
    assert (room / "b").read_text() == "two"
    (room / "d").mkdir()
    with pytest.raises(PermissionError):
        (room / "e").hardlink_to("d")


def test_attributes(room: Room, reopen: Reopen) -> None:
    path = room / "a"
    path.touch()
    path.chmod(0o640)
    path.utime(atime_ns=1_234_567_890_123_456_789, mtime_ns=-1_000_000_001)
    with reopen(room) as again:
        found = (again / "a").stat()
        assert found.st_mode == 0o100640
        assert found.st_atime_ns == 1_234_567_890_123_456_789
        assert found.st_mtime_ns == -1_000_000_001
        assert (again / "a").birth_ns() > 1_600_000_000 * 10**9
