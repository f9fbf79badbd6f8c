"""Measures rooms from Python, in the words of the other languages' ladders: one line of JSON. See scripts/bench-bindings.sh.

The argument is a directory for the room, which is removed at the end; further ones are bytes of a rung (67108864) and bytes copied
(1073741824).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable

import strongroom

CALLS = int(os.environ.get("LADDER_CALLS", "200000"))


def seconds(work: Callable[[], None]) -> float:
    """How long it takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def rung(room: strongroom.Room, total: int, call: int) -> float:
    """MiB a second of writing a new file in calls of that size, until all is durable."""
    data = memoryview(os.urandom(call))

    def write() -> None:
        with (room / "rung").open("wb", buffering=0) as file:
            for _ in range(total // call):
                file.write(data)
            file.file.sync()

    taken = seconds(write)
    (room / "rung").unlink()
    room.sync()
    return total / taken / (1 << 20)


def calls(room: strongroom.Room) -> dict[str, float]:
    """Nanoseconds of one call that reads a byte of a warm file, or asks for attributes; the loop of Python is counted."""
    (room / "warm").write_bytes(bytes(4096))
    with room.open_file("warm") as file:
        read_at, readinto_at, one, session = file.read_at, file.readinto_at, bytearray(1), room._session

        def read() -> None:
            for _ in range(CALLS):
                read_at(100, 1)

        def readinto() -> None:
            for _ in range(CALLS):
                readinto_at(100, one)

        def stat() -> None:
            for _ in range(CALLS):
                session.stat("/warm", True)

        read()
        return {name: seconds(work) / CALLS * 1e9 for name, work in (("call_ns", readinto), ("read_ns", read), ("stat_ns", stat))}


def copy(room: strongroom.Room, total: int) -> float:
    """MiB a second of copying data in from memory in pieces of 1 MiB, until all is durable."""
    piece = memoryview(os.urandom(1 << 20))

    def write() -> None:
        with (room / "copied").open("wb") as file:
            for _ in range(total >> 20):
                file.write(piece)
        room.sync()

    return total / seconds(write) / (1 << 20)


def main() -> None:
    """Measures, and prints."""
    location = sys.argv[1]
    total, copied = (int(text) for text in (sys.argv[2:4] + ["67108864", "1073741824"][len(sys.argv[2:4]) :]))
    with strongroom.create(location, key=os.urandom(32), state_dir=location + ".state") as room:
        write = {str(call): rung(room, total, call) for call in (1 << 20, 512 << 10, 64 << 10, 8 << 10, 1 << 10)}
        found = {"language": "python", "write_MiB_s": write, **calls(room), "copy_MiB_s": copy(room, copied)}
    shutil.rmtree(location)
    shutil.rmtree(location + ".state")
    print(json.dumps(found))


main()
