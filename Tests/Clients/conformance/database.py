"""What the database says to channels: realtime.send and its kind, readiness, replay. Protocol §4.6–4.8; checklist 16 and 17, traps 15 and 16."""

import asyncio
import contextlib
import json
import os
import time

from clients.database import Database, quoted
from clients.expect import equal, true
from clients.scenario import BOTH, scenario
from conformance.private import OPEN, PRESENCE_ONLY

READY = {"extension": "system", "status": "ok", "message": "Replication connection established"}
TRIGGERED = [
    "DROP TABLE IF EXISTS d_todos CASCADE",
    "CREATE TABLE d_todos (id int PRIMARY KEY, room text, title text)",
    """CREATE OR REPLACE FUNCTION d_broadcast() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $body$ BEGIN
        PERFORM realtime.broadcast_changes('open:' || coalesce(new.room, old.room), tg_op, tg_op, tg_table_name,
            tg_table_schema, new, old); RETURN NULL; END $body$""",
    "CREATE TRIGGER d_broadcasts AFTER INSERT OR UPDATE OR DELETE ON d_todos FOR EACH ROW EXECUTE FUNCTION d_broadcast()",
]
UNIQUE = iter(range(1 << 30))


def fresh(name: str) -> tuple[str, str]:
    """A topic that no message was ever sent to, with its prefix and without it: what was sent once stays in the log."""
    sub = f"open:{name}-{os.getpid()}-{time.time_ns()}-{next(UNIQUE)}"
    return f"realtime:{sub}", sub


def send(payload, event: str, sub: str, private: bool | None = True) -> str:
    more = "" if private is None else f", {str(private).lower()}"
    return f"SELECT realtime.send({quoted(json.dumps(payload))}::jsonb, {quoted(event)}, {quoted(sub)}{more})"


def send_binary(payload: bytes, event: str, sub: str, private: bool = True) -> str:
    return f"SELECT realtime.send_binary('\\x{payload.hex()}'::bytea, {quoted(event)}, {quoted(sub)}, {str(private).lower()})"


async def ready(stage, topic: str, vsn: str = "2.0.0", **config):
    """One who is told of all that is committed from now on."""
    peer = await stage.peer(vsn)
    broadcast = config.pop("broadcast", {}) | {"replication_ready": True}
    await peer.join(topic, {"private": True, "broadcast": broadcast} | config)
    message = await peer.system(topic, "the sign that the database's messages arrive")
    # A channel that is joined before a new hub's log has begun is told when it has.
    if "is followed from now on" in message.payload["message"]:
        message = await peer.system(topic, "the sign behind that")
    equal(message.payload, READY | {"channel": topic.removeprefix("realtime:")}, "the sign")
    return peer


async def both_ready(stage, topic: str, **config) -> list:
    return [await ready(stage, topic, vsn, **config) for vsn in BOTH]


@scenario("checklist 16: what realtime.send says comes when it is committed, with the row's id", tables=OPEN)
async def sent(stage):
    topic, sub = fresh("sent")
    peers = await both_ready(stage, topic)
    await stage.database.run("BEGIN", send({"n": 1, "t": "grüße 🙂"}, "note", sub), "ROLLBACK")
    await stage.database.transaction(send({"n": 2, "t": "grüße 🙂"}, "note", sub, None), send({"n": 3, "id": "mine"}, "note", sub))
    ids = json.loads(await stage.database.run(f"SELECT json_object_agg(payload ->> 'n', id) FROM realtime.messages WHERE topic = {quoted(sub)}"))
    for peer in peers:
        first, second = await peer.broadcast(topic), await peer.broadcast(topic)
        form = "json" if peer.vsn == "2.0.0" else "text"
        equal((first.form, first.join_ref), (form, None), "form and join_ref")
        equal(first.payload, {"type": "broadcast", "event": "note", "payload": {"n": 2, "t": "grüße 🙂", "id": ids["2"]}, "meta": {"id": ids["2"]}}, "the first that was committed")
        equal(second.payload, {"type": "broadcast", "event": "note", "payload": {"n": 3, "id": "mine"}, "meta": {"id": ids["3"]}}, "the second, which has an id of its own")
        equal([str(m) for m in await peer.fence()], [], "what else came")


