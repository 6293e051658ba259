"""What we offer beyond the reference, asked for in every place where the real client can put it."""

from clients.expect import equal, true
from clients.scenario import published, scenario
from clients.supabase import SupabaseClients


def moving(*names):
    columns, whole = "id int PRIMARY KEY, kind text", "ALTER TABLE {} REPLICA IDENTITY FULL"
    return [line for name in names for line in published(name, columns, whole.format(name))]


async def moves(stage, table, channel, wanted):
    heard = channel.on("*", table, filter="kind=eq.in")
    await channel.subscribe()
    await stage.database.run(
        f"INSERT INTO {table} VALUES (1, 'in')", f"UPDATE {table} SET kind = 'out'", f"INSERT INTO {table} VALUES (2, 'in')"
    )
    came = []
    while not came or came[-1] != ("INSERT", 2):
        change = await heard.next()
        came.append((change["type"], (change.get("record") or change.get("old_record"))["id"]))
    equal(came, [("INSERT", 1), *([("DELETE", 1)] if wanted else []), ("INSERT", 2)], "what came")


@scenario("options are parameters of the socket, or in config.broadcast, which counts more", tables=moving("p_moves_socket", "p_moves_room", "p_moves_both", "p_moves_none"))
async def places(stage):
    async with SupabaseClients(stage) as supabase:
        asking = await supabase.client(params={"tidewire.moves": "true"})
        plain = await supabase.client()
        room = {"config": {"broadcast": {"tidewire": {"moves": True}}}}
        not_here = {"config": {"broadcast": {"tidewire": {"moves": False}}}}
        await moves(stage, "p_moves_socket", await supabase.channel(asking, "socket"), True)
        await moves(stage, "p_moves_both", await supabase.channel(asking, "both", not_here), False)
        await moves(stage, "p_moves_room", await supabase.channel(plain, "room", room), True)
        await moves(stage, "p_moves_none", await supabase.channel(plain, "none"), False)


@scenario("who asks for positions is told them, gets its changes as ever, and goes on where it was", tables=published("p_positions", "id int PRIMARY KEY"))
async def positions(stage):
    async with SupabaseClients(stage) as supabase:
        params = {"config": {"broadcast": {"tidewire": {"position": True}}}}
        channel = await supabase.channel(name="positions", params=params)
        heard = channel.on("*", "p_positions")
        await channel.subscribe()
        message = await channel.system("Caught up to")
        await stage.database.run("INSERT INTO p_positions VALUES (1)")
        equal((await heard.next())["record"], {"id": 1}, "the change")
        await stage.database.run("INSERT INTO p_positions VALUES (2)")
        equal((await heard.next())["record"], {"id": 2}, "the next one")
        again = {"config": {"broadcast": {"tidewire": {"resume": message["message"].split()[3]}}}}
        channel = await supabase.channel(name="positions-again", params=again)
        heard = channel.on("*", "p_positions")
        await channel.subscribe()
        equal([(await heard.next())["record"]["id"] for _ in range(2)], [1, 2], "what it missed")


@scenario("options that there are not are told", tables=moving("p_unknown"))
async def unknown(stage):
    async with SupabaseClients(stage) as supabase:
        client = await supabase.client(params={"tidewire.mooves": "true"})
        params = {"config": {"broadcast": {"tidewire": {"limits": 7}}}}
        channel = await supabase.channel(client, "unknown", params)
        channel.on("*", "p_unknown")
        await channel.subscribe(ready=False)
        said = [await channel.warning(words) for words in ("tidewire.limits", "tidewire.mooves=true")]
        true("moves, limits, position" in said[0], "the options that there are", said[0])


@scenario("who mistyped something is told at once", settings={"channel_error_backoff": "9s"})
async def at_once(stage):
    async with SupabaseClients(stage) as supabase:
        for _ in range(2):
            channel = await supabase.channel(name="private", params={"config": {"private": True, "broadcast": {"replay": {"since": "x"}}}})
            await channel.channel.subscribe(lambda state, error: channel.states(state.value, error))
            state, error = await channel.states.next("the refusal")
            equal(state, "CHANNEL_ERROR", "the state")
            true("Replay params are not valid" in str(error), "the reason", error)


TOLD = published("p_keyless", "v text") + published("p_emptied", "id int PRIMARY KEY, v text")


@scenario("what is not to be expected is told in words that name it", tables=TOLD)
async def told(stage):
    async with SupabaseClients(stage) as supabase:
        channel = await supabase.channel(name="told")
        channel.on("*", "p_keyless")
        channel.on("*", "p_emptied", filter="v=eq.OPEN OR x=eq.1")
        await channel.subscribe(ready=False)
        for words in ("OPEN OR x=eq.1", "public.p_keyless are not told: it has no primary key"):
            await channel.warning(words)
        await stage.database.run("TRUNCATE p_emptied")
        await channel.warning("TRUNCATE took all rows of public.p_emptied")
        for name, words in (("p_nowhere", "There is no table public.p_nowhere"), ("p_emptied", "invalid column for filter nothing")):
            channel = await supabase.channel(name=name)
            channel.on("*", name, filter="nothing=eq.1")
            await channel.subscribe(ready=False)
            _, error = await channel.state("CHANNEL_ERROR", words)
            true(words in str(error), words, str(error))
            await channel.channel.unsubscribe()
