"""Coming back: who says from where gets what it missed, in order, or is told that it has to fetch it."""

import asyncio
import contextlib
import re
import signal

from clients.expect import equal, true
from clients.peer import binding
from clients.scenario import BOTH, published, scenario
from clients.stage import ANA, BEN
from conformance.database import fresh, ready, send
from conformance.private import OPEN, PRESENCE_ONLY

POSITION = re.compile(r"^[0-9a-f]{16}\.[0-9]+$")
OWNED = (
    "ALTER TABLE {0} REPLICA IDENTITY FULL; ALTER TABLE {0} ENABLE ROW LEVEL SECURITY;"
    "CREATE POLICY own ON {0} FOR SELECT USING (owner = auth.uid())"
)


def moved(position: str, by: int = 0, epoch=None) -> str:
    before, offset = position.split(".")
    return f"{epoch or before}.{int(offset) + by}"


async def told(peer, topic) -> str:
    """The position up to which everything has been told."""
    message = await peer.expect("a marker", lambda m: m.topic == topic and m.code == "CaughtUp")
    position = message.payload["position"]
    true(POSITION.match(position), "a position", message)
    true(message.payload["message"].startswith(f"Caught up to {position} at 20"), "words for it", message)
    return position


async def joined(stage, vsn, topic, *bindings, **tidewire):
    """A peer that joined, and what the reply says of the log."""
    peer = await stage.peer(vsn)
    reply = await peer.join(topic, {"postgres_changes": list(bindings), "tidewire": tidewire})
    return peer, reply.response["tidewire"]


async def watching(stage, table):
    """Somebody who sees what the log has come to: what is committed is in it a moment later."""
    watcher = await stage.peer()
    await watcher.subscribe("realtime:watcher", binding(table))
    return watcher


async def ids_until(peer, topic, last):
    found = []
    while not found or found[-1] != last:
        change = (await peer.change(topic)).data
        found.append((change.get("record") or change["old_record"])["id"])
    return found


@scenario("who comes back to where it was gets what it missed, in order, then what is new", vsn=BOTH, tables=published("r_plain", "id int PRIMARY KEY, kind text"))
async def plain(stage, vsn):
    topic, table = "realtime:resume", binding("r_plain", filter="kind=eq.in")
    await stage.database.run("TRUNCATE r_plain")
    watcher = await watching(stage, "r_plain")
    peer, standing = await joined(stage, vsn, topic, table, position=True)
    equal(set(standing), {"position"}, "what is said of the log")
    await peer.subscribed(topic)
    start = await told(peer, topic)
    await stage.database.run("INSERT INTO r_plain VALUES (1, 'in')")
    await peer.change(topic)
    await peer.close()
    await stage.database.run(
        *(f"INSERT INTO r_plain VALUES ({n}, '{'in' if n % 2 else 'out'}')" for n in range(2, 40)), "DELETE FROM r_plain WHERE id = 39")
    await watcher.changes_until("realtime:watcher", lambda data: data["type"] == "DELETE")
    for _ in range(2):
        peer, standing = await joined(stage, vsn, topic, table, position=True, resume=start)
        equal((standing["recovered"], standing["position"]), (True, start), "what is said of the log")
        await peer.subscribed(topic)
        equal(await ids_until(peer, topic, 39), list(range(1, 40, 2)), "what it missed")
        change = await peer.change(topic)
        equal(change.data["type"], "DELETE", "the last of it")
        # The marker says how far this socket's loop had come; another loop, the watcher's, may have been ahead of it.
        await told(peer, topic)
        end = change.payload["position"]
        true(int(end.split(".")[1]) >= int(start.split(".")[1]) + 39, "a position behind all that", (start, end))
        await peer.close()
    peer, standing = await joined(stage, vsn, topic, table, position=True, resume=end)
    equal(standing["recovered"], True, "that it goes on")
    await peer.subscribed(topic)
    await stage.database.run("INSERT INTO r_plain VALUES (101, 'in')")
    equal(await ids_until(peer, topic, 101), [101], "nothing twice")


