"""The judgement of the chaos test itself: it notices what it is there for."""

from types import SimpleNamespace

from clients.chaos.answers import Answers, Fate, Question
from clients.chaos.ears import Heard
from clients.chaos.ground import ANA, Binding, Listeners, Seat
from clients.chaos.verdict import Change, Judgement
from clients.expect import equal
from clients.scenario import scenario

SEAT = Seat("ana", ANA, (Binding("owned"), Binding("fences")))
COLUMNS = {"owner": None, "team": 1, "n": 1, "kind": "a"}


class StillEar:
    """A channel that heard what a test says."""

    def __init__(self, heard: list[Heard]):
        self.seat = SEAT
        self.heard = heard
        self.asking = None


def inserted(table: str, place: int, shown_to: set[int], row: dict) -> Change:
    return Change(place, place, table, "INSERT", row["id"], None, row["v"], None, row, "f", True, set(), shown_to, None, made=place / 10)


def heard(table: str, row: dict, at: float = 1.0) -> Heard:
    return Heard("change", at, {"type": "INSERT", "table": table, "record": row, "errors": None})


def row(number: int, **more) -> dict:
    return {"id": number, "v": number, **COLUMNS, **more}


FENCE = {"id": 1, "v": 99, "remark": None}


def complaints(came: list[Heard], trail: int = 3, hidden: int | None = None, later: tuple[Heard, ...] = ()) -> list[str]:
    """What is said of this, where rows 1, 2 … of the trail are for it, but for one that is hidden from it."""
    listeners = Listeners()
    owned, fences = listeners.number("owned", ANA), listeners.number("fences", ANA)
    changes = [inserted("owned", number, set() if number == hidden else {owned}, row(number)) for number in range(1, trail + 1)]
    fence = inserted("fences", trail + 1, {fences}, FENCE)
    judgement = Judgement(StillEar([*came, heard("fences", FENCE, 2.0), *later]), listeners, SimpleNamespace(note=lambda *_: None))
    judgement.expect([*changes, fence])
    found = judgement.window(fence)
    found += judgement.unexcused(100.0)
    return [complaint.text.split(":")[0].split(" #")[0].removesuffix(" in") for complaint in found]


def of(*numbers: int) -> list[Heard]:
    return [heard("owned", row(number)) for number in numbers]


def told(at: float = 1.5) -> Heard:
    return Heard("told", at, text="changes may be missing")


@scenario("a change that is missing, comes twice, out of order, wrong, or to the wrong one is noticed", brings_its_own=True)
async def noticed(_):
    equal(complaints(of(1, 2, 3)), [], "what is said of all in order")
    equal(complaints(of(1, 3)), ["did not hear"], "what is said of a loss")
    equal(complaints(of(1, 2, 2, 3)), ["heard twice or out of order"], "what is said of a repetition")
    equal(complaints(of(2, 1, 3)), ["heard twice or out of order", "did not hear"], "what is said of disorder")
    equal(complaints(of(1, 2, 3), hidden=2), ["heard what is not for it"], "what is said of a hidden row")
    wrong = heard("owned", row(2, n=7))
    equal(complaints([*of(1), wrong, *of(3)]), ["n in the record is 7 and not 1"], "what is said of a wrong value")
    bare = heard("owned", {"id": 2, "v": 2})
    equal(complaints([*of(1), bare, *of(3)])[0].split(" missing")[0], "kind, n, owner, team", "what is said to be missing")


@scenario("a loss is excused by being told in time, and by nothing else", brings_its_own=True)
async def excused(_):
    equal(complaints([*of(1), told(), *of(3)]), [], "what is said of a loss that was told")
    equal(complaints(of(1, 3), later=(told(4.0),)), [], "what is said of a loss that was told a little later")
    equal(complaints(of(1, 3), later=(told(60.0),)), ["did not hear"], "what is said of a loss that was told much later")
    equal(complaints([told(0.25), *of(1, 3)]), [], "what is said of a loss of what was committed before it was told")
    equal(complaints([told(0.15), *of(1, 3)]), ["did not hear"], "what is said of a loss of what was committed after it was told")
    equal(complaints([*of(1, 2), told(), *of(2, 3)]), ["heard twice or out of order"], "what is said of a repetition that was told")
    equal(complaints([Heard("joined", 1.0, since=2), *of(3)]), [], "what is said of what came before a join")
    equal(complaints([Heard("joined", 1.0, since=2)]), ["did not hear"], "what is said of what came after it")


def claims(outcome: str, was_for: bool = True, was_heard: bool = True, telling: tuple[Heard, ...] = ()) -> tuple[int, int]:
    """Returns the numbers of wrong and unknown answers if `who` says this of a change with this fate."""
    answers = Answers(SimpleNamespace(seed=1, ears=[StillEar(list(telling))]))
    change = inserted("owned", 1, set(), row(1))
    answers._check_who(
        Question(change, {"ana": Fate(was_for, was_heard, 2.0)}), 7, [{"topic": "realtime:ana", "outcome": outcome}])
    return len(answers.wrong), len(answers.unknown)


@scenario("an answer of who that is not true is noticed", brings_its_own=True)
async def untrue(_):
    for outcome in ("sent", "received", "sent_later", "received_later"):
        equal(claims(outcome), (0, 0), f"what is noticed about {outcome} of what was received")
        equal(claims(outcome, was_heard=False), (1, 0), f"what is noticed about {outcome} of what was not received")
    equal(claims("sent", was_heard=False, telling=(told(),)), (0, 0), "what is noticed about sent of a loss that was told")
    equal(claims("received", was_heard=False, telling=(told(),)), (1, 0), "what is noticed about received of a loss that was told")
    for outcome in ("not_matched", "not_sent", "ended_before"):
        equal(claims(outcome), (1, 0), f"what is noticed about {outcome} of what was received")
    equal(claims("not_matched", was_for=False, was_heard=False), (0, 0), "what is noticed about not_matched of what was not for it")
    equal(claims("not_matched", was_heard=False), (1, 0), "what is noticed about not_matched of what was missed")
    equal(claims("unknown"), (0, 1), "what is noticed about unknown")
