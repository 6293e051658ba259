"""Broadcast, presence, private channels, requests and replay, as an application in Python does them."""

import asyncio

from realtime.exceptions import RealtimeHTTPError

from clients.expect import equal, fail, true
from clients.hub import LIMIT
from clients.scenario import scenario
from clients.stage import ANA
from clients.supabase import Channel, Heard, SupabaseClients
from conformance.database import fresh, send, since
from conformance.private import MEMBERS, OPEN, READ_ONLY


def options(private: bool = False, key: str = "", presence: bool = False, **broadcast) -> dict:
    return {"config": {"broadcast": {"ack": False, "self": False} | broadcast, "presence": {"key": key, "enabled": presence}, "private": private}}


async def member(supabase, name: str, token: str | None = None, **more) -> Channel:
    """A client of its own with one channel, not yet subscribed."""
    client = await supabase.client()
    if token:
        await client.set_auth(token)
    return Channel(client, name, options(**more))


def hears(channel: Channel, event: str = "*") -> Heard:
    heard = Heard(f"a broadcast {event}")
    channel.channel.on_broadcast(event, heard)
    return heard


class Presences:
    """What a channel's callbacks say of who is there."""

    def __init__(self, channel: Channel):
        self.channel = channel.channel
        self.joined, self.left, self.synced = Heard("a join"), Heard("a leave"), Heard("a sync")
        self.channel.on_presence_join(lambda key, current, new: self.joined((key, new)))
        self.channel.on_presence_leave(lambda key, current, left: self.left((key, left)))
        self.channel.on_presence_sync(lambda: self.synced(self.shown()))

    def shown(self) -> dict:
        return {key: sorted(one.get("n") for one in presences) for key, presences in self.channel.presence_state().items()}

    async def becomes(self, wanted: dict, what: str):
        for _ in range(int(LIMIT * 50)):
            if self.shown() == wanted:
                return
            await asyncio.sleep(0.02)
        fail(f"{what} to be {wanted}", self.shown())


def brief(item) -> tuple:
    """The client hands over pydantic's objects or dictionaries, by version."""
    item = dict(item)
    return item["event"], item["payload"]


@scenario("broadcasts go to those who listen for the event, and to oneself only by wish")
async def broadcasts(stage):
    async with SupabaseClients(stage) as supabase:
        speaker, listener, echo = [await member(supabase, "talk", **{"self": own}) for own in (False, False, True)]
        own, everything, named, echoed = hears(speaker), hears(listener), hears(listener, "named"), hears(echo)
        for channel in (speaker, listener, echo):
            await channel.subscribe()
        await speaker.channel.send_broadcast("other", {"n": 1})
        await speaker.channel.send_broadcast("named", {"n": 2, "t": "grüße 🙂"})
        await echo.channel.send_broadcast("echo", {"n": 3})
        equal(brief(await named.next()), ("named", {"n": 2, "t": "grüße 🙂"}), "what the listener for one event hears")
        for heard in (everything, echoed):
            said = sorted([brief(await heard.next()) for _ in range(3)], key=lambda one: one[1]["n"])
            equal(said, [("other", {"n": 1}), ("named", {"n": 2, "t": "grüße 🙂"}), ("echo", {"n": 3})], "what is heard")
        equal(brief(await own.next()), ("echo", {"n": 3}), "what the speaker hears of the others")
        equal(own.so_far(), [], "what the speaker hears of itself")


@scenario("an ack is a reply to the push")
async def acknowledged(stage):
    async with SupabaseClients(stage) as supabase:
        channel = await (await member(supabase, "ack", ack=True)).subscribe()
        answered = Heard("an answer")
        push = await channel.channel.push("broadcast", {"type": "broadcast", "event": "m", "payload": {"n": 1}})
        push.receive("ok", lambda *_: answered("ok")).receive("error", lambda *_: answered("error"))
        push.receive("timeout", lambda *_: answered("timeout"))
        equal(await answered.next(), "ok", "the answer")


@scenario("presence: join, change, leave and the state of all are the same for everybody")
async def presence(stage):
    async with SupabaseClients(stage) as supabase:
        first, second = await member(supabase, "who", key="first"), await member(supabase, "who", key="second")
        views = [Presences(first), Presences(second)]
        await first.subscribe()
        equal(await views[0].synced.next(), {}, "the state where nobody is")
        await second.subscribe()
        await first.channel.track({"n": 1})
        for view in views:
            await view.becomes({"first": [1]}, "who is there")
            key, new = await view.joined.next()
            equal((key, [one["n"] for one in new]), ("first", [1]), "who joined")
        await second.channel.track({"n": 2})
        await first.channel.track({"n": 3})
        for view in views:
            await view.becomes({"first": [3], "second": [2]}, "who is there after a change")
        await first.channel.untrack()
        for view in views:
            await view.becomes({"second": [2]}, "who is there after one left")
        third = await member(supabase, "who", key="third")
        late = Presences(third)
        await third.subscribe()
        await late.becomes({"second": [2]}, "what one who comes later is told")
        await second.channel.unsubscribe()
        await late.becomes({}, "who is there when all have gone")


