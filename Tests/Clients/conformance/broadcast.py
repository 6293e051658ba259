"""What channels say to each other: forms of pushes and of what receivers get, order, self, ack, sizes. Protocol §1.8, §4.1–4.3.

Checklist 7 and 8, traps 5, 8 and 16.
"""

import asyncio
import json
import random
import zlib

from clients.expect import equal, true
from clients.peer import user_broadcast
from clients.scenario import BOTH, scenario
from clients.wire import BINARY

#: Sockets are spread over the loops, so of eight some meet on one and some do not.
LOOPS = {"loops": "3"}


async def listeners(stage, topic: str, count: int = 1, **config) -> list:
    """So many of each serializer; the first half speaks V1."""
    peers = []
    for vsn in ("1.0.0", "2.0.0"):
        for _ in range(count):
            peer = await stage.peer(vsn)
            await peer.join(topic, config)
            peers.append(peer)
    return peers


async def sender(stage, vsn: str, topic: str, **broadcast):
    peer = await stage.peer(vsn)
    await peer.join(topic, {"broadcast": broadcast} if broadcast else {})
    return peer


async def silent(peers, what: str):
    for peer in peers:
        equal([str(message) for message in await peer.fence()], [], what)


async def nothing_more(stage, topic: str, peers, what: str):
    """Something is said afterwards by somebody else of the same loop's turn or a later one; what stands before it is all."""
    last = await sender(stage, "2.0.0", topic)
    await last.say(topic, "fence", {})
    for peer in peers:
        before = []
        while (message := await peer.broadcast(topic, "the last broadcast")).payload["event"] != "fence":
            before.append(str(message))
        equal(before, [], what)
    await last.close()


PAYLOADS = [{}, {"x": 1, "y": [1, None, True]}, {"text": "grüße 🙂 \"quoted\" \\ \u0000"}, {"deep": {"er": {"still": []}}}]


@scenario("checklist 7, trap 5: a broadcast of text comes to every serializer as the sender wrote it", vsn=BOTH)
async def text_push(stage, vsn):
    topic = "realtime:text-push"
    peers = await listeners(stage, topic)
    peer = await sender(stage, vsn, topic)
    for payload in PAYLOADS:
        await peer.say(topic, "cursor", payload)
    for receiver in peers:
        for payload in PAYLOADS:
            message = await receiver.broadcast(topic)
            equal((message.form, message.join_ref), ("text", None), "form and join_ref")
            equal(message.payload, {"type": "broadcast", "event": "cursor", "payload": payload}, "the payload")
    await silent([peer], "what the sender hears of itself")


@scenario("keys that a client puts into a broadcast beside the usual ones are kept, in their order and with their digits", vsn=BOTH)
async def verbatim(stage, vsn):
    topic = "realtime:verbatim"
    peers = await listeners(stage, topic)
    peer = await sender(stage, vsn, topic)
    texts = [
        '{"zeta":1,"type":"broadcast","event":"e","payload":{"b":1,"a":12345678901234567890.500},"meta":{"mine":true}}',
        '{"event" : "e" , "no payload" : [ 1e5 , -0.0 ] }',
        "{}",
        '{"event":17,"payload":"a string"}',
        '{"\\u0065vent":"esc\\u0061ped","payload":{"\\ud83d\\ude42":"\\/"}}',
    ]
    for text in texts:
        if vsn == "1.0.0":
            await peer.connection.text(f'{{"ref":"7","event":"broadcast","payload":{text},"topic":"{topic}"}}')
        else:
            await peer.connection.text(f'["1","7","{topic}","broadcast",{text}]')
    for receiver in peers:
        for text in texts:
            message = await receiver.broadcast(topic)
            true(text in message.raw, f"{text} verbatim", message)


@scenario("checklist 8, trap 5: JSON of kind 3 comes to V2 as kind 4 and to V1 as an object", vsn=BOTH)
async def binary_json(stage, vsn):
    topic = "realtime:kind-3"
    receiver = (await listeners(stage, topic))[BOTH.index(vsn)]
    peer = await sender(stage, "2.0.0", topic)
    for payload in PAYLOADS:
        # Metadata is read and then no longer of interest.
        await peer.say_binary(topic, "grüße", payload, b'{"x":[1]}' if payload else b"")
        message = await receiver.broadcast(topic)
        equal(message.form, "json" if vsn == "2.0.0" else "text", "its form")
        equal(message.payload, {"type": "broadcast", "event": "grüße", "payload": payload}, "the payload, without metadata,")


