"""What goes wrong while clients stay, each a function of its own. None of them may be noticed by a client that is not told.

A fault that changes who may see what is *quiet*: writers stand still and a fence has reached everybody before and after it,
because the documentation lets a newer policy count for rows that are still on their way.
"""

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass

from ..expect import Failure
from .ground import MAY_READ, MEMBERSHIPS, TABLES
from .writers import TEAMS, Writer

ALL: list["Fault"] = []


@dataclass(frozen=True)
class Fault:
    name: str
    run: object
    weight: int
    is_quiet: bool


def fault(weight: int = 2, quiet: bool = False):
    def add(function):
        ALL.append(Fault(function.__name__, function, weight, quiet))
        return function

    return add


def chosen(names: list[str], without: list[str]) -> list[Fault]:
    """All, or those of these names, without some; `none` is nobody's."""
    unknown = {*names, *without} - {one.name for one in ALL} - {"none"}
    if unknown:
        raise Failure(f"no fault is called {', '.join(sorted(unknown))}; there are {', '.join(one.name for one in ALL)}")
    return [one for one in ALL if (not names or one.name in names) and one.name not in without]


def hand(storm, source) -> Writer:
    """Makes rows of the fault's own."""
    if not hasattr(storm, "hand"):
        storm.hand = Writer(9, storm)
    storm.hand.random = source
    return storm.hand


def policed(storm) -> list[str]:
    return [name for name in storm.tables if TABLES[name].policy]


# The hub


@fault(2)
async def hub_frozen(storm, source):
    """It stands still while rows and memberships are committed."""
    await frozen(storm, source, stirs_catalog=False)


@fault(8)
async def hub_frozen_with_catalog(storm, source):
    """The same, and definitions of no concern to them are committed too."""
    await frozen(storm, source, stirs_catalog=True)


async def frozen(storm, source, stirs_catalog: bool):
    process = storm.hub.process
    process.send_signal(signal.SIGSTOP)
    try:
        for _ in range(source.randint(2, 5)):
            await storm.worker.attempt("BEGIN", *hand(storm, source).changes(3), "COMMIT")
            await storm.worker.attempt("BEGIN", *hand(storm, source).membership(), "COMMIT")
            if stirs_catalog:
                await unrelated_catalog(storm, source)
            await asyncio.sleep(source.uniform(0, 0.4))
    finally:
        process.send_signal(signal.SIGCONT)


@fault()
async def hub_disk_full(storm, source):
    await fill(storm, storm.hub.disk, source)


# The server


@fault(3)
async def walsender_killed(storm, source):
    await storm.worker.attempt("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_replication")


@fault(3)
async def backends_killed(storm, source):
    share = source.choice([0.2, 0.6, 1.0])
    await storm.worker.attempt(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        f"WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND random() < {share}")  # fmt: skip


