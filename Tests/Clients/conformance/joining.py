"""Joins: bindings, booleans, errors, repetition, the legacy form, limits. Protocol §2; checklist 4, 5, 6, 11, 22."""

import json

from clients.expect import contains, equal, keys, true
from clients.peer import binding, check_data, parsed
from clients.scenario import BOTH, published, scenario

JOIN_TABLE = published("c_join", "id int PRIMARY KEY, v text")


@scenario("checklist 4, trap 1: the reply to a join has postgres_changes, even of nothing", vsn=BOTH)
async def empty_join(stage, vsn):
    peer = await stage.peer(vsn)
    wanted = {"status": "ok", "response": {"postgres_changes": []}}
    for index, payload in enumerate(
        (
            {"config": {}},
            {"config": {"postgres_changes": []}},
            {"config": {"postgres_changes": None}},
            {"config": {"broadcast": None, "presence": None, "private": False}},
        )
    ):
        ref = await peer.send_join(f"realtime:empty-{index}", payload)
        equal((await peer.reply(ref)).payload, wanted, f"the reply to {json.dumps(payload)}")
    equal(await peer.fence(), [], "what follows joins without bindings")


@scenario("checklist 5, trap 2: bindings come back verbatim, in order, with ids", vsn=BOTH, tables=JOIN_TABLE)
async def verbatim(stage, vsn):
    peer = await stage.peer(vsn)
    sent = [
        {"event": "INSERT", "schema": "public", "table": "c_join"},
        {"table": "c_join", "event": "*", "schema": "public", "filter": "id=eq.7"},
        {"event": "INSERT", "schema": "public", "table": "c_join"},
        {"event": "insert", "schema": "public", "table": "c_join", "filter": "", "note": {"deep": [1, 2.5, None]}},
        {"event": "UPDATE", "schema": "public", "table": "c_join", "filter": None},
        {"event": "DELETE", "schema": "public", "table": "c_join", "select": ["id"]},
        {"schema": "public", "table": "c_join"},
        {"event": "*", "schema": "public"},
    ]
    reply = await peer.join("realtime:verbatim", {"postgres_changes": sent})
    came = reply.response["postgres_changes"]
    equal(len(came), len(sent), "the number of bindings that come back")
    ids = []
    for one, wanted in zip(came, sent):
        number = one.pop("id", None)
        true(type(number) is int and 0 < number < 2**31, "an integer id between 1 and 2^31", number)
        ids.append(number)
        equal(one, parsed(json.dumps(wanted)), "a binding without its id")
    equal(ids[0], ids[2], "the id of the same binding said twice")
    equal(len(set(ids)), len(ids) - 1, "the number of distinct ids")
    again = await stage.peer("1.0.0")
    turned = [{key: binding[key] for key in reversed(binding)} for binding in sent]
    reply = await again.join("realtime:another", {"postgres_changes": turned})
    equal([one["id"] for one in reply.response["postgres_changes"]], ids, "the ids of the same bindings elsewhere")


@scenario("null elements among the bindings are dropped", vsn=BOTH, tables=JOIN_TABLE)
async def null_bindings(stage, vsn):
    peer = await stage.peer(vsn)
    reply = await peer.join("realtime:nulls", {"postgres_changes": [None, binding("c_join"), None]})
    equal(len(reply.response["postgres_changes"]), 1, "the number of bindings that come back")
    await peer.subscribed("realtime:nulls")


@scenario("further traps: FlexibleBoolean: true and false in any case, as words too; anything else falls back to the default", vsn=BOTH)
async def flexible_booleans(stage, vsn):
    peer = await stage.peer(vsn)
    values = [False, "false", "False", "FALSE", 0, "no", {}, [], "", None, 1.5]
    for index, value in enumerate(values):
        config = {"private": value, "broadcast": {"self": value, "ack": value}, "presence": {"enabled": False, "key": 7}}
        await peer.join(f"realtime:flexible-{index}", config)
    for index, value in enumerate((True, "true", "True", "TRUE")):
        await peer.join(f"realtime:flexible-true-{index}", {"private": False, "broadcast": {"self": value, "ack": value}})


@scenario("an invalid join payload is not fatal, and unknown keys are ignored", vsn=BOTH)
async def invalid_parts(stage, vsn):
    peer = await stage.peer(vsn)
    payloads = [
        {"config": {"broadcast": "yes"}},
        {"config": {"presence": [1]}},
        {"config": {"postgres_changes": "all of them"}},
        {"config": {"postgres_changes": {"event": "*"}}},
        {"config": {"postgres_changes": ["*", 7, []]}},
        {"config": {"broadcast": {"ack": "perhaps", "self": 3}}},
        {"config": {}, "version": "realtime-swift/2.55.1", "extra": {"a": 1}},
        {"config": {"surprise": True}, "version": 7, "access_token": 17, "user_token": []},
    ]
    for index, payload in enumerate(payloads):
        ref = await peer.send_join(f"realtime:invalid-{index}", payload)
        equal((await peer.reply(ref)).status, "ok", f"the status of the reply to {json.dumps(payload)}")


