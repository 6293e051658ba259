"""Projects by the operators' API, each apart from the others. Protocol §8.1–8.3, §1.2, §1.9; checklist 24, trap 20."""

import asyncio
import contextlib
import json
import os
import time
import urllib.parse

from clients import tokens
from clients.database import Database
from clients.expect import equal, keys, true
from clients.peer import Peer, binding
from clients.scenario import APPLICATIONS, scenario
from conformance.rest import answered, post

OPERATORS = "a secret of operators, which no client has"
SECOND_SECRET = "a secret of the second project, and of no other"
SETTINGS = {"operator_jwt_secret": OPERATORS, "operator_jwt_secret_next": "the next secret of operators", "metrics_jwt_secret": OPERATORS}
TENANTS = "/api/tenants"
MAIN = "realtime-dev"


def operator(secret: str = OPERATORS, seconds: int = 60, **claims) -> str:
    return tokens.sign(secret, {"exp": tokens.in_seconds(seconds)} | claims)


async def ask(stage, method: str, path: str, body=None, *, token: str | None = "operator", host: str = "h", **headers):
    connection = await stage.connection()
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"Host": host, "Connection": "close"} | ({"Content-Type": "application/json", "Content-Length": str(len(data))} if body is not None else {})
    if token:
        given["Authorization"] = f"Bearer {operator() if token == 'operator' else token}"
    return await connection.request(method, path, given | headers, data)


def data(response) -> dict | list:
    value = json.loads(response.body)
    keys(value, "data", "an answer")
    return value["data"]


class Second:
    """Another database of the same server, which looks like the first, and a project that is not there yet."""

    def __init__(self, stage, name: str):
        self.stage = stage
        self.name = name
        self.database_name = "tw_second_" + os.environ.get("TW_SLOT", "tw")
        self.slot = (os.environ.get("TW_SLOT", "tw") + "_second")[:60]
        self.host = f"{name}.projects.example"

    def url(self, base: str) -> str:
        return urllib.parse.urlsplit(base)._replace(path="/" + self.database_name).geturl()

    async def __aenter__(self):
        await self.drop()
        await self.stage.database.run(f"CREATE DATABASE {self.database_name}")
        self.database = await Database.open(self.url(os.environ["TW_DATABASE"]))
        folder = APPLICATIONS.parent
        for file in sorted(folder.glob("0*.sql")) + sorted((folder / "realtime").glob("*.sql")):
            await self.database.run(file.read_text(encoding="utf-8"))
        await self.database.run("CREATE TABLE s_rows (id int PRIMARY KEY, v text)", "ALTER PUBLICATION supabase_realtime ADD TABLE s_rows",
            "GRANT SELECT ON s_rows TO anon, authenticated")  # fmt: skip
        return self

    async def __aexit__(self, *_):
        with contextlib.suppress(Exception):
            await ask(self.stage, "DELETE", f"{TENANTS}/{self.name}")
        await self.database.close()
        await self.drop()

    async def drop(self):
        for _ in range(200):
            slots = f"FROM pg_replication_slots WHERE database = '{self.database_name}'"
            with contextlib.suppress(Exception):
                await self.stage.database.run(f"SELECT pg_terminate_backend(active_pid) {slots} AND active", f"SELECT pg_drop_replication_slot(slot_name) {slots} AND NOT active")
                if not await self.stage.database.run(f"SELECT 1 {slots}"):
                    await self.stage.database.run(f"DROP DATABASE IF EXISTS {self.database_name} WITH (FORCE)")
                    return
            await asyncio.sleep(0.05)

    def description(self, **more) -> dict:
        settings = {"region": "us-east-1", "slot_name": self.slot, "database_url": self.url(os.environ["TW_HUB_DATABASE"])}
        return {"external_id": self.name, "name": self.name, "jwt_secret": SECOND_SECRET, "extensions": [{"type": "postgres_cdc_rls", "settings": settings}]} | more

    async def create(self, **more):
        response = await ask(self.stage, "POST", TENANTS, {"tenant": self.description(**more)})
        equal(response.status, 201, f"the status of the creation ({response.body[:300]!r})")
        return response

    async def change(self, **more):
        response = await ask(self.stage, "PUT", f"{TENANTS}/{self.name}", {"tenant": more})
        equal(response.status, 200, f"the status of a change ({response.body[:300]!r})")

    def token(self, role: str = "anon") -> str:
        return tokens.of_role(SECOND_SECRET, role)

    async def upgrade(self, token: str | None = None, host: str | None = None):
        connection = await self.stage.connection()
        query = urllib.parse.urlencode({"apikey": token or self.token(), "vsn": "2.0.0"})
        response = await connection.upgrade(self.stage.hub, f"{self.stage.hub.path}?{query}", {"Host": host or self.host})
        return response, Peer(connection, "2.0.0")

    async def peer(self) -> Peer:
        response, peer = await self.upgrade()
        equal(response.status, 101, f"the status of an upgrade ({response.body!r})")
        return peer


