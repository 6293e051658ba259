"""The tables, who listens to them, and the oracle: what each committed row image shows to whom.

Every row change leaves a line in `chaos.trail`. At the end of its transaction, under a lock that is held until the
commit, the oracle numbers the transaction and asks PostgreSQL itself which of the images each listener may see, with
memberships as the transaction leaves them. Images that are not in the table any more are put there for the question, in a
subtransaction that is rolled back. It shares nothing with the hub.
"""

import json
import pathlib
from dataclasses import dataclass, field

from ..database import quoted

SQL = pathlib.Path(__file__).resolve().parents[4] / "sql"


def person(number: int) -> str:
    return f"00000000-0000-4000-8000-00000000000{number}"


@dataclass(frozen=True)
class Person:
    """Somebody with a token."""

    name: str
    role: str = "authenticated"
    sub: str | None = None

    @property
    def claims(self) -> dict:
        return {"role": self.role} | ({"sub": self.sub} if self.sub else {})


ANA, BEN, CLEO = (Person(name, sub=person(number)) for number, name in enumerate(("ana", "ben", "cleo"), 1))
ANON = Person("anon", "anon")
SERVICE = Person("service", "service_role")
PEOPLE = [ANA, BEN, CLEO]


@dataclass(frozen=True)
class Table:
    name: str
    columns: str
    #: What the SELECT policy says; None: no row level security.
    policy: str | None = None
    identity: str = "FULL"
    more: tuple[str, ...] = ()
    #: Columns whose values the record need not have (values that an update left where they were).
    loose: frozenset[str] = frozenset()

    def statements(self) -> list[str]:
        made = [
            f"CREATE TABLE {self.name} (id int PRIMARY KEY, v bigint, {self.columns})",
            f"ALTER TABLE {self.name} REPLICA IDENTITY {self.identity}",
            f"ALTER PUBLICATION supabase_realtime ADD TABLE {self.name}",
            f"CREATE TRIGGER a_version BEFORE INSERT OR UPDATE ON {self.name} FOR EACH ROW EXECUTE FUNCTION chaos.new_version()",
            f"CREATE TRIGGER trail AFTER INSERT OR UPDATE OR DELETE ON {self.name} FOR EACH ROW EXECUTE FUNCTION chaos.note()",
            *self.more,
        ]
        if self.policy:
            made += [
                f"ALTER TABLE {self.name} ENABLE ROW LEVEL SECURITY",
                f"CREATE POLICY reads ON {self.name} FOR SELECT USING ({self.policy})",
            ]
        return made


USUAL = "owner uuid, team int, n int, kind text"

TABLES = {table.name: table for table in (
    Table("fences", "remark text"),
    Table("plain", USUAL, more=("REVOKE ALL ON plain FROM anon", "GRANT SELECT (id, v, n, kind) ON plain TO anon")),
    Table("owned", USUAL, policy="owner = auth.uid()"),
    Table("shared", USUAL, policy="team IN (SELECT m.team FROM members m WHERE m.person = auth.uid())"),
    Table("crewed", USUAL, policy="chaos.in_crew(team)"),
    Table("asked", USUAL, policy="chaos.may_read(owner, kind)"),
    Table("wide", USUAL + ", body text", identity="DEFAULT", loose=frozenset(["body"]),
          more=("ALTER TABLE wide ALTER COLUMN body SET STORAGE EXTERNAL",)),
    Table("deep", USUAL + ", body text", identity="DEFAULT", loose=frozenset(["body"]), policy="left(body, 1) = 'a' OR owner = auth.uid()",
          more=("ALTER TABLE deep ALTER COLUMN body SET STORAGE EXTERNAL",)),
    # A row that one channel hears is completed for all: here nobody hears what a filter makes of a value that is absent.
    Table("sifted", USUAL + ", body text", identity="DEFAULT", loose=frozenset(["body"]),
          more=("ALTER TABLE sifted ALTER COLUMN body SET STORAGE EXTERNAL",)),
    Table("labels", USUAL.replace("kind text", "kind chaos.label")),
)}  # fmt: skip

#: What policies look into; not published, so it comes by the hub's own publication.
MEMBERSHIPS = ("members", "crew")


@dataclass(frozen=True)
class Binding:
    """One of a channel's bindings, and in SQL what it asks for."""

    table: str
    event: str = "*"
    filter: str | None = None
    condition: str = "true"

    def request(self) -> dict:
        return {"event": self.event, "schema": "public", "table": self.table} | ({"filter": self.filter} if self.filter else {})