@scenario("each change says where it stands, and behind which one: a hole would be seen", vsn=BOTH, tables=published("r_chain", "id int PRIMARY KEY, owner uuid", OWNED.format("r_chain")))
async def chain(stage, vsn):
    topic = "realtime:chain"
    await stage.database.run("TRUNCATE r_chain")
    bindings = [binding("r_chain"), binding("r_chain", event="INSERT", filter="id=gt.3")]
    last = None
    for resuming in (False, True):
        peer = await stage.peer(vsn)
        tidewire = {"position": True} | ({"resume": last} if resuming else {})
        reply = await peer.join(topic, {"postgres_changes": bindings, "tidewire": tidewire}, access_token=stage.ana)
        if resuming:
            equal(reply.response["tidewire"], {"position": last, "recovered": True}, "where it goes on")
        last = await told(peer, topic) if not resuming else last
        count = 0
        # Of the other's rows it is told nothing, and they are no hole.
        if not resuming:
            await stage.database.run(
                *(f"INSERT INTO r_chain VALUES ({n}, '{ANA if n % 3 else BEN}')" for n in range(1, 16)), "UPDATE r_chain SET owner = owner")
        while count < (20 if not resuming else 10):
            message = await peer.expect("a change or a marker", lambda m: m.event == "postgres_changes" or m.code == "CaughtUp")
            if message.event == "system":
                last = message.payload["position"]
                continue
            payload = message.payload
            equal(payload["previous"], last, "the position before, of a change or a marker")
            last, before = payload["position"], last
            true(int(last.split(".")[1]) > int(before.split(".")[1]), "a position further on", (before, last))
            count += 1
        await peer.close()
        await stage.database.run("DELETE FROM r_chain")


@scenario("the seam: what is committed while it comes back comes once, and in order", vsn=BOTH, tables=published("r_seam", "id int PRIMARY KEY"))
async def seam(stage, vsn):
    topic, table = "realtime:seam", binding("r_seam")
    await stage.database.run("TRUNCATE r_seam")
    peer, standing = await joined(stage, vsn, topic, table, position=True)
    await peer.subscribed(topic)
    start = await told(peer, topic)
    await peer.close()
    number = 0
    for _ in range(12):
        more = [f"INSERT INTO r_seam SELECT generate_series({n + 1}, {n + 25})" for n in range(number, number + 500, 25)]
        number += 500
        await stage.database.run(*more[:10])
        peer, standing = await joined(stage, vsn, topic, table, resume=start)
        equal(standing["recovered"], True, "that it goes on")
        await stage.database.run(*more[10:])
        equal(await ids_until(peer, topic, number), list(range(1, number + 1)), "what came")
        await peer.close()


@scenario("policies count for what was missed", vsn=BOTH, tables=published("r_owned", "id int PRIMARY KEY, owner uuid", OWNED.format("r_owned")))
async def policies(stage, vsn):
    topic, table = "realtime:owned", binding("r_owned")
    await stage.database.run("TRUNCATE r_owned")
    peer, _ = await joined(stage, vsn, topic, table, position=True)
    start = await told(peer, topic)
    await peer.close()
    await stage.database.run(
        *(f"INSERT INTO r_owned VALUES ({n}, '{ANA if n % 2 else BEN}')" for n in range(1, 31)))
    for token, wanted in ((stage.ana, range(1, 31, 2)), (stage.ben, range(2, 31, 2))):
        peer = await stage.peer(vsn)
        config = {"postgres_changes": [table], "tidewire": {"resume": start, "position": True}}
        reply = await peer.join(topic, config, access_token=token)
        equal(reply.response["tidewire"]["recovered"], True, "that it goes on")
        equal(await ids_until(peer, topic, wanted[-1]), list(wanted), "what it may see of it")
        await told(peer, topic)
        await peer.close()


