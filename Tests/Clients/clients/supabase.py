"""The real Python client of Supabase, and what its callbacks said."""

import asyncio
import logging

from realtime import AsyncRealtimeClient

from .expect import Failure, equal, fail, true, within
from .hub import LIMIT


class Complaints(logging.Handler):
    """What the client could not make sense of. It logs that and goes on; a test must not."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record):
        text = record.getMessage()
        if "Unrecognized message format" in text:
            self.lines.append(text)


class Heard:
    """Things that happened, in order, to be waited for."""

    def __init__(self, what: str):
        self.what = what
        self.items = asyncio.Queue()

    def __call__(self, *item):
        self.items.put_nowait(item[0] if len(item) == 1 else item)

    async def next(self, what: str | None = None, limit: float = LIMIT):
        try:
            return await within(self.items.get(), limit)
        except TimeoutError:
            raise Failure(f"expected {what or self.what}\n     came nothing within {limit:.0f} s") from None

    async def until(self, condition, what: str):
        """What came before the first that it holds for, and that."""
        before = []
        while True:
            try:
                item = await self.next(what)
            except Failure as failure:
                raise Failure(f"{failure}; before that: {before[-6:]}") from None
            if condition(item):
                return before, item
            before.append(item)

    def so_far(self) -> list:
        found = []
        while not self.items.empty():
            found.append(self.items.get_nowait())
        return found


class Channel:
    """A channel of the client with everything that it says kept."""

    def __init__(self, client: AsyncRealtimeClient, name: str, params=None):
        self.channel = client.channel(name, params)
        self.states = Heard(f"a state of {name}")
        self.systems = Heard(f"a system message of {name}")
        self.channel.on_system(self.systems)

    def on(self, event: str, table: str | None, schema: str | None = "public", into: Heard | None = None, **more) -> Heard:
        """`into` is one for several bindings: what a channel hears of all of them, in its order."""
        heard = into or Heard(f"{event} of {table}")
        self.channel.on_postgres_changes(event, lambda payload: heard(payload["data"]), table=table, schema=schema, **more)
        return heard

    async def subscribe(self, ready: bool = True) -> "Channel":
        """SUBSCRIBED, and then the sign that changes flow."""
        await self.channel.subscribe(lambda state, error: self.states(state.value, error))
        state, error = await self.states.next()
        if state != "SUBSCRIBED":
            fail(f"{self.channel.topic} to be SUBSCRIBED", f"{state}: {error}")
        if ready and self.channel.postgres_changes_callbacks:
            await self.ready()
        return self

    async def ready(self):
        wanted = {"extension": "postgres_changes", "status": "ok", "message": "Subscribed to PostgreSQL",
                  "channel": self.channel.topic.removeprefix("realtime:")}  # fmt: skip
        # Warnings come after it; those of an earlier time may still be there.
        before, system = await self.systems.until(lambda item: dict(item)["message"] == wanted["message"], wanted["message"])
        equal(dict(system), wanted, "the system message")
        equal([dict(item)["status"] for item in before], ["ok"] * len(before), "the status of warnings")

    async def warning(self, words: str) -> str:
        """A warning that speaks of this. It is never an error: this client joins again at each of those, forever."""
        system = await self.system(words, f"a warning about {words}")
        wanted = {"extension": "postgres_changes", "status": "ok", "channel": self.channel.topic.removeprefix("realtime:")}
        equal({key: system[key] for key in wanted}, wanted, f"the warning about {words}")
        return system["message"]

    async def system(self, words: str, what: str | None = None) -> dict:
        """A system message with these words."""
        _, system = await self.systems.until(lambda item: words in dict(item)["message"], what or words)
        return dict(system)

    async def state(self, wanted: str, what: str):
        before, item = await self.states.until(lambda item: item[0] == wanted, f"{wanted} {what}")
        return item


class SupabaseClients:
    """Clients of one scenario: closed when it ends, and none of their messages may have been unreadable."""

    def __init__(self, stage):
        self.stage = stage
        self.complaints = Complaints()
        self.clients: list[AsyncRealtimeClient] = []

    async def __aenter__(self):
        logging.getLogger("realtime").addHandler(self.complaints)
        return self

    async def __aexit__(self, kind, error, trace):
        logging.getLogger("realtime").removeHandler(self.complaints)
        for client in self.clients:
            try:
                await within(client.close(), 5)
            except Exception:
                pass
        if error is None:
            true(not self.complaints.lines, "messages that the client can read", "\n".join(self.complaints.lines[:3]))

    async def client(self, token: str | None = None, url: str | None = None, **more) -> AsyncRealtimeClient:
        client = AsyncRealtimeClient(url or self.stage.hub.url, token or self.stage.anon, **more)
        self.clients.append(client)
        await client.connect()
        return client

    async def channel(self, client=None, name="room", params=None) -> Channel:
        return Channel(client or await self.client(), name, params)


def kinds(items) -> list[str]:
    return [item["type"] for item in items]
