"""Private channels: what policies on realtime.messages allow. Protocol §6.5, §2.4; checklist 15, 16 and 19, traps 16 and 18.

Every policy speaks of topics of one prefix, so that those of one scenario mean nothing to another.
"""

import asyncio
import time

from clients import tokens
from clients.expect import equal, true
from clients.scenario import BOTH, published, scenario
from clients.stage import ANA, BEN

NOT_READ = "You do not have permissions to read from this Channel topic: "


def policy(name: str, command: str, condition: str, role: str = "anon, authenticated") -> list[str]:
    word = "WITH CHECK" if command == "INSERT" else "USING"
    return [
        f'DROP POLICY IF EXISTS "{name}" ON realtime.messages',
        f'CREATE POLICY "{name}" ON realtime.messages FOR {command} TO {role} {word} ({condition})',
    ]


def prefixed(prefix: str, reads: str | None = "true", writes: str | None = "true") -> list[str]:
    """Rights in topics that begin so. Conditions of other topics are not evaluated."""
    parts = []
    for command, condition in (("SELECT", reads), ("INSERT", writes)):
        if condition:
            guarded = f"CASE WHEN realtime.topic() LIKE '{prefix}:%' THEN {condition} ELSE false END"
            parts += policy(f"{prefix} {command.lower()}", command, guarded)
    return parts


OPEN = prefixed("open")
READ_ONLY = prefixed("read-only", writes=None)
MEMBERS = [
    "DROP TABLE IF EXISTS p_members CASCADE",
    "CREATE TABLE p_members (user_id uuid, room text)",
    "GRANT SELECT ON p_members TO authenticated",
    *policy("members read", "SELECT", """realtime.messages.extension in ('broadcast','presence') and exists
        (select 1 from public.p_members m where m.user_id = auth.uid() and m.room = realtime.topic())""", "authenticated"),
    *policy("members write", "INSERT",
        "realtime.messages.extension = 'broadcast' and (select realtime.topic()) like 'room:%'", "authenticated"),
]  # fmt: skip
PRESENCE_ONLY = prefixed("presence-only", "extension = 'presence'", "extension = 'presence'")
BROADCAST_ONLY = prefixed("broadcast-only", "extension = 'broadcast'", "extension = 'broadcast'")
ALL_EXTENSIONS = {"private": True, "presence": {"enabled": True, "key": "me"}, "broadcast": {"ack": True, "self": True}}


def function(name: str, body: str, language: str = "plpgsql") -> str:
    return f"CREATE OR REPLACE FUNCTION {name}() RETURNS boolean LANGUAGE {language} AS $body$ {body} $body$"


async def joined(stage, topic: str, token: str, vsn="2.0.0", **config):
    peer = await stage.peer(vsn)
    await peer.join(topic, {"private": True} | config, access_token=token)
    return peer


def reason(topic: str) -> str:
    return f"Unauthorized: {NOT_READ}{topic.removeprefix('realtime:')}"


@scenario("checklist 15: without a policy nobody may join, and is told why; service_role may do all", vsn=BOTH)
async def no_policy(stage, vsn):
    topic = "realtime:nobody may:see"
    for token in (stage.anon, stage.ana):
        peer = await stage.peer(vsn)
        equal(await peer.refused(topic, {"private": True}, access_token=token), reason(topic), "the reason")
        equal(await peer.refused(topic, {"private": "true"}, access_token=token), reason(topic), "the same as a string")
        ref = await peer.say(topic, "m", {})
        equal((await peer.reply(ref)).reason, "unmatched topic", "the answer to a broadcast afterwards")
        # Of the same name, and open to all.
        await peer.join(topic, {"private": False}, access_token=token)
    peer = await stage.peer(vsn)
    await peer.join(topic, ALL_EXTENSIONS, access_token=stage.service)
    equal((await peer.state(topic)).payload, {}, "the state for service_role")
    equal((await peer.reply(await peer.say(topic, "m", {"n": 1}))).status, "ok", "its ack")
    await peer.hears(topic, "m", {"n": 1})
    equal((await peer.reply(await peer.present(topic, "track", {}))).status, "ok", "its track")


