"""Connecting, joining, leaving, changes, as an application in Python does it."""

from clients.expect import equal, fail, true
from clients.scenario import published, scenario
from clients.stage import ANA, BEN
from clients.supabase import Channel, SupabaseClients, kinds


@scenario("connects, joins, leaves, and joins again")
async def connect(stage):
    async with SupabaseClients(stage) as supabase:
        client = await supabase.client()
        true(client.is_connected, "a connection")
        for _ in range(3):
            channel = await Channel(client, "again").subscribe()
            true(channel.channel.is_joined, "the channel to be joined", channel.channel.state)
            await channel.channel.unsubscribe()
            await channel.state("CLOSED", "after leaving")
        equal(client.get_channels(), [], "the channels after leaving")


@scenario("hears INSERT, UPDATE, DELETE and * as it asked", tables=published("p_events", "id int PRIMARY KEY, v text", "ALTER TABLE p_events REPLICA IDENTITY FULL"))
async def events(stage):
    async with SupabaseClients(stage) as supabase:
        channel = await supabase.channel(name="events")
        heard = {event: channel.on(event, "p_events") for event in ("INSERT", "UPDATE", "DELETE", "*")}
        await channel.subscribe()
        await stage.database.run(
            "INSERT INTO p_events VALUES (1, 'a')", "UPDATE p_events SET v = 'b'", "DELETE FROM p_events")
        everything = [await heard["*"].next() for _ in range(3)]
        equal(kinds(everything), ["INSERT", "UPDATE", "DELETE"], "what * hears")
        for item in everything:
            equal(await heard[item["type"]].next(), item, f"what {item['type']} hears")
        for event, listener in heard.items():
            equal(listener.so_far(), [], f"what else {event} hears")
        insert, update, delete = everything
        equal((insert["record"], "old_record" in insert), ({"id": 1, "v": "a"}, False), "the INSERT")
        equal((update["record"], update["old_record"]), ({"id": 1, "v": "b"}, {"id": 1, "v": "a"}), "the UPDATE")
        equal((delete["old_record"], "record" in delete), ({"id": 1, "v": "b"}, False), "the DELETE")


@scenario("hears two tables on one channel, each by its own listener", tables=[*published("p_one", "id int PRIMARY KEY"), *published("p_two", "id int PRIMARY KEY")])
async def two_tables(stage):
    async with SupabaseClients(stage) as supabase:
        channel = await supabase.channel(name="two")
        one, two = channel.on("*", "p_one"), channel.on("INSERT", "p_two")
        whole = channel.on("INSERT", None)
        await channel.subscribe()
        await stage.database.transaction("INSERT INTO p_one VALUES (1)", "INSERT INTO p_two VALUES (2)", "DELETE FROM p_one")
        equal([(i["table"], i["type"]) for i in [await one.next(), await one.next()]], [("p_one", "INSERT"), ("p_one", "DELETE")], "of one")
        equal((await two.next())["record"], {"id": 2}, "of two")
        equal([(await whole.next())["table"] for _ in range(2)], ["p_one", "p_two"], "of the whole schema")


@scenario("several channels of one client, and of several clients, each hear their own", tables=published("p_several", "id int PRIMARY KEY, room int"))
async def several(stage):
    async with SupabaseClients(stage) as supabase:
        heard = {}
        for number in range(3):
            client = await supabase.client()
            for room in range(4):
                channel = await supabase.channel(client, f"room-{room}")
                heard[number, room] = channel.on("INSERT", "p_several", filter=f"room=eq.{room}")
                await channel.subscribe()
        await stage.database.run("INSERT INTO p_several SELECT i, i % 4 FROM generate_series(1, 40) i")
        for (number, room), listener in heard.items():
            came = [(await listener.next())["record"]["id"] for _ in range(10)]
            equal(came, [i for i in range(1, 41) if i % 4 == room], f"what client {number} hears of room {room}")


@scenario("asks for some columns", tables=published("p_select", "id int PRIMARY KEY, a text, b text"))
async def select(stage):
    async with SupabaseClients(stage) as supabase:
        channel = await supabase.channel(name="select")
        heard = channel.on("*", "p_select", select=["b"])
        await channel.subscribe()
        await stage.database.run("INSERT INTO p_select VALUES (1, 'a', 'b')", "DELETE FROM p_select")
        equal((await heard.next())["record"], {"id": 1, "b": "b"}, "the record")
        equal((await heard.next())["old_record"], {"id": 1}, "the old record")