@scenario("who cannot get all gets nothing of it, and is told why and from where", vsn=BOTH, tables=published("r_none", "id int PRIMARY KEY"))
async def nothing(stage, vsn):
    topic, table = "realtime:none", binding("r_none")
    await stage.database.run("TRUNCATE r_none")
    watcher = await watching(stage, "r_none")
    await stage.database.run("INSERT INTO r_none VALUES (1)")
    await watcher.change("realtime:watcher")
    peer, _ = await joined(stage, vsn, topic, table, position=True)
    start = await told(peer, topic)
    for position, reason in ((moved(start, epoch="0000000000000017"), "epoch_changed"), (moved(start, 1 << 40), "unknown_position")):
        peer, standing = await joined(stage, vsn, topic, table, resume=position)
        equal((standing["recovered"], standing["reason"]), (False, reason), f"what is said of {position}")
        true(POSITION.match(standing["position"]), "where it goes on", standing)
        await peer.subscribed(topic)
        await stage.database.run("DELETE FROM r_none", "INSERT INTO r_none VALUES (1)")
        equal([(await peer.change(topic)).data["type"] for _ in range(2)], ["DELETE", "INSERT"], "what comes from then on")
        await watcher.changes_until("realtime:watcher", lambda data: data["type"] == "INSERT")
        await peer.close()
    for wrong in (17, True, {}, "soon", "1", "17.3", "0000000000000017.", ".1", "0000000000000017.2.3", "0000000000000017.-2", "-000000000000017.2",
                  "0000000000000017.99999999999999999999", "0000000000000017.2 "):
        peer = await stage.peer(vsn)
        reason = await peer.refused(topic, {"postgres_changes": [table], "tidewire": {"resume": wrong}})
        equal(reason, "UnableToResume: A position reads epoch.offset, as it was told", f"why for {wrong!r}")


@scenario("messages that were missed come too, and in their places among the changes", vsn=BOTH, tables=[*OPEN, *published("r_both", "id int PRIMARY KEY")])
async def both(stage, vsn):
    topic, sub = fresh("resume")
    await stage.database.run("TRUNCATE r_both")
    watcher = await ready(stage, topic)
    peer = await stage.peer(vsn)
    config = {"private": True, "postgres_changes": [binding("r_both")], "tidewire": {"position": True}}
    await peer.join(topic, config)
    start = await told(peer, topic)
    await peer.close()
    wanted = []
    for number in range(1, 41):
        if number % 3:
            await stage.database.run(send({"n": number}, "note", sub))
        else:
            await stage.database.run(f"INSERT INTO r_both VALUES ({number})")
        wanted.append(number)
    for _ in range(27):
        await watcher.broadcast(topic)
    peer = await stage.peer(vsn)
    reply = await peer.join(topic, config | {"tidewire": {"resume": start, "position": True}})
    equal(reply.response["tidewire"]["recovered"], True, "that it goes on")
    await stage.database.run(send({"n": 41}, "note", sub))
    found = []
    while len(found) < 41:
        message = await peer.expect("what it missed", lambda m: m.event in ("broadcast", "postgres_changes"))
        found.append(message.data["record"]["id"] if message.event == "postgres_changes" else message.payload["payload"]["n"])
    equal(found, [*wanted, 41], "what came")


