"""Who is there: states, differences, keys, limits, and what a view adds up to. Protocol §5; checklist 9 and 21, traps 6, 8 and 15."""

import asyncio
import itertools
import random
import re

from clients.expect import Failure, equal, fail, true
from clients.hub import LIMIT
from clients.scenario import BOTH, scenario

LOOPS = {"loops": "3", "max_client_presence_events_per_window": "0"}
#: So that nobody hears of those of the scenario before, who are just going.
TURNS = itertools.count()
GENERATED = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def fresh(name: str) -> str:
    return f"realtime:{name}-{next(TURNS)}"


def enabled(key=None, **config) -> dict:
    return {"presence": {"enabled": True} | ({} if key is None else {"key": key})} | config


def bare(presences: dict) -> dict:
    """Keys and what is tracked under each, without refs."""
    return {
        key: [{name: value for name, value in meta.items() if not name.startswith("phx_ref")} for meta in entry["metas"]]
        for key, entry in presences.items()
    }


def refs(presences: dict) -> list[str]:
    return [meta["phx_ref"] for entry in presences.values() for meta in entry["metas"]]


async def member(stage, vsn: str, topic: str, key=None, **config):
    """One who has joined, and been told the state."""
    peer = await stage.peer(vsn)
    await peer.join(topic, enabled(key, **config))
    await peer.state(topic)
    return peer


async def tracked(peer, topic: str, payload: dict, what: str = "the answer to track") -> dict:
    """Its difference, as the tracker is told."""
    ref = await peer.present(topic, "track", payload)
    equal((await peer.reply(ref, what)).payload, {"status": "ok", "response": {}}, what)
    return (await peer.diff(topic, "one's own join")).payload


async def quiet(peers, what: str):
    for peer in peers:
        equal([str(m) for m in await peer.fence()], [], what)


@scenario("checklist 9, trap 15: the state follows each join that asks for it, empty or not, with the join's ref", vsn=BOTH)
async def state_after_join(stage, vsn):
    topic = fresh("state")
    peer = await stage.peer(vsn)
    for number in range(3):
        await peer.join(topic, enabled("me"))
        state = await peer.expect("presence_state", lambda m: m.topic == topic and m.event != "phx_close")
        equal(state.event, "presence_state", "what follows the reply")
        if vsn == "2.0.0":
            equal(state.join_ref, peer.join_refs[topic], "its join_ref")
        equal(state.payload, {}, "the state of a topic where nobody is")
        await peer.fence()
    await tracked(peer, topic, {"n": 1})
    other = await stage.peer(vsn)
    await other.join(topic, enabled("other"))
    equal(bare((await other.state(topic)).payload), {"me": [{"n": 1}]}, "the state where somebody is")
    # Whoever did not ask for it is not told.
    for config in ({}, {"presence": {"enabled": False}}, {"presence": None}, {"presence": {"key": "k"}}):
        third = await stage.peer(vsn)
        await third.join(topic, config)
        await quiet([third], f"what a join with {config} brings")