@fault(3)
async def connection_killed(storm, source):
    """One of the hub's own; what it asks by the others goes on."""
    name = source.choice(["catalog", "bindings", "judge", "policies"])
    await storm.worker.attempt(
        f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'tidewire {name}'")  # fmt: skip


@fault(2)
async def server_crashed(storm, source):
    """One backend dies of a signal, so all of them are ended and the server recovers."""
    pid = await storm.worker.attempt("SELECT pg_backend_pid()")
    # Another fault may have been faster.
    with contextlib.suppress(ProcessLookupError):
        if pid:
            os.kill(int(pid), signal.SIGKILL)
    await asyncio.sleep(0.2)
    await storm.cluster.start()


@fault(1)
async def server_restarted(storm, source):
    await storm.cluster.end(source.choice([signal.SIGQUIT, signal.SIGINT]))
    await asyncio.sleep(source.uniform(0, 2))
    await storm.cluster.start()


@fault(1)
async def database_disk_full(storm, source):
    await fill(storm, storm.cluster.disk, source)
    await storm.cluster.start()


async def fill(storm, disk, source):
    if not disk.is_small:
        return storm.say_once(f"{disk.path} is not filled: only root can give it a disk of its own")
    disk.fill()
    await asyncio.sleep(source.uniform(0.5, 2))
    disk.empty()


# Definitions that leave what everybody sees as it is


@fault(8)
async def unrelated_catalog(storm, source):
    number = source.randrange(1000)
    await storm.worker.attempt(source.choice([
        f"CREATE OR REPLACE FUNCTION public.noise() RETURNS int LANGUAGE sql AS 'SELECT {number}'",
        f"CREATE FUNCTION public.noise_{number}(a int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN a; END'; DROP FUNCTION public.noise_{number}",
        f"GRANT EXECUTE ON FUNCTION auth.email() TO {source.choice(['anon', 'authenticated', 'tidewire'])}",
        f"ALTER TABLE other ADD COLUMN extra_{number} int; ALTER TABLE other DROP COLUMN extra_{number}",
        f"ALTER POLICY reads ON other USING (v > {number} OR v IS NULL)",
        "ALTER PUBLICATION supabase_realtime ADD TABLE aside; ALTER PUBLICATION supabase_realtime DROP TABLE aside",
        f"CREATE TABLE passing_{number} (id int); DROP TABLE passing_{number}",
        f"COMMENT ON TABLE other IS '{number}'; INSERT INTO other VALUES ({number}) ON CONFLICT DO NOTHING",
        "BEGIN; REVOKE SELECT ON other FROM anon; GRANT SELECT ON other TO anon; COMMIT",
    ]))  # fmt: skip


@fault(2)
async def published_again(storm, source):
    table = source.choice(storm.tables)
    await storm.worker.attempt(
        "BEGIN", *hand(storm, source).changes(2), f"ALTER PUBLICATION supabase_realtime DROP TABLE {table}",
        f"ALTER PUBLICATION supabase_realtime ADD TABLE {table}", *hand(storm, source).changes(2), "COMMIT")  # fmt: skip


@fault(2)
async def granted_again(storm, source):
    table = source.choice([name for name in storm.tables if name != "plain"] or storm.tables)
    await storm.worker.attempt(
        "BEGIN", f"REVOKE SELECT ON {table} FROM authenticated", f"GRANT SELECT ON {table} TO authenticated",
        *hand(storm, source).changes(2), "COMMIT")  # fmt: skip


#: Each table's policy in other words.
SAME = {
    "owned": ["owner = auth.uid()", "auth.uid() = owner", "owner = (SELECT auth.uid())", "coalesce(owner = auth.uid(), false)"],
    "asked": ["chaos.may_read(owner, kind)", "(chaos.may_read(owner, kind))::boolean AND true"],
    "deep": ["left(body, 1) = 'a' OR owner = auth.uid()", "owner = auth.uid() OR left(body, 1) = 'a'"],
}


@fault(2)
async def policy_in_other_words(storm, source):
    tables = sorted((set(SAME) & set(storm.tables)) - storm.widened)
    if tables:
        table = source.choice(tables)
        await storm.worker.attempt(
            "BEGIN", *hand(storm, source).changes(2), f"ALTER POLICY reads ON {table} USING ({source.choice(SAME[table])})",
            *hand(storm, source).changes(2), "COMMIT")  # fmt: skip


@fault(1)
async def function_made_again(storm, source):
    """What only PostgreSQL can decide, by the same words."""
    await storm.worker.attempt("BEGIN", *hand(storm, source).changes(2), MAY_READ, *hand(storm, source).changes(2), "COMMIT")


@fault(2)
async def columns_changed(storm, source):
    table, name = source.choice(storm.tables), f"extra_{source.randrange(1000)}"
    rows = hand(storm, source)
    await storm.worker.attempt("BEGIN", *rows.changes(2), f"ALTER TABLE {table} ADD COLUMN {name} text DEFAULT 'x'", *rows.changes(3), "COMMIT")
    await storm.worker.attempt("BEGIN", *rows.changes(2), f"ALTER TABLE {table} DROP COLUMN {name}", *rows.changes(3), "COMMIT")


@fault(3)
async def types_changed(storm, source):
    """Rows of both types in one transaction, and rows of the old type still on their way."""
    table = source.choice(storm.tables)
    rows = hand(storm, source)
    change = f"ALTER TABLE {table} ALTER COLUMN n TYPE"
    await storm.worker.attempt(
        "BEGIN", *rows.changes(2, table), "SAVEPOINT s", f"{change} bigint", *rows.changes(2, table), "ROLLBACK TO s", *rows.changes(2, table), "COMMIT")  # fmt: skip
    for kind in ("bigint", "int"):
        await storm.worker.attempt("BEGIN", *rows.changes(6, table), f"{change} {kind}", *rows.changes(3, table), "COMMIT")


@fault(2)
async def identity_changed(storm, source):
    """Where policies judge deletes, the log knows the row; without them a filter on deletes needs the whole old row."""
    if tables := policed(storm):
        rows, table = hand(storm, source), source.choice(tables)
        for identity in ("DEFAULT", TABLES[table].identity):
            await storm.worker.attempt("BEGIN", *rows.changes(3), f"ALTER TABLE {table} REPLICA IDENTITY {identity}", *rows.changes(3), "COMMIT")


@fault(1)
async def truncated(storm, source):
    await storm.worker.attempt("BEGIN", *hand(storm, source).changes(2), f"TRUNCATE {source.choice(storm.tables)}",
                               *hand(storm, source).changes(2), "COMMIT")  # fmt: skip


@fault(2)
async def rewritten(storm, source):
    table = source.choice([*storm.tables, *MEMBERSHIPS])
    await storm.worker.attempt(source.choice([f"VACUUM FULL {table}", f"CLUSTER {table} USING {table}_pkey", f"REINDEX TABLE {table}"]))


@fault(1)
async def locked(storm, source):
    """What PostgreSQL is asked about this table waits."""
    table = source.choice([*policed(storm), *MEMBERSHIPS])
    await storm.worker.attempt("BEGIN", f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE", f"SELECT pg_sleep({source.uniform(0.1, 1.5):.2f})", "COMMIT")


# Who sees what


@fault(4)
async def memberships_swapped(storm, source):
    for _ in range(source.randint(2, 10)):
        rows = hand(storm, source)
        await storm.worker.attempt("BEGIN", *rows.changes(2), *rows.membership(), *rows.changes(2), "COMMIT")


@fault(1)
async def memberships_truncated(storm, source):
    """In one transaction everybody goes, and some come."""
    table = source.choice(MEMBERSHIPS)
    rows = hand(storm, source)
    some = [one for _ in range(TEAMS) for one in rows.membership() if table in one.split()]
    await storm.worker.attempt("BEGIN", *rows.changes(2), f"TRUNCATE {table}", *some, *rows.changes(2), "COMMIT")


#: Policies that let others in.
OTHER = {"owned": "owner = auth.uid() OR kind = 'b'", "asked": "chaos.may_read(owner, kind) AND n IS DISTINCT FROM 5"}


@fault(1, quiet=True)
async def policy_changed(storm, source):
    tables = sorted(set(OTHER) & set(storm.tables))
    if tables:
        table = source.choice(tables)
        policy = TABLES[table].policy if table in storm.widened else OTHER[table]
        await storm.worker.insist(f"ALTER POLICY reads ON {table} USING ({policy})")
        storm.widened ^= {table}


@fault(1, quiet=True)
async def security_lifted(storm, source):
    """For a moment everybody sees all rows of a table."""
    tables = sorted(set(OTHER) & set(storm.tables))
    if tables:
        table = source.choice(tables)
        await storm.lasting(
            f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY", f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY", source)


@fault(1, quiet=True)
async def unpublished(storm, source):
    """What happens to the table meanwhile is told to nobody. Not where a deleted row is known by the log alone."""
    tables = [name for name in storm.tables if TABLES[name].identity == "FULL"]
    if not tables:
        return
    table = source.choice(tables)
    await storm.lasting(
        f"ALTER PUBLICATION supabase_realtime DROP TABLE {table}", f"ALTER PUBLICATION supabase_realtime ADD TABLE {table}", source)


@fault(1, quiet=True)
async def right_taken(storm, source):
    if tables := policed(storm):
        table = source.choice(tables)
        await storm.lasting(f"REVOKE SELECT ON {table} FROM authenticated", f"GRANT SELECT ON {table} TO authenticated", source)


# The clients themselves


@fault(2)
async def token_refreshed(storm, source):
    for one in source.sample(storm.ears, min(4, len(storm.ears))):
        if one.is_ready.is_set():
            await one.refresh()


@fault(2)
async def rejoined(storm, source):
    one = source.choice(storm.ears)
    if one.is_ready.is_set():
        await one.rejoin()
        await one.ready()
