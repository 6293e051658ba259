"""Those who write: small and large transactions, savepoints, prepared ones, some that come to nothing.

Each writer has rows of its own, so that the oracle may put an image back into its table without meeting another's row.
"""

import asyncio
import contextlib
import random

from ..database import Database, quoted
from ..expect import Failure, within
from .ground import PEOPLE, TABLES

#: Says that all statements were answered.
COMPLETE = "-- complete --"
ROWS = 30
RANGE = 1_000_000
TEAMS = 4


class Session:
    """A connection of psql that is made anew when it was lost, and does not mind errors: what they undid never was."""

    def __init__(self, url: str, name: str):
        self.url = url
        self.name = name
        self.database: Database | None = None
        self.turn = asyncio.Lock()
        self.errors = 0
        self.commits = 0

    async def attempt(self, *statements: str) -> str | None:
        """What it printed; None if something failed."""
        async with self.turn:
            return await self._attempt(statements)

    async def _attempt(self, statements) -> str | None:
        try:
            if self.database is None:
                self.database = await Database.open(self.url)
                await self._finish_prepared()
            return self._complete(await self.database.run(*statements, f"SELECT '{COMPLETE}'"))
        except (Failure, OSError) as failure:
            self.errors += 1
            await self._recover(str(failure))
            return None

    def _complete(self, printed: str) -> str:
        """What it printed, if it came to its end; what a server says in passing left out."""
        lines = printed.split("\n")
        if lines.pop() != COMPLETE:
            raise Failure(f"the connection was lost: {printed[-300:]}")
        self.commits += 1
        return "\n".join(line for line in lines if not line.startswith(("WARNING:", "DETAIL:", "HINT:")))

    async def _recover(self, failure: str):
        if "the test's own SQL failed" in failure and "FATAL" not in failure and "connection" not in failure:
            with contextlib.suppress(Failure, OSError):
                return await self.database.run("ROLLBACK")
        await self.close()
        await asyncio.sleep(0.1)

    async def _finish_prepared(self):
        """A crash leaves what was prepared, with its locks."""
        left = await self.database.run(f"SELECT gid FROM pg_prepared_xacts WHERE gid LIKE '{self.name}-%'")
        for gid in left.split():
            await self.database.run(f"COMMIT PREPARED {quoted(gid)}")

    async def insist(self, *statements: str) -> str:
        """Until it works: what it asks for may be done twice."""
        for _ in range(600):
            printed = await self.attempt(*statements)
            if printed is not None:
                return printed
            await asyncio.sleep(0.1)
        raise Failure(f"the database did not come back for {statements}")

    async def close(self):
        database, self.database = self.database, None
        if database is None:
            return
        with contextlib.suppress(Exception):
            database.process.stdin.close()
        with contextlib.suppress(Exception):
            await within(database.process.wait(), 5)
        if database.process.returncode is None:
            database.process.kill()