@scenario("checklist 9: track, track again, untrack: each is answered and comes as one difference", vsn=BOTH)
async def track_update_untrack(stage, vsn):
    topic = fresh("update")
    watcher = await member(stage, vsn, topic, "watcher")
    peer = await member(stage, vsn, topic, "me")
    first = await tracked(peer, topic, {"name": "C", "n": [1, {"a": None}]})
    equal((bare(first["joins"]), first["leaves"]), ({"me": [{"name": "C", "n": [1, {"a": None}]}]}, {}), "the first")
    equal((await watcher.diff(topic)).payload, first, "what the other hears, which is the same")
    second = await tracked(peer, topic, {"name": "D"})
    equal((bare(second["joins"]), bare(second["leaves"])),
          ({"me": [{"name": "D"}]}, {"me": [{"name": "C", "n": [1, {"a": None}]}]}), "joins and leaves of an update")  # fmt: skip
    meta = second["joins"]["me"]["metas"][0]
    equal(meta.get("phx_ref_prev"), refs(first["joins"])[0], "phx_ref_prev, which is the ref before")
    equal(refs(second["leaves"]), refs(first["joins"]), "the ref of what left")
    true(meta["phx_ref"] != meta["phx_ref_prev"], "another ref", meta)
    equal((await watcher.diff(topic)).payload, second, "what the other hears, which is the same")
    ref = await peer.present(topic, "untrack")
    equal((await peer.reply(ref)).payload, {"status": "ok", "response": {}}, "the answer to untrack")
    last = (await peer.diff(topic)).payload
    equal((last["joins"], bare(last["leaves"]), refs(last["leaves"])), ({}, {"me": [{"name": "D"}]}, refs(second["joins"])), "the last")
    equal((await watcher.diff(topic)).payload, last, "what the other hears, which is the same")
    # Who is not there cannot go.
    ref = await peer.present(topic, "untrack", {})
    equal((await peer.reply(ref)).payload, {"status": "ok", "response": {}}, "the answer to another untrack")
    await quiet([peer, watcher], "what another untrack brings")


@scenario("the same payload again is no news, in whatever order its members stand; another value is", vsn=BOTH)
async def same_payload(stage, vsn):
    topic = fresh("same")
    peer = await member(stage, vsn, topic, "me")
    await tracked(peer, topic, {"a": 1, "b": {"c": [True]}})
    ref = await peer.present(topic, "track", {"a": 1, "b": {"c": [True]}})
    equal((await peer.reply(ref)).payload, {"status": "ok", "response": {}}, "the answer")
    await quiet([peer], "what the same payload brings")
    diff = await tracked(peer, topic, {"a": 1, "b": {"c": [False]}})
    equal(bare(diff["joins"]), {"me": [{"a": 1, "b": {"c": [False]}}]}, "another")


@scenario("events of presence in any case; type is not needed, payload neither, which is then empty", vsn=BOTH)
async def spellings(stage, vsn):
    for number, (track, untrack) in enumerate((("track", "untrack"), ("TRACK", "UnTrack"), ("Track", "UNTRACK"))):
        topic = fresh(f"spelling-{number}")
        peer = await member(stage, vsn, topic, "me")
        ref = await peer.push(topic, "presence", {"event": track})
        equal((await peer.reply(ref)).payload, {"status": "ok", "response": {}}, "the answer to track without a payload")
        equal(bare((await peer.diff(topic)).payload["joins"]), {"me": [{}]}, "what is tracked")
        ref = await peer.push(topic, "presence", {"event": untrack, "payload": {}})
        equal((await peer.reply(ref)).status, "ok", "the answer to untrack")
        equal(bare((await peer.diff(topic)).payload["leaves"]), {"me": [{}]}, "what leaves")


@scenario("what is wrong with a push of presence is said, and it is answered whatever it is", vsn=BOTH)
async def wrong_pushes(stage, vsn):
    topic = fresh("wrong-presence")
    cases = [
        ({"event": "track", "payload": [1]}, {"status": "error", "response": {"reason": "Presence track payload must be a map"}}),
        ({"event": "track", "payload": "x"}, {"status": "error", "response": {"reason": "Presence track payload must be a map"}}),
        ({"event": "track", "payload": None}, {"status": "error", "response": {"reason": "Presence track payload must be a map"}}),
        ({"event": "leave", "payload": {}}, {"status": "error", "response": {}}),
        ({"event": 17}, {"status": "error", "response": {}}),
        ({"event": "x" * 1000}, {"status": "error", "response": {}}),
        ({}, {"status": "ok", "response": {}}),
        ({"payload": {"a": 1}}, {"status": "ok", "response": {}}),
    ]
    for index in range(0, len(cases), 4):
        peer = await member(stage, vsn, topic, "me")
        for payload, wanted in cases[index : index + 4]:
            ref = await peer.push(topic, "presence", payload)
            equal((await peer.reply(ref)).payload, wanted, f"the answer to {payload}")
        await quiet([peer], "what else they bring")
    # Not counted, however often.
    for _ in range(20):
        equal((await peer.reply(await peer.push(topic, "presence", {}))).status, "ok", "the answer to no event")
    # Without a ref there is nothing to answer.
    await peer.push(topic, "presence", {"event": "leave"}, ref=None)
    await quiet([peer], "what a push without a ref brings")


