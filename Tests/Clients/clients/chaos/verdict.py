"""What each channel had to hear, beside what it heard.

Between two fences a channel hears exactly the trail's changes that the oracle says are for it, in the order of commits and
within a transaction in the order it made them, each once, with its values. Only this excuses a missing change: the client
was told that changes may be missing, or was closed, after the change was committed and soon after it passed. Nothing excuses one that comes twice, out of order, wrong, or to
somebody who may not see it.
"""

import json
import time
from dataclasses import dataclass, field

from .answers import Answers
from .ears import Ear, Heard, kind_of
from .ground import TABLES, Binding, Listeners

#: The hub tells of a loss at once, and then not more often than once a second.
TELLING = 3.0
#: What the clock of the database, on the same machine, is ahead of the clock of what was heard.
AHEAD = time.time() - time.monotonic()


@dataclass
class Change:
    """A line of the trail."""

    place: int
    seq: int
    table: str
    operation: str
    id: int | None
    was_v: int | None
    v: int | None
    was: dict | None
    became: dict | None
    identity: str
    #: Whether its table was in the publication when it was made.
    published: bool
    was_for: set[int]
    became_for: set[int]
    remark: str | None
    #: When its transaction was about to commit, on the clock of what was heard.
    made: float = 0.0

    def __str__(self):
        image = self.became if self.became is not None else self.was
        said = {key: value if not isinstance(value, str) else value[:20] for key, value in (image or {}).items()}
        return f"#{self.seq}.{self.place} {self.operation} {self.table} {json.dumps(said)} {self.remark or ''}".rstrip()

    @property
    def is_fence(self):
        return self.table == "fences" and self.operation == "INSERT"


COLUMNS = "place seq tab operation id was_v v was became identity published was_for became_for remark made_at".split()


def trail_query(after: int, last: int) -> str:
    """A line of JSON for each change of these transactions."""
    return (
        f"SELECT json_build_array({', '.join(COLUMNS)}) FROM chaos.trail WHERE seq > {after} AND seq <= {last} ORDER BY seq, place")


def changes_of(output: str) -> list[Change]:
    made = []
    for line in output.splitlines():
        *first, was_for, became_for, remark, made_at = json.loads(line)
        made.append(Change(*first, set(was_for), set(became_for), remark, made_at - AHEAD))
    return made


@dataclass
class Complaint:
    ear: str
    text: str
    window: tuple[int, int]
    #: Whether a message that tells of a loss excuses it.
    is_loss: bool = False
    at: float = 0.0


@dataclass
class Judgement:
    """The state of one channel's comparison: how far it has come in what it heard and in what it had to hear."""

    ear: Ear
    listeners: Listeners
    answers: Answers
    taken: int = 0
    #: The last fence that was reached by that.
    fence: int = 0
    reached: tuple[int, int] = (0, 0)
    compared: int = 0
    #: Changes that it missed and was told so.
    excused: int = 0
    losses: list[Complaint] = field(default_factory=list)
    must: list[Change] = field(default_factory=list)
    #: What is committed up to here may have been before the channel joined.
    optional_to: int = 0

    # What it had to hear

    def _wants(self, change: Change, binding: Binding) -> bool:
        if binding.table != change.table or binding.event not in ("*", change.operation) or not change.published:
            return False
        number = self.listeners.number(change.table, self.ear.seat.person, binding.condition)
        has_left = self.ear.seat.moves and change.operation == "UPDATE" and number in change.was_for
        return number in (change.was_for if change.operation == "DELETE" else change.became_for) or has_left

    def expect(self, changes: list[Change]):
        self.must += [change for change in changes if any(self._wants(change, one) for one in self.ear.seat.bindings)]

    # What it heard

    def up_to(self, fence: int) -> list[Heard] | None:
        """What came since the last time up to that fence; None if it has not come yet."""
        for index in range(self.taken, len(self.ear.heard)):
            item = self.ear.heard[index]
            if item.kind == "change" and item.data["table"] == "fences" and item.data.get("record", {}).get("id") == fence:
                found = self.ear.heard[self.taken : index + 1]
                self.taken = index + 1
                return found
        return None

    def window(self, fence: Change) -> list[Complaint]:
        """Compares everything up to the fence; what is wrong with it."""
        heard = self.up_to(fence.id)
        if heard is None:
            return []
        due = [change for change in self.must if (change.seq, change.place) <= (fence.seq, fence.place)]
        self.must = self.must[len(due) :]
        comparison = Comparison(self, due, heard, (self.fence, fence.id))
        complaints = comparison.complaints()
        self.answers.note(self.ear.seat.name, self.reached, fence, due, comparison.met, heard[-1].at)
        self.fence, self.reached = fence.id, (fence.seq, fence.place)
        for item in heard:
            item.data = None
        self.losses += [complaint for complaint in complaints if complaint.is_loss]
        return [complaint for complaint in complaints if not complaint.is_loss]

    def unexcused(self, now: float) -> list[Complaint]:
        """Losses that nobody told of in time."""
        due = [loss for loss in self.losses if now > loss.at + TELLING]
        self.losses = [loss for loss in self.losses if now <= loss.at + TELLING]
        told = [item.at for item in self.ear.heard if item.kind in ("told", "closed")]
        # Who is told fetches then, and gets everything that was committed before: also what the hub passes over later.
        found = [loss for loss in due if not any(loss.made <= at <= loss.at + TELLING for at in told)]
        self.excused += len(due) - len(found)
        return found


