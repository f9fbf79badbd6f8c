"""A room as a file system of fsspec: for pandas, pyarrow, dask, zarr and whatever else opens `strongroom://` URLs.

    fs = fsspec.filesystem("strongroom", room="work.strongroom", passphrase="correct horse")
    pandas.read_parquet("strongroom://tables/a.parquet", storage_options={"room": "work.strongroom", "key_file": "work.key"})
    fsspec.open("strongroom://notes.txt::file:///srv/work.strongroom", strongroom={"passphrase": "correct horse"})

`room` is the room's directory, or a `strongroom.Room` that is open.

1. Passphrases and raw keys are held by nothing here: neither storage_options nor a repr, a pickle, `to_json` or a cache's token has them.
   What is kept to know the same secret again is a hash under a key that this process alone has.
2. One room is opened once: the same directory with the same secret returns the same instance.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import os
import secrets
import shutil
import stat as modes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fsspec.spec
from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.config import apply_config
from fsspec.utils import isfilelike, stringify_path

import strongroom
from strongroom._errors import WrongKeyError
from strongroom._fsspec_transaction import DeferredFile, RoomTransaction
from strongroom._strongroom import Attributes

_SECRETS = ("passphrase", "key")
_CHUNK = 1 << 20
_PROCESS_KEY = secrets.token_bytes(32)


class _OncePerRoom(type(fsspec.spec.AbstractFileSystem)):  # type: ignore[misc]
    """Makes instances in the place of fsspec's own cache, which would keep what it is given."""

    _instances: dict[tuple[Any, ...], tuple[bytes, StrongroomFileSystem]] = {}
    _lock = threading.RLock()

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        kwargs = apply_config(cls, kwargs)
        names = ("room",)
        if len(args) > len(names):
            raise TypeError("give the room, and everything else by name")
        kwargs.update(zip(names, args, strict=False))
        given = {name: kwargs.pop(name) for name in _SECRETS if kwargs.get(name) is not None}
        for name in _SECRETS:
            kwargs.pop(name, None)
        kwargs["room"] = _location(kwargs)
        for name in ("fo", "target_protocol", "target_options"):
            kwargs.pop(name, None)
        fresh = kwargs.pop("skip_instance_cache", False)
        room = kwargs["room"]
        if isinstance(room, strongroom.Room):
            if given or "key_file" in kwargs:
                raise TypeError("a room that is open needs no key")
            # Nothing of it is worth sharing: it holds no more than the room.
            return cls._make({}, kwargs)
        if kwargs.get("key_file") is not None:
            kwargs["key_file"] = os.path.realpath(kwargs["key_file"])
        where = (cls, *sorted((name, repr(value)) for name, value in kwargs.items() if name != "key_file"))
        secret = _fingerprint(given, kwargs.get("key_file"))
        with cls._lock:
            known = None if fresh else cls._instances.get(where)
            if known is not None and not known[1].room.closed:
                if not hmac.compare_digest(known[0], secret):
                    raise WrongKeyError(
                        13, "the room is open in this process, and was opened with another key", room
                    )
                return known[1]
            made = cls._make(given, kwargs)
            if not fresh:
                cls._instances[where] = (secret, made)
            return made

    def _make(cls, given: dict[str, Any], kwargs: dict[str, Any]) -> Any:
        made = type.__call__(cls, **given, **kwargs)
        made._fs_token_ = f"strongroom-{secrets.token_hex(8)}"
        made.storage_args = ()
        made.storage_options = kwargs
        made._has_secret = bool(given)
        return made

    def after_fork(cls) -> None:
        """What a fork brought along is the parent's; a thread of the parent may have held the lock."""
        _OncePerRoom._lock = threading.RLock()
        _OncePerRoom._instances.clear()

    def forget(cls, instance: StrongroomFileSystem) -> None:
        """Makes the next one afresh."""
        with cls._lock:
            for where, (_, known) in list(cls._instances.items()):
                if known is instance:
                    del cls._instances[where]


def _location(kwargs: dict[str, Any]) -> Any:
    """The room's directory, absolute; or the open room."""
    target = kwargs.get("target_protocol")
    if target not in (None, "file", "local"):
        raise ValueError(f"a room is stored in a directory of this machine, not in {target}://")
    room = kwargs.get("room") if kwargs.get("room") is not None else kwargs.get("fo")
    if isinstance(room, strongroom.Room):
        return room
    if room is None or room == "":
        raise TypeError(
            'which room? Give room="/path/to/work.strongroom" (or an open strongroom.Room), or strongroom://file::/path/to/room'
        )
    text = os.fspath(room)
    for prefix in ("file://", "local://"):
        if text.startswith(prefix):
            text = text[len(prefix) :]
    return os.path.realpath(text)