@scenario("checklist 24: operators are known by a token of theirs; everybody else is forbidden without a word", settings=SETTINGS | {"operator_token_blocklist": "x"})
async def operators(stage):
    withdrawn = "x"
    for path, method in ((TENANTS, "GET"), (f"{TENANTS}/{MAIN}", "GET"), (TENANTS, "POST"), (f"{TENANTS}/{MAIN}", "DELETE"), (f"{TENANTS}/{MAIN}/reload", "POST"), (f"{TENANTS}/nobody", "GET")):
        for token in (None, "nonsense", stage.service, stage.anon, operator("another"), operator(seconds=-5), withdrawn):
            response = await ask(stage, method, path, token=token)
            equal((response.status, response.body), (403, b""), f"status and body of {method} {path}")
        response = await ask(stage, method, path, token=None, Authorization=f"bearer {operator()}")
        equal(response.status, 403, "the status for a scheme that is not exactly Bearer")
    for token in (operator(), operator("the next secret of operators"), operator(role="anon")):
        equal((await ask(stage, "GET", TENANTS, token=token)).status, 200, "the status for an operator")
    equal((await ask(stage, "GET", TENANTS, Accept="text/html")).status, 406, "the status for one who wants no JSON")
    equal((await ask(stage, "GET", TENANTS, Accept="application/json")).status, 200, "the status for one who does")


@scenario("trap 20: where operators have the clients' secret, as in the reference's own stack, a client may ask for health alone", settings={"operator_jwt_secret": os.environ.get("TW_SECRET", "")})
async def shared_secret(stage):
    for token, status in ((stage.anon, 403), (stage.ana, 403), (stage.service, 200)):
        equal((await ask(stage, "GET", TENANTS, token=token)).status, status, "the status of all projects")
        for method in ("GET", "HEAD"):
            equal((await ask(stage, method, f"{TENANTS}/{MAIN}/health", token=token)).status, 200, "the status of health")


@scenario("checklist 24, trap 20: health of a project, also by HEAD, and 404 for one that is none", settings=SETTINGS)
async def health(stage):
    for method in ("GET", "HEAD"):
        response = await ask(stage, method, f"{TENANTS}/{MAIN}/health")
        equal(response.status, 200, f"the status of {method}")
    peer = await stage.peer()
    await peer.join("realtime:health", {})
    for _ in range(200):
        told = data(await ask(stage, "GET", f"{TENANTS}/{MAIN}/health"))
        if told["replication_connected"] and told["db_connected"]:
            break
        await asyncio.sleep(0.05)
    keys(told, "healthy db_connected replication_connected connected_cluster region node", "health")
    equal((told["healthy"], told["db_connected"], told["replication_connected"], told["region"]), (True, True, True, "us-east-1"), "it")
    true(told["connected_cluster"] >= 1, "a client to be counted", told)
    response = await ask(stage, "GET", f"{TENANTS}/nobody/health")
    answered(response, 404, {"message": "not found"}, "the health of nobody")


