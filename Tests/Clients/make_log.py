"""Makes the event log that later versions must read: changes of several types, a large value, presence, the ledger, catalog
marks, a truncation and a gap. Written by the version whose program is given; kept in Tests/tidewireTests/Fixtures.

    $(Tests/Tools/clients) Tests/Clients/make_log.py .build/debug/tidewire Tests/tidewireTests/Fixtures/log-VERSION
"""

import asyncio
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from realtime import AsyncRealtimeClient

from clients.chaos.cluster import Cluster
from clients.database import Database
from clients.hub import OwnHub
from clients.supabase import Channel
from clients.tokens import of_role

SECRET = "the secret of a log that is kept for ever"
ANA = "00000000-0000-4000-8000-00000000000a"

BEFORE = """
CREATE PUBLICATION supabase_realtime;
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE notes (id int PRIMARY KEY, body text, mood mood, tags text[], data jsonb, at timestamptz, amount numeric, raw bytea);
ALTER TABLE notes REPLICA IDENTITY FULL; GRANT SELECT ON notes TO authenticated;
CREATE TABLE plain (id bigint PRIMARY KEY, name text);
ALTER PUBLICATION supabase_realtime ADD TABLE notes, plain;
"""
CHANGES = (
    "INSERT INTO notes VALUES (1, 'ä \"b\"', 'ok', '{a,NULL,\"b c\"}', '{\"a\": [1, null]}', '2026-01-02 03:04:05.678+00', 12.50, '\\x00ff')",
    "BEGIN; INSERT INTO notes (id) SELECT generate_series(2, 12); INSERT INTO plain VALUES (1, 'one'); COMMIT",
    "UPDATE notes SET body = NULL, mood = 'sad' WHERE id = 1",
    "UPDATE notes SET id = 100 WHERE id = 2",
    "DELETE FROM notes WHERE id = 3",
    "ALTER TABLE plain RENAME COLUMN name TO title",
    "ALTER TABLE plain ADD COLUMN more int DEFAULT 7",
    "INSERT INTO plain VALUES (2, 'two'), (3, NULL)",
    "UPDATE plain SET title = 'zwei' WHERE id = 2",
    "INSERT INTO notes (id, body) VALUES (50, (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 100) i))",
    "UPDATE notes SET mood = 'ok' WHERE id = 50",
    "TRUNCATE plain",
)


async def make(program: str, place: str, directory: str):
    cluster = Cluster(directory)
    cluster.initialise()
    await cluster.start()
    database = await Database.open(cluster.url())
    applied = subprocess.run([program, "db", "apply", "--yes", "--database-url", cluster.url()], capture_output=True)
    assert applied.returncode == 0, applied.stderr
    for statement in BEFORE.strip().split(";\n")[1:]:
        await database.run(statement)
    os.environ |= {"TW_DATA": os.path.join(directory, "hub"), "TW_HUB_DATABASE": cluster.url(), "TW_SLOT": "kept"}
    hub = OwnHub(program, SECRET)
    settings = {"presence_enabled": "on", "presence_timeline": "on", "ledger": "ranges"}
    await hub.use(settings)
    client = AsyncRealtimeClient(hub.url, of_role(SECRET, "authenticated", sub=ANA))
    await client.connect()
    channel = Channel(client, "room", {"config": {"presence": {"key": "ana", "enabled": True}, "private": False}})
    heard = channel.on("*", "notes")
    await channel.subscribe()
    await channel.channel.track({"state": "here"})
    for statement in CHANGES:
        await database.run(*statement.split("; "))
    await heard.until(lambda change: (change.get("record") or {}).get("id") == 50 and change["type"] == "UPDATE", "the last")
    await channel.channel.untrack()
    await asyncio.sleep(1)
    await client.close()
    await asyncio.sleep(1)
    await hub.end(signal.SIGTERM)
    # What is written while nobody keeps the WAL is a gap.
    await database.run("SELECT pg_drop_replication_slot('kept')")
    await database.run("INSERT INTO plain VALUES (8, 'nobody knows')")
    await hub.start()
    while not await database.run("SELECT 1 FROM pg_replication_slots WHERE active"):
        await asyncio.sleep(0.1)
    await database.run("INSERT INTO plain VALUES (9, 'nine')")
    await asyncio.sleep(2)
    await hub.end(signal.SIGTERM)
    shutil.rmtree(place, ignore_errors=True)
    os.makedirs(place)
    log = os.path.join(directory, "hub/log")
    newest = max(glob.glob(os.path.join(log, "[0-9]*.segment")))
    for name in sorted(os.listdir(log)):
        data = open(os.path.join(log, name), "rb").read()
        if name in ("next.segment", "LOCK"):
            continue
        # The newest is made ready ahead: of its zeros a few are enough.
        if name == os.path.basename(newest):
            data = data[: -(-len(data.rstrip(b"\0")) // 512) * 512 + 512]
        with open(os.path.join(place, name), "wb") as kept:
            kept.write(data)
    await cluster.close()


with tempfile.TemporaryDirectory(prefix="tidewire-log-") as directory:
    os.chmod(directory, 0o711)
    asyncio.run(make(os.path.abspath(sys.argv[1]), sys.argv[2], directory))