def _fingerprint(given: dict[str, Any], key_file: str | None) -> bytes:
    digest = hashlib.blake2b(key=_PROCESS_KEY)
    for name in sorted(given):
        value = given[name]
        data = value.encode() if isinstance(value, str) else bytes(value)
        digest.update(f"{name}:{len(data)}:".encode() + data)
    digest.update(f"key_file:{key_file}".encode("utf-8", "surrogateescape"))
    return digest.digest()


class StrongroomFileSystem(fsspec.spec.AbstractFileSystem, metaclass=_OncePerRoom):  # type: ignore[misc]
    """A room as a file system of fsspec.

    room
        The directory of the room, or a `strongroom.Room` that is open, which stays the caller's to close.
    passphrase, key_file, key
        What opens it, as for `strongroom.open`. Only a file system opened by a `key_file` can be pickled: the others would need the
        secret in the pickle.
    read_only, accept_rollback, state_dir, commit_interval_ms
        As for `strongroom.open`.
    auto_mkdir
        Make missing directories above a file that is written.

    Paths count from the room's root, with or without a slash before them. A room that was opened here is committed and closed by
    `close` or at the end of the program; `sync` makes everything durable before.
    """

    protocol = "strongroom"
    root_marker = "/"
    transaction_type = RoomTransaction
    cachable = False

    def __init__(
        self,
        room: str | os.PathLike[str] | strongroom.Room,
        *,
        passphrase: Any = None,
        key_file: Any = None,
        key: Any = None,
        read_only: bool = False,
        accept_rollback: bool = False,
        state_dir: Any = None,
        commit_interval_ms: int = 5000,
        auto_mkdir: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.auto_mkdir = auto_mkdir
        self._has_secret = True
        if isinstance(room, strongroom.Room):
            self.room, self._ours = room, False
            return
        self._ours = True
        self.room = strongroom.open(
            room,
            passphrase=passphrase,
            key_file=key_file,
            key=key,
            read_only=read_only,
            accept_rollback=accept_rollback,
            state_dir=state_dir,
            commit_interval_ms=commit_interval_ms,
        )

    # The instance

    def close(self) -> None:
        """Commit, and close the room if it was opened here."""
        type(self).forget(self)
        if self._ours:
            self.room.close()

    def sync(self) -> None:
        """Make everything written so far durable."""
        self.room.sync()

    @property
    def fsid(self) -> str:
        """The room's identity."""
        return f"strongroom_{self.room.info().id}"

    @classmethod
    def clear_instance_cache(cls) -> None:
        """Forget the instances; rooms stay open as long as somebody uses them."""
        with cls._lock:
            cls._instances.clear()

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        return {}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = stringify_path(path)
        if isinstance(path, strongroom.RoomPath):
            text = str(path)
        for prefix in ("strongroom://", "strongroom:"):
            if text.startswith(prefix):
                text = text[len(prefix) :]
                break
        return "/" + text.strip("/")

    @classmethod
    def _parent(cls, path: Any) -> str:
        above: str = cls._strip_protocol(path).rsplit("/", 1)[0]
        return above or "/"

    def __repr__(self) -> str:
        return f"<StrongroomFileSystem {self.room.location!r}>"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StrongroomFileSystem) and self.room is other.room

    def __hash__(self) -> int:
        return hash((StrongroomFileSystem, id(self.room)))

    def __reduce__(self) -> Any:
        self._refuse_secret("pickle")
        return _again, (self.storage_options,)

    def to_dict(self, *, include_password: bool = True) -> dict[str, Any]:
        """As fsspec has it; refused where the room was opened with a secret."""
        self._refuse_secret("serialize")
        made: dict[str, Any] = super().to_dict(include_password=include_password)
        return made

    def _refuse_secret(self, what: str) -> None:
        if self._has_secret or not self._ours:
            raise TypeError(
                f"cannot {what} a file system whose room was opened with a passphrase or key in memory, or elsewhere: "
                "open it with key_file=, or open it again where it is needed"
            )

    # Looking

    def _info(self, path: str, found: Attributes, link: bool) -> dict[str, Any]:
        mode = found.mode
        kind = "directory" if modes.S_ISDIR(mode) else "file" if modes.S_ISREG(mode) else "other"
        return {
            "name": path,
            "size": found.size,
            "type": kind,
            "created": found.birth_ns / 1e9,
            "mtime": found.mtime,
            "mode": mode,
            "uid": found.uid,
            "gid": found.gid,
            "ino": found.ino,
            "nlink": found.nlink,
            "islink": link,
        }

    def info(self, path: Any, **kwargs: Any) -> dict[str, Any]:
        """What is at a path; of a symbolic link what it leads to, and with "destination" what it says."""
        path = self._strip_protocol(path)
        session = self.room._session
        found = session.stat(path, False)
        if not modes.S_ISLNK(found.mode):
            return self._info(path, found, False)
        try:
            made = self._info(path, session.stat(path, True), True)
        except FileNotFoundError:
            made = self._info(path, found, True)
        made["destination"] = session.read_link(path)
        return made

    def ls(self, path: Any, detail: bool = True, **kwargs: Any) -> list[Any]:
        """The names of a directory, or the one of a file."""
        path = self._strip_protocol(path)
        try:
            entries = self.room._session.list(path)
        except NotADirectoryError:
            return [self.info(path)] if detail else [path]
        above = path if path != "/" else ""
        if not detail:
            return [f"{above}/{name}" for name, _ in entries]
        return [
            self.info(f"{above}/{name}")
            if modes.S_ISLNK(found.mode)
            else self._info(f"{above}/{name}", found, False)
            for name, found in entries
        ]

    def exists(self, path: Any, **kwargs: Any) -> bool:
        """Whether a path leads to something. Errors other than that it does not are errors."""
        return self.room.path(self._strip_protocol(path)).exists()

    def lexists(self, path: Any, **kwargs: Any) -> bool:
        """The same, of a symbolic link that leads nowhere too."""
        return self.room.path(self._strip_protocol(path)).exists(follow_symlinks=False)

    def isfile(self, path: Any) -> bool:
        """Whether it leads to a regular file."""
        return self.room.path(self._strip_protocol(path)).is_file()

    def isdir(self, path: Any) -> bool:
        """Whether it leads to a directory."""
        return self.room.path(self._strip_protocol(path)).is_dir()

    def islink(self, path: Any) -> bool:
        """Whether it is a symbolic link."""
        return self.room.path(self._strip_protocol(path)).is_symlink()

    def created(self, path: Any) -> datetime.datetime:
        """When it was made."""
        return datetime.datetime.fromtimestamp(self.info(path)["created"], tz=datetime.timezone.utc)

    def modified(self, path: Any) -> datetime.datetime:
        """When its data was last changed."""
        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], tz=datetime.timezone.utc)

    # Directories and names

    def mkdir(self, path: Any, create_parents: bool = True, **kwargs: Any) -> None:
        """Create a directory, and those above it."""
        self.room.path(self._strip_protocol(path)).mkdir(parents=create_parents)

    def makedirs(self, path: Any, exist_ok: bool = False) -> None:
        """Make a directory and those above it."""
        self.room.path(self._strip_protocol(path)).mkdir(parents=True, exist_ok=exist_ok)

    def rmdir(self, path: Any) -> None:
        """Remove an empty directory."""
        self.room.path(self._strip_protocol(path)).rmdir()

    def rm_file(self, path: Any) -> None:
        """Remove a file."""
        self.room.path(self._strip_protocol(path)).unlink()

    _rm = rm_file

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove files, and with `recursive` directories and what is in them. Symbolic links are not followed."""
        paths = path if isinstance(path, list) else [path]
        for one in paths:
            text = self._strip_protocol(one)
            if "*" in text and not self.lexists(text) or maxdepth is not None:
                for found in reversed(self.expand_path(one, recursive=recursive, maxdepth=maxdepth)):
                    self._rm_tree(found, recursive=False)
            else:
                self._rm_tree(text, recursive)

    def _rm_tree(self, path: str, recursive: bool) -> None:
        there = self.room.path(path)
        if there.is_symlink() or not there.is_dir():
            there.unlink()
            return
        if recursive:
            for directory, directories, files in there.walk(top_down=False):
                for name in files:
                    (directory / name).unlink()
                for name in directories:
                    (directory / name).rmdir()
        if path != "/":
            there.rmdir()

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any) -> None:
        """Rename, at once whatever the size; into a directory that is there. Patterns and lists are copied and removed."""
        if isinstance(path1, list) or isinstance(path2, list) or maxdepth is not None:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
            return
        source = self.room.path(self._strip_protocol(path1))
        target = self.room.path(self._strip_protocol(path2))
        if target.is_dir() and not source.is_dir():
            target = target / source.name
        if source == target:
            return
        self._make_above(str(target))
        source.replace(target)

    def cp_file(self, path1: Any, path2: Any, **kwargs: Any) -> None:
        """Copy a file within the room; a directory is made."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(source):
            self.makedirs(target, exist_ok=True)
            return
        if self.room.path(source).exists() and self.exists(target) and self.room.path(source).samefile(target):
            return
        with self.room.open(source, "rb", 0) as reader:
            self._make_above(target)
            with self.room.open(target, "wb", 0) as writer:
                shutil.copyfileobj(reader, writer, _CHUNK)

    def link(self, src: Any, dst: Any, **kwargs: Any) -> None:
        """Give a file another name."""
        self.room.path(self._strip_protocol(dst)).hardlink_to(self._strip_protocol(src))

    def symlink(self, src: Any, dst: Any, **kwargs: Any) -> None:
        """Make `dst` a symbolic link to `src`, counted from the root."""
        self.room.path(self._strip_protocol(dst)).symlink_to(self._strip_protocol(src))

    def chmod(self, path: Any, mode: int) -> None:
        """Set permission bits: kept, and not checked."""
        self.room.path(self._strip_protocol(path)).chmod(mode)

    def touch(self, path: Any, truncate: bool = True, **kwargs: Any) -> None:
        """Make a file, or set the times of one that is there; `truncate`: and cut it to nothing."""
        path = self._strip_protocol(path)
        self._make_above(path)
        there = self.room.path(path)
        there.touch()
        if truncate:
            there.truncate(0)

    def _make_above(self, path: str) -> None:
        if self.auto_mkdir:
            self.makedirs(self._parent(path), exist_ok=True)

    # Content

    def _open(
        self,
        path: Any,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **kwargs: Any,
    ) -> Any:
        path = self._strip_protocol(path)
        if "r" not in mode:
            self._make_above(path)
        buffering = block_size if block_size and block_size > 1 else -1
        # The rest of fsspec's own arguments are about what a room has no use for.
        if autocommit or "r" in mode:
            file: Any = self.room.open(path, mode, buffering)
            # As fsspec's own files say it.
            file.size = self.room._session.stat(path, True).size
            return file
        return DeferredFile(self, path, mode, buffering)

    def cat_file(self, path: Any, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """The bytes of a file from `start` to before `end`; negative ones count from its end."""
        with self.room.open_file(self._strip_protocol(path)) as file:
            size = file.size()
            first = 0 if start is None else start if start >= 0 else max(size + start, 0)
            last = size if end is None else end if end >= 0 else size + end
            return file.read_at(first, max(min(last, size) - first, 0))

    def pipe_file(self, path: Any, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        """Make a file of these bytes; mode "create": refuse one that is there."""
        with self.open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def put_file(
        self, lpath: Any, rpath: Any, callback: Callback = DEFAULT_CALLBACK, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        """Copy a file of the host in; the callback gets the number of bytes."""
        lpath = stringify_path(lpath)
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        with open(lpath, "rb", buffering=0) as reader:
            self.makedirs(self._parent(rpath), exist_ok=True)
            callback.set_size(os.fstat(reader.fileno()).st_size)
            with self.open(rpath, "xb" if mode == "create" else "wb", block_size=_CHUNK) as writer:
                _copy(reader, writer, callback)

    def get_file(
        self, rpath: Any, lpath: Any, callback: Callback = DEFAULT_CALLBACK, outfile: Any = None, **kwargs: Any
    ) -> None:
        """Copy a file out to the host; the callback gets the number of bytes. What is written there is not encrypted."""
        rpath = self._strip_protocol(rpath)
        if outfile is None and isfilelike(lpath):
            outfile = lpath
        if outfile is None and self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        with self.room.open(rpath, "rb", 0) as reader:
            callback.set_size(self.room.path(rpath).stat().st_size)
            with _host_file(lpath, outfile) as writer:
                _copy(reader, writer, callback)

    def ukey(self, path: Any) -> str:
        """Changes when the file does."""
        found = self.room._session.stat(self._strip_protocol(path), True)
        return hashlib.sha256(repr((found.ino, found.size, found.mtime_ns)).encode()).hexdigest()


os.register_at_fork(after_in_child=StrongroomFileSystem.after_fork)


@contextmanager
def _host_file(path: Any, outfile: Any) -> Iterator[Any]:
    if outfile is not None:
        yield outfile
        return
    above = os.path.dirname(os.fspath(path))
    if above:
        os.makedirs(above, exist_ok=True)
    with open(path, "wb") as file:
        yield file


def _copy(reader: Any, writer: Any, callback: Callback) -> None:
    buffer = memoryview(bytearray(_CHUNK))
    while count := reader.readinto(buffer):
        writer.write(buffer[:count])
        callback.relative_update(count)


def _again(options: dict[str, Any]) -> Any:
    return StrongroomFileSystem(**options)
