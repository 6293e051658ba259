"""The run: database, hub, channels, writers, faults, fences, and the judgement of each window between two fences."""

import asyncio
import contextlib
import dataclasses
import os
import random
import shutil
import signal
import tempfile
import time

from .. import tokens
from ..expect import Failure
from ..hub import OwnHub, free_port
from ..supabase import SupabaseClients
from . import faults
from .answers import Answers
from .cluster import Cluster, SmallDisk
from .ears import Ear, ear
from .ground import GROUND, ORACLE, SEATS, TABLES, Listeners, foundation
from .verdict import Change, Complaint, Judgement, changes_of, trail_query
from .writers import Session, Writer

WRITERS = 3
#: Something that was committed is heard within this, or it was lost: the hub's own patience with a database is shorter.
ARRIVAL = 120
PATIENCE = 3
#: Differences after which the rest of the run would say nothing new; and how many are shown of each channel.
ENOUGH = 200
SHOWN = 2
#: And how many of all.
SHOWN_IN_ALL = 16


class ChaosHub(OwnHub):
    """The program with its defaults and the documented logins."""

    def __init__(self, program: str, secret: str, cluster: Cluster, directory: str):
        self.port, self.host = free_port(), "127.0.0.1"
        self.path = "/realtime/v1/websocket"
        self.url = f"ws://127.0.0.1:{self.port}/realtime/v1"
        self.program, self.secret, self.cluster = program, secret, cluster
        self.disk = SmallDisk(os.path.join(directory, "hub"))
        self.directory = os.path.join(self.disk.path, "data")
        self.log_file = os.path.join(directory, "hub.log")
        self.settings: dict[str, str] = {}
        self.process = None
        self.log_begin = 0

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEWIRE_")}
        return inherited | {
            "TIDEWIRE_LISTEN": f"127.0.0.1:{self.port}",
            "TIDEWIRE_JWT_SECRET": self.secret,
            "TIDEWIRE_LOG_LEVEL": os.environ.get("CHAOS_LOG_LEVEL", "info"),
            "TIDEWIRE_LEDGER": os.environ.get("CHAOS_LEDGER", "ranges"),
            "TIDEWIRE_DATABASE_URL": self.cluster.url("tidewire"),
            "TIDEWIRE_POLICY_DATABASE_URL": self.cluster.url("tidewire_policies"),
        }


class Gate:
    """Writers and faults pass together; who needs quiet waits until none is inside and lets none in."""

    def __init__(self):
        self.inside = 0
        self.condition = asyncio.Condition()
        self.is_closed = False

    async def pass_through(self, action):
        async with self.condition:
            await self.condition.wait_for(lambda: not self.is_closed)
            self.inside += 1
        try:
            await action()
        finally:
            async with self.condition:
                self.inside -= 1
                self.condition.notify_all()

    @contextlib.asynccontextmanager
    async def closed(self):
        async with self.condition:
            await self.condition.wait_for(lambda: not self.is_closed)
            self.is_closed = True
            await self.condition.wait_for(lambda: self.inside == 0)
        try:
            yield
        finally:
            async with self.condition:
                self.is_closed = False
                self.condition.notify_all()