class Writer:
    def __init__(self, number: int, storm):
        self.random = random.Random(f"{storm.seed}-writer-{number}")
        self.first = number * RANGE
        self.storm = storm
        self.session = Session(storm.cluster.url(), f"w{number}")
        self.prepared = 0
        self.kinds = [
            (self.small, 60), (self.large, 2), (self.nested, 12), (self.in_two_phases, 6), (self.undone, 6),
            (self.with_memberships, 10), (self.slow, 2),
        ]  # fmt: skip

    async def run(self):
        while not self.storm.is_over:
            await self.storm.gate.pass_through(self.step)
            await asyncio.sleep(self.random.uniform(0, 0.05))

    async def step(self):
        kinds, weights = zip(*self.kinds)
        if await self.session.attempt(*self.random.choices(kinds, weights)[0]()) is None:
            # A transaction that was prepared keeps the lock of all commits. It ends before others may shut the writer out.
            await self.session.insist("SELECT 1")

    # One statement

    def values(self) -> dict[str, str]:
        owner = self.random.choice([quoted(who.sub) for who in PEOPLE] + ["NULL"])
        return {
            "owner": owner, "team": str(self.random.randint(1, TEAMS)), "n": self.random.choice("1 2 3 4 5 NULL".split()),
            "kind": self.random.choice(["'a'", "'b'", "'c'", "NULL"]),
        }  # fmt: skip

    def body(self) -> str:
        """Large, and random enough not to be compressed into its row."""
        letter = self.random.choice("ab")
        return f"'{letter}' || (SELECT string_agg(md5(i::text || {self.random.randrange(10**6)}), '') FROM generate_series(1, 130) i)"

    def row(self, table: str) -> dict[str, str]:
        row = self.values()
        if "body" in TABLES[table].columns:
            row["body"] = self.random.choice([self.body(), self.body(), "NULL", "'a small one'"])
        return row

    def change(self, table: str | None = None) -> str:
        table = table or self.random.choice(self.storm.tables)
        row, id = self.row(table), self.first + self.random.randrange(ROWS)
        kind = self.random.choices(["insert", "update", "move", "delete"], [45, 35, 3, 17])[0]
        if kind == "delete":
            return f"DELETE FROM {table} WHERE id = {id}"
        if kind == "move":
            other = self.first + self.random.randrange(ROWS)
            return f"UPDATE {table} SET id = {other} WHERE id = {id} AND NOT EXISTS (SELECT FROM {table} WHERE id = {other})"
        if kind == "update":
            some = self.random.sample(sorted(row), self.random.randint(1, len(row) - 1))
            return f"UPDATE {table} SET {', '.join(f'{name} = {row[name]}' for name in some)} WHERE id = {id}"
        sets = ", ".join(f"{name} = excluded.{name}" for name in row)
        return (f"INSERT INTO {table} (id, {', '.join(row)}) VALUES ({id}, {', '.join(row.values())}) "
                f"ON CONFLICT (id) DO UPDATE SET {sets}")  # fmt: skip

    def changes(self, most: int, table: str | None = None) -> list[str]:
        """Of any table, or all of this one."""
        return [self.change(table) for _ in range(self.random.randint(1, most))]

    def membership(self) -> list[str]:
        """Somebody goes, somebody comes; each writer has teams' people of its own."""
        table = self.random.choice(["members", "crew"])
        who, other = self.random.sample(PEOPLE, 2)
        team = self.random.randint(1, TEAMS)
        return [
            f"DELETE FROM {table} WHERE team = {team} AND person = '{who.sub}'",
            f"INSERT INTO {table} VALUES ({team}, '{other.sub}') ON CONFLICT DO NOTHING",
        ]

    # Transactions

    def small(self) -> list[str]:
        changes = self.changes(4)
        return changes if len(changes) == 1 else ["BEGIN", *changes, "COMMIT"]

    def large(self) -> list[str]:
        table = self.random.choice(self.storm.tables)
        low, count = self.first + 1000, self.random.randint(100, 600)
        people = ", ".join(f"'{who.sub}'::uuid" for who in PEOPLE)
        return [
            "BEGIN",
            f"DELETE FROM {table} WHERE id BETWEEN {low} AND {low + 1000}",
            f"INSERT INTO {table} (id, owner, team, n, kind) SELECT {low} + i, (ARRAY[{people}])[i % 4 + 1], i % {TEAMS} + 1, "
            f"nullif(i % 6, 0), substr('abc', i % 3 + 1, 1) FROM generate_series(1, {count}) i",
            *self.changes(2),
            "COMMIT",
        ]  # fmt: skip

    def nested(self) -> list[str]:
        ends = [self.random.choice(["RELEASE a", "ROLLBACK TO a"]), self.random.choice(["RELEASE b", "ROLLBACK TO b"])]
        return ["BEGIN", *self.changes(2), "SAVEPOINT a", *self.changes(3), ends[0], "SAVEPOINT b", *self.changes(2), ends[1],
                *self.changes(2), "COMMIT"]  # fmt: skip

    def slow(self) -> list[str]:
        """Open for a while, so that faults fall into it."""
        return ["BEGIN", *self.changes(5), f"SELECT pg_sleep({self.random.uniform(0.1, 1):.2f})", *self.changes(5), "COMMIT"]

    def in_two_phases(self) -> list[str]:
        self.prepared += 1
        gid = quoted(f"{self.session.name}-{self.prepared}")
        return ["BEGIN", *self.changes(4), f"PREPARE TRANSACTION {gid}", f"{self.random.choice(['COMMIT', 'COMMIT', 'ROLLBACK'])} PREPARED {gid}"]

    def undone(self) -> list[str]:
        return ["BEGIN", *self.changes(5), "ROLLBACK"]

    def with_memberships(self) -> list[str]:
        parts = [*self.changes(2), *self.membership(), *self.changes(2)]
        return ["BEGIN", *parts, "COMMIT"]