@scenario("the bytes of kinds 3 and 4 are those of the protocol's example")
async def worked_example(stage):
    topic = "realtime:r"
    (_, receiver) = await listeners(stage, topic)
    peer = await sender(stage, "2.0.0", topic)
    await peer.connection.frame(BINARY, bytes.fromhex("03 01 01 0A 01 00 01 31 37 72 65 61 6C 74 69 6D 65 3A 72 6D 7B 22 61 22 3A 31 7D"))
    wanted = bytes.fromhex("04 0A 01 00 01 72 65 61 6C 74 69 6D 65 3A 72 6D 7B 22 61 22 3A 31 7D")
    equal((await receiver.broadcast(topic)).raw, wanted, "the frame")
    # Every encoding but 0 is JSON, and JSON keeps the spaces it came with.
    for encoding in (1, 2, 255):
        frame = user_broadcast(topic, "m", b' { "a" : 1.50 } ', encoding=encoding)
        await peer.connection.frame(BINARY, frame)
        raw = (await receiver.broadcast(topic)).raw
        equal((raw[4], raw[-len(b'{ "a" : 1.50 } '):].strip()), (1, b'{ "a" : 1.50 }'), "encoding and payload")


@scenario("JSON of kind 3 need not be an object", vsn=BOTH)
async def binary_values(stage, vsn):
    topic = "realtime:values"
    receiver = (await listeners(stage, topic))[BOTH.index(vsn)]
    peer = await sender(stage, "2.0.0", topic)
    for payload in (17, "text", None, [1], True):
        await peer.say_binary(topic, "value", payload)
        await receiver.hears(topic, "value", payload)


@scenario("checklist 8, trap 5: bytes of kind 3 come to V2 as bytes, and to V1 not at all", vsn=BOTH)
async def binary_bytes(stage, vsn):
    topic = "realtime:bytes"
    receiver = (await listeners(stage, topic))[BOTH.index(vsn)]
    peer = await sender(stage, "2.0.0", topic)
    for payload in (b"", bytes(range(256)), b'{"a":1}', b"\xff" * 70_000):
        await peer.say_binary(topic, "raw", payload)
        if vsn == "2.0.0":
            message = await receiver.broadcast(topic)
            equal((message.form, message.payload["payload"]), ("bytes", payload), "form and payload")
    await nothing_more(stage, topic, [receiver], "what else came")


@scenario("checklist 7: a sender hears itself where it asked for that, and is answered where it asked for that", vsn=BOTH)
async def self_and_ack(stage, vsn):
    for number, (hears, asks) in enumerate(((False, False), (True, False), (False, True), (True, True))):
        topic = f"realtime:self-{number}"
        peer = await sender(stage, vsn, topic, self=hears, ack=asks)
        others = await listeners(stage, topic)
        ref = await peer.say(topic, "m", {"n": 1})
        if vsn == "2.0.0":
            binary = await peer.say_binary(topic, "m", {"n": 2})
        for other in others:
            await other.hears(topic, "m", {"n": 1})
        come = await peer.fence()
        replies = [m for m in come if m.event == "phx_reply"]
        heard = [m for m in come if m.event == "broadcast"]
        sent = [ref] + ([binary] if vsn == "2.0.0" else [])
        equal([(m.ref, m.status, m.response) for m in replies], [(ref, "ok", {}) for ref in sent] if asks else [], "replies")
        equal([m.payload["payload"]["n"] for m in heard], [1, 2][: len(sent)] if hears else [], "what it hears of itself")
        equal(len(come), len(replies) + len(heard), "how much came in all")


@scenario("self and ack may be strings, and what is invalid is false", vsn=BOTH)
async def flexible_booleans(stage, vsn):
    for number, (given, meant) in enumerate((("true", True), ("TRUE", True), ("false", False), (1, False), ("yes", False), (None, False), ({}, False))):
        topic = f"realtime:flexible-{number}"
        peer = await sender(stage, vsn, topic, self=given, ack=given)
        await peer.say(topic, "m", {})
        equal(len(await peer.fence()), 2 if meant else 0, f"messages with self and ack {given!r}")


