"""Traps of §11 that no other file has: what every message must be, and the order of the first ones.

The others stand where they belong; `run.py --list trap` finds them all.
"""

import asyncio
import json

from clients.expect import equal, true
from clients.peer import SUBSCRIBED, binding
from clients.scenario import BOTH, published, scenario
from clients.stage import ANA, BEN

TABLE = published("c_traps", "id serial PRIMARY KEY, v text")


async def conversation(stage, vsn: str, topic: str) -> list:
    """Frames of every kind that the hub sends: replies, systems, changes, closes, errors."""
    peer = await stage.peer(vsn)
    await peer.push("phoenix", "heartbeat", {}, ref=None, join_ref=None)
    await peer.send_join(topic, {"config": {"postgres_changes": [binding("c_traps"), binding("c_missing")]}})
    messages = [await peer.next(), await peer.next()]
    while not any(m.event == "system" and m.status == "error" for m in messages):
        messages.append(await peer.next("the error about a table that is not there"))
    await stage.database.run("INSERT INTO c_traps (v) VALUES ('x')", "UPDATE c_traps SET v = 'y'", "DELETE FROM c_traps")
    while messages[-1].data is None or messages[-1].data["type"] != "DELETE":
        messages.append(await peer.next("changes"))
    await peer.send_join("realtime:", {"config": {}})
    await peer.push("foo", "bar", {})
    messages += [await peer.next(), await peer.next()]
    await peer.push(topic, "phx_leave", {})
    messages += [await peer.next(), await peer.next()]
    return messages


@scenario("trap 3: V1 messages have ref, null on pushes, and never a join_ref", tables=TABLE)
async def v1_keys(stage):
    for message in await conversation(stage, "1.0.0", "realtime:v1"):
        value = json.loads(message.raw)
        equal(sorted(value), ["event", "payload", "ref", "topic"], f"the keys of {message.event}")
        if message.event in ("system", "postgres_changes"):
            equal(value["ref"], None, f"the ref of {message.event}")


@scenario("traps 5 and 6: V2 messages are text, have five elements and an object as payload", tables=TABLE)
async def v2_elements(stage):
    for message in await conversation(stage, "2.0.0", "realtime:v2"):
        value = json.loads(message.raw)
        equal(len(value), 5, f"the number of elements of {message.event}")
        equal([type(one) for one in value[2:]], [str, str, dict], f"topic, event and payload of {message.event}")


@scenario("trap 8: pushes of presence are answered always, broadcasts where an ack was asked for, tokens never", vsn=BOTH)
async def pushes_are_answered(stage, vsn):
    peer = await stage.peer(vsn)
    for ack in (True, False):
        topic = f"realtime:pushes-{ack}"
        await peer.join(topic, {"broadcast": {"ack": ack}})
        said = await peer.say(topic, "m", {})
        tracked = await peer.present(topic, "track", {})
        await peer.push(topic, "access_token", {"access_token": stage.ana})
        answers = [m.ref for m in await peer.fence() if m.event == "phx_reply"]
        equal(answers, [said, tracked] if ack else [tracked], f"what is answered with ack {ack}")


@scenario("trap 14: system messages are four strings, and nothing harmless is an error", tables=TABLE)
async def system_messages(stage):
    for vsn in ("1.0.0", "2.0.0"):
        peer = await stage.peer(vsn)
        await peer.join("realtime:calm", {"postgres_changes": [binding("c_traps")]})
        message = await peer.system("realtime:calm")
        equal(message.payload, {"extension": "postgres_changes", "status": "ok", "message": SUBSCRIBED, "channel": "calm"}, "it")
        for token in (stage.ana, stage.anon):
            await peer.push("realtime:calm", "access_token", {"access_token": token})
            await peer.subscribed("realtime:calm")
        # A channel without bindings has nothing to say.
        await peer.join("realtime:silent", {})
        others = [m for m in await peer.fence() if m.event == "system"]
        equal([str(m) for m in others], [], "other system messages")


@scenario("trap 15: the reply comes before anything else of the channel, however busy the table is", tables=TABLE)
async def reply_first(stage):
    writing = True

    async def write():
        while writing:
            await stage.database.run("INSERT INTO c_traps (v) SELECT 'x' FROM generate_series(1, 20)")

    task = asyncio.create_task(write())
    try:
        for number in range(30):
            peer = await stage.peer("1.0.0" if number % 2 else "2.0.0")
            reply = await peer.join("realtime:busy", {"postgres_changes": [binding("c_traps")]})
            (one,) = reply.response["postgres_changes"]
            change = await peer.change("realtime:busy")
            equal(change.payload["ids"], [one["id"]], "the ids of the first change")
            # From the first on there is no hole.
            following = [(await peer.change("realtime:busy")).data["record"]["id"] for _ in range(30)]
            first = change.data["record"]["id"]
            equal(following, list(range(first + 1, first + 31)), "the changes after the first")
            await peer.close()
    finally:
        writing = False
        await task


@scenario("trap 17: topics have their prefix on the wire, the channel of a system message has not", tables=TABLE)
async def prefixes(stage):
    peer = await stage.peer()
    await peer.join("realtime:realtime:x:y", {"postgres_changes": [binding("c_traps")]})
    message = await peer.system("realtime:realtime:x:y")
    equal(message.payload["channel"], "realtime:x:y", "the channel")
    true(message.topic == "realtime:realtime:x:y", "the topic whole", message)


