"""From a TCP connection to a WebSocket, and every way in which it is refused. Protocol §1.1–1.4; checklist 1 and 2."""

import base64
import hashlib
import json
import time
import urllib.parse

from clients import tokens
from clients.expect import Failure, equal, fail, one_of, true, within
from clients.peer import Peer
from clients.scenario import scenario
from clients.wire import Closed, Connection

SIGNER = "Failed to generate JWT signer, check your JWT secret or JWKS configuration"


def target(hub, apikey: str | None, path=None, **query) -> str:
    given = ({} if apikey is None else {"apikey": apikey}) | query
    return f"{path or hub.path}?{urllib.parse.urlencode(given)}"


async def refused(stage, apikey: str | None, status: int, text: str, headers=None, **query):
    connection = await stage.connection()
    response = await connection.upgrade(stage.hub, target(stage.hub, apikey, **query), headers)
    what = f"{status} {text!r}"
    if response.status != status:
        fail(what, response)
    equal(response.headers.get("content-type"), "application/json; charset=utf-8", f"the content type of {what}")
    equal(json.loads(response.body), {"error": text}, f"the body of {what}")


async def speaks(stage, version: str, **query):
    """Whether the upgrade leads to this serializer, by the form of a heartbeat's answer."""
    connection = await stage.connection()
    response = await connection.upgrade(stage.hub, target(stage.hub, stage.anon, **query))
    if response.status != 101:
        fail(f"101 for {query}", response)
    peer = Peer(connection, version)
    equal(await peer.fence(), [], "what comes before the answer to the first heartbeat")


@scenario()
async def the_handshake_is_that_of_rfc_6455(stage):
    connection = await stage.connection()
    key = base64.b64encode(b"sixteen bytes ok").decode()
    offer = {
        "Sec-WebSocket-Key": key,
        "Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits",
        "Sec-WebSocket-Protocol": "phoenix, json",
        "Origin": "https://somewhere.example",
    }
    response = await connection.upgrade(stage.hub, target(stage.hub, stage.anon), offer)
    equal(response.status, 101, "the status")
    digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
    equal(response.headers.get("sec-websocket-accept"), base64.b64encode(digest).decode(), "the accept header")
    equal(response.headers.get("upgrade", "").lower(), "websocket", "the upgrade header")
    equal(response.headers.get("connection", "").lower(), "upgrade", "the connection header")
    true("sec-websocket-extensions" not in response.headers, "no extension, though one was offered", response)
    true("sec-websocket-protocol" not in response.headers, "no sub-protocol, though one was offered", response)


@scenario("checklist 1: vsn absent and 1.0.x speak V1, 2.0.x speaks V2")
async def versions(stage):
    await speaks(stage, "1.0.0")
    await speaks(stage, "1.0.0", vsn="1.0.0")
    await speaks(stage, "1.0.0", vsn="1.0.7")
    await speaks(stage, "2.0.0", vsn="2.0.0")
    await speaks(stage, "2.0.0", vsn="2.0.3")


@scenario()
async def any_other_vsn_is_403_with_an_empty_body(stage):
    for version in ("3.0.0", "1.1.0", "2.1.0", "0.9.0", "2", "1.0", "", "two", "2.0.0.0", "-1.0.0"):
        connection = await stage.connection()
        response = await connection.upgrade(stage.hub, target(stage.hub, stage.anon, vsn=version))
        if response.status != 403 or response.body:
            fail(f"403 and no body for vsn={version!r}", response)


@scenario()
async def all_public_paths_lead_to_the_same_socket(stage):
    for path in ("/realtime/v1/websocket", "/socket/websocket"):
        peer = await stage.peer("2.0.0", path=path)
        await peer.join("realtime:paths", {})


@scenario("trap 20: other query parameters and headers are ignored")
async def other_query_parameters_and_headers_are_ignored(stage):
    await speaks(stage, "2.0.0", vsn="2.0.0", log_level="warn", eventsPerSecond="10", private="yes")
    await speaks(stage, "2.0.0", vsn="2.0.0", log_level="loudest")
    connection = await stage.connection()
    headers = {"Authorization": "Bearer nonsense", "X-Client-Info": "supabase-swift/2", "apikey": "nonsense"}
    response = await connection.upgrade(stage.hub, target(stage.hub, stage.anon), headers)
    equal(response.status, 101, "the status beside an Authorization header, which is not read,")


@scenario("trap 20: any host is the one tenant")
async def any_host_is_the_one_tenant(stage):
    for host in ("realtime-dev.supabase-realtime:4000", "abcd.supabase.co", "localhost", "10.0.0.7:4000"):
        connection = await stage.connection()
        response = await connection.upgrade(stage.hub, target(stage.hub, stage.anon), {"Host": host})
        equal(response.status, 101, f"the status for Host {host}")


