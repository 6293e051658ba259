"""Every return of a client object: it hears everything since it was there, or that changes may be missing.

All kinds of channels, with and without something to be known by, away for a moment or for long, through cuts, ends and
kills of the hub; with the real client, which asks for nothing."""

import asyncio
import signal
import time
import uuid

from clients.expect import equal, true
from clients.proxy import Proxy
from clients.scenario import published, scenario
from clients.stage import ANA
from clients.supabase import Channel, SupabaseClients
from conformance.database import send
from conformance.private import OPEN

#: Of each: is it private, does it listen to rows, does it ask for messages of the past.
KINDS = {
    "rows": (False, True, False),
    "talk": (False, False, False),
    "room": (True, False, False),
    "replay": (True, False, True),
    "all": (True, True, True),
}
IDENTITIES = ["session", "client_id", "nothing"]
#: Kept by the hub of these scenarios.
GRACE = 10


class Member:
    """A channel of a client of its own, with everything that it heard."""

    def __init__(self, stage, kind: str, identity: str, table: str, beside: "Member | None" = None):
        self.stage, self.kind, self.identity, self.table = stage, kind, identity, table
        self.is_private, self.has_rows, self.replays = KINDS[kind]
        self.sub = beside.sub if beside else f"open:{kind}-{identity}-{table}-{time.time_ns()}"
        self.session = beside.session if beside else str(uuid.uuid4())
        self.rows, self.messages = [], []

    def __str__(self):
        return f"{self.kind} with {self.identity}"

    async def join(self, supabase, url: str):
        claims = {"session_id": self.session} if self.identity in ("session", "window") else {}
        params = {"client_id": str(uuid.uuid4())} if self.identity == "client_id" else {}
        self.client = await supabase.client(
            token=self.stage.token("authenticated", sub=ANA, **claims), url=url, params=params, initial_backoff=0.1, max_retries=200)
        broadcast = {"replay": {"since": int(time.time() * 1000) - 60_000, "limit": 3}} if self.replays else {}
        params = {"config": {"private": self.is_private, "broadcast": broadcast}}
        self.channel = Channel(self.client, self.sub, params)
        self.channel.channel.on_broadcast("note", lambda message: self.messages.append(message["payload"]["n"]))
        if self.has_rows:
            self.channel.channel.on_postgres_changes(
                "INSERT", lambda payload: self.rows.append(payload["data"]["record"]["id"]), table=self.table, schema="public")
        await self.channel.subscribe()

    def lacks(self, first: int, last: int) -> list:
        wanted = set(range(first, last + 1))
        return sorted(wanted - set(self.messages)) + (sorted(wanted - set(self.rows)) if self.has_rows else [])

    def was_told(self) -> bool:
        """By an error, as this client shows it, or by a system message."""
        words = [str(error) for _, error in self.channel.states.so_far() if error]
        words += [dict(item)["message"] for item in self.channel.systems.so_far()]
        return any("may be missing" in text for text in words)


class Writer:
    """Writes a row and a message to each topic, in one transaction each time."""

    def __init__(self, stage, table: str, members):
        self.stage, self.table, self.members, self.last = stage, table, members, 0

    async def write(self, count: int):
        for _ in range(count):
            self.last += 1
            topics = {member.sub: member.is_private for member in self.members}
            says = [send({"n": self.last}, "note", sub, is_private) for sub, is_private in topics.items()]
            await self.stage.database.run(
                "BEGIN", f"INSERT INTO {self.table} VALUES ({self.last})", *says, "COMMIT")

    async def until_heard(self, member: Member):
        """One more of both until they come: then the channel is live, and all before has been decided."""
        deadline = time.monotonic() + 30
        while self.last not in member.messages or (member.has_rows and self.last not in member.rows):
            true(time.monotonic() < deadline, f"{member} to hear of {self.last}", (member.messages[-5:], member.rows[-5:]))
            await asyncio.sleep(0.05)


async def away_by_cut(stage, proxy, clients, write, seconds):
    async with proxy.away(*clients):
        await write()
        await asyncio.sleep(seconds)


def away_by_signal(number):
    async def away(stage, proxy, clients, write, seconds):
        await stage.hub.end(number)
        await write()
        await asyncio.sleep(seconds)
        await stage.hub.start()

    return away


