"""Clients that mean harm, or might as well. Afterwards the hub serves others, and its memory comes back."""

import asyncio
import contextlib
import decimal
import json
import os
import random
import resource
import struct
import urllib.request

from clients.expect import Failure, equal, fail, true, within
from clients.peer import Peer, binding
from clients.scenario import published, scenario
from clients.wire import BINARY, TEXT, Closed, Connection

MIB = 1 << 20
#: Two descriptors of the machine for each connection, one of them ours; the hub's own limit is another process's.
CROWD = int(os.environ.get("TW_CROWD", "10000"))


async def serves(stage, table: str = "h_alive"):
    """Somebody new joins and hears a change."""
    peer = await stage.peer()
    await peer.subscribe("realtime:alive", binding(table))
    await stage.database.run(f"INSERT INTO {table} DEFAULT VALUES", f"DELETE FROM {table}")
    heard = (await peer.change("realtime:alive")).data["type"]
    # What was committed shortly before a join may come, too: the end of a former call.
    while heard == "DELETE":
        heard = (await peer.change("realtime:alive")).data["type"]
    equal(heard, "INSERT", "what somebody new hears")
    await peer.close()


ALIVE = published("h_alive", "id serial PRIMARY KEY")


async def settled(stage, before: int, allowance: int, what: str):
    """Memory is given back, within a moment and what an allocator keeps at hand."""
    for _ in range(300):
        now = stage.hub.memory()
        if now <= before + allowance:
            return
        await asyncio.sleep(0.1)
    fail(f"memory after {what} within {allowance // MIB} MiB of the {before // MIB} MiB before", f"{now // MIB} MiB")


async def files_settled(stage, before: int):
    for _ in range(300):
        now = stage.hub.open_files()
        if now <= before + 5:
            return
        await asyncio.sleep(0.1)
    fail(f"about the {before} open files of before", f"{now}")


async def fell_behind(stage, count: int):
    for _ in range(400):
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://127.0.0.1:{stage.hub.port}/metrics", timeout=10).read().decode())
        fallen = sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("tidewire_connections_fell_behind_total"))
        if fallen >= count:
            return
        await asyncio.sleep(0.1)
    fail(f"{count} connections that fell behind", f"{fallen}")


@scenario("who reads nothing is cut off; the others hear everything and memory stays bounded", own_hub=True, settings={"outbox_age": "3s"}, tables=[*ALIVE, *published("h_slow", "n int PRIMARY KEY, filler text")])
async def slow_reader(stage):
    await serves(stage)
    slow = [await stage.peer(buffer=4096) for _ in range(20)]
    for peer in slow:
        await peer.subscribe("realtime:slow", binding("h_slow"))
    quick = await stage.peer()
    await quick.subscribe("realtime:slow", binding("h_slow"))
    before = stage.hub.memory()
    for part in range(20):
        await stage.database.run(f"INSERT INTO h_slow SELECT {part} * 100 + i, repeat('x', 10000) FROM generate_series(0, 99) i")
        for number in range(100):
            equal((await quick.change("realtime:slow")).data["record"]["n"], part * 100 + number, "what the quick one hears")
    await settled(stage, before, 64 * MIB, "20 readers that do not read 20 MB")
    # Who reads takes something: nobody does before all have been given up.
    await fell_behind(stage, len(slow))
    for peer in slow:
        end = await peer.connection.closed("the end of a slow reader's connection")
        true(end.code is None or 1000 <= end.code < 4000, "a close below 4000, or none that still fitted", str(end))
    await serves(stage)


@scenario("connections that say nothing more are let go of", own_hub=True, settings={"idle_timeout": "2s"}, tables=ALIVE)
async def half_open(stage):
    await serves(stage)
    files = stage.hub.open_files()
    silent = [await stage.peer() for _ in range(50)]
    for peer in silent[:25]:
        await peer.join("realtime:silent", {})
        # As when a phone loses its network: nothing comes any more, not even an end.
        peer.connection.writer.transport.pause_reading()
    reset = [await stage.connection() for _ in range(200)]
    for connection in reset:
        connection.writer.get_extra_info("socket").setsockopt(1, 13, struct.pack("ii", 1, 0))
        connection.abort()
    # Those that have not even asked for anything.
    for _ in range(50):
        await (await stage.connection()).send(b"GET ")
    for peer in silent[25:]:
        await peer.connection.expect_close(1000, "nothing comes any more")
    for _ in range(900):
        if stage.hub.open_files() <= files + 5:
            break
        await asyncio.sleep(0.1)
    await files_settled(stage, files)
    await serves(stage)