@scenario("checklist 15, trap 18: whoever may only read joins and hears; what it says is dropped without a word, even with ack", vsn=BOTH, tables=READ_ONLY)
async def read_only(stage, vsn):
    topic = "realtime:read-only:1"
    speaker = await joined(stage, topic, stage.service, vsn)
    peer = await stage.peer(vsn)
    await peer.join(topic, ALL_EXTENSIONS, access_token=stage.ana)
    equal((await peer.state(topic)).payload, {}, "the state")
    for _ in range(3):
        await peer.say(topic, "m", {"from": "reader"})
        if vsn == "2.0.0":
            await peer.say_binary(topic, "m", {"from": "reader"})
    ref = await peer.present(topic, "track", {"n": 1})
    equal((await peer.reply(ref)).payload, {"status": "error", "response": {}}, "the answer to track")
    equal((await peer.reply(await peer.present(topic, "untrack"))).payload, {"status": "error", "response": {}}, "and to untrack")
    await speaker.say(topic, "m", {"from": "speaker"})
    await peer.hears(topic, "m", {"from": "speaker"})
    equal([str(m) for m in await peer.fence()], [], "what else it hears")
    equal([str(m) for m in await speaker.fence()], [], "what the other hears")


@scenario("checklist 15: policies of membership: members read, and say what they may", vsn=BOTH, tables=MEMBERS)
async def members(stage, vsn):
    topic = "realtime:room:1"
    await stage.database.run(f"INSERT INTO p_members VALUES ('{ANA}', 'room:1'), ('{BEN}', 'room:2')")
    ben = await stage.peer(vsn)
    equal(await ben.refused(topic, {"private": True}, access_token=stage.ben), reason(topic), "why Ben may not")
    first = await stage.peer(vsn)
    await first.join(topic, ALL_EXTENSIONS, access_token=stage.ana)
    second = await joined(stage, topic, stage.ana, vsn)
    equal((await first.state(topic)).payload, {}, "the state")
    equal((await first.reply(await first.say(topic, "m", {"n": 1}))).payload, {"status": "ok", "response": {}}, "the ack")
    await second.hears(topic, "m", {"n": 1})
    ref = await first.present(topic, "track", {})
    equal((await first.reply(ref)).payload, {"status": "error", "response": {}}, "the answer to track, which they may not")
    # The other room, where one may write by the policy and not read.
    equal(await first.refused("realtime:room:2", {"private": True}, access_token=stage.ana), reason("realtime:room:2"), "why")
    # Topics have no prefix in policies, and are whole.
    await stage.database.run(f"INSERT INTO p_members VALUES ('{ANA}', 'realtime:room:3'), ('{ANA}', 'room:4:a b/ü')")
    equal(await first.refused("realtime:room:3", {"private": True}, access_token=stage.ana), reason("realtime:room:3"), "why")
    await first.join("realtime:room:4:a b/ü", {"private": True}, access_token=stage.ana)


@scenario("trap 18: either right to read is enough to join; what may not be read is not told", vsn=BOTH, tables=[*PRESENCE_ONLY, *BROADCAST_ONLY])
async def either_right(stage, vsn):
    for kind in ("presence-only", "broadcast-only"):
        topic = f"realtime:{kind}:1"
        peer = await stage.peer(vsn)
        if kind == "presence-only":
            # Presence is only looked at where it is on.
            equal(await peer.refused(topic, {"private": True}, access_token=stage.ana), reason(topic), "why, without presence")
        await peer.join(topic, ALL_EXTENSIONS, access_token=stage.ana)
        service = await stage.peer(vsn)
        await service.join(topic, ALL_EXTENSIONS | {"presence": {"enabled": True, "key": "service"}}, access_token=stage.service)
        await service.state(topic)
        await service.reply(await service.say(topic, "m", {"n": 1}))
        await service.reply(await service.present(topic, "track", {}))
        said = await peer.say(topic, "mine", {})
        tracked = await peer.reply(await peer.present(topic, "track", {}))
        if kind == "presence-only":
            equal((await peer.state(topic)).payload, {}, "the state")
            equal(tracked.status, "ok", "the answer to track")
            equal(set((await peer.diff(topic)).payload["joins"]) | set((await peer.diff(topic)).payload["joins"]), {"service", "me"}, "who came")
            heard = await peer.fence()
            equal([str(m) for m in heard], [], "what else it hears")
        else:
            equal(tracked.payload, {"status": "error", "response": {}}, "the answer to track")
            await peer.reply(said)
            heard = {(await peer.broadcast(topic)).payload["event"] for _ in range(2)}
            equal(heard, {"m", "mine"}, "what it hears")
            equal([str(m) for m in await peer.fence()], [], "what else it hears")
            # It tracks although it may not: that tells it nothing of the others.
            equal((await peer.reply(await peer.present(topic, "track", {"a": 1}))).status, "error", "the answer again")


