"""Coming back, with the real client as it is: it asks for nothing, and misses nothing."""

import asyncio
import contextlib
import signal
import uuid

from clients.expect import equal, true
from clients.peer import binding
from clients.proxy import Proxy
from clients.scenario import published, scenario
from clients.stage import ANA, BEN
from clients.supabase import Channel, SupabaseClients

OWNED = (
    "ALTER TABLE {0} REPLICA IDENTITY FULL; ALTER TABLE {0} ENABLE ROW LEVEL SECURITY;"
    "CREATE POLICY own ON {0} FOR SELECT USING (owner = auth.uid())"
)
#: A ping follows deliveries within a second, and its answer at once.
ACKNOWLEDGED = 2.5


def logged_in(stage) -> str:
    return stage.token("authenticated", sub=ANA, session_id=str(uuid.uuid4()))


class Writer:
    """Writes rows one after the other, whatever happens to the hub."""

    def __init__(self, stage, table: str):
        self.stage, self.table, self.last, self.ending = stage, table, 0, False

    async def write(self, count: int, pause: float = 0.0):
        self.ending = False
        for _ in range(count):
            if self.ending:
                break
            self.last += 1
            await self.stage.database.run(f"INSERT INTO {self.table} VALUES ({self.last}, '{ANA}')")
            await asyncio.sleep(pause)

    @contextlib.asynccontextmanager
    async def writing(self, pause: float = 0.02):
        task = asyncio.create_task(self.write(1_000_000, pause))
        try:
            yield
        finally:
            self.ending = True
            await task


async def ids_until(heard, last: int) -> list[int]:
    found = []
    while not found or found[-1] != last:
        found.append((await heard.next(f"row {last}"))["record"]["id"])
    return found


def check(found: list[int], last: int, first: int = 1):
    """Every one, in order; what comes again is the end of what came before, and what follows it follows again."""
    equal(sorted(set(found)), list(range(first, last + 1)), "what came, each counted once")
    back = [(before, after) for before, after in zip(found, found[1:]) if after != before + 1]
    true(all(after <= before for before, after in back), "no row before its turn", back)


async def returning(stage, supabase, table, **more):
    client = await supabase.client(initial_backoff=0.2, **({"token": logged_in(stage)} | more))
    channel = Channel(client, f"returning-{table}")
    heard = channel.on("INSERT", table)
    await channel.subscribe()
    return client, channel, heard


TABLE = "id int PRIMARY KEY, owner uuid"


@scenario("a socket that is cut while rows are written costs none of them, again and again", tables=published("b_cut", TABLE, OWNED.format("b_cut")))
async def cut(stage):
    async with SupabaseClients(stage) as supabase:
        client, channel, heard = await returning(stage, supabase, "b_cut")
        writer = Writer(stage, "b_cut")
        found = []
        for _ in range(3):
            async with writer.writing():
                await asyncio.sleep(0.7)
                client._ws_connection.transport.abort()
                await asyncio.sleep(1.5)
            await channel.ready()
            found += await ids_until(heard, writer.last)
        check(found, writer.last)


@scenario("what was acknowledged does not come again", tables=published("b_ack", TABLE))
async def acknowledged(stage):
    async with SupabaseClients(stage) as supabase:
        client, channel, heard = await returning(stage, supabase, "b_ack")
        writer = Writer(stage, "b_ack")
        await writer.write(20)
        found = await ids_until(heard, 20)
        await asyncio.sleep(ACKNOWLEDGED)
        client._ws_connection.transport.abort()
        await writer.write(5)
        await channel.ready()
        await writer.write(1)
        equal(found + await ids_until(heard, 26), list(range(1, 27)), "what came, each once")


@scenario("a hub that is restarted, or killed, costs no row", tables=published("b_restart", TABLE, OWNED.format("b_restart")), own_hub=True)
async def restarted(stage):
    async with SupabaseClients(stage) as supabase:
        client, channel, heard = await returning(stage, supabase, "b_restart", max_retries=50)
        writer = Writer(stage, "b_restart")
        found = []
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
            async with writer.writing():
                await asyncio.sleep(1.5)
                await stage.hub.end(number)
                await asyncio.sleep(1)
                await stage.hub.start()
                await channel.ready()
            found += await ids_until(heard, writer.last)
        check(found, writer.last)


