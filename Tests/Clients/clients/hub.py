"""The hub under test: one of our own, started with the settings a scenario asks for, or one that runs already."""

import asyncio
import contextlib
import ctypes
import os
import re
import signal
import socket
import sys
import urllib.parse

from .expect import Failure, NotHere, within

#: Short, so that errors do not make the tests slow. What they are for is tested with longer ones.
USUAL_SETTINGS = {"connect_error_backoff": "50ms", "channel_error_backoff": "50ms"}

#: Ends tests that would hang; judges no speed.
LIMIT = float(os.environ.get("TW_LIMIT", "40"))


def dies_with_parent():
    """A hub must not outlive the tests, however they end."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class RunningHub:
    """One that somebody else started; TW_URL says where."""

    is_own = False

    def __init__(self, url: str):
        parts = urllib.parse.urlsplit(url)
        self.url = url.rstrip("/")
        self.host, self.port = parts.hostname, parts.port or 80
        self.path = parts.path.rstrip("/") + "/websocket"
        self.process_id = int(os.environ["TW_PID"]) if "TW_PID" in os.environ else None

    async def use(self, settings: dict[str, str]):
        if settings:
            raise NotHere(f"needs a hub with {settings}")

    async def stop(self):
        pass

    def log(self) -> str:
        return ""

    def memory(self) -> int:
        """Bytes of resident memory, as the kernel counts them."""
        if self.process_id is None:
            raise NotHere("needs TW_PID")
        with open(f"/proc/{self.process_id}/status", encoding="ascii") as status:
            return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1]) * 1024

    def _tables(self) -> list[list[str]]:
        """What the descriptors of each thread lead to: threads may have tables of their own."""
        tables = []
        for thread in os.listdir(f"/proc/{self.process_id}/task"):
            folder = f"/proc/{self.process_id}/task/{thread}/fd"
            targets = []
            with contextlib.suppress(FileNotFoundError):
                for name in os.listdir(folder):
                    with contextlib.suppress(FileNotFoundError):
                        targets.append(os.readlink(f"{folder}/{name}"))
            tables.append(targets)
        return tables

    def open_files(self) -> int:
        """Sockets and files, each once, whichever threads know them."""
        return len(set().union(*self._tables()))

    def largest_table(self) -> int:
        """The descriptors of the thread that has most, which is what a limit is about."""
        return max(map(len, self._tables()))


class OwnHub(RunningHub):
    """A process of ours, on one port however often it starts again, so that clients find it again."""

    is_own = True

    def __init__(self, program: str, secret: str):
        self.port = free_port()
        self.host = "127.0.0.1"
        self.path = "/realtime/v1/websocket"
        self.url = f"ws://127.0.0.1:{self.port}/realtime/v1"
        self.program = program
        self.secret = secret
        self.directory = os.environ["TW_DATA"]
        self.slot = os.environ.get("TW_SLOT", "tidewire_clients")
        self.log_file = os.path.join(self.directory, "clients.log")
        self.settings: dict[str, str] | None = None
        self.process = None
        self.log_begin = 0

    @property
    def process_id(self):
        return self.process.pid if self.process else None

    async def use(self, settings: dict[str, str]):
        """Runs with these settings, from now on."""
        if self.process and self.process.returncode is not None:
            self.process = None
        if self.process and self.settings == settings:
            return
        await self.stop()
        self.settings = settings
        await self.start()

    def _command(self) -> list[str]:
        arguments = [self.program, "serve", "--data-dir", self.directory]
        return arguments + (["--echo"] if self.settings.get("echo") else [])

    def _environment(self) -> dict[str, str]:
        settings = USUAL_SETTINGS | self.settings | {
            "listen": f"127.0.0.1:{self.port}",
            "jwt_secret": self.secret,
            "database_url": os.environ["TW_HUB_DATABASE"],
            "slot": self.slot,
            "segment_size": "1MB",
        }  # fmt: skip
        settings.pop("echo", None)
        if "TW_POLICY_DATABASE" in os.environ:
            settings.setdefault("policy_database_url", os.environ["TW_POLICY_DATABASE"])
        return os.environ | {"TIDEWIRE_" + name.upper(): value for name, value in settings.items()}

    async def start(self):
        os.makedirs(self.directory, exist_ok=True)
        with open(self.log_file, "ab") as log:
            self.log_begin = log.tell()
            self.process = await asyncio.create_subprocess_exec(
                *self._command(), stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                env=self._environment(), preexec_fn=dies_with_parent,
            )  # fmt: skip
        await self._listening()

    async def _listening(self):
        """The log says when; there is nothing else to wait for."""
        for _ in range(int(LIMIT * 50)):
            if re.search(r"\blistening\b.*address", self.log()):
                return
            if self.process.returncode is not None:
                raise Failure(f"the hub ended with {self.process.returncode} while starting:\n{self.log()[-3000:]}")
            await asyncio.sleep(0.02)
        raise Failure(f"no line 'listening address=…' in the hub's log after {LIMIT:.0f} s:\n{self.log()[-3000:]}")

    async def end(self, number: int) -> int:
        """Sends the signal and waits for the end."""
        process, self.process = self.process, None
        if process is None or process.returncode is not None:
            return process.returncode if process else 0
        process.send_signal(number)
        try:
            return await within(process.wait(), LIMIT)
        except TimeoutError:
            process.kill()
            raise Failure(f"the hub did not end within {LIMIT:.0f} s of signal {number}") from None

    async def stop(self):
        await self.end(signal.SIGTERM)

    async def restart(self, number: int = signal.SIGTERM):
        await self.end(number)
        await self.start()

    async def forget(self, database):
        """Ends it, and lets its next start be its first."""
        await self.stop()
        self.directory = os.path.join(self.directory, "fresh")
        # It may not be dropped before the server has noticed that its reader is gone.
        while await database.run(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{self.slot}'"):
            await database.run(
                f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{self.slot}' AND NOT active"
            )
            await asyncio.sleep(0.05)

    def log(self) -> str:
        """What it wrote since it last started."""
        with open(self.log_file, "rb") as log:
            log.seek(self.log_begin)
            return log.read().decode(errors="replace")


def hub_of_environment() -> RunningHub:
    secret = os.environ.get("TW_SECRET", "")
    if "TW_HUB" in os.environ:
        return OwnHub(os.environ["TW_HUB"], secret)
    if "TW_URL" in os.environ:
        return RunningHub(os.environ["TW_URL"])
    sys.exit("set TW_HUB (a tidewire binary, started as needed) or TW_URL (a hub that runs); see Tests/Clients/README.md")