@scenario("in private channels presence is for those who asked for it, or who track", vsn=BOTH, tables=OPEN, settings={"max_client_presence_events_per_window": "0"})
async def presence_unasked(stage, vsn):
    topic = "realtime:open:presence"
    peer = await joined(stage, topic, stage.ana, vsn)
    other = await stage.peer(vsn)
    await other.join(topic, ALL_EXTENSIONS | {"presence": {"enabled": True, "key": "other"}}, access_token=stage.ben)
    await other.state(topic)
    await other.reply(await other.present(topic, "track", {"n": 1}))
    await other.diff(topic)
    equal([str(m) for m in await peer.fence()], [], "what it hears before it tracks")
    equal((await peer.reply(await peer.present(topic, "track", {}))).status, "ok", "the answer to track")
    heard = await other.diff(topic)
    equal((await peer.diff(topic)).payload, heard.payload, "the first difference, which is of itself")
    await other.present(topic, "track", {"n": 2})
    equal((await peer.diff(topic)).payload, (await other.diff(topic)).payload, "the next one")


PROBES = [
    *prefixed("as-inserted", """event IS NULL AND payload IS NULL AND binary_payload IS NULL AND private = false
        AND topic = realtime.topic() AND extension IN ('broadcast', 'presence')
        AND abs(extract(epoch FROM (inserted_at - (now() AT TIME ZONE 'UTC')))) < 60""", """event IS NULL
        AND payload IS NULL AND private = false AND topic = realtime.topic() AND extension IN ('broadcast', 'presence')"""),
    *prefixed("wants-private", "private", None), *prefixed("wants-event", "event IS NOT NULL", None),
    *prefixed("wants-payload", "payload IS NOT NULL", None),
    *prefixed("write-private", "true", "private = true"),
]  # fmt: skip


@scenario("trap 18: rows that are tried have no event and no payload, and are not private", vsn=BOTH, tables=PROBES)
async def probe_rows(stage, vsn):
    peer = await stage.peer(vsn)
    await peer.join("realtime:as-inserted:1", ALL_EXTENSIONS, access_token=stage.ana)
    await peer.state("realtime:as-inserted:1")
    equal((await peer.reply(await peer.say("realtime:as-inserted:1", "m", {}))).status, "ok", "the ack")
    equal((await peer.reply(await peer.present("realtime:as-inserted:1", "track", {}))).status, "ok", "the track")
    for kind in ("private", "event", "payload"):
        topic = f"realtime:wants-{kind}:1"
        equal(await peer.refused(topic, {"private": True}, access_token=stage.ana), reason(topic), f"why, asking for {kind}")
    topic = "realtime:write-private:1"
    await peer.join(topic, {"private": True, "broadcast": {"ack": True, "self": True}}, access_token=stage.ana)
    await peer.say(topic, "m", {})
    await peer.reply(await peer.present(topic, "track", {}))
    equal([m.event for m in await peer.fence() if m.topic == topic], [], "what a write that must be private brings")


@scenario("what is tried is rolled back, and nobody hears of it", tables=OPEN)
async def rolled_back(stage):
    topic = "realtime:open:rolled-back"
    count = "SELECT count(*) FROM realtime.messages"
    before = await stage.database.run(count)
    peer = await stage.peer()
    await peer.join(topic, ALL_EXTENSIONS, access_token=stage.ana)
    await peer.state(topic)
    await peer.reply(await peer.say(topic, "m", {}))
    await peer.hears(topic, "m", {})
    await peer.reply(await peer.present(topic, "track", {}))
    equal(await stage.database.run(count), before, "the number of rows in realtime.messages")
    equal([m.event for m in await peer.fence()], ["presence_diff"], "what it hears")


SETTINGS = prefixed("settings", """
    auth.uid() = '00000000-0000-4000-8000-00000000a0a0' AND auth.role() = 'authenticated'
    AND auth.jwt() ->> 'team' = 'red' AND (auth.jwt() -> 'nested' ->> 'n')::int = 7
    AND current_setting('request.jwt.claim.sub', true) = '00000000-0000-4000-8000-00000000a0a0'
    AND current_setting('request.jwt.claim.role', true) = 'authenticated'
    AND current_setting('request.headers', true)::json ->> 'x-team' = 'r"ed, ü'
    AND current_setting('request.headers', true)::json ->> 'authorization' IS NULL
    AND current_user = 'authenticated' AND realtime.topic() = 'settings:1'""".strip())


