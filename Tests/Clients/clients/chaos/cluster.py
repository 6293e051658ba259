"""A PostgreSQL of our own, to crash and to fill; on a disk of its own where that can be had."""

import asyncio
import contextlib
import glob
import os
import pwd
import shutil
import signal
import subprocess

from ..database import Database
from ..expect import Failure
from ..hub import free_port

#: More than a run of hours needs; what is not used is not there.
DISK = "16g"


class SmallDisk:
    """A directory that can run full: a tmpfs, which only root may mount. Without it the directory is an ordinary one."""

    def __init__(self, path: str):
        self.path = path
        os.makedirs(path, exist_ok=True)
        self.is_small = os.getuid() == 0 and self._mount(f"size={DISK},mode=0755", "tmpfs")

    def _mount(self, options: str, *device: str) -> bool:
        kind = ["-t", "tmpfs"] if device else []
        return subprocess.run(["mount", *kind, "-o", options, *device, self.path], capture_output=True).returncode == 0

    def fill(self):
        """Leaves no room: what is there is all that fits. A file that grows meanwhile wants another try."""
        for _ in range(100):
            now = os.statvfs(self.path)
            if self._mount(f"remount,size={(now.f_blocks - now.f_bfree) * now.f_frsize}"):
                return

    def empty(self):
        self._mount(f"remount,size={DISK}")

    def close(self):
        if self.is_small:
            subprocess.run(["umount", "--lazy", self.path], capture_output=True)
        shutil.rmtree(self.path, ignore_errors=True)


class Cluster:
    SETTINGS = {
        "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "wal_level": "logical", "fsync": "off",
        "full_page_writes": "off", "max_prepared_transactions": "20", "max_connections": "100",
        # Small, so that transactions are streamed while they run, and so that the disk holds the log.
        "logical_decoding_work_mem": "64kB", "max_wal_size": "64MB", "min_wal_size": "32MB", "shared_buffers": "64MB",
        "deadlock_timeout": "100ms", "log_min_messages": "warning", "timezone": "UTC", "restart_after_crash": "on",
    }  # fmt: skip

    def __init__(self, directory: str):
        self.disk = SmallDisk(os.path.join(directory, "postgres"))
        self.data = os.path.join(self.disk.path, "data")
        self.log_file = os.path.join(directory, "postgres.log")
        self.port = free_port()
        self.process = None
        self.turn = asyncio.Lock()
        self.user = self._user()
        os.makedirs(self.data, mode=0o700, exist_ok=True)
        if self.user:
            shutil.chown(self.data, self.user)

    @staticmethod
    def _user() -> str | None:
        """PostgreSQL does not run as root."""
        if os.getuid() != 0:
            return None
        known = {entry.pw_name for entry in pwd.getpwall()}
        return next(name for name in ("postgres", "nobody") if name in known)

    @staticmethod
    def _program(name: str) -> str:
        folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[4]), reverse=True)
        places = [os.environ.get("TIDEWIRE_PG_BINDIR", ""), *folders, *os.environ["PATH"].split(":")]
        found = (os.path.join(place, name) for place in places if place)
        return next(path for path in found if os.access(path, os.X_OK))

    def _command(self, name: str, *arguments: str) -> list[str]:
        """As the server's user, and ended when we are."""
        prefix = ["setpriv", "--pdeathsig", "INT"]
        if self.user:
            entry = pwd.getpwnam(self.user)
            prefix += [f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]
        return [*prefix, "--", self._program(name), *arguments]

    def url(self, user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/postgres"

    def initialise(self):
        made = subprocess.run(
            self._command("initdb", "-D", self.data, "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8",
                          "--auth=trust", "--no-sync"),
            capture_output=True, text=True, cwd="/")  # fmt: skip
        if made.returncode:
            raise Failure(f"initdb: {made.stderr}")

    async def start(self):
        """Runs from now on, and takes connections."""
        async with self.turn:
            await self._answers()

    async def _start(self):
        settings = self.SETTINGS | {"port": str(self.port)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with open(self.log_file, "ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self._command("postgres", "-D", self.data, *options),
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")  # fmt: skip

    async def _answers(self):
        for _ in range(1200):
            # It gives up where a recovery finds no room.
            if self.process is None or self.process.returncode is not None:
                await self._start()
            if await self._takes_connections():
                return
            await asyncio.sleep(0.05)
        raise Failure(f"PostgreSQL takes no connections; see {self.log_file}")

    async def _takes_connections(self) -> bool:
        try:
            session = await Database.open(self.url())
            await session.run("SELECT 1")
            await session.close()
            return True
        except (Failure, ConnectionError):
            return False

    async def end(self, number: int):
        async with self.turn:
            await self._end(number)

    async def _end(self, number: int):
        if self.process and self.process.returncode is None:
            self.process.send_signal(number)
            await self.process.wait()

    async def close(self):
        await self.end(signal.SIGQUIT)
        self.disk.close()
