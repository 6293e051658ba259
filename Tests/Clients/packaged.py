"""The package in a bare Debian: the commands of README.md and docs/backup.md as they stand there, the
real Python client through an upgrade, and a restore from a backup. deploy/check-package makes the packages and the machine, and
starts this.

    python Tests/Clients/packaged.py MACHINE OLD NEW ROOT

MACHINE is the process id of the machine's systemd, ROOT its directory; OLD and NEW are packages.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import uuid

from realtime import AsyncRealtimeClient

from clients.chaos.cluster import Cluster
from clients.database import Database
from clients.expect import Failure, equal, true, within
from clients.hub import free_port
from clients.supabase import Channel
from clients.tokens import of_role
from clients.wire import Connection

SECRET = "the secret of this check, which is long enough"
ANA = "00000000-0000-4000-8000-00000000000a"
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")

TABLE = """
CREATE TABLE notes (id int PRIMARY KEY, owner uuid); ALTER TABLE notes REPLICA IDENTITY FULL;
ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON notes FOR SELECT USING (owner = auth.uid());
GRANT SELECT ON notes TO authenticated; ALTER PUBLICATION supabase_realtime ADD TABLE notes;
ALTER ROLE tidewire PASSWORD 'one'; ALTER ROLE tidewire_policies PASSWORD 'two';
"""


def blocks(page: str, heading: str) -> list[list[str]]:
    """The blocks of commands below a heading of a page, as they stand there."""
    text = open(os.path.join(ROOT, page), encoding="utf-8").read()
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    found = re.findall(r"^```sh\n(.*?)^```$", section.group(1) if section else "", re.M | re.S)
    return [block.splitlines() for block in found]


class Machine:
    def __init__(self, leader: str, root: str, environment: dict[str, str]):
        self.leader, self.root = leader, root
        self.environment = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"} | environment

    def run(self, command: str, may_fail: bool = False) -> str:
        inside = ["nsenter", "-t", self.leader, "-a", "-r", "-w", "env", "-i"]
        inside += [f"{name}={value}" for name, value in self.environment.items()]
        done = subprocess.run(
            [*inside, "sh", "-c", f"cd /root && {command}"], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if done.returncode and not may_fail:
            raise Failure(f"`{command}` ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def follow(self, commands: list[str]):
        for command in commands:
            print(f"  # {command}", flush=True)
            self.run(command)

    async def follow_meanwhile(self, commands: list[str]):
        await asyncio.to_thread(self.follow, commands)

    def has(self, package: str):
        for old in os.listdir(f"{self.root}/root"):
            if old.endswith(".deb"):
                os.unlink(f"{self.root}/root/{old}")
        shutil.copy(package, f"{self.root}/root/")

    def write(self, path: str, text: str, mode: int = 0o644):
        with open(self.root + path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.root + path, mode)


class Writer:
    """Writes rows one after the other, whatever happens to the hub."""

    def __init__(self, database: Database):
        self.database, self.last, self.task = database, 0, None

    async def write(self, count: int):
        for _ in range(count):
            self.last += 1
            await self.database.run(f"INSERT INTO notes VALUES ({self.last}, '{ANA}')")
            await asyncio.sleep(0.01)

    def begin(self):
        self.going = True

        async def on():
            while self.going:
                await self.write(1)

        self.task = asyncio.create_task(on())

    async def end(self):
        self.going = False
        await self.task


class Place:
    """Where `Connection.open` connects to."""

    def __init__(self, port: int):
        self.host, self.port = "127.0.0.1", port
        self.url = f"ws://127.0.0.1:{port}/realtime/v1"


class Listener:
    """The real client with one channel, and all that it heard."""

    def __init__(self, place: Place):
        token = of_role(SECRET, "authenticated", sub=ANA, session_id=str(uuid.uuid4()))
        self.client = AsyncRealtimeClient(place.url, token)
        self.ids: list[int] = []
        self.systems: list[str] = []

    async def subscribe(self):
        await self.client.connect()
        self.channel = Channel(self.client, "notes")
        self.heard = self.channel.on("INSERT", "notes")
        await self.channel.subscribe()
        return self

    async def until(self, last: int, limit: float = 60):
        while not self.ids or self.ids[-1] != last:
            self.ids.append((await self.heard.next(f"row {last}", limit))["record"]["id"])

    async def told(self, words: str, limit: float):
        for _ in range(int(limit * 10)):
            if any(words in text for text in self.systems):
                return
            self.systems += [dict(item)["message"] for item in self.channel.systems.so_far()]
            await asyncio.sleep(0.1)
        raise Failure(f"nothing was said of {words!r}: {self.systems}")

    def missed(self, first: int, last: int) -> list[int]:
        return sorted(set(range(first, last + 1)) - set(self.ids))


async def listening(machine: Machine, port: int):
    for _ in range(300):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        except OSError:
            await asyncio.sleep(0.1)
    raise Failure("the hub does not listen\n" + machine.run("journalctl -u tidewire -n 20 --no-pager", may_fail=True))


def bare(machine: Machine):
    """What a machine has that has never seen Swift: the package's own dependencies are all that it takes."""
    for program in ("tidewire", "tidewire-bench"):
        linked = machine.run(f"ldd /usr/bin/{program}")
        true("not found" not in linked and "swift" not in linked, f"libraries of {program} that are all there", linked)
        true(machine.run(f"{program} --help") != "", f"{program} --help")
    pages = machine.run("tidewire --commands; tidewire bench --commands").splitlines()
    for page in pages:
        name = "tidewire-" + page.replace(" ", "-")
        true(os.path.exists(f"{machine.root}/usr/share/man/man1/{name}.1.gz"), f"a man page {name}")
    machine.write(
        "/root/complete.sh",
        "source /usr/share/bash-completion/completions/tidewire\n"
        "COMP_WORDS=(tidewire log ver); COMP_CWORD=2; compopt() { :; }; _tidewire; echo ${COMPREPLY[@]}\n"
        "COMP_WORDS=(tidewire bench verify --see); COMP_CWORD=3; _tidewire; echo ${COMPREPLY[@]}\n",
    )
    equal(machine.run("bash /root/complete.sh").split(), ["verify", "--seed"], "what bash completes")
    mode = machine.run("stat -c '%a %U' /etc/tidewire/local.conf").strip()
    equal(mode, "600 root", "who may read the secrets")


