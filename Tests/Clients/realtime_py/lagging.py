"""Clients that take less than comes, as they are: the real one, which stops reading for a while."""

import asyncio

from clients.expect import equal, true, within
from clients.peer import binding
from clients.scenario import published, scenario
from clients.stage import ANA
from clients.supabase import Channel, SupabaseClients

TABLE = "id int PRIMARY KEY, owner uuid, filler text"
OWNED = (
    "ALTER TABLE {0} REPLICA IDENTITY FULL; ALTER TABLE {0} ENABLE ROW LEVEL SECURITY;"
    "CREATE POLICY own ON {0} FOR SELECT USING (owner = auth.uid())"
)
#: More than sockets, outboxes and what a loop keeps for everybody can hold.
ROWS, FILLER = 8_000, 5_000


async def write(stage, table: str, first: int, last: int):
    for begin in range(first, last + 1, 500):
        end = min(begin + 499, last)
        await stage.database.run(
            f"INSERT INTO {table} SELECT i, '{ANA}', repeat('x', {FILLER}) FROM generate_series({begin}, {end}) i"
        )


async def counted(stage, name: str) -> float:
    connection = await stage.connection()
    response = await connection.request("GET", "/metrics", {"Host": "h", "Connection": "close"})
    lines = response.body.decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


async def ids_until(heard, last: int) -> list[int]:
    found = []
    while not found or found[-1] != last:
        found.append((await heard.next(f"row {last}", limit=60))["record"]["id"])
    return found


async def lagging(stage, supabase, table: str, channels: int = 1, **more):
    client = await supabase.client(token=stage.ana, auto_reconnect=False, **more)
    heard = []
    for number in range(channels):
        channel = Channel(client, f"lagging-{number}")
        heard.append(channel.on("INSERT", table))
        await channel.subscribe()
    return client, heard


@scenario("who stops reading while 40 MB are written hears each row once and in order, and is not closed", own_hub=True, tables=published("l_still", TABLE, OWNED.format("l_still")))
async def still(stage):
    async with SupabaseClients(stage) as supabase:
        client, (heard,) = await lagging(stage, supabase, "l_still")
        watcher = await stage.peer(apikey=stage.ana)
        await watcher.subscribe("realtime:watcher", binding("l_still"))
        await write(stage, "l_still", 1, 10)
        found = await ids_until(heard, 10)
        for first in (11, ROWS // 2 + 1):
            client._ws_connection.transport.pause_reading()
            last = ROWS // 2 if first == 11 else ROWS
            writing = asyncio.create_task(write(stage, "l_still", first, last))
            # Somebody else hears all of it meanwhile.
            await watcher.changes_until("realtime:watcher", lambda data: data["record"]["id"] == last)
            await writing
            client._ws_connection.transport.resume_reading()
            found += await ids_until(heard, last)
        equal(found, list(range(1, ROWS + 1)), "what came")
        true(await counted(stage, "tidewire_channels_parked_total") > 0, "the hub to have left it where it was", found[-1])
        equal(await counted(stage, "tidewire_connections_fell_behind_total"), 0, "connections that were closed")


@scenario("several channels of a client that reads in drops each hear everything, and messages between clients come too", own_hub=True, tables=published("l_drops", TABLE, OWNED.format("l_drops")))
async def drops(stage):
    async with SupabaseClients(stage) as supabase:
        client, heard = await lagging(stage, supabase, "l_drops", channels=3)
        room = Channel(client, "room")
        messages = asyncio.Queue()
        room.channel.on_broadcast("note", messages.put_nowait)
        await room.subscribe()
        speaker = await stage.peer()
        await speaker.join("realtime:room")
        writing = asyncio.create_task(write(stage, "l_drops", 1, ROWS // 2))
        transport = client._ws_connection.transport
        for number in range(40):
            transport.pause_reading()
            await asyncio.sleep(0.1)
            await speaker.say("realtime:room", "note", {"number": number})
            transport.resume_reading()
            await asyncio.sleep(0.005)
        await writing
        for channel in heard:
            equal(await ids_until(channel, ROWS // 2), list(range(1, ROWS // 2 + 1)), "what came")
        notes = [(await within(messages.get(), 20))["payload"]["number"] for _ in range(40)]
        equal(notes, list(range(40)), "the notes that came")
        equal(await counted(stage, "tidewire_connections_fell_behind_total"), 0, "connections that were closed")
