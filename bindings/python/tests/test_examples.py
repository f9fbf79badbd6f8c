"""What docs/embedding.md shows runs, and is what the examples are."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import strongroom

PACKAGE = Path(__file__).parents[1]
GUIDE = (PACKAGE.parents[1] / "docs" / "embedding.md").read_text()


def run(*arguments: str, where: Path) -> str:
    ended = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=where, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_example_of_the_guide_runs(tmp_path: Path) -> None:
    example = PACKAGE / "examples" / "notes.py"
    shown = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert example.read_text().endswith(shown[0])
    printed = run(str(example), "work.strongroom", where=tmp_path)
    assert printed.splitlines()[-2:] == ["nobody else reads this", "and this neither"]
    assert printed.startswith("refused: ")


def test_the_lines_on_pandas_run(tmp_path: Path) -> None:
    (tmp_path / "work.key").write_bytes(os.urandom(64))
    strongroom.create(tmp_path / "work.strongroom", key_file=tmp_path / "work.key").close()
    shown = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    run("-c", shown[1] + "\nassert table.a.tolist() == [1, 2, 3]", where=tmp_path)
    with strongroom.open(tmp_path / "work.strongroom", key_file=tmp_path / "work.key") as room:
        assert (room / "a.parquet").is_file()


def test_the_example_of_snapshots_runs(tmp_path: Path) -> None:
    example = PACKAGE / "examples" / "snapshots.py"
    shown = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert example.read_text().endswith(shown[2])
    printed = run(str(example), "work.strongroom", where=tmp_path)
    assert printed.splitlines()[:3] == ["Dear Ada", "changed /letter.txt", "Dear Ada"]


def test_the_example_of_a_policy_runs(tmp_path: Path) -> None:
    example = PACKAGE / "examples" / "policy.py"
    shown = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert example.read_text().endswith(shown[3])
    created, next_due = run(str(example), "work.strongroom", where=tmp_path).splitlines()
    assert created.startswith("created auto-")
    assert next_due.startswith("next at 2")


def test_the_ladder_prints_what_the_other_languages_print(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(bytes(3_000_000))
    printed = run(str(PACKAGE / "examples" / "ladder.py"), "ladder", "source", "2000", where=tmp_path)
    found = json.loads(printed.splitlines()[-1])
    rust = (PACKAGE.parents[1] / "crates" / "embed" / "examples" / "ladder.rs").read_text()
    assert found["language"] == "python"
    for key in ("write_MiB_s", "call_ns", "stat_ns", "copy_MiB_s"):
        assert key in found
        assert key in rust
    assert len(found["write_MiB_s"]) == 8


@pytest.mark.parametrize("module", ["strongroom", "strongroom.fsspec"])
def test_help_of_everything_can_be_read(module: str, tmp_path: Path) -> None:
    assert "room" in run("-m", "pydoc", module, where=tmp_path)