@scenario("checklist 6: topics without a name and topics of something else", vsn=BOTH)
async def wrong_topics(stage, vsn):
    peer = await stage.peer(vsn)
    ref = await peer.send_join("realtime:", {"config": {}})
    reply = await peer.reply(ref)
    wanted = {"reason": "TopicNameRequired: You must provide a topic name"}
    equal(reply.payload, {"status": "error", "response": wanted}, "the reply to joining realtime:")
    for topic in ("foo:bar", "realtime", "Realtime:x", "", "phoenix", " realtime:x"):
        ref = await peer.send_join(topic, {"config": {}})
        reply = await peer.reply(ref)
        equal(reply.payload, {"status": "error", "response": {"reason": "unmatched topic"}}, f"the reply to {topic!r}")
        equal((reply.topic, reply.join_ref), (topic, None), "its topic and join_ref")


# So many refusals of a socket are told at once.
PROMPT = 5


@scenario("trap 19: errors wait for the backoff, but for a socket's first ones and for unmatched topics", vsn=BOTH, settings={"channel_error_backoff": "2s"})
async def backoff(stage, vsn):
    import time

    peer = await stage.peer(vsn)
    began = time.monotonic()
    for _ in range(PROMPT):
        await peer.reply(await peer.send_join("realtime:", {"config": {}}))
    true(time.monotonic() - began < 2, "the first refusals at once", f"{time.monotonic() - began:.3f} s")
    began = time.monotonic()
    named = await peer.send_join("realtime:", {"config": {}})
    unmatched = await peer.send_join("foo:bar", {"config": {}})
    equal((await peer.next()).ref, unmatched, "the ref of what is answered first (unmatched topics do not wait)")
    equal((await peer.next()).ref, named, "the ref of what is answered then")
    true(time.monotonic() - began >= 2, "a refusal not before 2 s", f"after {time.monotonic() - began:.3f} s")


@scenario("checklist 11, trap 7: a second join replaces the first, and only V2 hears that the old one closed", vsn=BOTH, tables=published("c_double", "id int PRIMARY KEY"))
async def double_join(stage, vsn):
    peer = await stage.peer(vsn)
    topic = "realtime:double"
    await peer.subscribe(topic, binding("c_double"))
    old = peer.join_refs[topic]
    ref = await peer.send_join(topic, {"config": {"postgres_changes": [binding("c_double", "INSERT")]}})
    reply = await peer.next("the reply to the second join")
    equal((reply.event, reply.ref, reply.status), ("phx_reply", ref, "ok"), "what comes first")
    if vsn == "2.0.0":
        close = await peer.next("the close of the first join")
        equal((close.join_ref, close.ref, close.event, close.payload), (old, old, "phx_close", {}), "what follows")
    await peer.subscribed(topic)
    await stage.database.run("INSERT INTO c_double VALUES (1)", "DELETE FROM c_double", "INSERT INTO c_double VALUES (2)")
    number = reply.response["postgres_changes"][0]["id"]
    for row in (1, 2):
        change = await peer.change(topic)
        equal((change.payload["ids"], change.data["record"]), ([number], {"id": row}), "the changes of the new join alone")
    # To V1, where a close has no join_ref, a close of the old join would be one of the new.
    equal([str(m) for m in await peer.fence()], [], "what else came")


@scenario("the legacy join: a topic of schema, table and filter, and bare changes", vsn=BOTH, tables=published("c_legacy", "id int PRIMARY KEY, v text"))
async def legacy(stage, vsn):
    peer = await stage.peer(vsn)
    joins = {
        "realtime:public:c_legacy:id=gt.1": {"schema": "public", "table": "c_legacy", "filter": "id=gt.1"},
        "realtime:public:c_legacy": {"schema": "public", "table": "c_legacy"},
        "realtime:public": {"schema": "public"},
        "realtime:*": {"schema": "*"},
    }
    for topic, wanted in joins.items():
        reply = await peer.join(topic, None, user_token=stage.anon)
        (one,) = reply.response["postgres_changes"]
        true(type(one.pop("id", None)) is int, "an id", one)
        equal(one, wanted, f"the binding of {topic}")
        await peer.subscribed(topic)
    await stage.database.run(
        "INSERT INTO c_legacy VALUES (1, 'one'), (2, 'two')", "UPDATE c_legacy SET v = 'zwei' WHERE id = 2",
        "DELETE FROM c_legacy WHERE id = 2")  # fmt: skip

    def of(topic):
        return lambda m: m.topic == topic and m.event in ("INSERT", "UPDATE", "DELETE")

    for topic in joins:
        wanted = [("INSERT", 2), ("UPDATE", 2), ("DELETE", 2)]
        if "gt" not in topic:
            wanted.insert(0, ("INSERT", 1))
        for kind, row in wanted:
            message = await peer.expect(f"{kind} of {row} on {topic}", of(topic))
            check_data(message.payload)
            equal((message.event, (message.payload.get("record") or message.payload["old_record"])["id"]), (kind, row), f"a change of {topic}")


