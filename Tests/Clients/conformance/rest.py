"""Broadcasts by requests: both endpoints, every answer, and who hears what. Protocol §4.4, §4.5, §6.7, §1.8; checklist 20, trap 16."""

import asyncio
import json
import urllib.parse

from clients import tokens
from clients.expect import equal, keys, true
from clients.peer import UUID
from clients.scenario import BOTH, scenario
from clients.wire import Connection, Response
from conformance.private import OPEN, READ_ONLY, TROUBLE

BATCH = "/realtime/v1/api/broadcast"
CANNOT_BE_BLANK = ["can't be blank"]
INVALID = ["is invalid"]
LOOPS = {"loops": "3"}


async def post(stage, target: str, body=b"", *, token: str | None = "anon", kind: str | None = "application/json", method="POST", connection: Connection | None = None, **headers) -> Response:
    """A request as the clients make them. `token` None sends none."""
    own = connection is None
    connection = connection or await stage.connection()
    if not isinstance(body, bytes):
        body = json.dumps(body, ensure_ascii=False).encode()
    given = {"Host": f"{stage.hub.host}:{stage.hub.port}", "Content-Length": str(len(body))}
    given |= {"Content-Type": kind} if kind else {}
    if token:
        given["Authorization"] = f"Bearer {stage.anon if token == 'anon' else token}"
    response = await connection.request(method, target, given | {name.replace("_", "-"): value for name, value in headers.items()}, body)
    if own:
        connection.abort()
    return response


async def batch(stage, *messages, **more) -> Response:
    return await post(stage, BATCH, {"messages": list(messages)}, **more)


def single(topic: str, event: str, query: str = "") -> str:
    return f"{BATCH}/{urllib.parse.quote(topic, safe='')}/events/{urllib.parse.quote(event, safe='')}{query}"


def answered(response: Response, status: int, body, what: str):
    equal(response.status, status, f"the status of {what}")
    if body is None:
        equal(response.body, b"", f"the body of {what}")
    else:
        equal(json.loads(response.body), body, f"the body of {what}")


def told(response: Response, what: str):
    """How much of its rate the project has used."""
    values = [response.headers.get(name) for name in ("x-rate-rolling", "x-rate-limit", "x-rate-limit-remaining")]
    true(all(value is not None and value.isdigit() for value in values), f"three numbers about the rate with {what}", response)


async def pair(stage, topic: str, **config) -> list:
    peers = []
    for vsn in BOTH:
        peer = await stage.peer(vsn, apikey=stage.service if config.get("private") else None)
        await peer.join(topic, config)
        peers.append(peer)
    return peers


@scenario("checklist 20: a batch comes to V1 and V2 as text, with an id where one was given, and the others of it as well")
async def batches(stage):
    topic = "realtime:rest:batch"
    peers = await pair(stage, topic)
    other = await pair(stage, "realtime:rest:other")
    ident = "5F0C3B1E-6A55-4D5C-9A44-0D9A1F6E7C11"
    response = await batch(
        stage, {"topic": "rest:batch", "event": "cursor", "payload": {"x": 1}},
        {"topic": "rest:other", "event": "note", "payload": {"t": "grüße 🙂"}, "private": False, "extra": [1]},
        {"topic": "rest:batch", "event": "with id", "payload": {}, "id": ident, "private": None},
        {"topic": "rest:nobody", "event": "m", "payload": {}},
    )  # fmt: skip
    answered(response, 202, None, "a batch")
    told(response, "a batch")
    for peer in peers:
        message = await peer.broadcast(topic)
        equal((message.form, message.join_ref), ("text", None), "its form and join_ref")
        equal(message.payload, {"payload": {"x": 1}, "event": "cursor", "type": "broadcast"}, "the first")
        message = await peer.broadcast(topic)
        equal({k: v for k, v in message.payload.items() if k != "meta"}, {"payload": {}, "event": "with id", "type": "broadcast"}, "the second")
        equal(message.payload["meta"]["id"].lower(), ident.lower(), "its id")
    for peer in other:
        await peer.hears("realtime:rest:other", "note", {"t": "grüße 🙂"})
    for peer in peers + other:
        equal([str(m) for m in await peer.fence()], [], "what else came")


