"""What a scenario is given."""

import contextlib
import os

from . import tokens
from .database import Database
from .expect import NotHere
from .hub import RunningHub
from .peer import Peer

ANA = "00000000-0000-4000-8000-00000000a0a0"
BEN = "00000000-0000-4000-8000-00000000be00"


class Stage:
    """The hub, the database, the tokens. What a scenario opens here is closed when it ends."""

    def __init__(self, hub: RunningHub, database: Database):
        self.hub = hub
        self.database = database
        self.closing = contextlib.AsyncExitStack()
        self.secret = os.environ.get("TW_SECRET", "")

    def token(self, role: str, seconds: int = 3600, **claims) -> str:
        """Signed as the hub expects it."""
        if not self.secret:
            raise NotHere("needs TW_SECRET")
        return tokens.of_role(self.secret, role, seconds, **claims)

    def _given(self, name: str, role: str, **claims) -> str:
        return os.environ.get(name) or self.token(role, **claims)

    @property
    def anon(self) -> str:
        return self._given("TW_ANON", "anon")

    @property
    def ana(self) -> str:
        return self._given("TW_ANA", "authenticated", sub=ANA)

    @property
    def ben(self) -> str:
        return self._given("TW_BEN", "authenticated", sub=BEN)

    @property
    def service(self) -> str:
        return self._given("TW_SERVICE", "service_role")

    async def peer(self, vsn: str = "2.0.0", apikey: str | None = None, **more) -> Peer:
        peer = await Peer.open(self.hub, apikey or self.anon, vsn, **more)
        self.closing.push_async_callback(peer.close)
        return peer

    async def connection(self, **more):
        from .wire import Connection

        connection = await Connection.open(self.hub, **more)
        self.closing.callback(connection.abort)
        return connection