@scenario("checklist 22: one channel more than a client may have", vsn=BOTH)
async def hundred_and_one(stage, vsn):
    peer = await stage.peer(vsn)
    for number in range(100):
        await peer.join(f"realtime:many-{number}", {})
    ref = await peer.send_join("realtime:many-100", {"config": {}})
    equal((await peer.reply(ref)).reason, "ChannelRateLimitReached: Too many channels", "the reason for the 101st")
    # One that is joined already takes no further place, and one that is left gives its place back.
    await peer.join("realtime:many-7", {})
    ref = await peer.push("realtime:many-8", "phx_leave", {})
    await peer.reply(ref)
    await peer.join("realtime:many-100", {})


@scenario("how many channels a client may have is the operator's choice", settings={"max_channels_per_client": "2"})
async def own_limit(stage):
    peer, other = await stage.peer(), await stage.peer()
    for number in range(2):
        await peer.join(f"realtime:few-{number}", {})
    ref = await peer.send_join("realtime:few-2", {"config": {}})
    equal((await peer.reply(ref)).reason, "ChannelRateLimitReached: Too many channels", "the reason")
    await other.join("realtime:few-2", {})


@scenario("what clients really send joins", vsn=BOTH, tables=JOIN_TABLE)
async def real_payloads(stage, vsn):
    peer = await stage.peer(vsn)
    script = {
        "config": {
            "broadcast": {"ack": False, "self": False},
            "presence": {"key": "", "enabled": False},
            "postgres_changes": [{"event": "INSERT", "schema": "public", "table": "c_join", "filter": ""}],
            "private": False,
        },
        "access_token": stage.ana,
    }
    swift = {
        "config": {
            "broadcast": {"ack": True, "self": True, "replication_ready": False},
            "presence": {"key": "", "enabled": False},
            "postgres_changes": [{"event": "UPDATE", "schema": "public", "table": "c_join", "filter": "id=eq.1"}],
            "private": False,
        },
        "access_token": None,
        "version": "realtime-swift/2.55.1",
    }
    python = {
        "config": {
            "broadcast": None,
            "presence": {"key": "", "enabled": False},
            "private": False,
            "postgres_changes": [{"event": "*", "schema": "public", "table": "c_join"}],
        },
        "access_token": stage.anon,
    }
    for name, payload in {"script": script, "swift": swift, "python": python}.items():
        topic = f"realtime:really-{name}"
        ref = await peer.send_join(topic, payload)
        reply = await peer.reply(ref)
        equal(reply.status, "ok", f"the status of the reply to what {name} sends")
        (one,) = reply.response["postgres_changes"]
        one.pop("id")
        equal(one, payload["config"]["postgres_changes"][0], f"the binding of {name}")
        await peer.subscribed(topic)


@scenario("a binding that names nothing, and one with a filter and no table", vsn=BOTH, tables=JOIN_TABLE)
async def no_parameters(stage, vsn):
    text = "No subscription params provided. Please provide at least a `schema` or `table` to subscribe to: "
    peer = await stage.peer(vsn)
    wrong = [
        {"event": "INSERT"},
        {"event": "*", "schema": "public", "filter": "id=eq.1"},
        {"event": "*", "schema": 7},
        {"event": "*", "table": ["c_join"]},
    ]
    for index, one in enumerate(wrong):
        topic = f"realtime:wrong-{index}"
        await peer.join(topic, {"postgres_changes": [one]})
        message = await peer.system(topic)
        keys(message.payload, "extension status message channel", "the message")
        equal((message.payload["extension"], message.status), ("postgres_changes", "error"), "extension and status")
        contains(message.payload["message"], text, "the message")
    # It stays joined.
    ref = await peer.push("realtime:wrong-0", "phx_leave", {})
    equal((await peer.reply(ref)).status, "ok", "the answer to a leave after the error")