class Storm:
    def __init__(self, seed: int, seconds: float, only: list[str], without: list[str], tables: list[str], channels: list[str]):
        self.seed, self.seconds, self.channels = seed, seconds, channels
        self.random = random.Random(f"{seed}-storm")
        self.tables = [name for name in TABLES if name != "fences" and (not tables or name in tables)]
        self.faults = faults.chosen(only, without)
        self.directory = tempfile.mkdtemp(prefix="tidewire-chaos-", dir="/tmp")
        os.chmod(self.directory, 0o755)
        self.secret = "a secret of the chaos, which is longer than thirty-two bytes"
        self.is_over = False
        self.gate = Gate()
        self.turn = asyncio.Lock()
        self.began = time.monotonic()
        #: What was done when, for whoever has to understand a difference.
        self.history: list[tuple[float, str]] = []
        self.fences: list[Change] = []
        #: The last transaction that was taken from the trail.
        self.judged_to = 0
        self.fence_times: dict[int, float] = {}
        self.complaints: list[Complaint] = []
        self.said: set[str] = set()
        #: Tables whose policy is another than the usual one at the moment.
        self.widened: set[str] = set()
        self.changes = 0

    # What ears and faults need

    def token(self, role: str, seconds: int = 3600, **claims) -> str:
        return tokens.of_role(self.secret, role, seconds, **claims)

    @property
    def anon(self) -> str:
        return self.token("anon")

    async def commits_so_far(self) -> int:
        return int(await self.clerk.insist("SELECT last_value FROM chaos.commits"))

    def say_once(self, what: str):
        if what not in self.said:
            print(f"         {what}")
        self.said.add(what)

    def note(self, what: str):
        self.history.append((time.monotonic() - self.began, what))

    # The run

    async def run(self):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
        try:
            await self._prepare()
            async with SupabaseClients(self) as clients:
                await self._seat(clients)
                try:
                    await self._disturb()
                    await self._finish()
                finally:
                    for one in self.ears:
                        await one.close()
            await self._check_hub()
            if not self.complaints:
                await self.answers.ask()
        except asyncio.CancelledError:
            self._say_last()
            raise
        finally:
            await self._close()
        self._report()

    def _say_last(self):
        """For a run that hangs: what was done last, and what the hub said last."""
        for at, what in self.history[-12:]:
            print(f"         {at:.1f} s {what}")
        if hasattr(self, "hub"):
            print("         the hub's last lines:", *self.hub.log().splitlines()[-12:], sep="\n         ")

    async def _prepare(self):
        self.cluster = Cluster(self.directory)
        self.cluster.initialise()
        await self.cluster.start()
        self.clerk, self.worker = (Session(self.cluster.url(), name) for name in ("clerk", "worker"))
        self.seats = self._seats()
        self.listeners = Listeners()
        for seat in self.seats:
            for binding in seat.bindings:
                self.listeners.number(binding.table, seat.person)
                self.listeners.number(binding.table, seat.person, binding.condition)
        made = [statement for name in ("fences", *self.tables) for statement in TABLES[name].statements()]
        setup = [*foundation(), *ORACLE, *GROUND, *made, *self.listeners.statements()]
        for statement in setup:
            if await self.clerk.attempt(statement) is None:
                raise Failure(f"the test's own setup failed: {statement[:300]}")
        self.hub = ChaosHub(os.environ["TW_HUB"], self.secret, self.cluster, self.directory)
        await self.hub.start()

    def _seats(self):
        """Those that were asked for, and still listen to something when tables are left out."""
        kept = []
        for seat in [seat for seat in SEATS if not self.channels or seat.name in self.channels]:
            bindings = tuple(one for one in seat.bindings if one.table in (*self.tables, "fences"))
            if any(one.table != "fences" for one in bindings):
                kept.append(dataclasses.replace(seat, bindings=bindings))
        return kept

    async def _seat(self, clients):
        self.ears: list[Ear] = [ear(seat, self) for seat in self.seats]
        for one in self.ears:
            await one.open(clients)
        for one in self.ears:
            await one.ready()
        await self._followed()
        self.answers = Answers(self)
        self.judgements = [Judgement(one, self.listeners, self.answers) for one in self.ears]
        self.began = time.monotonic()

    async def _followed(self):
        """Until the hub has memberships in its stream it asks PostgreSQL, which answers as of now: that is documented, and
        not what is tested. Nothing says when its loops have taken that in, so they are given a while."""
        streams = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender' AND query LIKE '%tidewire_internal%'"
        for _ in range(300):
            if await self.clerk.insist(streams) != "0":
                break
            await asyncio.sleep(0.1)
        else:
            raise Failure("expected the hub to follow memberships\n     came no stream with tidewire_internal")
        await asyncio.sleep(PATIENCE)

    async def _disturb(self):
        self.writers = [Writer(number, self) for number in range(1, WRITERS + 1)]
        lanes = [self._lane(number) for number in (1, 2)] if self.faults else []
        tasks = [asyncio.create_task(part) for part in [*(one.run() for one in self.writers), *lanes, self._fencing()]]
        try:
            while time.monotonic() - self.began < self.seconds and not self._has_failed():
                await asyncio.wait(tasks, timeout=0.2, return_when=asyncio.FIRST_EXCEPTION)
                for task in tasks:
                    if task.done():
                        task.result()
        finally:
            self.is_over = True
            await asyncio.wait(tasks, timeout=60)
            for task in tasks:
                task.cancel()
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()

    def _has_failed(self) -> bool:
        return len(self.complaints) >= ENOUGH

    async def _lane(self, number: int):
        source = random.Random(f"{self.seed}-lane-{number}")
        while not self.is_over:
            await asyncio.sleep(source.uniform(0.1, 1.5))
            fault = source.choices(self.faults, [one.weight for one in self.faults])[0]
            if not self.is_over:
                await self._commit(fault, source)

    async def _commit(self, fault, source):
        self.note(fault.name)
        if fault.is_quiet:
            async with self.gate.closed():
                await self.arrival(await self.fence())
                await fault.run(self, source)
                await self.arrival(await self.fence())
        else:
            await self.gate.pass_through(lambda: fault.run(self, source))
        self.note(f"{fault.name}: done")

    async def lasting(self, change: str, back: str, source):
        """Something that holds for a while in which nothing but writing happens; for whoever has closed the gate."""
        await self.worker.insist(change)
        for _ in range(source.randint(5, 30)):
            await source.choice(self.writers).step()
        await self.arrival(await self.fence())
        await self.worker.insist(back)

    # Fences

    async def fence(self) -> int:
        """A row that everybody hears, whenever it is possible. One after another, so that their numbers are in order."""
        async with self.turn:
            return await self._fence()

    async def _fence(self) -> int:
        number = len(self.fence_times) + 1
        self.fence_times[number] = time.monotonic() - self.began
        await self.clerk.insist(f"INSERT INTO fences (id) VALUES ({number}) ON CONFLICT DO NOTHING")
        return number

    async def arrival(self, fence: int):
        """Everybody has heard it, or something later: who was away when it came hears the next."""
        limit = time.monotonic() + ARRIVAL
        again = time.monotonic() + PATIENCE
        while True:
            late = [one for one in self.ears if not any(number >= fence for number in one.fences)]
            self._look_after(late)
            if not late:
                return
            if time.monotonic() > limit:
                raise Failure(
                    f"expected fence {fence} to reach everybody within {ARRIVAL} s\n     came nothing to "
                    + ", ".join(one.seat.name for one in late))
            if time.monotonic() > again:
                await self.fence()
                again = time.monotonic() + PATIENCE
            await asyncio.sleep(0.05)

    def _look_after(self, late):
        for one in late:
            if getattr(one, "problem", None):
                raise one.problem
        if self.hub.process.returncode is not None:
            raise Failure(f"the hub ended with {self.hub.process.returncode}")

    async def _fencing(self):
        while not self.is_over:
            await asyncio.sleep(self.random.uniform(1, 3))
            await self.fence()
            await self.judge()

    # Judging

    async def judge(self):
        """Takes what is new of the trail, and compares what all fences that came let compare."""
        done = self.judged_to
        last = await self.clerk.insist(f"SELECT coalesce(max(seq), {done}) FROM chaos.trail WHERE tab = 'fences'")
        changes = changes_of(await self.clerk.insist(trail_query(done, int(last))))
        # What was read is not needed any more; a run of hours would fill the disk with it.
        await self.clerk.attempt(f"DELETE FROM chaos.trail WHERE seq <= {last}")
        self.changes += len(changes)
        self.answers.choose(changes)
        for one in self.judgements:
            one.expect(changes)
        self.fences += [change for change in changes if change.is_fence]
        self.judged_to = int(last)
        await self._compare()

    async def _compare(self):
        for one in self.judgements:
            if one.ear.asking:
                await one.ear.asking
            # A fence that was lost to it is compared with the next.
            for number in sorted(one.ear.fences):
                fence = next((fence for fence in self.fences if fence.id == number), None)
                if fence and number > one.fence:
                    self.complaints += one.window(fence)
            self.complaints += one.unexcused(time.monotonic())

    async def _finish(self):
        """The last fence is a quiet one: nothing is on its way any more."""
        if self._has_failed():
            return
        self.note("the end")
        await self.arrival(await self.fence())
        await self.judge()
        await asyncio.sleep(4)
        await self._compare()
        unjudged = await self.clerk.insist("SELECT count(*) FROM chaos.trail WHERE seq IS NULL")
        if unjudged != "0":
            raise Failure(f"the test's own oracle left {unjudged} changes unjudged")

    async def _check_hub(self):
        if self.hub.process.returncode is not None:
            raise Failure(f"the hub ended with {self.hub.process.returncode}")

    async def _close(self):
        if hasattr(self, "hub"):
            with contextlib.suppress(Exception):
                self.hub.process.send_signal(signal.SIGCONT)
                await self.hub.stop()
        for session in [*(one.session for one in getattr(self, "writers", [])), getattr(self, "clerk", None), getattr(self, "worker", None)]:
            if session:
                await session.close()
        if hasattr(self, "cluster"):
            await self.cluster.close()
        if hasattr(self, "hub"):
            self.hub.disk.close()
        if "CHAOS_KEEP" not in os.environ:
            shutil.rmtree(self.directory, ignore_errors=True)

    # Saying

    def summary(self) -> str:
        heard = sum(1 for one in self.ears for item in one.heard if item.kind == "change")
        told = sum(1 for one in self.ears for item in one.heard if item.kind in ("told", "closed"))
        done = sum(1 for _, what in self.history if what.endswith(": done"))
        commits, errors = sum(one.session.commits for one in self.writers), sum(one.session.errors for one in self.writers)
        return (
            f"seed {self.seed}: {commits} transactions and {errors} that failed, {self.changes} changes, {heard} deliveries to "
            f"{len(self.ears)} channels, {sum(one.compared for one in self.judgements)} expected, {done} faults, {len(self.fences)} fences, {told} times told, "
            f"{sum(one.excused for one in self.judgements)} losses excused by that")

    def _report(self):
        print("         " + self.summary())
        for text, count in self._tellings().items():
            print(f"         told {count} times: {text}")
        if self.complaints:
            shown = "\n".join(self._explained(one) for one in self._first())
            raise Failure(f"expected that each channel hears what it had to\n     came {len(self.complaints)} differences with {self.summary()}\n{shown}")

    def _first(self) -> list[Complaint]:
        """The first few of each channel and kind."""
        kept: dict[tuple, list[Complaint]] = {}
        for one in self.complaints:
            kept.setdefault((one.ear, *one.text.split()[:2]), []).append(one)
        return [one for some in kept.values() for one in some[:SHOWN]][:SHOWN_IN_ALL]

    def _tellings(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for one in self.ears:
            for item in one.heard:
                if item.kind in ("told", "closed"):
                    found[f"{item.kind} {item.text}"] = found.get(f"{item.kind} {item.text}", 0) + 1
        return found

    def _explained(self, complaint: Complaint) -> str:
        begin, end = (self.fence_times.get(number, 0.0) for number in complaint.window)
        during = [f"{at:.1f} s {what}" for at, what in self.history if begin - 2 <= at <= end + 1 and ": done" not in what]
        return (
            f"     {complaint.ear}, between fence {complaint.window[0]} ({begin:.1f} s) and {complaint.window[1]} ({end:.1f} s): {complaint.text}\n"
            f"         during that: {'; '.join(during[-25:])}\n"
            f"         told: {'; '.join(self._told(complaint.ear, begin - 2, end + 15)) or 'nothing'}")

    def _told(self, name: str, begin: float, end: float) -> list[str]:
        """What the channel was told, or did, about that time."""
        ear = next(one for one in self.ears if one.seat.name == name)
        items = [(item.at - self.began, item) for item in ear.heard if item.kind != "change"]
        return [f"{at:.1f} s {item.kind} {item.text[:120]}" for at, item in items if begin <= at <= end][:10]
