"""Messages outside of joins: heartbeats, malformed ones, topics nobody joined, leaving. Protocol §1.6–1.9."""

from clients.expect import equal
from clients.scenario import BOTH, scenario

HEARTBEAT_OK = {"status": "ok", "response": {}}
UNMATCHED = {"status": "error", "response": {"reason": "unmatched topic"}}


@scenario("golden: the bytes of heartbeats, joins and leaves in V2")
async def golden_v2(stage):
    peer = await stage.peer("2.0.0")
    conversation = [
        ('[null,"1","phoenix","heartbeat",{}]', [None, "1", "phoenix", "phx_reply", HEARTBEAT_OK]),
        (
            '["3","3","realtime:golden","phx_join",{"config":{"broadcast":{"ack":true,"self":true}}}]',
            ["3", "3", "realtime:golden", "phx_reply", {"status": "ok", "response": {"postgres_changes": []}}],
        ),
        ('["3","4","realtime:golden","phx_leave",{}]', ["3", "4", "realtime:golden", "phx_reply", HEARTBEAT_OK]),
        (None, ["3", "3", "realtime:golden", "phx_close", {}]),
    ]
    for sent, wanted in conversation:
        if sent:
            await peer.connection.text(sent)
        message = await peer.next()
        came = [message.join_ref, message.ref, message.topic, message.event, message.payload]
        equal(came, wanted, f"what {sent or 'the leave'} brings")


@scenario("golden: the bytes of heartbeats, joins and leaves in V1")
async def golden_v1(stage):
    peer = await stage.peer("1.0.0")
    topic = "realtime:golden"
    ok = {"status": "ok", "response": {"postgres_changes": []}}
    conversation = [
        ('{"topic":"phoenix","event":"heartbeat","payload":{},"ref":null}', ("phoenix", "phx_reply", HEARTBEAT_OK, None)),
        (
            '{"topic":"realtime:golden","event":"phx_join","payload":{"config":{}},"ref":"1","join_ref":"1"}',
            (topic, "phx_reply", ok, "1"),
        ),
        ('{"topic":"realtime:golden","event":"phx_leave","payload":{},"ref":"2"}', (topic, "phx_reply", HEARTBEAT_OK, "2")),
        (None, (topic, "phx_close", {}, "1")),
    ]
    for sent, wanted in conversation:
        if sent:
            await peer.connection.text(sent)
        message = await peer.next()
        equal([message.topic, message.event, message.payload, message.ref], list(wanted), f"what {sent or 'the leave'} brings")


@scenario("checklist 3, trap 4: a heartbeat is answered with its own ref, null or not", vsn=BOTH)
async def heartbeat(stage, vsn):
    peer = await stage.peer(vsn)
    for ref in ("1", "00017", "any text ü", "x" * 300, None):
        await peer.push("phoenix", "heartbeat", {}, ref=ref, join_ref=None)
        message = await peer.next("the answer to a heartbeat")
        equal((message.topic, message.event, message.ref), ("phoenix", "phx_reply", ref), "topic, event and ref")
        equal(message.join_ref, None, "its join_ref")
        equal(message.payload, HEARTBEAT_OK, "its payload")


@scenario("trap 4: heartbeats are answered while a join waits for its backoff", vsn=BOTH, settings={"channel_error_backoff": "3s"})
async def heartbeat_during_join(stage, vsn):
    peer = await stage.peer(vsn)
    for _ in range(5):
        await peer.reply(await peer.send_join("realtime:", {"config": {}}))
    ref = await peer.send_join("realtime:slow", {"config": {}, "access_token": stage.token("anon", -5)})
    await peer.push("phoenix", "heartbeat", {}, ref="beat", join_ref=None)
    first = await peer.next("the answer to a heartbeat")
    equal(first.ref, "beat", "the ref of what is answered first (the refused join waits for its backoff)")
    await peer.join("realtime:quick", {})
    refused = await peer.reply(ref, "the refusal of the join")
    equal(refused.status, "error", "the status of a join with an expired token")


MALFORMED = {
    "1.0.0": [
        "", " ", "nonsense", "[]", "null", "17", '"text"', "{", "{}", '{"topic":"phoenix"}',
        '{"topic":"phoenix","event":"heartbeat","payload":{}}',
        '{"topic":"phoenix","event":"heartbeat","ref":"1"}',
        '{"event":"heartbeat","payload":{},"ref":"1"}',
        '{"topic":"phoenix","payload":{},"ref":"1"}',
        '{"topic":"phoenix","event":"heartbeat","payload":{},"ref":"1"',
        '{"topic":7,"event":"heartbeat","payload":{},"ref":"1"}',
        '[null,"1","phoenix","heartbeat",{}]', "[" * 100_000, '{"a":' * 50_000,
    ],
    "2.0.0": [
        "", " ", "nonsense", "[]", "null", "17", '"text"', "[", "{}", '[null,"1","phoenix","heartbeat"]',
        '[null,"1","phoenix"]', '[null,"1",7,"heartbeat",{}]', '[null,"1","phoenix",{},{}]',
        '[null,"1","phoenix","heartbeat",{}', '[null,"1","phoenix","heartbeat",{}]]', "[" * 100_000,
        '{"topic":"phoenix","event":"heartbeat","payload":{},"ref":"1"}',
    ],
}  # fmt: skip