@scenario("who was away for longer than the log reaches back fetches", vsn=["2.0.0"], own_hub=True, settings={"retention_size": "3MB"}, tables=published("r_old", "id int PRIMARY KEY, body text"))
async def too_old(stage, vsn):
    topic, table = "realtime:old", binding("r_old", filter="id=lt.1000")
    peer, _ = await joined(stage, vsn, topic, table, position=True)
    await peer.subscribed(topic)
    start = await told(peer, topic)
    await peer.close()
    watcher = await watching(stage, "r_old")
    for n in range(1000, 1020):
        # What does not compress, so that the log grows.
        body = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 16000))"
        await stage.database.run(f"INSERT INTO r_old VALUES ({n}, {body})")
        await watcher.change("realtime:watcher")
    standing = {"recovered": True}
    # Retention is looked at now and then.
    for n in range(1100, 1160):
        peer, standing = await joined(stage, vsn, topic, table, resume=start, position=True)
        if not standing["recovered"]:
            break
        await peer.close()
        await stage.database.run(f"INSERT INTO r_old VALUES ({n}, 'x')")
        await asyncio.sleep(0.2)
    equal(standing.get("reason"), "older_than_retention", "why it does not go on")
    await peer.subscribed(topic)
    await stage.database.run("INSERT INTO r_old VALUES (1, 'new')")
    equal(await ids_until(peer, topic, 1), [1], "what comes from then on")


ASKED = (
    "CREATE OR REPLACE FUNCTION r_is_mine(owner uuid) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN owner = auth.uid(); END $$;"
    "ALTER TABLE {0} REPLICA IDENTITY FULL; ALTER TABLE {0} ENABLE ROW LEVEL SECURITY;"
    "CREATE POLICY own ON {0} FOR SELECT USING (r_is_mine(owner))"
)


@scenario("what only PostgreSQL decides comes too, however much of it was missed", vsn=["2.0.0"], tables=published("r_asked", "id int PRIMARY KEY, owner uuid, body text", ASKED.format("r_asked")))
async def asked(stage, vsn):
    topic = "realtime:asked"
    await stage.database.run("TRUNCATE r_asked")
    config = {"postgres_changes": [binding("r_asked")]}
    peer = await stage.peer(vsn)
    await peer.join(topic, config | {"tidewire": {"position": True}}, access_token=stage.ana)
    start = await told(peer, topic)
    await peer.close()
    # Several times what may wait for answers.
    watcher = await stage.peer()
    await watcher.subscribe("realtime:watcher", binding("r_asked", filter="id=eq.12000"), access_token=stage.service)
    for n in range(0, 12000, 1000):
        await stage.database.run(
            f"INSERT INTO r_asked SELECT g, CASE WHEN g % 4 > 0 THEN '{ANA}' ELSE '{BEN}' END::uuid, repeat('x', 1500) "
            f"FROM generate_series({n + 1}, {n + 1000}) g")
    await watcher.change("realtime:watcher")
    peer = await stage.peer(vsn)
    await peer.join(topic, config | {"tidewire": {"resume": start}}, access_token=stage.ana)
    equal(await ids_until(peer, topic, 11999), [n for n in range(1, 12000) if n % 4], "what it may see of it")


@scenario("who may hear of presence alone goes on with its changes", vsn=BOTH, tables=[*PRESENCE_ONLY, *published("r_presence", "id int PRIMARY KEY")])
async def presence_only(stage, vsn):
    topic = "realtime:presence-only:resume"
    await stage.database.run("TRUNCATE r_presence")
    config = {"private": True, "presence": {"enabled": True}, "postgres_changes": [binding("r_presence")]}
    peer = await stage.peer(vsn)
    await peer.join(topic, config | {"tidewire": {"position": True}})
    start = await told(peer, topic)
    await peer.close()
    await stage.database.run("INSERT INTO r_presence VALUES (1)", "INSERT INTO r_presence VALUES (2)")
    peer = await stage.peer(vsn)
    reply = await peer.join(topic, config | {"tidewire": {"resume": start}})
    equal(reply.response["tidewire"]["recovered"], True, "that it goes on")
    equal(await ids_until(peer, topic, 2), [1, 2], "what it missed")