@scenario("trap 16: realtime.send is private unless it says otherwise", tables=OPEN)
async def namespaces(stage):
    topic, sub = fresh("namespaces")
    private, public = await ready(stage, topic), await ready(stage, topic, private=False)
    await stage.database.run(send({"to": "public"}, "m", sub, False), send({"to": "private"}, "m", sub, None), send({}, "last", sub, True), send({}, "last", sub, False))
    for peer, name in ((private, "private"), (public, "public")):
        message = await peer.broadcast(topic)
        equal(message.payload["payload"]["to"], name, "what it hears")
        equal((await peer.broadcast(topic)).payload["event"], "last", "what it hears next")


@scenario("bytes of realtime.send_binary come to V2 alone", tables=OPEN)
async def binary(stage):
    topic, sub = fresh("binary")
    old, new = await both_ready(stage, topic)
    await stage.database.run(send_binary(bytes(range(256)), "raw", sub), send_binary(b"", "empty", sub), send({}, "last", sub))
    message = await new.hears(topic, "raw", bytes(range(256)))
    equal((message.form, set(message.payload["meta"])), ("bytes", {"id"}), "form and meta")
    await new.hears(topic, "empty", b"")
    equal((await old.broadcast(topic)).payload["event"], "last", "the first that V1 hears")


@scenario("triggers tell of changes by realtime.broadcast_changes", vsn=BOTH, tables=[*TRIGGERED, *OPEN])
async def changes(stage, vsn):
    topic, sub = fresh("changes")
    peer = await ready(stage, topic, vsn)
    room = sub.removeprefix("open:")
    await stage.database.run(
        f"INSERT INTO d_todos VALUES (7, '{room}', 'milk')", "UPDATE d_todos SET title = 'oat milk' WHERE id = 7",
        "DELETE FROM d_todos WHERE id = 7")  # fmt: skip
    before, after = {"id": 7, "room": room, "title": "milk"}, {"id": 7, "room": room, "title": "oat milk"}
    for operation, record, old in (("INSERT", before, None), ("UPDATE", after, before), ("DELETE", None, after)):
        message = await peer.broadcast(topic)
        equal(message.payload["event"], operation, "the event")
        payload = dict(message.payload["payload"])
        equal(payload.pop("id"), message.payload["meta"]["id"], "its id")
        equal(payload, {"operation": operation, "schema": "public", "table": "d_todos", "record": record, "old_record": old}, "the payload")


@scenario("the order is that of the commits, over all transactions", tables=OPEN)
async def order(stage):
    topic, sub = fresh("order")
    peers = await both_ready(stage, topic)
    other = await Database.open(os.environ["TW_DATABASE"])
    try:
        await stage.database.run("BEGIN", send({"n": 2}, "m", sub))
        await other.run(send({"n": 1}, "m", sub))
        await stage.database.run(send({"n": 3}, "m", sub), "COMMIT")
        await other.run(f"DO $$ BEGIN FOR i IN 4..200 LOOP PERFORM realtime.send(jsonb_build_object('n', i), 'm', {quoted(sub)}); END LOOP; END $$")
    finally:
        await other.close()
    for peer in peers:
        heard = [(await peer.broadcast(topic)).payload["payload"]["n"] for _ in range(200)]
        equal(heard, list(range(1, 201)), "what it hears")


@scenario("of a transaction only what it kept is said: a savepoint rolled back is not, however long it all takes", tables=OPEN)
async def savepoints(stage):
    topic, sub = fresh("savepoints")
    peers = await both_ready(stage, topic)
    many = "PERFORM realtime.send(jsonb_build_object('n', i, 't', repeat('x', 1000)), 'm', "
    await stage.database.transaction(
        send({"n": 0}, "m", sub), "SAVEPOINT a", send({"n": -1}, "m", sub),
        f"DO $$ BEGIN FOR i IN 1..500 LOOP {many}{quoted(sub)}); END LOOP; END $$", "ROLLBACK TO a",
        f"DO $$ BEGIN FOR i IN 1..1000 LOOP {many}{quoted(sub)}); END LOOP; END $$")  # fmt: skip
    for peer in peers:
        numbers = [(await peer.broadcast(topic)).payload["payload"]["n"] for _ in range(1001)]
        equal(numbers, list(range(1001)), "what is heard")
        equal([str(m) for m in await peer.fence()], [], "what else")