@scenario("policies see the claims, the headers that begin with x-, the role and the topic", vsn=BOTH, tables=SETTINGS)
async def settings(stage, vsn):
    topic = "realtime:settings:1"
    token = stage.token("authenticated", sub=ANA, team="red", nested={"n": 7})
    headers = {"X-Team": 'r"ed, ü', "Authorization": "Bearer none"}
    peer = await stage.peer(vsn, headers=headers)
    await peer.join(topic, {"private": True, "broadcast": {"ack": True}}, access_token=token)
    equal((await peer.reply(await peer.say(topic, "m", {}))).status, "ok", "the ack")
    blue = stage.token("authenticated", sub=ANA, team="blue", nested={"n": 7})
    equal(await peer.refused(topic + " ", {"private": True}, access_token=token), reason(topic + " "), "why of another topic")
    other = await stage.peer(vsn, headers=headers)
    equal(await other.refused(topic, {"private": True}, access_token=blue), reason(topic), "why with another claim")
    other = await stage.peer(vsn)
    equal(await other.refused(topic, {"private": True}, access_token=token), reason(topic), "why without the header")


@scenario("a role that there is not, or that nobody may become, may not join", vsn=BOTH, tables=OPEN)
async def roles(stage, vsn):
    topic = "realtime:open:roles"
    peer = await stage.peer(vsn)
    for role in ("nobody_of_ours", "none", 'a"; DROP TABLE x'):
        equal(await peer.refused(topic, {"private": True}, access_token=stage.token(role)), reason(topic), f"why as {role}")
    # More than a client's, whatever the policies say.
    for role in ("tidewire", "tidewire_policies", "pg_read_all_data", "postgres"):
        why = await peer.refused(topic, {"private": True}, access_token=stage.token(role))
        equal(why, "InvalidJWTToken: The role of the token may not be used by clients", f"why as {role}")
    await peer.join(topic, {"private": True}, access_token=stage.anon)


@scenario("expired tokens and wrong ones are refused before anything is asked", vsn=BOTH, tables=OPEN)
async def bad_tokens(stage, vsn):
    peer = await stage.peer(vsn)
    why = await peer.refused("realtime:open:expired", {"private": True}, access_token=stage.token("authenticated", -5))
    true(why.startswith("InvalidJWTToken: Token has expired "), "an expired token as reason", why)
    ends = tokens.in_seconds(2)
    token = tokens.sign(stage.secret, {"role": "authenticated", "exp": ends})
    await peer.join("realtime:open:ending", {"private": True}, access_token=token)
    true((await peer.ended("realtime:open:ending")).startswith("Token has expired "), "the end of the token")
    true(time.time() >= ends, "the end not before exp")


@scenario("checklist 19: another token that has lost a right ends the channel", vsn=BOTH, tables=[*MEMBERS, *prefixed("split", """(auth.jwt() -> 'may') ? extension""")])
async def lost(stage, vsn):
    topic = "realtime:room:lost"
    await stage.database.run(f"INSERT INTO p_members VALUES ('{ANA}', 'room:lost')")
    peer = await joined(stage, topic, stage.ana, vsn)
    # As long as the token is the same nothing is asked again.
    await stage.database.run("DELETE FROM p_members")
    speaker = await joined(stage, topic, stage.service, vsn)
    await speaker.say(topic, "m", {"n": 1})
    await peer.hears(topic, "m", {"n": 1})
    await peer.push(topic, "access_token", {"access_token": stage.token("authenticated", 3000, sub=ANA)})
    equal(await peer.ended(topic), NOT_READ + "room:lost", "what it is told")
    await speaker.say(topic, "m", {"n": 2})
    await speaker.fence()
    equal([str(m) for m in await peer.fence()], [], "what it hears afterwards")
    # One right of two.
    for kept in ("presence", "broadcast"):
        topic = f"realtime:split:{kept}"
        peer = await stage.peer(vsn)
        await peer.join(topic, ALL_EXTENSIONS, access_token=stage.token("authenticated", may=["broadcast", "presence"]))
        await peer.state(topic)
        await peer.push(topic, "access_token", {"access_token": stage.token("authenticated", may=[kept])})
        equal(await peer.ended(topic), f"You no longer have permission to read from this Channel topic: split:{kept}", "what it is told")


AGAIN = prefixed("again", writes="auth.uid() IS NOT NULL") + prefixed("kept") + [function("again_may", "BEGIN RETURN true; END")] + prefixed("called", "again_may()")


