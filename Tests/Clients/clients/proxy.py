"""A proxy as one stands before most hubs: it takes what it is given, and may go with it."""

import asyncio
import contextlib
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """Between clients and the hub. Once it is greedy it takes what the hub sends to those who are there, and gives none of it to
    anybody; and the hub does not hear that one of them has gone."""

    def __init__(self, url: str):
        self.target = urlsplit(url)
        self.swallowed = 0
        self.writers = []
        self.greedy = set()

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self.server.sockets[0].getsockname()[1]
        self.url = urlunsplit(self.target._replace(netloc=f"127.0.0.1:{port}"))
        return self

    def become_greedy(self):
        self.greedy = set(self.writers)

    @contextlib.asynccontextmanager
    async def away(self, *clients):
        """Their sockets are cut, and nobody gets through meanwhile."""
        port = self.server.sockets[0].getsockname()[1]
        self.server.close()
        for client in clients:
            client._ws_connection.transport.abort()
        yield
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", port)

    async def __aexit__(self, *_):
        self.server.close()
        for writer in self.writers:
            writer.close()

    async def _serve(self, reader, writer):
        hub_reader, hub_writer = await asyncio.open_connection(self.target.hostname, self.target.port)
        self.writers += [writer, hub_writer]
        await asyncio.gather(self._carry(reader, hub_writer, False), self._carry(hub_reader, writer, True))

    async def _carry(self, reader, writer, is_from_hub: bool):
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if is_from_hub and writer in self.greedy:
                    self.swallowed += len(data)
                elif not writer.is_closing():
                    writer.write(data)
            if is_from_hub or writer not in self.greedy:
                writer.close()