@scenario("rows that say nothing are passed over; updates and deletes of rows say nothing", vsn=BOTH, tables=OPEN)
async def odd_rows(stage, vsn):
    topic, sub = fresh("odd")
    peer = await ready(stage, topic, vsn)

    def row(columns: str, values: str) -> str:
        return f"INSERT INTO realtime.messages (topic, extension, {columns}) VALUES ({quoted(sub)}, 'broadcast', {values})"

    await stage.database.run(
        row("payload, private", "'{}', true"), row("event, private", "'no payload', true"),
        row("payload, event, private", "'{}', 'private is null', NULL"),
        row("payload, event, private", "'[1,\"a\"]', 'list', true"), row("payload, event, private", "'17', 'number', true"),
        f"INSERT INTO realtime.messages (topic, extension, payload, event, private) VALUES ({quoted(sub)}, 'presence', '{{}}', 'another extension', true)",
        f"UPDATE realtime.messages SET payload = '{{\"changed\": true}}' WHERE topic = {quoted(sub)}",
        f"DELETE FROM realtime.messages WHERE topic = {quoted(sub)}",
        send({}, "last", sub))  # fmt: skip
    said = []
    while not said or said[-1][0] != "last":
        message = await peer.broadcast(topic)
        said.append((message.payload["event"], message.payload["payload"]))
    equal(said[:-1], [("list", [1, "a"]), ("number", 17), ("another extension", {})], "what it hears")


@scenario("whoever may not insert into realtime.messages sends nothing, and fails at nothing", tables=OPEN)
async def rights_to_send(stage):
    topic, sub = fresh("rights")
    peer = await ready(stage, topic)
    closed = "never:" + sub
    other = await stage.peer(apikey=stage.service)
    await other.join("realtime:" + closed, {"private": True})
    await stage.database.run("BEGIN", "SET LOCAL ROLE authenticated", send({"n": 1}, "m", sub), send({"n": 1}, "m", closed), "COMMIT")
    await stage.database.run(send({"n": 2}, "m", sub), send({"n": 2}, "m", closed))
    equal([(await peer.broadcast(topic)).payload["payload"]["n"] for _ in range(2)], [1, 2], "where the policy lets them")
    equal((await other.broadcast("realtime:" + closed)).payload["payload"]["n"], 2, "where it does not")


@scenario("long names come as text, large payloads whole, and those beyond the limit as a word that something is missing", vsn=BOTH, tables=OPEN, settings={"max_payload_size": "500"})
async def long_and_large(stage, vsn):
    topic, sub = fresh("large")
    peer = await ready(stage, topic, vsn)
    await stage.database.run(
        send({"n": 1}, "ü" * 200, sub), send({"t": "x" * 400_000}, "large", sub), send({"t": "x" * 600_000}, "too large", sub),
        send_binary(b"\x01", "e" * 300, sub), send({}, "last", sub))  # fmt: skip
    message = await peer.broadcast(topic)
    equal((message.form, message.payload["event"], message.payload["payload"]["n"]), ("text", "ü" * 200, 1), "the one with a long event")
    message = await peer.broadcast(topic)
    equal((message.payload["event"], len(message.payload["payload"]["t"])), ("large", 400_000), "the large one")
    message = await peer.system(topic, "a word about the one that is too large")
    equal((message.code, message.status), ("ChangesMissing", "ok"), "its code")
    true("too large" in message.payload["message"], "a word about sizes", message)
    equal((await peer.broadcast(topic)).payload["event"], "last", "what follows")


