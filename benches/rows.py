"""What is measured: a large file, and a tree of small ones.

Owns the test data and the timed loops. Every row is a rate, so that more is better. The same code runs for every store;
buffers are made beforehand, and what is read is compared with what was written. Knows nothing of how a store mounts.

1. Nothing but the work itself is inside a timed part: comparing, opening and listing of expectations is outside, except
   that a random read's first eight bytes are kept and compared afterwards.
2. The data is drawn from a fixed seed and cannot be compressed.
"""

import hashlib
import io
import mmap
import os
import random
import subprocess
import tarfile
import time
from pathlib import Path

CALL = 128 * 1024
SMALL = 4096
RANDOM_OPERATIONS = 8192
APPENDS = 1000
TREE_FILES = 3157
SEED = 20260101
MIB = 1024 * 1024

# Row, unit, and the least ratio to a plain directory that Strongroom promises.
BIG_ROWS = {
    "sequential write with fsync": ("MiB/s", 0.45),
    "sequential read, cold": ("MiB/s", 0.55),
    "4 KiB random read, cold": ("op/s", 0.60),
    "4 KiB random write, fsync at the end": ("op/s", 0.60),
    "4 KiB append, fsync each": ("op/s", 0.60),
}
TREE_ROWS = {
    "untar": ("files/s", 0.25),
    "md5sum of all, cold": ("files/s", 0.50),
    "ls -lR, cold": ("files/s", 0.40),
    "rm -r": ("files/s", 0.45),
}
ROWS = {**BIG_ROWS, **TREE_ROWS}


class WrongData(Exception):
    """A store gave back something else than was written."""


class Data:
    """Everything that is written, made once for the whole comparison."""

    def __init__(self, directory, size):
        self.size = size
        draw = random.Random(SEED)
        # Anonymous memory, not a file: reading it costs no disk.
        self.big = mmap.mmap(-1, size)
        for start in range(0, size, 4 * MIB):
            self.big[start : start + 4 * MIB] = draw.randbytes(min(4 * MIB, size - start))
        blocks = size // SMALL
        self.read_offsets = [draw.randrange(blocks) * SMALL for _ in range(RANDOM_OPERATIONS)]
        self.write_offsets = [draw.randrange(blocks) * SMALL for _ in range(RANDOM_OPERATIONS)]
        self.fresh = [draw.randbytes(SMALL) for _ in range(64)]
        self.tar = Path(directory) / "tree.tar"
        self.sums = {}
        self.tree_bytes = 0
        # Its own draws, so that the tree is the same whatever the size of the large file.
        self._make_tar(random.Random(SEED + 1))

    def _make_tar(self, draw):
        """A source tree's shape: some 300 directories up to six deep, most files a few KiB, some far larger."""
        directories = ["tree"]
        while len(directories) < 300:
            parent = draw.choice(directories)
            if parent.count("/") < 6:
                directories.append(f"{parent}/{draw.choice(['src', 'module', 'include', 'tests'])}-{len(directories)}")
        with tarfile.open(self.tar, "w", format=tarfile.GNU_FORMAT) as tar:
            for name in directories:
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, 1_700_000_000
                tar.addfile(entry)
            for number in range(TREE_FILES):
                name = f"{draw.choice(directories)}/file-{number:05}.c"
                size = min(int(draw.lognormvariate(8.3, 1.3)), 2 * MIB)
                content = draw.randbytes(size)
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode, entry.mtime = size, 0o644, 1_700_000_000 + number
                tar.addfile(entry, io.BytesIO(content))
                self.sums[name] = hashlib.md5(content).hexdigest()
                self.tree_bytes += size


class Clock:
    """`with Clock() as clock:` then `clock.seconds`."""

    def __enter__(self):
        self.start = time.perf_counter()
        return self

    def __exit__(self, *_):
        self.seconds = time.perf_counter() - self.start


def compare_file(path, expected, size):
    """Reads the whole file, and says where it first differs."""
    buffer = bytearray(CALL)
    view = memoryview(expected)
    fd = os.open(path, os.O_RDONLY)
    try:
        for offset in range(0, size, CALL):
            want = view[offset : min(offset + CALL, size)]
            got = os.preadv(fd, [buffer], offset)
            if got != len(want) or memoryview(buffer)[:got] != want:
                raise WrongData(f"{path.name}: what was read at {offset} is not what was written")
        if os.fstat(fd).st_size != size:
            raise WrongData(f"{path.name}: {os.fstat(fd).st_size} bytes long instead of {size}")
    finally:
        os.close(fd)
        view.release()