@dataclass
class Loss(Complaint):
    made: float = 0.0


class Comparison:
    """One window of one channel."""

    def __init__(self, judgement: Judgement, due: list[Change], heard: list[Heard], window: tuple[int, int]):
        self.judgement = judgement
        self.due = due
        self.heard = heard
        self.name = judgement.ear.seat.name
        self.where = window
        self.found: list[Complaint] = []
        self.met: set[int] = set()

    def complaints(self) -> list[Complaint]:
        at = 0
        for item in self.heard:
            if item.kind == "joined":
                self.judgement.optional_to = item.since
            if item.kind == "change":
                at = self._place(item, at)
        self.judgement.compared += len(self.due)
        for index, change in enumerate(self.due):
            if index not in self.met and change.seq > self.judgement.optional_to:
                self._add_loss(change)
        return self.found

    def _place(self, item: Heard, at: int) -> int:
        """Where the change that was heard stands among those that had to be; the place after it."""
        for index in range(at, len(self.due)):
            if self._is(item.data, self.due[index]):
                self.met.add(index)
                self._check(item.data, self.due[index])
                return index + 1
        earlier = next((change for change in self.due[:at] if self._is(item.data, change)), None)
        said = self._said(item.data)
        if earlier is None:
            self._add(f"heard what is not for it: {said}")
        else:
            self._add(f"heard twice or out of order: {said}, which is {earlier}")
        return at

    @staticmethod
    def _said(data: dict) -> str:
        brief = {key: {k: v if not isinstance(v, str) else v[:20] for k, v in data[key].items()} for key in ("record", "old_record") if key in data}
        return f"{kind_of(data)} {data['table']} {json.dumps(brief, default=str)}"

    @staticmethod
    def _is(data: dict, change: Change) -> bool:
        has_left = "tidewire" in data
        if data["table"] != change.table or ("UPDATE" if has_left else kind_of(data)) != change.operation:
            return False
        if kind_of(data) == "DELETE":
            old = data["old_record"]
            return old.get("id") == change.was["id"] and old.get("v", change.was_v) == change.was_v
        return data["record"].get("v") == change.v

    def _check(self, data: dict, change: Change):
        if "tidewire" in data and self._sees_what_became(change):
            self._add(f"heard that a row left which did not: {change}")
        if data.get("errors"):
            self._add(f"errors {data['errors']} with {change}")
        if "record" in data:
            self._compare(data["record"], change.became, change, "record", TABLES[change.table].loose)
        if "old_record" in data:
            self._check_past(data["old_record"], change)

    def _sees_what_became(self, change: Change) -> bool:
        seat = self.judgement.ear.seat
        numbers = {self.judgement.listeners.number(change.table, seat.person, one.condition) for one in seat.bindings if one.table == change.table}
        return bool(numbers & change.became_for)

    def _check_past(self, old: dict, change: Change):
        number = self.judgement.listeners.number(change.table, self.judgement.ear.seat.person)
        is_seen = number in change.was_for
        beyond = {name for name in old if name != "id"}
        if not is_seen and (beyond or change.became and old.get("id", change.id) != change.id):
            self._add(f"an old_record {old} that it may not see, of {change}")
        elif is_seen and change.identity == "f":
            self._compare(old, change.was, change, "old_record", frozenset())

    def _compare(self, came: dict, wanted: dict, change: Change, what: str, loose: frozenset[str]):
        names = set(self._readable(change.table))
        if lacking := names - loose - set(came):
            self._add(f"{', '.join(sorted(lacking))} missing from the {what} {came} of {change}")
        for name in names & set(came):
            if came[name] != wanted.get(name):
                self._add(f"{name} in the {what} is {came[name]!r:.80} and not {wanted.get(name)!r:.80} in {change}")

    def _readable(self, table: str) -> list[str]:
        columns = [part.split()[0] for part in TABLES[table].columns.split(", ")] + ["id", "v"]
        if table == "plain" and self.judgement.ear.seat.person.role == "anon":
            return ["id", "v", "n", "kind"]
        return columns

    def _add(self, text: str):
        self.found.append(Complaint(self.name, text, self.where))

    def _add_loss(self, change: Change):
        times = [item.at for item in self.heard]
        self.found.append(Loss(self.name, f"did not hear {change}", self.where, True, times[-1], change.made))