@scenario("checklist 20: what is wrong with a batch is said of every message of it, and then none is sent")
async def wrong_batches(stage):
    topic = "realtime:rest:wrong"
    peers = await pair(stage, topic)
    good = {"topic": "rest:wrong", "event": "m", "payload": {}}
    nothing = {"messages": CANNOT_BE_BLANK}
    cases = [
        ({}, nothing), ({"messages": []}, nothing), ({"messages": None}, nothing), ({"other": 1}, nothing), (b"", nothing),
        ({"messages": [{}]}, {"messages": [{"topic": CANNOT_BE_BLANK, "event": CANNOT_BE_BLANK, "payload": CANNOT_BE_BLANK}]}),
        ({"messages": [good, {**good, "payload": None}, good]}, {"messages": [{}, {"payload": CANNOT_BE_BLANK}, {}]}),
        ({"messages": [{**good, "payload": [1]}]}, {"messages": [{"payload": INVALID}]}),
        ({"messages": [{**good, "payload": "text"}]}, {"messages": [{"payload": INVALID}]}),
        ({"messages": [{**good, "topic": ""}, {**good, "event": ""}]}, {"messages": [{"topic": CANNOT_BE_BLANK}, {"event": CANNOT_BE_BLANK}]}),
        ({"messages": [{**good, "topic": 1, "event": {}}]}, {"messages": [{"topic": INVALID, "event": INVALID}]}),
        ({"messages": [{**good, "id": "17"}]}, {"messages": [{"id": INVALID}]}),
        ({"messages": [{**good, "id": 17}]}, {"messages": [{"id": INVALID}]}),
        ({"messages": [{**good, "private": "perhaps"}]}, {"messages": [{"private": INVALID}]}),
        ({"messages": "text"}, {"messages": INVALID}), ({"messages": {"a": 1}}, {"messages": INVALID}),
    ]  # fmt: skip
    for body, errors in cases:
        response = await post(stage, BATCH, body)
        answered(response, 422, {"errors": errors}, f"a batch {body}")
        told(response, "a refused batch")
    for body in (b"{", b"nonsense", b'{"messages":[{]}', b"\xff\xfe", b'{"messages":[]}x'):
        equal((await post(stage, BATCH, body)).status, 400, f"the status of a body {body}")
    answered(await batch(stage, {**good, "event": "last"}), 202, None, "a good batch")
    for peer in peers:
        await peer.hears(topic, "last", {}, "the only one that was sent")


@scenario("a batch keeps the order of its messages, and private may be a string", tables=OPEN)
async def order_and_private(stage):
    public, private = await pair(stage, "realtime:open:rest"), await pair(stage, "realtime:open:rest", private=True)
    messages = [{"topic": "open:rest", "event": "m", "payload": {"n": n}, "private": (False, True, "true", "1", "false", "0")[n % 6]}
                for n in range(60)]  # fmt: skip
    answered(await batch(stage, *messages), 202, None, "a batch of both")
    for peers, wanted in ((public, [n for n in range(60) if n % 6 in (0, 4, 5)]), (private, [n for n in range(60) if n % 6 in (1, 2, 3)])):
        for peer in peers:
            heard = [(await peer.broadcast("realtime:open:rest")).payload["payload"]["n"] for _ in wanted]
            equal(heard, wanted, "what it hears")


@scenario("trap 16: in a batch what one may not send is left out, and that is no error; alone it is 403", tables=[*OPEN, *READ_ONLY, *TROUBLE])
async def private_rights(stage):
    reader = (await pair(stage, "realtime:read-only:rest", private=True))[1]
    opened = (await pair(stage, "realtime:open:rights", private=True))[0]
    message = {"event": "m", "payload": {"n": 1}, "private": True}
    response = await batch(stage, {"topic": "read-only:rest"} | message, {"topic": "open:rights"} | message, {"topic": "raises:1"} | message)
    answered(response, 202, None, "a batch with some that may not be sent")
    await opened.hears("realtime:open:rights", "m", {"n": 1})
    answered(await batch(stage, {"topic": "read-only:rest"} | message), 202, None, "a batch of nothing that may be sent")
    response = await post(stage, single("read-only:rest", "m", "?private=true"), {"n": 1})
    answered(response, 403, {"message": "Unauthorized"}, "a single one")
    told(response, "a forbidden one")
    response = await post(stage, single("raises:1", "m", "?private=true"), {"n": 1})
    answered(response, 422, {"message": "RLS policy error"}, "one whose policy raises")
    response = await post(stage, single("write-hangs:1", "m", "?private=true"), {"n": 1})
    answered(response, 422, {"message": "Query canceled"}, "one whose policy hangs")
    answered(await post(stage, single("open:rights", "m", "?private=true"), {"n": 2}), 202, None, "one that may be sent")
    await opened.hears("realtime:open:rights", "m", {"n": 2})
    answered(await post(stage, single("never:1", "m", "?private=true"), {}, token=stage.service), 202, None, "one of service_role")
    # Only the word itself; everything else is public.
    for query in ("?private=false", "?private=1", "?private=TRUE", "?private", ""):
        answered(await post(stage, single("read-only:rest", "m", query), {"n": 3}), 202, None, f"a public one by {query!r}")
    equal([str(m) for m in await reader.fence()], [], "what the private topic heard")