@scenario("self: false is of the channel: others of the same socket and of the same user hear it", vsn=BOTH)
async def self_is_of_the_channel(stage, vsn):
    topic = "realtime:of-the-channel"
    first = await stage.peer(vsn, apikey=stage.ana)
    second = await stage.peer(vsn, apikey=stage.ana)
    for peer in (first, second):
        await peer.join(topic, {})
    await first.say(topic, "m", {"n": 1})
    await second.hears(topic, "m", {"n": 1})
    await silent([first], "what the sender hears")


@scenario("trap 8: no ack without a ref, and none where none was asked for", vsn=BOTH)
async def ack_without_ref(stage, vsn):
    topic = "realtime:no-ref"
    peer = await sender(stage, vsn, topic, ack=True)
    await peer.push(topic, "broadcast", {"type": "broadcast", "event": "m", "payload": {}}, ref=None)
    await silent([peer], "the answer to a push without a ref")
    # A stale join_ref is no reason not to be heard.
    ref = await peer.push(topic, "broadcast", {"event": "m", "payload": {}}, join_ref="from another life")
    equal((await peer.reply(ref)).status, "ok", "the answer to a push with a stale join_ref")


@scenario("a broadcast to a topic that nobody else is in is accepted", vsn=BOTH)
async def alone(stage, vsn):
    peer = await sender(stage, vsn, "realtime:alone", ack=True)
    equal((await peer.reply(await peer.say("realtime:alone", "m", {}))).payload, {"status": "ok", "response": {}}, "the ack")
    ref = await peer.say("realtime:not-joined", "m", {})
    equal((await peer.reply(ref)).reason, "unmatched topic", "the answer on a topic that was not joined")
    if vsn == "2.0.0":
        ref = await peer.say_binary("realtime:not-joined", "m", {})
        equal((await peer.reply(ref)).reason, "unmatched topic", "the same in binary")


@scenario("what one sender says comes to each receiver in its order, over several loops", settings=LOOPS)
async def order(stage):
    topic = "realtime:order"
    peers = await listeners(stage, topic, 4)
    senders = [await sender(stage, vsn, topic) for vsn in ("1.0.0", "2.0.0", "2.0.0")]
    rounds = 300

    async def speak(peer, number):
        for n in range(rounds):
            if number == 2 and n % 2:
                await peer.say_binary(topic, f"s{number}", {"n": n})
            else:
                await peer.say(topic, f"s{number}", {"n": n})

    await asyncio.gather(*(speak(peer, number) for number, peer in enumerate(senders)))
    for receiver in peers:
        heard: dict = {}
        for _ in range(rounds * len(senders)):
            message = await receiver.broadcast(topic)
            heard.setdefault(message.payload["event"], []).append(message.payload["payload"]["n"])
        equal(heard, {f"s{number}": list(range(rounds)) for number in range(3)}, "what each sender said")
    # Senders hear each other, and not themselves.
    for number, peer in enumerate(senders):
        heard = set()
        for _ in range(rounds * 2):
            heard.add((await peer.broadcast(topic)).payload["event"])
        equal(heard, {f"s{other}" for other in range(3)} - {f"s{number}"}, "whom a sender hears")


@scenario("trap 16: private and public channels of one name do not hear each other", settings=LOOPS)
async def namespaces(stage):
    topic = "realtime:namespaces"
    pairs = [(is_private, await stage.peer("2.0.0", apikey=stage.service)) for is_private in (False, True) * 3]
    for is_private, peer in pairs:
        await peer.join(topic, {"private": is_private, "presence": {"enabled": True, "key": f"private {is_private}"}})
    for is_private, peer in pairs:
        equal((await peer.state(topic)).payload, {}, "presence_state of a topic where nobody is")
    for is_private, peer in pairs:
        await peer.say(topic, "m", {"private": is_private})
        await peer.say_binary(topic, "b", {"private": is_private})
    for is_private, peer in pairs:
        for _ in range(4):
            equal((await peer.broadcast(topic)).payload["payload"], {"private": is_private}, "what it hears")
    await pairs[0][1].present(topic, "track", {})
    equal(list((await pairs[2][1].diff(topic)).payload["joins"]), ["private False"], "who came among the public")
    await pairs[1][1].present(topic, "track", {})
    equal(list((await pairs[3][1].diff(topic)).payload["joins"]), ["private True"], "who came among the private")
    for is_private, peer in pairs:
        events = [m.event for m in await peer.fence() if m.event not in ("phx_reply", "presence_diff")]
        equal(events, [], "what else it hears")


