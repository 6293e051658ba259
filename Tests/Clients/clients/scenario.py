"""Scenarios and the list of them."""

import inspect
import pathlib
import re
from dataclasses import dataclass, field

APPLICATIONS = pathlib.Path(__file__).resolve().parents[3] / "sql" / "scenarios"

#: In the order in which they were written down.
ALL: list["Scenario"] = []


@dataclass
class Scenario:
    place: str
    name: str
    run: object
    #: Statements that make its tables; they are run before the hub starts, so that no scenario depends on how soon a
    #: running hub notices new tables. The one about that makes its own.
    tables: list[str] = field(default_factory=list)
    #: Settings of the hub beyond the usual ones, by their names in tidewire.conf. Needs a hub of our own.
    settings: dict[str, str] = field(default_factory=dict)
    #: Stops, kills or counts the memory of the hub, so it must be ours.
    own_hub: bool = False
    #: Makes its own database, hub and whatever else it needs, and is given nothing.
    brings_its_own: bool = False
    #: Seconds after which it hangs.
    limit: float = 300

    def emptied(self) -> list[str]:
        """Statements that take out what a scenario before, of the same tables, left behind. No client hears of it."""
        names = [re.match(r'CREATE TABLE ("[^"]+"|[\w."]+(?: \w+")?)', statement) for statement in self.tables]
        return [f"TRUNCATE {name[1]} CASCADE" for name in names if name]

    @property
    def title(self) -> str:
        return f"{self.place}: {self.name}"

    @property
    def needs_own_hub(self) -> bool:
        return self.own_hub or bool(self.settings)


def scenario(name: str | None = None, *, tables=(), settings=None, own_hub=False, brings_its_own=False, limit=300, vsn=()):
    """Adds the function to the list, under its own name unless said otherwise; once for each serializer in `vsn`,
    which it is then given."""

    def add(function):
        title = name or function.__name__.replace("_", " ")
        place = function.__module__.replace(".", "/")
        common = dict(place=place, tables=list(tables), settings=settings or {}, own_hub=own_hub,
                      brings_its_own=brings_its_own, limit=limit)  # fmt: skip
        if not vsn:
            ALL.append(Scenario(name=title, run=function, **common))
        for version in vsn:
            bound = bind(function, version)
            ALL.append(Scenario(name=f"{title} (vsn {version})", run=bound, **common))
        return function

    return add


def bind(function, version):
    return lambda stage: function(stage, version)


BOTH = ("1.0.0", "2.0.0")


def published(name: str, columns: str, *more: str) -> list[str]:
    """A fresh table of the publication, and what else it takes."""
    return [
        f"DROP TABLE IF EXISTS {name} CASCADE",
        f"CREATE TABLE {name} ({inspect.cleandoc(columns)})",
        f"ALTER PUBLICATION supabase_realtime ADD TABLE {name}",
        *more,
    ]


def application(name: str) -> list[str]:
    """The tables and policies of one of the five applications, as they are made for everybody who wants to try them."""
    return [(APPLICATIONS / f"{name}.sql").read_text(encoding="utf-8")]
