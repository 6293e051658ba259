"""Clients that stay connected while everything around them breaks, and hear exactly what they had to."""

import os
import random

from clients.chaos.storm import Storm
from clients.scenario import scenario


def words(name: str) -> list[str]:
    return [word for word in os.environ.get(name, "").split(",") if word]


def seeds() -> list[int]:
    """One that was asked for, or those that always run."""
    given = os.environ.get("CHAOS_SEED")
    if given == "new":
        return [random.randrange(1 << 32)]
    return [int(given)] if given else [1]


SECONDS = float(os.environ.get("CHAOS_SECONDS", "90"))

for seed in seeds():

    @scenario(
        f"clients that stay hear exactly what they had to, or are told (seed {seed})", brings_its_own=True, limit=SECONDS + 600)
    async def staying(_, seed=seed):
        narrowed = (words(f"CHAOS_{name}") for name in ("ONLY", "WITHOUT", "TABLES", "CHANNELS"))
        await Storm(seed, SECONDS, *narrowed).run()
