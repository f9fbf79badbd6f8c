"""Paths of a room, as pathlib has them of the operating system.

1. A path is absolute, and `..` in it is walked by the room: where it leads depends on symbolic links.
2. It is no os.PathLike: handed to a function that opens a path of the host, it is refused instead of naming another file there.
"""

from __future__ import annotations

import errno
import fnmatch
import functools
import os
import re
import stat as modes
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any, NoReturn, Self, SupportsIndex

from ._files import open_file

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._room import Room
    from ._strongroom import Attributes

# What a path that leads nowhere is answered with.
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_MAGIC = re.compile(r"[*?[]")


@functools.total_ordering
class RoomPath:
    """A path of a room, with the methods of pathlib.Path. Made by ``room / "name"``, Room.path and Room.root."""

    __slots__ = ("_pure", "_room")

    _pure: PurePosixPath
    _room: Room

    def __init__(self, room: Room, *parts: str | RoomPath) -> None:
        for part in parts:
            if isinstance(part, RoomPath) and part._room is not room:
                raise ValueError(f"{part!r} is a path of another room")
        texts = [str(part) for part in parts]
        pure = PurePosixPath("/", *texts)
        # POSIX lets two slashes at the start mean something else; here they do not.
        self._pure = PurePosixPath("/" + str(pure).lstrip("/"))
        self._room = room

    def _with(self, pure: PurePosixPath) -> Self:
        return type(self)(self._room, str(pure))

    # The path itself

    @property
    def room(self) -> Room:
        """The room."""
        return self._room

    @property
    def name(self) -> str:
        """The last name; empty of the root."""
        return self._pure.name

    @property
    def stem(self) -> str:
        """The last name without its suffix."""
        return self._pure.stem

    @property
    def suffix(self) -> str:
        """The last name's ending from its last dot; may be empty."""
        return self._pure.suffix

    @property
    def suffixes(self) -> list[str]:
        """All endings of the last name."""
        return self._pure.suffixes

    @property
    def parts(self) -> tuple[str, ...]:
        """The names, "/" before them."""
        return self._pure.parts

    @property
    def parent(self) -> Self:
        """The path without its last name; the root's is itself."""
        return self._with(self._pure.parent)

    @property
    def parents(self) -> tuple[Self, ...]:
        """The parent, its parent, and so on to the root."""
        return tuple(self._with(parent) for parent in self._pure.parents)

    def joinpath(self, *parts: str | RoomPath) -> Self:
        """The path with more names behind it; one that begins with a slash begins again at the root."""
        return type(self)(self._room, str(self), *parts)

    def __truediv__(self, part: str | RoomPath) -> Self:
        if not isinstance(part, (str, RoomPath)):
            return NotImplemented
        return self.joinpath(part)

    def with_name(self, name: str) -> Self:
        """The path with another last name."""
        return self._with(self._pure.with_name(name))

    def with_stem(self, stem: str) -> Self:
        """The path with another last name, its suffix kept."""
        return self._with(self._pure.with_stem(stem))

    def with_suffix(self, suffix: str) -> Self:
        """The path with another suffix."""
        return self._with(self._pure.with_suffix(suffix))

    def relative_to(self, other: str | RoomPath) -> PurePosixPath:
        """The names behind another path, which must begin this one (else ValueError)."""
        return self._pure.relative_to(str(other))

    def is_relative_to(self, other: str | RoomPath) -> bool:
        """Whether another path begins this one."""
        return self._pure.is_relative_to(str(other))

    def is_absolute(self) -> bool:
        """Always."""
        return True

    def as_posix(self) -> str:
        """The path as text."""
        return str(self._pure)

    def match(self, pattern: str) -> bool:
        """Whether its end is what a pattern says: PurePath.match."""
        return self._pure.match(pattern)

    def __str__(self) -> str:
        return str(self._pure)

    def __repr__(self) -> str:
        return f"RoomPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RoomPath):
            return NotImplemented
        return self._room is other._room and self._pure == other._pure

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, RoomPath) or self._room is not other._room:
            return NotImplemented
        return self._pure < other._pure

    def __hash__(self) -> int:
        return hash((id(self._room), self._pure))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "cannot pickle a path of an open room: the room lives in the process that opened it. Pass str(path), and what opens the room"
        )

    # What is there

    def _attributes(self, follow: bool = True) -> Attributes:
        return self._room._session.stat(str(self._pure), follow)

    def _mode(self, follow: bool = True) -> int | None:
        try:
            return self._attributes(follow).mode
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Its attributes, as os.stat; st_dev is 0."""
        return os.stat_result(self._attributes(follow_symlinks).stat_fields())

    def lstat(self) -> os.stat_result:
        """Its attributes; of a symbolic link its own."""
        return self.stat(follow_symlinks=False)

    def birth_ns(self) -> int:
        """When it was made, in nanoseconds since 1970."""
        return self._attributes().birth_ns

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it leads to something."""
        return self._mode(follow_symlinks) is not None

    def is_file(self) -> bool:
        """Whether it leads to a regular file."""
        return modes.S_ISREG(self._mode() or 0)

    def is_dir(self) -> bool:
        """Whether it leads to a directory."""
        return modes.S_ISDIR(self._mode() or 0)

    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return modes.S_ISLNK(self._mode(follow=False) or 0)

    def samefile(self, other: str | RoomPath) -> bool:
        """Whether both lead to the same file."""
        there = other if isinstance(other, RoomPath) else self._with(PurePosixPath("/", other))
        return there._room is self._room and self._attributes().ino == there._attributes().ino

    def iterdir(self) -> Iterator[Self]:
        """What is in the directory, in the order in which it was made."""
        for name in self._room._session.names(str(self._pure)):
            yield self._child(name)

    def _child(self, name: str) -> Self:
        child = type(self).__new__(type(self))
        child._room = self._room
        child._pure = self._pure / name
        return child

    def glob(self, pattern: str) -> Iterator[Self]:
        """What is below and fits a pattern: `*`, `?`, `[...]` within a name, `**` any directories. Letters count as they are written."""
        pure = PurePosixPath(pattern)
        if pure.is_absolute():
            raise NotImplementedError("Non-relative patterns are unsupported")
        if not pure.parts:
            raise ValueError(f"Unacceptable pattern: {pattern!r}")
        seen: set[str] = set()
        for path in self._select(pure.parts):
            if str(path) not in seen:
                seen.add(str(path))
                yield path

    def rglob(self, pattern: str) -> Iterator[Self]:
        """The same in this directory and all below it."""
        return self.glob("**/" + pattern)

    def _select(self, parts: tuple[str, ...]) -> Iterator[Self]:
        if not parts:
            yield self
            return
        first, rest = parts[0], parts[1:]
        if first != "**" and not _MAGIC.search(first):
            child = self / first
            if child.exists(follow_symlinks=False):
                yield from child._select(rest)
            return
        try:
            entries = self._room._session.list(str(self._pure))
        except OSError as error:
            if error.errno in _ABSENT:
                return
            raise
        if first == "**":
            if rest:
                yield from self._select(rest)
            else:
                yield self
            for name, found in entries:
                if modes.S_ISDIR(found.mode):
                    yield from self._child(name)._select(parts)
                elif not rest:
                    yield self._child(name)
            return
        fits = re.compile(fnmatch.translate(first)).match
        for name, _ in entries:
            if fits(name):
                yield from self._child(name)._select(rest)

    def walk(
        self,
        top_down: bool = True,
        on_error: Callable[[OSError], object] | None = None,
        follow_symlinks: bool = False,
    ) -> Iterator[tuple[Self, list[str], list[str]]]:
        """Every directory from this one down, with the names of its directories and of what else it holds: Path.walk."""
        try:
            entries = self._room._session.list(str(self._pure))
        except OSError as error:
            if on_error is not None:
                on_error(error)
            return
        directories: list[str] = []
        others: list[str] = []
        for name, found in entries:
            down = modes.S_ISDIR(found.mode) or (follow_symlinks and self._child(name).is_dir())
            (directories if down else others).append(name)
        if top_down:
            yield self, directories, others
        for name in directories:
            yield from self._child(name).walk(top_down, on_error, follow_symlinks)
        if not top_down:
            yield self, directories, others

    # Changing what is there

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Create a directory; `parents`: those above it too; `exist_ok`: one that is there already is no error."""
        session, text = self._room._session, str(self._pure)
        try:
            session.make_dir(text, mode & ~_umask())
        except FileNotFoundError:
            if not parents or self.parent == self:
                raise
            self.parent.mkdir(parents=True, exist_ok=True)
            self.mkdir(mode, parents=False, exist_ok=exist_ok)
        except OSError:
            # The root has no name that could be taken, and is there.
            if not exist_ok or not self.is_dir():
                raise

    def rmdir(self) -> None:
        """Remove an empty directory."""
        self._room._session.remove_dir(str(self._pure))

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove a name that is not a directory's."""
        try:
            self._room._session.remove_file(str(self._pure))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rename(self, target: str | RoomPath) -> Self:
        """Rename, over a file or an empty directory that is there; returns the new path. `target` counts from the root."""
        new = type(self)(self._room, target)
        self._room._session.rename(str(self._pure), str(new), "replace")
        return new

    def replace(self, target: str | RoomPath) -> Self:
        """The same as rename."""
        return self.rename(target)

    def symlink_to(self, target: str | RoomPath) -> None:
        """Make it a symbolic link that says `target`."""
        self._room._session.symlink(str(target), str(self._pure))

    def hardlink_to(self, target: str | RoomPath) -> None:
        """Make it another name of a file that is there."""
        self._room._session.link(str(type(self)(self._room, target)), str(self._pure))

    def readlink(self) -> str:
        """What the symbolic link says. Text, because it may be relative."""
        return self._room._session.read_link(str(self._pure))

    def chmod(self, mode: int, *, follow_symlinks: bool = True) -> None:
        """Set permission bits: kept, and not checked."""
        self._room._session.change(str(self._pure), mode=mode & 0o7777, follow=follow_symlinks)

    def chown(self, uid: int | None = None, gid: int | None = None, *, follow_symlinks: bool = True) -> None:
        """Set owner and group: kept, and not checked."""
        self._room._session.change(str(self._pure), uid=uid, gid=gid, follow=follow_symlinks)

    def utime(
        self, *, atime_ns: int | None = None, mtime_ns: int | None = None, follow_symlinks: bool = True
    ) -> None:
        """Set the times of last access and last change, in nanoseconds since 1970; neither: both to the present moment."""
        now = atime_ns is None and mtime_ns is None
        self._room._session.change(
            str(self._pure), atime_ns=atime_ns, mtime_ns=mtime_ns, now=now, follow=follow_symlinks
        )

    def truncate(self, size: int) -> None:
        """Set the length of a file: cut, or made longer with zeros that take no space."""
        if size < 0:
            raise ValueError("negative size value")
        self._room._session.change(str(self._pure), size=size)

    def touch(self, mode: int = 0o666, exist_ok: bool = True) -> None:
        """Make an empty file, or set the times of one that is there to the present moment."""
        self.open("ab" if exist_ok else "xb", permissions=mode & ~_umask()).close()
        self.utime()

    # Content

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int | None = None,
    ) -> IO[Any]:
        """Open it as Path.open does; text is UTF-8 where no encoding is given."""
        bits = permissions
        if bits is None:
            # Asked for only where a file may be made: it takes a file of the host.
            bits = 0o644 if "r" in mode else 0o666 & ~_umask()
        return open_file(self._room, str(self._pure), mode, buffering, encoding, errors, newline, permissions=bits)

    def read_bytes(self) -> bytes:
        """All bytes of the file."""
        with self.open("rb", buffering=0) as file:
            data: bytes = file.read()
            return data

    def read_text(self, encoding: str | None = None, errors: str | None = None, newline: str | None = None) -> str:
        """The whole file as text."""
        with self.open("r", encoding=encoding, errors=errors, newline=newline) as file:
            text: str = file.read()
            return text

    def write_bytes(self, data: Buffer) -> int:
        """Make the file of these bytes, over one that is there; returns how many."""
        with self.open("wb", buffering=0) as file:
            count: int = file.write(data)
            return count

    def write_text(
        self, data: str, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> int:
        """Make the file of this text; returns how many characters."""
        with self.open("w", encoding=encoding, errors=errors, newline=newline) as file:
            count: int = file.write(data)
            return count


def _umask() -> int:
    """The process's mask for permissions, as Linux reports it without changing it."""
    try:
        with open("/proc/self/status", "rb") as status:
            for line in status:
                if line.startswith(b"Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    return 0o022
