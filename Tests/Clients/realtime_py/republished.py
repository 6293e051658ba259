"""Tables that leave the publication and come back: what is written meanwhile never comes, and nobody is to go by what was."""

import asyncio
import itertools
import pathlib
import signal
import uuid

from clients.expect import equal, fail, true
from clients.scenario import published, scenario
from clients.stage import ANA
from clients.supabase import Channel, SupabaseClients

MEMBERS = published("q_members", "room int, person uuid, PRIMARY KEY (room, person)", "ALTER TABLE q_members REPLICA IDENTITY FULL")
LINES = published(
    "q_lines", "id int PRIMARY KEY, room int",
    "ALTER TABLE q_lines REPLICA IDENTITY FULL; ALTER TABLE q_lines ENABLE ROW LEVEL SECURITY;"
    "CREATE POLICY members ON q_lines FOR SELECT USING (EXISTS"
    " (SELECT FROM q_members m WHERE m.room = q_lines.room AND m.person = auth.uid()))",
    "GRANT SELECT ON q_members TO authenticated")  # fmt: skip

#: A ping follows deliveries within a second, and its answer at once.
ACKNOWLEDGED = 2.5


def away(table: str, *meanwhile: str) -> list[str]:
    return [f"ALTER PUBLICATION supabase_realtime DROP TABLE {table}", *meanwhile,
            f"ALTER PUBLICATION supabase_realtime ADD TABLE {table}"]  # fmt: skip


@scenario("a membership that ends while its table is not published ends", tables=[*MEMBERS, *LINES])
async def membership(stage):
    async with SupabaseClients(stage) as supabase:
        numbers = itertools.count(1)
        client = await supabase.client(token=stage.ana)
        channel = Channel(client, "republished")
        heard = channel.on("INSERT", "q_lines")
        await stage.database.run(f"INSERT INTO q_members VALUES (1, '{ANA}'), (2, '{ANA}')")
        await channel.subscribe()

        async def publish_anew(*meanwhile: str):
            await stage.database.run(*away("q_members", *meanwhile))
            # PostgreSQL 14 and 18 announce only tables whose own publication changed; the hub asks twice a second.
            if "t" in await stage.database.run(
                "SELECT current_setting('server_version_num')::int / 10000 IN (14, 18)"):
                await asyncio.sleep(1.5)

        hidden = set()

        async def say(room: int, hides: bool = False):
            number = next(numbers)
            if hides:
                hidden.add(number)
            await stage.database.run(f"INSERT INTO q_lines VALUES ({number}, {room})")

        async def hears(room: int):
            """Who was a member while the table was away is not known: of rows of that moment the client is told."""
            for _ in range(40):
                await say(room)
                await asyncio.sleep(0.25)
                for row in (item["record"] for item in heard.so_far()):
                    true(row["id"] not in hidden, "no row from when she was no member", row)
                    if row["room"] == room:
                        return
            fail(f"a row of room {room}", "none")

        await say(1)
        equal((await heard.next("a member's row"))["record"]["id"], 1, "what comes first")
        for _ in range(5):
            await publish_anew("DELETE FROM q_members WHERE room = 1")
            await say(1, hides=True)
            await hears(2)
            await publish_anew(f"INSERT INTO q_members VALUES (1, '{ANA}')")
            await hears(1)


def is_told(state) -> bool:
    return "changes may be missing" in str(state[1])


@scenario("who listens to a table that is out of the publication for a moment is told, and so is who comes back", tables=published("q_table", "id int PRIMARY KEY") + published("q_other", "id int PRIMARY KEY"))
async def told(stage):
    async with SupabaseClients(stage) as supabase:
        token = stage.token("authenticated", sub=ANA, session_id=str(uuid.uuid4()))
        client = await supabase.client(token=token, initial_backoff=0.2)
        channel, other = Channel(client, "republished"), Channel(client, "other")
        heard = channel.on("INSERT", "q_table")
        other.on("INSERT", "q_other")
        await channel.subscribe()
        await other.subscribe()
        await stage.database.run(*away("q_table", "INSERT INTO q_table VALUES (1)"), "INSERT INTO q_table VALUES (2)")
        equal((await heard.next("the row behind the break"))["record"]["id"], 2, "what comes")
        await channel.states.until(is_told, "to be told of the break")
        await channel.state("SUBSCRIBED", "again")
        await asyncio.sleep(ACKNOWLEDGED)
        client._ws_connection.transport.abort()
        await stage.database.run(*away("q_table", "INSERT INTO q_table VALUES (3)"), "INSERT INTO q_table VALUES (4)")
        equal((await heard.next("the row behind the break"))["record"]["id"], 4, "what comes")
        await channel.states.until(is_told, "to be told of what it missed while it was away")
        await other.ready()
        true(not any(is_told(item) for item in other.states.so_far()), "the other table's listener to be told nothing", "")


@scenario("what leaves the publication while there is no hub is told to who comes back, whichever hub noticed it", own_hub=True, tables=published("q_away", "id int PRIMARY KEY"))
async def told_by_another(stage):
    async with SupabaseClients(stage) as supabase:
        token = stage.token("authenticated", sub=ANA, session_id=str(uuid.uuid4()))
        # It comes back when two hubs have been there meanwhile.
        client = await supabase.client(token=token, initial_backoff=8, max_retries=50)
        channel = Channel(client, "republished")
        heard = channel.on("INSERT", "q_away")
        await channel.subscribe()
        await stage.database.run("INSERT INTO q_away VALUES (1)")
        equal((await heard.next("a row"))["record"]["id"], 1, "what comes")
        await asyncio.sleep(ACKNOWLEDGED)
        record = pathlib.Path(stage.hub.directory, "publication")
        before = record.read_bytes()
        await stage.hub.end(signal.SIGKILL)
        await stage.database.run(*away("q_away", "INSERT INTO q_away VALUES (2)"), "INSERT INTO q_away VALUES (3)")
        await stage.hub.start()
        async with asyncio.timeout(10):
            while record.read_bytes() == before:
                await asyncio.sleep(0.05)
        await stage.hub.restart(signal.SIGKILL)
        equal((await heard.next("the row behind the break"))["record"]["id"], 3, "what comes")
        await channel.states.until(is_told, "to be told of what it missed while there was no hub")