@scenario("who has the reply to its join hears all that is said from then on", settings=LOOPS)
async def right_after_join(stage):
    topic = "realtime:right-after"
    speaker = await sender(stage, "2.0.0", topic)
    for number in range(40):
        peer = await stage.peer(BOTH[number % 2])
        await peer.join(topic, {})
        await speaker.say(topic, "m", {"n": number})
        # What was said just before it joined may still be on its way between the loops.
        while (said := (await peer.broadcast(topic)).payload["payload"]).get("n", -1) < number:
            pass
        equal(said, {"n": number}, "the first that it hears")
        if number % 2:
            await peer.reply(await peer.push(topic, "phx_leave", {}))
            await peer.expect("phx_close", lambda m: m.event == "phx_close")
            await speaker.say(topic, "afterwards", {})
            equal([str(m) for m in await peer.fence()], [], "what it hears after it left")
        await peer.close()


@scenario("what is longer than 255 bytes does not fit kind 4, and comes as text", vsn=BOTH)
async def overflow(stage, vsn):
    long = "ü" * 128
    for topic, event in (("realtime:" + long, "m"), ("realtime:" + "x" * 246, "m"), ("realtime:" + "x" * 247, "m")):
        receiver = await stage.peer(vsn)
        await receiver.join(topic, {})
        # A long topic does not fit kind 3 either; kind 4 is for what the other side may send in one.
        peer = await sender(stage, "2.0.0", topic)
        if len(topic.encode()) <= 255:
            await peer.say_binary(topic, event, {"n": 1})
            message = await receiver.hears(topic, event, {"n": 1})
            equal(message.form, "json" if vsn == "2.0.0" else "text", "its form")
        else:
            await peer.say(topic, event, {"n": 1})
            equal((await receiver.hears(topic, event, {"n": 1})).form, "text", "its form")
    topic = "realtime:long-event"
    receiver = await stage.peer(vsn)
    await receiver.join(topic, {})
    peer = await sender(stage, "2.0.0", topic)
    await peer.say_binary(topic, "e" * 255, {"n": 1})
    await receiver.hears(topic, "e" * 255, {"n": 1})


MALFORMED = {
    "nothing": b"",
    "the kind alone": b"\x03",
    "a head that is cut": b"\x03\x00\x00\x01",
    "lengths beyond the frame": bytes([3, 255, 255, 255, 255, 255, 1]) + b"x" * 20,
    "a payload that is no JSON": user_broadcast("realtime:malformed", "m", b'{"a":', encoding=1),
    "two values": user_broadcast("realtime:malformed", "m", b"{}{}", encoding=1),
    "no value": user_broadcast("realtime:malformed", "m", b"", encoding=1),
    "a payload that is no UTF-8": user_broadcast("realtime:malformed", "m", b'"\xff\xfe"', encoding=1),
    "metadata that is no JSON": user_broadcast("realtime:malformed", "m", {}, metadata=b"{a}"),
    "an event that is no UTF-8": b"\x03\x00\x00\x12\x02\x00\x01realtime:malformed\xff\xfe{}",
    "a topic that is no UTF-8": b"\x03\x00\x00\x03\x01\x00\x01\xff\xfe\xfdm{}",
    "kind 1": bytes([1, 0, 0, 18, 1, 0, 1]) + b"realtime:malformedm{}",
    "kind 2": bytes([2, 18, 1]) + b"realtime:malformedm{}",
    "kind 4": bytes([4, 18, 1, 0, 1]) + b"realtime:malformedm{}",
    "kind 9": bytes([9, 18, 1, 0, 1]) + b"realtime:malformedm{}",
    "kind 0 of a broadcast": bytes([0, 0, 0, 18, 9]) + b"realtime:malformedbroadcast{}",
}


@scenario("binary frames that are none, and those that no receiver could read, are dropped and nothing else happens")
async def malformed(stage):
    topic = "realtime:malformed"
    receivers = await listeners(stage, topic)
    peer = await sender(stage, "2.0.0", topic, ack=True)
    for what, frame in MALFORMED.items():
        await peer.connection.frame(BINARY, frame)
        come = [m for m in await peer.fence() if m.reason != "unmatched topic"]
        equal([str(message) for message in come], [], f"what {what} brings")
    equal((await peer.reply(await peer.say(topic, "m", {}))).status, "ok", "the answer afterwards")
    for receiver in receivers:
        await receiver.hears(topic, "m", {})
    # V1 has no binary frames.
    old = await sender(stage, "1.0.0", topic, ack=True)
    await old.connection.frame(BINARY, user_broadcast(topic, "m", {}))
    await silent([old, peer], "what a binary frame in V1 brings")