@scenario("trap 20: opaque keys of the configuration stand for tokens", own_hub=True)
async def opaque_keys(stage):
    await stage.hub.use({"api_keys": f"sb_publishable_tests={stage.anon}"})
    peer = await stage.peer(apikey="sb_publishable_tests")
    await peer.join("realtime:opaque", {}, access_token="sb_publishable_tests")
    connection = await stage.connection()
    response = await connection.upgrade(stage.hub, f"{stage.hub.path}?apikey=sb_publishable_unknown")
    equal((response.status, json.loads(response.body)), (401, {"error": "The token provided is not a valid JWT"}), "status and body for one that is not configured")


def keyed(name: str) -> list[str]:
    """Rows of owners, whose deletes carry the key alone; the last row is everybody's."""
    return published(
        name, "id int PRIMARY KEY, owner uuid", f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY",
        f"CREATE POLICY own ON {name} FOR SELECT USING (owner = auth.uid() OR id = 9)",
        f"GRANT SELECT ON {name} TO anon, authenticated, service_role")  # fmt: skip


async def deletes(stage, vsn, table, filters=(None,)) -> dict:
    """The old rows of the DELETEs that each of several roles hears of, by their topics and filters."""
    peer = await stage.peer(vsn)
    tokens = {"ana": stage.ana, "ben": stage.ben, "anon": stage.anon, "service": stage.service}
    topics = {}
    for name, token in tokens.items():
        for filter in filters:
            topic = f"realtime:{name} {filter or ''}".strip()
            topics[topic] = binding(table, **({"filter": filter} if filter else {}))
            await peer.subscribe(topic, topics[topic], binding(table, filter="id=eq.9"), access_token=token)
    await stage.database.run(
        f"INSERT INTO {table} VALUES (1, '{ANA}'), (2, '{BEN}')", f"DELETE FROM {table}", f"INSERT INTO {table} VALUES (9)")
    found = {}
    for topic in topics:
        came = await peer.changes_until(topic, lambda data: data["type"] == "INSERT" and data["record"]["id"] == 9)
        found[topic.removeprefix("realtime:")] = [m.data["old_record"] for m in came if m.data["type"] == "DELETE"]
    return found


@scenario("trap 11: a DELETE without its old row is told to who could see the row's last version in the log, and joins say so", vsn=BOTH, tables=keyed("c_strict"))
async def strict_deletes(stage, vsn):
    peer = await stage.peer(vsn)
    await peer.subscribe("realtime:warned", binding("c_strict"), access_token=stage.ana)
    said = await peer.warning("realtime:warned", "REPLICA IDENTITY FULL")
    true("deletes of public.c_strict" in said, "a warning that names the table", said)
    await peer.subscribe("realtime:inserts", binding("c_strict", "INSERT"), access_token=stage.ana)
    await peer.subscribe("realtime:bypasses", binding("c_strict"), access_token=stage.service)
    equal([m for m in await peer.fence() if m.event == "system"], [], "warnings for who needs no DELETE, or sees every row")
    heard = await deletes(stage, vsn, "c_strict")
    both = [{"id": 1}, {"id": 2}]
    equal(heard, {"ana": both[:1], "ben": both[1:], "anon": [], "service": both}, "the old rows of what each hears")


@scenario("trap 11: with delete_visibility = reference a DELETE goes to everybody whose filter matches, with its key alone", vsn=BOTH,
    settings={"delete_visibility": "reference"}, tables=[*keyed("c_open"), *keyed("c_kept"), "ALTER TABLE c_kept REPLICA IDENTITY FULL"])  # fmt: skip
async def reference_deletes(stage, vsn):
    both = [{"id": 1}, {"id": 2}]
    heard = await deletes(stage, vsn, "c_open", (None, "id=eq.1", f"owner=eq.{ANA}"))
    wanted = {}
    for name in ("ana", "ben", "anon", "service"):
        # What the old image does not hold matches no filter.
        wanted |= {name: both, f"{name} id=eq.1": both[:1], f"{name} owner=eq.{ANA}": []}
    equal(heard, wanted, "the old rows of what each hears")
    heard = await deletes(stage, vsn, "c_kept", (None, f"owner=eq.{ANA}"))
    whole = [{"id": 1, "owner": ANA}, {"id": 2, "owner": BEN}]
    for name in ("ana", "ben", "anon"):
        equal((heard[name], heard[f"{name} owner=eq.{ANA}"]), (both, both[:1]), f"what {name} hears of whole old rows")
    equal((heard["service"], heard[f"service owner=eq.{ANA}"]), (whole, whole[:1]), "what the service hears of them")


@scenario("trap 11: where the key alone says who may see a row, a DELETE is judged by it", vsn=BOTH, tables=published(
    "c_keys", "id int, owner uuid, PRIMARY KEY (id, owner)", "ALTER TABLE c_keys ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY own ON c_keys FOR SELECT USING (owner = auth.uid() OR id = 9)", "GRANT SELECT ON c_keys TO anon, authenticated, service_role"))  # fmt: skip
async def judged_by_keys(stage, vsn):
    peer = await stage.peer(vsn)
    for name, token in (("ana", stage.ana), ("ben", stage.ben), ("anon", stage.anon)):
        await peer.subscribe(f"realtime:{name}", binding("c_keys"), access_token=token)
    equal([m for m in await peer.fence() if m.event == "system"], [], "warnings where there is nothing to warn of")
    await stage.database.run(
        f"INSERT INTO c_keys VALUES (1, '{ANA}'), (2, '{BEN}')", "DELETE FROM c_keys", f"INSERT INTO c_keys VALUES (9, '{ANA}')")
    for name, ids in (("ana", [1]), ("ben", [2]), ("anon", [])):
        came = await peer.changes_until(f"realtime:{name}", lambda data: data["type"] == "INSERT" and data["record"]["id"] == 9)
        gone = [m.data["old_record"]["id"] for m in came if m.data["type"] == "DELETE"]
        equal(gone, ids, f"what {name} hears is deleted")