@scenario("messages that were deleted or edited meanwhile come as they are now, or not at all", vsn=BOTH, tables=[*OPEN, *published("r_edited", "id int PRIMARY KEY")])
async def edited(stage, vsn):
    topic, sub = fresh("resume")
    await stage.database.run("TRUNCATE r_edited")
    watcher = await ready(stage, topic)
    config = {"private": True, "postgres_changes": [binding("r_edited")], "tidewire": {"position": True}}
    peer = await stage.peer(vsn)
    await peer.join(topic, config)
    start = await told(peer, topic)
    await peer.close()
    for number in range(1, 9):
        await stage.database.run(send({"n": number}, "note", sub), f"INSERT INTO r_edited VALUES ({number})")
        await watcher.broadcast(topic)
    which = f"WHERE topic = '{sub}' AND payload ->> 'n'"
    await stage.database.run(
        f"DELETE FROM realtime.messages {which} IN ('2', '8')",
        f"UPDATE realtime.messages SET payload = jsonb_set(payload, '{{edited}}', 'true') {which} IN ('3', '7')",
        f"UPDATE realtime.messages SET topic = 'elsewhere' {which} = '5'",
        "INSERT INTO r_edited VALUES (9)",
    )
    end = await stage.peer()
    await end.subscribe("realtime:end", binding("r_edited"))
    await stage.database.run("INSERT INTO r_edited VALUES (10)")
    await end.change("realtime:end")

    peer = await stage.peer(vsn)
    reply = await peer.join(topic, config | {"tidewire": {"resume": start, "position": True}})
    equal(reply.response["tidewire"]["recovered"], True, "that it goes on")
    await stage.database.run(send({"n": 11}, "note", sub))
    found = []
    while not found or found[-1] != 11:
        message = await peer.expect("what it missed", lambda m: m.event in ("broadcast", "postgres_changes") or m.code == "ChangesMissing")
        true(message.code != "ChangesMissing", "no loss, because nothing is missing", message)
        if message.event == "broadcast":
            payload = message.payload["payload"]
            found.append(f"{payload['n']} edited" if payload.get("edited") else payload["n"])
    equal(found, [1, "3 edited", 4, 6, "7 edited", 11], "the messages")


@scenario("many who come back at once each get their own messages of one transaction", vsn=["2.0.0"], tables=OPEN)
async def crowd(stage, vsn):
    topics = [fresh("resume") for _ in range(60)]
    watcher = await ready(stage, topics[-1][0])
    config = {"private": True, "tidewire": {"position": True}}
    first = await stage.peer(vsn)
    await first.join(topics[0][0], config)
    start = await told(first, topics[0][0])
    await first.close()
    for number in range(1, 4):
        await stage.database.run("BEGIN", *(send({"n": number}, "note", sub) for _, sub in topics), "COMMIT")
        await watcher.broadcast(topics[-1][0])
    peers = await asyncio.gather(*(stage.peer(vsn) for _ in topics))
    resume = config | {"tidewire": {"resume": start}}
    await asyncio.gather(*(peer.join(topic, resume) for peer, (topic, _) in zip(peers, topics)))
    await stage.database.run("BEGIN", *(send({"n": 4}, "note", sub) for _, sub in topics), "COMMIT")
    for peer, (topic, _) in zip(peers, topics):
        found = [(await peer.broadcast(topic)).payload["payload"]["n"] for _ in range(4)]
        equal(found, [1, 2, 3, 4], "the messages")


@scenario("who asks for the past by a moment too gets it once", vsn=BOTH, tables=OPEN)
async def by_both(stage, vsn):
    topic, sub = fresh("resume")
    watcher = await ready(stage, topic)
    peer = await stage.peer(vsn)
    await peer.join(topic, {"private": True, "tidewire": {"position": True}})
    start = await told(peer, topic)
    await peer.close()
    await stage.database.run(*(send({"n": n}, "note", sub) for n in range(1, 4)))
    for _ in range(3):
        await watcher.broadcast(topic)
    peer = await stage.peer(vsn)
    await peer.join(topic, {"private": True, "broadcast": {"replay": {"since": 0}}, "tidewire": {"resume": start}})
    await stage.database.run(send({"n": 4}, "note", sub))
    found = [(await peer.broadcast(topic)).payload["payload"]["n"] for _ in range(4)]
    equal(found, [1, 2, 3, 4], "the messages")