@scenario("trap 20: the x-api-key header beats the apikey parameter")
async def header_beats_query(stage):
    connection = await stage.connection()
    response = await connection.upgrade(stage.hub, target(stage.hub, "nonsense"), {"x-api-key": stage.anon})
    equal(response.status, 101, "the status of a good header over a bad parameter")
    await refused(stage, stage.anon, 401, "The token provided is not a valid JWT", {"x-api-key": "nonsense"})
    connection = await stage.connection()
    response = await connection.upgrade(stage.hub, stage.hub.path, {"x-api-key": stage.anon})
    equal(response.status, 101, "the status of a header and no parameter at all")


@scenario("checklist 2: no key, and keys that are no tokens")
async def no_key(stage):
    await refused(stage, None, 401, "API key is missing")
    for nonsense in ("nonsense", "a.b", "a.b.c", "...", "e30.e30.e30.e30"):
        await refused(stage, nonsense, 401, "The token provided is not a valid JWT")


@scenario("checklist 2: expired tokens, and tokens without what they need")
async def wrong_claims(stage):
    await refused(stage, stage.token("anon", -10), 401, "Token has expired")
    needed = "Fields `role` and `exp` are required in JWT"
    await refused(stage, tokens.sign(stage.secret, {"role": "anon"}), 401, needed)
    await refused(stage, tokens.sign(stage.secret, {"exp": tokens.in_seconds(60)}), 401, needed)
    await refused(stage, tokens.sign(stage.secret, {}), 401, needed)


@scenario()
async def signatures_and_algorithms_are_checked(stage):
    claims = {"role": "service_role", "exp": tokens.in_seconds(60)}
    await refused(stage, tokens.sign("another secret", claims), 401, "Failed to validate JWT signature")
    good = tokens.sign(stage.secret, claims)
    head, body, _ = good.split(".")
    await refused(stage, f"{head}.{body}.", 401, "Failed to validate JWT signature")
    await refused(stage, tokens.unsigned(claims), 401, SIGNER)
    await refused(stage, tokens.sign(stage.secret, claims, header={"alg": "PS256"}), 401, SIGNER)
    await refused(stage, tokens.sign(stage.secret, claims, header={"alg": "RS256"}), 401, SIGNER)
    with_kid = tokens.sign(stage.secret, claims, header={"alg": "ES256", "kid": "lost"})
    text = 'Failed to generate JWT signer for key ID (kid) "lost", check your JWT secret or JWKS configuration'
    await refused(stage, with_kid, 401, text)


@scenario()
async def an_iat_that_is_no_number_is_500(stage):
    token = stage.token("anon", iat="yesterday")
    await refused(stage, token, 500, "Error connecting to Realtime")


@scenario("a token before its time, or for a role of the server's own, is 401")
async def early_and_privileged(stage):
    await refused(stage, stage.token("anon", nbf=tokens.in_seconds(60)), 401, "Token is not valid yet")
    await refused(stage, stage.token("anon", nbf="now"), 500, "Error connecting to Realtime")
    await stage.peer(apikey=stage.token("anon", nbf=int(time.time()) - 1))
    for role in ("postgres", "tidewire", "tidewire_policies", "pg_read_all_data"):
        await refused(stage, stage.token(role), 401, "The role of the token may not be used by clients")


@scenario()
async def hs384_hs512_and_decimal_times_are_taken(stage):
    for algorithm in ("HS256", "HS384", "HS512"):
        claims = {"role": "anon", "exp": time.time() + 60.5, "iat": time.time() - 1.5}
        await stage.peer(apikey=tokens.sign(stage.secret, claims, algorithm))


@scenario()
async def whitespace_in_a_token_and_its_encoding_do_not_matter(stage):
    token = stage.anon
    await stage.peer(apikey=f" {token[:20]}\n{token[20:]}\t")
    await stage.peer(apikey=urllib.parse.quote(token).replace(".", "%2E"))


@scenario("trap 19: a refusal is not sent before the backoff", settings={"connect_error_backoff": "2s"})
async def a_refusal_is_not_sent_before_the_backoff(stage):
    for apikey in (None, "nonsense", stage.token("anon", -10)):
        began = time.monotonic()
        connection = await stage.connection()
        await connection.upgrade(stage.hub, target(stage.hub, apikey))
        true(time.monotonic() - began >= 2, "a refusal not before 2 s", f"after {time.monotonic() - began:.3f} s")
    # An unknown version is not a matter of trust, and is not delayed: its answer overtakes a refusal asked for before.
    slow, quick = await stage.connection(), await stage.connection()
    import asyncio

    waiting = asyncio.create_task(slow.upgrade(stage.hub, target(stage.hub, "nonsense")))
    await quick.upgrade(stage.hub, target(stage.hub, stage.anon, vsn="9.9.9"))
    true(not waiting.done(), "403 for a version before the delayed 401", "the 401 first")
    equal((await waiting).status, 401, "the status of the delayed one")


@scenario()
async def plain_requests_on_the_path_are_answered_400(stage):
    connection = await stage.connection()
    host = {"Host": stage.hub.host, "Connection": "close"}
    response = await connection.request("GET", target(stage.hub, stage.anon), host)
    equal(response.status, 400, "the status of a GET without an upgrade")
    connection = await stage.connection()
    response = await connection.request("GET", target(stage.hub, "nonsense"), host)
    equal(response.status, 401, "the status of a GET without an upgrade and without a right: it is checked first,")
    connection = await stage.connection()
    response = await connection.request("POST", target(stage.hub, stage.anon), host | {"Content-Length": "0"})
    equal((response.status, response.body), (400, b""), "status and body of a POST")


