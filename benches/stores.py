"""The stores compared: how each is made, mounted and unmounted.

Owns the command lines, passwords given without a person. Every store runs in the foreground as a child of the
comparison, so that unmounting can wait for its last write, and its memory can be read. Each is used with the options it
has by default. Knows nothing of what is measured.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path

PASSWORD = "correct horse battery staple"
# CryFS alone takes some 20 seconds over its password.
MOUNT_SECONDS = 120
UNMOUNT_SECONDS = 120


class StoreError(Exception):
    """A store that could not be made, mounted or unmounted; the message ends with what it printed."""


def tail_of(log):
    try:
        text = Path(log).read_text(errors="replace").strip()
    except OSError:
        return ""
    return " | ".join(text.splitlines()[-3:])


class Store:
    """A directory with a store in it. `path` is where files go; it is valid while mounted."""

    name = ""
    program = ""

    def __init__(self, directory, options):
        self.directory = Path(directory)
        self.options = options
        self.backing = self.directory / "store"
        self.mountpoint = self.directory / "mnt"
        self.passfile = self.directory / "password"
        self.log = self.directory / "log"
        self.process = None
        self.peak_kib = 0

    @classmethod
    def missing(cls, options):
        """Why this store cannot be tried here, or None."""
        return None if shutil.which(cls.program) else f"{cls.program} is not installed"

    @property
    def path(self):
        return self.mountpoint

    def create(self):
        self.directory.mkdir(parents=True)
        self.mountpoint.mkdir()
        self.passfile.write_text(PASSWORD + "\n")
        self.passfile.chmod(0o600)
        self.prepare()

    def prepare(self):
        """Makes the store; the directory for its data is still to be made."""
        raise NotImplementedError

    def mount_command(self):
        raise NotImplementedError

    def environment(self):
        return dict(os.environ)

    def stdin_text(self):
        return None

    def run(self, command, text=None):
        done = subprocess.run(
            [str(word) for word in command],
            input=text,
            stdin=None if text is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment(),
            check=False,
        )
        if done.returncode != 0:
            said = " | ".join(done.stdout.strip().splitlines()[-3:])
            raise StoreError(f"{command[0]} ended with {done.returncode}: {said}")

    def mount(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [str(word) for word in self.mount_command()],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=self.environment(),
            )
        try:
            if self.stdin_text():
                self.process.stdin.write(self.stdin_text().encode())
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        until = time.monotonic() + MOUNT_SECONDS
        while not os.path.ismount(self.mountpoint):
            if self.process.poll() is not None:
                raise StoreError(f"{self.name} ended with {self.process.returncode} instead of mounting: {tail_of(self.log)}")
            if time.monotonic() > until:
                raise StoreError(f"{self.name} did not mount within {MOUNT_SECONDS} s: {tail_of(self.log)}")
            time.sleep(0.005)

    def unmount(self):
        self.note_memory()
        until = time.monotonic() + 10
        while True:
            done = subprocess.run(["fusermount3", "-u", str(self.mountpoint)], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
            if time.monotonic() > until:
                raise StoreError(f"{self.name} does not unmount: {done.stderr.strip()}")
            time.sleep(0.05)
        try:
            self.process.wait(UNMOUNT_SECONDS)
        except subprocess.TimeoutExpired:
            raise StoreError(f"{self.name} still runs {UNMOUNT_SECONDS} s after it was unmounted") from None

    def note_memory(self):
        """Keeps the most resident memory the store's process ever had, in KiB."""
        try:
            with open(f"/proc/{self.process.pid}/status", encoding="ascii", errors="replace") as status:
                for line in status:
                    if line.startswith("VmHWM:"):
                        self.peak_kib = max(self.peak_kib, int(line.split()[1]))
        except OSError:
            pass

    def abandon(self):
        """After a failure: leaves neither mount nor process behind."""
        if os.path.ismount(self.mountpoint):
            subprocess.run(["fusermount3", "-uz", str(self.mountpoint)], capture_output=True, check=False)
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Plain(Store):
    """A directory on the same disk: what everything else is divided by."""

    name = "plain"

    @classmethod
    def missing(cls, options):
        return None

    @property
    def path(self):
        return self.backing

    def prepare(self):
        self.backing.mkdir()

    def mount(self):
        pass

    def unmount(self):
        pass

    def abandon(self):
        pass


class Strongroom(Store):
    name = "strongroom"

    @classmethod
    def missing(cls, options):
        if not os.access(options.strongroom, os.X_OK):
            return f"there is no {options.strongroom}: run make build, or name it with --strongroom"
        return None

    def environment(self):
        # What the machine remembers of rooms stays in the comparison's own directory.
        return dict(os.environ, XDG_STATE_HOME=str(self.directory / "state"))

    def prepare(self):
        self.run([self.options.strongroom, "create", self.backing, "--passphrase-file", self.passfile])

    def mount_command(self):
        return [
            self.options.strongroom, "mount", self.backing, self.mountpoint,
            "--passphrase-file", self.passfile, "--foreground", *self.options.mount_options.split(),
        ]  # fmt: skip


class Gocryptfs(Store):
    name = "gocryptfs"
    program = "gocryptfs"

    def prepare(self):
        self.backing.mkdir()
        self.run(["gocryptfs", "-q", "-init", "-passfile", self.passfile, self.backing])

    def mount_command(self):
        return ["gocryptfs", "-q", "-fg", "-nosyslog", "-passfile", self.passfile, self.backing, self.mountpoint]


class Securefs(Store):
    name = "securefs"
    program = "securefs"

    def prepare(self):
        self.backing.mkdir()
        self.run(["securefs", "create", "--pass", PASSWORD, self.backing])

    def mount_command(self):
        return ["securefs", "mount", "--pass", PASSWORD, self.backing, self.mountpoint]


class Cryfs(Store):
    name = "cryfs"
    program = "cryfs"

    def environment(self):
        return dict(
            os.environ,
            CRYFS_FRONTEND="noninteractive",
            CRYFS_NO_UPDATE_CHECK="true",
            CRYFS_LOCAL_STATE_DIR=str(self.directory / "state"),
        )

    def prepare(self):
        # The first mount makes the store.
        self.backing.mkdir()

    def stdin_text(self):
        return PASSWORD + "\n"

    def mount_command(self):
        return ["cryfs", "-f", self.backing, self.mountpoint]


class Cofferfs(Store):
    name = "cofferfs"
    program = "coffer"

    @classmethod
    def missing(cls, options):
        return None if cls.binary(options) else "coffer is not installed: cargo install cofferfs --root target/tools"

    @classmethod
    def binary(cls, options):
        built = Path(__file__).resolve().parent.parent / "target/tools/bin/coffer"
        return str(built) if built.exists() else shutil.which("coffer")

    def environment(self):
        return dict(os.environ, COFFER_CONFIG=str(self.directory / "registry"))

    def prepare(self):
        self.run([self.binary(self.options), "create", self.backing, "--password-file", self.passfile])

    def mount_command(self):
        return [
            self.binary(self.options), "mount", self.backing, self.mountpoint,
            "--foreground", "--password-file", self.passfile,
        ]  # fmt: skip


STORES = {store.name: store for store in (Plain, Strongroom, Gocryptfs, Securefs, Cryfs, Cofferfs)}
