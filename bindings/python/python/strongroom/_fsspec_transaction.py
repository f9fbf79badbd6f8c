"""Transactions of fsspec over a room: files that take their names together."""

from __future__ import annotations

import errno
import secrets
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal

from fsspec.transaction import Transaction

import strongroom


class RoomTransaction(Transaction):  # type: ignore[misc]
    """fsspec's, with what it renames at its end kept together across a crash."""

    fs: Any

    def complete(self, commit: bool = True) -> None:
        """Puts all deferred files in place, or removes them. After an exception those in place stay, and the transaction has ended too."""
        fs, files = self.fs, list(self.files)
        # Not left to fsspec: in some versions a transaction that fails stays open, and what is written later is never put in place.
        self.files.clear()
        self.fs = None
        if fs is None:
            return
        fs._intrans = False
        fs._transaction = None
        failed = None
        try:
            if commit and (files or not fs.room.closed):
                failed = self._commit(fs.room, files)
        finally:
            for file in files:
                try:
                    file.discard()
                except Exception as error:
                    failed = failed or error
        if failed is not None:
            raise failed

    def _commit(self, room: strongroom.Room, files: list[DeferredFile]) -> Exception | None:
        """Puts files in place up to the first that fails, which is no reason to close the room."""
        with room.transaction():
            for file in files:
                try:
                    file.commit()
                except Exception as error:
                    return error
        return None


class DeferredFile:
    """A file that takes its name when fsspec's transaction ends: until then it has another one beside it."""

    def __init__(self, fs: Any, path: str, mode: str, buffering: int) -> None:
        self._room = fs.room
        self._target = fs.room.path(path)
        self._beside = self._target.with_name(f".strongroom-{secrets.token_hex(8)}.part")
        self._how: Literal["replace", "no_replace"] = "no_replace" if "x" in mode else "replace"
        if "x" in mode and self._target.exists(follow_symlinks=False):
            raise FileExistsError(errno.EEXIST, "a file of that name exists", path)
        if "a" in mode and self._target.exists():
            fs.cp_file(path, str(self._beside))
        self._file = self._beside.open(mode, buffering)
        self.path = path
        self._waits = True

    def commit(self) -> None:
        """Gives it its name."""
        self._file.close()
        self._room.rename(self._beside, self._target, how=self._how)
        self._waits = False

    def discard(self) -> None:
        """Removes it."""
        if self._waits and not self._room.closed:
            # What cannot be written is of no use here.
            with suppress(OSError, ValueError):
                self._file.close()
            self._beside.unlink(missing_ok=True)
        self._waits = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._file)

    def __enter__(self) -> DeferredFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()
