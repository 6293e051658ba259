"""WebSocket frames: limits, pings, fragments, closes, idleness. Protocol §1.5; RFC 6455."""

import asyncio
import json
import struct

from clients.expect import equal, fail, true
from clients.scenario import BOTH, scenario
from clients.wire import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Closed

LARGEST = 5_000_000


def heartbeat_of(length: int) -> bytes:
    """A heartbeat message of exactly this length."""
    bare = json.dumps([None, "big", "phoenix", "heartbeat", {"padding": ""}])
    return bare.replace('""', '"' + "x" * (length - len(bare)) + '"').encode()


@scenario()
async def a_message_of_five_million_bytes_is_taken(stage):
    peer = await stage.peer()
    await peer.connection.text(heartbeat_of(LARGEST))
    await peer.reply("big", "the answer to a heartbeat of 5,000,000 bytes")


@scenario("one byte more is closed with 1009, before it has been sent")
async def too_large(stage):
    peer = await stage.peer()
    # The head alone: a hub that waits for the bytes would hold memory for whoever asks.
    await peer.connection.send(struct.pack("!BBQ", 0x81, 0x80 | 127, LARGEST + 1) + b"mask")
    await peer.connection.expect_close(1009, "a frame says that it has 5,000,001 bytes")


@scenario()
async def fragments_that_together_are_too_large_are_closed_with_1009(stage):
    peer = await stage.peer()
    half = b"x" * (LARGEST // 2 + 1)
    await peer.connection.frame(TEXT, half, final=False)
    try:
        await peer.connection.frame(CONTINUATION, half)
    except ConnectionError:
        pass
    await peer.connection.expect_close(1009, "two fragments have 5,000,002 bytes together")


@scenario(settings={"max_frame_size": "64kB"})
async def the_largest_frame_is_the_operators_choice(stage):
    peer = await stage.peer()
    await peer.connection.text(heartbeat_of(65_536))
    await peer.reply("big", "the answer to a heartbeat of 65,536 bytes")
    await peer.connection.text(heartbeat_of(65_537))
    await peer.connection.expect_close(1009, "a frame has 65,537 bytes and max_frame_size is 64kB")


@scenario()
async def pings_are_answered_with_their_own_bytes(stage):
    peer = await stage.peer()
    for payload in (b"", b"ping", bytes(range(125))):
        await peer.connection.frame(PING, payload)
        frame = await peer.connection.receive_frame("a pong")
        equal((frame.opcode, frame.payload), (PONG, payload), "the answer to a ping")
    # A pong that nobody asked for is a sign of life and nothing else.
    await peer.connection.frame(PONG, b"unasked")
    equal(await peer.fence(), [], "what an unasked pong brings")


@scenario()
async def a_fragmented_message_with_a_ping_inside_is_one_message(stage):
    peer = await stage.peer()
    data = b'[null,"7","phoenix","heartbeat",{}]'
    await peer.connection.frame(TEXT, data[:5], final=False)
    await peer.connection.frame(PING, b"between")
    await peer.connection.frame(CONTINUATION, data[5:11], final=False)
    await peer.connection.frame(CONTINUATION, b"", final=False)
    await peer.connection.frame(CONTINUATION, data[11:])
    frame = await peer.connection.receive_frame("a pong")
    equal((frame.opcode, frame.payload), (PONG, b"between"), "what comes first")
    await peer.reply("7", "the answer to a heartbeat in four fragments")


@scenario()
async def what_rfc_6455_forbids_is_closed_with_1002(stage):
    forbidden = {
        "an unmasked frame": dict(opcode=TEXT, payload=b"[]", masked=False),
        "a reserved bit": dict(opcode=TEXT, payload=b"[]", reserved=4),
        "an unknown data opcode": dict(opcode=3, payload=b"[]"),
        "an unknown control opcode": dict(opcode=11, payload=b""),
        "a fragmented ping": dict(opcode=PING, payload=b"", final=False),
        "a ping of 126 bytes": dict(opcode=PING, payload=b"x" * 126),
        "a continuation of nothing": dict(opcode=CONTINUATION, payload=b"[]"),
        "a close of one byte": dict(opcode=CLOSE, payload=b"\x03"),
        "a close code that is never sent": dict(opcode=CLOSE, payload=struct.pack("!H", 1006)),
    }
    for what, frame in forbidden.items():
        peer = await stage.peer()
        await peer.connection.frame(**frame)
        await peer.connection.expect_close(1002, f"of {what}")
    peer = await stage.peer()
    await peer.connection.frame(TEXT, b"[", final=False)
    await peer.connection.frame(TEXT, b"[]")
    await peer.connection.expect_close(1002, "a message begins inside another")


@scenario()
async def a_close_is_answered_and_the_connection_ends(stage):
    for payload in (b"", struct.pack("!H", 1000) + "tschüß".encode(), struct.pack("!H", 4321)):
        peer = await stage.peer()
        await peer.connection.frame(CLOSE, payload)
        frame = await peer.connection.receive_frame("an answer to a close")
        equal(frame.opcode, CLOSE, "the answer to a close")
        if payload:
            equal(frame.payload[:2], payload[:2], "the code that comes back")
        try:
            frame = await peer.connection.receive_frame("the end of the connection")
            fail("the end of the connection after both closes", frame)
        except Closed as end:
            equal(end.code, None, "what follows a close")


@scenario(vsn=BOTH)
async def invalid_utf8_drops_the_message_and_keeps_the_socket(stage, vsn):
    peer = await stage.peer(vsn)
    await peer.connection.frame(TEXT, b'[null,"1","phoenix","heartb\xffeat",{}]')
    await peer.connection.frame(TEXT, b"\xc3\x28\xff\xfe")
    equal(await peer.fence(), [], "what comes of invalid UTF-8")


@scenario("an idle socket is closed with 1000, one that pings is not", settings={"idle_timeout": "1s"})
async def idle(stage):
    idle, pinging, beating = await stage.peer(), await stage.peer(), await stage.peer()

    async def stay_alive():
        while True:
            await pinging.connection.frame(PING, b"alive")
            frame = await pinging.connection.receive_frame("a pong")
            equal(frame.opcode, PONG, "the answer to a ping")
            await beating.fence()
            await asyncio.sleep(0.1)

    living = asyncio.create_task(stay_alive())
    await idle.connection.expect_close(1000, "nothing has come for idle_timeout")
    living.cancel()
    await asyncio.gather(living, return_exceptions=True)
    true(living.cancelled(), "the two with traffic to live on", repr(living))
    await beating.fence()


@scenario(vsn=BOTH)
async def binary_frames_that_say_nothing_are_dropped(stage, vsn):
    peer = await stage.peer(vsn)
    for data in (b"", b"\x00", b"\x03\xff\xff\xff\xff\xff\x01", b"\x09abc", b"\x03\x00\x00\x00\x00\x00"):
        await peer.connection.frame(BINARY, data)
    equal(await peer.fence(), [], "what comes of broken binary frames")


@scenario("the echo path gives back what it gets", settings={"echo": "on"})
async def echo(stage):
    connection = await stage.connection()
    response = await connection.upgrade(stage.hub, "/echo")
    equal(response.status, 101, "the status of the echo path")
    for opcode, payload in ((TEXT, "grüße".encode()), (BINARY, bytes(range(256)) * 300), (TEXT, b"")):
        await connection.frame(opcode, payload)
        frame = await connection.receive("an echo")
        equal((frame.opcode, frame.payload), (opcode, payload), "the echo")
    await connection.frame(TEXT, b"\xff")
    await connection.expect_close(1007, "of text that is not UTF-8: the echo path keeps the letter of RFC 6455")


@scenario()
async def without_its_flag_there_is_no_echo_path(stage):
    connection = await stage.connection()
    response = await connection.upgrade(stage.hub, "/echo")
    true(response.status in (404, 401), "404 for /echo", response)


@scenario("deflate is agreed on when the operator turns it on", settings={"deflate": "on"})
async def deflate(stage):
    import zlib

    connection = await stage.connection()
    offer = {"Sec-WebSocket-Extensions": "permessage-deflate; client_no_context_takeover; server_no_context_takeover"}
    response = await connection.upgrade(stage.hub, f"{stage.hub.path}?apikey={stage.anon}&vsn=2.0.0", offer)
    agreed = response.headers.get("sec-websocket-extensions", "")
    true(agreed.startswith("permessage-deflate"), "permessage-deflate in the answer", response)
    squeezer = zlib.compressobj(wbits=-15)
    data = squeezer.compress(b'[null,"1","phoenix","heartbeat",{}]') + squeezer.flush(zlib.Z_SYNC_FLUSH)
    await connection.frame(TEXT, data[:-4], reserved=4)
    frame = await connection.receive_frame("the answer to a compressed heartbeat")
    text = frame.payload
    if frame.reserved & 4:
        text = zlib.decompressobj(wbits=-15).decompress(frame.payload + b"\0\0\xff\xff")
    wanted = [None, "1", "phoenix", "phx_reply", {"status": "ok", "response": {}}]
    equal(json.loads(text), wanted, "the answer, inflated,")
    # One who did not offer it is not surprised by it.
    plain = await stage.peer()
    equal(await plain.fence(), [], "what comes to a client without deflate")