@scenario("trap 18: rules that change count for channels that are joined: who may not read any more is closed, the others stay", vsn=BOTH, tables=AGAIN)
async def reviewed(stage, vsn):
    try:
        changes = {
            "realtime:again:1": 'DROP POLICY "again select" ON realtime.messages',
            "realtime:called:1": function("again_may", "BEGIN RETURN false; END"),
        }
        kept = await joined(stage, "realtime:kept:1", stage.ana, vsn, broadcast={"self": True})
        for topic, change in changes.items():
            peer = await joined(stage, topic, stage.ana, vsn)
            await stage.database.run(change)
            lost = "You no longer have permission to read from this Channel topic: "
            equal(await peer.ended(topic), lost + topic.removeprefix("realtime:"), "what it is told")
            equal(await (await stage.peer(vsn)).refused(topic, {"private": True}, access_token=stage.ana), reason(topic), "a new join")
        await kept.say("realtime:kept:1", "m", {"n": 1})
        await kept.hears("realtime:kept:1", "m", {"n": 1})
        # What may be written is asked again as well.
        writes = 'ALTER POLICY "kept insert" ON realtime.messages WITH CHECK (false)'
        await stage.database.run(writes)
        speaker = await joined(stage, "realtime:kept:1", stage.service, vsn)
        for number in range(100):
            await kept.say("realtime:kept:1", "n", {"n": number})
            await kept.fence()
            heard = await speaker.fence()
            if not heard:
                break
            await asyncio.sleep(0.05)
        equal([str(m) for m in heard], [], "what is heard of it in the end")
        await stage.database.run("REVOKE SELECT ON realtime.messages FROM authenticated")
        true("permission" in await kept.ended("realtime:kept:1"), "it is told that it may not")
        true(await speaker.fence() is not None, "who may read everything stays")
    finally:
        await stage.database.run("GRANT SELECT ON realtime.messages TO authenticated", *AGAIN)


TURNED = prefixed("turned", "true")
# Says late that it is presence alone that may be read now.
LATE_PRESENCE = "CASE WHEN realtime.topic() NOT LIKE 'turned:%' THEN false WHEN extension = 'presence' THEN (SELECT true FROM pg_sleep(1)) ELSE false END"


@scenario("rules that change before a channel turns its presence on count for all that it reads", vsn=BOTH, tables=TURNED)
async def turned_on_after_a_change(stage, vsn):
    try:
        peer = await joined(stage, "realtime:turned:1", stage.ana, vsn)
        await stage.database.run(f'ALTER POLICY "turned select" ON realtime.messages USING ({LATE_PRESENCE})')
        # The hub has not read of it; by when it has, this question is under way.
        await peer.present("realtime:turned:1", "track", {})
        told = "You no longer have permission to read from this Channel topic: turned:1"
        equal(await peer.ended("realtime:turned:1"), told, "what it is told")
    finally:
        await stage.database.run(*TURNED)


@scenario("another token may bring rights: what may be read and written is looked at again", vsn=BOTH, tables=prefixed("gain", "(auth.jwt() -> 'may') ? extension", "(auth.jwt() -> 'may') ? 'write'"))
async def gained(stage, vsn):
    topic = "realtime:gain:1"
    service = await joined(stage, topic, stage.service, vsn, broadcast={"ack": True})
    peer = await stage.peer(vsn)
    await peer.join(topic, ALL_EXTENSIONS, access_token=stage.token("authenticated", may=["presence"]))
    await peer.state(topic)
    # Its rights are asked as well: what it says before that would come later.
    await service.reply(await service.say(topic, "m", {"n": 1}))
    equal((await peer.reply(await peer.present(topic, "track", {}))).status, "error", "the answer to track at first")
    await peer.say(topic, "mine", {})
    await service.fence()
    equal([str(m) for m in await peer.fence()], [], "what it hears at first")
    await peer.push(topic, "access_token", {"access_token": stage.token("authenticated", may=["presence", "broadcast", "write"])})
    # Pushes wait for their rights in order, so the answer says that the token counts.
    ref = await peer.say(topic, "mine", {"n": 2})
    equal((await peer.reply(ref)).status, "ok", "the ack with the other token")
    await peer.hears(topic, "mine", {"n": 2})
    await service.hears(topic, "mine", {"n": 2})
    await service.say(topic, "m", {"n": 3})
    await peer.hears(topic, "m", {"n": 3})
    equal((await peer.reply(await peer.present(topic, "track", {}))).status, "ok", "the answer to track with the other token")