@dataclass(frozen=True)
class Seat:
    """One channel of one client."""

    name: str
    person: Person
    bindings: tuple[Binding, ...]
    is_real: bool = False
    vsn: str = "2.0.0"
    #: Asks to hear as a delete when a row leaves what it sees.
    moves: bool = False


def everything(*left_out: str) -> tuple[Binding, ...]:
    """Of what is not for those with filters only."""
    return tuple(Binding(name) for name in TABLES if name not in ("sifted", *left_out))


def filtered(table: str, filter: str, condition: str, event: str = "*") -> tuple[Binding, ...]:
    return (Binding(table, event, filter, condition), Binding("fences"))


def written(table: str, filter: str, condition: str) -> tuple[Binding, ...]:
    """Without deletes, whose old row may not be there to be filtered."""
    return tuple(Binding(table, event, filter, condition) for event in ("INSERT", "UPDATE")) + (Binding("fences"),)


SEATS = [
    Seat("real ana", ANA, everything(), is_real=True),
    Seat("real ben", BEN, everything(), is_real=True),
    Seat("raw ben", BEN, everything()),
    Seat("raw cleo", CLEO, everything(), vsn="1.0.0"),
    Seat("anon", ANON, everything("labels")),
    Seat("service", SERVICE, tuple(Binding(name) for name in ("fences", "owned", "shared", "asked"))),
    Seat("owned moves", BEN, filtered("owned", "n=lt.4", "n < 4"), moves=True),
    Seat("shared moves", CLEO, (Binding("shared"), Binding("fences")), moves=True),
    Seat("plain neq", ANON, filtered("plain", "n=neq.3", "n <> 3")),
    Seat("plain not in", ANA, filtered("plain", "n=not.in.(1,2)", "NOT (n IN (1, 2))")),
    Seat("plain not null", ANA, filtered("plain", "n=not.is.null", "n IS NOT NULL")),
    Seat("plain gt", ANA, filtered("plain", "n=gt.3", "n > 3"), is_real=True),
    Seat("plain kind", ANON, filtered("plain", "kind=eq.a", "kind = 'a'")),
    Seat("owned neq", ANA, filtered("owned", "n=neq.3", "n <> 3")),
    Seat("shared gt", BEN, filtered("shared", "n=gt.3", "n > 3")),
    Seat("asked neq", ANA, filtered("asked", "n=neq.3", "n <> 3")),
    Seat("asked not eq", BEN, filtered("asked", "n=not.eq.2", "NOT (n = 2)"), is_real=True),
    Seat("asked not in", BEN, filtered("asked", "n=not.in.(1,2)", "NOT (n IN (1, 2))")),
    Seat("wide like", ANA, written("wide", "body=like.a%", "body LIKE 'a%'")),
    Seat("wide not null", ANON, written("wide", "body=not.is.null", "body IS NOT NULL")),
    Seat("wide kind", BEN, written("wide", "kind=eq.a", "kind = 'a'")),
    Seat("sifted like", ANA, written("sifted", "body=like.a%", "body LIKE 'a%'")),
    Seat("sifted in", BEN, written("sifted", "n=in.(4,5)", "n IN (4, 5)")),
    Seat("labels kind", ANA, filtered("labels", "kind=eq.a", "kind = 'a'")),
]


@dataclass
class Listeners:
    """What the oracle is asked: each person on each table, and each filter on top of that."""

    numbers: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def number(self, table: str, who: Person, condition: str = "true") -> int:
        return self.numbers.setdefault((table, json.dumps(who.claims), condition), len(self.numbers) + 1)

    def statements(self) -> list[str]:
        return [
            "INSERT INTO chaos.listeners VALUES "
            f"({number}, {quoted(table)}, {quoted(json.loads(claims)['role'])}, {quoted(claims)}, {quoted(condition)})"
            for (table, claims, condition), number in self.numbers.items()
        ]


