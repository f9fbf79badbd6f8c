"""Rooms for tests: opened by a raw key, which costs nothing; what machines remember of rooms goes to a directory of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import strongroom

KEY = bytes(range(32))
#: The least that is allowed.
CHEAP = strongroom.Argon2Cost(8192, 1, 1)


@pytest.fixture(autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where rooms are remembered, for this process and those it starts."""
    directory = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(directory))
    return directory


@pytest.fixture
def location(tmp_path: Path) -> Path:
    """Where the test's room is."""
    return tmp_path / "room"


@pytest.fixture
def room(location: Path) -> Iterator[strongroom.Room]:
    """An open room."""
    made = strongroom.create(location, key=KEY)
    yield made
    try:
        made.close()
    except strongroom.BusyError:
        made.abandon()


@pytest.fixture
def reopen(location: Path) -> Callable[[strongroom.Room], strongroom.Room]:
    """Closes the test's room and opens it again."""

    def again(room: strongroom.Room) -> strongroom.Room:
        room.close()
        return strongroom.open(location, key=KEY)

    return again


@pytest.fixture
def python(location: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program in another interpreter: KEY and LOCATION are there, and strongroom is imported."""

    def run(program: str, timeout: float = 60, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        begin = f"import os, sys, strongroom\nKEY = bytes(range(32))\nLOCATION = {str(location)!r}\n"
        return subprocess.run(
            [sys.executable, *options, "-c", begin + program],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=dict(os.environ),
            check=False,
        )

    return run
