"""How fast a room is from Python, beside crates/embed/examples/ladder.rs, which says what is measured: one line of JSON.

    ladder.py DIRECTORY SOURCE [CALLS]

`call_ns` is readinto_at, which gives Python's loop no object to make; `read_ns`, which the others do not print, is read_at, which makes
bytes. Streams are written through the files of `open` without a buffer.
"""

from __future__ import annotations

import json
import sys
import time

import strongroom

MIB = 1 << 20
SIZES = (1 << 20, 512 << 10, 128 << 10, 64 << 10, 8 << 10, 4 << 10, 1 << 10, 256)
FILE, FILES = 2 * MIB, 8


def rung(room: strongroom.Room, data: memoryview, size: int) -> float:
    """MiB a second of writing the files of one rung by calls of that size."""
    piece = data[:size]
    began = time.perf_counter()
    for n in range(FILES):
        with room.open(f"/ladder-{size}-{n}", "wb", buffering=0) as file:
            write = file.write
            for _ in range(FILE // size):
                write(piece)
            file.file.sync()
    return FILES * FILE / MIB / (time.perf_counter() - began)


def calls(room: strongroom.Room, data: memoryview, count: int) -> dict[str, float]:
    """Nanoseconds of a call, Python's loop over places that were chosen before counted in."""
    places, place = [], 1
    for _ in range(count):
        place = (place * 1103515245 + 12345) & 0xFFFFFFFF
        places.append((place >> 8) % MIB)
    found = {}
    with room.open_file("/warm", "w+") as file:
        file.write(data)
        room.sync()
        readinto_at, read_at, stat, byte = file.readinto_at, file.read_at, room._session.stat, bytearray(1)
        for at in places:
            readinto_at(at, byte)
        began = time.perf_counter_ns()
        for at in places:
            readinto_at(at, byte)
        found["call_ns"] = (time.perf_counter_ns() - began) // count
        began = time.perf_counter_ns()
        for at in places:
            read_at(at, 1)
        found["read_ns"] = (time.perf_counter_ns() - began) // count
        began = time.perf_counter_ns()
        for _ in places:
            stat("/warm", True)
        found["stat_ns"] = (time.perf_counter_ns() - began) // count
    return found


def copy(room: strongroom.Room, source: str) -> float:
    """MiB a second of copying a file of the host in."""
    buffer, copied = memoryview(bytearray(MIB)), 0
    with open(source, "rb", buffering=0) as reader:
        began = time.perf_counter()
        with room.open("/copy", "wb", buffering=0) as writer:
            while count := reader.readinto(buffer):
                copied += writer.write(buffer[:count])
            writer.file.sync()
        return copied / MIB / (time.perf_counter() - began)


def main() -> None:
    """Measures, and prints."""
    location, source = sys.argv[1:3]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 200_000
    data = memoryview(bytes(i * 31 % 251 for i in range(MIB)))
    with strongroom.create(location, key=bytes([7]) * 32) as room:
        write = {str(size): round(rung(room, data, size), 2) for size in SIZES}
        found = {"language": "python", "write_MiB_s": write, **calls(room, data, count)}
        found["copy_MiB_s"] = round(copy(room, source), 2)
    print(json.dumps(found))


main()