ORACLE = [
    "CREATE SCHEMA chaos",
    "GRANT USAGE ON SCHEMA chaos TO anon, authenticated, service_role",
    "CREATE DOMAIN chaos.label AS text CHECK (VALUE IN ('a', 'b', 'c'))",
    "CREATE SEQUENCE chaos.versions",
    "CREATE SEQUENCE chaos.commits",
    """CREATE TABLE chaos.trail (
        place bigserial PRIMARY KEY, xid xid8 NOT NULL DEFAULT pg_current_xact_id(), seq bigint, tab text, operation text,
        id int, was_v bigint, v bigint, was jsonb, became jsonb, identity "char",
        published boolean, was_for int[] NOT NULL DEFAULT '{}', became_for int[] NOT NULL DEFAULT '{}', remark text,
        made_at double precision)""",
    "CREATE INDEX ON chaos.trail (xid) WHERE seq IS NULL",
    "CREATE INDEX ON chaos.trail (seq)",
    "CREATE TABLE chaos.listeners (number int PRIMARY KEY, tab text, role text, claims text, condition text)",
    """CREATE FUNCTION chaos.new_version() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NEW.v := nextval('chaos.versions');
        RETURN NEW;
    END $$""",
    """CREATE FUNCTION chaos.note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO chaos.trail (tab, operation, id, was_v, v, was, became, identity, published)
        VALUES (TG_TABLE_NAME, TG_OP, CASE TG_OP WHEN 'DELETE' THEN OLD.id ELSE NEW.id END,
            CASE WHEN TG_OP <> 'INSERT' THEN OLD.v END, CASE WHEN TG_OP <> 'DELETE' THEN NEW.v END,
            CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END, CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END,
            (SELECT relreplident FROM pg_class WHERE oid = TG_RELID),
            EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
                WHERE p.pubname = 'supabase_realtime' AND r.prrelid = TG_RELID));
        RETURN NULL;
    END $$""",
    # Whatever else has to stand in the order of commits: memberships, definitions.
    """CREATE FUNCTION chaos.note_that(what text) RETURNS void LANGUAGE sql AS $$
        INSERT INTO chaos.trail (tab, operation, remark) VALUES ('', 'NOTE', what) $$""",
    """CREATE FUNCTION chaos.note_membership() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM chaos.note_that(TG_OP || ' of ' || TG_TABLE_NAME);
        RETURN NULL;
    END $$""",
    # Who is shown which version, and what stands between a question and its answer. Not temporary: those may not be
    # touched by transactions that are prepared.
    "CREATE TYPE chaos.sight AS (listener int, v bigint)",
    "CREATE UNLOGGED TABLE chaos.images (xid xid8, v bigint, id int, image jsonb, layer bigint, PRIMARY KEY (xid, v))",
    """CREATE FUNCTION chaos.visible(ids int[], versions bigint[], listener chaos.listeners) RETURNS bigint[]
    LANGUAGE plpgsql AS $$
    DECLARE seen bigint[];
    BEGIN
        PERFORM set_config('request.jwt.claims', listener.claims, true), set_config('role', listener.role, true);
        EXECUTE format('SELECT array_agg(v) FROM public.%I WHERE id = ANY($1) AND v = ANY($2) AND (%s)', listener.tab, listener.condition)
            INTO seen USING ids, versions;
        PERFORM set_config('role', 'none', true);
        RETURN seen;
    EXCEPTION WHEN insufficient_privilege THEN
        RETURN '{}';
    END $$""",
    """CREATE FUNCTION chaos.ask(name text, ids int[], versions bigint[]) RETURNS chaos.sight[] LANGUAGE sql AS $$
        SELECT coalesce(array_agg(ROW(l.number, s.v)::chaos.sight), '{}')
        FROM chaos.listeners l, unnest(chaos.visible(ids, versions, l)) s (v) WHERE l.tab = name $$""",
    """CREATE FUNCTION chaos.ask_of_past(name text, ids int[], versions bigint[], images jsonb[]) RETURNS chaos.sight[]
    LANGUAGE plpgsql AS $$
    DECLARE found chaos.sight[];
    BEGIN
        BEGIN
            PERFORM set_config('session_replication_role', 'replica', true);
            EXECUTE format('DELETE FROM public.%I WHERE id = ANY($1)', name) USING ids;
            EXECUTE format('INSERT INTO public.%1$I SELECT r.* FROM unnest($1) i, jsonb_populate_record(NULL::public.%1$I, i) r', name)
                USING images;
            found := chaos.ask(name, ids, versions);
            RAISE EXCEPTION USING ERRCODE = 'CH001';
        EXCEPTION WHEN SQLSTATE 'CH001' THEN
            RETURN found;
        END;
    END $$""",
    # Layer 0 is in the table as it was committed. Of the others there is one version of a row in each layer.
    """CREATE FUNCTION chaos.layers(mine xid8, name text) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO chaos.images (xid, v, id, image)
            SELECT mine, i.* FROM chaos.trail t,
                LATERAL (VALUES (t.v, (t.became ->> 'id')::int, t.became), (t.was_v, (t.was ->> 'id')::int, t.was)) i (v, id, image)
            WHERE t.xid = mine AND t.seq IS NULL AND t.tab = name AND i.v IS NOT NULL
            ON CONFLICT DO NOTHING;
        EXECUTE format('UPDATE chaos.images i SET layer = 0 FROM public.%I t WHERE i.xid = $1 AND t.id = i.id AND t.v = i.v', name)
            USING mine;
        UPDATE chaos.images i SET layer = l.n
            FROM (SELECT v, row_number() OVER (PARTITION BY id ORDER BY v) n FROM chaos.images WHERE xid = mine AND layer IS NULL) l
            WHERE i.xid = mine AND l.v = i.v;
    END $$""",
    """CREATE FUNCTION chaos.judge_table(mine xid8, name text) RETURNS void LANGUAGE plpgsql AS $$
    DECLARE
        found chaos.sight[] := '{}';
        part record;
    BEGIN
        PERFORM chaos.layers(mine, name);
        FOR part IN
            SELECT layer, array_agg(id) ids, array_agg(v) versions, array_agg(image) images
            FROM chaos.images WHERE xid = mine GROUP BY layer ORDER BY layer
        LOOP
            found := found || CASE WHEN part.layer = 0 THEN chaos.ask(name, part.ids, part.versions)
                ELSE chaos.ask_of_past(name, part.ids, part.versions, part.images) END;
        END LOOP;
        DELETE FROM chaos.images WHERE xid = mine;
        WITH shown AS (SELECT v, array_agg(listener) listeners FROM unnest(found) GROUP BY v)
        UPDATE chaos.trail t SET
            became_for = coalesce((SELECT listeners FROM shown s WHERE s.v = t.v), '{}'),
            was_for = coalesce((SELECT listeners FROM shown s WHERE s.v = t.was_v), '{}')
        WHERE t.xid = mine AND t.seq IS NULL AND t.tab = name;
    END $$""",
    """CREATE FUNCTION chaos.judge() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        mine xid8 := pg_current_xact_id();
        name text;
        number bigint;
    BEGIN
        IF NOT EXISTS (SELECT FROM chaos.trail WHERE xid = mine AND seq IS NULL) THEN RETURN NULL; END IF;
        PERFORM pg_advisory_xact_lock(1);
        FOR name IN SELECT DISTINCT tab FROM chaos.trail WHERE xid = mine AND seq IS NULL AND tab <> '' LOOP
            PERFORM chaos.judge_table(mine, name);
        END LOOP;
        number := nextval('chaos.commits');
        UPDATE chaos.trail SET seq = number, made_at = extract(epoch FROM clock_timestamp()) WHERE xid = mine AND seq IS NULL;
        RETURN NULL;
    END $$""",
    """CREATE CONSTRAINT TRIGGER judge AFTER INSERT ON chaos.trail DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
        EXECUTE FUNCTION chaos.judge()""",
]  # fmt: skip

