"""An open room.

1. Whatever was written to a file of a room and then flushed or closed is committed when the program ends, whether it closed the room or
   not; what is in Python's buffers then is written first.
2. A child made by fork has no room: its calls are errors, and its end does nothing to its parent's.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import traceback
import weakref
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, Literal, NoReturn, Self, SupportsIndex

from ._errors import BusyError
from ._files import flags, is_detached, open_file
from ._path import RoomPath
from ._strongroom import File, Session
from ._values import (
    Argon2Cost,
    Change,
    KeySlot,
    PolicyReport,
    RoomInfo,
    RoomSpace,
    Snapshot,
    SnapshotPolicy,
    report_of,
    snapshot_of,
)

if TYPE_CHECKING:
    import io
    from types import TracebackType

    from typing_extensions import Buffer

    HostPath = str | os.PathLike[str]
    Secret = str | Buffer

# By id. No WeakSet: that one cannot be gone through while another thread adds to it, and a lock could be held for ever after a fork.
_open_rooms: weakref.WeakValueDictionary[int, Room] = weakref.WeakValueDictionary()


class Room:
    """An open room: made by strongroom.open and strongroom.create. Any threads may use it at once.

    A context manager that closes it at its end. ``room / "dir" / "file"`` is a RoomPath, which reads, writes, lists and so on.
    """

    def __init__(self, session: Session, location: str) -> None:
        self._session = session
        self._location = location
        self._opener = os.getpid()
        # The objects over files open for writing that may hold bytes back, in the same way; of each file the outermost first.
        self._buffers: weakref.WeakValueDictionary[int, io.IOBase] = weakref.WeakValueDictionary()
        _open_rooms[id(self)] = self

    # Opening and closing

    @property
    def location(self) -> str:
        """The directory of the host that holds the room."""
        return self._location

    @property
    def closed(self) -> bool:
        """Whether it was closed, or was opened by another process."""
        return not self._session.is_open()

    @property
    def read_only(self) -> bool:
        """Whether it was opened for reading only."""
        return self._session.is_read_only()

    def close(self) -> None:
        """Write what open files have in their buffers, wait for calls of other threads, commit, and close; again: nothing to do.

        Within a transaction: BusyError, and the room stays open. Calls on files that are still open are errors from then on.
        """
        if self._session.is_open():
            failed = None if self._session.in_transaction() else self._write_buffers()
            self._session.close()
            if failed is not None:
                raise failed

    def abandon(self) -> None:
        """Close at once. A transaction that is open is as if it had never begun; what files have in their buffers is lost."""
        self._session.abandon()

    def sync(self) -> None:
        """Make everything written so far durable, what open files have in their buffers too.

        Within a transaction its completion makes it durable.
        """
        self._write_all_buffers()
        self._session.sync()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Self]:
        """What is done in the ``with`` block is in the room after a crash wholly or not at all.

        At the end of the block it is made durable, what open files have in their buffers too. Blocks nest; the outermost counts.
        Other threads are not kept out, and what they do meanwhile belongs to it.

        **An exception closes the room.** An open room cannot take back what was done to it, so when the block (or its completion)
        fails, the room is abandoned: closed as it was before the transaction began. The exception goes on; open the room again to
        go on using it.
        """
        self._session.begin()
        try:
            yield self
            self._write_all_buffers()
            self._session.complete()
        except BaseException:
            if self._session.is_open():
                self.abandon()
            raise

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, of any thread."""
        return self._session.in_transaction()

    def __enter__(self) -> Self:
        self._session.is_read_only()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Facts and keys

    def info(self) -> RoomInfo:
        """Facts about the room."""
        return RoomInfo(**self._session.info())

    def space(self) -> RoomSpace:
        """Its space, and that of the storage below."""
        return RoomSpace(**self._session.space())

    def keys(self) -> list[KeySlot]:
        """What opens it."""
        return [
            KeySlot(id, kind, label, created, Argon2Cost(*cost) if cost else None)
            for id, kind, label, created, cost in self._session.slots()
        ]

    def add_key(
        self,
        *,
        passphrase: Secret | None = None,
        key_file: HostPath | None = None,
        key: Buffer | None = None,
        cost: Argon2Cost | None = None,
        label: str = "",
    ) -> int:
        """Let one more passphrase, key file or raw key open the room; returns the number of its slot."""
        return self._session.add_key(passphrase=passphrase, key_file=key_file, key=key, cost=cost, label=label)

    def change_key(
        self,
        slot: int,
        *,
        passphrase: Secret | None = None,
        key_file: HostPath | None = None,
        key: Buffer | None = None,
        cost: Argon2Cost | None = None,
    ) -> None:
        """Put another passphrase, key file or raw key into a slot; the one before opens the room no more."""
        self._session.change_key(slot, passphrase=passphrase, key_file=key_file, key=key, cost=cost)

    def remove_key(self, slot: int) -> None:
        """Remove a slot. The last one stays."""
        self._session.remove_key(slot)

    # Snapshots

    def create_snapshot(self, name: str) -> Snapshot:
        """Create a snapshot: the whole room at this moment, what open files have in their buffers too.

        It copies nothing, and is durable when this returns. The name has 1 to 255 bytes without /, @, : and control characters. Raises
        FileExistsError, OSError (errno.EINVAL) for another name, and BusyError within a transaction.
        """
        self._write_all_buffers()
        return snapshot_of(self._session.create_snapshot(name))

    def snapshots(self) -> list[Snapshot]:
        """All snapshots, from the oldest; empty where there never was one."""
        return [snapshot_of(fields) for fields in self._session.snapshots()]

    def held_by_snapshots(self) -> int:
        """The bytes that all snapshots together hold: what deleting all of them frees."""
        return self._session.held_by_snapshots()

    def snapshot(self, name: str) -> Room:
        """The room as it was in a snapshot: a Room that reads, whose changes are refused (errno.EROFS).

            with room.snapshot("monday") as past:
                text = (past / "papers" / "letter.txt").read_text()

        Closing it closes nothing else. It is closed when this room is; when the snapshot is deleted, its calls raise OSError
        (errno.ESTALE). Raises FileNotFoundError where there is no such snapshot.
        """
        return Room(self._session.open_snapshot(name), f"{self._location}@{name}")

    def rename_snapshot(self, name: str, new_name: str) -> None:
        """Give a snapshot another name."""
        self._session.rename_snapshot(name, new_name)

    def delete_snapshot(self, name: str) -> None:
        """Delete a snapshot. What it alone holds is freed in the background."""
        self._session.delete_snapshot(name)

    def diff(self, earlier: str, later: str | None = None) -> list[Change]:
        """What differs between two snapshots, or between one and now, by path. Reads every directory of both moments."""
        if later is None:
            self._write_all_buffers()
        return [Change(*fields) for fields in self._session.diff_snapshots(earlier, later)]

    def restore(self, name: str, path: str | RoomPath, to: str | RoomPath | None = None) -> int:
        """Put a file or directory back as it was in a snapshot, where it was or elsewhere; returns how many files.

        What is there now is replaced as a whole, in one step, and is gone: create a snapshot first to keep it. After an exception
        nothing is replaced. "/" puts the whole room back. Raises FileNotFoundError where there is no such snapshot or path.
        """
        target = None if to is None else self._text(to)
        return self._session.restore_snapshot(name, self._text(path), target)[0]

    def snapshot_policy(self) -> SnapshotPolicy | None:
        """The policy for automatic snapshots; None: there is none. Raises OSError (errno.EOPNOTSUPP) where a newer version set it."""
        fields = self._session.snapshot_policy()
        return None if fields is None else SnapshotPolicy(*fields)

    def set_snapshot_policy(self, policy: SnapshotPolicy) -> None:
        """Set the policy for automatic snapshots; durable when this returns.

        Nothing is created or deleted before apply_snapshot_policy, or before the room is mounted: the process of a mount applies it once a
        minute. Raises OSError (errno.EINVAL) for one that keeps nothing, or asks for more than 99 % of the storage.
        """
        self._session.set_snapshot_policy(policy)

    def clear_snapshot_policy(self) -> None:
        """Remove the policy. Its snapshots stay. A room without one: nothing to do."""
        self._session.clear_snapshot_policy()

    def apply_snapshot_policy(self) -> PolicyReport:
        """Do what the policy asks for now: create an automatic snapshot where the present hour, day or week has none, with what open
        files have in their buffers too, and delete the automatic ones that it does not keep.

        One created by create_snapshot is never deleted. No thread does this: call it when the files of the program belong together, as
        often as you like. Without a policy nothing is done. Raises BusyError within a transaction.
        """
        self._write_all_buffers()
        return report_of(self._session.apply_snapshot_policy())

    def prune_snapshots(self, *, dry_run: bool = False) -> list[Snapshot]:
        """Delete the automatic snapshots that the policy does not keep, and create none; returns them, the oldest first, each with what is
        freed. dry_run: deletes nothing. Raises FileNotFoundError where the room has no policy, and BusyError within a transaction.
        """
        return [snapshot_of(fields) for fields in self._session.prune_snapshots(dry_run)]

    # Files

    def path(self, *parts: str | RoomPath) -> RoomPath:
        """A path of this room, counted from its root."""
        return RoomPath(self, *parts)

    @property
    def root(self) -> RoomPath:
        """The room's root directory."""
        return RoomPath(self)

    def __truediv__(self, part: str | RoomPath) -> RoomPath:
        if not isinstance(part, (str, RoomPath)):
            return NotImplemented
        return RoomPath(self, part)

    def _text(self, path: str | RoomPath) -> str:
        """A path for the session, which may be odd, as long as it is not another room's."""
        if isinstance(path, RoomPath) and path.room is not self:
            raise ValueError(f"{path!r} is a path of another room")
        return str(path)

    def open(
        self,
        path: str | RoomPath,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = 0o644,
    ) -> IO[Any]:
        """Open a file as the built-in `open` does: the same modes, the same objects over it.

        Text is UTF-8 where no encoding is given. Permission bits are of a file that is made.
        """
        return open_file(self, self._text(path), mode, buffering, encoding, errors, newline, permissions=permissions)

    def open_file(self, path: str | RoomPath, mode: str = "rb", *, permissions: int = 0o644) -> File:
        """Open a file without any of Python's layers: read_at, readinto_at and write_at name a place, from any thread.

        The modes are those of `open`; the file is always of bytes.
        """
        return self._session.open_file(self._text(path), mode=permissions, **flags(mode)[0])

    def rename(
        self,
        source: str | RoomPath,
        target: str | RoomPath,
        *,
        how: Literal["replace", "no_replace", "exchange"] = "replace",
    ) -> None:
        """Rename: over what is there, refusing what is there, or swapping the two."""
        self._session.rename(self._text(source), self._text(target), how)

    def getxattr(self, path: str | RoomPath, name: str | bytes) -> bytes:
        """The value of an extended attribute, as os.getxattr."""
        return self._session.xattr(self._text(path), name)

    def setxattr(
        self,
        path: str | RoomPath,
        name: str | bytes,
        value: Buffer,
        *,
        how: Literal["any", "create", "replace"] = "any",
    ) -> None:
        """Set one: in any case, only where there is none of the name, or only where there is."""
        self._session.set_xattr(self._text(path), name, value, how)

    def removexattr(self, path: str | RoomPath, name: str | bytes) -> None:
        """Remove one."""
        self._session.remove_xattr(self._text(path), name)

    def listxattr(self, path: str | RoomPath) -> list[str]:
        """The names of all, sorted."""
        return self._session.xattr_names(self._text(path))

    # What Python asks of every object

    def __repr__(self) -> str:
        return f"<strongroom.Room {self._location!r}{' closed' if self.closed else ''}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "cannot pickle or copy an open room: it lives in the process that opened it, one at a time. "
            "Close it and open it there, or pass bytes"
        )

    # Buffers

    def _write_buffers(self) -> Exception | None:
        """Has all open files write what they hold back; returns the first error, after all had their turn."""
        failed: Exception | None = None
        for reference in self._buffers.valuerefs():
            file = reference()
            try:
                if file is not None and not file.closed:
                    file.flush()
            except Exception as error:
                # A detached object refuses everything, and holds nothing back: what was below it has its own turn.
                if not (isinstance(error, ValueError) and file is not None and is_detached(file)):
                    failed = failed or error
        return failed

    def _write_all_buffers(self) -> None:
        failed = self._write_buffers()
        if failed is not None:
            raise failed


def _at_exit() -> None:
    """Closes what the program left open. A transaction that is open now was never completed: it is as if it had never begun."""
    for reference in _open_rooms.valuerefs():
        room = reference()
        if room is None or room._opener != os.getpid() or room.closed:
            continue
        try:
            try:
                room.close()
            except BusyError:
                room.abandon()
        except Exception:
            print(f"strongroom: closing {room._location} at the end of the program failed:", file=sys.stderr)
            traceback.print_exc()


atexit.register(_at_exit)
