"""Channels that stay: what each hears, in its order, with what it was told and when it joined."""

import asyncio
import contextlib
import time
from dataclasses import dataclass

from ..expect import Failure, within
from ..peer import SUBSCRIBED, Peer
from ..supabase import Channel
from ..wire import Closed
from .ground import Seat

HEARTBEAT = 15
BINDING_LIMIT = 60


@dataclass
class Heard:
    """Something that came to a channel."""

    #: `change`, `told` (that something may be missing), `closed`, `left` (by itself) or `joined`.
    kind: str
    at: float
    data: dict | None = None
    text: str = ""
    #: The last transaction that may have been committed before the answer to a join came.
    since: int = 0


def says_of_loss(payload: dict) -> bool:
    """Whether a system message says that a client cannot rely on having heard everything."""
    return payload.get("status") == "error" or "missing" in payload.get("message", "")


def kind_of(data: dict) -> str:
    kind = data["type"]
    return kind.value if hasattr(kind, "value") else str(kind)


class Ear:
    def __init__(self, seat: Seat, stage):
        self.seat = seat
        self.stage = stage
        self.topic = seat.name.replace(" ", "-")
        self.heard: list[Heard] = []
        self.is_ready = asyncio.Event()
        self.is_ending = False
        #: The question how far the database was when it joined.
        self.asking: asyncio.Task | None = None
        #: Fences that it heard, by their numbers.
        self.fences: set[int] = set()

    def add(self, kind: str, data: dict | None = None, text: str = ""):
        self.heard.append(Heard(kind, time.monotonic(), data, text))
        if data and data["table"] == "fences" and kind_of(data) == "INSERT":
            self.fences.add(data["record"]["id"])

    def joined(self):
        """What is committed from now on it must hear."""
        self.add("joined")
        self.asking = asyncio.create_task(self._ask_since(self.heard[-1]))

    async def _ask_since(self, item: Heard):
        item.since = await self.stage.commits_so_far()

    def system(self, payload: dict):
        if says_of_loss(payload):
            self.add("told", text=payload["message"])
        elif payload["message"] == SUBSCRIBED:
            self.is_ready.set()

    async def ready(self):
        try:
            await within(self.is_ready.wait(), BINDING_LIMIT)
        except TimeoutError:
            raise Failure(f"expected {SUBSCRIBED!r} for {self.seat.name}\n     came nothing in {BINDING_LIMIT} s") from None

    def token(self) -> str:
        claims = {name: value for name, value in self.seat.person.claims.items() if name != "role"}
        return self.stage.token(self.seat.person.role, 3600, **claims)


class RealEar(Ear):
    """The unmodified client of Supabase."""

    async def open(self, clients):
        self.left = asyncio.Event()
        self.client = await clients.client(initial_backoff=0.2, max_retries=1000)
        await self.client.set_auth(self.token())
        await self._join()

    async def _join(self):
        self.is_ready.clear()
        self.channel = Channel(self.client, self.topic)
        self.channel.channel.on_system(lambda payload: self.system(dict(payload)))
        for binding in self.seat.bindings:
            self.channel.channel.on_postgres_changes(
                binding.event, lambda payload: self.add("change", payload["data"]),
                table=binding.table, schema="public", filter=binding.filter)  # fmt: skip
        await self.channel.channel.subscribe(self._state)

    def _state(self, state, error):
        if self.is_ending:
            return self.left.set()
        if state.value == "SUBSCRIBED":
            self.joined()
        else:
            self.add("closed", text=f"{state.value}: {error}")

    async def rejoin(self):
        self.is_ending = True
        self.left.clear()
        await self.channel.channel.unsubscribe()
        await within(self.left.wait(), BINDING_LIMIT)
        self.is_ending = False
        self.add("left")
        await self._join()

    async def refresh(self):
        await self.client.set_auth(self.token())

    async def close(self):
        self.is_ending = True


class RawEar(Ear):
    """The protocol by hand: every message is checked by `Peer`."""

    async def open(self, clients):
        self.problem: Failure | None = None
        await self._connect()
        self.tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._beat())]

    async def _connect(self):
        self.peer = await Peer.open(self.stage.hub, self.stage.anon, self.seat.vsn)
        await self._join()

    async def _join(self):
        self.is_ready.clear()
        bindings = [binding.request() for binding in self.seat.bindings]
        config = {"config": {"postgres_changes": bindings}, "access_token": self.token()}
        if self.seat.moves:
            config["config"]["tidewire"] = {"moves": True}
        self.join_ref = await self.peer.send_join(f"realtime:{self.topic}", config)

    async def _read(self):
        while not self.is_ending:
            try:
                await self._take(await self.peer.next(limit=3600))
            except Closed as end:
                if not self.is_ending:
                    self.add("closed", text=str(end))
                    await self._again()
            except Failure as failure:
                self.problem = failure
                return

    async def _again(self):
        for _ in range(600):
            await asyncio.sleep(0.1)
            with contextlib.suppress(Failure, Closed, OSError):
                return await self._connect()
        raise Failure(f"{self.seat.name} cannot come back")

    async def _take(self, message):
        if message.topic != f"realtime:{self.topic}":
            return
        if message.event == "postgres_changes":
            # A row that came into sight by a membership is no change. What a client holds by such rows is tested in the hub.
            if message.data.get("tidewire") != {"moved": "in"}:
                self.add("change", message.data)
        elif message.event == "system":
            self.system(message.payload)
        elif message.event == "phx_reply" and message.ref == self.join_ref:
            await self._joined(message)
        elif message.event == "phx_close" and message.ref == self.join_ref:
            self.add("closed", text="phx_close")
            await self._join()

    async def _joined(self, message):
        if message.status == "ok":
            return self.joined()
        self.add("told", text=f"the join was refused: {message.reason}")
        await asyncio.sleep(1)
        await self._join()

    async def _beat(self):
        while True:
            await asyncio.sleep(HEARTBEAT)
            with contextlib.suppress(Failure, Closed, OSError):
                await self.peer.push("phoenix", "heartbeat", {}, join_ref=None)

    async def rejoin(self):
        self.add("left")
        await self.peer.push(f"realtime:{self.topic}", "phx_leave", {})
        await self._join()

    async def refresh(self):
        await self.peer.push(f"realtime:{self.topic}", "access_token", {"access_token": self.token()})

    async def close(self):
        self.is_ending = True
        for task in self.tasks:
            task.cancel()
        await self.peer.close()


def ear(seat: Seat, stage) -> Ear:
    return (RealEar if seat.is_real else RawEar)(seat, stage)