@scenario("checklist 21: the sixth push of presence in 30 s ends the channel, and only that", vsn=BOTH)
async def sixth(stage, vsn):
    topic = fresh("sixth")
    watcher = await member(stage, vsn, topic, "watcher")
    peer = await member(stage, vsn, topic, "me")
    await peer.join("realtime:another", {})
    for n in range(5):
        await tracked(peer, topic, {"n": n})
    await peer.present(topic, "track", {"n": 5})
    equal(await peer.ended(topic), "Client presence rate limit exceeded", "the text")
    equal([m.event for m in await peer.fence()], [], "what else comes, such as a reply")
    # On another loop several may come as one, the last one's coming together with its going.
    left = []
    while {"n": 4} not in left:
        left += bare((await watcher.diff(topic, "the difference of the end")).payload["leaves"]).get("me", [])
    equal(sorted(meta["n"] for meta in left), [0, 1, 2, 3, 4], "what left, each once")
    # Joined again, it is another channel, with a window of its own.
    await peer.join(topic, enabled("me"))
    await tracked(peer, topic, {"n": 6})
    equal((await peer.reply(await peer.push("realtime:another", "phx_leave", {}))).status, "ok", "the other channel")


@scenario("the window of presence may be another, and begins again", vsn=BOTH, settings={"max_client_presence_events_per_window": "2", "client_presence_window": "300ms"})
async def window(stage, vsn):
    topic = fresh("window")
    peer = await member(stage, vsn, topic, "me")
    for n in range(3):
        await tracked(peer, topic, {"n": n, "half": 1})
        await tracked(peer, topic, {"n": n, "half": 2})
        await asyncio.sleep(0.35)
    for n in range(3):
        await peer.present(topic, "untrack")
    equal(await peer.ended(topic), "Client presence rate limit exceeded", "the text")


@scenario("a presence that is too large ends the channel", vsn=BOTH, settings={"max_payload_size": "10"})
async def too_large(stage, vsn):
    topic = fresh("too-large")
    peer = await member(stage, vsn, topic, "me")
    await tracked(peer, topic, {"t": "x" * 9_000})
    await peer.present(topic, "track", {"t": "x" * 20_000})
    equal(await peer.ended(topic), "Track message size exceeded", "the text")
    await peer.join(topic, enabled("me"))
    equal((await peer.state(topic)).payload, {}, "who is there afterwards")


@scenario("leaving, a dead socket and one that is closed are told to the others, with the last meta", vsn=BOTH, settings=LOOPS)
async def departures(stage, vsn):
    topic = fresh("departures")
    watchers = [await member(stage, one, topic, f"watcher-{n}") for n in range(3) for one in BOTH]
    for how in ("leave", "close", "reset"):
        peer = await member(stage, vsn, topic, how)
        await tracked(peer, topic, {"how": how})
        # Who comes and goes in one turn was never there.
        came = [(await watcher.diff(topic)).payload for watcher in watchers]
        if how == "leave":
            await peer.push(topic, "phx_leave", {})
        elif how == "close":
            await peer.close()
        else:
            peer.connection.abort()
        for watcher, joined in zip(watchers, came):
            left = (await watcher.diff(topic)).payload
            equal((bare(joined["joins"]), joined["leaves"]), ({how: [{"how": how}]}, {}), "who came")
            equal((left["joins"], left["leaves"]), ({}, joined["joins"]), "who left")