@scenario("checklist 20: one message by a request: JSON to both, as kind 4 to V2; bytes to V2 alone")
async def singles(stage):
    topic = "realtime:rest:single"
    old, new = await pair(stage, topic)
    cases = [
        (b'{ "x" : 1.50 }', {"x": 1.5}), (b"[1,2]", {"_json": [1, 2]}), (b'"text"', {"_json": "text"}), (b"null", {"_json": None}),
        (b"17", {"_json": 17}), (b"", {}), ('{"t":"grüße"}'.encode(), {"t": "grüße"}),
    ]  # fmt: skip
    for body, payload in cases:
        response = await post(stage, single("rest:single", "m"), body)
        answered(response, 202, None, f"a body {body}")
        told(response, "a single one")
        message = await new.hears(topic, "m", payload)
        equal((message.form, "meta" in message.payload), ("json", False), "its form, and whether it has meta")
        equal((await old.hears(topic, "m", payload)).payload, {"event": "m", "payload": payload, "type": "broadcast"}, "all of it in V1")
    true(b'{ "x" : 1.50 }' in (await repeated(stage, topic, new, b'{ "x" : 1.50 }')).raw, "JSON as it was written")
    for body in (b"", bytes(range(256)), b"\x00" * 100_000):
        answered(await post(stage, single("rest:single", "raw"), body, kind="application/octet-stream"), 202, None, "bytes")
        message = await new.hears(topic, "raw", body)
        equal(message.form, "bytes", "its form")
    answered(await post(stage, single("rest:single", "typed"), b"{}", kind="Application/JSON; charset=utf-8"), 202, None, "a type with more")
    await new.hears(topic, "typed", {})
    answered(await post(stage, single("rest:single", "untyped"), b"ignored", kind=None), 202, None, "no type")
    await new.hears(topic, "untyped", {})
    refusal = {"error": "Unsupported Media Type. Use application/json or application/octet-stream"}
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp", "multipart/form-data"):
        answered(await post(stage, single("rest:single", "m"), b"{}", kind=kind), 415, refusal, kind)
    for body in (b"{", b"nonsense", b"{}{}", b"\xff"):
        equal((await post(stage, single("rest:single", "m"), body)).status, 400, f"the status of {body}")
    await old.fence()
    equal([str(m) for m in await new.fence()], [], "what else came")


async def repeated(stage, topic: str, peer, body: bytes):
    await post(stage, single(topic.removeprefix("realtime:"), "again"), body)
    return await peer.broadcast(topic)


@scenario("what is not JSON is no batch, and who takes no JSON gets no answer")
async def media_types(stage):
    message = {"topic": "rest:types", "event": "m", "payload": {}}
    blank = {"errors": {"messages": ["can't be blank"]}}
    for kind in ("text/plain", "application/octet-stream", "application/x-www-form-urlencoded"):
        answered(await batch(stage, message, kind=kind), 422, blank, kind)
    for kind in ("application/json; charset=utf-8", "application/vnd.api+json", None):
        equal((await batch(stage, message, kind=kind)).status, 202, str(kind))
    for accept in ("application/xml", "text/html, application/json;q=0"):
        for target, body in ((BATCH, {"messages": [message]}), (single("rest:types", "m"), {})):
            answered(await post(stage, target, body, Accept=accept), 406, "Not Acceptable", accept)
    for accept in ("*/*", "text/html, application/json", "application/*;q=0.5"):
        equal((await batch(stage, message, Accept=accept)).status, 202, accept)