@scenario()
async def unknown_paths_are_404(stage):
    for path in ("/realtime/v1/websockets", "/socket", "/realtime/v2/websocket", "//", "/nothing/here"):
        connection = await stage.connection()
        response = await connection.request("GET", path, {"Host": "h", "Connection": "close"})
        equal(response.status, 404, f"the status of {path}")


@scenario()
async def broken_handshakes_are_refused(stage):
    broken = {
        "a version other than 13": {"Sec-WebSocket-Version": "8"},
        "no key": {"Sec-WebSocket-Key": None},
        "a key of the wrong length": {"Sec-WebSocket-Key": "c2hvcnQ="},
        "Connection without Upgrade": {"Connection": "keep-alive"},
    }
    for what, headers in broken.items():
        connection = await stage.connection()
        response = await connection.upgrade(stage.hub, target(stage.hub, stage.anon), headers)
        one_of(response.status, (400, 426), f"the status of a handshake with {what}")


async def ends(connection: Connection, what: str, limit=None):
    """A refusal or no answer at all, and then the end of the connection. Never an upgrade."""
    try:
        response = await connection.response()
        true(400 <= response.status < 500 or response.status in (501, 505), f"a refusal of {what}", response)
    except Closed:
        return
    rest = await connection.reader.read()
    true(rest == b"", f"the end of the connection after {what}", repr(rest))


@scenario("garbage before the upgrade ends the connection and nothing else")
async def garbage(stage):
    host = f"Host: {stage.hub.host}\r\n"
    pieces = {
        "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2,
        "zeros": b"\0" * 4096,
        "no version": b"GET /\r\n\r\n",
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "a header without a colon": f"GET / HTTP/1.1\r\n{host}nonsense\r\n\r\n".encode(),
        "a space before the colon": f"GET / HTTP/1.1\r\n{host}X : y\r\n\r\n".encode(),
        "a folded header": f"GET / HTTP/1.1\r\n{host}X: y\r\n z\r\n\r\n".encode(),
        "two lengths": f"POST / HTTP/1.1\r\n{host}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab".encode(),
        "length and chunks": f"POST / HTTP/1.1\r\n{host}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode(),
        "a control character": f"GET /\x01 HTTP/1.1\r\n{host}\r\n".encode(),
        "an endless line": b"GET /" + b"a" * 200_000,
        "endless headers": f"GET / HTTP/1.1\r\n{host}".encode() + b"X-Y: z\r\n" * 40_000,
    }
    for what, data in pieces.items():
        connection = await stage.connection()
        try:
            await connection.send(data)
            await ends(connection, what)
        except ConnectionError:
            # It had seen enough before we had sent it all.
            pass
    await (await stage.peer()).join("realtime:after-garbage", {})


@scenario()
async def slow_headers_end_by_a_timeout(stage):
    connection = await stage.connection()
    await connection.send(f"GET {stage.hub.path} HTTP/1.1\r\nHost: h\r\nX-Slow: ".encode())
    import asyncio

    async def drip():
        try:
            while True:
                await connection.send(b"a")
                await asyncio.sleep(0.5)
        except (ConnectionError, Failure):
            pass

    dripping = asyncio.create_task(drip())
    try:
        rest = await within(connection.reader.read(), 150)
        true(rest == b"" or rest.startswith(b"HTTP/1.1 4"), "the end of a connection whose head never ends", repr(rest))
    except TimeoutError:
        fail("the end of a connection whose head never ends, though a byte comes now and then", "nothing for 150 s")
    except ConnectionError:
        pass
    finally:
        dripping.cancel()


@scenario()
async def a_handshake_that_comes_byte_by_byte_is_one(stage):
    await handshake_and_heartbeat(stage, 7)


@scenario()
async def frames_that_come_with_the_handshake_are_answered(stage):
    await handshake_and_heartbeat(stage, 1 << 16)


async def handshake_and_heartbeat(stage, size: int):
    connection = await stage.connection()
    head = (
        f"GET {target(stage.hub, stage.anon, vsn='2.0.0')} HTTP/1.1\r\nhost: h\r\nUPGRADE: WebSocket\r\n"
        "connection: keep-alive, Upgrade\r\nsec-websocket-key: c2l4dGVlbiBieXRlcyBvaw==\r\nSEC-WEBSOCKET-VERSION: 13\r\n\r\n"
    )
    # With the first frame behind it, in the same segments.
    data = head.encode() + connection.encoded(1, b'[null,"1","phoenix","heartbeat",{}]')
    for begin in range(0, len(data), size):
        await connection.send(data[begin : begin + size])
    response = await connection.response()
    equal(response.status, 101, "the status")
    await Peer(connection, "2.0.0").reply("1", "the answer to a heartbeat that was sent with the handshake")