def big_rows(store, data, wanted, cold, settle):
    """Yields (row, rate). `cold()` empties every cache and mounts afresh; `settle()` waits until the disk is idle."""
    path = store.path / "big"
    view = memoryview(data.big)
    calls = [view[start : start + CALL] for start in range(0, data.size, CALL)]

    settle()
    with Clock() as clock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        for call in calls:
            os.write(fd, call)
        os.fsync(fd)
        os.close(fd)
    yield "sequential write with fsync", data.size / MIB / clock.seconds

    if "sequential read, cold" in wanted:
        cold()
        buffer = bytearray(CALL)
        buffers = [buffer]
        total = 0
        with Clock() as clock:
            fd = os.open(path, os.O_RDONLY)
            while got := os.readv(fd, buffers):
                total += got
            os.close(fd)
        if total != data.size:
            raise WrongData(f"big: {total} bytes read instead of {data.size}")
        yield "sequential read, cold", data.size / MIB / clock.seconds

    if "4 KiB random read, cold" in wanted:
        cold()
        buffer = bytearray(SMALL)
        buffers = [buffer]
        heads = []
        fd = os.open(path, os.O_RDONLY)
        with Clock() as clock:
            for offset in data.read_offsets:
                os.preadv(fd, buffers, offset)
                heads.append(buffer[:8])
        os.close(fd)
        for offset, head in zip(data.read_offsets, heads):
            if view[offset : offset + 8] != head:
                raise WrongData(f"big: what was read at {offset} is not what was written")
        yield "4 KiB random read, cold", len(heads) / clock.seconds

    if "4 KiB random write, fsync at the end" in wanted:
        cold()
        expected = bytearray(data.big)
        fd = os.open(path, os.O_RDWR)
        with Clock() as clock:
            for number, offset in enumerate(data.write_offsets):
                os.pwrite(fd, data.fresh[number & 63], offset)
            os.fsync(fd)
        os.close(fd)
        for number, offset in enumerate(data.write_offsets):
            expected[offset : offset + SMALL] = data.fresh[number & 63]
        yield "4 KiB random write, fsync at the end", len(data.write_offsets) / clock.seconds
    else:
        expected = data.big
    cold()
    compare_file(path, expected, data.size)

    if "4 KiB append, fsync each" in wanted:
        settle()
        path = store.path / "appended"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        with Clock() as clock:
            for number in range(APPENDS):
                os.write(fd, data.fresh[number & 63])
                os.fsync(fd)
        os.close(fd)
        cold()
        compare_file(path, b"".join(data.fresh[number & 63] for number in range(APPENDS)), APPENDS * SMALL)
        yield "4 KiB append, fsync each", APPENDS / clock.seconds


def run(command, cwd):
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise WrongData(f"{command[0]}: {done.stderr.strip().splitlines()[-1] if done.stderr else done.returncode}")
    return done.stdout


def tree_rows(store, data, wanted, cold, settle):
    """Yields (row, rate). The programs are those a person would use, with their start in the time."""
    # The archive is read from the page cache by every store alike.
    data.tar.read_bytes()
    settle()
    with Clock() as clock:
        run(["tar", "-xf", str(data.tar), "--no-same-owner"], store.path)
    yield "untar", TREE_FILES / clock.seconds

    cold()
    # Always: it is also the proof that the tree is right.
    with Clock() as clock:
        output = run(["sh", "-c", "find tree -type f -print0 | xargs -0 md5sum"], store.path)
    sums = dict(reversed(line.split("  ", 1)) for line in output.splitlines())
    if sums != data.sums:
        wrong = sorted(name for name in data.sums if sums.get(name) != data.sums[name])
        raise WrongData(f"tree: {len(wrong)} files differ, the first is {wrong[:1]}")
    yield "md5sum of all, cold", TREE_FILES / clock.seconds

    if "ls -lR, cold" in wanted:
        times = []
        # It takes some 50 ms: the middle of three is less at the mercy of what else the machine does.
        for _ in range(3):
            cold()
            with Clock() as clock:
                output = run(["ls", "-lR", "tree"], store.path)
            if sum(line.startswith("-") for line in output.splitlines()) != TREE_FILES:
                raise WrongData("tree: ls does not list every file")
            times.append(clock.seconds)
        yield "ls -lR, cold", TREE_FILES / sorted(times)[1]

    if "rm -r" in wanted:
        settle()
        with Clock() as clock:
            run(["rm", "-r", "tree"], store.path)
        if (store.path / "tree").exists():
            raise WrongData("tree: still there after rm -r")
        yield "rm -r", TREE_FILES / clock.seconds
