"""Whatever starts first, joins promise what is true."""

from clients.chaos.beginnings import Beginnings
from clients.scenario import scenario

from .staying import seeds

for seed in seeds():

    @scenario(f"hub and database start in every order while clients join (seed {seed})", brings_its_own=True)
    async def starting(_, seed=seed):
        await Beginnings(seed).run()
