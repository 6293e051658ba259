"""Changes as the answer to a request: pages, lines and server-sent events say what a channel hears, from a position on."""

import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import signal
import urllib.parse

from clients.database import Database
from clients.expect import contains, equal, fail, keys, true, within
from clients.hub import LIMIT
from clients.peer import binding
from clients.scenario import published, scenario
from clients.stage import ANA, BEN
from clients.wire import Closed, Connection
from conformance.resume import ASKED, OWNED, POSITION, moved

PATH = "/realtime/v1/api/changes"
LINES = "application/x-ndjson"
EVENTS = "text/event-stream"
#: Beside the tables that are followed: a row in it says how far the log is.
FENCE = published("f_fence", "id int PRIMARY KEY")
fences = itertools.count(1)
DATA_KEYS = {"schema", "table", "type", "commit_timestamp", "errors", "columns", "record", "old_record", "tidewire"}


def target(*parameters, **more) -> str:
    """`parameters` are pairs, for those whose order counts."""
    return PATH + "?" + urllib.parse.urlencode([*parameters, *((name, value) for name, value in more.items() if value is not None)])


def headers(stage, token="anon", accept=None, **more) -> dict:
    given = {"Host": f"{stage.hub.host}:{stage.hub.port}"}
    if token:
        given["Authorization"] = f"Bearer {stage.anon if token == 'anon' else token}"
    return given | ({"Accept": accept} if accept else {}) | {name.replace("_", "-"): value for name, value in more.items()}


async def get(stage, *parameters, token="anon", accept=None, method="GET", connection=None, given=None, **more):
    own = connection is None
    connection = connection or await stage.connection()
    response = await connection.request(method, target(*parameters, **more), headers(stage, token, accept, **(given or {})))
    if own:
        connection.abort()
    return response


def page_of(response) -> dict:
    equal(response.status, 200, f"the status of {response}")
    equal(response.headers["content-type"], "application/json; charset=utf-8", "what it is")
    page = json.loads(response.body)
    keys(page, "events system position more", "a page")
    true(POSITION.match(page["position"]), "a position", page["position"])
    for event in page["events"]:
        check(event)
    for note in page["system"]:
        check(note)
    return page


def check(record: dict):
    if record.get("position") is not None:
        true(POSITION.match(record["position"]), "a position", record)
    match record["type"]:
        case "change":
            # Rows of a snapshot have none.
            is_row = record["data"].get("tidewire") == {"snapshot": True}
            keys(record, "type data" if is_row else "type data position", "a change")
            true(set(record["data"]) <= DATA_KEYS and "commit_timestamp" in record["data"], "what a client hears of a change", record)
        case "system":
            keys(record, "type status code message position" + (" rows" if "rows" in record else ""), "a note")
        case "position":
            keys(record, "type position", "a sign of life")
        case "end":
            true({"type", "position", "more"} <= set(record) <= {"type", "position", "more", "code", "message"}, "an end", record)
        case other:
            fail("a record of a known type", other)


async def page(stage, *parameters, **more) -> dict:
    return page_of(await get(stage, *parameters, **more))


async def here(stage, table: str, **more) -> str:
    """The end of the log, behind whatever was committed before: that the table was emptied for the scenario, too."""
    await in_log(stage)
    return (await page(stage, table=table, **more))["position"]


async def all_pages(stage, *parameters, after: str, until=None, **more) -> tuple[list[dict], str, int]:
    """What chained pages tell up to the log's end, and beyond, until `until` was among it."""
    found, count, offset = [], 0, int(after.split(".")[1])
    while True:
        one = await page(stage, *parameters, after=after, **more)
        count += 1
        found += one["events"]
        after = one["position"]
        reached = int(after.split(".")[1])
        true(reached >= offset and (not one["events"] or reached > offset), "a page that goes on", (offset, after))
        for event in one["events"]:
            true(offset < (offset := int(event["position"].split(".")[1])) <= reached, "positions in their order", event)
        offset = reached
        if not one["more"] and (until is None or any(until(event["data"]) for event in found)):
            return found, after, count


