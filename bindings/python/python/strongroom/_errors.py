"""What a room refuses that no operating system knows; what one knows is its own subclass of OSError (FileNotFoundError and so on)."""

from __future__ import annotations


class Error(OSError):
    """A room, or this library, refused. Has ``errno``, ``strerror`` and ``filename`` as every OSError."""


class CorruptError(Error):
    """Data is damaged or was replaced: restore it from a backup. The rest of the room stays readable."""


class WrongKeyError(Error):
    """This passphrase or key is wrong for this room."""


class NotARoomError(Error):
    """The directory holds no room."""


class BusyError(Error):
    """The room is open elsewhere, in another process or in this one; or a transaction has it."""


class RolledBackError(Error):
    """The room is older than this machine saw it last. ``accept_rollback=True`` opens it where you restored a backup yourself."""


class ClosedError(Error, ValueError):
    """The room was closed, or was opened by the process of which this one is a fork.

    A ValueError too, as of a file of Python's own that was closed.
    """


class InternalError(Error):
    """A fault of Strongroom: please report it. The room is as it was, or as after a crash."""