@scenario("parts of the path are percent-encoded, and may hold anything", vsn=BOTH)
async def encoded_paths(stage, vsn):
    peer = await stage.peer(vsn)
    for topic, event in (("a:b:c", "e"), ("a/b", "c/d"), ("grüße 🙂", "ü"), ("100% +plus", "a+b c"), ("realtime:x", "m"), ("?a=b&c#d", ";"), ("..", ".")):
        await peer.join("realtime:" + topic, {})
        answered(await post(stage, single(topic, event), {"t": topic}), 202, None, f"{topic!r}, {event!r}")
        await peer.hears("realtime:" + topic, event, {"t": topic})
    peer.waiting.clear()
    for target in (f"{BATCH}/%zz/events/m", f"{BATCH}/%ff/events/m", f"{BATCH}/a/events/", f"{BATCH}/a/other/m", f"{BATCH}/a", f"{BATCH}/a/events/m/x"):
        response = await post(stage, target, {})
        true(response.status in (400, 404), f"400 or 404 for {target}", response)


@scenario("events and topics longer than kind 4 has room for come as text", vsn=BOTH)
async def long_names(stage, vsn):
    peer = await stage.peer(vsn)
    for topic, event in (("t" * 300, "m"), ("t", "e" * 300), ("ü" * 130, "ü" * 130)):
        await peer.join("realtime:" + topic, {})
        answered(await post(stage, single(topic, event), {"n": 1}), 202, None, "a long one")
        equal((await peer.hears("realtime:" + topic, event, {"n": 1})).form, "text", "its form")
        answered(await post(stage, single(topic, event), b"\x01", kind="application/octet-stream"), 202, None, "bytes of a long one")
    await peer.fence()


@scenario("checklist 20: who asks is told by Authorization or apikey, and refused without delay")
async def authentication(stage):
    good = {"topic": "rest:auth", "event": "m", "payload": {}}
    refusal = {"message": "Unauthorized"}
    for target, body in ((BATCH, {"messages": [good]}), (single("rest:auth", "m"), {})):
        for scheme in ("Bearer", "bearer", "BEARER"):
            answered(await post(stage, target, body, token=None, Authorization=f"{scheme} {stage.anon}"), 202, None, scheme)
        answered(await post(stage, target, body, token=None, apikey=stage.anon), 202, None, "apikey alone")
        answered(await post(stage, target, body, token=None, Authorization="Bearer ", apikey=stage.anon), 202, None, "an empty Authorization")
        answered(await post(stage, target, body, token=None, Authorization="", apikey=stage.anon), 202, None, "an empty Authorization")
        answered(await post(stage, target, body, apikey="nonsense"), 202, None, "Authorization beside a wrong apikey")
        wrong = {
            "none": {}, "x-api-key alone": {"x-api-key": stage.anon}, "nonsense": {"Authorization": "Bearer nonsense"},
            "no scheme": {"Authorization": stage.anon}, "another scheme": {"Authorization": f"Basic {stage.anon}"},
            "expired": {"Authorization": f"Bearer {stage.token('anon', -5)}"},
            "without role": {"Authorization": f"Bearer {tokens.sign(stage.secret, {'exp': tokens.in_seconds(60)})}"},
            "without exp": {"Authorization": f"Bearer {tokens.sign(stage.secret, {'role': 'anon'})}"},
            "another secret": {"Authorization": f"Bearer {tokens.sign('another', {'role': 'anon', 'exp': tokens.in_seconds(60)})}"},
            "wrong, and a right apikey": {"Authorization": "Bearer nonsense", "apikey": stage.anon},
        }  # fmt: skip
        for what, headers in wrong.items():
            response = await post(stage, target, body, token=None, **headers)
            answered(response, 401, refusal, what)


@scenario("JavaScript's requests: the query string of its socket is kept, and that is fine")
async def javascript(stage):
    topic = "realtime:rest:js"
    peer = (await pair(stage, topic))[1]
    body = {"messages": [{"topic": "rest:js", "event": "m", "payload": {"n": 1}, "private": False}]}
    target = f"{BATCH}?apikey={stage.anon}&vsn=2.0.0&eventsPerSecond=10&log_level=info"
    answered(await post(stage, target, body, apikey=stage.anon, Origin="https://app.example"), 202, None, "JavaScript's")
    await peer.hears(topic, "m", {"n": 1})
    answered(await post(stage, "/api/broadcast?vsn=2.0.0", body), 202, None, "the server's own path")
    await peer.hears(topic, "m", {"n": 1})
    # The key in the query is not looked at.
    equal((await post(stage, target, body, token=None)).status, 401, "the status without a header")