MEMBERS = [
    "DROP TABLE IF EXISTS b_members CASCADE",
    "CREATE TABLE b_members (room int, person uuid, PRIMARY KEY (room, person))",
    "ALTER TABLE b_members REPLICA IDENTITY FULL; GRANT SELECT ON b_members TO authenticated",
    "ALTER PUBLICATION tidewire_internal ADD TABLE b_members",
]
ROOMS = published("b_rooms", "id int PRIMARY KEY, room int",
    "ALTER TABLE b_rooms REPLICA IDENTITY FULL; ALTER TABLE b_rooms ENABLE ROW LEVEL SECURITY;"
    "CREATE POLICY members ON b_rooms FOR SELECT USING (EXISTS"
    " (SELECT FROM b_members m WHERE m.room = b_rooms.room AND m.person = auth.uid()))")  # fmt: skip


@scenario("who was a member when a row was written hears of it, and nobody else, though the hub was restarted or killed", own_hub=True, tables=MEMBERS + ROOMS)
async def members(stage):
    async with SupabaseClients(stage) as supabase:
        people = {}
        for token in (stage.ana, stage.ben):
            _, channel, heard = await returning(
                stage, supabase, "b_rooms", token=token, params={"client_id": str(uuid.uuid4())}, max_retries=50)
            people[token] = (channel, heard)
        (ana, of_ana), (ben, of_ben) = people.values()
        last = 0

        async def row():
            nonlocal last
            last += 1
            await stage.database.run(f"INSERT INTO b_rooms VALUES ({last}, 1)")
            return last

        async def make(person: str):
            await stage.database.run(f"BEGIN; DELETE FROM b_members; INSERT INTO b_members VALUES (1, '{person}'); COMMIT")

        await make(ANA)
        await ids_until(of_ana, await row())
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
            await asyncio.sleep(ACKNOWLEDGED)
            await stage.hub.end(number)
            away = await row()
            await make(BEN)
            swapped = await row()
            await stage.hub.start()
            await ana.ready()
            await ben.ready()
            there = await row()
            equal(await ids_until(of_ben, there), [swapped, there], f"what Ben hears after {number.name}")
            await make(ANA)
            end = await row()
            equal(await ids_until(of_ana, end), [away, end], f"what Ana hears after {number.name}")


@scenario("what a proxy had taken when it lost its client comes again, though the hub believes the client is there", tables=published("b_proxy", TABLE))
async def proxied(stage):
    async with SupabaseClients(stage) as supabase, Proxy(stage.hub.url) as proxy:
        client, channel, heard = await returning(stage, supabase, "b_proxy", url=proxy.url)
        writer = Writer(stage, "b_proxy")
        found = []
        for pause in (0, ACKNOWLEDGED):
            await writer.write(10)
            found += await ids_until(heard, writer.last)
            proxy.become_greedy()
            before = proxy.swallowed
            await writer.write(30)
            while proxy.swallowed < before + 3000:
                await asyncio.sleep(0.05)
            await asyncio.sleep(pause)
            client._ws_connection.transport.abort()
            await channel.ready()
            await writer.write(3)
            found += await ids_until(heard, writer.last)
        check(found, writer.last)


@scenario("who joins again and again on its own socket misses nothing, and gets nothing twice", tables=published("b_again", TABLE) + ["CREATE TABLE b_unpublished (id int PRIMARY KEY)"])
async def again(stage):
    """The real client joins again whenever it is told of an error, as of a table that is not published."""
    async with SupabaseClients(stage) as supabase:
        for token in (logged_in(stage), stage.anon):
            client = await supabase.client(token=token)
            channel = Channel(client, f"again-{len(token)}")
            heard = channel.on("INSERT", "b_again")
            channel.on("INSERT", "b_unpublished")
            await channel.subscribe(ready=False)
            await stage.database.run("DELETE FROM b_again")
            writer = Writer(stage, "b_again")
            async with writer.writing(0.001):
                for _ in range(4):
                    await channel.state("SUBSCRIBED", "once more")
            equal(await ids_until(heard, writer.last), list(range(1, writer.last + 1)), "what came, each once")