async def crowd_member(stage, target: str, results: dict):
    try:
        connection = await stage.connection()
        response = await connection.upgrade(stage.hub, target)
        results[response.status] = results.get(response.status, 0) + 1
        return connection
    except Exception as error:
        name = type(error).__name__
        results[name] = results.get(name, 0) + 1
        return None


@scenario("thousands connect at once, join, and go at once", own_hub=True, tables=ALIVE)
async def crowd(stage):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    size = min(CROWD, hard - 500)
    # One crowd before, so that what is compared afterwards is a hub that has seen one.
    before = files = 0
    for turn in range(2):
        await serves(stage)
        if turn == 1:
            before, files = stage.hub.memory(), stage.hub.open_files()
        results: dict = {}
        target = f"{stage.hub.path}?apikey={stage.anon}&vsn=2.0.0"
        connections = await asyncio.gather(*(crowd_member(stage, target, results) for _ in range(size)))
        equal(results, {101: size}, f"the outcome of {size} upgrades at once")
        peers = [Peer(connection, "2.0.0") for connection in connections]
        for peer in peers:
            await peer.send_join("realtime:crowd", {"config": {"postgres_changes": [binding("h_alive", "INSERT")]}})
        for peer in peers:
            await peer.subscribed("realtime:crowd")
        await stage.database.run("INSERT INTO h_alive DEFAULT VALUES")
        for peer in peers:
            await peer.change("realtime:crowd")
        for peer in peers:
            peer.connection.abort()
    await files_settled(stage, files)
    await settled(stage, before, 64 * MIB, f"{size} clients")
    await serves(stage)


@scenario("thousands of joins on one socket are limited, and forgotten with it", own_hub=True, tables=ALIVE)
async def many_joins(stage):
    await serves(stage)
    before = stage.hub.memory()
    for turn in range(5):
        peer = await stage.peer()
        bindings = [binding("h_alive", "INSERT", filter=f"id=eq.{number}") for number in range(50)]
        # Answers are read while we send: whoever does not read is another scenario.
        sending = asyncio.create_task(send_joins(peer, bindings))
        replies = {"ok": 0, "error": 0}
        while sum(replies.values()) < 3000:
            message = await peer.next("a reply to one of 3,000 joins")
            if message.event == "phx_reply":
                replies[message.status] += 1
        await sending
        equal(replies, {"ok": 100, "error": 2900}, "how many of 3,000 joins succeed")
        peer.connection.abort()
    await settled(stage, before, 64 * MIB, "15,000 joins")
    await serves(stage)


async def send_joins(peer: Peer, bindings, count=3000):
    for number in range(count):
        await peer.send_join(f"realtime:join-{number}", {"config": {"postgres_changes": bindings}})


@scenario("large joins that come faster than they are read are all answered", own_hub=True, tables=ALIVE)
async def joins_in_a_row(stage):
    await serves(stage)
    bindings = [binding("h_alive", "INSERT", filter=f"id=eq.{number}") for number in range(100)]
    peers = [await stage.peer() for _ in range(4)]
    # A kernel that was filled announces room again only when a sixteenth of what it may keep is free, and that may be
    # megabytes: with many more, senders wait for longer than anybody is patient with.
    count = 150

    async def ask(peer: Peer):
        sending = asyncio.create_task(send_joins(peer, bindings, count))
        answers = 0
        while answers < count:
            answers += (await peer.next("an answer")).event == "phx_reply"
        await sending

    await asyncio.gather(*(ask(peer) for peer in peers))
    await serves(stage)


@scenario("joining and leaving for ever leaves nothing behind", own_hub=True, tables=ALIVE)
async def joining_and_leaving(stage):
    peer = await stage.peer()
    before = None
    for number in range(4000):
        topic = f"realtime:visit-{number}"
        await peer.join(topic, {"postgres_changes": [binding("h_alive", filter=f"id=eq.{number}")]})
        reference = await peer.push(topic, "phx_leave", {})
        await peer.reply(reference)
        await peer.expect("phx_close", lambda m, t=topic: m.topic == t and m.event == "phx_close")
        peer.waiting.clear()
        peer.join_refs.clear()
        if number == 1000:
            before = stage.hub.memory()
    await settled(stage, before, 16 * MIB, "3,000 visits")
    await serves(stage)