@scenario("pages of other hosts may ask: CORS with Origin, preflights, and what has no Origin is not told of it")
async def browsers(stage):
    good = {"messages": [{"topic": "rest:cors", "event": "m", "payload": {}}]}
    for target, body in ((BATCH, good), (BATCH, {}), (single("rest:cors", "m"), {})):
        response = await post(stage, target, body, Origin="https://app.example")
        equal(response.headers.get("access-control-allow-origin"), "*", f"who may ask, of {target}")
        response = await post(stage, target, body)
        equal(response.headers.get("access-control-allow-origin"), None, "the same without an Origin")
    response = await post(stage, BATCH, good, token=None, Origin="https://app.example")
    equal((response.status, response.headers.get("access-control-allow-origin")), (401, "*"), "a refusal")
    for target in (BATCH, single("rest:cors", "m")):
        response = await post(stage, target, method="OPTIONS", token=None, kind=None, Origin="https://app.example",
            Access_Control_Request_Method="POST", Access_Control_Request_Headers="authorization,apikey,content-type")  # fmt: skip
        true(response.status in (200, 204), "200 or 204 to a preflight", response)
        equal(response.headers.get("access-control-allow-origin"), "*", "who may ask")
        allowed = response.headers.get("access-control-allow-headers", "").lower()
        true(all(name in allowed for name in ("authorization", "apikey", "content-type")), "the clients' headers allowed", response)


@scenario("other methods are not found, and bodies that are announced wrongly are refused")
async def methods(stage):
    for method in ("GET", "PUT", "DELETE", "PATCH", "HEAD"):
        for target in (BATCH, single("a", "b")):
            true((await post(stage, target, method=method)).status in (404, 405), f"404 or 405 for {method}")
    connection = await stage.connection()
    await connection.send(f"POST {BATCH} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {stage.anon}\r\nContent-Length: x\r\n\r\n".encode())
    equal((await connection.response()).status, 400, "the status for a length that is none")
    response = await post(stage, "/healthcheck", b"body", method="GET")
    true(response.status in (200, 400, 413), "an answer to a body where none is expected", response)