@scenario("presence: somebody whose connection dies is gone for the others")
async def dead_connection(stage):
    async with SupabaseClients(stage) as supabase:
        first, second = await member(supabase, "dying", key="first"), await member(supabase, "dying", key="second")
        views = [Presences(first), Presences(second)]
        for number, channel in enumerate((first, second)):
            await channel.subscribe()
            await channel.channel.track({"n": number})
        for view in views:
            await view.becomes({"first": [0], "second": [1]}, "who is there")
        first.channel.socket._ws_connection.transport.abort()
        # It comes back by itself, and joins; what it tracked is for the application to say again.
        await views[1].becomes({"second": [1]}, "who is there then")


@scenario("private channels: refused without a policy, and open to members", tables=[*MEMBERS, *READ_ONLY])
async def private(stage):
    async with SupabaseClients(stage) as supabase:
        await stage.database.run(f"INSERT INTO p_members VALUES ('{ANA}', 'room:py')")
        stranger = await member(supabase, "room:py", stage.ben, private=True)
        await stranger.channel.subscribe(lambda state, error: stranger.states(state.value, error))
        state, error = await stranger.states.next()
        equal(state, "CHANNEL_ERROR", "the state of a stranger")
        true("Unauthorized: You do not have permissions to read from this Channel topic: room:py" in str(error), "why", str(error))
        ana, other = [await member(supabase, "room:py", stage.ana, private=True) for _ in range(2)]
        heard = hears(other)
        await ana.subscribe(), await other.subscribe()
        await ana.channel.send_broadcast("m", {"n": 1})
        equal(brief(await heard.next()), ("m", {"n": 1}), "what the other hears")


@scenario("private channels: another token by set_auth keeps the rights, or ends the channel", tables=[*MEMBERS])
async def tokens(stage):
    async with SupabaseClients(stage) as supabase:
        await stage.database.run(f"INSERT INTO p_members VALUES ('{ANA}', 'room:auth')")
        first = await member(supabase, "room:auth", stage.ana, private=True)
        heard = hears(first)
        await first.subscribe()
        other = await (await member(supabase, "room:auth", stage.service, private=True)).subscribe()
        await first.channel.socket.set_auth(stage.token("authenticated", 3000, sub=ANA))
        await other.channel.send_broadcast("m", {"n": 1})
        equal(brief(await heard.next()), ("m", {"n": 1}), "what it hears with another token")
        await first.channel.socket.set_auth(stage.ben)
        # This client takes an error for a reason to join again; that is refused.
        await first.state("CHANNEL_ERROR", "when the token is of somebody else")
        await first.channel.unsubscribe()


@scenario("http_send: JSON to all, bytes to none of this client, and what may not be is an error with its status", tables=[*OPEN, *READ_ONLY])
async def requests(stage):
    async with SupabaseClients(stage) as supabase:
        listener, private = await member(supabase, "open:http"), await member(supabase, "open:http", stage.ana, private=True)
        heard, privately = hears(listener), hears(private)
        await listener.subscribe(), await private.subscribe()
        sender = await member(supabase, "open:http")
        # Nobody has to be subscribed to send in this way.
        await sender.channel.http_send("m", {"n": 1})
        await sender.channel.http_send("raw", b"\x00\x01")
        await sender.channel.http_send("list", [1, 2])
        equal([brief(await heard.next()) for _ in range(2)], [("m", {"n": 1}), ("list", {"_json": [1, 2]})], "what is heard")
        await private.channel.http_send("m", {"n": 2})
        equal(brief(await privately.next()), ("m", {"n": 2}), "what is heard in private")
        equal(heard.so_far(), [], "what is heard of that in public")
        forbidden = await member(supabase, "read-only:http", stage.ana, private=True)
        try:
            await forbidden.channel.http_send("m", {})
            fail("an error", "none")
        except RealtimeHTTPError as error:
            equal((error.status, "Unauthorized" in str(error)), (403, True), "status and text")


@scenario("what the database says comes with its id, and a replay what it said before", tables=OPEN)
async def from_the_database(stage):
    async with SupabaseClients(stage) as supabase:
        _, sub = fresh("py")
        live = await member(supabase, sub, stage.ana, private=True, replication_ready=True)
        heard = hears(live)
        await live.subscribe()
        await live.systems.until(lambda item: dict(item)["message"] == "Replication connection established", "readiness")
        await stage.database.run(*(send({"n": n}, "note", sub) for n in range(3)))
        first = dict(await heard.next())
        equal((first["event"], first["payload"]["n"]), ("note", 0), "the first")
        equal(dict(first["meta"]).get("id"), first["payload"]["id"], "its id")
        await heard.next(), await heard.next()
        later = await member(supabase, sub, stage.ana, private=True, replay={"since": since(60), "limit": 2})
        replayed = hears(later)
        await later.subscribe()
        found = [dict(await replayed.next()) for _ in range(2)]
        equal([(one["payload"]["n"], dict(one["meta"]).get("replayed")) for one in found], [(1, True), (2, True)], "what was replayed")


@scenario("a public channel may not replay, and says so")
async def public_replay(stage):
    async with SupabaseClients(stage) as supabase:
        channel = await member(supabase, "public-replay", replay={"since": 0})
        await channel.channel.subscribe(lambda state, error: channel.states(state.value, error))
        state, error = await channel.states.next()
        equal(state, "CHANNEL_ERROR", "the state")
        true("Replay is not allowed for public channels" in str(error), "why", str(error))