@scenario("payloads of text that are no objects are dropped: Swift would give up its connection over them", vsn=BOTH)
async def not_objects(stage, vsn):
    topic = "realtime:not-objects"
    receivers = await listeners(stage, topic)
    peer = await sender(stage, vsn, topic, ack=True)
    for payload in ([], [1], "text", 17, None, True):
        await peer.push(topic, "broadcast", payload)
    await silent([peer, *receivers], "what they bring")
    await peer.reply(await peer.say(topic, "m", {}))
    for receiver in receivers:
        await receiver.hears(topic, "m", {})


@scenario("payloads up to their limit come whole, and larger ones are refused where an ack was asked for", vsn=BOTH, settings={"max_payload_size": "10"})
async def sizes(stage, vsn):
    topic = "realtime:sizes"
    receivers = await listeners(stage, topic)
    quiet = await sender(stage, vsn, topic)
    peer = await sender(stage, vsn, topic, ack=True)
    head = len(json.dumps({"type": "broadcast", "event": "m", "payload": {"t": ""}}))
    for size, fits in ((10_000 - head, True), (10_500 - head, True), (10_501, False), (60_000, False)):
        payload = {"t": "x" * size}
        reply = await peer.reply(await peer.say(topic, "m", payload))
        equal(reply.payload, {"status": "ok", "response": {}} if fits else {"status": "error", "response": {"reason": "payload_size_exceeded"}}, f"the answer to {size}")
        await quiet.say(topic, "m", payload)
        if vsn == "2.0.0":
            reply = await peer.reply(await peer.say_binary(topic, "m", b"x" * (size if fits else 10_501)))
            equal(reply.status, "ok" if fits else "error", f"the answer to {size} bytes")
    await quiet.say(topic, "last", {})
    for receiver in receivers:
        heard = []
        while (message := await receiver.broadcast(topic)).payload["event"] != "last":
            if message.form == "text":
                heard.append(len(message.payload["payload"]["t"]))
        equal(sorted(heard), sorted([10_000 - head, 10_500 - head] * 2), "the sizes that came")
    come = [m for m in await quiet.fence() if m.event != "broadcast"]
    equal([str(m) for m in come], [], "what whoever asked for no ack is told")


@scenario("large broadcasts come whole and in order to everybody", settings=LOOPS)
async def large(stage):
    topic = "realtime:large"
    peers = await listeners(stage, topic, 2)
    peer = await sender(stage, "2.0.0", topic)
    for n in range(4):
        await peer.say(topic, "m", {"n": n, "t": "y" * 900_000})
        await peer.say_binary(topic, "b", {"n": n, "t": "z" * 900_000})
    for receiver in peers:
        heard = [(await receiver.broadcast(topic)).payload for _ in range(8)]
        equal([(one["event"], one["payload"]["n"], len(one["payload"]["t"])) for one in heard],
              [(event, n, 900_000) for n in range(4) for event in "mb"], "what came")  # fmt: skip


@scenario("a topic joined twice by one socket hears once; a channel that was replaced hears no more", vsn=BOTH)
async def replaced(stage, vsn):
    topic = "realtime:replaced"
    peer = await sender(stage, vsn, topic, self=True)
    await peer.join(topic, {"broadcast": {"self": True}})
    if vsn == "2.0.0":
        await peer.expect("phx_close of the old one", lambda m: m.event == "phx_close")
    await peer.say(topic, "m", {"n": 1})
    equal([m.payload.get("payload") for m in await peer.fence()], [{"n": 1}], "what it hears")
    await peer.join(topic, {})
    await peer.say(topic, "m", {"n": 2})
    equal([m.event for m in await peer.fence() if m.event != "phx_close"], [], "what it hears without self")