@scenario("readiness is told between the reply and presence_state, and to no one who did not ask", vsn=BOTH, tables=OPEN)
async def readiness(stage, vsn):
    topic, sub = fresh("ready")
    await ready(stage, topic)
    peer = await stage.peer(vsn)
    await peer.join(topic, {"private": True, "presence": {"enabled": True}, "broadcast": {"replication_ready": True}})
    equal((await peer.next()).payload, READY | {"channel": sub}, "what follows the reply")
    equal((await peer.next()).event, "presence_state", "what follows that")
    await peer.join("realtime:public-too", {"broadcast": {"replication_ready": True}})
    equal((await peer.next()).payload, READY | {"channel": "public-too"}, "what follows in a public channel")
    for value in (False, None):
        await peer.join(f"realtime:unasked-{value}", {"broadcast": {"replication_ready": value}})
    equal([str(m) for m in await peer.fence()], [], "what else comes")


async def messages(stage, sub: str, count: int):
    """So many that differ by their number, each committed on its own, and known to have reached the hub."""
    topic = "realtime:" + sub
    watcher = await ready(stage, topic)
    await stage.database.run(*(send({"n": n}, "note", sub) for n in range(count)))
    for _ in range(count):
        await watcher.broadcast(topic)
    await watcher.close()


def since(seconds: float) -> int:
    return int((time.time() - seconds) * 1000)


async def replayed(peer, topic: str, count: int) -> list:
    """What a join that asked for it is told, in order and as a replay is."""
    found = []
    for _ in range(count):
        message = await peer.next("a replayed message")
        equal((message.topic, message.event, message.form), (topic, "broadcast", "text"), "topic, event and form")
        if peer.vsn == "2.0.0":
            equal(message.join_ref, peer.join_refs[topic], "its join_ref, which is the join's")
        equal((message.payload["type"], message.payload["event"]), ("broadcast", "note"), "type and event")
        equal(message.payload["meta"], {"replayed": True, "id": message.payload["payload"]["id"]}, "meta")
        found.append(message.payload["payload"]["n"])
    return found


async def heard(peer, topic: str, count: int) -> list:
    """So many, the replayed ones before those that were committed since."""
    found = [(await peer.broadcast(topic)).payload for _ in range(count)]
    marks = [one["meta"].get("replayed", False) for one in found]
    equal(marks, sorted(marks, reverse=True), "replayed ones before the others")
    return [one["payload"]["n"] for one in found]


@scenario("checklist 17, trap 15: a replay of three rows with limit two is the two newest, the older first, right after the reply", vsn=BOTH, tables=OPEN)
async def replay(stage, vsn):
    topic, sub = fresh("replay")
    await messages(stage, sub, 3)
    await stage.database.run(send({"n": 100}, "note", sub, False))
    cases = (({"limit": 2}, [1, 2]), ({}, [0, 1, 2]), ({"limit": 25}, [0, 1, 2]), ({"limit": 0}, [2]), ({"limit": -3}, [2]), ({"limit": 1000}, [0, 1, 2]))
    for more, wanted in cases:
        peer = await stage.peer(vsn)
        await peer.join(topic, {"private": True, "broadcast": {"replay": {"since": since(60)} | more}, "presence": {"enabled": True}})
        equal(await replayed(peer, topic, len(wanted)), wanted, f"the messages for {more}")
        equal((await peer.next()).event, "presence_state", "what follows them")
        equal([str(m) for m in await peer.fence()], [], "what else comes")
    # From a moment that is still to come there is nothing.
    peer = await stage.peer(vsn)
    await peer.join(topic, {"private": True, "broadcast": {"replay": {"since": since(-10)}}})
    equal([str(m) for m in await peer.fence()], [], "what a replay from the future brings")
    # Once, and then what follows is as ever.
    await stage.database.run(send({"n": 4}, "note", sub))
    message = await peer.broadcast(topic)
    equal((message.payload["payload"]["n"], set(message.payload["meta"])), (4, {"id"}), "what is committed afterwards")


