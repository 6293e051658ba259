"""Those who say too much, to too many, too slowly or in pieces: broadcasts, presence, requests. The others are not late, and
nothing stays behind."""

import asyncio
import json
import os
import random
import struct

from clients.expect import equal, true
from clients.peer import user_broadcast
from clients.scenario import BOTH, scenario
from clients.wire import BINARY
from conformance.presence import View, enabled
from conformance.private import TROUBLE
from conformance.rest import BATCH, post, single
from hostile.crowds import CROWD, MIB, settled

UNLIMITED = {"max_events_per_second": "0", "max_joins_per_second": "0", "max_presence_events_per_second": "0", "max_client_presence_events_per_window": "0"}
# Forty clients in one process read no faster than the machine lets them: that is not what is looked at.
PATIENT = {"outbox_size": "128MB", "outbox_age": "300s"}


async def serves(stage):
    """Two who are new hear each other and see each other."""
    first, second = [await stage.peer(vsn) for vsn in BOTH]
    for peer in (first, second):
        await peer.join("realtime:voices-alive", enabled("one"))
    await first.say("realtime:voices-alive", "m", {})
    await second.hears("realtime:voices-alive", "m", {})
    await first.reply(await first.present("realtime:voices-alive", "track", {}))
    await second.diff("realtime:voices-alive")
    for peer in (first, second):
        await peer.close()


@scenario("broadcasts to slow readers: they are cut off, the others hear everything, in order and in time", own_hub=True, settings=UNLIMITED | {"outbox_size": "1MB", "loops": "2"})
async def slow_readers(stage):
    await serves(stage)
    topic = "realtime:slow"
    slow = [await stage.peer(buffer=4096) for _ in range(20)]
    quick = [await stage.peer(vsn) for vsn in BOTH]
    bystander = await stage.peer()
    await bystander.join("realtime:beside", {"broadcast": {"self": True}})
    sender = await stage.peer()
    for peer in (*slow, *quick, sender):
        await peer.join(topic, {})
    before = stage.hub.memory()
    for n in range(400):
        await sender.say_binary(topic, "m", {"n": n, "t": "x" * 50_000})
        if n % 40 == 0:
            await bystander.say("realtime:beside", "m", {"n": n})
            await bystander.hears("realtime:beside", "m", {"n": n}, "what a bystander says to itself")
        for peer in quick:
            equal((await peer.broadcast(topic)).payload["payload"]["n"], n, "what a quick one hears")
    await settled(stage, before, 64 * MIB, "20 readers that do not read 20 MB")
    for peer in slow:
        end = await peer.connection.closed("the end of a slow reader's connection")
        true(end.code is None or 1000 <= end.code < 4000, "a close below 4000, or none that still fitted", str(end))
    await serves(stage)


@scenario("presence without end: all views become the same, and what was there is gone with those who said it", own_hub=True, settings=UNLIMITED | PATIENT | {"loops": "2"})
async def presence_flood(stage):
    await serves(stage)
    topic = "realtime:presence-flood"
    watchers = []
    for vsn in BOTH * 2:
        peer = await stage.peer(vsn)
        await peer.join(topic, enabled("watcher"))
        await peer.state(topic)
        watchers.append(View(peer, topic, was_told=True))
    before = stage.hub.memory()
    peers = [await stage.peer(BOTH[n % 2]) for n in range(40)]
    for n, peer in enumerate(peers):
        await peer.join(topic, enabled(f"k{n % 10}"))

    async def flood(n: int, peer):
        for value in range(100):
            await peer.present(topic, "track", {"v": value, "t": "x" * 200})
            if value % 10 == 0:
                peer.waiting.clear()
                await peer.fence()

    async def read():
        for _ in range(60):
            for view in watchers:
                await view.read()
            await asyncio.sleep(0.02)

    await asyncio.gather(read(), *(flood(n, peer) for n, peer in enumerate(peers)))
    wanted = {f"k{n}": [99] * 4 for n in range(10)}
    for view in watchers:
        while view.shown() != wanted:
            view.take(await view.peer.next("the rest of the differences"))
    for peer in peers:
        peer.connection.abort()
    for view in watchers:
        while view.shown():
            view.take(await view.peer.next("differences of those who went"))
    await settled(stage, before, 64 * MIB, "4,000 changes of presence")
    await serves(stage)


