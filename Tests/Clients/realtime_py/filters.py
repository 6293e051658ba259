"""Every filter, through the real client: its listeners are called by the ids that the hub gives."""

import asyncio
import json

from clients import filters
from clients.expect import equal, fail
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


@scenario("filters on what a change has changed", tables=[*filters.event_table("p_events_full", "FULL"), *filters.event_table("p_events_key", "DEFAULT")])
async def events(stage):
    async with SupabaseClients(stage) as supabase:
        for table in ("p_events_full", "p_events_key"):
            channel = await supabase.channel(name=table)
            every = channel.on("*", table)
            heard = {text: channel.on("*", table, filter=text) for text, _ in filters.EVENTS}
            await channel.subscribe()
            await stage.database.run(*filters.event_statements(table))
            numbers = {key(await every.next()): number + 1 for number in range(5)}
            await asyncio.sleep(0)
            for text, wanted in filters.EVENTS:
                came = [numbers[key(item)] for item in heard[text].so_far()]
                equal(came, wanted, f"the changes of {table} that match {text}")


def key(change):
    return json.dumps([change["type"], change.get("record"), change.get("old_record")], sort_keys=True)
