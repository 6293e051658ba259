"""People of the five applications, each with a token and a client of their own, and what each of them hears.

That somebody hears nothing is judged at a row written later that they must hear: what stands before it is all they heard.
"""

from .expect import Failure, equal, fail, true
from .stage import ANA, BEN
from .supabase import Channel, Heard, SupabaseClients

CLEO = "00000000-0000-4000-8000-00000000c1e0"
DORA = "00000000-0000-4000-8000-00000000d0a0"


def somebody(stage, who: str, **claims) -> str:
    """A token as the application's own login issues it."""
    return stage.token("authenticated", sub=who, aud="authenticated", **claims)


class Device:
    """One client with one channel; what all its bindings hear, in the channel's order."""

    def __init__(self, channel: Channel, name: str):
        self.channel = channel
        self.name = name
        self.heard = Heard(f"what {name} hears")

    def on(self, event: str, table: str, **more) -> "Device":
        self.channel.on(event, table, into=self.heard, **more)
        return self

    async def ready(self) -> "Device":
        await self.channel.subscribe()
        return self

    async def becomes(self, token: str):
        """Another token for all that comes from now on."""
        await self.channel.channel.socket.set_auth(token)
        await self.channel.ready()

    async def heard_until_own(self, write, number_of) -> tuple[list, bool]:
        """What it heard before a row that is written for it alone, and whether each of these rows came. A client that is
        told of a loss joins again, and the row that is written meanwhile does not come; so another one is written."""
        came, numbers = [], []
        for number in range(20):
            await write(number)
            while number not in numbers:
                try:
                    item = await self.heard.next(limit=2)
                except Failure:
                    break
                if number_of(item) is None:
                    came.append(item)
                else:
                    numbers.append(number_of(item))
            else:
                return came, set(numbers) >= set(range(number + 1))
        fail(f"{self.name} to hear a row of its own", f"none; it was told {self.channel.states.so_far()}")

    async def begins(self, write, number_of):
        """The first rows may be missing while the hub learns what has just changed; then the client was told."""
        _, is_whole = await self.heard_until_own(write, number_of)
        true(is_whole or self.is_told(), f"the first rows of {self.name}, or a word that something is missing", "neither")

    def is_told(self) -> bool:
        """Whether the client was told since the last question that changes may be missing."""
        return any("may be missing" in str(error) for _, error in self.channel.states.so_far() if error)

    async def heard_until(self, fence) -> list:
        """What it heard before a row that it must hear, and that came last."""
        try:
            before, _ = await self.heard.until(fence, f"{self.name} to hear the last row")
        except Failure as failure:
            raise Failure(f"{failure}; it was told: {self.channel.states.so_far()} {self.channel.systems.so_far()}") from None
        return before

    async def hears(self, wanted: list, fence, brief, when: str):
        equal([brief(item) for item in await self.heard_until(fence)], wanted, f"what {self.name} hears {when}")

    async def hears_or_is_told(self, wanted: list, write, number_of, brief, when: str):
        """In order, each once; what is missing was told: this client shows that as an error, and joins again."""
        came, is_whole = await self.heard_until_own(write, number_of)
        came = [brief(item) for item in came]
        rest = iter(wanted)
        true(all(item in rest for item in came), f"what {self.name} hears {when}, in order", came)
        is_whole = is_whole and came == wanted
        true(is_whole or self.is_told(), f"what {self.name} hears {when}, or a word that something is missing", came)


async def device(supabase: SupabaseClients, name: str, token: str, topic: str | None = None) -> Device:
    """The key of the application is the anonymous one; who somebody is comes with the token."""
    client = await supabase.client()
    await client.set_auth(token)
    return Device(Channel(client, topic or name), name)


def of(item) -> tuple:
    """Kind of a change and table."""
    return str(item["type"].value if hasattr(item["type"], "value") else item["type"]), item["table"]


__all__ = ["ANA", "BEN", "CLEO", "DORA", "Device", "device", "of", "somebody"]