@scenario("one socket in thousands of topics: each is its own, and all are forgotten with it", own_hub=True, settings=UNLIMITED | {"max_channels_per_client": str(min(10_000, CROWD)), "loops": "2"})
async def many_topics(stage):
    await serves(stage)
    before = stage.hub.memory()
    peer, other = await stage.peer(), await stage.peer("1.0.0")
    count = min(10_000, CROWD)

    async def joins():
        for n in range(count):
            await peer.send_join(f"realtime:many-{n}", {"config": {"broadcast": {"self": True}}})

    sending = asyncio.create_task(joins())
    for _ in range(count):
        equal((await peer.next("a reply to one of thousands of joins")).status, "ok", "its status")
    await sending
    equal(await peer.refused("realtime:one-more"), "ChannelRateLimitReached: Too many channels", "why not one more")
    await other.join(f"realtime:many-{count - 1}", {})
    for n in (0, 17, count - 2, count - 1):
        await peer.say(f"realtime:many-{n}", "m", {"n": n})
        await peer.hears(f"realtime:many-{n}", "m", {"n": n})
    await other.hears(f"realtime:many-{count - 1}", "m", {"n": count - 1})
    messages = [{"topic": f"many-{n}", "event": "rest", "payload": {}} for n in range(0, count, 10)]
    equal((await post(stage, BATCH, {"messages": messages})).status, 202, "the status of a batch to a tenth of them")
    heard = [(await peer.expect("a broadcast", lambda m: m.event == "broadcast")).topic for _ in messages]
    equal(heard, [f"realtime:{m['topic']}" for m in messages], "where they are heard")
    peer.connection.abort()
    await settled(stage, before, 64 * MIB, f"{count} topics")
    await serves(stage)


@scenario("coming, tracking and going for ever leaves nothing behind", own_hub=True, settings=UNLIMITED | {"loops": "2"})
async def coming_and_going(stage):
    before = None
    peer = await stage.peer()
    for n in range(1500):
        topic = f"realtime:visit-{n}-{'x' * 200}"
        await peer.join(topic, enabled(f"key-{n}"))
        await peer.present(topic, "track", {"t": "y" * 500, "n": n})
        await peer.say(topic, "m", {})
        await peer.reply(await peer.push(topic, "phx_leave", {}))
        peer.waiting.clear()
        peer.join_refs.clear()
        if n == 500:
            before = stage.hub.memory()
    await settled(stage, before, 16 * MIB, "1,000 visits")
    await serves(stage)


@scenario("broadcasts of five megabytes are refused or heard, and memory comes back", own_hub=True, settings=UNLIMITED)
async def huge(stage):
    await serves(stage)
    topic = "realtime:huge"
    receiver, sender = await stage.peer(), await stage.peer()
    await receiver.join(topic, {})
    await sender.join(topic, {"broadcast": {"ack": True}})
    before = stage.hub.memory()
    for _ in range(10):
        for size, status in ((2_900_000, "ok"), (4_900_000, "error")):
            ref = await sender.say_binary(topic, "m", b"x" * size)
            equal((await sender.reply(ref)).status, status, f"the answer to {size} bytes")
            if status == "ok":
                equal(len((await receiver.broadcast(topic)).payload["payload"]), size, "what is heard")
    await settled(stage, before, 64 * MIB, "huge broadcasts")
    for frames in range(3):
        peer = await stage.peer()
        await peer.join(topic, {})
        await peer.connection.send(struct.pack("!BBQ", 0x82, 0x80 | 127, 5_000_001) + b"mask" + b"\x03" * 1000)
        await peer.connection.expect_close(1009, "its frame is too large")
    await serves(stage)


@scenario("what is said before rights are known is bounded, and nobody else waits for it", own_hub=True, tables=TROUBLE, settings=UNLIMITED)
async def before_rights(stage):
    await serves(stage)
    before = stage.hub.memory()
    peers = []
    for n in range(5):
        peer = await stage.peer()
        await peer.join(f"realtime:write-hangs:{n}", {"private": True, "broadcast": {"ack": True}}, access_token=stage.ana)
        peers.append(peer)
    for peer in peers:
        (topic,) = peer.join_refs
        for _ in range(2000):
            await peer.say(topic, "m", {"t": "x" * 2000})
    await serves(stage)
    for peer in peers:
        equal([m.event for m in await peer.fence()], [], "what it is told")
    await settled(stage, before, 64 * MIB, "10,000 messages that may not be said")
    await serves(stage)


