#!/usr/bin/env python3
"""Runs scenarios against a hub. See README.md beside this file.

    run.py --list              every scenario, a line each
    run.py [SCENARIO…]         those whose name contains one of the words; all without any

Exits with 0 when all passed, 1 when one failed, 2 when there was nothing to run.
"""

import argparse
import asyncio
import collections
import contextlib
import importlib
import logging
import os
import pathlib
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
# The sources stay as they are in the repository.
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))

from clients.database import Database  # noqa: E402
from clients.expect import Failure, NotHere, within  # noqa: E402
from clients.hub import dies_with_parent, hub_of_environment  # noqa: E402
from clients.scenario import ALL, Scenario  # noqa: E402
from clients.stage import Stage  # noqa: E402
from clients.wire import Closed  # noqa: E402

GROUPS = ("realtime_py", "seeds", "conformance", "hostile", "chaos")
#: A scenario that hangs is given this long to clean up.
CLEANING_LIMIT = 120
#: A hub that needs longer, or that speaks no plain HTTP, is left to its scenario.
READY_LIMIT = 5


def load():
    for group in GROUPS:
        for file in sorted((HERE / group).glob("*.py")):
            if file.stem != "__init__":
                importlib.import_module(f"{group}.{file.stem}")


def chosen(words: list[str]) -> list[Scenario]:
    if not words:
        return list(ALL)
    return [one for one in ALL if any(word in one.title for word in words)]


async def run_all(scenarios: list[Scenario]) -> int:
    counts = {"passed": 0, "failed": 0, "not run": 0}
    for one in scenarios:
        if one.brings_its_own:
            counts[await run_alone(one)] += 1
    await run_on_stage([one for one in scenarios if not one.brings_its_own], counts)
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return 1 if counts["failed"] else 0


async def run_on_stage(scenarios: list[Scenario], counts: dict[str, int]):
    """On the database and with the hub that the environment names."""
    if not scenarios:
        return
    hub = hub_of_environment()
    database = await Database.open(os.environ["TW_DATABASE"])
    try:
        for one in scenarios:
            if one.tables:
                await database.run(*one.tables)
        # Those of the same settings one after another, so that the hub starts again seldom.
        for one in sorted(scenarios, key=lambda one: sorted(one.settings.items())):
            counts[await run_one(one, hub, database)] += 1
    finally:
        await hub.stop()
        await database.close()


async def run_alone(one: Scenario) -> str:
    began = time.monotonic()
    try:
        if "TW_HUB" not in os.environ:
            raise NotHere("needs a hub of its own: set TW_HUB")
        await limited(one, None)
        outcome, detail = "passed", ""
    except NotHere as reason:
        outcome, detail = "not run", f": {reason}"
    except Failure as failure:
        outcome, detail = "failed", f"\n     {failure}"
    except Exception:
        outcome, detail = "failed", "\n" + traceback.format_exc()
    print(f"{outcome:8} {one.title} ({time.monotonic() - began:.1f} s){detail}", flush=True)
    return outcome


async def limited(one: Scenario, stage):
    """Runs the scenario. One that hangs fails with what each task waited for; if its cleaning hangs too, the program ends."""
    running = asyncio.create_task(one.run(stage))
    if (await asyncio.wait([running], timeout=one.limit))[0]:
        return running.result()
    stacks = waiting()
    running.cancel()
    if not (await asyncio.wait([running], timeout=CLEANING_LIMIT))[0]:
        print(f"failed   {one.title}\n     expected an end within {one.limit:.0f} s\n     tasks wait:\n{stacks}\n     and in cleaning:\n{waiting()}", flush=True)
        os._exit(1)
    raise Failure(f"expected an end within {one.limit:.0f} s\n     tasks wait:\n{stacks}")


