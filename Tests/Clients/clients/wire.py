"""A WebSocket client that hides nothing: every byte of the handshake and every frame is the test's to make and to see."""

import asyncio
import base64
import os
import struct
from dataclasses import dataclass

from .expect import Failure, fail, true, within
from .hub import LIMIT

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
NAMES = {0: "continuation", 1: "text", 2: "binary", 8: "close", 9: "ping", 10: "pong"}


@dataclass
class Response:
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    body: bytes

    def __str__(self):
        return f"{self.status} {self.headers} {self.body[:300]!r}"


@dataclass
class Frame:
    opcode: int
    payload: bytes
    is_final: bool
    reserved: int

    def __str__(self):
        return f"{NAMES.get(self.opcode, self.opcode)} frame of {len(self.payload)} bytes: {self.payload[:300]!r}"


class Closed(Exception):
    """The other side closed; `code` is None when the TCP connection went without a close frame."""

    def __init__(self, code: int | None, reason: str = ""):
        super().__init__(f"close {code} {reason}".strip())
        self.code = code
        self.reason = reason


async def limited(awaitable, what: str, limit: float | None = None):
    limit = limit or LIMIT
    try:
        return await within(awaitable, limit)
    except TimeoutError:
        raise Failure(f"expected {what}\n     came nothing within {limit:.0f} s") from None