@scenario("the project of the settings is listed and told, without its secrets", settings=SETTINGS)
async def listed(stage):
    response = await ask(stage, "GET", TENANTS)
    (one,) = data(response)
    equal(one["external_id"], MAIN, "its name")
    equal(data(await ask(stage, "GET", f"{TENANTS}/{MAIN}")), one, "the same alone")
    wanted = """id external_id name max_concurrent_users max_channels_per_client max_events_per_second max_joins_per_second inserted_at
        private_only max_client_presence_events_per_window client_presence_window_ms presence_enabled extensions"""
    true(set(wanted.split()) <= set(one), "the fields of a tenant", one)
    (extension,) = one["extensions"]
    equal(extension["type"], "postgres_cdc_rls", "its extension")
    true("db_password" not in extension["settings"], "no password", extension)
    password = urllib.parse.urlsplit(os.environ["TW_HUB_DATABASE"]).password
    for secret in (stage.secret, f":{password}@", f"password={password}", OPERATORS):
        true(secret.encode() not in response.body, "no secret in an answer", response.body.decode())
    answered(await ask(stage, "GET", f"{TENANTS}/nobody"), 404, {"message": "not found"}, "one that is none")
    answered(await ask(stage, "POST", f"{TENANTS}/nobody/reload"), 404, {"message": "not found"}, "its reload")
    answered(await ask(stage, "POST", f"{TENANTS}/nobody/shutdown"), 404, {"message": "not found"}, "its shutdown")
    equal((await ask(stage, "DELETE", f"{TENANTS}/nobody")).status, 204, "the status of its deletion")


@scenario("what is wrong with a description is said, field by field, and nothing is made", settings=SETTINGS)
async def mistakes(stage):
    blank = ["can't be blank"]
    settings = {"region": "x", "db_host": "127.0.0.1", "db_port": "5432", "db_name": "postgres", "db_user": "postgres", "db_password": "p"}

    def tenant(**more) -> dict:
        return {"tenant": {"external_id": "mistaken", "jwt_secret": "s" * 40, "extensions": [{"type": "postgres_cdc_rls", "settings": settings}]} | more}

    cases = [
        (tenant(external_id=None), {"external_id": blank}), (tenant(external_id=""), {"external_id": blank}),
        (tenant(extensions=[{"type": "postgres_cdc_rls", "settings": {k: v for k, v in settings.items() if k != "db_host"}}]), {"extensions": [{"settings": ["db_host can't be blank"]}]}),
        (tenant(extensions=[{"type": "postgres_cdc_rls", "settings": settings | {"db_port": "many"}}]), {"extensions": [{"settings": ["db_port is invalid"]}]}),
    ]  # fmt: skip
    for body, errors in cases:
        response = await ask(stage, "POST", TENANTS, body)
        answered(response, 422, {"errors": errors}, f"{body}")
    for body in ({}, {"tenant": None}, tenant(max_events_per_second="many"), tenant(private_only="perhaps"), tenant(jwt_secret=17), tenant(extensions="none")):
        response = await ask(stage, "POST", TENANTS, body)
        equal(response.status, 422, f"the status of {body}")
        keys(json.loads(response.body), "errors", "the answer")
    for body in (b"{", b"nonsense"):
        equal((await ask(stage, "POST", TENANTS, body)).status, 400, "the status of a body that is no JSON")
    equal(len(data(await ask(stage, "GET", TENANTS))), 1, "the number of projects")