async def check(leader: str, old: str, new: str, root: str, directory: str):
    install, upgrade = blocks("README.md", "Install")
    backup, restore = blocks("docs/backup.md", "A copy of the files")[0], blocks("docs/backup.md", "Put it back")[0]
    cluster = Cluster(directory)
    cluster.initialise()
    await cluster.start()
    place = Place(free_port())
    machine = Machine(leader, root, {"SUPERUSER_URL": cluster.url(), "DEBIAN_FRONTEND": "noninteractive"})
    listener = None
    try:
        # In place of a person: the editor writes what a person would, and apt is told yes.
        settings = (
            f"database_url = 'postgresql://tidewire:one@127.0.0.1:{cluster.port}/postgres'\n"
            f"policy_database_url = 'postgresql://tidewire_policies:two@127.0.0.1:{cluster.port}/postgres'\n"
            f"jwt_secret = '{SECRET}'\nlisten = '127.0.0.1:{place.port}'\n"
        )
        machine.write("/usr/local/bin/editor", f"#!/bin/sh\ncat >>\"$1\" <<'END'\n{settings}END\n", 0o755)
        machine.write("/etc/apt/apt.conf.d/yes", 'APT::Get::Assume-Yes "true";\n')
        database = await Database.open(cluster.url())

        print("install", flush=True)
        machine.has(old)
        for command in install:
            machine.follow([command])
            if command.startswith("tidewire db apply"):
                await database.run(TABLE)
        bare(machine)
        await listening(machine, place.port)
        before = machine.run("systemctl show --property MainPID --value tidewire").strip()
        owner = machine.run(f"stat -c %u /proc/{before}").strip()
        true(int(owner) > 0, "a hub that is not root's")
        print(machine.run("systemd-analyze security --no-pager tidewire | tail -1").strip(), flush=True)

        print("clients, and an upgrade while rows are written", flush=True)
        listener = await Listener(place).subscribe()
        raw = await Connection.open(place)
        token = of_role(SECRET, "authenticated", sub=ANA)
        await raw.upgrade(place, f"/realtime/v1/websocket?apikey={token}&vsn=1.0.0")
        told = asyncio.create_task(raw.closed("a close at the upgrade"))
        writer = Writer(database)
        await writer.write(20)
        await listener.until(writer.last)
        writer.begin()
        await asyncio.sleep(1)
        written = machine.run("sha256sum /etc/tidewire/local.conf")
        machine.has(new)
        await machine.follow_meanwhile(upgrade)
        await listening(machine, place.port)
        await asyncio.sleep(2)
        await writer.end()
        equal(machine.run("sha256sum /etc/tidewire/local.conf"), written, "the settings, which an upgrade does not touch")
        equal((await told).code, 1012, "the code that a client is sent away with")
        after = machine.run("systemctl show --property MainPID --value tidewire").strip()
        true(after not in (before, "0"), "another process after the upgrade", after)
        await listener.until(writer.last)
        equal(listener.missed(1, writer.last), [], f"rows missed of {writer.last}")
        print(f"  {writer.last} rows, none missed; who was connected was told (1012) and came back", flush=True)

        print("backup, loss and restore", flush=True)
        machine.run("mkdir BACKUP")
        machine.follow(backup)
        kept = writer.last
        await writer.write(30)
        await listener.until(writer.last)
        listener.channel.systems.so_far()
        machine.follow(restore)
        await listening(machine, place.port)
        # Once it is back, what comes then comes to it.
        await listener.told("Subscribed to PostgreSQL", 60)
        await writer.write(10)
        await listener.until(writer.last)
        print("  the client came back and hears what comes", flush=True)
        found = [json.loads(line) for line in machine.run("tidewire tail --json --limit 100000 --table notes").splitlines()]
        ids = {row["record"]["id"] for row in found if row.get("record")} | {
            int(row["key"]["id"]) for row in found if isinstance(row.get("key"), dict) and "id" in row["key"]
        }
        true(set(range(1, kept + 1)) <= {int(i) for i in ids}, f"the {kept} rows of the backup in the log", sorted(ids)[:5])
        machine.run("tidewire log verify")

        print("removal", flush=True)
        machine.run("apt-get purge -q tidewire")
        true(not os.path.exists(f"{root}/etc/tidewire"), "no configuration after a purge")
        true(os.path.exists(f"{root}/var/lib/private/tidewire/log"), "the event log is kept")
    except Failure:
        print(machine.run("journalctl -u tidewire -n 30 --no-pager", may_fail=True), flush=True)
        raise
    finally:
        if listener:
            await within(listener.client.close(), 5)
        await cluster.close()


def main():
    leader, old, new, root = sys.argv[1:5]
    with tempfile.TemporaryDirectory(prefix="tidewire-package-") as directory:
        os.chmod(directory, 0o711)
        try:
            asyncio.run(check(leader, old, new, root, directory))
        except Failure as failure:
            print(f"failed: {failure}", file=sys.stderr)
            sys.exit(1)
    print("passed: the package")


main()