@scenario("what was said with a token counts with that one, whatever the next may do", vsn=BOTH, tables=prefixed("before", "(auth.jwt() -> 'may') ? 'read'", "(SELECT (auth.jwt() -> 'may') ? 'write' FROM pg_sleep(0.7))"))
async def said_before(stage, vsn):
    hearer = await joined(stage, "realtime:before:1", stage.token("service_role"), vsn)

    async def speaker(*may):
        peer = await stage.peer(vsn)
        token = stage.token("authenticated", may=["read", *may])
        await peer.join("realtime:before:1", {"private": True}, access_token=token)
        return peer

    # Its rights are being asked when it has another token, with which it may not even read.
    loser = await speaker("write")
    for n in range(5):
        await loser.say("realtime:before:1", "loser", {"n": n})
    await loser.push("realtime:before:1", "access_token", {"access_token": stage.token("authenticated", may=[])})
    await loser.say("realtime:before:1", "loser", {"n": "too late"})
    for n in range(5):
        await hearer.hears("realtime:before:1", "loser", {"n": n})
    await loser.ended("realtime:before:1")
    # The other way round: what it may not say does not become sayable by the token after it.
    winner = await speaker()
    await winner.say("realtime:before:1", "winner", {"n": "too early"})
    await winner.push("realtime:before:1", "access_token", {"access_token": stage.token("authenticated", may=["read", "write"])})
    for n in range(5):
        await winner.say("realtime:before:1", "winner", {"n": n})
    for n in range(5):
        await hearer.hears("realtime:before:1", "winner", {"n": n})
    # And in its order, where it may with both.
    both = await speaker("write")
    for n in range(5):
        await both.say("realtime:before:1", "both", {"n": n})
        await both.push("realtime:before:1", "access_token", {"access_token": stage.token("authenticated", may=["read", "write"], n=n)})
    for n in range(5):
        await hearer.hears("realtime:before:1", "both", {"n": n})
    # A right of a token between two others is not kept.
    between = await speaker("write")
    await between.say("realtime:before:1", "between", {"n": 1})
    for may in (["read", "write"], ["read"]):
        await between.push("realtime:before:1", "access_token", {"access_token": stage.token("authenticated", may=may)})
        await asyncio.sleep(0.2)
    await hearer.hears("realtime:before:1", "between", {"n": 1})
    await asyncio.sleep(1.5)
    for n in range(3):
        await between.say("realtime:before:1", "between", {"n": "not any more"})
        await asyncio.sleep(0.5)
    equal([str(m) for m in await hearer.fence()], [], "what else is heard")


@scenario("a token of another user ends what the first might hear", vsn=BOTH, tables=MEMBERS)
async def another_user(stage, vsn):
    topic = "realtime:room:users"
    await stage.database.run(f"INSERT INTO p_members VALUES ('{ANA}', 'room:users')")
    peer = await joined(stage, topic, stage.ana, vsn)
    await peer.push(topic, "access_token", {"access_token": stage.ben})
    equal(await peer.ended(topic), NOT_READ + "room:users", "what it is told")


@scenario("only private channels where that is set", vsn=BOTH, settings={"private_only": "on"}, tables=OPEN)
async def private_only(stage, vsn):
    peer = await stage.peer(vsn)
    wanted = "PrivateOnly: This project only allows private channels"
    for config in ({}, {"private": False}, {"postgres_changes": []}):
        equal(await peer.refused("realtime:open:only", config, access_token=stage.ana), wanted, "the reason")
    await peer.join("realtime:open:only", {"private": True}, access_token=stage.ana)


@scenario("trap 18: replay is for those who may read broadcasts", vsn=BOTH, tables=PRESENCE_ONLY)
async def replay_rights(stage, vsn):
    topic = "realtime:presence-only:replay"
    peer = await stage.peer(vsn)
    config = ALL_EXTENSIONS | {"broadcast": {"replay": {"since": 0, "limit": 5}}}
    equal(await peer.refused(topic, config, access_token=stage.ana), reason(topic), "the reason")