@scenario("two projects: each has its host, its secret, its topics, its database, and they do not meet", settings=SETTINGS)
async def apart(stage):
    async with Second(stage, "second") as second:
        response = await second.create()
        true(response.headers.get("location", "").startswith("/api/tenants/"), "where it is", response)
        equal(data(response)["external_id"], "second", "its name")
        true(SECOND_SECRET.encode() not in response.body, "no secret in the answer", response.body.decode())
        equal([one["external_id"] for one in data(await ask(stage, "GET", TENANTS))], [MAIN, "second"], "the projects there are")
        theirs = await second.peer()
        # The first label of the host says which; nobody else is meant.
        ours = (await second.upgrade(stage.anon, f"{MAIN}.supabase-realtime:4000"))
        equal(ours[0].status, 101, "the status with the first one's host and key")
        ours = ours[1]
        for token, host, status in ((stage.anon, second.host, 401), (second.token(), MAIN, 401), (second.token(), "third.example", 404), (second.token(), "SECOND", 101), (second.token(), "second", 101)):
            equal((await second.upgrade(token, host))[0].status, status, f"the status with host {host}")
        topic = "realtime:apart"
        for peer in (ours, theirs):
            await peer.join(topic, {"presence": {"enabled": True, "key": "me"}})
            equal((await peer.state(topic)).payload, {}, "the state")
        await ours.say(topic, "m", {"of": "first"})
        await ours.present(topic, "track", {})
        await ours.diff(topic)
        message = {"messages": [{"topic": "apart", "event": "rest", "payload": {}}]}
        answered(await post(stage, "/api/broadcast", message, token=second.token(), Host=second.host), 202, None, "a request to the second")
        answered(await post(stage, "/api/broadcast", message, token=second.token(), Host=MAIN), 401, {"message": "Unauthorized"}, "with the other's key")
        answered(await post(stage, "/api/broadcast", message, token=second.token(), Host="third"), 401, {"message": "Tenant not found in database"}, "to none")
        await theirs.hears(topic, "rest", {})
        equal([str(m) for m in await theirs.fence() if m.event != "phx_reply"], [], "what else the second's hears")
        equal([m.event for m in await ours.fence() if m.event != "phx_reply"], [], "what else the first's hears")
        # Rows of its database, and messages of it.
        await theirs.subscribe("realtime:rows", binding("s_rows"))
        await second.database.run("INSERT INTO s_rows VALUES (1, 'a')", "SELECT realtime.send('{\"n\":1}', 'note', 'apart', false)")
        equal((await theirs.change("realtime:rows")).data["record"], {"id": 1, "v": "a"}, "the row")
        message = await theirs.broadcast(topic, "a message of its database")
        equal(message.payload["payload"]["n"], 1, "it")
        equal([m.event for m in await ours.fence() if m.event != "phx_reply"], [], "what the first's hears")
        # Metrics tell them apart.
        text = (await ask(stage, "GET", "/metrics")).body.decode()
        for name in (MAIN, "second"):
            true(f'tenant="{name}"' in text, f"metrics of {name}", text[:500])
        equal(data(await ask(stage, "GET", f"{TENANTS}/second/health"))["connected_cluster"] >= 1, True, "that its clients are counted")


