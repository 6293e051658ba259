"""What happens over time: tokens that end or change, hubs that restart, sockets that break."""

import asyncio
import json
import signal
import time

from clients import tokens
from clients.expect import equal, true
from clients.scenario import published, scenario
from clients.supabase import Channel, SupabaseClients

PLAIN = "id int PRIMARY KEY, open text, secret text"


def narrowed(name: str) -> list[str]:
    return published(name, PLAIN, f"REVOKE ALL ON {name} FROM anon", f"GRANT SELECT (id, open) ON {name} TO anon")


@scenario("set_auth: the new token counts for what comes, without a reply and without a gap", tables=narrowed("p_auth"))
async def set_auth(stage):
    async with SupabaseClients(stage) as supabase:
        client = await supabase.client()
        channel = Channel(client, "auth")
        heard = channel.on("INSERT", "p_auth")
        await channel.subscribe()
        await stage.database.run("INSERT INTO p_auth VALUES (1, 'o', 's')")
        equal((await heard.next())["record"], {"id": 1, "open": "o"}, "what anon hears")
        await client.set_auth(stage.ana)
        await stage.database.run("INSERT INTO p_auth VALUES (2, 'o', 's')")
        equal((await heard.next())["record"]["id"], 2, "what comes while the token changes")
        await channel.ready()
        await stage.database.run("INSERT INTO p_auth VALUES (3, 'o', 's')")
        equal((await heard.next())["record"], {"id": 3, "open": "o", "secret": "s"}, "what ana hears")
        true(channel.channel.is_joined, "the channel to be joined", channel.channel.state)


@scenario("a token of 3 s that is not refreshed ends its channel, and one that is does not", tables=narrowed("p_expiry"))
async def expiry(stage):
    async with SupabaseClients(stage) as supabase:
        ends = tokens.in_seconds(3)
        token = tokens.sign(stage.secret, {"role": "authenticated", "exp": ends})
        forgotten, refreshed = await supabase.client(), await supabase.client()
        channels = []
        for client in (forgotten, refreshed):
            await client.set_auth(token)
            channel = Channel(client, "expiry")
            heard = channel.on("INSERT", "p_expiry")
            await channel.subscribe()
            channels.append((channel, heard))
        await refreshed.set_auth(stage.ana)
        (ended, _), (kept, heard) = channels
        _, error = await ended.state("CHANNEL_ERROR", "when the token is over")
        true(time.time() >= ends, "no end before exp", f"{ends - time.time():.3f} s before it")
        true("Token has expired" in str(error), "an error that says so", str(error))
        await ended.state("CLOSED", "after the error")
        true(forgotten.is_connected, "the socket to stay")
        await stage.database.run("INSERT INTO p_expiry VALUES (1, 'o', 's')")
        equal((await heard.next())["record"]["id"], 1, "what the refreshed one hears")
        true(kept.channel.is_joined, "the refreshed one to be joined", kept.channel.state)


@scenario("a join with an expired token is refused with its reason, and succeeds when the client tries again with a good one", tables=narrowed("p_refused"))
async def refused_join(stage):
    async with SupabaseClients(stage) as supabase:
        client = await supabase.client()
        client.access_token = stage.token("anon", -10)
        channel = Channel(client, "refused")
        heard = channel.on("INSERT", "p_refused")
        await channel.channel.subscribe(lambda state, error: channel.states(state.value, error))
        _, error = await channel.state("CHANNEL_ERROR", "with an expired token")
        reason = json.loads(str(error))["reason"]
        true(reason.startswith("InvalidJWTToken: Token has expired "), "the reason", reason)
        await client.set_auth(stage.anon)
        await channel.state("SUBSCRIBED", "by the client's own rejoin")
        await channel.ready()
        await stage.database.run("INSERT INTO p_refused VALUES (1, 'o', 's')")
        equal((await heard.next())["record"]["id"], 1, "what it hears then")


async def survives(stage, end: int, table: str):
    async with SupabaseClients(stage) as supabase:
        client = await supabase.client(initial_backoff=0.2, max_retries=50)
        channels = []
        for number in range(3):
            channel = Channel(client, f"lasting-{number}")
            channels.append((channel, channel.on("INSERT", table)))
            await channel.subscribe()
        await stage.database.run(f"INSERT INTO {table} VALUES (1)")
        for _, heard in channels:
            equal((await heard.next())["record"]["id"], 1, "what comes before")
        await stage.hub.restart(end)
        for channel, _ in channels:
            before, _ = await channel.states.until(lambda item: item[0] == "SUBSCRIBED", "SUBSCRIBED after the restart")
            equal([state for state, _ in before if state == "CLOSED"], [], "CLOSED on the way")
            await channel.ready()
        await stage.database.run(f"INSERT INTO {table} VALUES (2)")
        for channel, heard in channels:
            equal((await heard.next())["record"]["id"], 2, "what comes after")
            equal(heard.so_far(), [], "what comes twice")


@scenario("the hub restarts in order: clients come back and hear on", own_hub=True, tables=published("p_restart", "id int PRIMARY KEY"))
async def restart(stage):
    await survives(stage, signal.SIGTERM, "p_restart")


@scenario("the hub is killed: clients come back and hear on", own_hub=True, tables=published("p_killed", "id int PRIMARY KEY"))
async def killed(stage):
    await survives(stage, signal.SIGKILL, "p_killed")


@scenario("the network breaks: the client comes back and hears on", tables=published("p_broken", "id int PRIMARY KEY"))
async def broken(stage):
    async with SupabaseClients(stage) as supabase:
        client = await supabase.client(initial_backoff=0.2)
        channel = Channel(client, "broken")
        heard = channel.on("INSERT", "p_broken")
        await channel.subscribe()
        for number in range(3):
            client._ws_connection.transport.abort()
            await channel.state("SUBSCRIBED", "after the break")
            await channel.ready()
            await stage.database.run(f"INSERT INTO p_broken VALUES ({number})")
            equal((await heard.next())["record"]["id"], number, "what comes after the break")


@scenario("thirty clients come and go while rows are written, and whoever is there hears all", tables=published("p_coming", "n serial PRIMARY KEY"))
async def coming_and_going(stage):
    async with SupabaseClients(stage) as supabase:
        writing = True

        async def write():
            while writing:
                await stage.database.run("INSERT INTO p_coming DEFAULT VALUES")
                await asyncio.sleep(0.002)

        async def visit():
            client = await supabase.client()
            channel = Channel(client, "coming")
            heard = channel.on("INSERT", "p_coming")
            await channel.subscribe()
            came = [(await heard.next())["record"]["n"] for _ in range(25)]
            equal(came, list(range(came[0], came[0] + 25)), "25 numbers without a hole")
            await client.remove_channel(channel.channel)

        task = asyncio.create_task(write())
        try:
            for _ in range(3):
                await asyncio.gather(*(visit() for _ in range(10)))
        finally:
            writing = False
            await task