@scenario("malformed messages are dropped without an answer and the socket is kept", vsn=BOTH)
async def malformed(stage, vsn):
    peer = await stage.peer(vsn)
    for text in MALFORMED[vsn]:
        await peer.connection.text(text)
        equal([str(message) for message in await peer.fence()], [], f"what {text[:80]!r} brings")


@scenario("more elements than five are ignored in V2, more keys in V1")
async def more_than_needed(stage):
    peer = await stage.peer("2.0.0")
    await peer.connection.text('[null,"1","phoenix","heartbeat",{},"sixth",[7]]')
    await peer.reply("1")
    peer = await stage.peer("1.0.0")
    await peer.connection.text('{"ref":"1","payload":{},"event":"heartbeat","topic":"phoenix","extra":[1],"join_ref":null}')
    await peer.reply("1")
    # The same, written with every liberty that JSON gives.
    await peer.connection.text('\n{ "\\u0072ef" :"\\u0032", "payload" : { } ,"event":"heart\\u0062eat","topic":"phoenix"}\t')
    await peer.reply("2")


@scenario("pushes to topics nobody joined are answered 'unmatched topic'", vsn=BOTH)
async def unjoined(stage, vsn):
    peer = await stage.peer(vsn)
    cases = (("realtime:nobody", "broadcast"), ("realtime:nobody", "access_token"), ("phoenix", "other"), ("foo", "x"))
    for topic, event in cases:
        ref = await peer.push(topic, event, {}, join_ref="99")
        message = await peer.next(f"an answer to {event} on {topic}")
        equal((message.topic, message.event, message.ref), (topic, "phx_reply", ref), "topic, event and ref")
        equal(message.join_ref, None, "the join_ref")
        equal(message.payload, UNMATCHED, "the payload")
    ref = await peer.push("realtime:nobody", "phx_leave", {})
    message = await peer.next("an answer to a leave of a topic nobody joined")
    equal((message.ref, message.payload), (ref, HEARTBEAT_OK), "ref and payload of leaving what was never joined")
    equal(await peer.fence(), [], "what follows it")


@scenario("checklist 10, trap 7: leaving is answered, then closed with the ref of the join", vsn=BOTH)
async def leave(stage, vsn):
    peer = await stage.peer(vsn)
    topic = "realtime:leaving"
    await peer.join(topic, {})
    join_ref = peer.join_refs[topic]
    ref = await peer.push(topic, "phx_leave", {})
    reply = await peer.next("the reply to a leave")
    equal((reply.event, reply.ref, reply.payload), ("phx_reply", ref, HEARTBEAT_OK), "the reply to a leave")
    close = await peer.next("phx_close after a leave")
    equal((close.event, close.topic, close.ref), ("phx_close", topic, join_ref), "what follows, with the join's ref,")
    if vsn == "2.0.0":
        equal((reply.join_ref, close.join_ref), (join_ref, join_ref), "both join_refs")
    # It is gone, and may come again.
    gone = await peer.push(topic, "access_token", {"access_token": stage.anon}, join_ref=None)
    equal((await peer.reply(gone)).payload, UNMATCHED, "the answer to a push after the leave")
    await peer.join(topic, {})


@scenario("a leave of another join is ignored in silence")
async def stale_leave(stage):
    peer = await stage.peer("2.0.0")
    await peer.join("realtime:stays", {})
    await peer.push("realtime:stays", "phx_leave", {}, join_ref="from another life")
    equal(await peer.fence(), [], "what a leave with a stale join_ref brings")
    ref = await peer.push("realtime:stays", "phx_leave", {}, join_ref=None)
    equal((await peer.reply(ref)).payload, HEARTBEAT_OK, "the answer to a leave without a join_ref")
    equal((await peer.next()).event, "phx_close", "what follows it")


@scenario("events nobody knows are not answered on a joined channel", vsn=BOTH)
async def unknown_events(stage, vsn):
    peer = await stage.peer(vsn)
    await peer.join("realtime:unknown", {})
    for event in ("postgres_changes", "system", "phx_reply", "phx_close", "hello", "", "INSERT"):
        await peer.push("realtime:unknown", event, {"a": 1})
    equal([str(message) for message in await peer.fence()], [], "what they bring")


@scenario("topics are case-sensitive and may hold any characters", vsn=BOTH)
async def topics(stage, vsn):
    peer = await stage.peer(vsn)
    odd = ["a", "A", "a:b:c", "a/b?c=d&e", "*", "grüße 🙂", 'quo"te\\', "  ", "%41", "tab\there", "x" * 1000, "realtime:x"]
    for name in odd:
        await peer.join("realtime:" + name, {})
    for name in odd:
        ref = await peer.push("realtime:" + name, "phx_leave", {})
        equal((await peer.reply(ref)).topic, "realtime:" + name, "the topic of the reply")


@scenario("a lone surrogate and a null byte in a topic do no harm", vsn=BOTH)
async def hostile_strings(stage, vsn):
    peer = await stage.peer(vsn)
    # Both are JSON; what becomes of them is the hub's affair as long as what it sends can be read.
    for text in ("\\ud800", "\\u0000", "\\udc00\\ud800"):
        if vsn == "2.0.0":
            await peer.connection.text(f'["1","s","realtime:{text}","phx_join",{{"config":{{}}}}]')
        else:
            await peer.connection.text(
                f'{{"topic":"realtime:{text}","event":"phx_join","payload":{{"config":{{}}}},"ref":"s"}}')
    await peer.fence()
    await peer.join("realtime:afterwards", {})
