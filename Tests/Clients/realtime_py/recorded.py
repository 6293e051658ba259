"""What the ledger has of each delivery, beside what the real client was told (`ledger = full`)."""

import asyncio
import json
import os
import signal

from clients.expect import equal, fail, one_of, true
from clients.hub import LIMIT
from clients.scenario import published, scenario
from clients.stage import ANA, BEN
from clients.supabase import Channel, SupabaseClients

OWNED = (
    "ALTER TABLE {0} ENABLE ROW LEVEL SECURITY;"
    "CREATE POLICY own ON {0} FOR SELECT USING (owner = auth.uid())"
)
FULL = {"ledger": "full"}


async def ask(stage, *words) -> list[dict]:
    """What a command says of the hub's log, while the hub runs."""
    process = await asyncio.create_subprocess_exec(
        stage.hub.program, *words, "--json", "--log", os.path.join(stage.hub.directory, "log"),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, errors = await process.communicate()
    if process.returncode not in (0, 1):
        fail(f"an answer to {words}", errors.decode())
    return [json.loads(line) for line in out.decode().splitlines()]


async def offsets(stage, table: str) -> dict[int, int]:
    """By row: where the log has its insert."""
    changes = await ask(stage, "tail", "--from", "oldest", "--table", table)
    return {change["record"]["id"]: change["offset"] for change in changes if change["op"] == "INSERT"}


async def listening(supabase, stage, table: str, user: str):
    client = await supabase.client(token=stage.token("authenticated", sub=user))
    channel = Channel(client, f"recorded-{user[-4:]}")
    heard = channel.on("INSERT", table)
    await channel.subscribe()
    return channel, heard


async def recorded(stage, offset: int) -> dict[str, dict]:
    """By user, when all that is asked about is written down."""
    for _ in range(int(LIMIT * 5)):
        answers = {answer["user"]: answer for answer in await ask(stage, "who", f"@{offset}", "--recorded")}
        if any(answer["basis"] == "recorded" for answer in answers.values()):
            return answers
        await asyncio.sleep(0.2)
    fail("a delivery that is recorded", answers)


@scenario(
    "each delivery is recorded, and nobody is said to have got what he did not", settings=FULL, own_hub=True,
    tables=published("r_owned", "id int PRIMARY KEY, owner uuid", OWNED.format("r_owned")),
)  # fmt: skip
async def each_delivery(stage):
    async with SupabaseClients(stage) as supabase:
        people = {user: await listening(supabase, stage, "r_owned", user) for user in (ANA, BEN)}
        for row in range(1, 9):
            await stage.database.run(f"INSERT INTO r_owned VALUES ({row}, '{ANA if row % 3 else BEN}')")
        got = {ANA: [1, 2, 4, 5, 7, 8], BEN: [3, 6]}
        for user, (_, heard) in people.items():
            equal([(await heard.next())["record"]["id"] for _ in got[user]], got[user], f"what {user} heard")
        places = await offsets(stage, "r_owned")
        for row, offset in places.items():
            answers = await recorded(stage, offset)
            for user, answer in answers.items():
                if row in got[user]:
                    equal((answer["basis"], answer["outcome"] in ("sent", "received")), ("recorded", True), f"row {row}, {answer}")
                    true(answer["sent_at"], "when it was sent", answer)
                else:
                    # That it was not is certain when all before has been written down.
                    true(answer["outcome"] in ("not_sent", "unknown"), f"row {row} was not sent", answer)
        session = answers[BEN]["session"]
        for channel, _ in people.values():
            await channel.channel.unsubscribe()
        await stage.hub.stop()
        for row, offset in places.items():
            for user, answer in (await recorded(stage, offset)).items():
                wanted = ("sent", "received") if row in got[user] else ("not_sent",)
                one_of(answer["outcome"], wanted, f"row {row}")
                equal(answer["basis"], "recorded", f"row {row}, {answer}")
        lines = await ask(stage, "session", session, "--from", "oldest", "--deliveries")
        equal([line["offset"] for line in lines if line["event"] == "sent"], [places[3], places[6]], "what one session was sent")


@scenario(
    "what a killed hub had not written down is not said to be unsent", settings=FULL, own_hub=True,
    tables=published("r_killed", "id int PRIMARY KEY, owner uuid", OWNED.format("r_killed")),
)  # fmt: skip
async def killed(stage):
    async with SupabaseClients(stage) as supabase:
        _, heard = await listening(supabase, stage, "r_killed", ANA)
        await stage.database.run(f"INSERT INTO r_killed VALUES (1, '{ANA}')")
        await heard.next()
        places = await offsets(stage, "r_killed")
        await recorded(stage, places[1])
        await stage.database.run(f"INSERT INTO r_killed VALUES (2, '{ANA}')")
        await heard.next()
        await stage.hub.restart(signal.SIGKILL)
        places = await offsets(stage, "r_killed")
        first, second = [(await ask(stage, "who", f"@{places[row]}", "--recorded", "--user", ANA))[0] for row in (1, 2)]
        equal((first["basis"], first["outcome"] in ("sent", "received")), ("recorded", True), f"the one written down, {first}")
        true(second["outcome"] in ("sent", "received", "unknown"), "the one that was sent last", second)