@scenario("values of every kind arrive as Python's own", tables=published("p_values", "id int8 PRIMARY KEY, n numeric, f float8, t text, b bool, j jsonb, a int[], z timestamptz, x bytea, d date"))
async def values(stage):
    async with SupabaseClients(stage) as supabase:
        channel = await supabase.channel(name="values")
        heard = channel.on("INSERT", "p_values")
        await channel.subscribe()
        await stage.database.run(
            r"""INSERT INTO p_values VALUES (9223372036854775807, 1.50, 1e-7, E'q"\\ 🙂', true, '{"k": [1, null]}', '{1,NULL}',
            '2026-03-01 12:20:30.5+02', '\x0102ff', '2026-03-01')""")  # fmt: skip
        wanted = {"id": 9223372036854775807, "n": 1.5, "f": 1e-7, "t": 'q"\\ 🙂', "b": True, "j": {"k": [1, None]}, "a": [1, None],
                  "z": "2026-03-01T10:20:30.5+00:00", "x": "0102ff", "d": "2026-03-01"}  # fmt: skip
        equal((await heard.next())["record"], wanted, "the record")


@scenario("an unpublished table beside a published one: an error, and the published one goes on through the client's rejoin", tables=[
    *published("p_beside", "id int PRIMARY KEY"), "DROP TABLE IF EXISTS p_unpublished", "CREATE TABLE p_unpublished (id int PRIMARY KEY)"])  # fmt: skip
async def unpublished(stage):
    async with SupabaseClients(stage) as supabase:
        channel = await supabase.channel(name="beside")
        channel.on("*", "p_unpublished")
        heard = channel.on("INSERT", "p_beside")
        await channel.subscribe(ready=False)
        _, error = await channel.state("CHANNEL_ERROR", "for the unpublished table")
        true("table: p_unpublished" in str(error), "an error that names the table", str(error))
        await stage.database.run("INSERT INTO p_beside VALUES (1)")
        equal((await heard.next())["record"], {"id": 1}, "the published one after the error")
        # This client rejoins on any error, on the same socket; the channel must live through that.
        before, _ = await channel.states.until(lambda item: item[0] == "SUBSCRIBED", "SUBSCRIBED by the rejoin")
        true(all(state != "CLOSED" for state, _ in before), "no CLOSED by the rejoin", str(before))
        await stage.database.run("INSERT INTO p_beside VALUES (2)")
        equal((await heard.next())["record"], {"id": 2}, "the published one after the rejoin")
        equal(heard.so_far(), [], "what comes a second time")


@scenario("says what is wrong with a filter, and a channel beside it does not care", tables=published("p_wrong", "id int PRIMARY KEY"))
async def wrong_filter(stage):
    async with SupabaseClients(stage) as supabase:
        client = await supabase.client()
        good, bad = Channel(client, "good"), Channel(client, "bad")
        heard = good.on("*", "p_wrong")
        await good.subscribe()
        bad.on("*", "p_wrong", filter="nope=eq.1")
        await bad.subscribe(ready=False)
        _, error = await bad.state("CHANNEL_ERROR", "for a column that is not there")
        true("invalid column for filter nope" in str(error), "an error that names the column", str(error))
        await bad.channel.unsubscribe()
        await stage.database.run("INSERT INTO p_wrong VALUES (1)")
        equal((await heard.next())["record"], {"id": 1}, "what the good one hears")


@scenario("columns the role may not read are not told", tables=published("p_columns", "id int PRIMARY KEY, open text, secret text", "REVOKE ALL ON p_columns FROM anon", "GRANT SELECT (id, open) ON p_columns TO anon"))
async def columns(stage):
    async with SupabaseClients(stage) as supabase:
        anon, service = await supabase.channel(name="columns"), await supabase.channel(await supabase.client(stage.service), "columns")
        heard, all_heard = anon.on("INSERT", "p_columns"), service.on("INSERT", "p_columns")
        await anon.subscribe()
        await service.subscribe()
        await stage.database.run("INSERT INTO p_columns VALUES (1, 'o', 's')")
        equal((await heard.next())["record"], {"id": 1, "open": "o"}, "what anon hears")
        equal((await all_heard.next())["record"], {"id": 1, "open": "o", "secret": "s"}, "what the service hears")


