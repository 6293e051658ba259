"""Filters of every operator and type, judged by PostgreSQL. Protocol §3.7; trap 13."""

from clients import filters
from clients.expect import equal, fail, true
from clients.peer import binding
from clients.scenario import published, scenario


async def judge(stage, table: str, chosen):
    """One channel, a binding for each filter; a change's ids say which of them matched."""
    peer = await stage.peer()
    topic = "realtime:" + table
    ids = await peer.subscribe(topic, binding(table), *(binding(table, "INSERT", filter=text) for text, _ in chosen))
    await stage.database.run(filters.rows(table))
    wanted = await filters.wanted(stage.database, table, chosen)
    await stage.database.run(f"DELETE FROM {table} WHERE id = 1")
    came = {text: [] for text, _ in chosen}
    names = {number: text for number, (text, _) in zip(ids[1:], chosen)}
    for message in await peer.changes_until(topic, lambda data: data["type"] == "DELETE"):
        for number in message.payload["ids"]:
            if number != ids[0]:
                came[names[number]].append(message.data["record"]["id"])
    wrong = [f"{text}: {sorted(came[text])}, PostgreSQL says {wanted[text]}" for text, _ in chosen if sorted(came[text]) != wanted[text]]
    if wrong:
        fail("every filter to deliver what PostgreSQL says", "\n       ".join(["", *wrong]))


@scenario("trap 13: every operator on every kind of column delivers what PostgreSQL says", tables=filters.tables("c_filters"))
async def operators(stage):
    await judge(stage, "c_filters", filters.FILTERS)


@scenario("beyond the reference: or, and, containment, ranges, long lists", tables=filters.tables("c_further"))
async def further(stage):
    await judge(stage, "c_further", filters.FURTHER)


@scenario("a DELETE is filtered by its old row, which the identity or the event log has", tables=[
    *published("c_delete_full", "id int PRIMARY KEY, v text", "ALTER TABLE c_delete_full REPLICA IDENTITY FULL"),
    *published("c_delete_key", "id int PRIMARY KEY, v text")])  # fmt: skip
async def deletes(stage):
    peer = await stage.peer()
    for table, wanted in (("c_delete_full", ["id", "v", "not"]), ("c_delete_key", ["id", "v", "not"])):
        topic = "realtime:" + table
        texts = {"id": "id=eq.1", "v": "v=eq.x", "not": "v=not.eq.y"}
        ids = await peer.subscribe(topic, binding(table), *(binding(table, "DELETE", filter=text) for text in texts.values()))
        await stage.database.run(f"INSERT INTO {table} VALUES (1, 'x'), (2, 'y')", f"DELETE FROM {table}")
        changes = [await peer.change(topic) for _ in range(4)]
        equal([change.data["type"] for change in changes], ["INSERT", "INSERT", "DELETE", "DELETE"], "the changes")
        names = dict(zip(ids[1:], texts))
        equal(sorted(names[i] for i in changes[2].payload["ids"] if i in names), sorted(wanted), f"which filters match a DELETE of {table}")
        equal(changes[3].payload["ids"], [ids[0]], "which match the other")


@scenario("a row that leaves the filter makes no event, one that enters it does", tables=published("c_enter", "id int PRIMARY KEY, v text", "ALTER TABLE c_enter REPLICA IDENTITY FULL"))
async def entering(stage):
    peer = await stage.peer()
    await peer.subscribe("realtime:enter", binding("c_enter", filter="v=eq.in"))
    await stage.database.run(
        "INSERT INTO c_enter VALUES (1, 'in'), (2, 'out')", "UPDATE c_enter SET v = 'out' WHERE id = 1",
        "UPDATE c_enter SET v = 'in' WHERE id = 2")  # fmt: skip
    changes = [await peer.change("realtime:enter") for _ in range(2)]
    came = [(change.data["type"], change.data["record"]["id"]) for change in changes]
    equal(came, [("INSERT", 1), ("UPDATE", 2)], "the changes that match")


@scenario("beyond the reference: filters on what a change has changed, whatever the identity keeps", tables=[
    *filters.event_table("c_events_full", "FULL"), *filters.event_table("c_events_key", "DEFAULT")])  # fmt: skip
async def events(stage):
    for table in ("c_events_full", "c_events_key"):
        peer = await stage.peer()
        topic = "realtime:" + table
        ids = await peer.subscribe(topic, binding(table), *(binding(table, filter=text) for text, _ in filters.EVENTS))
        await stage.database.run(*filters.event_statements(table))
        changes = [await peer.change(topic) for _ in range(5)]
        equal([change.data["type"] for change in changes], ["INSERT", "INSERT", "UPDATE", "UPDATE", "DELETE"], "the changes")
        for number, (text, wanted) in zip(ids[1:], filters.EVENTS):
            came = [place + 1 for place, change in enumerate(changes) if number in change.payload["ids"]]
            equal(came, wanted, f"the changes of {table} that match {text}")


