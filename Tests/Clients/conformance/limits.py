"""Every limit of §7 with its texts, that bursts are let pass, and what whoever asks for it is told. Checklist 21 and 22, trap 19."""

import asyncio
import json
import urllib.parse

from clients.expect import equal, true
from clients.scenario import BOTH, scenario
from conformance.private import READ_ONLY
from conformance.rest import batch, post, single

TOO_MANY_MESSAGES = "Too many messages per second"
TOO_MUCH_PRESENCE = "Too many presence messages per second"


async def afresh(stage):
    """A hub whose rates are not used up, for whoever comes next."""
    await stage.closing.aclose()
    await stage.hub.restart()


async def upgrade(stage, vsn: str = "2.0.0"):
    """The answer to an upgrade that may be refused."""
    connection = await stage.connection()
    query = urllib.parse.urlencode({"apikey": stage.anon, "vsn": vsn})
    response = await connection.upgrade(stage.hub, f"{stage.hub.path}?{query}")
    if response.status == 101:
        return 101, None
    return response.status, json.loads(response.body)


@scenario("users: sockets that have joined are counted until they end; who is one too many is told", settings={"max_concurrent_users": "2"})
async def users(stage):
    early = [await stage.peer(vsn) for vsn in BOTH]
    counted = [await stage.peer(vsn) for vsn in BOTH]
    for peer in counted:
        await peer.join("realtime:users", {})
    equal(await upgrade(stage), (429, {"error": "Too many connected users"}), "the answer to one more")
    for peer in early:
        why = await peer.refused("realtime:users")
        equal(why, "ConnectionRateLimitReached: Too many connected users", "why one may not join who was connected before")
    # Another channel of a socket that is counted is no other user, and leaving makes no room.
    await counted[0].join("realtime:users-2", {})
    for topic in ("realtime:users", "realtime:users-2"):
        await counted[0].push(topic, "phx_leave", {})
    await counted[0].fence()
    equal((await upgrade(stage))[0], 429, "the status after leaving")
    await counted[0].join("realtime:users", {})
    await counted[1].close()
    for _ in range(200):
        ref = await early[0].send_join("realtime:users", {"config": {}})
        if (await early[0].reply(ref)).status == "ok":
            break
        await asyncio.sleep(0.02)
    else:
        true(False, "room once a socket has ended", "none")
    why = await early[1].refused("realtime:users")
    equal(why, "ConnectionRateLimitReached: Too many connected users", "why the next may not")


@scenario("checklist 22: channels of one socket, and room again when one is left", vsn=BOTH, settings={"max_channels_per_client": "3"})
async def channels(stage, vsn):
    peer = await stage.peer(vsn)
    for n in range(3):
        await peer.join(f"realtime:c-{n}", {})
    equal(await peer.refused("realtime:c-3"), "ChannelRateLimitReached: Too many channels", "why")
    # Joined again, it is the same channel.
    await peer.join("realtime:c-0", {})
    await peer.fence()
    await peer.reply(await peer.push("realtime:c-1", "phx_leave", {}))
    await peer.join("realtime:c-3", {})
    other = await stage.peer(vsn)
    await other.join("realtime:c-3", {})


@scenario("joins: bursts are let pass; then the join is refused, its socket closed, and upgrades too", vsn=BOTH, settings={"max_joins_per_second": "3"})
async def joins(stage, vsn):
    refused = None
    for n in range(200):
        peer = await stage.peer(vsn) if n % 20 == 0 else peer
        ref = await peer.send_join(f"realtime:j-{n}", {"config": {}})
        reply = await peer.reply(ref)
        if reply.status == "error":
            refused = n
            break
    true(refused is not None and refused >= 6, "a refusal, and not within the first seconds' worth", refused)
    equal(reply.reason, "ClientJoinRateLimitReached: Too many joins per second", "why")
    await peer.connection.expect_close(1001, "of its joins")
    equal(await upgrade(stage, vsn), (429, {"error": "Too many joins per second"}), "the answer to an upgrade")
    await afresh(stage)


@scenario("messages: short bursts beyond the rate are let pass", vsn=BOTH, settings={"max_events_per_second": "100"})
async def bursts(stage, vsn):
    topic = "realtime:burst"
    sender, receiver = await stage.peer(vsn), await stage.peer(vsn)
    for peer in (sender, receiver):
        await peer.join(topic, {})
    for n in range(250):
        await sender.say(topic, "m", {"n": n})
    equal([(await receiver.broadcast(topic)).payload["payload"]["n"] for _ in range(250)], list(range(250)), "what came")
    equal([str(m) for m in await sender.fence()], [], "what the sender is told")
    await afresh(stage)


