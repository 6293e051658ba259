"""Operation map: where the members of an operation are and what they write, by memberships that come and go.

Locations ask the table of memberships in the policy itself, messages through a function that reads it as its owner.
"""

import asyncio

from clients.expect import equal
from clients.people import ANA, BEN, CLEO, device, of, somebody
from clients.scenario import application, scenario
from clients.supabase import SupabaseClients

APPLICATION = application("operation_map")
PEOPLE = {"ana": ANA, "ben": BEN, "cleo": CLEO}
HARBOUR, NIGHT = "00000000-0000-4000-8000-0000000000a1", "00000000-0000-4000-8000-0000000000b2"
NAMES = {HARBOUR: "harbour", NIGHT: "night"}
#: Everybody is a member of their own, so that there is always a last row for each.
OWN = {name: f"00000000-0000-4000-8000-00000000000{place}" for place, name in enumerate(PEOPLE)}


def brief(item):
    record = item["record"]
    return item["table"], NAMES.get(record["operation_id"], "own"), int(record["latitude"]) if "latitude" in record else record["content"]


def last(item):
    return item["record"]["operation_id"] in OWN.values()


def own_rows(database, one):
    return lambda number: database.run(is_at(OWN[one.name], number))


def own_number(item):
    return int(item["record"]["latitude"]) if last(item) else None


def is_at(operation, latitude):
    return ("INSERT INTO locations_stream (operation_id, user_id, latitude, longitude, accuracy) "
            f"VALUES ('{operation}', '{BEN}', {latitude}, 0, 1)")  # fmt: skip


def writes(operation, text):
    return f"INSERT INTO op_messages (operation_id, user_id, content) VALUES ('{operation}', '{BEN}', '{text}')"


def joins(who, operation):
    return f"INSERT INTO operation_members (operation_id, user_id) VALUES ('{operation}', '{who}')"


def leaves(who, operation):
    return f"DELETE FROM operation_members WHERE user_id = '{who}' AND operation_id = '{operation}'"


async def emptied(stage):
    """Ana is in Harbour, cleo in Night, ben in both."""
    database = stage.database
    await database.run("TRUNCATE users, operations, operation_members, locations_stream, op_messages")
    for name, who in PEOPLE.items():
        await database.run(f"INSERT INTO users VALUES ('{who}', '{name}')")
    for operation in (*NAMES, *OWN.values()):
        await database.run(f"INSERT INTO operations (id, name, created_by) VALUES ('{operation}', 'o', '{BEN}')")
    await database.run(
        joins(ANA, HARBOUR), joins(CLEO, NIGHT), joins(BEN, HARBOUR), joins(BEN, NIGHT),
        *(joins(PEOPLE[name], OWN[name]) for name in PEOPLE))


async def everybody(stage, supabase, event="INSERT", tables=("locations_stream", "op_messages"), filtered=True):
    """Each asks for both operations, whether they are in them or not."""
    people = []
    for name, who in PEOPLE.items():
        one = await device(supabase, name, somebody(stage, who))
        for table in tables:
            for operation in (HARBOUR, NIGHT, OWN[name]) if filtered else (None,):
                one.on(event, table, **({"filter": f"operation_id=eq.{operation}"} if operation else {}))
        people.append(await one.ready())
    # What was written just before may still be on its way, and is nothing to judge anybody by.
    for one in people:
        await one.begins(own_rows(stage.database, one), own_number)
    return people


async def fence(database):
    for operation in OWN.values():
        await database.run(is_at(operation, 0))


async def both(database, latitude):
    """A location and a message in each operation."""
    for operation, name in NAMES.items():
        await database.run(is_at(operation, latitude), writes(operation, f"{name} {latitude}"))


def heard(operation, latitude):
    return [("locations_stream", operation, latitude), ("op_messages", operation, f"{operation} {latitude}")]


async def story(stage, filtered=True):
    database = stage.database
    await emptied(stage)
    async with SupabaseClients(stage) as supabase:
        ana, ben, cleo = await everybody(stage, supabase, filtered=filtered)

        async def hear(when, of_ana, of_ben, of_cleo):
            await fence(database)
            for one, wanted in ((ana, of_ana), (ben, of_ben), (cleo, of_cleo)):
                await one.hears([item for operation in wanted for item in heard(operation, stage.number)], last, brief, when)

        async def act(number, *statements):
            stage.number = number
            await database.transaction(*statements)
            await both(database, number)

        await act(1)
        await hear("as it begins", ["harbour"], ["harbour", "night"], ["night"])
        await act(2, joins(ANA, NIGHT))
        await hear("when ana has come to night", ["harbour", "night"], ["harbour", "night"], ["night"])
        # What is no part of the key is changed first: their places stay the same.
        await act(3, "UPDATE operation_members SET color = 'red'", leaves(ANA, HARBOUR), leaves(BEN, NIGHT))
        await hear("when ana has left harbour and ben night", ["night"], ["harbour"], ["night"])
        await act(4, f"UPDATE operation_members SET operation_id = '{HARBOUR}' WHERE user_id = '{CLEO}' AND operation_id = '{NIGHT}'")
        await hear("when cleo has changed to harbour", ["night"], ["harbour"], ["harbour"])
        await act(5, f"UPDATE operation_members SET user_id = '{CLEO}' WHERE user_id = '{ANA}' AND operation_id = '{NIGHT}'")
        await hear("when ana has handed her place in night to cleo", [], ["harbour"], ["harbour", "night"])
        await act(6, f"DELETE FROM operation_members WHERE operation_id IN ('{HARBOUR}', '{NIGHT}')")
        await hear("when nobody is a member", [], [], [])
        # Rows and the membership that lets them be seen are committed together, in either order.
        stage.number = 7
        await database.transaction(is_at(HARBOUR, 7), joins(ANA, HARBOUR), writes(HARBOUR, "harbour 7"))
        await hear("of what came with the membership", ["harbour"], [], [])
        stage.number = 8
        await database.transaction("SAVEPOINT s", joins(BEN, NIGHT), "ROLLBACK TO s", is_at(NIGHT, 8), writes(NIGHT, "night 8"))
        await hear("of a membership that was taken back", [], [], [])