@scenario("frames that promise much and deliver little hold no memory", own_hub=True, tables=ALIVE)
async def promises(stage):
    await serves(stage)
    before = stage.hub.memory()
    connections = []
    for _ in range(500):
        peer = await stage.peer()
        await peer.connection.send(struct.pack("!BBQ", 0x81, 0x80 | 127, 4_900_000) + b"mask" + b"x" * 1000)
        connections.append(peer.connection)
    true(stage.hub.memory() <= before + 256 * MIB, "memory by what came, not by what was promised", f"{stage.hub.memory() // MIB} MiB, {before // MIB} MiB before")
    await serves(stage)
    for connection in connections:
        connection.abort()
    await settled(stage, before, 64 * MIB, "500 promises of 4.9 MB")


@scenario("messages that are begun and not finished take a bounded memory, and nobody else's", own_hub=True, tables=ALIVE)
async def unfinished(stage):
    await serves(stage)
    before = stage.hub.memory()
    connections, refused = [], 0
    for number in range(120):
        peer = await stage.peer()
        connection = peer.connection
        connections.append(connection)
        with contextlib.suppress(ConnectionError):
            if number % 2:
                await connection.send(struct.pack("!BBQ", 0x81, 0x80 | 127, 4_900_000) + b"mask" + b"x" * 4_800_000)
            else:
                # In two fragments, of which the second never ends.
                await connection.frame(0x1, b"x" * 2_400_000, final=False)
                await connection.send(struct.pack("!BBQ", 0x80, 0x80 | 127, 2_400_000) + b"mask" + b"x" * 2_300_000)
    for connection in connections:
        with contextlib.suppress(TimeoutError, Failure, ConnectionError):
            await within(connection.closed("a close for what there is no room for"), 0.02)
            refused += 1
    true(stage.hub.memory() <= before + 160 * MIB, "memory by the budget", f"{stage.hub.memory() // MIB} MiB, {before // MIB} MiB before")
    true(refused >= 60, "at least half of 120 messages of 4.9 MB refused", str(refused))
    await serves(stage)
    for connection in connections:
        connection.abort()
    await settled(stage, before, 64 * MIB, "120 unfinished messages of 4.9 MB")
    # There is room again.
    peer = await stage.peer()
    await peer.join("realtime:large")
    await peer.connection.text(b'[null,"1","realtime:large","broadcast",{"type":"broadcast","event":"e","payload":{"x":"' + b"y" * 2_000_000 + b'"}}]')
    await serves(stage)


@scenario("oversized frames, again and again", own_hub=True, tables=ALIVE)
async def oversized(stage):
    await serves(stage)
    before = stage.hub.memory()
    for size in (5_000_001, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1):
        for _ in range(20):
            peer = await stage.peer()
            await peer.connection.send(struct.pack("!BBQ", 0x82, 0x80 | 127, size) + b"mask")
            end = await peer.connection.closed("a close for a frame that is too large")
            # A length with its highest bit set is against RFC 6455 itself.
            true(end.code in (1009, 1002), "1009, or 1002 beyond 2^63", str(end))
    await settled(stage, before, 64 * MIB, "frames that are too large")
    await serves(stage)


@scenario("random bytes before and after the upgrade", own_hub=True, tables=ALIVE)
async def noise(stage):
    seed = int(os.environ.get("SEED", random.randrange(1 << 32)))
    print(f"         SEED={seed}")
    source = random.Random(seed)
    await serves(stage)
    before = stage.hub.memory()
    for _ in range(300):
        connection = await Connection.open(stage.hub)
        try:
            await connection.send(source.randbytes(source.randrange(1, 4000)))
        except ConnectionError:
            pass
        connection.abort()
    for _ in range(300):
        peer = await Peer.open(stage.hub, stage.anon)
        try:
            for _ in range(5):
                await peer.connection.send(source.randbytes(source.randrange(1, 500)))
        except ConnectionError:
            pass
        peer.connection.abort()
    peer = await stage.peer()
    peer.refs_made_of = (str, int, decimal.Decimal)
    for _ in range(2000):
        data = bytearray(b'["1","2","realtime:noise","phx_join",{"config":{"postgres_changes":[{"event":"*"}]}}]')
        for _ in range(source.randrange(1, 6)):
            data[source.randrange(len(data))] = source.randrange(256)
        await peer.connection.frame(source.choice((TEXT, TEXT, BINARY)), bytes(data))
        peer.waiting.clear()
    # Whatever it made of that, it is still there, and in order.
    await peer.push("phoenix", "heartbeat", {}, ref="the end", join_ref=None)
    while (await peer.next("the answer to a heartbeat after noise")).ref != "the end":
        pass
    await settled(stage, before, 64 * MIB, "noise")
    await serves(stage)


