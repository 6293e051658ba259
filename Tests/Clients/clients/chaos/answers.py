"""Answers of `tidewire who` and `tidewire why`, compared with what the channels received and had to receive.

The run keeps a sample of its changes, with the fate of each for each channel. Afterwards the commands are asked about the
sample. An answer may claim less than is known here (`unknown`, or `sent` for a change that was received). It may never claim
anything else.
"""

import asyncio
import json
import random
from dataclasses import dataclass, field

from ..expect import Failure
from .ground import TABLES

#: Changes that are asked about after a run.
SAMPLE = 24
#: Maximum share of unknown answers. The run never kills the hub, which alone would leave ends of clients unrecorded.
MOST_UNKNOWN = 0.02
#: Seconds after which a command has failed.
LIMIT = 300

SENT = {"sent", "received", "sent_later", "received_later"}
RECEIVED = {"received", "received_later"}


@dataclass
class Fate:
    """Fate of a change for one channel."""

    was_for: bool
    was_heard: bool
    #: Monotonic time by which the channel had passed the change.
    passed: float


@dataclass
class Question:
    """Change of the sample, with its fate by channel."""

    change: object
    fates: dict[str, Fate] = field(default_factory=dict)


class Answers:
    def __init__(self, storm):
        self.storm = storm
        self.random = random.Random(f"{storm.seed}-answers")
        self.questions: list[Question] = []
        self.seen = 0
        self.lines = 0
        self.unknown: list[str] = []
        self.wrong: list[str] = []

    # While the run goes on

    def choose(self, changes):
        """Samples all published inserts and updates evenly. Deletes have no version of their own to be found by."""
        for change in changes:
            if change.table not in TABLES or change.is_fence or change.v is None or not change.published:
                continue
            self.seen += 1
            if len(self.questions) < SAMPLE:
                self.questions.append(Question(change))
            elif (place := self.random.randrange(self.seen)) < SAMPLE:
                self.questions[place] = Question(change)

    def note(self, channel: str, after, fence, due: list, met: set[int], passed: float):
        """Records the fate of the sampled changes between two fences for one channel."""
        fates = {id(change): index in met for index, change in enumerate(due)}
        for question in self.questions:
            change = question.change
            if after < (change.seq, change.place) <= (fence.seq, fence.place):
                question.fates[channel] = Fate(id(change) in fates, fates.get(id(change), False), passed)

    # After it

    async def ask(self):
        if not self.questions:
            return
        offsets = await self._offsets()
        for question in self.questions:
            offset = offsets.get((question.change.table, question.change.v))
            if offset is None:
                self._check_absence(question)
                continue
            lines = await self._run("who", f"@{offset}", "--json", good=(0, 1))
            self._check_who(question, offset, lines)
            await self._check_why(question, offset)
        self._say()

    async def _run(self, *words: str, good=(0,)) -> list[dict]:
        hub = self.storm.hub
        environment = hub._environment() | {"TIDEWIRE_DATA_DIR": hub.directory}
        process = await asyncio.create_subprocess_exec(
            hub.program, *words, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
        try:
            output, errors = await asyncio.wait_for(process.communicate(), LIMIT)
        except TimeoutError:
            process.kill()
            raise Failure(f"expected an answer to tidewire {' '.join(words)}\n     came none in {LIMIT} s") from None
        if process.returncode not in good:
            raise Failure(f"expected an answer to tidewire {' '.join(words)}\n     came {process.returncode}: {errors.decode()[-500:]}")
        return [json.loads(line) for line in output.splitlines()]

    async def _offsets(self) -> dict[tuple[str, int], int]:
        """Returns the log offsets of the sampled changes, by table and version."""
        wanted = {(one.change.table, one.change.v) for one in self.questions}
        found = {}
        for line in await self._run("tail", "--from", "oldest", "--json"):
            key = (line.get("table"), (line.get("record") or {}).get("v"))
            if key in wanted:
                found[key] = line["offset"]
        return found

    def _told(self, channel: str, begin: float, end: float) -> bool:
        """Returns True if the hub reported a loss to the channel, or the channel ended, in that time."""
        ear = next(one for one in self.storm.ears if one.seat.name == channel)
        return any(item.kind in ("told", "closed", "left") and begin <= item.at <= end for item in ear.heard)

    def _check_absence(self, question: Question):
        """Checks a change that the log does not have: no channel may have received it."""
        for channel, fate in question.fates.items():
            if fate.was_heard:
                self.wrong.append(f"the log does not have {question.change}, which {channel} heard")

    def _check_who(self, question: Question, offset: int, lines: list[dict]):
        change = question.change
        for channel, fate in question.fates.items():
            topic = f"realtime:{channel.replace(' ', '-')}"
            found = [line for line in lines if line.get("topic") == topic and line["outcome"] != "refused"]
            outcomes = {line["outcome"] for line in found}
            self.lines += 1
            said = f"who @{offset} says {sorted(outcomes) or 'nothing'} of {channel} and {change}"
            why = [line.get("reason") for line in found]
            if fate.was_heard:
                if outcomes & SENT:
                    continue
                if "unknown" not in outcomes:
                    self.wrong.append(f"{said}, which heard it: {why}")
                else:
                    self.unknown.append(f"{said}: {why}")
            elif outcomes & RECEIVED:
                self.wrong.append(f"{said}, which did not hear it: {why}")
            elif outcomes & SENT and not self._told(channel, change.made - 1, fate.passed + 5):
                self.wrong.append(f"{said}, which went on and did not hear it: {why}")
            elif fate.was_for and outcomes == {"not_matched"}:
                self.wrong.append(f"{said}, which missed it: {why}")
            elif outcomes == {"unknown"}:
                self.unknown.append(f"{said}: {why}")

    async def _check_why(self, question: Question, offset: int):
        """Asks `why` for one channel, and compares with the database's own answer at the commit."""
        change = question.change
        channels = [name for name in question.fates if self._binding(name, change)]
        if not channels:
            return
        channel = self.random.choice(channels)
        person = self._seat(channel).person
        binding = self._binding(channel, change)
        words = ["why", "--table", f"public.{change.table}", "--offset", str(offset), "--role", person.role, "--json"]
        if "sub" in person.claims:
            words += ["--sub", person.claims["sub"]]
        if binding.filter:
            words += ["--filter", binding.filter]
        lines = await self._run(*words, good=(0, 1))
        self.lines += 1
        told = lines[0].get("told")
        said = f"{' '.join(words)} says told={told} of {change}"
        if told is None:
            self.unknown.append(said)
        elif told != question.fates[channel].was_for:
            self.wrong.append(f"{said}, and the database said {question.fates[channel].was_for} for {channel}: {lines[0]}")

    def _seat(self, channel: str):
        return next(one.seat for one in self.storm.ears if one.seat.name == channel)

    def _binding(self, channel: str, change):
        """Returns the channel's only binding for the change; None if there are several, or if the channel wants moves."""
        seat = self._seat(channel)
        found = [one for one in seat.bindings if one.table == change.table and one.event in ("*", change.operation)]
        return found[0] if len(found) == 1 and not seat.moves else None

    def _say(self):
        print(f"         asked about {len(self.questions)} changes: {self.lines} answers, {len(self.unknown)} unknown, {len(self.wrong)} wrong")
        found = self.wrong + (self.unknown if len(self.unknown) > max(1, MOST_UNKNOWN * self.lines) else [])
        if found:
            shown = "\n     ".join(found[:12])
            raise Failure(f"expected true answers, and at most {MOST_UNKNOWN:.0%} unknown\n     came {len(found)} others:\n     {shown}")