@scenario("a socket that falls silent is let go of, and its presence with it, within the idle limit", settings={"idle_timeout": "2s"})
async def silent_socket(stage):
    topic = fresh("silence")
    watcher = await member(stage, "2.0.0", topic, "watcher")
    peer = await member(stage, "2.0.0", topic, "me")
    await tracked(peer, topic, {})
    peer.connection.writer.transport.pause_reading()
    await watcher.diff(topic)
    for _ in range(60):
        await watcher.push("phoenix", "heartbeat", {}, ref="beat", join_ref=None)
        try:
            left = await watcher.expect("who left", lambda m: m.event == "presence_diff", limit=0.5)
        except Failure:
            continue
        equal(bare(left.payload["leaves"]), {"me": [{}]}, "who left")
        return
    fail("the silent one to be gone", "still there")


@scenario("several channels of one key are several metas, and go one by one", vsn=BOTH, settings=LOOPS)
async def several_metas(stage, vsn):
    topic = fresh("metas")
    peers = [await member(stage, vsn, topic, "shared") for _ in range(4)]
    for n, peer in enumerate(peers):
        await tracked(peer, topic, {"n": n})
    watcher = await stage.peer(vsn)
    await watcher.join(topic, enabled("watcher"))
    state = (await watcher.state(topic)).payload
    equal(sorted(meta["n"] for meta in bare(state)["shared"]), [0, 1, 2, 3], "what is tracked")
    equal(len(set(refs(state))), 4, "the number of refs")
    await peers[2].push(topic, "phx_leave", {})
    equal(bare((await watcher.diff(topic)).payload["leaves"]), {"shared": [{"n": 2}]}, "who left")
    # A change of one touches only its own meta.
    ref = await peers[1].present(topic, "track", {"n": 11})
    await peers[1].reply(ref)
    diff = (await watcher.diff(topic)).payload
    equal((bare(diff["joins"]), bare(diff["leaves"])), ({"shared": [{"n": 11}]}, {"shared": [{"n": 1}]}), "the change")


@scenario("keys may be numbers; without one, or with an empty one, each join gets its own", vsn=BOTH)
async def key_kinds(stage, vsn):
    cases = ((17, "17"), ("17", "17"), ("grüße \" \\ 🙂", "grüße \" \\ 🙂"), ("", None), (None, None))
    for number, (given, wanted) in enumerate(cases):
        topic = fresh(f"key-{number}")
        seen = set()
        peer = await stage.peer(vsn)
        for turn in range(2):
            await peer.join(topic, {"presence": {"enabled": True, "key": given}})
            await peer.state(topic)
            diff = await tracked(peer, topic, {"turn": turn})
            seen |= set(diff["joins"])
            await peer.reply(await peer.push(topic, "phx_leave", {}))
            await peer.expect("phx_close", lambda m: m.event == "phx_close")
            peer.waiting.clear()
        if wanted is None:
            true(len(seen) == 2 and all(GENERATED.match(key) for key in seen), "a new UUID for each join", sorted(seen))
        else:
            equal(seen, {wanted}, f"the key of {given!r}")


@scenario("whoever did not ask for presence may track, and public members hear differences all the same", vsn=BOTH)
async def without_asking(stage, vsn):
    topic = fresh("unasked")
    plain = await stage.peer(vsn)
    await plain.join(topic, {})
    watcher = await member(stage, vsn, topic, "watcher")
    ref = await plain.present(topic, "track", {"n": 1})
    equal((await plain.reply(ref)).status, "ok", "the answer")
    equal(len((await plain.diff(topic)).payload["joins"]), 1, "what it hears of itself")
    joined = (await watcher.diff(topic)).payload["joins"]
    true(GENERATED.match(next(iter(joined))), "a key of the hub's", joined)
    equal([m.event for m in await plain.fence()], [], "what else comes, such as a state")