PLACE = "Unable to subscribe to changes with given parameters. "
WRONG = {
    # Filter → the whole message, or its end where the reference's form is followed.
    "name=foo.hey": 'Error parsing `filter` params: ["foo", "hey"]',
    "undefined": 'Error parsing `filter` params: ["undefined"]',
    "name=eq": 'Error parsing `filter` params: ["eq"]',
    "name=in.a,b": "Error parsing `filter` params: `in` filter value must be wrapped by parentheses",
    "id=eq.1,,id=eq.2": "Error parsing `filter` params: filter must not contain empty segments (check for extra commas)",
    "id=eq.1,": "Error parsing `filter` params: filter must not contain empty segments (check for extra commas)",
    "nope=eq.1": "invalid column for filter nope",
    "hidden=eq.1": "invalid column for filter hidden",
    "changed=nope": "invalid column for filter nope",
    "changed=in.(id,hidden)": "invalid column for filter hidden",
    "old.hidden=eq.1": "invalid column for filter old.hidden",
    "old.name=match.a": "has no conditions that only PostgreSQL can decide, such as match on column name of type text",
    "id=eq.hey": 'invalid input syntax for type integer: "hey"',
    "id=in.(1,hey)": 'invalid input syntax for type integer: "hey"',
    "id=is.nothing": "invalid value for is filter: must be null, true, false, or unknown",
    "id=is.NULL": "invalid value for is filter: must be null, true, false, or unknown",
    "name=is.true": "is true filter requires a boolean column, got text",
    "id=like.1%": "operator like requires a text-compatible column type, got integer",
    "id=match.1": "operator match requires a text-compatible column type, got integer",
    "id=ilike.1": "operator ilike requires a text-compatible column type, got integer",
    "owner=eq.me": 'invalid input syntax for type uuid: "me"',
    "mood=eq.angry": 'c_mood: "angry"',
    "name=match.(": "invalid regular expression for match filter: ",
}


@scenario("checklist 13: a bad filter leaves the channel joined and says what is wrong", tables=[
    *filters.tables("c_scratch")[1:2],
    *published("c_wrong", "id int PRIMARY KEY, name text, owner uuid, mood c_mood, hidden text",
               "REVOKE ALL ON c_wrong FROM anon", "GRANT SELECT (id, name, owner, mood) ON c_wrong TO anon")])  # fmt: skip
async def errors(stage):
    peer = await stage.peer()
    for index, (text, wanted) in enumerate(WRONG.items()):
        topic = f"realtime:wrong-{index}"
        await peer.join(topic, {"postgres_changes": [binding("c_wrong", filter=text)]})
        message = await peer.system(topic, f"a system message about {text!r}")
        equal((message.payload["extension"], message.status), ("postgres_changes", "error"), f"extension and status for {text!r}")
        said = message.payload["message"]
        if wanted.startswith("Error parsing"):
            equal(said, wanted, f"the message about {text!r}")
        else:
            true(said.startswith(PLACE) and wanted in said, f"a message about {text!r} with {wanted!r}", said)
    said = await whole_message(peer, binding("c_wrong", filter="nope=eq.1"))
    equal(said, PLACE + "An exception happened so please check your connect parameters: [event: *, schema: public, table: c_wrong,"
          ' filters: [{"nope", "eq", "1", false}], select: nil]. Exception: ERROR P0001 (raise_exception) invalid column for filter nope',
          "the whole of one")  # fmt: skip
    ref = await peer.push("realtime:wrong-0", "phx_leave", {})
    equal((await peer.reply(ref)).status, "ok", "the answer to a leave after the error")


async def whole_message(peer, one) -> str:
    await peer.join("realtime:whole", {"postgres_changes": [one]})
    return (await peer.system("realtime:whole")).payload["message"]


@scenario("select: what is wrong with it is said", tables=published("c_select_wrong", "id int PRIMARY KEY, v text"))
async def select_errors(stage):
    peer = await stage.peer()
    cases = [
        (binding("c_select_wrong", select="id"),
         'Error parsing `select` params: expected a list of column name strings, e.g. select: ["col1", "col2"]'),
        ({"event": "*", "schema": "public", "select": ["id"]},
         "Column selection is not supported for wildcard subscriptions. Provide an explicit schema and table name."),
        (binding("*", select=["id"]),
         "Column selection is not supported for wildcard subscriptions. Provide an explicit schema and table name."),
        (binding("c_select_wrong", select=["nope"]), "invalid column for select nope"),
    ]  # fmt: skip
    for index, (one, wanted) in enumerate(cases):
        topic = f"realtime:select-{index}"
        await peer.join(topic, {"postgres_changes": [one]})
        said = (await peer.system(topic)).payload["message"]
        true(said == wanted or wanted in said and wanted.startswith("invalid"), f"the message {wanted!r}", said)
    for index, select in enumerate(([], [1, None], {}, 7, None)):
        topic = f"realtime:select-none-{index}"
        await peer.subscribe(topic, binding("c_select_wrong", select=select))