class Stream:
    """The answer to a request that goes on: one record after the other, whatever stands around them."""

    def __init__(self, connection: Connection, accept: str):
        self.connection = connection
        self.accept = accept
        self.bytes = b""
        self.is_whole = False
        self.last_id = None
        self.retry = None

    @classmethod
    async def open(cls, stage, *parameters, accept=LINES, token="anon", given=None, buffer=None, version="1.1", **more) -> "Stream":
        connection = await stage.connection(buffer=buffer)
        lines = [f"GET {target(*parameters, **more)} HTTP/{version}", *(f"{n}: {v}" for n, v in headers(stage, token, accept, **(given or {})).items()), "", ""]
        await connection.send("\r\n".join(lines).encode())
        head = (await within(connection._head(), LIMIT)).decode()
        equal(head.split("\r\n")[0], "HTTP/1.1 200 OK", f"the first line of {head}")
        contains(head, f"content-type: {accept}; charset=utf-8", "the head")
        stream = cls(connection, accept)
        stream.in_chunks = "transfer-encoding: chunked" in head
        equal(stream.in_chunks, version == "1.1", "chunks")
        return stream

    async def _more(self):
        if not self.in_chunks:
            more = await within(self.connection.reader.read(1 << 16), LIMIT)
            self.is_whole = not more
            self.bytes += more
            return
        line = await within(self.connection.reader.readline(), LIMIT)
        if not line:
            raise EOFError(self.bytes)
        size = int(line, 16)
        chunk = await within(self.connection.reader.readexactly(size + 2), LIMIT)
        true(chunk.endswith(b"\r\n"), "a chunk of its size", chunk[-80:])
        self.is_whole = size == 0
        self.bytes += chunk[:-2]

    async def _piece(self) -> str | None:
        end = b"\n\n" if self.accept == EVENTS else b"\n"
        while end not in self.bytes:
            if self.is_whole:
                equal(self.bytes, b"", "what is left behind the last record")
                return None
            await self._more()
        piece, _, self.bytes = self.bytes.partition(end)
        return piece.decode()

    async def next(self) -> dict | None:
        """The next record; None behind the last one."""
        while (piece := await self._piece()) is not None:
            if self.accept == LINES:
                record = json.loads(piece)
                check(record)
                return record
            if record := self._event(piece):
                return record
        return None

    def _event(self, piece: str) -> dict | None:
        """As a browser reads it."""
        name, data = "message", []
        for line in piece.split("\n"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            match field:
                case "":
                    pass
                case "event":
                    name = value
                case "data":
                    data.append(value)
                case "id":
                    self.last_id = value
                case "retry":
                    self.retry = int(value)
                case other:
                    fail("a field of server-sent events", other)
        if not data:
            return None
        equal(len(data), 1, "the lines of a record")
        record = json.loads(data[0])
        check(record)
        equal(name, record["type"], "the event")
        if record.get("position") is not None:
            equal(self.last_id, record["position"], "the id of the record")
        return record

    async def until(self, condition, what="a record") -> list[dict]:
        found = []
        while not found or not condition(found[-1]):
            record = await self.next()
            true(record is not None, f"{what} before the end", found[-3:])
            found.append(record)
        return found

    async def caught_up(self) -> list[dict]:
        return await self.until(lambda r: r["type"] == "system" and r["code"] == "CaughtUp", "that it has caught up")

    async def changes(self, count: int) -> list[dict]:
        found = []
        while len(found) < count:
            record = await self.next()
            true(record is not None, f"{count} changes", found[-3:])
            if record["type"] == "change":
                found.append(record)
        return found

    async def rest(self) -> list[dict]:
        found = []
        while (record := await self.next()) is not None:
            found.append(record)
        return found


def data_of(records) -> list[dict]:
    return [record["data"] for record in records if record["type"] == "change"]


def ids_of(records) -> list[int]:
    return [(data.get("record") or data["old_record"])["id"] for data in data_of(records)]


async def metric(stage, name: str) -> int:
    """Of the settings' own project, which has no label for that."""
    connection = await stage.connection()
    text = (await connection.request("GET", "/metrics", {"Host": f"{stage.hub.host}:{stage.hub.port}"})).body.decode()
    connection.abort()
    return int(re.search(rf"^{re.escape(name)} (\d+)$", text, re.M)[1])


async def in_log(stage, *statements: str):
    """Runs them, and waits until the log has what they did."""
    peer = await stage.peer()
    await peer.subscribe("realtime:fence", binding("f_fence"))
    number = next(fences)
    await stage.database.run(*statements, f"INSERT INTO f_fence VALUES ({number})")
    await peer.changes_until("realtime:fence", lambda data: data["type"] == "INSERT" and data["record"]["id"] == number)
    await peer.close()


@scenario("chained pages, lines and events tell what a channel heard, with filters, columns, operations and policies", tables=FENCE + published("f_mixed", "id int PRIMARY KEY, owner uuid, kind text, note text", OWNED.format("f_mixed")))
async def same_as_channel(stage):
    await stage.database.run("TRUNCATE f_mixed")
    start = await here(stage, "f_mixed", token=stage.ana)
    shapes = [
        {}, {"filter": "kind=eq.in"}, {"event": "UPDATE", "filter": "id=gt.20"}, {"select": ["id", "kind"]}, {"event": "DELETE"},
        {"filter": "kind=eq.in", "moves": True}, {"filter": "and=(kind.eq.in,id.lt.40)", "select": ["id"]},
    ]
    heard = []
    for token in (stage.ana, stage.ben):
        for shape in shapes:
            peer = await stage.peer()
            own = {name: value for name, value in shape.items() if name != "moves"}
            await peer.subscribe("realtime:f", binding("f_mixed", **own), binding("f_fence"), access_token=token, moves=shape.get("moves", False))
            heard.append((token, shape, peer))
    await stage.database.run(
        *(f"INSERT INTO f_mixed VALUES ({n}, '{ANA if n % 3 else BEN}', '{'in' if n % 2 else 'out'}', E'a\\nb\\r\\n\\t\"\\u2028 {n}')" for n in range(1, 61)),
        "UPDATE f_mixed SET kind = CASE kind WHEN 'in' THEN 'out' ELSE 'in' END",
        "BEGIN; DELETE FROM f_mixed WHERE id % 5 = 0; UPDATE f_mixed SET note = 'x' WHERE id > 30; COMMIT",
        f"INSERT INTO f_mixed VALUES (1000, '{ANA}', 'in', ''), (1001, '{BEN}', 'in', '')",
        "UPDATE f_mixed SET note = 'last' WHERE id >= 1000", "DELETE FROM f_mixed WHERE id >= 1000")
    number = next(fences)
    await stage.database.run(f"INSERT INTO f_fence VALUES ({number})")
    await in_log(stage)
    for token, shape, peer in heard:
        messages = await peer.changes_until("realtime:f", lambda data: data["table"] == "f_fence" and data["record"]["id"] == number)
        wanted = [m.data for m in messages if m.data["table"] == "f_mixed"]
        true(wanted or shape.get("event") == "UPDATE", "that the channel heard something", shape)
        parameters = shape | ({"select": ",".join(shape["select"])} if "select" in shape else {}) | {"table": "f_mixed"}
        parameters = {name: str(value).lower() if value is True else value for name, value in parameters.items()}
        for limit in (7, 1000):
            found, _, count = await all_pages(stage, after=start, token=token, limit=limit, **parameters)
            equal(data_of(found), wanted, f"what pages of {limit} tell of {shape}")
            true(limit == 1000 or len(wanted) < limit or count > len(wanted) // limit, "several pages", count)
        for accept in (LINES, EVENTS):
            stream = await Stream.open(stage, accept=accept, token=token, after=start, live="false", **parameters)
            found = await stream.rest()
            equal(data_of(found), wanted, f"what {accept} tells of {shape}")
            equal({**found[-1], "position": ""}, {"type": "end", "position": "", "more": False}, "the last record")
        await peer.close()


@scenario("several tables: what stands behind a table is that one's, what stands before is all of them's", tables=[*FENCE, *published("f_one", "id int PRIMARY KEY, kind text"), *published("f_two", "id int PRIMARY KEY, kind text")])
async def several_tables(stage):
    start = await here(stage, "f_one")
    await stage.database.run(
        *(f"INSERT INTO f_{'one' if n % 2 else 'two'} VALUES ({n}, '{'in' if n % 3 else 'out'}')" for n in range(1, 19)), "DELETE FROM f_two WHERE id = 2")
    await in_log(stage, "INSERT INTO f_one VALUES (1000, 'out')")
    found = await page(stage, ("table", "f_one"), ("filter", "kind=eq.in"), ("table", "f_two"), ("event", "DELETE"), after=start)
    equal([(d["table"], d["type"]) for d in data_of(found["events"])], [("f_one", "INSERT")] * 6 + [("f_two", "DELETE")], "what each is told of")
    found = await page(stage, ("filter", "kind=eq.in"), ("event", "INSERT"), ("table", "f_one"), ("table", "f_two"), after=start)
    equal(ids_of(found["events"]), [n for n in range(1, 19) if n % 3], "what both are told of")


@scenario("without a position it begins at the log's end and says where that is; a page comes to the end over what is not for it", tables=FENCE + published("f_now", "id int PRIMARY KEY"))
async def from_now(stage):
    await in_log(stage, "INSERT INTO f_now VALUES (1)")
    first = await page(stage, table="f_now")
    equal((first["events"], first["more"]), ([], False), "a page from now on")
    await stage.database.run(*(f"INSERT INTO f_now VALUES ({n})" for n in range(2, 52)))
    await in_log(stage, "INSERT INTO f_now VALUES (1000)")
    second = await page(stage, table="f_now", after=first["position"], filter="id=eq.77")
    equal((second["events"], second["more"]), ([], False), "a page of which nothing matched")
    true(int(second["position"].split(".")[1]) >= int(first["position"].split(".")[1]) + 51, "that it came further", second)


@scenario("a page of 10,000 changes, and of more than one is told that there is more", tables=FENCE + published("f_many", "id int PRIMARY KEY, note text"))
async def many(stage):
    start = await here(stage, "f_many")
    await stage.database.run("INSERT INTO f_many SELECT g, repeat('x', 200) FROM generate_series(1, 12000) g")
    await in_log(stage, "INSERT INTO f_many VALUES (20000)")
    connection = await stage.connection()
    first = page_of(await get(stage, table="f_many", after=start, limit=10000, connection=connection))
    equal(ids_of(first["events"]), list(range(1, 10001)), "the first page")
    equal((first["more"], first["position"]), (True, first["events"][-1]["position"]), "where it ends")
    # On the same connection, in the middle of a transaction.
    second = page_of(await get(stage, table="f_many", after=first["position"], limit=10000, connection=connection))
    equal(ids_of(second["events"]), [*range(10001, 12001), 20000], "the second page")
    equal(second["more"], False, "that this was all")
    third = page_of(await get(stage, table="f_many", after=second["position"], connection=connection))
    equal((third["events"], third["more"]), ([], False), "the third page")


@scenario("a page that waits is answered with what comes, and keeps its connection", tables=FENCE + published("f_poll", "id int PRIMARY KEY, note text"))
async def long_poll(stage):
    at = await here(stage, "f_poll")
    connection = await stage.connection()
    for number in range(1, 6):
        asking = asyncio.create_task(get(stage, table="f_poll", after=at, live="true", filter="note=eq.in", connection=connection))
        await in_log(stage, f"INSERT INTO f_poll VALUES ({number * 10}, 'out')")
        true(not asking.done(), "that what is not for it does not wake it")
        await stage.database.run(f"INSERT INTO f_poll VALUES ({number}, 'in')")
        found = page_of(await asking)
        equal((ids_of(found["events"]), found["more"]), ([number], False), "what came")
        at = found["position"]
    # What was missed is no reason to wait.
    await in_log(stage, "INSERT INTO f_poll VALUES (99, 'in')")
    found = page_of(await get(stage, table="f_poll", after=at, live="true", filter="note=eq.in", connection=connection))
    equal(ids_of(found["events"]), [99], "what came")


@scenario("a stream goes on from what was to what comes, without a gap at the seam", tables=FENCE + published("f_seam", "id int PRIMARY KEY"))
async def seam(stage):
    start = await here(stage, "f_seam")
    number = 0
    for accept in (LINES, EVENTS) * 5:
        more = [f"INSERT INTO f_seam SELECT generate_series({n + 1}, {n + 25})" for n in range(number, number + 500, 25)]
        number += 500
        await stage.database.run(*more[:10])
        stream = await Stream.open(stage, accept=accept, table="f_seam", after=start, live="true")
        await stage.database.run(*more[10:])
        equal(ids_of(await stream.changes(number)), list(range(1, number + 1)), "what came")
        stream.connection.abort()


@scenario("an EventSource that lost its stream comes back with Last-Event-ID and misses nothing, over restarts and kills of the hub", own_hub=True, tables=FENCE + published("f_source", "id int PRIMARY KEY"))
async def event_source(stage):
    stream = await Stream.open(stage, accept=EVENTS, table="f_source", token=None, apikey=stage.anon)
    await stream.caught_up()
    equal(stream.retry, 2000, "when to come back")
    position, number = stream.last_id, 0
    for signal_number in (signal.SIGTERM, signal.SIGKILL, None, signal.SIGTERM):
        await stage.database.run(*(f"INSERT INTO f_source VALUES ({number + n})" for n in range(1, 6)))
        equal(ids_of(await stream.changes(5)), list(range(number + 1, number + 6)), "what came before")
        position = stream.last_id
        if signal_number is None:
            stream.connection.abort()
        else:
            await stage.hub.end(signal_number)
        if signal_number == signal.SIGTERM:
            last = (await stream.rest())[-1]
            equal((last["type"], last["code"], last["more"]), ("end", "Restarting", True), "the last record")
            position = last["position"]
        await stage.database.run(*(f"INSERT INTO f_source VALUES ({number + n})" for n in range(6, 11)))
        if signal_number is not None:
            await stage.hub.start()
        # The address is still the one that it began with.
        stream = await Stream.open(
            stage, accept=EVENTS, table="f_source", token=None, apikey=stage.anon, given={"Last_Event_ID": position})
        equal(ids_of(await stream.changes(5)), list(range(number + 6, number + 11)), "what it missed")
        number += 10


@scenario("chained pages go on over a kill and a restart of the hub", own_hub=True, tables=FENCE + published("f_chain", "id int PRIMARY KEY"))
async def chained_over_kills(stage):
    at, found = await here(stage, "f_chain"), []
    for round, number in enumerate((signal.SIGKILL, signal.SIGTERM)):
        first = round * 20 + 1
        await stage.database.run(*(f"INSERT INTO f_chain VALUES ({n})" for n in range(first, first + 10)))
        more, at, _ = await all_pages(stage, table="f_chain", after=at, limit=3, until=lambda d: d["record"]["id"] == first + 9)
        found += more
        with contextlib.suppress(Exception):
            await stage.hub.end(number)
        await stage.database.run(*(f"INSERT INTO f_chain VALUES ({n})" for n in range(first + 10, first + 20)))
        await stage.hub.start()
    more, at, _ = await all_pages(stage, table="f_chain", after=at, limit=3, until=lambda d: d["record"]["id"] == 40)
    equal(ids_of(found + more), list(range(1, 41)), "all of it, each once")


@scenario("who cannot be told all is told to fetch, why, and from where to go on", tables=FENCE + published("f_conflict", "id int PRIMARY KEY"))
async def conflict(stage):
    start = await here(stage, "f_conflict")
    for accept in (None, LINES, EVENTS):
        for position, reason in ((moved(start, epoch="0000000000000017"), "epoch_changed"), (moved(start, 1 << 40), "unknown_position")):
            response = await get(stage, table="f_conflict", after=position, accept=accept)
            equal(response.status, 409, "the status")
            body = json.loads(response.body)
            keys(body, "error code reason position", "the body")
            equal((body["code"], body["reason"]), ("MustFetchAgain", reason), "why")
            contains(body["error"], "fetch again what is shown", "what to do")
            following = await page(stage, table="f_conflict", after=body["position"])
            equal((following["events"], following["more"]), ([], False), "what comes from there on")


@scenario("older than the log reaches back is a conflict too", own_hub=True, settings={"retention_size": "3MB"}, tables=FENCE + published("f_old", "id int PRIMARY KEY, body text"))
async def too_old(stage):
    start = await here(stage, "f_old")
    for n in range(1000, 1020):
        # What does not compress, so that the log grows.
        await in_log(stage, f"INSERT INTO f_old VALUES ({n}, (SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 16000)))")
    for n in range(1100, 1160):
        response = await get(stage, table="f_old", after=start, filter="id=lt.1000")
        if response.status != 200:
            break
        await in_log(stage, f"INSERT INTO f_old VALUES ({n}, 'x')")
        await asyncio.sleep(0.2)
    equal((response.status, json.loads(response.body)["reason"]), (409, "older_than_retention"), "the answer")
    at = json.loads(response.body)["position"]
    await in_log(stage, "INSERT INTO f_old VALUES (1, 'new')")
    equal(ids_of((await page(stage, table="f_old", after=at, filter="id=lt.1000"))["events"]), [1], "what comes from then on")


@scenario("whose stream is not read is parked in the log and loses nothing", tables=FENCE + published("f_slow", "id int PRIMARY KEY, note text"))
async def slow(stage):
    start = await here(stage, "f_slow")
    quick = await Stream.open(stage, table="f_slow", after=start, live="true")
    await quick.caught_up()
    slow = [await Stream.open(stage, accept=accept, table="f_slow", after=start, live="true", buffer=8192) for accept in (LINES, EVENTS)]
    for stream in slow:
        await stream.caught_up()
    for n in range(0, 8000, 1000):
        await stage.database.run(f"INSERT INTO f_slow SELECT g, repeat('x', 2500) FROM generate_series({n + 1}, {n + 1000}) g")
        equal(ids_of(await quick.changes(1000)), list(range(n + 1, n + 1001)), "what the quick one heard meanwhile")
    true(await metric(stage, 'tidewire_channels_parked_total{reason="socket"}') >= 2, "that the slow ones wait in the log")
    for stream in slow:
        equal(ids_of(await stream.changes(8000)), list(range(1, 8001)), "what the slow one heard")
    await stage.database.run("INSERT INTO f_slow VALUES (8001, 'last')")
    for stream in (quick, *slow):
        equal(ids_of(await stream.changes(1)), [8001], "what comes now")
    # A page whose reader takes its time is parked likewise.
    connection = await stage.connection(buffer=8192)
    await connection.send(f"GET {target(table='f_slow', after=start, limit=10000)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {stage.anon}\r\n\r\n".encode())
    await asyncio.sleep(1)
    found = page_of(await connection.response())
    equal(ids_of(found["events"]), list(range(1, len(found["events"]) + 1)), "what the page tells")
    rest, _, _ = await all_pages(stage, table="f_slow", after=found["position"], limit=10000)
    equal(ids_of(found["events"] + rest), list(range(1, 8002)), "what it and those behind it tell")


@scenario("what only PostgreSQL decides is told in its place, in pages too", tables=FENCE + published("f_asked", "id int PRIMARY KEY, owner uuid, body text", ASKED.format("f_asked")))
async def asked(stage):
    start = await here(stage, "f_asked", token=stage.ana)
    for n in range(0, 6000, 1000):
        await stage.database.run(
            f"INSERT INTO f_asked SELECT g, CASE WHEN g % 4 > 0 THEN '{ANA}' ELSE '{BEN}' END::uuid, repeat('x', 1500) "
            f"FROM generate_series({n + 1}, {n + 1000}) g")
    await in_log(stage, f"INSERT INTO f_asked VALUES (10000, '{BEN}')")
    found, _, count = await all_pages(stage, table="f_asked", after=start, token=stage.ana, limit=700)
    equal(ids_of(found), [n for n in range(1, 6001) if n % 4], "what she may see of it")
    true(count >= 7, "several pages", count)
    stream = await Stream.open(stage, table="f_asked", after=start, token=stage.ben, live="true")
    equal(ids_of(await stream.changes(1501)), [*range(4, 6001, 4), 10000], "what he may see of it")


@scenario("a hole in history ends a stream and a page that waits, which say from where to go on", own_hub=True, tables=FENCE + published("f_gap", "id int PRIMARY KEY"))
async def gap(stage):
    at = await here(stage, "f_gap")
    streams = [await Stream.open(stage, accept=accept, table="f_gap", after=at, live="true") for accept in (LINES, EVENTS)]
    for stream in streams:
        await stream.caught_up()
    waiting = asyncio.create_task(get(stage, table="f_gap", after=at, live="true"))
    await stage.database.run("INSERT INTO f_gap VALUES (1)")
    for stream in streams:
        equal(ids_of(await stream.changes(1)), [1], "what came before")
    equal(ids_of(page_of(await waiting)["events"]), [1], "what came before, in a page")
    at = await here(stage, "f_gap")
    waiting = asyncio.create_task(get(stage, table="f_gap", after=at, live="true"))
    dropped = ""
    while not dropped:
        await stage.database.run(f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{stage.hub.slot}' AND active")
        dropped = await stage.database.run(
            f"SELECT pg_drop_replication_slot(slot_name), 'done' FROM pg_replication_slots WHERE slot_name = '{stage.hub.slot}' AND NOT active")
    for stream in streams:
        last = (await stream.rest())[-1]
        equal((last["type"], last["code"], last["more"]), ("end", "ChangesMissing", True), "the last record")
    found = page_of(await waiting)
    equal((found["events"], found["more"], found["system"][-1]["code"]), ([], True, "ChangesMissing"), "the page")
    for before in (at, moved(at, -1)):
        response = await get(stage, table="f_gap", after=before)
        equal((response.status, json.loads(response.body)["reason"]), (409, "epoch_changed"), "a position from before")
    await in_log(stage, "INSERT INTO f_gap VALUES (2)")
    for after in (last["position"], found["position"], json.loads(response.body)["position"]):
        found = await page(stage, table="f_gap", after=after)
        equal((ids_of(found["events"]), found["system"]), ([2], []), "what comes from there on, and that nothing else is told")


@scenario("a token's end ends a stream with its position, from where the next token goes on", tables=FENCE + published("f_token", "id int PRIMARY KEY"))
async def token_ends(stage):
    for accept in (LINES, EVENTS):
        await stage.database.run("TRUNCATE f_token")
        token = stage.token("anon", seconds=3)
        stream = await Stream.open(stage, accept=accept, table="f_token", token=token, live="true")
        await stream.caught_up()
        await stage.database.run("INSERT INTO f_token VALUES (1)")
        equal(ids_of(await stream.changes(1)), [1], "what came before")
        last = (await stream.rest())[-1]
        equal((last["type"], last["code"], last["more"]), ("end", "TokenExpired", True), "the last record")
        equal((await get(stage, table="f_token", token=token, after=last["position"])).status, 401, "the status with the old token")
        await in_log(stage, "INSERT INTO f_token VALUES (2)")
        equal(ids_of((await page(stage, table="f_token", after=last["position"]))["events"]), [2], "what comes then")
    # Of a page that waits, likewise.
    found = await page(stage, table="f_token", token=stage.token("anon", seconds=3), live="true")
    equal((found["events"], found["more"], found["system"][-1]["code"]), ([], True, "TokenExpired"), "the page")


@scenario("policies that change count from then on, in the middle of a stream", tables=FENCE + published("f_policy", "id int PRIMARY KEY, owner uuid", OWNED.format("f_policy")))
async def policy_changes(stage):
    await here(stage, "f_policy")
    stream = await Stream.open(stage, table="f_policy", token=stage.ana, live="true")
    start = (await stream.caught_up())[-1]["position"]
    await stage.database.run(f"INSERT INTO f_policy VALUES (1, '{ANA}'), (2, '{BEN}')")
    equal(ids_of(await stream.changes(1)), [1], "her own")
    await stage.database.run("DROP POLICY own ON f_policy", "CREATE POLICY all_rows ON f_policy FOR SELECT USING (true)", f"INSERT INTO f_policy VALUES (3, '{BEN}')")
    equal(ids_of(await stream.changes(1)), [3], "everybody's")
    await stage.database.run("DROP POLICY all_rows ON f_policy", f"INSERT INTO f_policy VALUES (4, '{ANA}')", f"CREATE POLICY own ON f_policy FOR SELECT USING (owner = auth.uid())", f"INSERT INTO f_policy VALUES (5, '{BEN}'), (6, '{ANA}')")
    found = ids_of(await stream.until(lambda r: r["type"] == "change" and r["data"]["record"]["id"] == 6))
    true(5 not in found, "nobody else's", found)
    # What is told again goes by the policies as they are.
    equal(ids_of((await page(stage, table="f_policy", token=stage.ben, after=start))["events"]), [2, 3, 5], "what he may see of it")


@scenario("a table that is emptied is told between the changes before and behind it", tables=FENCE + published("f_truncate", "id int PRIMARY KEY"))
async def truncation(stage):
    start = await here(stage, "f_truncate")
    stream = await Stream.open(stage, table="f_truncate", live="true", after=start)
    await stream.caught_up()
    await stage.database.run("INSERT INTO f_truncate VALUES (1), (2)", "TRUNCATE f_truncate", "INSERT INTO f_truncate VALUES (3)")
    found = await stream.until(lambda r: r["type"] == "change" and r["data"]["record"]["id"] == 3)
    equal([r["data"]["record"]["id"] if r["type"] == "change" else r["code"] for r in found], [1, 2, "Truncated", 3], "what the stream tells")
    first = await page(stage, table="f_truncate", after=start)
    equal((ids_of(first["events"]), [n["code"] for n in first["system"]], first["more"]), ([1, 2], ["Truncated"], True), "the page up to there")
    second = await page(stage, table="f_truncate", after=first["position"])
    equal((ids_of(second["events"]), second["system"]), ([3], []), "the page behind it")


@scenario("line breaks between the values of a json column do not break records", tables=FENCE + published("f_json", "id int PRIMARY KEY, doc json, more jsonb, \"na\"\"me\" text"))
async def line_breaks(stage):
    start = await here(stage, "f_json")
    text = '{\n\t"a":\r\n [1,\r2,\n\n3], "b": "x\\ny"\n}\n'
    await stage.database.run(f"INSERT INTO f_json VALUES (1, E'{text.replace(chr(92), chr(92) * 2)}', '{{\"c\":\n1}}', E'one\\ntwo\\r\\n\\ndata: three')")
    await in_log(stage, "INSERT INTO f_json VALUES (2)")
    for accept in (LINES, EVENTS):
        stream = await Stream.open(stage, accept=accept, table="f_json", after=start, live="false")
        found = await stream.rest()
        equal(ids_of(found), [1, 2], "the rows")
        equal(data_of(found)[0]["record"]["doc"], {"a": [1, 2, 3], "b": "x\ny"}, "the value")
        equal(data_of(found)[0]["record"]['na"me'], "one\ntwo\r\n\ndata: three", "the text")
    equal(ids_of((await page(stage, table="f_json", after=start))["events"]), [1, 2], "the rows of a page")


@scenario("a stream ends after as many changes as were asked for; one for HTTP/1.0 with its connection", tables=FENCE + published("f_limit", "id int PRIMARY KEY"))
async def limits(stage):
    start = await here(stage, "f_limit")
    await in_log(stage, "INSERT INTO f_limit SELECT generate_series(1, 20)")
    for accept in (LINES, EVENTS):
        stream = await Stream.open(stage, accept=accept, table="f_limit", after=start, limit=7, live="true")
        found = await stream.rest()
        equal((ids_of(found), found[-1]["more"]), (list(range(1, 8)), True), "the first ones")
        # The connection is there for the next request.
        following = page_of(await get(stage, table="f_limit", after=found[-1]["position"], connection=stream.connection))
        equal(ids_of(following["events"]), list(range(8, 21)), "the others")
        old = await Stream.open(stage, accept=accept, table="f_limit", after=start, limit=7, live="true", version="1.0")
        equal(ids_of(await old.rest()), list(range(1, 8)), "what an old client hears")
    # What follows a request before its answer has ended is answered behind it.
    connection = await stage.connection()
    two = [
        "\r\n".join([f"GET {target(table='f_limit', after=start, limit=limit, live='true')} HTTP/1.1", *(f"{n}: {v}" for n, v in headers(stage, accept=accept).items()), "", ""])
        for limit, accept in ((5, LINES), (6, "application/json"))
    ]
    await connection.send("".join(two).encode())
    await connection._head()
    stream = Stream(connection, LINES)
    stream.in_chunks = True
    equal(ids_of(await stream.rest()), [1, 2, 3, 4, 5], "the first answer")
    equal(ids_of(page_of(await connection.response())["events"]), [1, 2, 3, 4, 5, 6], "the second answer")
    connection = await stage.connection()
    await connection.send(f"GET {target(table='f_limit', after=start, limit=3)} HTTP/1.0\r\nAuthorization: Bearer {stage.anon}\r\n\r\n".encode())
    equal(ids_of(page_of(await connection.response())["events"]), [1, 2, 3], "an old client's page")


@scenario("what cannot be answered is said in JSON, by name", tables=FENCE + published("f_bad", "id int PRIMARY KEY", "DROP TABLE IF EXISTS f_unpublished", "CREATE TABLE f_unpublished (id int)"))
async def refusals(stage):
    at = await here(stage, "f_bad")
    wrong = [
        ({"tabel": "f_bad"}, 400, "UnknownParameter", "did you mean table?"), ({}, 400, "InvalidParameter", "table"), ({"table": ""}, 400, "InvalidParameter", "table"),
        ({"table": "f_bad", "event": "UPSERT"}, 400, "InvalidParameter", "INSERT"), ({"table": "f_bad", "limit": "0"}, 400, "InvalidParameter", "limit"),
        ({"table": "f_bad", "limit": "10001"}, 400, "InvalidParameter", "10000"), ({"table": "f_bad", "limit": "-1"}, 400, "InvalidParameter", "limit"),
        ({"table": "f_bad", "limit": "1e3"}, 400, "InvalidParameter", "limit"), ({"table": "f_bad", "live": "yes"}, 400, "InvalidParameter", "live"),
        ({"table": "f_bad", "after": "now"}, 400, "InvalidParameter", "after"), ({"table": "f_bad", "after": at + "x"}, 400, "InvalidParameter", "after"),
        ({"table": "f_bad", "after": ""}, 400, "InvalidParameter", "after"), ({"table": "*", "select": "id"}, 400, "InvalidParameter", "wildcard"),
        ({"table": "f_bad", "filter": "id=eqq.1"}, 400, "InvalidFilter", ""), ({"table": "f_bad", "filter": "none=eq.1"}, 400, "InvalidFilter", ""),
        ({"table": "f_nowhere"}, 404, "NoSuchTable", "f_nowhere"), ({"table": "f_bad", "schema": "nowhere"}, 404, "NoSuchTable", "nowhere"),
        ({"table": "f_bad", "x" * 300: "1"}, 400, "UnknownParameter", ""),
    ]
    connection = await stage.connection()
    for accept in (None, EVENTS):
        for parameters, status, code, words in wrong:
            # Streams have no such limit.
            if accept and parameters.get("limit") == "10001":
                continue
            response = await get(stage, accept=accept, connection=connection, **parameters)
            equal((response.status, json.loads(response.body)["code"]), (status, code), f"the answer to {parameters}")
            contains(json.loads(response.body)["error"], words, "the error")
    response = await get(stage, table="f_unpublished")
    true(response.status in (400, 404), "that what is not published is refused", response)
    for token, status in ((None, 401), ("nonsense", 401), (stage.token("anon", seconds=-5), 401)):
        response = await get(stage, table="f_bad", token=token)
        equal((response.status, response.headers["www-authenticate"]), (status, "Bearer"), f"the answer to {token}")
    equal((await get(stage, table="f_bad", accept="text/html")).status, 406, "the status for what there is not")
    equal((await get(stage, table="f_bad", accept="text/html, application/x-ndjson;q=0.5, application/json;q=0.1")).headers["content-type"], "application/x-ndjson; charset=utf-8", "what is wanted most")
    equal((await get(stage, table="f_bad", method="POST", given={"Content_Length": "0"})).status, 405, "the status of a POST")
    equal((await get(stage, table="f_bad", given={"Last_Event_ID": "nonsense"}, accept=EVENTS)).status, 400, "the status for an id that is none")
    head = await get(stage, table="f_bad", method="HEAD")
    equal((head.status, head.headers["content-type"]), (200, "application/json; charset=utf-8"), "the answer to HEAD")
    response = await get(stage, table="f_bad", method="OPTIONS", token=None, given={"Origin": "http://a.example", "Access_Control_Request_Method": "GET"})
    equal(response.status, 204, "the status of a preflight")
    contains(response.headers["access-control-allow-methods"], "GET", "what pages of others may do")
    contains(response.headers["access-control-allow-headers"], "last-event-id", "what pages of others may send")
    response = await get(stage, table="f_bad", given={"Origin": "http://a.example"})
    equal(response.headers["access-control-allow-origin"], "*", "who may read it")


@scenario("feeds count as users and joins, and give back what they took", own_hub=True, settings={"max_concurrent_users": "3"}, tables=FENCE + published("f_rates", "id int PRIMARY KEY"))
async def rates(stage):
    at = (await page(stage, table="f_rates"))["position"]
    streams = [await Stream.open(stage, table="f_rates", live="true", after=at) for _ in range(3)]
    for stream in streams:
        await stream.caught_up()
    response = await get(stage, table="f_rates")
    equal((response.status, json.loads(response.body)["code"]), (429, "TooMany"), "the fourth")
    for stream in streams:
        stream.connection.abort()
    for _ in range(200):
        if (await get(stage, table="f_rates")).status == 200:
            break
        await asyncio.sleep(0.05)
    for _ in range(10):
        equal((await page(stage, table="f_rates", after=at))["events"], [], "a page afterwards")
    for name in ("tidewire_feeds", "tidewire_subscriptions", "tidewire_channels"):
        equal(await metric(stage, name), 0, name)


@scenario("clients that go away in the middle leave nothing behind", own_hub=True, tables=FENCE + published("f_leave", "id int PRIMARY KEY, note text"))
async def leaving(stage):
    start = await here(stage, "f_leave")
    await stage.database.run("INSERT INTO f_leave SELECT g, repeat('x', 500) FROM generate_series(1, 5000) g")
    await in_log(stage, "INSERT INTO f_leave VALUES (9999)")
    for round in range(60):
        connection = await stage.connection(buffer=8192)
        accept = (LINES, EVENTS, "application/json")[round % 3]
        live = "true" if round % 2 else "false"
        lines = [f"GET {target(table='f_leave', after=start, limit=5000, live=live)} HTTP/1.1", *(f"{n}: {v}" for n, v in headers(stage, "anon", accept).items()), "", ""]
        await connection.send("\r\n".join(lines).encode())
        if round % 4:
            await connection.reader.read(1000 * (round % 4))
        connection.abort()
    for _ in range(200):
        left = {name: await metric(stage, name) for name in ("tidewire_feeds", "tidewire_subscriptions")}
        if set(left.values()) == {0}:
            break
        await asyncio.sleep(0.05)
    equal(set(left.values()), {0}, f"what is left of {left}")
    equal(len((await page(stage, table="f_leave", after=start, limit=10000))["events"]), 5001, "what others are told")


@scenario("a stream begins with the rows there are, then come the changes behind them; who is cut among the rows has nothing to go on from", tables=FENCE + published("f_snapshot", "id int PRIMARY KEY, owner uuid, doc json", OWNED.format("f_snapshot")))
async def snapshot(stage):
    await here(stage, "f_snapshot")
    await stage.database.run(
        f"INSERT INTO f_snapshot SELECT g, CASE WHEN g % 2 = 0 THEN '{ANA}' ELSE '{BEN}' END::uuid, E'{{\\n\"a\":\\n1}}' FROM generate_series(1, 3000) g")
    for accept in (LINES, EVENTS):
        stream = await Stream.open(stage, accept=accept, table="f_snapshot", token=stage.ana, snapshot="true", filter="id=gt.1000", live="true")
        found = await stream.until(lambda r: r.get("code") == "SnapshotComplete")
        rows = [record for record in found if record["type"] == "change"]
        equal(ids_of(rows), list(range(1002, 3001, 2)), "her rows under the filter")
        true(all("position" not in r and r["data"]["tidewire"] == {"snapshot": True} and r["data"]["record"]["doc"] == {"a": 1} for r in rows), "what marks them")
        true(all(record.get("position") is None for record in found[:-1]), "that nothing before its end has a position", found[:3])
        true(POSITION.match(found[-1]["position"]) and found[-1]["rows"] == 1000, "how many, and from where changes come", found[-1])
        await stage.database.run("UPDATE f_snapshot SET doc = '2' WHERE id IN (1001, 1002)", f"INSERT INTO f_snapshot VALUES (4000, '{ANA}', '3')", "DELETE FROM f_snapshot WHERE id = 4000")
        equal(ids_of(await stream.changes(3)), [1002, 4000, 4000], "what came behind them")
        last = (await here(stage, "f_snapshot"), stream.connection.abort())[0]
        # Who can be told what it missed gets that, and no rows.
        again = await Stream.open(stage, accept=accept, table="f_snapshot", token=stage.ana, snapshot="true", after=last, live="true")
        equal(ids_of(await again.caught_up()), [], "what it missed")
        # Who cannot gets the rows instead of a conflict.
        again = await Stream.open(stage, accept=accept, table="f_snapshot", token=stage.ana, snapshot="true", after=moved(last, epoch="0000000000000017"), filter="id=gt.2900")
        equal(len(ids_of(await again.until(lambda r: r.get("code") == "SnapshotComplete"))), 50, "the rows instead")
        await stage.database.run(f"UPDATE f_snapshot SET doc = E'{{\\n\"a\":\\n1}}'")
        await in_log(stage)
    equal((await get(stage, table="f_snapshot", snapshot="true")).status, 400, "the status of a page")


class Follower:
    """Somebody who wants every change once and in order, whatever happens to hub and connections, by one of the forms."""

    def __init__(self, stage, token: str, form: str, after: str, chance: random.Random):
        self.stage, self.token, self.form, self.at, self.chance = stage, token, form, after, chance
        self.found = []
        self.requests = 0

    async def until(self, last: int):
        while last not in self.found[-3:]:
            self.requests += 1
            # The hub is killed now and then, and a request is refused while it starts.
            with contextlib.suppress(ConnectionError, EOFError, Closed, asyncio.IncompleteReadError):
                await (self.by_page() if self.form == "application/json" else self.by_stream())
                continue
            await asyncio.sleep(0.02)

    def take(self, record: dict):
        if record["type"] == "change":
            self.found.append(record["data"]["record"]["id"])
        true(record.get("code") != "ChangesMissing", "that nothing is missing", record)
        self.at = record["position"]

    async def by_page(self):
        live = self.chance.choice(("true", "false"))
        response = await get(self.stage, table="f_storm", after=self.at, token=self.token, limit=self.chance.choice((1, 7, 60, 500)), live=live)
        if response.status == 503:
            return await asyncio.sleep(0.02)
        one = page_of(response)
        for record in [*one["events"], *one["system"]]:
            self.take(record)
        self.at = one["position"]

    async def by_stream(self):
        limit = self.chance.choice((None, self.chance.randint(1, 300)))
        connection = await self.stage.connection(buffer=self.chance.choice((None, 4096)))
        lines = [f"GET {target(table='f_storm', after=self.at, limit=limit, live='true')} HTTP/1.1", *(f"{n}: {v}" for n, v in headers(self.stage, self.token, self.form).items()), "", ""]
        await connection.send("\r\n".join(lines).encode())
        head = (await within(connection._head(), LIMIT)).decode()
        if head.startswith("HTTP/1.1 503"):
            connection.abort()
            return await asyncio.sleep(0.02)
        true(head.startswith("HTTP/1.1 200"), "an answer", head)
        stream = Stream(connection, self.form)
        stream.in_chunks = True
        cut = self.chance.choice((10**9, self.chance.randint(1, 400)))
        while cut and (record := await stream.next()) is not None:
            self.take(record)
            cut -= 1
            if self.found[-1:] == [LAST]:
                break
        connection.abort()


LAST = 10**9


async def writes(chance: random.Random, until: asyncio.Event):
    database = await Database.open(os.environ["TW_DATABASE"])
    while not until.is_set():
        count = chance.choice((1, 1, 2, 10, 40))
        insert = (
            f"INSERT INTO f_storm (owner, note) SELECT CASE WHEN g % 3 = 0 THEN '{ANA}' WHEN g % 3 = 1 THEN '{BEN}' END::uuid, repeat('x', {chance.choice((1, 3000))}) "
            f"FROM generate_series(1, {count}) g")
        match chance.randrange(4):
            case 0:
                await database.transaction(insert, "SAVEPOINT s", insert, "ROLLBACK TO s", insert)
            case 1:
                await database.run("BEGIN", insert, "ROLLBACK")
            case _:
                await database.run(insert)
        await asyncio.sleep(chance.random() * 0.06)
    await database.close()


@scenario("everybody has every change once and in order, by pages and streams that are cut, under writers and kills of the hub", own_hub=True, tables=FENCE + published("f_storm", "id serial PRIMARY KEY, owner uuid, note text", OWNED.format("f_storm"), "CREATE POLICY last ON f_storm FOR SELECT USING (id = 1000000000)", "GRANT ALL ON SEQUENCE f_storm_id_seq TO PUBLIC"))
async def storm(stage):
    seed = int(os.environ.get("SEED") or random.randrange(1 << 30))
    chance = random.Random(seed)
    start, done = await here(stage, "f_storm", token=stage.service), asyncio.Event()
    people = {"service": stage.service, "ana": stage.ana, "ben": stage.ben}
    followers = [
        (name, Follower(stage, token, form, start, random.Random(chance.random())))
        for name, token in people.items() for form in ("application/json", LINES, EVENTS)
    ]
    writers = [asyncio.create_task(writes(random.Random(chance.random()), done)) for _ in range(3)]
    readers = [asyncio.create_task(follower.until(LAST)) for _, follower in followers]
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        await asyncio.sleep(1 + chance.random())
        with contextlib.suppress(Exception):
            await stage.hub.end(number)
        await stage.hub.start()
    await asyncio.sleep(1)
    done.set()
    await asyncio.gather(*writers)
    # Everybody sees the last one.
    await stage.database.run(f"INSERT INTO f_storm VALUES ({LAST}, NULL, '')")
    await within(asyncio.gather(*readers), LIMIT * 2)
    rows = [line.split("|") for line in (await stage.database.run("SELECT id, owner FROM f_storm ORDER BY id")).splitlines()]
    owner = {int(number): who for number, who in rows}
    order = followers[0][1].found
    equal(sorted(order), sorted(owner), f"what the first one was told (SEED={seed})")
    for name, follower in followers:
        seen = {"service": (ANA, BEN, ""), "ana": (ANA,), "ben": (BEN,)}[name]
        wanted = [number for number in order if number == LAST or owner[number] in seen]
        equal(follower.found, wanted, f"what {name} was told by {follower.form} in {follower.requests} requests (SEED={seed})")
