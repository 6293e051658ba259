"""What the ledger has beside channels with bindings: requests for changes over HTTP, and what the database says to topics."""

import asyncio

from clients.expect import contains, equal, fail, true
from clients.hub import LIMIT
from clients.scenario import published, scenario
from clients.stage import ANA, BEN
from conformance.database import fresh, ready, send
from conformance.feed import FENCE, Stream, get, here, page
from conformance.private import OPEN
from realtime_py.recorded import OWNED, ask, offsets

BOTH = [{"ledger": "ranges"}, {"ledger": "full"}]


async def eventually(stage, condition, *words) -> list[dict]:
    """Notes come into the log a moment later."""
    for _ in range(int(LIMIT * 5)):
        found = await ask(stage, *words)
        if condition(found):
            return found
        await asyncio.sleep(0.2)
    fail(f"what {words} was to say", found)


async def pages(stage, basis: str):
    table = "l_pages"
    ana, ben = (stage.token("authenticated", sub=user) for user in (ANA, BEN))
    begin = await here(stage, table, token=ana)
    for row in range(1, 5):
        await stage.database.run(f"INSERT INTO {table} VALUES ({row}, '{ANA if row != 3 else BEN}')")
    end = await here(stage, table, token=ana)
    first = await page(stage, table=table, after=begin, limit=2, token=ana)
    equal([event["data"]["record"]["id"] for event in first["events"]], [1, 2], "the first page")
    refused = await get(stage, table=table, after=begin, limit="much", token=ben)
    equal(refused.status, 400, "a limit that is none")
    missing = await get(stage, table="l_nowhere", after=begin, token=ben)
    equal(missing.status, 404, "a table that there is not")
    places = await offsets(stage, table)
    notes = await eventually(stage, lambda found: any(n["event"] == "answered" for n in found), "user", ANA, "--from", "@" + begin.split(".")[1])
    answers = [note for note in notes if note["event"] == "answered"]
    # What asked for nothing but the log's end told of nothing, and is not there.
    equal(len(answers), 1, f"answers that told of something: {notes}")
    note = answers[0]
    equal((note["offset"], note["received"]), (int(begin.split(".")[1]), int(first["position"].split(".")[1])), "the window")
    equal(note["reason"], "a page with 2 changes, all that it asked for at once", "how much it was")
    true('"table":"l_pages"' in str(note["bindings"]).replace("'", '"').replace(" ", ""), "what it asked for", note)
    equal(note["claims"]["sub"], ANA, "with which claims")
    refusals = await eventually(stage, lambda found: len([n for n in found if n["event"] == "refused"]) == 2, "user", BEN, "--from", "@" + begin.split(".")[1])
    contains(" ".join(n["reason"] for n in refusals), "InvalidParameter", "why the one was refused")
    contains(" ".join(n["reason"] for n in refusals), "NoSuchTable", "why the other was")
    for row, told in [(1, True), (2, True), (4, False)]:
        answers = [a for a in await ask(stage, "who", f"@{places[row]}", "--recorded", "--user", ANA) if a["topic"] == "http:changes"]
        equal([a["outcome"] for a in answers], ["sent"] if told else [], f"row {row}: {answers}")
        equal([a["basis"] for a in answers], [basis] if told else [], f"row {row}: {answers}")
    true(int(end.split(".")[1]) > places[4], "all were committed", end)


@scenario("who asked for a page of changes over HTTP, and was told of what", settings=BOTH[0], own_hub=True, tables=FENCE + published("l_pages", "id int PRIMARY KEY, owner uuid", OWNED.format("l_pages")))
async def pages_derived(stage):
    await pages(stage, "derived")


@scenario("the same, where each delivery is recorded", settings=BOTH[1], own_hub=True, tables=FENCE + published("l_pages", "id int PRIMARY KEY, owner uuid", OWNED.format("l_pages")))
async def pages_recorded(stage):
    await pages(stage, "recorded")


@scenario("a stream over HTTP is joined, and left with what it had told", settings=BOTH[1], own_hub=True, tables=FENCE + published("l_stream", "id int PRIMARY KEY, owner uuid", OWNED.format("l_stream")))
async def stream(stage):
    ana = stage.token("authenticated", sub=ANA)
    begin = await here(stage, "l_stream", token=ana)
    for row, owner in ((1, ANA), (2, BEN)):
        await stage.database.run(f"INSERT INTO l_stream VALUES ({row}, '{owner}')")
    await here(stage, "l_stream", token=ana)
    lines = await Stream.open(stage, table="l_stream", after=begin, token=ana)
    places = await offsets(stage, "l_stream")
    notes = await eventually(stage, lambda found: any(n["event"] == "left" for n in found), "user", ANA, "--from", "@" + begin.split(".")[1])
    joined, left = [next(n for n in notes if n["event"] == event) for event in ("joined", "left")]
    equal(joined["offset"], int(begin.split(".")[1]), "from where on")
    equal(left["reason"], "its answer ended after 1 change", "how much it told")
    for row, outcome in ((1, "sent_later"), (2, "not_sent")):
        answers = await ask(stage, "who", f"@{places[row]}", "--recorded", "--user", ANA)
        equal([(a["outcome"], a["basis"]) for a in answers], [(outcome, "recorded")], f"row {row}: {answers}")
    lines.connection.abort()


async def messages(stage, basis: str):
    topic, sub = fresh("kept")
    peer, public = await ready(stage, topic), await ready(stage, topic, private=False)
    other = await ready(stage, fresh("other")[0])
    await stage.database.run(send({"n": 1}, "note", sub))
    equal((await peer.broadcast(topic)).payload["event"], "note", "what it heard")
    await other.fence(), await public.fence()
    def is_it(change) -> bool:
        return (change.get("record") or {}).get("topic") == sub

    found = await eventually(stage, lambda found: any(map(is_it, found)), "tail", "--from", "oldest")
    change = next(filter(is_it, found))
    answers = await eventually(
        stage, lambda found: bool(found) and found[0]["basis"] == basis, "who", f"@{change['offset']}")
    equal([(a["topic"], a["outcome"]) for a in answers], [(topic, "sent")], f"who was told of it: {answers}")


@scenario("who heard what the database said to a topic is derived", settings=BOTH[0], own_hub=True, tables=OPEN)
async def messages_derived(stage):
    await messages(stage, "derived")


@scenario("who heard what the database said to a topic is recorded", settings=BOTH[1], own_hub=True, tables=OPEN)
async def messages_recorded(stage):
    await messages(stage, "recorded")