class Connection:
    """A TCP connection to the hub, before and after it becomes a WebSocket."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, hub, buffer: int | None = None) -> "Connection":
        """`buffer` makes the receive buffer that small, for one who reads slowly."""
        limit = 1 << 16
        if buffer is None:
            streams = asyncio.open_connection(hub.host, hub.port, limit=limit)
        else:
            import socket

            raw = socket.socket()
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            raw.setblocking(False)
            await asyncio.get_running_loop().sock_connect(raw, (hub.host, hub.port))
            streams = asyncio.open_connection(sock=raw, limit=buffer)
        return cls(*await limited(streams, "the hub to accept a connection"))

    async def send(self, data: bytes):
        self.writer.write(data)
        await limited(self.writer.drain(), f"the hub to read {len(data)} bytes")

    def abort(self):
        self.writer.transport.abort()

    # HTTP

    async def request(self, method: str, target: str, headers: dict[str, str], body: bytes = b"") -> Response:
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        await self.send("\r\n".join(lines).encode() + body)
        return await self.response(head_only=method == "HEAD")

    async def response(self, head_only: bool = False) -> Response:
        head = await limited(self._head(), "the head of an HTTP response")
        first, *rest = head.decode("latin-1").split("\r\n")
        true(first.startswith("HTTP/1.1 "), "a status line of HTTP/1.1", first)
        headers = {}
        for line in filter(None, rest):
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        status = int(first.split()[1])
        has_no_body = head_only or status in (101, 204)
        return Response(status, headers, b"" if has_no_body else await self._body(headers))

    async def _head(self) -> bytes:
        try:
            return await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            raise Closed(None, f"after {error.partial[:200]!r}") from None
        except ConnectionError as error:
            raise Closed(None, str(error)) from None

    async def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return await limited(self._chunks(), "the chunks of a body")
        if "content-length" in headers:
            return await limited(self.reader.readexactly(int(headers["content-length"])), "the body of a response")
        return await limited(self.reader.read(), "the body of a response up to the end of the connection")

    async def _chunks(self) -> bytes:
        body = []
        while size := int(await self._size(), 16):
            body.append(await self.reader.readexactly(size))
            await self.reader.readexactly(2)
        await self.reader.readline()
        return b"".join(body)

    async def _size(self) -> bytes:
        line = await self.reader.readline()
        if not line:
            raise Closed(None, "in the middle of a body")
        return line.split(b";")[0]

    # WebSocket

    async def upgrade(self, hub, target: str, headers: dict[str, str] | None = None) -> Response:
        usual = {
            "Host": f"{hub.host}:{hub.port}",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Sec-WebSocket-Version": "13",
        }
        merged = {name: value for name, value in (usual | (headers or {})).items() if value is not None}
        return await self.request("GET", target, merged)

    async def frame(self, opcode: int, payload: bytes = b"", *, final=True, masked=True, reserved=0):
        await self.send(self.encoded(opcode, payload, final=final, masked=masked, reserved=reserved))

    @staticmethod
    def encoded(opcode: int, payload: bytes = b"", *, final=True, masked=True, reserved=0) -> bytes:
        first = (0x80 if final else 0) | reserved << 4 | opcode
        mark = 0x80 if masked else 0
        if len(payload) < 126:
            head = struct.pack("!BB", first, mark | len(payload))
        elif len(payload) < 1 << 16:
            head = struct.pack("!BBH", first, mark | 126, len(payload))
        else:
            head = struct.pack("!BBQ", first, mark | 127, len(payload))
        if not masked:
            return head + payload
        mask = os.urandom(4)
        return head + mask + unmasked(payload, mask)

    async def text(self, text: str | bytes):
        await self.frame(TEXT, text.encode() if isinstance(text, str) else text)

    async def receive_frame(self, what: str = "a frame", limit: float | None = None) -> Frame:
        return await limited(self._frame(), what, limit)

    async def _frame(self) -> Frame:
        try:
            first, second = await self.reader.readexactly(2)
            length = second & 0x7F
            if length == 126:
                length = struct.unpack("!H", await self.reader.readexactly(2))[0]
            elif length == 127:
                length = struct.unpack("!Q", await self.reader.readexactly(8))[0]
            true(not second & 0x80, "frames of a server to be unmasked", "a masked one")
            payload = await self.reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Closed(None, str(error)) from None
        return Frame(first & 15, payload, bool(first & 0x80), first >> 4 & 7)

    async def receive(self, what: str = "a message", limit: float | None = None) -> Frame:
        """A whole text or binary message. The hub does not fragment; a close ends it, and a ping is answered as any client's
        stack does."""
        frame = await self.receive_frame(what, limit)
        while frame.opcode == PING:
            await self.frame(PONG, frame.payload)
            frame = await self.receive_frame(what, limit)
        if frame.opcode == CLOSE:
            raise closed_by(frame)
        true(frame.reserved == 0, "no reserved bits without an extension", frame)
        true(frame.opcode in (TEXT, BINARY) and frame.is_final, f"{what} in one frame", frame)
        return frame

    async def closed(self, what: str) -> Closed:
        """Reads on until the close, and answers it as a client does."""
        while True:
            try:
                frame = await self.receive_frame(what)
            except Closed as end:
                return end
            if frame.opcode == CLOSE:
                end = closed_by(frame)
                try:
                    await self.frame(CLOSE, frame.payload)
                except (ConnectionError, Failure):
                    pass
                return end

    async def expect_close(self, code: int, because: str) -> Closed:
        end = await self.closed(f"close {code} because {because}")
        if end.code != code:
            fail(f"close {code} because {because}", str(end))
        return end

    async def close(self):
        """As a client takes its leave, without waiting for what is still on its way."""
        try:
            await self.frame(CLOSE, struct.pack("!H", 1000))
        except (ConnectionError, Failure):
            pass
        self.abort()


def closed_by(frame: Frame) -> Closed:
    true(len(frame.payload) != 1, "a close frame with a whole code or none", frame)
    if not frame.payload:
        return Closed(1005)
    return Closed(struct.unpack("!H", frame.payload[:2])[0], frame.payload[2:].decode())


def unmasked(payload: bytes, mask: bytes) -> bytes:
    """XOR with the mask; as one large number, because these frames can be megabytes."""
    repeated = (mask * (len(payload) // 4 + 1))[: len(payload)]
    mixed = int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")
    return mixed.to_bytes(len(payload), "big")