@scenario("a replay gives at most 25, and from the moment that was asked for", tables=OPEN)
async def replay_limits(stage):
    topic, sub = fresh("many")
    await messages(stage, sub, 15)
    await asyncio.sleep(0.02)
    middle = int(await stage.database.run("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"))
    await asyncio.sleep(0.02)
    watcher = await ready(stage, topic)
    await stage.database.run(*(send({"n": n}, "note", sub) for n in range(15, 30)))
    for _ in range(15):
        await watcher.broadcast(topic)
    for asked, wanted in (({"since": since(600)}, range(5, 30)), ({"since": since(600), "limit": 100}, range(5, 30)), ({"since": middle}, range(15, 30)), ({"since": middle, "limit": 3}, range(27, 30)), ({"since": 0}, range(5, 30))):
        peer = await stage.peer()
        await peer.join(topic, {"private": True, "broadcast": {"replay": asked}})
        equal(await replayed(peer, topic, len(wanted)), list(wanted), f"the messages for {asked}")
        equal([str(m) for m in await peer.fence()], [], "what else comes")


@scenario("a replay whose messages are too large together says that older ones are missing", tables=OPEN)
async def replay_that_is_cut(stage):
    topic, sub = fresh("large")
    watcher = await ready(stage, topic)
    text = f"SELECT realtime.send(jsonb_build_object('n', {{}}, 'pad', repeat('x', 290000)), 'note', '{sub}')"
    await stage.database.run(*(text.format(n) for n in range(13)), send({"n": 13}, "note", sub))
    await watcher.expect("the last message", lambda m: m.event == "broadcast" and m.payload["payload"]["n"] == 13)
    await watcher.close()
    # A quarter of the outbox of 8 MB has room for seven large ones.
    for limit, is_cut in ((25, True), (3, False)):
        peer = await stage.peer()
        await peer.join(topic, {"private": True, "broadcast": {"replay": {"since": since(600), "limit": limit}}})
        come = await peer.fence()
        numbers = [m.payload["payload"]["n"] for m in come if m.event == "broadcast"]
        equal(numbers, list(range(14 - len(numbers), 14)), "the newest messages")
        equal(len(numbers), 8 if is_cut else 3, "their number")
        told = [(m.code, m.payload["status"]) for m in come if m.event == "system"]
        equal(told, [("ChangesMissing", "ok")] if is_cut else [], "what is said of the others")
    # A message that is larger than this quarter is sent alone.
    watcher = await ready(stage, topic)
    await stage.database.run(text.replace("290000", "2500000").format(14))
    await watcher.expect("the largest message", lambda m: m.event == "broadcast" and m.payload["payload"]["n"] == 14)
    await watcher.close()
    peer = await stage.peer()
    await peer.join(topic, {"private": True, "broadcast": {"replay": {"since": since(600), "limit": 3}}})
    come = await peer.fence()
    equal([m.payload["payload"]["n"] for m in come if m.event == "broadcast"], [14], "the message alone")
    equal([m.code for m in come if m.event == "system"], ["ChangesMissing"], "what is said of the others")


@scenario("a replay of bytes is kind 4 with meta, and nothing in V1", tables=OPEN)
async def replay_of_bytes(stage):
    topic, sub = fresh("bytes")
    watcher = await ready(stage, topic)
    await stage.database.run(send_binary(b"\x00\x01", "raw", sub), send({"n": 1}, "note", sub))
    await watcher.broadcast(topic), await watcher.broadcast(topic)
    config = {"private": True, "broadcast": {"replay": {"since": since(60)}}}
    peer = await stage.peer("2.0.0")
    await peer.join(topic, config)
    message = await peer.hears(topic, "raw", b"\x00\x01")
    equal((message.form, message.payload["meta"]["replayed"]), ("bytes", True), "form and meta")
    equal(await replayed(peer, topic, 1), [1], "what follows")
    peer = await stage.peer("1.0.0")
    await peer.join(topic, config)
    equal(await replayed(peer, topic, 1), [1], "what V1 is told")