@scenario("a topic joined again by its own socket: the old presence leaves, the new one is there", vsn=BOTH)
async def replaced(stage, vsn):
    topic = fresh("replaced")
    watcher = await member(stage, vsn, topic, "watcher")
    peer = await member(stage, vsn, topic, "me")
    old = refs((await tracked(peer, topic, {"n": 1}))["joins"])
    await watcher.diff(topic)
    await peer.reply(await peer.send_join(topic, {"config": enabled("me")}))
    left = (await watcher.diff(topic)).payload
    equal((left["joins"], refs(left["leaves"])), ({}, old), "what left")
    # The old one is not in what the new one is told, or is told to have left.
    view = View(peer, topic)
    while view.metas or not view.was_told:
        view.take(await peer.next("the state, and what left"))
    await tracked(peer, topic, {"n": 2})
    equal(bare((await watcher.diff(topic)).payload["joins"]), {"me": [{"n": 2}]}, "what came")


@scenario("members that are called like ours are replaced by ours; all others are kept as they were written", vsn=BOTH)
async def our_members(stage, vsn):
    topic = fresh("our-members")
    peer = await member(stage, vsn, topic, "me")
    watcher = await member(stage, "1.0.0", topic, "watcher")
    diff = await tracked(peer, topic, {"phx_ref": "mine", "a": {"phx_ref": "inner"}, "metas": [1], "joins": {}})
    await watcher.diff(topic)
    (meta,) = diff["joins"]["me"]["metas"]
    true(meta["phx_ref"] != "mine", "a phx_ref of the hub's", meta)
    equal({key: value for key, value in meta.items() if key != "phx_ref"},
          {"a": {"phx_ref": "inner"}, "metas": [1], "joins": {}}, "the rest")  # fmt: skip
    raw = '{"event":"track","payload":{"n":12345678901234567890.1250,"t":"\\u00e9\\/"}}'
    text = f'[null,"7","{topic}","presence",{raw}]' if vsn == "2.0.0" else f'{{"topic":"{topic}","event":"presence","payload":{raw},"ref":"7"}}'
    await peer.connection.text(text)
    message = await watcher.diff(topic)
    true("12345678901234567890.1250" in message.raw, "all digits of a number", message)


@scenario("a channel that is ended by its token leaves", vsn=BOTH)
async def ended_by_token(stage, vsn):
    topic = fresh("token-ends")
    watcher = await member(stage, vsn, topic, "watcher")
    peer = await member(stage, vsn, topic, "me")
    await tracked(peer, topic, {})
    await watcher.diff(topic)
    await peer.push(topic, "access_token", {"access_token": "nonsense"})
    await peer.ended(topic)
    equal(bare((await watcher.diff(topic)).payload["leaves"]), {"me": [{}]}, "who left")


@scenario("presence may be on for everybody", vsn=BOTH, settings={"presence_enabled": "on"})
async def on_for_everybody(stage, vsn):
    peer = await stage.peer(vsn)
    await peer.join("realtime:on", {"presence": {"enabled": False}})
    equal((await peer.state("realtime:on")).payload, {}, "the state")


class View:
    """What a client holds, as JavaScript's would: a state and differences on top of it."""

    def __init__(self, peer, topic: str, was_told: bool = False):
        self.peer = peer
        self.topic = topic
        self.metas: dict[str, dict[str, dict]] = {}
        self.was_told = was_told

    def take(self, message):
        if message.event == "presence_state":
            self.was_told = True
            self.metas = {key: {m["phx_ref"]: m for m in entry["metas"]} for key, entry in message.payload.items()}
        elif message.event == "presence_diff" and self.was_told:
            for key, entry in message.payload["joins"].items():
                for meta in entry["metas"]:
                    true(meta["phx_ref"] not in self.metas.get(key, {}), "each meta to join once", message)
                    self.metas.setdefault(key, {})[meta["phx_ref"]] = meta
            for key, entry in message.payload["leaves"].items():
                for meta in entry["metas"]:
                    true(meta["phx_ref"] in self.metas.get(key, {}), "a meta that leaves to have been there", message)
                    del self.metas[key][meta["phx_ref"]]
                if not self.metas[key]:
                    del self.metas[key]

    async def read(self):
        for message in await self.peer.fence():
            if message.topic == self.topic:
                self.take(message)

    def shown(self) -> dict:
        return {key: sorted(meta.get("v", -1) for meta in metas.values()) for key, metas in self.metas.items()}