MAY_READ = """CREATE OR REPLACE FUNCTION chaos.may_read(owner uuid, kind text) RETURNS boolean LANGUAGE plpgsql STABLE
    AS $$ BEGIN RETURN owner = auth.uid() OR kind = 'a'; END $$"""

GROUND = [
    "CREATE TABLE members (team int, person uuid, PRIMARY KEY (team, person))",
    "ALTER TABLE members REPLICA IDENTITY FULL",
    "ALTER TABLE members ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY own ON members FOR SELECT USING (person = auth.uid())",
    "CREATE TABLE crew (team int, person uuid, PRIMARY KEY (team, person))",
    "ALTER TABLE crew REPLICA IDENTITY FULL",
    "REVOKE ALL ON crew FROM anon, authenticated",
    # The hub fills a membership as its own login where a function of a definer hides the table from everybody else.
    "GRANT SELECT ON crew TO tidewire",
    *(f"""CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON {name} FOR EACH STATEMENT
        EXECUTE FUNCTION chaos.note_membership()""" for name in MEMBERSHIPS),
    f"ALTER PUBLICATION tidewire_internal ADD TABLE {', '.join(MEMBERSHIPS)}",
    """CREATE FUNCTION chaos.in_crew(t int) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path = ''
        AS $$ SELECT EXISTS (SELECT 1 FROM public.crew c WHERE c.team = t AND c.person = auth.uid()) $$""",
    # Only PostgreSQL can say what this says; and it says the same whenever it is asked.
    MAY_READ,
    # What nobody listens to, and whose definitions change all the time.
    "CREATE TABLE other (id int PRIMARY KEY, v int)",
    "ALTER TABLE other ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY reads ON other FOR SELECT USING (true)",
    "ALTER PUBLICATION supabase_realtime ADD TABLE other",
    "CREATE TABLE aside (id int PRIMARY KEY)",
]  # fmt: skip

FOUNDATION = ("010_roles", "020_auth", "030_publication", "040_hub_role", "045_policy_role")


def foundation() -> list[str]:
    """What the documentation says to apply, one after another."""
    return [(SQL / f"{name}.sql").read_text(encoding="utf-8") for name in FOUNDATION]
