#!/usr/bin/env python3
"""Does in a directory what programs wait for that make each small change durable: durable.py appends|mailbox|journal|wal DIRECTORY COUNT"""

import os
import sqlite3
import sys

DATA = os.urandom(4096)


def write(path, flags):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600)
    os.write(file, DATA)
    os.fsync(file)
    os.close(file)


def appends(directory, count):
    path = os.path.join(directory, "log")
    for _ in range(count):
        write(path, os.O_APPEND)
    os.unlink(path)


def mailbox(directory, count):
    tmp, new = (os.path.join(directory, name) for name in ("tmp", "new"))
    os.mkdir(tmp)
    os.mkdir(new)
    delivered = os.open(new, os.O_RDONLY)
    for number in map(str, range(count)):
        write(os.path.join(tmp, number), os.O_EXCL)
        os.rename(os.path.join(tmp, number), os.path.join(new, number))
        os.fsync(delivered)
    os.close(delivered)


def transactions(mode, directory, count):
    database = sqlite3.connect(os.path.join(directory, mode), isolation_level=None)
    database.execute(f"PRAGMA journal_mode = {mode}")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE t (number INTEGER PRIMARY KEY, value BLOB)")
    for _ in range(count):
        database.execute("INSERT INTO t (value) VALUES (?)", (DATA[:100],))
    database.close()


if __name__ == "__main__":
    what, directory, count = sys.argv[1:]
    directory = os.path.join(directory, f"durable-{what}")
    os.mkdir(directory)
    works = {
        "appends": appends,
        "mailbox": mailbox,
        "journal": lambda *of: transactions("delete", *of),
        "wal": lambda *of: transactions("wal", *of),
    }
    works[what](directory, int(count))