@scenario("bodies in chunks, in pieces, after a 100-continue, and requests one after another on one connection")
async def bodies(stage):
    topic = "realtime:rest:bodies"
    peer = (await pair(stage, topic))[1]
    head = f"POST {single('rest:bodies', 'm')} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nAuthorization: Bearer {stage.anon}\r\n"
    connection = await stage.connection()
    await connection.send(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
    for piece in (b'{"n"', b":", b"1}"):
        await connection.send(f"{len(piece):x};ext=1\r\n".encode() + piece + b"\r\n")
        await asyncio.sleep(0.01)
    await connection.send(b"0\r\nTrailer: 1\r\n\r\n")
    equal((await connection.response()).status, 202, "the status of chunks")
    await peer.hears(topic, "m", {"n": 1})
    body = b'{"n":2}'
    for byte in f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body:
        await connection.send(bytes([byte]))
    equal((await connection.response()).status, 202, "the status of single bytes")
    await peer.hears(topic, "m", {"n": 2})
    await connection.send(f"{head}Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n".encode())
    equal((await connection.response(head_only=True)).status, 100, "the status before the body")
    await connection.send(body)
    equal((await connection.response()).status, 202, "the status after it")
    await peer.hears(topic, "m", {"n": 2})
    # Several that are sent ahead are answered, and said, in their order; also behind one that has to ask the database.
    both = b"".join(f"{head}Content-Length: {len(b)}\r\n\r\n".encode() + b for b in (b'{"n":3}', b'{"n":4}', b"[", b'{"n":5}'))
    await connection.send(both)
    equal([(await connection.response()).status for _ in range(4)], [202, 202, 400, 202], "the answers")
    for n in (3, 4, 5):
        await peer.hears(topic, "m", {"n": n})


@scenario("requests that are sent ahead of an answer by the database wait for it", tables=OPEN)
async def ahead_of_rights(stage):
    topic = "realtime:open:ahead"
    peers = await pair(stage, topic, private=True)
    connection = await stage.connection()
    text = b""
    for n in range(20):
        query = "?private=true" if n % 3 else ""
        body = json.dumps({"n": n}).encode()
        text += (f"POST {single('open:ahead', 'm', query)} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
                 f"Authorization: Bearer {stage.anon}\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body  # fmt: skip
    await connection.send(text)
    equal([(await connection.response()).status for _ in range(20)], [202] * 20, "the answers")
    for peer in peers:
        heard = [(await peer.broadcast(topic)).payload["payload"]["n"] for _ in range(13)]
        equal(heard, [n for n in range(20) if n % 3], "what was said, in its order")


@scenario("sizes: a payload beyond the project's limit is refused, a body beyond the server's too", settings={"max_payload_size": "10", "max_request_body": "100kB"})
async def sizes(stage):
    topic = "realtime:rest:sizes"
    peer = (await pair(stage, topic))[1]
    refusal = ["Payload size exceeds tenant limit"]
    fits, large = {"t": "x" * 10_400}, {"t": "x" * 10_600}
    good = {"topic": "rest:sizes", "event": "m"}
    answered(await batch(stage, {**good, "payload": fits}), 202, None, "one that fits")
    answered(await batch(stage, {**good, "payload": fits}, {**good, "payload": large}), 422, {"errors": {"messages": [{}, {"payload": refusal}]}}, "one that does not")
    answered(await post(stage, single("rest:sizes", "m"), fits), 202, None, "a single one that fits")
    answered(await post(stage, single("rest:sizes", "m"), large), 422, {"errors": {"payload": refusal}}, "a single one that does not")
    answered(await post(stage, single("rest:sizes", "m"), b"x" * 10_501, kind="application/octet-stream"), 422, {"errors": {"payload": refusal}}, "bytes")
    equal([len((await peer.broadcast(topic)).payload["payload"]["t"]) for _ in range(2)], [10_400] * 2, "what came")
    connection = await stage.connection()
    await connection.send(f"POST {BATCH} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {stage.anon}\r\nContent-Length: 200000\r\n\r\n".encode())
    equal((await connection.response()).status, 413, "the status of a body that is too large")
    connection = await stage.connection()
    await connection.send(f"POST {BATCH} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {stage.anon}\r\nTransfer-Encoding: chunked\r\n\r\n30D40\r\n".encode())
    equal((await connection.response()).status, 413, "the status of a chunk that is too large")


@scenario("who hears what, over several loops: a request reaches all of them, and each in the order of the answers", settings=LOOPS)
async def over_loops(stage):
    topic = "realtime:rest:loops"
    peers = [peer for _ in range(4) for peer in await pair(stage, topic)]
    connection = await stage.connection()
    for n in range(50):
        message = {"topic": "rest:loops", "event": "m", "payload": {"n": n}}
        if n % 2:
            answered(await post(stage, BATCH, {"messages": [message]}, connection=connection), 202, None, "a batch")
        else:
            answered(await post(stage, single("rest:loops", "m"), {"n": n}, connection=connection), 202, None, "a single one")
    for peer in peers:
        equal([(await peer.broadcast(topic)).payload["payload"]["n"] for _ in range(50)], list(range(50)), "what it hears")


@scenario("every answer has a request's id, and pings are answered with the rate")
async def ids_and_pings(stage):
    response = await post(stage, "/api/ping", method="GET", token=None, kind=None)
    answered(response, 200, {"message": "Success"}, "a ping")
    told(response, "a ping")
    true(response.headers.get("x-request-id"), "an id of the request", response)
    response = await batch(stage, {"topic": "a", "event": "b", "payload": {}}, x_request_id="my-own-request-1")
    equal(response.headers.get("x-request-id"), "my-own-request-1", "the id that was given")
    response = await post(stage, "/nowhere", method="GET", kind=None)
    answered(response, 404, "Not Found", "a path that is none")
    true(UUID.match(response.headers.get("x-request-id", "")), "an id of the hub's", response)


@scenario("the rate of the project: told with every answer, and refused when it is used up", settings={"max_events_per_second": "6"})
async def rates(stage):
    message = {"topic": "rest:rates", "event": "m", "payload": {}}
    response = await batch(stage, message)
    equal(response.headers.get("x-rate-limit"), "6", "the limit")
    response = await batch(stage, *[message] * 200)
    answered(response, 429, {"message": "Too many messages to broadcast, please reduce the batch size"}, "a batch that is too large")
    answered(await batch(stage, *[message] * 20), 202, None, "one that is smaller, and a burst")
    statuses = []
    for _ in range(60):
        response = await post(stage, single("rest:rates", "m"), {})
        statuses.append(response.status)
        if response.status == 429:
            break
    equal(response.status, 429, "the status at last")
    keys(json.loads(response.body), "message", "the answer")
    true(json.loads(response.body)["message"] in ("Too many requests", "You have exceeded your rate limit"), "why", response)
    equal(response.headers.get("x-rate-limit-remaining"), "0", "what is left")
