"""Hub and database start in every order, and go away again, while clients join: who was told that it has joined misses
nothing that is committed from then on, or is told."""

import asyncio
import contextlib
import os
import random
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass, field

from .. import tokens
from ..expect import Failure, fail
from ..supabase import SupabaseClients
from .cluster import Cluster
from .ground import foundation
from .storm import ChaosHub
from .writers import Session

OWNER = "00000000-0000-4000-8000-0000000000aa"
TABLES = [
    "CREATE TABLE early (n int PRIMARY KEY, owner uuid, team int)",
    "CREATE TABLE guarded (LIKE early INCLUDING ALL)",
    "CREATE TABLE teams (team int, person uuid, PRIMARY KEY (team, person))",
    f"INSERT INTO teams VALUES (1, '{OWNER}')",
    "ALTER TABLE guarded ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY reads ON guarded FOR SELECT USING "
    "(owner = auth.uid() AND team IN (SELECT t.team FROM teams t WHERE t.person = auth.uid()))",
    "ALTER TABLE early REPLICA IDENTITY FULL",
    "ALTER TABLE guarded REPLICA IDENTITY FULL",
    "GRANT SELECT ON early, guarded, teams TO anon, authenticated",
    "ALTER PUBLICATION supabase_realtime ADD TABLE early, guarded",
]  # fmt: skip
ROUND = 7.0
JOINS = 8
#: The last row of a round has reached everybody by then.
ARRIVAL = 60


@dataclass
class Row:
    """One that was committed, as far as its writer knows."""

    number: int
    began: float
    is_sure: bool


@dataclass
class Guest:
    """A client and what it heard."""

    name: str
    table: str
    channel: object
    joined: float = 0.0
    heard: list[int] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def listen(self):
        channel = self.channel
        channel.on_postgres_changes(
            "INSERT", lambda payload: self.heard.append(payload["data"]["record"]["n"]), table=self.table, schema="public")
        channel.on_system(lambda said: self.note(dict(said)))

    def note(self, said: dict):
        if "may be missing" in said["message"]:
            self.told.append(said["message"])

    def turned(self, state: str, error):
        if state != "SUBSCRIBED":
            self.told.append(f"{state} {error}")
        elif not self.joined:
            self.joined = time.monotonic()

    def problem(self, rows: list[Row]) -> str | None:
        if len(set(self.heard)) != len(self.heard):
            return "rows twice"
        if self.heard != sorted(self.heard):
            return "rows in another order than they were committed in"
        missed = [row.number for row in rows if row.began > self.joined and row.number not in set(self.heard)]
        if missed and not self.told:
            return f"{len(missed)} rows missed in silence: {missed[:5]}…{missed[-1]}"
        return None