@scenario("a replay that may not be is refused for its reason; what is no object is passed over", vsn=BOTH, tables=[*OPEN, *PRESENCE_ONLY])
async def wrong_replays(stage, vsn):
    peer = await stage.peer(vsn)
    topic, sub = fresh("wrong")
    public = "UnableToReplayMessages: Replay is not allowed for public channels"
    for value in ({"since": 0}, {}, None, "text", {"since": "x"}):
        equal(await peer.refused(topic, {"broadcast": {"replay": value}}), public, f"why, publicly, for {value!r}")
    invalid = "UnableToReplayMessages: Replay params are not valid"
    for value in ({}, {"since": "0"}, {"since": 1.5}, {"since": None}, {"since": 0, "limit": "2"}, {"since": 0, "limit": 1.5}, {"since": 10**17}, {"since": -10**17}, {"limit": 3}):
        equal(await peer.refused(topic, {"private": True, "broadcast": {"replay": value}}), invalid, f"why for {value!r}")
    for value in (None, "text", 17, [1], True):
        await peer.join(topic, {"private": True, "broadcast": {"replay": value}})
        await peer.fence()


@scenario("nothing is lost and nothing comes twice where a replay meets what is just being committed", vsn=BOTH, tables=OPEN)
async def meeting(stage, vsn):
    topic, sub = fresh("meeting")
    await messages(stage, sub, 3)
    writing = True
    count = 3

    async def write():
        nonlocal count
        while writing:
            await stage.database.run(send({"n": count}, "note", sub))
            count += 1

    task = asyncio.create_task(write())
    try:
        for _ in range(15):
            peer = await stage.peer(vsn)
            await peer.join(topic, {"private": True, "broadcast": {"replay": {"since": since(60), "limit": 25}}})
            numbers = await heard(peer, topic, 40)
            equal(numbers, list(range(numbers[0], numbers[0] + 40)), "the numbers it hears, without a hole and none twice")
            await peer.close()
    finally:
        writing = False
        await task


@scenario("what is committed while the hub is away is not lost: a replay finds it", own_hub=True, tables=OPEN)
async def while_away(stage):
    topic, sub = fresh("away")
    await messages(stage, sub, 2)
    await stage.hub.stop()
    await stage.database.run(*(send({"n": n}, "note", sub) for n in (2, 3)))
    await stage.hub.start()
    await ready(stage, topic)
    for vsn in BOTH:
        peer = await stage.peer(vsn)
        await peer.join(topic, {"private": True, "broadcast": {"replay": {"since": since(600)}}})
        equal(await heard(peer, topic, 4), [0, 1, 2, 3], "the messages")


@scenario("what is committed while the hub is killed is not lost either", own_hub=True, tables=OPEN)
async def while_killed(stage):
    import signal

    topic, sub = fresh("killed")
    await messages(stage, sub, 2)
    with contextlib.suppress(Exception):
        await stage.hub.end(signal.SIGKILL)
    await stage.database.run(*(send({"n": n}, "note", sub) for n in (2, 3)))
    await stage.hub.start()
    await ready(stage, topic)
    peer = await stage.peer()
    await peer.join(topic, {"private": True, "broadcast": {"replay": {"since": since(600)}}})
    equal(await heard(peer, topic, 4), [0, 1, 2, 3], "the messages")


@scenario("public channels replay where that is set, and more than 25 where that is", settings={"replay_public": "on", "replay_limit": "40"}, tables=OPEN)
async def configured(stage):
    topic, sub = fresh("configured")
    watcher = await ready(stage, topic, private=False)
    await stage.database.run(*(send({"n": n}, "note", sub, False) for n in range(50)))
    for _ in range(50):
        await watcher.broadcast(topic)
    for asked, wanted in (({"since": since(60)}, range(10, 50)), ({"since": since(60), "limit": 30}, range(20, 50)), ({"since": since(60), "limit": 100}, range(10, 50))):
        peer = await stage.peer()
        await peer.join(topic, {"broadcast": {"replay": asked}})
        equal(await replayed(peer, topic, len(wanted)), list(wanted), f"the messages for {asked}")


@scenario("over several loops each hears what is committed, once and in order", settings={"loops": "3"}, tables=OPEN)
async def over_loops(stage):
    topic, sub = fresh("loops")
    peers = [await ready(stage, topic, BOTH[n % 2]) for n in range(8)]
    await stage.database.run(*(send({"n": n}, "m", sub) for n in range(60)))
    for peer in peers:
        equal([(await peer.broadcast(topic)).payload["payload"]["n"] for _ in range(60)], list(range(60)), "what it hears")
        equal([str(m) for m in await peer.fence()], [], "what else comes")