@scenario("a fresh page begins afresh, and so does who left with a word", tables=published("b_fresh", TABLE))
async def fresh(stage):
    async with SupabaseClients(stage) as supabase:
        token = logged_in(stage)
        watcher = await stage.peer()
        await watcher.subscribe("realtime:watcher", binding("b_fresh"))
        client, channel, heard = await returning(stage, supabase, "b_fresh", token=token, auto_reconnect=False)
        writer = Writer(stage, "b_fresh")
        await writer.write(3)
        await ids_until(heard, 3)
        client._ws_connection.transport.abort()
        await writer.write(3)
        await watcher.changes_until("realtime:watcher", lambda data: data["record"]["id"] == 6)
        _, _, other = await returning(stage, supabase, "b_fresh", token=token)
        await writer.write(1)
        equal(await ids_until(other, 7), [7], "what the other page hears")
        left, channel, heard = await returning(stage, supabase, "b_fresh")
        await channel.channel.unsubscribe()
        # Else the client takes the close for its next channel's.
        await channel.state("CLOSED", "when it has left")
        await writer.write(2)
        await watcher.changes_until("realtime:watcher", lambda data: data["record"]["id"] == 9)
        channel = Channel(left, "returning-b_fresh")
        heard = channel.on("INSERT", "b_fresh")
        await channel.subscribe()
        await writer.write(1)
        equal(await ids_until(heard, 10), [10], "what it hears that left")


async def told(channel):
    """This client shows it as an error, and joins again."""
    await channel.states.until(lambda item: "changes may be missing" in str(item[1]), "an error with these words")


@scenario("a client without a login's session resumes with a client_id; without one it is told that changes may be missing", tables=published("b_named", TABLE))
async def named(stage):
    async with SupabaseClients(stage) as supabase, Proxy(stage.hub.url) as proxy:
        more = {"token": stage.anon, "url": proxy.url, "max_retries": 50}
        nobody, first, unknown = await returning(stage, supabase, "b_named", **more)
        named, second, known = await returning(stage, supabase, "b_named", params={"client_id": str(uuid.uuid4())}, **more)
        writer = Writer(stage, "b_named")
        watcher = await stage.peer()
        await watcher.subscribe("realtime:watcher", binding("b_named"))
        async with proxy.away(nobody, named):
            await writer.write(5)
            await watcher.changes_until("realtime:watcher", lambda data: data["record"]["id"] == 5)
        await first.ready()
        await second.ready()
        await told(first)
        await first.ready()
        await writer.write(1)
        equal(await ids_until(known, 6), [1, 2, 3, 4, 5, 6], "what it hears that has a name")
        equal(await ids_until(unknown, 6), [6], "what the other hears")


@scenario("a client that comes back after the grace period is told that changes may be missing", settings={"catch_up_grace": "1s"}, tables=published("b_late", TABLE))
async def late(stage):
    async with SupabaseClients(stage) as supabase, Proxy(stage.hub.url) as proxy:
        client, channel, heard = await returning(stage, supabase, "b_late", url=proxy.url, max_retries=50)
        writer = Writer(stage, "b_late")
        watcher = await stage.peer()
        await watcher.subscribe("realtime:watcher", binding("b_late"))
        async with proxy.away(client):
            await writer.write(5)
            await watcher.changes_until("realtime:watcher", lambda data: data["record"]["id"] == 5)
            await asyncio.sleep(3)
        await channel.ready()
        await told(channel)
        await channel.ready()
        await writer.write(1)
        equal(await ids_until(heard, 6), [6], "what it hears")


@scenario("with catch_up = off a client that comes back is told that changes may be missing", settings={"catch_up": "off"}, tables=published("b_off", TABLE))
async def off(stage):
    async with SupabaseClients(stage) as supabase, Proxy(stage.hub.url) as proxy:
        client, channel, heard = await returning(stage, supabase, "b_off", url=proxy.url, max_retries=50)
        writer = Writer(stage, "b_off")
        watcher = await stage.peer()
        await watcher.subscribe("realtime:watcher", binding("b_off"))
        async with proxy.away(client):
            await writer.write(5)
            await watcher.changes_until("realtime:watcher", lambda data: data["record"]["id"] == 5)
            await asyncio.sleep(0.5)
        await channel.ready()
        await told(channel)
        await channel.ready()
        await writer.write(1)
        equal(await ids_until(heard, 6), [6], "what it hears")