class Beginnings:
    def __init__(self, seed: int):
        self.random = random.Random(f"{seed}-beginnings")
        self.directory = tempfile.mkdtemp(prefix="tidewire-beginnings-", dir="/tmp")
        os.chmod(self.directory, 0o755)
        self.secret = "a secret of the beginnings, which is longer than thirty-two bytes"
        self.numbers = 0
        self.rows: list[Row] = []
        self.is_over = False

    def token(self, role: str, seconds: int = 3600, **claims) -> str:
        return tokens.of_role(self.secret, role, seconds, **claims)

    @property
    def anon(self) -> str:
        return self.token("anon")

    async def run(self):
        self.cluster = Cluster(self.directory)
        self.cluster.initialise()
        await self.cluster.start()
        self.hub = ChaosHub(os.environ["TW_HUB"], self.secret, self.cluster, self.directory)
        try:
            await self._prepare()
            for order in self.random.sample(ORDERS, len(ORDERS)):
                await self._round(order)
        finally:
            with contextlib.suppress(Exception):
                await self.hub.stop()
            self.hub.disk.close()
            await self.cluster.close()
            if not os.environ.get("CHAOS_KEEP"):
                shutil.rmtree(self.directory, ignore_errors=True)

    async def _prepare(self):
        clerk = Session(self.cluster.url(), "clerk")
        for statement in [*foundation(), *TABLES]:
            if await clerk.attempt(statement) is None:
                raise Failure(f"the test's own setup failed: {statement[:300]}")
        await clerk.close()

    async def _round(self, order):
        self.rows, self.is_over = [], False
        await order.before(self)
        async with SupabaseClients(self) as clients:
            guests: list[Guest] = []
            writer = asyncio.create_task(self._write())
            joining = [asyncio.create_task(self._join(clients, guests)) for _ in range(JOINS)]
            try:
                await order.meanwhile(self)
                await asyncio.gather(*joining)
            finally:
                self.is_over = True
                await writer
                for task in joining:
                    task.cancel()
            await self._arrive(guests)
            await self._judge(order.__doc__, guests)
        await self.hub.stop()

    # Who joins

    async def _join(self, clients: SupabaseClients, guests: list[Guest]):
        await asyncio.sleep(self.random.uniform(0, ROUND))
        while self.hub.process is None or "listening" not in self.hub.log():
            await asyncio.sleep(0.05)
        number = len(guests)
        is_owner = self.random.random() < 0.5
        token = self.token("authenticated", sub=OWNER) if is_owner else self.anon
        client = await clients.client(token)
        guest = Guest(f"guest {number}", "guarded" if is_owner else "early", client.channel(f"room {number}"))
        guest.listen()
        guests.append(guest)
        await guest.channel.subscribe(lambda state, error: guest.turned(state.value, error))
        for _ in range(600):
            if guest.joined:
                return
            await asyncio.sleep(0.05)
        raise Failure(f"{guest.name} was never told that it has joined")

    # Who writes

    async def _write(self):
        session = Session(self.cluster.url(), "writer")
        while not self.is_over:
            await self._insert(session)
            await asyncio.sleep(self.random.uniform(0, 0.08))
        await session.close()

    async def _insert(self, session: Session) -> Row:
        self.numbers += 1
        row = Row(self.numbers, time.monotonic(), False)
        done = await session.attempt(
            "BEGIN", f"INSERT INTO early VALUES ({row.number}, '{OWNER}', 1)",
            f"INSERT INTO guarded VALUES ({row.number}, '{OWNER}', 1)", "COMMIT")  # fmt: skip
        row.is_sure = done is not None
        self.rows.append(row)
        return row

    async def _arrive(self, guests: list[Guest]):
        """Rows until one has reached everybody, so that all before it have had the time."""
        session = Session(self.cluster.url(), "writer")
        limit = time.monotonic() + ARRIVAL
        while True:
            row = await self._insert(session)
            for _ in range(20):
                late = [guest for guest in guests if not guest.heard or guest.heard[-1] < row.number]
                if row.is_sure and not late:
                    return await session.close()
                await asyncio.sleep(0.1)
            if time.monotonic() > limit:
                raise Failure(f"nothing reaches {', '.join(guest.name for guest in late)} within {ARRIVAL} s")

    async def _judge(self, order: str, guests: list[Guest]):
        session = Session(self.cluster.url(), "clerk")
        kept = {int(number) for number in (await session.insist("SELECT n FROM early")).split()}
        await session.close()
        rows = [row for row in self.rows if row.number in kept]
        told = sum(bool(guest.told) for guest in guests)
        reasons = {reason for guest in guests for reason in guest.told}
        print(f"         {order} {len(rows)} rows, {len(guests)} clients, {told} told of a loss", *sorted(reasons), sep="\n           ")
        for guest in guests:
            if problem := guest.problem(rows):
                fail(f"every row of {guest.table} since {guest.name} joined, once and in order ({order})", problem)


class HubFirst:
    """The hub starts, and its database later."""

    async def before(self, b: Beginnings):
        await b.cluster.end(signal.SIGINT)

    async def meanwhile(self, b: Beginnings):
        await b.hub.start()
        await asyncio.sleep(b.random.uniform(2, ROUND * 0.8))
        await b.cluster.start()


class HubFirstEver(HubFirst):
    """The hub starts with nothing on its disk, and its database later."""

    async def before(self, b: Beginnings):
        session = Session(b.cluster.url(), "clerk")
        await session.insist(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_type = 'logical' AND NOT active")
        await session.close()
        shutil.rmtree(b.hub.directory, ignore_errors=True)
        await super().before(b)


class DatabaseFirst:
    """The database is there, and the hub starts while rows are written."""

    async def before(self, b: Beginnings):
        await b.cluster.start()

    async def meanwhile(self, b: Beginnings):
        await asyncio.sleep(b.random.uniform(0, 3))
        await b.hub.start()


class DatabaseGoes:
    """Both run, and the database goes away for a while."""

    async def before(self, b: Beginnings):
        await b.cluster.start()
        await b.hub.start()

    async def meanwhile(self, b: Beginnings):
        await asyncio.sleep(b.random.uniform(0, 3))
        await b.cluster.end(b.random.choice([signal.SIGINT, signal.SIGQUIT]))
        await asyncio.sleep(b.random.uniform(1, ROUND / 2))
        await b.cluster.start()


ORDERS = [HubFirst(), HubFirstEver(), DatabaseFirst(), DatabaseGoes()]
