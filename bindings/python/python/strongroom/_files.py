"""Open files: what `io` makes of a raw file of a room, as the built-in `open` makes it of one of the operating system.

1. A file keeps its room: the room is not closed by being forgotten as long as a file of it is used.
2. A room knows its files that may hold bytes in Python's buffers, and has them written when it syncs, completes a transaction or
   closes.
"""

from __future__ import annotations

import io
from typing import IO, TYPE_CHECKING, Any, NoReturn, SupportsIndex

from ._strongroom import File

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._room import Room

#: Bytes of a buffer where none are asked for: large enough that a call of the room costs little of what it moves.
DEFAULT_BUFFER_SIZE = 128 * 1024

_REFUSED = (
    "cannot pickle or copy an open file of a room: it lives in the process that opened it. "
    "Pass its path and open it there, or pass its bytes"
)


class _Unpicklable:
    """Refuses pickle and copy with a text that says what to do."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(_REFUSED)


class RawFile(_Unpicklable, io.RawIOBase):
    """An unbuffered binary file of a room: what ``open(..., buffering=0)`` gives, and what is below every other."""

    def __init__(self, room: Room, file: File, mode: str) -> None:
        self._room = room
        self._file = file
        self.mode = mode
        self.name = file.name

    @property
    def file(self) -> File:
        """The native file, whose calls name a place: read_at, readinto_at, write_at."""
        return self._file

    def readable(self) -> bool:
        """Whether it was opened for reading."""
        return self._file.readable()

    def writable(self) -> bool:
        """Whether it was opened for writing."""
        return self._file.writable()

    def seekable(self) -> bool:
        """Always, as long as it is open."""
        self._file.tell()
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        """Read up to the buffer's length at the position; 0 at the end of the file."""
        return self._file.readinto(buffer)

    def readall(self) -> bytes:
        """Read from the position to the end."""
        file = self._file
        at = file.tell()
        data = file.read_at(at, max(file.size() - at, 0))
        file.seek(at + len(data))
        return data

    def write(self, data: Buffer, /) -> int:
        """Write all of data at the position, or at the end where the file was opened for appending."""
        return self._file.write(data)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move the position, and return it."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """The position."""
        return self._file.tell()

    def truncate(self, size: int | None = None, /) -> int:
        """Set the length, to the position if none is given; the position stays."""
        length = self._file.tell() if size is None else size
        self._file.truncate(length)
        return length

    def fileno(self) -> NoReturn:
        """Refused: nothing outside this process could read such a descriptor."""
        self._file.tell()
        raise io.UnsupportedOperation(
            "a file in a room has no file descriptor: pass the file object itself, or copy the file out"
        )

    def isatty(self) -> bool:
        """Never."""
        self._file.tell()
        return False

    def close(self) -> None:
        """Close it; again: nothing to do."""
        if not self.closed:
            try:
                super().close()
            finally:
                self._file.close()

    def __repr__(self) -> str:
        state = " [closed]" if self.closed else ""
        return f"<strongroom.RawFile name={self.name!r} mode={self.mode!r}{state}>"


class BufferedReader(_Unpicklable, io.BufferedReader):
    """io.BufferedReader over a file of a room."""


class BufferedWriter(_Unpicklable, io.BufferedWriter):
    """io.BufferedWriter over a file of a room."""


class BufferedRandom(_Unpicklable, io.BufferedRandom):
    """io.BufferedRandom over a file of a room."""


class TextFile(_Unpicklable, io.TextIOWrapper):
    """io.TextIOWrapper over a file of a room."""

    mode: str  # type: ignore[assignment,misc,unused-ignore]


def flags(mode: str) -> tuple[dict[str, bool], bool, str]:
    """What a mode of `open` asks for: flags of a session's open_file, whether text, and the mode of the raw file."""
    letters = set(mode)
    if len(letters) != len(mode) or letters - set("rwaxbt+") or len(letters & set("rwax")) != 1:
        raise ValueError(f"invalid mode: {mode!r}")
    if "b" in letters and "t" in letters:
        raise ValueError("can't have text and binary mode at once")
    kind = next(iter(letters & set("rwax")))
    both = "+" in letters
    wanted = {
        "read": kind == "r" or both,
        "write": kind != "r" or both,
        "append": kind == "a",
        "create": kind in "wa",
        "create_new": kind == "x",
        "truncate": kind == "w",
    }
    return wanted, "b" not in letters, f"{kind}b" + ("+" if both else "")


def open_file(
    room: Room,
    path: str,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    *,
    permissions: int = 0o644,
) -> IO[Any]:
    """A file of a room, as the built-in `open` gives one of the operating system."""
    wanted, text, raw_mode = flags(mode)
    if not text:
        for name, value in (("encoding", encoding), ("errors", errors), ("newline", newline)):
            if value is not None:
                raise ValueError(f"binary mode doesn't take {_article(name)} argument")
    elif buffering == 0:
        raise ValueError("can't have unbuffered text I/O")
    elif newline not in (None, "", "\n", "\r", "\r\n"):
        raise ValueError(f"illegal newline value: {newline!r}")
    native = room._session.open_file(path, mode=permissions, **wanted)
    raw = RawFile(room, native, raw_mode)
    try:
        if wanted["append"]:
            raw.seek(0, io.SEEK_END)
        if buffering == 0:
            return raw  # type: ignore[return-value]
        buffered = _buffered(raw, wanted, buffering)
        outer: io.IOBase = buffered
        if text:
            # What is encoded and looked up wrongly is refused here, and the file closed again.
            outer = TextFile(
                buffered,
                encoding="utf-8" if encoding is None else encoding,
                errors=errors,
                newline=newline,
                line_buffering=buffering == 1,
            )
            outer.mode = mode  # type: ignore[misc,unused-ignore]
        if wanted["write"]:
            # The buffer on its own, too: it goes on without the text object that is detached from it.
            for layer in (outer, buffered):
                room._buffers[id(layer)] = layer
        return outer  # type: ignore[return-value]
    except BaseException:
        raw.close()
        raise


def is_detached(file: io.IOBase) -> bool:
    """Whether an object of `open_file` was separated from the one below by its `detach`."""
    return getattr(file, "buffer" if isinstance(file, TextFile) else "raw", None) is None


def _article(name: str) -> str:
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def _buffered(raw: RawFile, wanted: dict[str, bool], buffering: int) -> Any:
    size = buffering if buffering > 1 else DEFAULT_BUFFER_SIZE
    if wanted["read"] and wanted["write"]:
        return BufferedRandom(raw, size)
    return BufferedReader(raw, size) if wanted["read"] else BufferedWriter(raw, size)