def waiting() -> str:
    """The lines at which the tasks wait, from the outermost call to the innermost."""
    found = collections.Counter()
    for task in asyncio.all_tasks():
        lines, call = [], task.get_coro()
        while frame := getattr(call, "cr_frame", None):
            lines.append(f"{pathlib.Path(frame.f_code.co_filename).name}:{frame.f_lineno} {call.__name__}")
            call = call.cr_await
        found[" > ".join(lines)] += 1
    return "\n".join(f"       {count} at {place}" for place, count in sorted(found.items()))


async def ready(stage):
    """Waits as the quickstart says, until changes stream. Who joins earlier may hear of a loss first, by design."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(READY_LIMIT):
            connection = await stage.connection()
            while (await connection.request("GET", "/ready", {"Host": "h"})).status != 200:
                await asyncio.sleep(0.02)
            connection.abort()


async def run_one(one: Scenario, hub, database) -> str:
    began = time.monotonic()
    stage = Stage(hub, database)
    try:
        if one.needs_own_hub and not hub.is_own:
            raise NotHere("needs a hub of its own: set TW_HUB")
        await database.run(*one.emptied())
        await hub.use(one.settings)
        if hub.is_own and not one.own_hub:
            await ready(stage)
        await limited(one, stage)
        outcome, detail = "passed", ""
    except NotHere as reason:
        outcome, detail = "not run", f": {reason}"
    except Failure as failure:
        outcome, detail = "failed", f"\n     {failure}{where(failure)}"
    except Closed as end:
        outcome, detail = "failed", f"\n     expected the connection to stay\n     came {end}{where(end)}"
    except Exception:
        outcome, detail = "failed", "\n" + traceback.format_exc()
    finally:
        with contextlib.suppress(Exception):
            await stage.closing.aclose()
    if hub.is_own and hub.process and hub.process.returncode is not None:
        outcome, detail = "failed", f"{detail}\n     the hub ended with {hub.process.returncode}"
    print(f"{outcome:8} {one.title} ({time.monotonic() - began:.1f} s){detail}", flush=True)
    if outcome == "failed" and hub.log():
        print("     the hub's last lines:\n       " + "\n       ".join(hub.log().splitlines()[-12:]), flush=True)
    return outcome


def where(error: Exception) -> str:
    """The line of the scenario itself, not of what it called."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = pathlib.Path(frame.filename)
        if path.parent.name in GROUPS:
            return f"\n       at {path.parent.name}/{path.name}:{frame.lineno}: {frame.line}"
    return ""


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("scenarios", nargs="*", metavar="SCENARIO")
    arguments.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    chaos = arguments.add_argument_group("chaos")
    chaos.add_argument("--seed", help="CHAOS_SEED; `new` for one that nobody has tried")
    chaos.add_argument("--seconds", help="CHAOS_SECONDS")
    chaos.add_argument("--only", metavar="FAULT,…", help="CHAOS_ONLY: these faults; `none` for none")
    chaos.add_argument("--without", metavar="FAULT,…", help="CHAOS_WITHOUT: all but these")
    chaos.add_argument("--tables", metavar="TABLE,…", help="CHAOS_TABLES: these tables")
    chaos.add_argument("--channels", metavar="NAME,…", help="CHAOS_CHANNELS: these channels, as `real ana`")
    given = arguments.parse_args()
    for name in ("seed", "seconds", "only", "without", "tables", "channels"):
        if getattr(given, name) is not None:
            os.environ[f"CHAOS_{name.upper()}"] = getattr(given, name)
    # The client logs what it makes of wrong messages; scenarios that want it collect it themselves.
    logging.getLogger("realtime").addHandler(logging.NullHandler())
    logging.getLogger("realtime").propagate = False
    load()
    selected = chosen(given.scenarios)
    if given.list:
        for one in selected:
            print(one.title)
        return 0
    if not selected:
        print(f"no scenario contains {' or '.join(given.scenarios)}; see --list", file=sys.stderr)
        return 2
    dies_with_parent()
    return asyncio.run(run_all(selected))


if __name__ == "__main__":
    sys.exit(main())