TROUBLE = [
    function("p_raises", "BEGIN RAISE EXCEPTION 'no'; END"),
    function("p_hangs", "BEGIN PERFORM pg_sleep(60); RETURN true; END"),
    function("p_loops", "BEGIN LOOP NULL; END LOOP; END"),
    function("p_recurses", "BEGIN RETURN p_recurses(); END"),
    function("p_writes", "BEGIN CREATE TABLE public.p_made (a int); RETURN true; END"),
    function("p_resets", "BEGIN PERFORM set_config('role', 'none', false); RETURN true; END"),
    *(part for kind in ("raises", "hangs", "loops", "recurses", "writes") for part in prefixed(kind, f"p_{kind}()", f"p_{kind}()")),
    *(part for kind in ("raises", "hangs") for part in prefixed(f"write-{kind}", "true", f"p_{kind}()")),
    *OPEN,
]


@scenario("policies that raise, recurse or hang refuse the one channel, and nobody else is late", vsn=BOTH, tables=TROUBLE)
async def troubled_policies(stage, vsn):
    peer = await stage.peer(vsn)
    for kind in ("raises", "recurses"):
        topic = f"realtime:{kind}:1"
        equal(await peer.refused(topic, {"private": True}, access_token=stage.ana), reason(topic), f"why where it {kind}")
    refs = {kind: await peer.send_join(f"realtime:{kind}:1", {"config": {"private": True}, "access_token": stage.ana})
            for kind in ("hangs", "loops")}  # fmt: skip
    began = time.monotonic()
    for n in range(20):
        other = await stage.peer(BOTH[n % 2])
        await other.join(f"realtime:open:beside-{n}", {"private": True, "broadcast": {"ack": True}}, access_token=stage.ana)
        equal((await other.reply(await other.say(f"realtime:open:beside-{n}", "m", {}))).status, "ok", "the ack beside")
    beside = time.monotonic() - began
    equal([str(m) for m in peer.waiting], [], "what is known of those that hang when 20 others have joined")
    for kind, ref in refs.items():
        reply = await peer.reply(ref, f"the refusal of the one that {kind}")
        equal(reply.status, "error", "its status")
        true(reply.reason.startswith("QueryCanceled: canceling statement due to"), "a statement that was cancelled", reply)
    true(time.monotonic() - began < 10, "an answer before clients give up", f"{time.monotonic() - began:.1f} s, others {beside:.1f} s")


SLOW = [
    function("p_slow", "BEGIN PERFORM pg_sleep(0.4); RETURN true; END"),
    *prefixed("slow", "p_slow()", "true"),
]


@scenario("a token that is renewed before its end keeps the channel while the renewal is asked", vsn=BOTH, tables=SLOW)
async def renewed_in_time(stage, vsn):
    peer, topic = await stage.peer(vsn), "realtime:slow:renewed"
    ends = int(time.time()) + 4
    await peer.join(topic, {"private": True}, access_token=stage.token("anon", exp=ends))
    # Ends are whole seconds: what is sent so shortly before it is asked beyond it.
    while time.time() < ends - 0.2:
        await asyncio.sleep(0.02)
    await peer.push(topic, "access_token", {"access_token": stage.token("anon")})
    await asyncio.sleep(1.5)
    equal([str(m) for m in await peer.fence()], [], "what is said of it")
    await peer.say(topic, "still", {})
    watcher = await stage.peer(vsn)
    await watcher.join(topic, {"private": True, "broadcast": {"self": True}}, access_token=stage.anon)
    await peer.say(topic, "here", {})
    equal((await watcher.broadcast(topic)).payload["event"], "here", "what others hear of it")


@scenario("users are counted when they ask to join, so that many at once are no more than the limit", settings={"max_concurrent_users": "5"}, tables=SLOW)
async def users_at_once(stage):
    peers = [await stage.peer("2.0.0") for _ in range(15)]
    refs = [await peer.send_join("realtime:slow:crowd", {"config": {"private": True}, "access_token": stage.anon}) for peer in peers]
    statuses = [(await peer.reply(ref)).status for peer, ref in zip(peers, refs)]
    equal((statuses.count("ok"), statuses.count("error")), (5, 10), "who may join, and who may not")
    # Who is refused for another reason leaves the room to others.
    await peers[statuses.index("ok")].close()
    late = [peer for peer, status in zip(peers, statuses) if status == "error"]
    for _ in range(200):
        await late[0].refused("realtime:nobody:may", {"private": True}, access_token=stage.anon)
        ref = await late[1].send_join("realtime:slow:crowd", {"config": {"private": True}, "access_token": stage.anon})
        if (await late[1].reply(ref)).status == "ok":
            break
        await asyncio.sleep(0.02)
    else:
        true(False, "room once one has ended and another was refused", "none")


