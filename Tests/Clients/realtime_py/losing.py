"""When history is lost: everybody who is concerned is told, whichever way it was lost and whichever way they come back."""

import asyncio
import glob
import itertools
import os
import shutil
import signal

from clients.expect import equal, true
from clients.peer import binding
from clients.scenario import published, scenario
from clients.stage import ANA
from clients.supabase import SupabaseClients
from conformance.resume import joined, told
from realtime_py.conversations import Presences, member
from realtime_py.returning import ACKNOWLEDGED, OWNED, TABLE, Writer, check, ids_until, returning

MISSING = "may be missing"


async def drop_slot(stage):
    """The server takes a moment to notice that its reader is gone."""
    slot = stage.hub.slot
    while await stage.database.run(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{slot}'"):
        await stage.database.run(
            f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{slot}' AND active",
            f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{slot}' AND NOT active")
        await asyncio.sleep(0.05)


async def lose_directory(stage):
    """All but what the tests themselves write there."""
    for name in os.listdir(stage.hub.directory):
        path = os.path.join(stage.hub.directory, name)
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif path != stage.hub.log_file:
            os.remove(path)


async def lose_segments(stage):
    for path in glob.glob(os.path.join(stage.hub.directory, "log", "*.segment")):
        os.remove(path)


async def damage_lineage(stage):
    path = os.path.join(stage.hub.directory, "log", "lineage")
    with open(path, "r+b") as file:
        file.write(b"timelime")


async def told_of_loss(channel, words: str):
    """This client takes it for an error of the channel, and joins again by itself: then it hears on."""
    await channel.states.until(lambda item: item[0] == "CHANNEL_ERROR" and words in str(item[1]), f"that {words}")
    await channel.state("SUBSCRIBED", "after that")
    await channel.ready()


async def is_told(stage, table: str, lose, reason: str):
    """A client that comes back by itself, and one that resumes; then both hear on."""
    async with SupabaseClients(stage) as supabase:
        client, channel, heard = await returning(stage, supabase, table, max_retries=50)
        peer, _ = await joined(stage, "2.0.0", "realtime:asks", binding(table), position=True)
        await peer.subscribed("realtime:asks")
        position = await told(peer, "realtime:asks")
        writer = Writer(stage, table)
        await writer.write(1)
        equal((await heard.next())["record"]["id"], 1, "what comes before")
        await peer.close()
        # Where it stands is written down within a second.
        await asyncio.sleep(ACKNOWLEDGED)
        await stage.hub.end(signal.SIGKILL)
        await lose(stage)
        await writer.write(1)
        await stage.hub.start()
        await told_of_loss(channel, MISSING)
        peer, standing = await joined(stage, "2.0.0", "realtime:asks", binding(table), position=True, resume=position)
        equal((standing["recovered"], standing["reason"]), (False, "epoch_changed"), "what is said of the log")
        true(standing["position"].split(".")[0] != position.split(".")[0], "another epoch", (position, standing))
        await peer.subscribed("realtime:asks")
        await writer.write(1)
        await heard.until(lambda change: change["record"]["id"] == 3, "what comes after")
        await peer.changes_until("realtime:asks", lambda data: data["record"]["id"] == 3)
        true(f"reason={reason}" in stage.hub.log(), "a line of the log that says why", stage.hub.log()[-1500:])


@scenario("a slot that was dropped while the hub was away is told to who comes back and to who resumes", own_hub=True, tables=published("lost_slot", TABLE))
async def slot(stage):
    await is_told(stage, "lost_slot", drop_slot, "slot_missing")


@scenario("a data directory that is lost is told to who comes back and to who resumes", own_hub=True, tables=published("lost_data", TABLE))
async def directory(stage):
    await is_told(stage, "lost_data", lose_directory, "log_missing")


@scenario("segments that are lost are told to who comes back and to who resumes", own_hub=True, tables=published("lost_log", TABLE))
async def segments(stage):
    await is_told(stage, "lost_log", lose_segments, "log_missing")


@scenario("a lineage that is damaged is told to who comes back and to who resumes", own_hub=True, tables=published("lost_line", TABLE))
async def lineage(stage):
    await is_told(stage, "lost_line", damage_lineage, "lineage_damaged")


@scenario("a log that was put back from an older copy is told to who comes back, who then hears on", own_hub=True, tables=published("lost_past", TABLE))
async def restored(stage):
    log = os.path.join(stage.hub.directory, "log")
    async with SupabaseClients(stage) as supabase:
        _, channel, heard = await returning(stage, supabase, "lost_past", max_retries=50)
        writer = Writer(stage, "lost_past")
        await writer.write(5)
        await heard.until(lambda change: change["record"]["id"] == 5, "what is in the copy")
        # As it is at that moment, while the hub writes.
        shutil.copytree(log, log + ".copy")
        await writer.write(30)
        await heard.until(lambda change: change["record"]["id"] == 35, "what is in no copy")
        await asyncio.sleep(ACKNOWLEDGED)
        equal(await stage.hub.end(signal.SIGTERM), 0, "the exit code of the hub")
        shutil.rmtree(log)
        os.rename(log + ".copy", log)
        await stage.hub.start()
        # The slot is ahead of the copy: nobody has what lies between.
        await told_of_loss(channel, MISSING)
        await writer.write(10)
        await heard.until(lambda change: change["record"]["id"] == 45, "what comes after")


@scenario("who is connected is told at once of a slot that is dropped", own_hub=True, tables=published("lost_now", TABLE))
async def connected(stage):
    async with SupabaseClients(stage) as supabase:
        _, channel, heard = await returning(stage, supabase, "lost_now")
        await drop_slot(stage)
        await told_of_loss(channel, f"{MISSING} (slot_missing)")
        writer = Writer(stage, "lost_now")
        await writer.write(1)
        await heard.until(lambda change: change["record"]["id"] == 1, "what comes after")


@scenario("who was present when the hub was killed, and does not come back, has left for those who do", own_hub=True)
async def ghosts(stage):
    async with SupabaseClients(stage) as supabase:
        names = ["stays", "vanishes"]
        members = [await member(supabase, "ghosts", key=name) for name in names]
        views = [Presences(one) for one in members]
        for number, one in enumerate(members):
            await one.subscribe()
            await one.channel.track({"n": number})
        await views[0].becomes({"stays": [0], "vanishes": [1]}, "who is there")
        await stage.hub.end(signal.SIGKILL)
        await members[1].channel.socket.close()
        await stage.hub.start()
        await members[0].state("SUBSCRIBED", "after the kill")
        await members[0].channel.track({"n": 2})
        await views[0].becomes({"stays": [2]}, "who is there after the kill")
        _, (key, left) = await views[0].left.until(lambda item: item[0] == "vanishes", "that the other has left")
        equal([one["n"] for one in left], [1], "who left")


@scenario("told to end twice, the hub sends everybody away at once, and the next one goes on where they were", own_hub=True, settings={"drain_time": "300s"}, tables=published("lost_time", TABLE))
async def hurried(stage):
    async with SupabaseClients(stage) as supabase:
        client, channel, heard = await returning(stage, supabase, "lost_time", max_retries=50)
        # At 500 a second on each loop these take a while.
        peers = await asyncio.gather(*(stage.peer() for _ in range(1500)))
        writer = Writer(stage, "lost_time")
        await writer.write(3)
        process = stage.hub.process
        ending = asyncio.create_task(stage.hub.end(signal.SIGTERM))
        while "received a second signal to stop" not in stage.hub.log() and process.returncode is None:
            await asyncio.sleep(0.05)
            process.send_signal(signal.SIGTERM)
        for peer in peers:
            await peer.connection.expect_close(1012, "the hub ends at once")
        equal(await ending, 0, "the exit code of the hub")
        true("received a second signal to stop" in stage.hub.log(), "a line that says so", stage.hub.log()[-800:])
        await writer.write(2)
        await stage.hub.start()
        await channel.ready()
        await writer.write(1)
        check(await ids_until(heard, 6), 6)


#: What the hub asks of PostgreSQL for one subscriber, one row, or both.
QUESTIONS = ["policy_pairs", "judge_questions", "policy_terms", "membership_fills", "channel_probes", "replays"]
STORM = min(3000, int(os.environ.get("TW_CROWD", "3000")))


class Sleeper:
    """A client of its own that comes back as the real ones do: its messages' numbers go on."""

    def __init__(self, stage, number: int, table: str):
        self.stage, self.name, self.table = stage, f"sleeper-{number}-{os.urandom(8).hex()}", table
        self.refs, self.found = itertools.count(1), []

    async def come(self):
        self.peer = await self.stage.peer(apikey=self.stage.ana, client_id=self.name)
        self.peer.refs = self.refs
        await self.peer.subscribe("realtime:storm", binding(self.table))

    async def hear(self, last: int):
        while not self.found or self.found[-1] != last:
            self.found.append((await self.peer.change("realtime:storm")).data["record"]["id"])


async def each(sleepers, act, at_once: int = 100):
    turns = asyncio.Semaphore(at_once)

    async def one(sleeper):
        async with turns:
            await act(sleeper)

    await asyncio.gather(*(one(sleeper) for sleeper in sleepers))


async def questions(stage) -> dict[str, int]:
    reader, writer = await asyncio.open_connection(stage.hub.host, stage.hub.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    counts = dict.fromkeys(QUESTIONS, 0)
    for line in text.splitlines():
        name = line.removeprefix("tidewire_").split("_total")[0]
        if name in counts and line.startswith("tidewire_"):
            counts[name] += int(float(line.rsplit(" ", 1)[1]))
    return counts


@scenario("thousands are sent away by a restart and come back: none misses a row, and PostgreSQL is asked about none of them", own_hub=True, settings={"drain_time": "2s"}, tables=published("lost_none", TABLE, OWNED.format("lost_none")))
async def storm(stage):
    async with SupabaseClients(stage) as supabase:
        client, channel, heard = await returning(stage, supabase, "lost_none", max_retries=50)
        sleepers = [Sleeper(stage, number, "lost_none") for number in range(STORM)]
        await each(sleepers, Sleeper.come)
        writer = Writer(stage, "lost_none")
        await writer.write(3)
        await each(sleepers, lambda sleeper: sleeper.hear(3))
        async with writer.writing(0.05):
            equal(await stage.hub.end(signal.SIGTERM), 0, "the exit code of the hub")
            for sleeper in sleepers:
                sleeper.peer.connection.abort()
            await stage.hub.start()
            await each(sleepers, Sleeper.come)
        await each(sleepers, lambda sleeper: sleeper.hear(writer.last))
        for sleeper in sleepers:
            check(sleeper.found, writer.last)
        check(await ids_until(heard, writer.last), writer.last)
        asked = await questions(stage)
        true(sum(asked.values()) <= 16, f"next to no questions for {STORM} that came back", asked)
