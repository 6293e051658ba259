"""People of the five applications, each with a token and a client of their own, and what each of them hears.

That somebody hears nothing is judged at a row written later that they must hear: what stands before it is all they heard.
"""

from .expect import equal, true
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

    async def heard_until(self, fence) -> list:
        """What it heard before a row that it must hear, and that came last."""
        before, _ = await self.heard.until(fence, f"{self.name} to hear the last row")
        return before

    async def hears(self, wanted: list, fence, brief, when: str):
        equal([brief(item) for item in await self.heard_until(fence)], wanted, f"what {self.name} hears {when}")

    async def hears_or_is_told(self, wanted: list, fence, brief, when: str):
        """In order, each once; what is missing was told: this client shows that as an error, and joins again."""
        came = [brief(item) for item in await self.heard_until(fence)]
        words = [str(error) for _, error in self.channel.states.so_far() if error]
        rest = iter(wanted)
        true(all(item in rest for item in came), f"what {self.name} hears {when}, in order", came)
        told = any("may be missing" in text for text in words)
        true(came == wanted or told, f"what {self.name} hears {when}, or a word that something is missing", (came, words))


async def device(supabase: SupabaseClients, name: str, token: str, topic: str | None = None) -> Device:
    """The key of the application is the anonymous one; who somebody is comes with the token."""
    client = await supabase.client()
    await client.set_auth(token)
    return Device(Channel(client, topic or name), name)


def of(item) -> tuple:
    """Kind of a change and table."""
    return str(item["type"].value if hasattr(item["type"], "value") else item["type"]), item["table"]


__all__ = ["ANA", "BEN", "CLEO", "DORA", "Device", "device", "of", "somebody"]