@scenario("policies for writing that raise or hang drop the message, and the channel stays", vsn=BOTH, tables=TROUBLE)
async def troubled_writes(stage, vsn):
    peer = await stage.peer(vsn)
    for kind in ("write-raises", "write-hangs"):
        topic = f"realtime:{kind}:1"
        await peer.join(topic, {"private": True, "broadcast": {"ack": True, "self": True}}, access_token=stage.ana)
        await peer.say(topic, "m", {})
        ref = await peer.present(topic, "track", {})
        equal((await peer.reply(ref)).payload, {"status": "error", "response": {}}, "the answer to track")
        equal([str(m) for m in await peer.fence()], [], "what else comes")
        speaker = await joined(stage, topic, stage.service, vsn)
        await speaker.say(topic, "still", {})
        await peer.hears(topic, "still", {})


@scenario("what a policy's function writes is gone, and what it sets is nobody else's", tables=[*TROUBLE, *prefixed("resets", "p_resets()")])
async def side_effects(stage):
    peer = await stage.peer()
    for kind in ("writes", "resets"):
        ref = await peer.send_join(f"realtime:{kind}:1", {"config": {"private": True}, "access_token": stage.ana})
        await peer.reply(ref)
    equal(await stage.database.run("SELECT to_regclass('public.p_made') IS NULL"), "t", "that the table is not there")
    other = await stage.peer()
    equal(await other.refused("realtime:never:1", {"private": True}, access_token=stage.ana), reason("realtime:never:1"), "why")
    await other.join("realtime:open:afterwards", {"private": True}, access_token=stage.ana)


@scenario("a policy that asks realtime.messages itself recurses, and is an error for everybody until it is gone", tables=OPEN)
async def recursion(stage):
    peer = await stage.peer()
    name = "asks itself"
    await stage.database.run(*policy(name, "SELECT", "exists (select 1 from realtime.messages m where m.event is null)"))
    try:
        await asyncio.sleep(0.2)
        why = await peer.refused("realtime:open:recursion", {"private": True}, access_token=stage.ana)
        equal(why, reason("realtime:open:recursion"), "why")
        await peer.join("realtime:public", {})
    finally:
        await stage.database.run(f'DROP POLICY "{name}" ON realtime.messages')
    for _ in range(50):
        ref = await peer.send_join("realtime:open:recursion", {"config": {"private": True}, "access_token": stage.ana})
        if (await peer.reply(ref)).status == "ok":
            return
        await asyncio.sleep(0.05)
    true(False, "joins to be allowed when the policy is gone", "refusals")


@scenario("without a partition for today joins are refused for that reason", tables=OPEN)
async def missing_partition(stage):
    name = await stage.database.run("SELECT 'realtime.messages_' || to_char(timezone('utc', now()), 'YYYY_MM_DD')")
    bounds = await stage.database.run(f"SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = '{name}'::regclass")
    await stage.database.run(f"ALTER TABLE realtime.messages DETACH PARTITION {name}")
    try:
        peer = await stage.peer()
        why = await peer.refused("realtime:open:partition", {"private": True}, access_token=stage.ana)
        equal(why, "MissingPartition: Realtime was unable to find the expected messages partition", "why")
    finally:
        await stage.database.run(f"ALTER TABLE realtime.messages ATTACH PARTITION {name} {bounds}")
    await peer.join("realtime:open:partition", {"private": True}, access_token=stage.ana)


@scenario("a storm of private joins is served, each with its own rights", tables=MEMBERS, settings={"loops": "2", "max_joins_per_second": "0"})
async def storm(stage):
    people = [f"00000000-0000-4000-8000-{n:012x}" for n in range(40)]
    rows = ", ".join(f"('{who}', 'room:{n}-{r}')" for n, who in enumerate(people) for r in range(10))
    await stage.database.run(f"INSERT INTO p_members VALUES {rows}")

    async def joins(n: int, who: str):
        peer = await stage.peer(BOTH[n % 2])
        token = stage.token("authenticated", sub=who)
        refs = [(m, r, await peer.send_join(f"realtime:room:{m}-{r}", {"config": {"private": True}, "access_token": token}))
                for r in range(10) for m in (n, (n + 1) % 40)]  # fmt: skip
        for m, r, ref in refs:
            reply = await peer.reply(ref)
            equal(reply.status, "ok" if m == n else "error", f"the join of {n} to the room of {m}")
            if m != n:
                equal(reply.reason, f"Unauthorized: {NOT_READ}room:{m}-{r}", "the reason")

    await asyncio.gather(*(joins(n, who) for n, who in enumerate(people)))