@scenario("many topics of one socket are kept apart", settings=LOOPS)
async def topics(stage):
    first, second = await stage.peer("1.0.0"), await stage.peer("2.0.0")
    names = [f"realtime:apart-{n}" for n in range(50)] + ["realtime:apart", "realtime:Apart", "realtime:apart "]
    for name in names:
        await first.join(name, {})
        await second.join(name, {})
    for name in names:
        await first.say(name, "m", {"topic": name})
        await second.say_binary(name, "m", {"topic": name})
    for peer in (first, second):
        heard = [await peer.expect("a broadcast", lambda m: m.event == "broadcast") for _ in names]
        equal([(m.topic, m.payload["payload"]["topic"]) for m in heard], [(name, name) for name in names], "what it hears")


@scenario("over several loops whoever is in a topic hears what is said there, and nobody else, whoever comes and goes", settings=LOOPS)
async def model(stage):
    choice = random.Random(11)
    peers = [await stage.peer(BOTH[n % 2], apikey=stage.service) for n in range(12)]
    names = [f"realtime:model-{n}" for n in range(3)]
    #: Of each peer its topics: whether private, whether it hears itself, and after which message it joined.
    joined: list[dict] = [{} for _ in peers]

    async def join(at: int, name: str, said: int):
        config = {"private": choice.random() < 0.5, "broadcast": {"self": choice.random() < 0.5, "ack": True}}
        await peers[at].reply(await peers[at].send_join(name, {"config": config}))
        joined[at][name] = (config["private"], config["broadcast"]["self"], said)

    async def say(at: int, name: str, n: int):
        is_private, hears_itself, _ = joined[at][name]
        push = peers[at].say_binary if peers[at].vsn == "2.0.0" and n % 2 else peers[at].say
        await peers[at].reply(await push(name, "m", {"n": n, "private": is_private}))
        for other, peer in enumerate(peers):
            if name in joined[other] and joined[other][name][0] == is_private and (other != at or hears_itself):
                await peer.expect(f"message {n}", lambda m: m.event == "broadcast" and m.topic == name and m.payload["payload"]["n"] == n)

    for n in range(400):
        at, name = choice.randrange(len(peers)), choice.choice(names)
        if name not in joined[at]:
            await join(at, name, n)
        elif choice.random() < 0.7:
            await say(at, name, n)
        elif choice.random() < 0.5:
            await peers[at].reply(await peers[at].push(name, "phx_leave", {}))
            del joined[at][name]
        elif choice.random() < 0.5:
            # Joined again without leaving, perhaps in the other namespace.
            await join(at, name, n)
        else:
            await peers[at].close()
            peers[at], joined[at] = await stage.peer(BOTH[at % 2], apikey=stage.service), {}
    for at, peer in enumerate(peers):
        for message in await peer.fence():
            if message.event == "broadcast":
                # Somebody who has just joined may hear what was said a moment before, on another loop.
                since = joined[at].get(message.topic, (None, None, 0))[2]
                true(message.payload["payload"]["n"] < since, "no message that is not for it", message)


@scenario("where messages are compressed, whoever offered it is sent broadcasts compressed, and the others plain ones", settings={"deflate": "on", "loops": "2"})
async def compressed(stage):
    topic = "realtime:compressed"
    offer = {"Sec-WebSocket-Extensions": "permessage-deflate; client_no_context_takeover"}
    plain = await listeners(stage, topic, 2)
    squeezed = []
    for vsn in BOTH * 2:
        peer = await stage.peer(vsn, headers=offer)
        inflater = zlib.decompressobj(wbits=-15)

        async def whole(what, limit=None, peer=peer, inflater=inflater):
            frame = await peer.connection.receive_frame(what, limit)
            if frame.reserved == 4:
                peer.inflated = True
                frame.payload = inflater.decompress(frame.payload + b"\0\0\xff\xff")
            return frame

        peer.connection.receive = whole
        await peer.join(topic, {})
        squeezed.append(peer)
    speaker = await sender(stage, "2.0.0", topic)
    for n in range(20):
        await speaker.say_binary(topic, "m", {"n": n, "t": "tidewire " * 400})
        await speaker.say(topic, "m", {"n": n, "t": "tidewire " * 400})
        await speaker.say(topic, "short", {"n": n})
    for peer in (*plain, *squeezed):
        heard = [(await peer.broadcast(topic)).payload["payload"]["n"] for _ in range(60)]
        equal(heard, [n for n in range(20) for _ in range(3)], "what is heard")
    equal([getattr(peer, "inflated", False) for peer in squeezed], [True] * 4, "whether it came compressed")