@scenario("the hub was killed, or away, meanwhile", vsn=["2.0.0"], own_hub=True, tables=published("r_killed", "id int PRIMARY KEY"))
async def killed(stage, vsn):
    topic, table = "realtime:killed", binding("r_killed")
    await stage.database.run("TRUNCATE r_killed")
    peer, _ = await joined(stage, vsn, topic, table, position=True)
    await peer.subscribed(topic)
    start = await told(peer, topic)
    number = 0
    for kill in (True, False, True):
        await stage.database.run(*(f"INSERT INTO r_killed VALUES ({number + n})" for n in range(1, 6)))
        with contextlib.suppress(Exception):
            await stage.hub.end(signal.SIGKILL if kill else signal.SIGTERM)
        await stage.database.run(*(f"INSERT INTO r_killed VALUES ({number + n})" for n in range(6, 11)))
        number += 10
        await stage.hub.start()
        peer, standing = await joined(stage, vsn, topic, table, resume=start)
        equal(standing["recovered"], True, "that it goes on")
        equal(await ids_until(peer, topic, number), list(range(1, number + 1)), "what it missed")


@scenario("a channel that hears nothing is told where it stands while the log moves on, and can go on from there", vsn=BOTH, settings={"position_interval": "1s", "retention_size": "3MB"}, tables=[*published("r_quiet", "id int PRIMARY KEY"), *published("r_busy", "id serial PRIMARY KEY, filler text")])
async def quiet(stage, vsn):
    topic = "realtime:quiet"
    await stage.database.run("TRUNCATE r_quiet")
    peer, _ = await joined(stage, vsn, topic, binding("r_quiet"), position=True)
    await peer.subscribed(topic)
    first = last = await told(peer, topic)
    # Segments go as others come, until the log does not reach back to where it joined.
    while True:
        await stage.database.run("INSERT INTO r_busy (filler) SELECT repeat(md5(random()::text), 30) FROM generate_series(1, 1000)")
        position = await told(peer, topic)
        true(int(position.split(".")[1]) > int(last.split(".")[1]), "a position that moves on", (last, position))
        last = position
        other, standing = await joined(stage, vsn, topic, binding("r_quiet"), resume=first)
        await other.close()
        if not standing["recovered"]:
            break
    await peer.close()
    await stage.database.run("INSERT INTO r_quiet VALUES (1)")
    peer, standing = await joined(stage, vsn, topic, binding("r_quiet"), position=True, resume=last)
    equal(standing["recovered"], True, "that it goes on")
    await peer.subscribed(topic)
    equal(await ids_until(peer, topic, 1), [1], "what it missed")


@scenario("a socket whose channels end in hundreds resumes those that are remembered, and tells the others", tables=published("r_ended", "id int PRIMARY KEY"))
async def hundreds_ended(stage):
    peer = await stage.peer()
    sets = [[f"realtime:ended-{number}-{n}" for n in range(90)] for number in range(3)]
    for topics in sets:
        token = stage.token("authenticated", seconds=4, sub=ANA)
        for topic in topics:
            await peer.subscribe(topic, binding("r_ended"), access_token=token)
        for topic in topics:
            await peer.ended(topic)
    await stage.database.run("INSERT INTO r_ended VALUES (1)")
    lost = []
    for topic in (topic for topics in sets for topic in topics):
        await peer.subscribe(topic, binding("r_ended"), access_token=stage.token("authenticated", sub=ANA))
        heard = await peer.expect(
            f"the row of {topic} or a word", lambda m: m.topic == topic and (m.event == "postgres_changes" or m.code == "ChangesMissing"))
        if heard.event != "postgres_changes":
            lost.append(topic)
        await peer.push(topic, "phx_leave", {})
    equal((len(lost), set(lost) - set(sets[0])), (14, set()), "those that were told that changes may be missing: of the oldest")