@scenario("a project is changed, reloaded, shut down, suspended and deleted; its clients are told, the others are not", settings=SETTINGS)
async def life(stage):
    async with Second(stage, "second") as second:
        await second.create()
        ours = (await second.upgrade(stage.anon, MAIN))[1]
        await ours.join("realtime:life", {})

        async def disconnected(what: str, change):
            peer = await second.peer()
            await peer.join("realtime:life", {})
            await change
            # Before, a client that joined early may be told that the database is followed from then on.
            message = await peer.expect(f"a word about {what}", lambda m: m.event == "system" and m.payload["extension"] == "system")
            equal(message.payload, {"extension": "system", "status": "ok", "message": "Server requested disconnect"}, "the word")
            await peer.connection.expect_close(1012, what)

        await disconnected("a reload", ask(stage, "POST", f"{TENANTS}/second/reload"))
        await disconnected("private only", second.change(private_only=True))
        peer = await second.peer()
        equal(await peer.refused("realtime:life"), "PrivateOnly: This project only allows private channels", "why")
        await second.change(private_only=False)
        # Limits are others at once, without anybody being sent away.
        peer = await second.peer()
        await peer.join("realtime:life-1", {})
        await second.change(max_channels_per_client=1)
        equal((await peer.reply(await peer.push("realtime:life-1", "phx_leave", {}))).status, "ok", "the channel that was there")
        peer = await second.peer()
        await peer.join("realtime:life-1", {})
        equal(await peer.refused("realtime:life-2"), "ChannelRateLimitReached: Too many channels", "why")
        await second.change(max_channels_per_client=2)
        await peer.join("realtime:life-2", {})
        await disconnected("another secret", second.change(jwt_secret="yet another secret, of the second project"))
        equal((await second.upgrade())[0].status, 401, "the status with the old secret")
        await second.change(jwt_secret=SECOND_SECRET)
        equal((await ask(stage, "POST", f"{TENANTS}/second/shutdown")).status, 204, "the status of a shutdown")
        await second.peer()
        await disconnected("suspension", second.change(suspend=True))
        response, _ = await second.upgrade()
        equal((response.status, json.loads(response.body)), (403, {"error": "Realtime was disabled for this tenant"}), "the answer to an upgrade")
        message = {"messages": [{"topic": "a", "event": "b", "payload": {}}]}
        answered(await post(stage, "/api/broadcast", message, token=second.token(), Host=second.host), 403, {"message": "Tenant is suspended"}, "a request")
        await second.change(suspend=False)
        await disconnected("deletion", ask(stage, "DELETE", f"{TENANTS}/second"))
        equal([one["external_id"] for one in data(await ask(stage, "GET", TENANTS))], [MAIN], "the projects that are left")
        equal((await ask(stage, "DELETE", f"{TENANTS}/second")).status, 204, "the status of another deletion")
        # What is left is meant by every host but the one whose project went.
        equal((await second.upgrade(stage.anon, "third.example"))[0].status, 101, "the status of an upgrade by another host")
        equal((await second.upgrade(stage.anon))[0].status, 404, "the status of an upgrade by its host")
        equal([str(m) for m in await ours.fence()], [], "what a client of the other project was told of all this")
        slots = await stage.database.run(f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{second.slot}'")
        equal(slots, "0", "the number of its slots")


@scenario("the ends of a project's runs close nothing that belongs to clients of another", settings=SETTINGS)
async def ends(stage):
    ours = [(await Second(stage, "second").upgrade(stage.anon, MAIN))[1] for _ in range(300)]
    for number, peer in enumerate(ours):
        await peer.join(f"realtime:ends-{number}", {})
    async with Second(stage, "second") as second:
        await second.create()
        for end in range(4):
            # Clients that leave only after the run has ended are the last to refer to its parts.
            theirs = [await second.peer() for _ in range(8)]
            for peer in theirs:
                await peer.join("realtime:ends", {})
            await (ask(stage, "POST", f"{TENANTS}/second/reload") if end < 3 else ask(stage, "DELETE", f"{TENANTS}/second"))
            await asyncio.sleep(0.3)
            for peer in theirs:
                await peer.connection.expect_close(1012, f"end {end}")
                peer.connection.abort()
            await asyncio.sleep(0.1)
            for number, client in enumerate(ours):
                equal([str(m) for m in await client.fence()], [], f"what client {number} was told by end {end}")


@scenario("projects are there again after a restart, and their secrets are not readable on disk", own_hub=True, settings=SETTINGS)
async def kept(stage):
    async with Second(stage, "second") as second:
        await second.create()
        await stage.hub.restart()
        peer = await second.peer()
        await peer.join("realtime:kept", {})
        for folder, _, files in os.walk(stage.hub.directory):
            for name in files:
                if name.endswith(".log"):
                    continue
                with open(os.path.join(folder, name), "rb") as file:
                    true(SECOND_SECRET.encode() not in file.read(), f"no secret in {name}")


@scenario("a project whose database is away, or whose policies hang, hurts no other", settings=SETTINGS)
async def isolation(stage):
    async with Second(stage, "second") as second:
        away = {"region": "x", "db_host": "127.0.0.1", "db_port": "1", "db_name": "none", "db_user": "none", "db_password": "none", "slot_name": "none"}
        response = await ask(stage, "POST", TENANTS, {"tenant": second.description(extensions=[{"type": "postgres_cdc_rls", "settings": away}])})
        true(response.status in (201, 422, 500), "an answer", response)
        if response.status == 201:
            peer = await second.peer()
            await peer.join("realtime:public", {"broadcast": {"self": True}})
            await peer.say("realtime:public", "m", {})
            await peer.hears("realtime:public", "m", {}, "a broadcast without a database")
            refused = await peer.refused("realtime:private", {"private": True})
            true("nnect" in refused, "a reason about the database", refused)
        began = time.monotonic()
        ours = (await second.upgrade(stage.anon, MAIN))[1]
        await ours.join("realtime:isolated", {"private": True}, access_token=stage.service)
        true(time.monotonic() - began < 3, "the other project to be in time", f"{time.monotonic() - began:.1f} s")


@scenario("the API is described", settings=SETTINGS)
async def described(stage):
    for path in ("/api/openapi", "/realtime/v1/api/openapi"):
        response = await ask(stage, "GET", path, token=None)
        equal(response.status, 200, "the status")
        value = json.loads(response.body)
        true(str(value.get("openapi", "")).startswith("3."), "OpenAPI 3", value.get("openapi"))
        true({"/api/tenants", "/api/broadcast"} <= set(value["paths"]), "the paths", sorted(value["paths"]))
