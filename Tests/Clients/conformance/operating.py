"""What an operator sees and does: health, metrics, the end of the process. Protocol §8.3, §1.9; checklist 23, 24."""

import asyncio
import os
import re
import signal
import urllib.parse

from clients import tokens
from clients.expect import equal, true
from clients.peer import SUBSCRIBED, binding
from clients.scenario import BOTH, published, scenario


async def get(stage, path: str, method="GET", **headers):
    connection = await stage.connection()
    return await connection.request(method, path, {"Host": "h", "Connection": "close"} | headers)


@scenario("checklist 24, trap 20: health is told without a token")
async def health(stage):
    response = await get(stage, "/healthcheck")
    equal((response.status, response.body.strip()), (200, b"ok"), "status and body of /healthcheck")
    true(response.headers.get("content-type", "").startswith("text/plain"), "text/plain", response)
    response = await get(stage, "/api/tenants/realtime-dev/health", "HEAD")
    equal(response.status, 200, "the status of HEAD /api/tenants/realtime-dev/health")


@scenario("requests that are sent ahead are answered one after another")
async def ahead(stage):
    connection = await stage.connection()
    request = b"GET /healthcheck HTTP/1.1\r\nHost: h\r\n\r\n"
    await connection.send(request * 20 + request.replace(b"healthcheck", b"nowhere"))
    for _ in range(20):
        response = await connection.response()
        equal((response.status, response.body.strip()), (200, b"ok"), "status and body of /healthcheck")
    equal((await connection.response()).status, 404, "the status of /nowhere")


@scenario("/ready is 200 once changes stream")
async def ready(stage):
    for _ in range(600):
        response = await get(stage, "/ready")
        if response.status == 200:
            return
        equal(response.status, 503, "the status of /ready until then")
        await asyncio.sleep(0.1)
    true(False, "/ready to become 200 within a minute", response)


@scenario("checklist 24: metrics are Prometheus text, and count clients")
async def metrics(stage):
    peer = await stage.peer()
    await peer.join("realtime:measured", {})
    response = await get(stage, "/metrics")
    equal(response.status, 200, "the status of /metrics")
    true(response.headers.get("content-type", "").startswith("text/plain"), "text/plain", response)
    lines = response.body.decode().splitlines()
    true(any(line.startswith("# TYPE ") and line.endswith(" histogram") for line in lines), "a histogram", lines[:40])
    for line in lines:
        true(not line or line.startswith("#") or len(line.rsplit(" ", 1)) == 2, "lines of name and value", line)


@scenario("checklist 24: metrics ask for a token where one is configured", settings={"metrics_jwt_secret": "of metrics only"})
async def guarded_metrics(stage):
    response = await get(stage, "/metrics")
    equal((response.status, response.body), (403, b""), "status and body without a token")
    wrong = f"Bearer {tokens.sign('another', {'exp': tokens.in_seconds(60)})}"
    equal((await get(stage, "/metrics", Authorization=wrong)).status, 403, "the status with a wrong one")
    right = f"Bearer {tokens.sign('of metrics only', {'exp': tokens.in_seconds(60)})}"
    equal((await get(stage, "/metrics", Authorization=right)).status, 200, "the status with the right one")


@scenario("checklist 23: SIGTERM closes every socket with 1012 and ends the process in order", own_hub=True, vsn=BOTH)
async def drain(stage, vsn):
    peers = [await stage.peer(vsn) for _ in range(20)]
    for peer in peers[:10]:
        await peer.join("realtime:drained", {})
    import asyncio

    ending = asyncio.create_task(stage.hub.end(signal.SIGTERM))
    for peer in peers:
        await peer.connection.expect_close(1012, "the hub ends by SIGTERM")
    equal(await ending, 0, "the exit code of the hub")
    await stage.hub.start()
    await (await stage.peer(vsn)).join("realtime:drained", {})


@scenario("SIGTERM does not wait for a client that never answers", own_hub=True)
async def drain_of_the_silent(stage):
    silent = [await stage.peer() for _ in range(3)]
    half = await stage.connection()
    await half.send(b"GET /realtime/v1/websocket HTTP/1.1\r\nHo")
    equal(await stage.hub.end(signal.SIGTERM), 0, "the exit code of the hub")
    true(len(silent) == 3, "the silent to stay silent")
    await stage.hub.start()


async def catalog_version(stage) -> int:
    """How often the hub has read another catalog."""
    text = (await get(stage, "/metrics")).body.decode()
    return int(re.search(r"^tidewire_catalog_version (\d+)$", text, re.MULTILINE)[1])


@scenario("clients that come before the hub may stream are subscribed as soon as it may", own_hub=True,
    tables=published("c_early", "id int PRIMARY KEY"))  # fmt: skip
async def early(stage):
    role = urllib.parse.urlsplit(os.environ["TW_HUB_DATABASE"]).username
    await stage.hub.forget(stage.database)
    await stage.database.run(f'ALTER ROLE "{role}" NOREPLICATION')
    try:
        await stage.hub.start()
        await stage.database.run("INSERT INTO c_early VALUES (0)")
        peer, standing, beginning = [await stage.peer() for _ in range(3)]
        # The reply does not wait for the database for ever; that it subscribes does.
        config = {"postgres_changes": [binding("c_early")]}
        await peer.join("realtime:early", config)
        for other, wanted in ((standing, {"position": True}), (beginning, {"position": True, "snapshot": True})):
            reply = await other.join("realtime:early", config | {"tidewire": wanted})
            equal(reply.response["tidewire"], {"position": None}, "where a channel stands in a log that has not begun")
        version = await catalog_version(stage)
        await stage.database.run(*published("c_early_too", "id int PRIMARY KEY"))
        for _ in range(400):
            if await catalog_version(stage) != version:
                break
            await asyncio.sleep(0.1)
        for one in (peer, standing, beginning):
            equal([str(message) for message in await one.fence()], [], "what comes while nothing streams")
    finally:
        await stage.database.run(f'ALTER ROLE "{role}" REPLICATION')
    # There was no log when it was told that it has joined: what was committed before there is one is not known.
    for one in (peer, standing, beginning):
        equal((await one.system("realtime:early")).payload["message"],
              "Changes may be missing (the database is followed from now on): fetch again what is shown", "what is said then")  # fmt: skip
    place = (await standing.expect("a marker", lambda m: m.code == "CaughtUp")).payload["position"]
    for one in (peer, standing, beginning):
        equal((await one.system("realtime:early")).payload["message"], SUBSCRIBED, "what is said after that")
    told = await beginning.change("realtime:early")
    equal((told.data["record"], told.data["tidewire"]), ({"id": 0}, {"snapshot": True}), "the row that there is")
    equal((await beginning.system("realtime:early")).code, "SnapshotComplete", "what is said behind the rows")
    equal((await beginning.system("realtime:early")).code, "CaughtUp", "what is said behind that")
    await stage.database.run("INSERT INTO c_early VALUES (1)")
    for one in (peer, standing, beginning):
        equal((await one.change("realtime:early")).data["record"], {"id": 1}, "the change that follows")
    # What it was told is a place that it can come back to.
    again = await stage.peer()
    reply = await again.join("realtime:early", config | {"tidewire": {"resume": place}})
    equal(reply.response["tidewire"]["recovered"], True, "whether it goes on from there")
    equal((await again.change("realtime:early")).data["record"], {"id": 1}, "the change that it missed")