async def every_return(stage, table: str, aways):
    async with SupabaseClients(stage) as supabase, Proxy(stage.hub.url) as proxy:
        members = [Member(stage, kind, identity, table) for kind in KINDS for identity in IDENTITIES]
        # Two windows of one login, which the hub knows by the same.
        for kind in KINDS:
            members.append(Member(stage, kind, "window", table))
            members.append(Member(stage, kind, "window", table, beside=members[-1]))
        writer = Writer(stage, table, members)
        for member in members:
            await member.join(supabase, proxy.url)
        for name, away, seconds in aways:
            await writer.write(2)
            for member in members:
                await writer.until_heard(member)
            # What it has got is known to the hub, and written down.
            await asyncio.sleep(3)
            for member in members:
                member.was_told()
            first = writer.last + 1
            # More than a replay brings.
            await away(stage, proxy, [member.client for member in members], lambda: writer.write(8), seconds)
            for member in members:
                await member.channel.state("SUBSCRIBED", f"{member} after {name}")
            await writer.write(1)
            for member in members:
                await writer.until_heard(member)
            await asyncio.sleep(1.2)
            for member in members:
                lacking, told = member.lacks(first, writer.last), member.was_told()
                true(not lacking or told, f"{member} after {name} to hear everything or ChangesMissing", lacking)
                # Short enough, and known by something: it misses nothing.
                if member.identity != "nothing" and seconds < GRACE:
                    equal(lacking, [], f"what {member} misses after {name}")


@scenario("every return after a cut hears everything or ChangesMissing, of every kind of channel", settings={"catch_up_grace": f"{GRACE}s"}, tables=published("rt_cut", "id int PRIMARY KEY") + OPEN)
async def after_cuts(stage):
    await every_return(stage, "rt_cut", [("a cut", away_by_cut, 0), ("a long sleep", away_by_cut, GRACE + 2), ("another cut", away_by_cut, 0)])


@scenario("every return after an end of the hub hears everything or ChangesMissing, of every kind of channel", settings={"catch_up_grace": f"{GRACE}s"}, own_hub=True, tables=published("rt_end", "id int PRIMARY KEY") + OPEN)
async def after_ends(stage):
    ends = [("SIGTERM", away_by_signal(signal.SIGTERM), 0), ("SIGKILL", away_by_signal(signal.SIGKILL), 0)]
    await every_return(stage, "rt_end", ends)


@scenario("every return where coming back is off hears ChangesMissing", settings={"catch_up": "off"}, tables=published("rt_off", "id int PRIMARY KEY") + OPEN)
async def where_it_is_off(stage):
    await every_return(stage, "rt_off", [("a cut", away_by_cut, GRACE)])


@scenario("a hub that is killed again and again soon after its start repeats little", own_hub=True, tables=published("rt_young", "id int PRIMARY KEY"))
async def killed_while_young(stage):
    rows, rounds = 300, 6
    async with SupabaseClients(stage) as supabase, Proxy(stage.hub.url) as proxy:
        member = Member(stage, "rows", "client_id", "rt_young")
        await member.join(supabase, proxy.url)
        # That it is there is known to the hub, and written down.
        await asyncio.sleep(3)
        await stage.hub.end(signal.SIGKILL)
        await stage.database.run(f"INSERT INTO rt_young SELECT generate_series(1, {rows})")
        for _ in range(rounds):
            await stage.hub.start()
            await member.channel.state("SUBSCRIBED", "subscribed again")
            # Of the first life all rows come, of another those that the hub does not know to have arrived.
            deadline = time.monotonic() + 30
            while len(set(member.rows)) < rows:
                true(time.monotonic() < deadline, "all rows", len(set(member.rows)))
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.9)
            await stage.hub.end(signal.SIGKILL)
        await stage.hub.start()
        await member.channel.state("SUBSCRIBED", "subscribed again")
        await stage.database.run(f"INSERT INTO rt_young VALUES ({rows + 1})")
        deadline = time.monotonic() + 30
        while rows + 1 not in member.rows:
            true(time.monotonic() < deadline, f"row {rows + 1}", member.rows[-5:])
            await asyncio.sleep(0.02)
        true(len(member.rows) < 4 * rows, "few rows a second time", len(member.rows))
