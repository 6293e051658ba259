"""Beginning with the rows there are, with the real client as it is: none missing, none twice."""

import asyncio

from clients.expect import equal
from clients.scenario import published, scenario
from clients.stage import ANA
from clients.supabase import SupabaseClients
from realtime_py.returning import ACKNOWLEDGED, OWNED, Writer, logged_in

TABLE = "id int PRIMARY KEY, owner uuid"
SOMEBODY_ELSE = "00000000-0000-4000-8000-00000000beef"
WISH = {"config": {"broadcast": {"tidewire": {"snapshot": True}}}}


async def beginning(stage, supabase, table, event="*", **more):
    client = await supabase.client(initial_backoff=0.2, **({"token": logged_in(stage)} | more))
    channel = await supabase.channel(client, f"beginning-{table}", WISH)
    return channel, channel.on(event, table)


async def ids(heard, count: int) -> list[int]:
    return [(await heard.next(f"row {number + 1} of {count}"))["record"]["id"] for number in range(count)]


@scenario("a channel begins with the rows that its person may see, and goes on with what changes", tables=published("b_begin", TABLE, OWNED.format("b_begin")))
async def begin(stage):
    await stage.database.run(
        f"INSERT INTO b_begin SELECT n, CASE WHEN n % 2 = 0 THEN '{ANA}' ELSE '{SOMEBODY_ELSE}' END::uuid FROM generate_series(1, 2000) n"
    )
    async with SupabaseClients(stage) as supabase:
        channel, heard = await beginning(stage, supabase, "b_begin")
        await channel.subscribe()
        equal(await ids(heard, 1000), list(range(2, 2001, 2)), "the rows there were")
        await channel.system("Snapshot complete: 1000 rows")
        await stage.database.run(f"INSERT INTO b_begin VALUES (3000, '{ANA}')", "DELETE FROM b_begin WHERE id = 2")
        equal(await ids(heard, 1), [3000], "what came next")
        equal((await heard.next())["type"], "DELETE", "and then")


@scenario("whoever begins while rows are written gets each once, in order", tables=published("b_amid", TABLE, OWNED.format("b_amid")))
async def amid(stage):
    writer = Writer(stage, "b_amid")
    async with SupabaseClients(stage) as supabase:
        all_heard = []
        async with writer.writing(pause=0.002):
            for _ in range(8):
                await asyncio.sleep(0.15)
                channel, heard = await beginning(stage, supabase, "b_amid")
                await channel.subscribe()
                all_heard.append(heard)
        for heard in all_heard:
            equal(await ids(heard, writer.last), list(range(1, writer.last + 1)), "what came")


@scenario("a client that comes back goes on where it was, and does not begin anew", tables=published("b_again", TABLE, OWNED.format("b_again")))
async def again(stage):
    writer = Writer(stage, "b_again")
    await writer.write(3)
    async with SupabaseClients(stage) as supabase:
        channel, heard = await beginning(stage, supabase, "b_again")
        await channel.subscribe()
        equal(await ids(heard, 3), [1, 2, 3], "the rows there were")
        await channel.system("Snapshot complete: 3 rows")
        await writer.write(1)
        equal(await ids(heard, 1), [4], "a change")
        await asyncio.sleep(2 * ACKNOWLEDGED)
        channel.channel.socket._ws_connection.transport.abort()
        await writer.write(3)
        equal(await ids(heard, 3), [5, 6, 7], "what it missed, and no row of before")
