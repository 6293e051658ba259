"""A psql session that stays open."""

import asyncio
import itertools
import os

from .expect import Failure


class Database:
    """Statements go in by lines, answers come back up to a mark. Superuser's rights; it is the application."""

    def __init__(self, process):
        self.process = process
        self.marks = itertools.count()
        self.turn = asyncio.Lock()

    @classmethod
    async def open(cls, url: str) -> "Database":
        process = await asyncio.create_subprocess_exec(
            "psql", "-X", "-q", "-A", "-t", "-v", "VERBOSITY=terse", url,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            limit=1 << 26, env=os.environ | {"PGOPTIONS": "-c client_min_messages=warning", "PGTZ": "UTC"},
        )  # fmt: skip
        return cls(process)

    async def run(self, *statements: str) -> str:
        """Runs them one after another and returns what was printed. An error is a failure of the test itself."""
        async with self.turn:
            return await self._run(statements)

    async def _run(self, statements) -> str:
        mark = f"--mark {next(self.marks)}--"
        text = "".join(statement.rstrip().rstrip(";") + "\n;\n" for statement in statements)
        self.process.stdin.write(f"{text}\\echo {mark}\n".encode())
        await self.process.stdin.drain()
        lines = []
        while True:
            line = (await self.process.stdout.readline()).decode()
            if not line:
                raise Failure("psql ended: " + "".join(lines)[-500:])
            if line.rstrip("\n") == mark:
                break
            lines.append(line)
        printed = "".join(lines)
        if "ERROR:" in printed or "FATAL:" in printed:
            raise Failure(f"the test's own SQL failed: {printed.strip()}\n     in {text[:500]}")
        return printed.rstrip("\n")

    async def transaction(self, *statements: str) -> str:
        return await self.run("BEGIN", *statements, "COMMIT")

    async def close(self):
        self.process.stdin.close()
        await self.process.wait()


def quoted(value) -> str:
    """A literal of SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, (int, float)):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"