@scenario("messages: a project that says too much loses the channels that say it; what was accepted is heard by all", vsn=BOTH, settings={"max_events_per_second": "5"})
async def messages(stage, vsn):
    topic = "realtime:flood"
    sender, bystander = [await stage.peer(vsn) for _ in range(2)]
    # On all loops.
    receivers = [await stage.peer(vsn) for _ in range(6)]
    for peer in (sender, *receivers):
        await peer.join(topic, {"broadcast": {"ack": True}})
        await peer.join("realtime:quiet", {})
    await bystander.join("realtime:elsewhere", {})
    for n in range(200):
        await sender.say(topic, "m", {"n": n})
    equal(await sender.ended(topic), TOO_MANY_MESSAGES, "what the sender is told")
    response = await batch(stage, {"topic": "flood", "event": "m", "payload": {}})
    equal((response.status, json.loads(response.body)), (429, {"message": "Too many requests"}), "the answer to a request")
    equal(response.headers.get("x-rate-limit-remaining"), "0", "what is left")
    accepted = [m for m in sender.waiting if m.event == "phx_reply" and m.topic == topic and m.status == "ok"]
    true(len(accepted) >= 5, "a burst to be accepted", len(accepted))
    for receiver in receivers:
        heard = [(await receiver.broadcast(topic)).payload["payload"]["n"] for _ in accepted]
        equal(heard, list(range(len(accepted))), "what is heard")
        equal([str(m) for m in await receiver.fence()], [], "what else comes")
    for peer in (sender, bystander):
        equal([m.event for m in await peer.fence() if m.event in ("phx_error",)], [], "errors of others")
    # The others of its sockets are there.
    equal((await bystander.reply(await bystander.push("realtime:elsewhere", "phx_leave", {}))).status, "ok", "a bystander")
    equal((await sender.reply(await sender.push("realtime:quiet", "phx_leave", {}))).status, "ok", "its other channel")
    ref = await sender.say(topic, "m", {})
    equal((await sender.reply(ref)).reason, "unmatched topic", "the answer on the closed one")
    await afresh(stage)


@scenario("messages: events nobody knows count too", settings={"max_events_per_second": "5"})
async def unknown_events(stage):
    peer = await stage.peer()
    await peer.join("realtime:unknown", {})
    for _ in range(200):
        await peer.push("realtime:unknown", "whatever", {})
    equal(await peer.ended("realtime:unknown"), TOO_MANY_MESSAGES, "what it is told")
    await afresh(stage)


@scenario("presence of the project: too much of it ends the channel that brings it", vsn=BOTH, settings={"max_presence_events_per_second": "3", "max_client_presence_events_per_window": "0"})
async def presence(stage, vsn):
    topic = "realtime:presence"
    peer = await stage.peer(vsn)
    await peer.join(topic, {})
    for n in range(200):
        await peer.present(topic, "track", {"n": n})
    equal(await peer.ended(topic), TOO_MUCH_PRESENCE, "what it is told")
    await afresh(stage)


@scenario("0 is without a limit", settings={"max_events_per_second": "0", "max_joins_per_second": "0", "max_presence_events_per_second": "0", "max_client_presence_events_per_window": "0", "max_concurrent_users": "0"})
async def without(stage):
    topic = "realtime:without"
    peer, receiver = await stage.peer(), await stage.peer()
    for n in range(90):
        await peer.join(f"realtime:w-{n}", {})
    await peer.join(topic, {})
    await receiver.join(topic, {"presence": {"enabled": True}})
    for n in range(2000):
        await peer.say(topic, "m", {"n": n})
    for n in range(100):
        await peer.present(topic, "track", {"n": n})
    equal([(await receiver.broadcast(topic)).payload["payload"]["n"] for _ in range(2000)], list(range(2000)), "what came")
    last = None
    while last != 99:
        (entry,) = (await receiver.diff(topic)).payload["joins"].values()
        last = entry["metas"][0]["n"]
    response = await post(stage, single("without", "m"), {})
    equal(response.status, 202, "the status of a request")


@scenario("what one connection tracks has an end, and others track on", vsn=BOTH)
async def tracked(stage, vsn):
    peer, other = await stage.peer(vsn), await stage.peer(vsn)
    for n in range(4):
        await peer.join(f"realtime:tracked-{n}", {"presence": {"key": "k"}})

    async def track(n: int, size: int):
        return await peer.reply(await peer.present(f"realtime:tracked-{n}", "track", {"t": "x" * size}))

    for n in range(2):
        equal((await track(n, 2_900_000)).status, "ok", "the answer")
    # The same channel again counts once.
    equal((await track(1, 2_900_001)).status, "ok", "the answer")
    refused = await track(2, 2_900_000)
    equal((refused.status, refused.reason.split(":")[0]), ("error", "TooMuchPresence"), "the answer to what is too much")
    equal((await track(3, 1000)).status, "ok", "the answer to a little")
    await other.join("realtime:tracked-0", {})
    equal((await other.reply(await other.present("realtime:tracked-0", "track", {}))).status, "ok", "the answer to another")
    equal((await peer.reply(await peer.present("realtime:tracked-0", "untrack"))).status, "ok", "the answer to untrack")
    equal((await track(2, 2_900_000)).status, "ok", "the answer when there is room again")


@scenario("beyond the reference: whoever asks for it is told what limits and rights keep from it", vsn=BOTH, tables=READ_ONLY, settings={"max_payload_size": "10"})
async def told(stage, vsn):
    topic = "realtime:read-only:told"
    for asks in (True, False):
        peer = await stage.peer(vsn)
        extension = {"tidewire": {"limits": True}} if asks else {}
        await peer.join(topic, {"private": True} | extension, access_token=stage.ana)
        await peer.say(topic, "m", {})
        if asks:
            message = await peer.system(topic, "a word about rights")
            equal((message.status, message.payload["extension"]), ("ok", "system"), "status, which may not be error, and extension")
            true("may not write" in message.payload["message"], "a word about rights", message)
        await peer.join("realtime:told", extension)
        await peer.say("realtime:told", "m", {"t": "x" * 20_000})
        if asks:
            message = await peer.system("realtime:told", "a word about sizes")
            equal(message.status, "ok", "the status")
            true("too large" in message.payload["message"], "a word about sizes", message)
        if vsn == "2.0.0" or not asks:
            equal([str(m) for m in await peer.fence()], [], "what else it is told")