@scenario("whoever asks without end and never reads is stopped", own_hub=True, tables=ALIVE)
async def never_reads(stage):
    await serves(stage)
    before = stage.hub.memory()
    peers = [await stage.peer(buffer=4096) for _ in range(10)]

    async def ask(peer):
        data = peer.connection.encoded(TEXT, b'[null,"' + b"r" * 1000 + b'","phoenix","heartbeat",{}]') * 50
        try:
            for _ in range(2000):
                peer.connection.writer.write(data)
                await within(peer.connection.writer.drain(), 2)
        except (ConnectionError, TimeoutError, Closed):
            pass

    await asyncio.gather(*(ask(peer) for peer in peers))
    true(stage.hub.memory() <= before + 256 * MIB, "bounded memory", f"{stage.hub.memory() // MIB} MiB, {before // MIB} MiB before")
    await serves(stage)
    for peer in peers:
        peer.connection.abort()
    await settled(stage, before, 64 * MIB, "clients that never read")


@scenario("no descriptors left: who is in is served, others are turned away, and there is room again when they go", own_hub=True, tables=ALIVE)
async def no_descriptors(stage):
    await serves(stage)
    process = stage.hub.process_id
    files = stage.hub.open_files()
    old = resource.prlimit(process, resource.RLIMIT_NOFILE)
    resource.prlimit(process, resource.RLIMIT_NOFILE, (stage.hub.largest_table() + 20, old[1]))
    early = await stage.peer()
    connections = []
    for _ in range(100):
        with contextlib.suppress(ConnectionError):
            connections.append(await Connection.open(stage.hub))
    equal(await early.fence(), [], "what one who is in already hears while others wait")
    kept = stage.hub.open_files()
    true(kept < files + 100, "not all hundred taken in", f"{kept} open files, {files} before")
    for connection in connections:
        connection.abort()
    await files_settled(stage, files + 1)
    await serves(stage)
    resource.prlimit(process, resource.RLIMIT_NOFILE, old)
    await files_settled(stage, files + 1)


#: Some segments of a megabyte, each of a few transactions.
LARGE_ROWS = 300


@scenario("a segment begins while no descriptors are left: nobody misses a row, and the hub serves again when the crowd has gone", own_hub=True, tables=[*ALIVE, *published("h_large", "n int PRIMARY KEY, filler text")])
async def no_descriptors_for_a_segment(stage):
    await serves(stage)
    early = [await stage.peer() for _ in range(4)]
    for peer in early:
        await peer.subscribe("realtime:large", binding("h_large"))
    watchers = [await stage.connection() for _ in range(4)]
    process = stage.hub.process_id
    old = resource.prlimit(process, resource.RLIMIT_NOFILE)
    # The writer has a table of its own, with room for what it opens.
    resource.prlimit(process, resource.RLIMIT_NOFILE, (stage.hub.largest_table() + 40, old[1]))
    crowd = []
    for _ in range(300):
        with contextlib.suppress(ConnectionError):
            crowd.append(await Connection.open(stage.hub))
    # As many as it takes in: the others wait before its door.
    kept = -1
    while kept != stage.hub.open_files():
        kept = stage.hub.open_files()
        await asyncio.sleep(0.5)
    for n in range(0, LARGE_ROWS, 10):
        await stage.database.run(f"INSERT INTO h_large SELECT i, repeat(md5(i::text), 320) FROM generate_series({n}, {n + 9}) i")
    await within(told_unready(watchers), 120)
    for connection in crowd:
        connection.abort()
    gone = asyncio.get_running_loop().time()
    for peer in early:
        for n in range(LARGE_ROWS):
            equal((await peer.change("realtime:large")).data["record"]["n"], n, "what one who stayed hears")
        equal(await peer.fence(), [], "what one who stayed hears beside that")
    await within(is_ready(stage), 120)
    print(f"    served again {asyncio.get_running_loop().time() - gone:.1f} s after the crowd had gone")
    resource.prlimit(process, resource.RLIMIT_NOFILE, old)
    await serves(stage)


async def told_unready(watchers):
    while True:
        for watcher in watchers:
            response = await watcher.request("GET", "/ready", {"host": "hub"})
            report = json.loads(response.body)
            if not report["log_readable"]:
                equal((response.status, report["ready"]), (503, False), "what it says of itself")
                true("Too many open files" in report["trouble"], "the reason", report["trouble"])
                return
        await asyncio.sleep(0.1)


async def is_ready(stage):
    while True:
        with contextlib.suppress(ConnectionError):
            connection = await stage.connection()
            if (await connection.request("GET", "/ready", {"host": "hub"})).status == 200:
                return
        await asyncio.sleep(0.1)