@scenario("over several loops everybody's view becomes the same, and that of a simple model, whoever comes, changes and goes", settings=LOOPS)
async def model(stage):
    topic = fresh("model")
    choice = random.Random(7)
    members: list = []
    model: dict = {}
    watchers = [View(await member(stage, vsn, topic, "w"), topic, was_told=True) for vsn in BOTH * 3]

    async def come():
        key = f"k{choice.randrange(6)}"
        peer = await stage.peer(choice.choice(BOTH))
        await peer.join(topic, enabled(key))
        members.append((peer, key))

    async def track(peer, key):
        value = choice.randrange(3)
        await peer.present(topic, "track", {"v": value})
        model[peer] = (key, value)

    for step in range(250):
        if not members or choice.random() < 0.2 and len(members) < 20:
            await come()
            continue
        at = choice.randrange(len(members))
        peer, key = members[at]
        act = choice.random()
        if act < 0.6:
            await track(peer, key)
        elif act < 0.75:
            await peer.present(topic, "untrack")
            model.pop(peer, None)
        elif act < 0.85:
            await peer.push(topic, "phx_leave", {})
            model.pop(peer, None)
            members.pop(at)
        elif act < 0.92:
            await peer.send_join(topic, {"config": enabled(key)})
            model.pop(peer, None)
        else:
            await peer.fence()
            peer.connection.abort()
            model.pop(peer, None)
            members.pop(at)
    for peer, _ in members:
        await peer.fence()
    wanted: dict = {}
    for key, value in model.values():
        wanted.setdefault(key, []).append(value)
    wanted = {key: sorted(values) for key, values in wanted.items()}
    late = [View(await stage.peer(vsn), topic) for vsn in BOTH * 2]
    for view in late:
        await view.peer.join(topic, enabled("late"))
    for view in watchers + late:
        for _ in range(int(LIMIT * 20)):
            await view.read()
            if view.shown() == wanted:
                break
            await asyncio.sleep(0.05)
        equal(view.shown(), wanted, "a view")
    # Byte for byte: what somebody new is told on any loop.
    told = set()
    for _ in range(6):
        peer = await stage.peer("1.0.0")
        await peer.join(topic, enabled("last"))
        told.add((await peer.state(topic)).raw)
    equal(len(told), 1, "the number of different states on several loops")


@scenario("many who come at once come as few differences, and all are in somebody's view", settings=LOOPS)
async def crowd(stage):
    topic = fresh("crowd")
    view = View(await member(stage, "2.0.0", topic, "watcher"), topic, was_told=True)
    peers = [await stage.peer(BOTH[n % 2]) for n in range(60)]
    await asyncio.gather(*(peer.join(topic, enabled(f"k{n}")) for n, peer in enumerate(peers)))
    await asyncio.gather(*(peer.present(topic, "track", {"v": n}) for n, peer in enumerate(peers)))
    wanted = {f"k{n}": [n] for n in range(60)}
    for _ in range(int(LIMIT * 20)):
        await view.read()
        if view.shown() == wanted:
            break
        await asyncio.sleep(0.05)
    equal(view.shown(), wanted, "the view")
    for peer in peers[:30]:
        peer.connection.abort()
    for _ in range(int(LIMIT * 20)):
        await view.read()
        if len(view.shown()) == 30:
            break
        await asyncio.sleep(0.05)
    equal(view.shown(), {f"k{n}": [n] for n in range(30, 60)}, "the view when half of them went")
