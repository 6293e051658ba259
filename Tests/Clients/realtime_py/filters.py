"""Every filter, through the real client: its listeners are called by the ids that the hub gives."""

import asyncio

from clients import filters
from clients.expect import fail
from clients.scenario import scenario
from clients.supabase import SupabaseClients


async def judge(stage, table: str, chosen):
    async with SupabaseClients(stage) as supabase:
        channel = await supabase.channel(name=table)
        ending = channel.on("DELETE", table)
        heard = {text: channel.on("INSERT", table, filter=text) for text, _ in chosen}
        await channel.subscribe()
        await stage.database.run(filters.rows(table))
        wanted = await filters.wanted(stage.database, table, chosen)
        await stage.database.run(f"DELETE FROM {table} WHERE id = 1")
        # One message for all listeners of a change, in order: when the last is heard, so is everything before it.
        await ending.next("the DELETE that ends it")
        await asyncio.sleep(0)
        came = {text: sorted(item["record"]["id"] for item in listener.so_far()) for text, listener in heard.items()}
        wrong = [f"{text}: {came[text]}, PostgreSQL says {wanted[text]}" for text in came if came[text] != wanted[text]]
        if wrong:
            fail("every filter to deliver what PostgreSQL says", "\n       ".join(["", *wrong]))


@scenario("every operator on every kind of column", tables=filters.tables("p_filters"))
async def operators(stage):
    await judge(stage, "p_filters", filters.FILTERS)


@scenario("or, and, containment, ranges, long lists", tables=filters.tables("p_further"))
async def further(stage):
    await judge(stage, "p_further", filters.FURTHER)