@scenario("a change that is too large says 413", tables=published("p_large", "id int PRIMARY KEY, body text"))
async def too_large(stage):
    async with SupabaseClients(stage) as supabase:
        channel = await supabase.channel(name="large")
        heard = channel.on("INSERT", "p_large")
        await channel.subscribe()
        # The client itself takes no message of more than 1 MiB, so one that is whole is smaller here.
        await stage.database.run("INSERT INTO p_large VALUES (1, repeat('x', 2000000)), (2, repeat('x', 900000))")
        one, two = await heard.next(), await heard.next()
        equal((one["errors"], one["record"]), (["Error 413: Payload Too Large"], {"id": 1}), "errors and record of the large one")
        equal((two["errors"], len(two["record"]["body"])), (None, 900_000), "errors and body of the other")


@scenario("a table with row level security tells each what their policies show, and says to whom there is none", tables=published("p_guarded", "id int PRIMARY KEY, owner uuid", "ALTER TABLE p_guarded REPLICA IDENTITY FULL",
    "ALTER TABLE p_guarded ENABLE ROW LEVEL SECURITY", "CREATE POLICY own ON p_guarded FOR SELECT TO authenticated USING (owner = auth.uid())"))  # fmt: skip
async def guarded(stage):
    async with SupabaseClients(stage) as supabase:
        channels, heard = {}, {}
        for name, token in (("anon", stage.anon), ("ana", stage.ana), ("ben", stage.ben), ("service", stage.service)):
            channels[name] = await supabase.channel(await supabase.client(token), "guarded")
            heard[name] = channels[name].on("*", "p_guarded")
            await channels[name].subscribe()
        said = await channels["anon"].warning("no policy lets role anon SELECT")
        true("public.p_guarded" in said, "a warning that names the table", said)
        await stage.database.run(
            f"INSERT INTO p_guarded VALUES (1, '{ANA}'), (2, '{BEN}')", "DELETE FROM p_guarded",
            f"INSERT INTO p_guarded VALUES (3, '{ANA}'), (4, '{BEN}')")  # fmt: skip
        wanted = {"ana": [1, 1, 3], "ben": [2, 2, 4], "service": [1, 2, 1, 2, 3, 4]}
        for name, ids in wanted.items():
            came = [await heard[name].next() for _ in ids]
            equal([(item.get("record") or item["old_record"])["id"] for item in came], ids, f"what {name} hears")
        # A policy comes, and with it what it shows; nothing of what came before.
        await stage.database.run("CREATE POLICY open ON p_guarded FOR SELECT TO anon USING (id > 4)", "INSERT INTO p_guarded VALUES (5, NULL)")
        equal((await heard["anon"].next())["record"]["id"], 5, "what anon hears first")
        await stage.database.run("INSERT INTO p_guarded VALUES (6, NULL)")
        equal((await heard["service"].next(), (await heard["service"].next())["record"]["id"])[1], 6, "what the service hears last")
        equal([state for state, _ in channels["anon"].states.so_far()], [], "states of the channel since it was subscribed")
        await stage.database.run("DROP POLICY open ON p_guarded", "TRUNCATE p_guarded")


@scenario("a thousand rows of many transactions come in order, each once", tables=published("p_load", "n int PRIMARY KEY, even bool"))
async def load(stage):
    async with SupabaseClients(stage) as supabase:
        listeners = []
        for _ in range(3):
            channel = await supabase.channel(name="load")
            listeners.append((channel.on("INSERT", "p_load"), channel.on("INSERT", "p_load", filter="even=is.true")))
            await channel.subscribe()
        begin = 1
        for size in (1, 2, 3, 94, 400, 500):
            await stage.database.run(f"INSERT INTO p_load SELECT i, i % 2 = 0 FROM generate_series({begin}, {begin + size - 1}) i")
            begin += size
        for everything, even in listeners:
            came = [(await everything.next())["record"]["n"] for _ in range(1000)]
            equal(came, list(range(1, 1001)), "all numbers in order")
            came = [(await even.next())["record"]["n"] for _ in range(500)]
            equal(came, list(range(2, 1001, 2)), "the even ones in order")
        await stage.database.run("INSERT INTO p_load VALUES (1001, false)")
        for everything, even in listeners:
            equal((await everything.next())["record"]["n"], 1001, "the next number: none came twice")
            equal(even.so_far(), [], "what is not even")


@scenario("a refused key is an error of connecting, of the real kind", settings={"connect_error_backoff": "50ms"})
async def refused(stage):
    async with SupabaseClients(stage) as supabase:
        try:
            await supabase.client(stage.token("anon", -10), max_retries=1)
        except Exception as error:
            true("401" in str(error), "an error that says 401", str(error))
            return
        fail("no connection with an expired key", "a connection")