@scenario("members hear of their operations as they come and go, through a subquery and through a definer's function", tables=APPLICATION)
async def members(stage):
    await story(stage)


@scenario("the same without filters: the policy alone says what is heard", tables=APPLICATION)
async def members_without_filters(stage):
    await story(stage, filtered=False)


@scenario("the same where memberships are not published and the hub may not publish them: PostgreSQL decides on every row", tables=APPLICATION)
async def unpublished_members(stage):
    change = "ALTER PUBLICATION supabase_realtime {} TABLE operation_members"
    stage.closing.push_async_callback(stage.database.run, change.format("ADD"))
    await stage.database.run(change.format("DROP"))
    # Of rows that are written before the hub has noticed, clients are told that they may be missing.
    await asyncio.sleep(2)
    await story(stage)


@scenario("memberships come to be followed, and not any more, while rows are written: each is heard once, in order, by its members", own_hub=True, tables=APPLICATION)
async def followed_later(stage):
    database = stage.database
    published = "ALTER PUBLICATION supabase_realtime {} TABLE operation_members"
    internal = "ALTER PUBLICATION tidewire_internal ADD TABLE ONLY operation_members"
    gone = "ALTER PUBLICATION tidewire_internal DROP TABLE ONLY operation_members"
    empty = "ALTER PUBLICATION tidewire_internal SET TABLE operation_members"
    stage.closing.push_async_callback(database.run, empty, gone, published.format("ADD"))
    await emptied(stage)
    await database.run(published.format("DROP"))
    async with SupabaseClients(stage) as supabase:
        people = await everybody(stage, supabase)
        written = 0

        async def write(until):
            nonlocal written
            # A hub that does not notice would have this go on for good.
            while not until(stage.hub.log()) and written < 20_000:
                await database.run(*(is_at(operation, written % 90) for operation in NAMES))
                written += 1

        async def as_written():
            nonlocal written
            for one, operations in zip(people, (["harbour"], ["harbour", "night"], ["night"])):
                wanted = [("locations_stream", operation, number % 90) for number in range(written) for operation in operations]
                await one.hears_or_is_told(wanted, own_rows(database, one), own_number, brief, "while that changed")
            written = 0

        await write(lambda log: written == 20)
        await database.run(internal)
        await write(lambda log: "the hub will follow it" in log)
        await as_written()
        await database.run(leaves(ANA, HARBOUR), is_at(HARBOUR, 1), is_at(NIGHT, 1))
        await fence(database)
        for one, wanted in zip(people, ([], ["harbour", "night"], ["night"])):
            await one.hears([("locations_stream", operation, 1) for operation in wanted], last, brief, "when ana has left")
        await database.run(joins(ANA, HARBOUR), gone)
        await write(lambda log: written == 200)
        await as_written()


@scenario("an operation changes hands: its creator hears of it by their own policy, members by theirs", tables=APPLICATION)
async def operations(stage):
    database = stage.database
    await emptied(stage)
    async with SupabaseClients(stage) as supabase:
        people = {}
        for name, who in PEOPLE.items():
            people[name] = await (await device(supabase, name, somebody(stage, who))).on("*", "operations").ready()

        async def heard(mark):
            await database.run(*(f"UPDATE operations SET name = '{mark}' WHERE id = '{operation}'" for operation in OWN.values()))
            return {
                who: await one.heard_until(lambda item, own=OWN[who]: item["record"]["id"] == own and item["record"]["name"] == mark)
                for who, one in people.items()}  # fmt: skip

        await heard("begin")
        await database.run(
            f"UPDATE operations SET name = 'one' WHERE id = '{HARBOUR}'",
            f"UPDATE operations SET name = 'two', created_by = '{ANA}' WHERE id = '{NIGHT}'")  # fmt: skip
        came = await heard("last")

        def name(item):
            return of(item)[0], item["record"]["name"]

        for who, wanted in (("ana", ["one", "two"]), ("ben", ["one", "two"]), ("cleo", ["two"])):
            wanted = [("UPDATE", one) for one in wanted]
            equal([name(item) for item in came[who] if item["record"]["name"] not in ("begin", "last")], wanted, f"what {who} hears")
