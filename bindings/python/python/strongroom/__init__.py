"""Strongroom: encrypted files inside your program.

A room is an encrypted file system in an ordinary directory of yours. One process has it open at a time; its threads share it.

    import strongroom

    with strongroom.create("work.strongroom", passphrase="correct horse") as room:
        (room / "notes.txt").write_text("nobody else reads this")

    with strongroom.open("work.strongroom", passphrase="correct horse") as room:
        for path in room.root.rglob("*.txt"):
            print(path, path.stat().st_size)
        room.create_snapshot("monday")
        (room / "notes.txt").unlink()
        room.restore("monday", "/notes.txt")

For everything that speaks fsspec (pandas, pyarrow, dask): `strongroom.fsspec`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ._errors import (
    BusyError,
    ClosedError,
    CorruptError,
    Error,
    InternalError,
    NotARoomError,
    RolledBackError,
    WrongKeyError,
)
from ._files import BufferedRandom, BufferedReader, BufferedWriter, RawFile, TextFile
from ._path import RoomPath
from ._room import Room
from ._strongroom import File, Session, __version__
from ._values import Argon2Cost, Change, KeySlot, PolicyReport, RoomInfo, RoomSpace, Snapshot, SnapshotPolicy

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "Argon2Cost",
    "BufferedRandom",
    "BufferedReader",
    "BufferedWriter",
    "BusyError",
    "Change",
    "ClosedError",
    "CorruptError",
    "Error",
    "File",
    "InternalError",
    "KeySlot",
    "NotARoomError",
    "PolicyReport",
    "RawFile",
    "RolledBackError",
    "Room",
    "RoomInfo",
    "RoomPath",
    "RoomSpace",
    "Snapshot",
    "SnapshotPolicy",
    "TextFile",
    "WrongKeyError",
    "__version__",
    "create",
    "open",
]


def open(
    location: str | os.PathLike[str],
    *,
    passphrase: str | Buffer | None = None,
    key_file: str | os.PathLike[str] | None = None,
    key: Buffer | None = None,
    read_only: bool = False,
    accept_rollback: bool = False,
    state_dir: str | os.PathLike[str] | None = None,
    commit_interval_ms: int = 5000,
) -> Room:
    """Open the room in a directory, by exactly one of a passphrase (text is UTF-8), a file whose content is the key (up to 1 MiB),
    and a raw key of 32 bytes.

    read_only
        Refuse every change.
    accept_rollback
        Open it although this machine has seen a newer state: after you restored a backup yourself.
    state_dir
        Where this machine remembers the newest state it saw; else ``$XDG_STATE_HOME/strongroom`` or
        ``~/.local/state/strongroom``.
    commit_interval_ms
        Milliseconds after which changes are made durable without being asked; 0: only when asked.

    Raises WrongKeyError, BusyError, NotARoomError, RolledBackError, CorruptError, and OSError of the storage below.
    """
    session = Session.open(
        location,
        passphrase=passphrase,
        key_file=key_file,
        key=key,
        read_only=read_only,
        accept_rollback=accept_rollback,
        state_dir=state_dir,
        commit_interval_ms=commit_interval_ms,
    )
    return Room(session, os.path.abspath(location))


def create(
    location: str | os.PathLike[str],
    *,
    passphrase: str | Buffer | None = None,
    key_file: str | os.PathLike[str] | None = None,
    key: Buffer | None = None,
    cost: Argon2Cost | None = None,
    state_dir: str | os.PathLike[str] | None = None,
    commit_interval_ms: int = 5000,
) -> Room:
    """Create a room in a directory that does not exist or is empty, and open it.

    cost
        What one try of the passphrase or key file costs; where it is not given, about a second of this machine.

    The rest is as for `open`. Raises FileExistsError where the directory holds something.
    """
    session = Session.create(
        location,
        passphrase=passphrase,
        key_file=key_file,
        key=key,
        cost=cost,
        state_dir=state_dir,
        commit_interval_ms=commit_interval_ms,
    )
    return Room(session, os.path.abspath(location))
