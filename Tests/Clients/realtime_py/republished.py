"""Tables that leave the publication and come back: what is written meanwhile never comes, and nobody is to go by what was."""

import asyncio
import itertools

from clients.expect import equal, true
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

        async def say(room: int):
            await stage.database.run(f"INSERT INTO q_lines VALUES ({next(numbers)}, {room})")

        await say(1)
        equal((await heard.next("a member's row"))["record"]["id"], 1, "what comes first")
        for _ in range(5):
            await stage.database.run(*away("q_members", "DELETE FROM q_members WHERE room = 1"))
            await say(1)
            await say(2)
            equal((await heard.next("a row of the other room"))["record"]["room"], 2, "the room of what comes")
            await stage.database.run(*away("q_members", f"INSERT INTO q_members VALUES (1, '{ANA}')"))
            await say(1)
            equal((await heard.next("a row to a member again"))["record"]["room"], 1, "the room of what comes")