@scenario("requests that are slow, that stop, that lie about their length, that never end", own_hub=True, settings=UNLIMITED)
async def requests(stage):
    await serves(stage)
    before, files = stage.hub.memory(), stage.hub.open_files()
    head = f"POST {BATCH} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {stage.anon}\r\nContent-Type: application/json\r\n"
    slow = []
    for n in range(200):
        connection = await stage.connection()
        await connection.send(f"{head}Content-Length: 7000000\r\n\r\n".encode() + b'{"messages":[' + b" " * 1000)
        slow.append(connection)
    true(stage.hub.memory() <= before + 256 * MIB, "memory by what came, not by what was promised", f"{stage.hub.memory() // MIB} MiB")
    await serves(stage)
    wrong = {
        "both lengths": "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "two lengths": "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "a negative length": "Content-Length: -5\r\n\r\nhello", "a length that overflows": "Content-Length: 99999999999999999999999\r\n\r\n",
        "a chunk that is none": "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "a chunk that overflows": "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        "a chunk that goes on": "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", "a coding nobody knows": "Transfer-Encoding: gzip\r\n\r\n",
        "a chunk's extension without end": "Transfer-Encoding: chunked\r\n\r\n1;" + "x" * 100_000,
    }  # fmt: skip
    for what, rest in wrong.items():
        connection = await stage.connection()
        try:
            await connection.send(f"{head}{rest}".encode())
            response = await connection.response()
        except ConnectionError:
            continue
        true(400 <= response.status < 502, f"a refusal of {what}", response)
        connection.abort()
    # Deep, wide, and large, but within the limit.
    for body in (b'{"messages":' + b"[" * 100_000, b'{"messages":[' + b'{"a":' * 100_000, b"[" * 7_000_000):
        equal((await post(stage, BATCH, body)).status, 400, "the status of brackets without end")
    message = {"topic": "voices", "event": "m", "payload": {"t": "x" * 700}}
    bodies = json.dumps({"messages": [message] * 9_000}).encode()
    for response in await asyncio.gather(*(post(stage, BATCH, bodies) for _ in range(8))):
        true(response.status in (202, 413, 429), "an answer to 9,000 messages", response)
    for connection in slow:
        connection.abort()
    for _ in range(300):
        if stage.hub.open_files() <= files + 5:
            break
        await asyncio.sleep(0.1)
    await settled(stage, before, 48 * MIB, "slow and large requests")
    await serves(stage)


@scenario("noise in binary frames and in requests", own_hub=True, settings=UNLIMITED)
async def noise(stage):
    seed = int(os.environ.get("SEED", random.randrange(1 << 32)))
    print(f"         SEED={seed}")
    source = random.Random(seed)
    topic = "realtime:noise"
    receivers = [await stage.peer(vsn) for vsn in BOTH]
    for peer in receivers:
        await peer.join(topic, enabled("r"))
    peer = await stage.peer()
    await peer.join(topic, {})
    for _ in range(3000):
        frame = bytearray(user_broadcast(topic, "m", {"a": [1, "x"]}, "7", "1", b'{"x":1}'))
        for _ in range(source.randrange(1, 4)):
            frame[source.randrange(len(frame))] = source.randrange(256)
        await peer.connection.frame(BINARY, bytes(frame[: source.randrange(1, len(frame) + 1)] if source.random() < 0.3 else frame))
    # What the receivers hear of it, if anything, is judged as all messages are: it can be read.
    for one in (peer, *receivers):
        await one.push("phoenix", "heartbeat", {}, ref="the end", join_ref=None)
        while (await one.next("the answer to a heartbeat")).ref != "the end":
            pass
    text = (f"POST {single('noise', 'm')} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {stage.anon}\r\n"
            "Content-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\":1}").encode()  # fmt: skip
    for _ in range(300):
        data = bytearray(text)
        for _ in range(source.randrange(1, 5)):
            data[source.randrange(len(data))] = source.randrange(256)
        connection = await stage.connection()
        try:
            await connection.send(bytes(data))
        except ConnectionError:
            pass
        connection.abort()
    await serves(stage)
