"""Changes of tables: shapes, values, identities, privileges, publication. Protocol §3; checklist 12, traps 9 to 12."""

import asyncio
import json
import os
import signal
import time
from random import Random

from clients.chaos.ears import says_of_loss
from clients.expect import NotHere, contains, equal, fail, true
from clients.peer import binding
from clients.scenario import BOTH, published, scenario
from clients.stage import ANA, BEN


async def typed(stage, peer, topic, sql, *wanted):
    """Runs the SQL; the changes that come, which must be of these types."""
    await stage.database.run(*([sql] if isinstance(sql, str) else sql))
    changes = [await peer.change(topic) for _ in wanted]
    equal([change.data["type"] for change in changes], list(wanted), "the types of the changes")
    return [change.data for change in changes]


@scenario("checklist 12, traps 9 and 10: INSERT, UPDATE and DELETE in their exact shapes", vsn=BOTH, tables=published("c_shapes", "id int8 PRIMARY KEY, title text, done bool, tags text[]"))
async def shapes(stage, vsn):
    peer = await stage.peer(vsn)
    topic = "realtime:shapes"
    await stage.database.run("TRUNCATE c_shapes")
    (number,) = await peer.subscribe(topic, binding("c_shapes", filter="id=gt.5"))
    before = time.time()
    await stage.database.run(
        "INSERT INTO c_shapes VALUES (1, 'not this', false, NULL)",
        "INSERT INTO c_shapes VALUES (9007199254740993, 'milk', false, '{a,b}')",
        "UPDATE c_shapes SET title = 'oat milk', done = NULL WHERE id > 1",
        "DELETE FROM c_shapes")  # fmt: skip
    insert, update, delete = [await peer.change(topic) for _ in range(3)]
    for message in (insert, update, delete):
        equal((message.join_ref, message.ref), (None, None), "the refs of a change")
        equal(message.payload["ids"], [number], "the ids")
        stamp = message.data.pop("commit_timestamp")
        seconds = time.mktime(time.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
        true(before - 2 < seconds < time.time() + 2, "the time of the commit", stamp)
    columns = [{"name": "id", "type": "int8"}, {"name": "title", "type": "text"}, {"name": "done", "type": "bool"},
               {"name": "tags", "type": "_text"}]  # fmt: skip
    common = {"schema": "public", "table": "c_shapes", "columns": columns, "errors": None}
    key = {"id": 9007199254740993}
    record = key | {"title": "milk", "done": False, "tags": ["a", "b"]}
    equal(insert.data, common | {"type": "INSERT", "record": record}, "an INSERT")
    record |= {"title": "oat milk", "done": None}
    equal(update.data, common | {"type": "UPDATE", "record": record, "old_record": key}, "an UPDATE")
    equal(delete.data, common | {"type": "DELETE", "old_record": key}, "a DELETE")
    equal(await peer.fence(), [], "what else came")


@scenario("with a full identity old rows are whole", tables=published("c_full", "id int PRIMARY KEY, v text, w text", "ALTER TABLE c_full REPLICA IDENTITY FULL"))
async def full_identity(stage):
    peer = await stage.peer()
    await peer.subscribe("realtime:full", binding("c_full"))
    sql = ["INSERT INTO c_full VALUES (1, 'a', NULL)", "UPDATE c_full SET id = 2, v = 'b'", "DELETE FROM c_full"]
    _, update, delete = await typed(stage, peer, "realtime:full", sql, "INSERT", "UPDATE", "DELETE")
    equal(update["old_record"], {"id": 1, "v": "a", "w": None}, "the old row of an UPDATE")
    equal(update["record"], {"id": 2, "v": "b", "w": None}, "its new row")
    equal(delete["old_record"], {"id": 2, "v": "b", "w": None}, "the old row of a DELETE")


@scenario("identities by key that changes, and by index", tables=[
    *published("c_key", "id int PRIMARY KEY, v text"),
    *published("c_index", "id int PRIMARY KEY, code text NOT NULL, v text", "CREATE UNIQUE INDEX c_index_code ON c_index (code)",
               "ALTER TABLE c_index REPLICA IDENTITY USING INDEX c_index_code")])  # fmt: skip
async def other_identities(stage):
    peer = await stage.peer()
    await peer.subscribe("realtime:key", binding("c_key"))
    sql = ["INSERT INTO c_key VALUES (1, 'a')", "UPDATE c_key SET id = 2"]
    _, update = await typed(stage, peer, "realtime:key", sql, "INSERT", "UPDATE")
    equal((update["old_record"], update["record"]), ({"id": 1}, {"id": 2, "v": "a"}), "rows of an UPDATE of the key")
    await peer.subscribe("realtime:index", binding("c_index"))
    sql = ["INSERT INTO c_index VALUES (1, 'x', 'a')", "UPDATE c_index SET v = 'b'", "DELETE FROM c_index"]
    _, update, delete = await typed(stage, peer, "realtime:index", sql, "INSERT", "UPDATE", "DELETE")
    equal(update["record"], {"id": 1, "code": "x", "v": "b"}, "the new row of an UPDATE")
    equal(delete["old_record"], {"code": "x"}, "the old row of a DELETE by the identity's index")


TOAST = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 400) i)"


@scenario("trap 10: an unchanged large value is there: from the event log, or by a full identity", tables=[
    *published("c_toast", "id int PRIMARY KEY, large text, small text"),
    *published("c_toast_full", "id int PRIMARY KEY, large text, small text", "ALTER TABLE c_toast_full REPLICA IDENTITY FULL")])  # fmt: skip
async def toast(stage):
    peer = await stage.peer()
    for table in ("c_toast", "c_toast_full"):
        topic = "realtime:" + table
        await peer.subscribe(topic, binding(table))
        sql = [f"INSERT INTO {table} SELECT 1, {TOAST}, 'a'", f"UPDATE {table} SET small = 'b'"]
        insert, update = await typed(stage, peer, topic, sql, "INSERT", "UPDATE")
        equal(len(insert["record"]["large"]), 400 * 32, "the length of the large value when it is new")
        equal([column["name"] for column in update["columns"]], ["id", "large", "small"], "the columns of the UPDATE")
        equal(update["record"], insert["record"] | {"small": "b"}, f"the new row of an UPDATE of {table} that leaves the large value")


#: Type, literal of SQL, JSON text. §3.5.
TYPES = [
    ("int2", "-32768", "-32768"), ("int4", "2147483647", "2147483647"), ("int8", "9223372036854775807", "9223372036854775807"),
    ("numeric", "1.50", "1.50"), ("numeric", "12345678901234567890.123", "12345678901234567890.123"), ("numeric", "-0.00", "0.00"),
    ("numeric", "'NaN'", "null"), ("numeric", "'Infinity'", "null"), ("float8", "0.1", "0.1"), ("float8", "1e-7", "0.0000001"),
    ("float8", "1e300", "1" + "0" * 300), ("float8", "-1.5e21", "-1500000000000000000000"), ("float8", "'NaN'", "null"), ("float8", "'-Infinity'", "null"),
    ("float4", "0.1", "0.1"), ("float4", "1e10", "10000000000"), ("float4", "'Infinity'", "null"), ("float8", "123456789012345680", "123456789012345680"),
    ("bool", "true", "true"), ("bool", "false", "false"),
    ("text", r"""E'quote " back\\ slash / tab\t nl\n é 🙂 \x01'""", r'"quote \" back\\ slash / tab\t nl\n é 🙂 \u0001"'),
    ("text", "''", '""'), ("text", "'null'", '"null"'), ("text", "'{1,2}'", '"{1,2}"'), ("varchar(9)", "'short'", '"short"'),
    ("name", "'a_name'", '"a_name"'), ("c_mood", "'ok'", '"ok"'),
    ("uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"'),
    ("tsvector", "to_tsvector('simple', 'the fox')", "\"'fox':2 'the':1\""),
    ("regclass", "'pg_class'", '"pg_class"'), ("cidr", "'10.0.0.0/8'", '"10.0.0.0/8"'), ("inet", "'10.0.0.1'", '"10.0.0.1"'),
    ("macaddr", "'08:00:2b:01:02:03'", '"08:00:2b:01:02:03"'), ("money", "'1234.50'", '"$1,234.50"'),
    ("interval", "'1 day 02:00:00'", '"1 day 02:00:00"'), ("point", "'(1,2)'", '"(1,2)"'), ("box", "'(3,4),(1,2)'", '"(3,4),(1,2)"'),
    ("int4range", "'[1,10)'", '"[1,10)"'), ("varbit", "B'101'", '"101"'), ("oid", "16384", '"16384"'),
    ("json", "'{\"k\" : [1, null, 1.50]}'", '{"k":[1,null,1.50]}'), ("jsonb", "'{\"k\": [1, null]}'", '{"k":[1,null]}'),
    ("jsonb", "'null'", "null"), ("jsonb", "'\"text\"'", '"text"'), ("jsonb", "'17'", "17"),
    ("timestamp", "'2026-03-01 10:20:30.5'", '"2026-03-01T10:20:30.5"'), ("timestamp", "'2026-03-01 10:20:30'", '"2026-03-01T10:20:30"'),
    ("timestamptz", "'2026-03-01 12:20:30.5+02'", '"2026-03-01T10:20:30.5+00:00"'), ("timestamp", "'infinity'", '"infinity"'),
    ("timestamptz", "'-infinity'", '"-infinity"'), ("date", "'-infinity'", '"-infinity"'), ("date", "'2026-03-01'", '"2026-03-01"'),
    ("date", "'0044-03-15 BC'", '"0044-03-15 BC"'), ("time", "'03:04:05.500'", '"03:04:05.5"'), ("timetz", "'03:04:05+02'", '"03:04:05+02"'),
    ("bytea", r"'\x010203ff'", '"010203ff"'), ("bytea", "''", '""'), ("int4[]", "'{1,NULL,3}'", "[1,null,3]"), ("int4[]", "'{}'", "[]"),
    ("int4[]", "'{{1,2},{3,4}}'", "[[1,2],[3,4]]"), ("text[]", """ARRAY['a,b', 'q"uote', '', NULL, 'NULL']""", r'["a,b","q\"uote","",null,"NULL"]'),
    ("numeric[]", "'{1.50,2}'", "[1.50,2]"), ("bool[]", "'{t,f}'", "[true,false]"), ("bytea[]", r"ARRAY['\x01'::bytea]", r'["\\x01"]'),
    ("timestamp[]", "ARRAY['2026-03-01 10:20:30'::timestamp]", '["2026-03-01T10:20:30"]'), ("jsonb[]", "ARRAY['{\"a\": 1}'::jsonb]", '[{"a":1}]'),
    ("uuid[]", "'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'", '["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]'),
    ("c_mood[]", "'{ok,NULL}'", '["ok",null]'), ("c_pair", "ROW(1, 'x')", '{"a":1,"b":"x"}'), ("c_pair", "ROW(NULL, 'q\"')", r'{"a":null,"b":"q\""}'),
    ("c_positive", "7", "7"),
    # The reference cuts both to one character; we do not.
    ("char(5)", "'abc'", '"abc  "'), ("bit(3)", "B'101'", '"101"'),
    ("text", "NULL", "null"), ("int4[]", "NULL", "null"), ("jsonb", "NULL", "null"),
]  # fmt: skip

#: Of extensions that are beside PostgreSQL in most packages, and not in all.
EXTENSION_TYPES = [("hstore", "'k=>v, n=>NULL'", '{"k": "v", "n": null}'), ("citext", "'MiXed'", '"MiXed"')]
XML_TYPES = [("xml", "'<a>1</a>'", '"<a>1</a>"')]

CATALOG_NAMES = {"varchar(9)": "varchar", "char(5)": "bpchar", "bit(3)": "bit"}


def catalog_name(written: str) -> str:
    name = CATALOG_NAMES.get(written, written)
    return "_" + name[:-2] if name.endswith("[]") else name


def value_text(raw: str, name: str) -> str:
    """The very characters of one value of the record, for what a parser would even out."""
    begin = raw.index('"record":') + len('"record":')
    scanner = json.JSONDecoder()
    at = raw.index(f'"{name}":', begin) + len(name) + 3
    while raw[at] == " ":
        at += 1
    _, end = scanner.raw_decode(raw, at)
    return raw[at:end]


def of_types(table: str, types) -> list[str]:
    columns = ", ".join(f"v{i} {kind}" for i, (kind, _, _) in enumerate(types))
    return published(table, f"id int PRIMARY KEY, {columns}", f"ALTER TABLE {table} REPLICA IDENTITY FULL")


@scenario("trap 12: every type is written as the protocol says", tables=[
    "DO $$ BEGIN CREATE TYPE c_mood AS ENUM ('sad', 'ok', 'happy'); EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    "DO $$ BEGIN CREATE TYPE c_pair AS (a int, b text); EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    "DO $$ BEGIN CREATE DOMAIN c_positive AS int2 CHECK (VALUE > 0); EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    *of_types("c_types", TYPES)])  # fmt: skip
async def types(stage):
    await check_types(stage, "c_types", TYPES)


def made_where(condition: str, table: str, types, *before: str) -> str:
    """The table, where this PostgreSQL has its types."""
    made = "; ".join([*before, *of_types(table, types)])
    return f"DO $do$ BEGIN IF {condition} THEN {made}; END IF; EXCEPTION WHEN feature_not_supported THEN NULL; END $do$"


@scenario("types of extensions are written likewise", tables=[made_where(
    "(SELECT count(*) FROM pg_available_extensions WHERE name IN ('hstore', 'citext')) = 2", "c_extended", EXTENSION_TYPES,
    "CREATE EXTENSION IF NOT EXISTS hstore", "CREATE EXTENSION IF NOT EXISTS citext")])  # fmt: skip
async def extended(stage):
    await check_types_where_there(stage, "c_extended", EXTENSION_TYPES)


@scenario("so is xml", tables=[made_where("'<a/>'::xml IS DOCUMENT", "c_xml", XML_TYPES)])
async def xml(stage):
    await check_types_where_there(stage, "c_xml", XML_TYPES)


async def check_types_where_there(stage, table: str, types):
    if table not in await stage.database.run(f"SELECT to_regclass('{table}')"):
        raise NotHere(f"this PostgreSQL has no {' or '.join(kind for kind, _, _ in types)}")
    await check_types(stage, table, types)


async def check_types(stage, table: str, types):
    peer = await stage.peer()
    await peer.subscribe("realtime:types", binding(table))
    await stage.database.run(
        f"INSERT INTO {table} VALUES (1, {', '.join(literal for _, literal, _ in types)})", f"DELETE FROM {table}")
    insert, delete = await peer.change("realtime:types"), await peer.change("realtime:types")
    equal(delete.data["old_record"], insert.data["record"], "the old row of the DELETE, beside the new one of the INSERT")
    wrong = []
    for index, (kind, literal, wanted) in enumerate(types):
        came = value_text(insert.raw, f"v{index}")
        same = came == wanted
        if wanted[0] in '"[{' and not same:
            # Blanks and escapes are a matter of taste outside numbers.
            same = json.dumps(json.loads(came, parse_float=str, parse_int=str), sort_keys=True) == json.dumps(
                json.loads(wanted, parse_float=str, parse_int=str), sort_keys=True)  # fmt: skip
        if kind == "char(5)":
            same = same or came == '"abc"'
        if not same:
            wrong.append(f"{kind} {literal}: {came[:120]}, not {wanted[:120]}")
    names = {column["name"]: column["type"] for column in insert.data["columns"]}
    for index, (kind, _, _) in enumerate(types):
        if names.get(f"v{index}") != catalog_name(kind):
            wrong.append(f"the type of {kind} in columns: {names.get(f'v{index}')}, not {catalog_name(kind)}")
    if wrong:
        fail("values as the protocol writes them", "\n       ".join(["", *wrong]))


@scenario("generated columns are there, dropped ones are not", tables=published("c_generated", "id int PRIMARY KEY, gone int, twice int GENERATED ALWAYS AS (id * 2) STORED, v text", "ALTER TABLE c_generated DROP COLUMN gone"))
async def generated(stage):
    peer = await stage.peer()
    await peer.subscribe("realtime:generated", binding("c_generated"))
    (insert,) = await typed(stage, peer, "realtime:generated", "INSERT INTO c_generated VALUES (4, DEFAULT, 'v')", "INSERT")
    # PostgreSQL before 18 does not publish generated columns, so the stream may lack them; a gap must not shift the rest.
    true(insert["record"] in ({"id": 4, "v": "v"}, {"id": 4, "twice": 8, "v": "v"}), "id, v and perhaps twice", insert["record"])


@scenario("select narrows columns and rows to what was asked and the key", vsn=BOTH, tables=published("c_select", "id int PRIMARY KEY, a text, b text, c text", "ALTER TABLE c_select REPLICA IDENTITY FULL"))
async def select(stage, vsn):
    peer = await stage.peer(vsn)
    await peer.subscribe("realtime:select", binding("c_select", select=["b"], filter="a=eq.x"))
    sql = ["INSERT INTO c_select VALUES (1, 'x', 'y', 'z'), (2, 'n', 'y', 'z')", "UPDATE c_select SET c = 'zz'", "DELETE FROM c_select"]
    insert, update, delete = await typed(stage, peer, "realtime:select", sql, "INSERT", "UPDATE", "DELETE")
    for data in (insert, update, delete):
        equal([column["name"] for column in data["columns"]], ["id", "b"], "the columns")
        for part in ("record", "old_record"):
            equal(data.get(part, {"id": 1, "b": "y"}), {"id": 1, "b": "y"}, part)
    await stage.database.run("TRUNCATE c_select")


@scenario("a channel hears of a change once, with all ids; once for each list of select", vsn=BOTH, tables=[
    # A schema of its own, as one binding is about all tables of it.
    "DROP SCHEMA IF EXISTS c_unions CASCADE", "CREATE SCHEMA c_unions", "GRANT USAGE ON SCHEMA c_unions TO anon",
    *published("c_unions.c_union", "id int PRIMARY KEY, v text, w text", "GRANT SELECT ON c_unions.c_union TO anon")])  # fmt: skip
async def union(stage, vsn):
    peer = await stage.peer(vsn)
    topic = "realtime:union"

    def of(event="*", **more):
        return binding("c_union", event, schema="c_unions", **more)

    bindings = [
        of(), of("INSERT", filter="v=eq.a"), of("INSERT", filter="v=eq.b"), of("UPDATE"),
        {"event": "*", "schema": "c_unions"}, of(select=["v"]), of("INSERT", select=["v"], filter="id=gt.0"), of(),
    ]  # fmt: skip
    ids = await peer.subscribe(topic, *bindings)
    await stage.database.run("INSERT INTO c_unions.c_union VALUES (1, 'a', 'w')", "UPDATE c_unions.c_union SET v = 'b'")
    inserts = [await peer.change(topic) for _ in range(2)]
    updates = [await peer.change(topic) for _ in range(2)]
    equal([m.data["type"] for m in inserts + updates], ["INSERT"] * 2 + ["UPDATE"] * 2, "the types")
    groups = sorted((sorted(m.data["record"]), sorted(set(m.payload["ids"]))) for m in inserts)
    wanted = [(["id", "v"], sorted({ids[5], ids[6]})), (["id", "v", "w"], sorted({ids[0], ids[1], ids[4]}))]
    equal([list(group) for group in groups], [list(group) for group in wanted], "columns and ids of the two messages")
    groups = sorted((sorted(m.data["record"]), sorted(set(m.payload["ids"]))) for m in updates)
    wanted = [(["id", "v"], [ids[5]]), (["id", "v", "w"], sorted({ids[0], ids[3], ids[4]}))]
    equal([list(group) for group in groups], [list(group) for group in wanted], "columns and ids of the UPDATE's")
    equal([str(m) for m in await peer.fence()], [], "what else came")


@scenario("wildcards of schema and table, and names as they are written", tables=[
    "DROP SCHEMA IF EXISTS c_other CASCADE", "CREATE SCHEMA c_other", "GRANT USAGE ON SCHEMA c_other TO anon",
    *published("c_other.things", "id int PRIMARY KEY", "GRANT SELECT ON c_other.things TO anon"),
    *published('c_other."Odd Name"', "id int PRIMARY KEY", 'GRANT SELECT ON c_other."Odd Name" TO anon')])  # fmt: skip
async def wildcards(stage):
    peer = await stage.peer()
    cases = {
        "realtime:schema": ({"event": "*", "schema": "c_other"}, ["things", "Odd Name"]),
        "realtime:both": ({"event": "*", "schema": "*", "table": "*"}, ["things", "Odd Name"]),
        "realtime:table": ({"event": "*", "schema": "c_other", "table": "*"}, ["things", "Odd Name"]),
        "realtime:odd": ({"event": "*", "schema": "c_other", "table": "Odd Name"}, ["Odd Name"]),
        "realtime:things": ({"event": "*", "schema": "*", "table": "things"}, ["things"]),
    }
    for topic, (one, _) in cases.items():
        await peer.subscribe(topic, one)
    await stage.database.run("INSERT INTO c_other.things VALUES (1)", 'INSERT INTO c_other."Odd Name" VALUES (1)')
    for topic, (_, tables) in cases.items():
        came = [(await peer.change(topic)).data["table"] for _ in tables]
        equal(came, tables, f"the tables that {topic} hears of")
    await peer.join("realtime:case", {"postgres_changes": [{"event": "*", "schema": "c_other", "table": "Things"}]})
    equal((await peer.system("realtime:case")).status, "error", "the status for a table of another case")


@scenario("columns the role may not read are not there, and a channel hears what its own role may", tables=published("c_columns", "id int PRIMARY KEY, open text, secret text", "ALTER TABLE c_columns REPLICA IDENTITY FULL",
    "REVOKE ALL ON c_columns FROM anon", "GRANT SELECT (id, open) ON c_columns TO anon"))  # fmt: skip
async def column_privileges(stage):
    peer = await stage.peer()
    await peer.subscribe("realtime:anon", binding("c_columns"))
    await peer.subscribe("realtime:ana", binding("c_columns"), access_token=stage.ana)
    sql = ["INSERT INTO c_columns VALUES (1, 'o', 's')", "UPDATE c_columns SET secret = 't'", "DELETE FROM c_columns"]
    for data in await typed(stage, peer, "realtime:anon", sql, "INSERT", "UPDATE", "DELETE"):
        equal([column["name"] for column in data["columns"]], ["id", "open"], "the columns for anon")
        for part in ("record", "old_record"):
            equal(data.get(part, {"id": 1, "open": "o"}), {"id": 1, "open": "o"}, f"{part} for anon")
    insert = await peer.change("realtime:ana")
    equal(insert.data["record"], {"id": 1, "open": "o", "secret": "s"}, "the record for authenticated")
    # Whoever may not read it may not filter by it either: it would tell.
    await peer.join("realtime:peek", {"postgres_changes": [binding("c_columns", filter="secret=eq.s")]})
    true("invalid column for filter secret" in (await peer.system("realtime:peek")).payload["message"], "a refusal")


@scenario("401 for changes of rows whose key the role may not read, nothing of the row in it", tables=[
    *published("c_closed", "id int PRIMARY KEY, v text", "REVOKE ALL ON c_closed FROM anon"),
    *published("c_keyless", "id int PRIMARY KEY, v text", "REVOKE ALL ON c_keyless FROM anon", "GRANT SELECT (v) ON c_keyless TO anon")])  # fmt: skip
async def unauthorized(stage):
    peer = await stage.peer()
    for table in ("c_closed", "c_keyless"):
        topic = "realtime:" + table
        await peer.subscribe(topic, binding(table))
        warning = await peer.system(topic, "a word about it")
        equal((warning.status, warning.code), ("ok", "RowsRefused"), "status and code")
        true(f"GRANT SELECT ON public.{table} TO anon" in warning.payload["message"], "the SQL", warning)
        sql = [f"INSERT INTO {table} VALUES (1, 'v')", f"UPDATE {table} SET v = 'w'", f"DELETE FROM {table}"]
        insert, update, delete = await typed(stage, peer, topic, sql, "INSERT", "UPDATE", "DELETE")
        for data in (insert, update):
            equal(data["errors"], ["Error 401: Unauthorized"], f"the errors of an {data['type']} of {table}")
            equal((data["columns"], data["record"]), ([], {}), "its columns and record")
        equal(update["old_record"], {}, "the old row of the UPDATE")
        equal(delete["errors"], None, "the errors of a DELETE")
        equal(delete["old_record"], {}, f"the old row of a DELETE of {table}")


@scenario("400 for changes of tables without a primary key", tables=published("c_no_key", "v text", "ALTER TABLE c_no_key REPLICA IDENTITY FULL"))
async def no_primary_key(stage):
    peer = await stage.peer()
    await peer.subscribe("realtime:no-key", binding("c_no_key"))
    warning = await peer.system("realtime:no-key", "a word about it")
    equal((warning.status, warning.code), ("ok", "RowsRefused"), "status and code")
    true("ADD PRIMARY KEY" in warning.payload["message"], "the SQL", warning)
    sql = ["INSERT INTO c_no_key VALUES ('v')", "UPDATE c_no_key SET v = 'w'"]
    insert, update = await typed(stage, peer, "realtime:no-key", sql, "INSERT", "UPDATE")
    for data in (insert, update):
        equal(data["errors"], ["Error 400: Bad Request, no primary key"], "the errors")
        equal((data["columns"], data["record"], data.get("old_record", {})), ([], {}, {}), "columns and rows")


@scenario("TRUNCATE is told in words to who hears of deletes", vsn=BOTH, tables=published("c_emptied", "id int PRIMARY KEY") + published("c_kept", "id int PRIMARY KEY"))
async def truncated(stage, vsn):
    peer = await stage.peer(vsn)
    await peer.subscribe("realtime:all", binding("c_emptied"), binding("c_kept"))
    await peer.subscribe("realtime:inserts", binding("c_emptied", event="INSERT"))
    await stage.database.run("INSERT INTO c_emptied VALUES (1)")
    for topic in ("realtime:all", "realtime:inserts"):
        equal((await peer.change(topic)).data["record"]["id"], 1, "the row before")
    # Those from before the join have come by now.
    peer.hears_truncates = True
    await stage.database.run("TRUNCATE c_emptied", "INSERT INTO c_emptied VALUES (2)")
    word = await peer.system("realtime:all", "a word about it")
    equal((word.status, word.code), ("ok", "Truncated"), "status and code")
    true("public.c_emptied" in word.payload["message"], "the table's name", word)
    for topic in ("realtime:all", "realtime:inserts"):
        equal((await peer.change(topic)).data["record"]["id"], 2, "the row after")
    equal([str(m) for m in await peer.fence()], [], "what else comes")


@scenario("413 for changes over the limit: small values stay, large ones and nulls go", vsn=BOTH, tables=published("c_large", "id int PRIMARY KEY, body text, small text, edge text, nothing text"))
async def too_large(stage, vsn):
    peer = await stage.peer(vsn)
    topic = "realtime:large"
    await peer.subscribe(topic, binding("c_large", filter="small=eq.s"))
    await stage.database.run(
        "TRUNCATE c_large",
        "INSERT INTO c_large VALUES (1, repeat('x', 1048576), 's', repeat('e', 100), NULL)",
        "INSERT INTO c_large VALUES (2, repeat('x', 1000000), 's', repeat('e', 100), NULL)",
        "INSERT INTO c_large VALUES (3, repeat('x', 2000000), 'other', NULL, NULL)",
        "DELETE FROM c_large WHERE id = 1", "INSERT INTO c_large VALUES (4, 'x', 's', NULL, NULL)")  # fmt: skip
    large, whole, gone, last = [(await peer.change(topic)).data for _ in range(4)]
    equal(large["errors"], ["Error 413: Payload Too Large"], "the errors of more than 1 MiB")
    equal(large["record"], {"id": 1, "small": "s"}, "what is left of its record")
    equal([column["name"] for column in large["columns"]], ["id", "body", "small", "edge", "nothing"], "its columns")
    equal((whole["errors"], len(whole["record"]["body"])), (None, 1_000_000), "errors and body just below the limit")
    equal((gone["type"], gone["old_record"]), ("DELETE", {"id": 1}), "the delete of a row that matched the filter")
    equal(last["record"]["id"], 4, "what comes next: what the filter does not match is not told of")


@scenario("the limit of 413 is the operator's choice", settings={"max_record_bytes": "16kB"}, tables=published("c_limit", "id int PRIMARY KEY, body text"))
async def own_record_limit(stage):
    peer = await stage.peer()
    await peer.subscribe("realtime:limit", binding("c_limit"))
    await stage.database.run("INSERT INTO c_limit VALUES (1, repeat('x', 20000)), (2, repeat('x', 10000))")
    one, two = [(await peer.change("realtime:limit")).data for _ in range(2)]
    equal((one["errors"], two["errors"]), (["Error 413: Payload Too Large"], None), "the errors of 20,000 and of 10,000 bytes")


@scenario("an unpublished table beside a published one: an error for the one, the other goes on", vsn=BOTH, tables=[
    *published("c_beside", "id int PRIMARY KEY"), "DROP TABLE IF EXISTS c_unpublished", "CREATE TABLE c_unpublished (id int PRIMARY KEY)"])  # fmt: skip
async def unpublished(stage, vsn):
    peer = await stage.peer(vsn)
    topic = "realtime:beside"
    reply = await peer.join(topic, {"postgres_changes": [binding("c_unpublished", "INSERT"), binding("c_beside")]})
    message = await peer.expect("an error", lambda m: m.event == "system" and m.status == "error")
    wanted = (
        "Unable to subscribe to changes with given parameters. Please check Realtime is enabled for the given connect "
        "parameters: [event: INSERT, schema: public, table: c_unpublished, filters: [], select: nil]"
    )
    said = message.payload["message"]
    equal(said[: len(wanted)], wanted, "the message about the unpublished table")
    contains(said[len(wanted) :], "c_unpublished", "which it is")
    await stage.database.run("DELETE FROM c_beside", "INSERT INTO c_unpublished VALUES (1) ON CONFLICT DO NOTHING", "INSERT INTO c_beside VALUES (1)")
    change = await peer.change(topic)
    equal((change.data["table"], change.payload["ids"]), ("c_beside", [reply.response["postgres_changes"][1]["id"]]), "table and ids")


@scenario("a table that comes into the publication later is heard of, one that leaves it is not", tables=[
    "DROP TABLE IF EXISTS c_later", "CREATE TABLE c_later (id int PRIMARY KEY)", *published("c_mark", "id serial PRIMARY KEY")])  # fmt: skip
async def publication_changes(stage):
    peer = await stage.peer()
    await peer.join("realtime:later", {"postgres_changes": [binding("c_later")]})
    equal((await peer.system("realtime:later")).status, "error", "the status before it is published")
    await stage.database.run("ALTER PUBLICATION supabase_realtime ADD TABLE c_later")
    # The reference looks once a minute.
    await peer.subscribed("realtime:later", limit=120)
    await peer.subscribe("realtime:mark", binding("c_mark"))
    await stage.database.run("INSERT INTO c_later VALUES (1)")
    first = (await peer.change("realtime:later")).data
    await stage.database.run("ALTER TABLE c_later ADD COLUMN v text DEFAULT 'd'", "INSERT INTO c_later VALUES (2)")
    second = (await peer.change("realtime:later")).data
    equal((first["record"], second["record"]), ({"id": 1}, {"id": 2, "v": "d"}), "the rows before and after a new column")
    await stage.database.run(
        "ALTER PUBLICATION supabase_realtime DROP TABLE c_later", "INSERT INTO c_later VALUES (3)",
        "INSERT INTO c_mark DEFAULT VALUES")
    await peer.change("realtime:mark")
    rest = [m.data["record"] for m in await peer.fence() if m.topic == "realtime:later" and m.event == "postgres_changes"]
    equal(rest, [], "what comes of a table that left the publication")


@scenario("a table made and published a moment ago can be joined at once")
async def brand_new(stage):
    await stage.database.run(*published("c_brand_new", "id int PRIMARY KEY"))
    peer = await stage.peer()
    await peer.subscribe("realtime:new", binding("c_brand_new"))
    await stage.database.run("INSERT INTO c_brand_new VALUES (1)")
    equal((await peer.change("realtime:new")).data["record"], {"id": 1}, "its first row")


@scenario("partitions are heard of by their own names", tables=[
    "DROP TABLE IF EXISTS c_parted CASCADE", "CREATE TABLE c_parted (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE c_parted_low PARTITION OF c_parted FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE c_parted_high PARTITION OF c_parted FOR VALUES FROM (10) TO (20)",
    "ALTER PUBLICATION supabase_realtime ADD TABLE c_parted"])  # fmt: skip
async def partitions(stage):
    peer = await stage.peer()
    await peer.subscribe("realtime:low", binding("c_parted_low"))
    await peer.subscribe("realtime:all", binding("*", "INSERT"))
    await stage.database.run("INSERT INTO c_parted VALUES (1, 'low'), (11, 'high'), (2, 'low')")
    came = [(await peer.change("realtime:low")).data for _ in range(2)]
    equal([(d["table"], d["record"]["id"]) for d in came], [("c_parted_low", 1), ("c_parted_low", 2)], "of one partition")
    came = [(await peer.change("realtime:all")).data for _ in range(3)]
    equal([d["table"] for d in came], ["c_parted_low", "c_parted_high", "c_parted_low"], "tables of all three")


@scenario("TRUNCATE, rolled back work and other tables make no event", vsn=BOTH, tables=[*published("c_quiet", "id int PRIMARY KEY"), *published("c_aside", "id int")])
async def no_events(stage, vsn):
    peer = await stage.peer(vsn)
    await peer.subscribe("realtime:quiet", binding("c_quiet", "INSERT"))
    await stage.database.run(
        "TRUNCATE c_quiet", "INSERT INTO c_quiet VALUES (1)", "TRUNCATE c_quiet", "BEGIN", "INSERT INTO c_quiet VALUES (2)",
        "ROLLBACK", "BEGIN", "SAVEPOINT s", "INSERT INTO c_quiet VALUES (3)", "ROLLBACK TO s", "COMMIT",
        "INSERT INTO c_aside VALUES (4)", "INSERT INTO c_quiet VALUES (5)", "DELETE FROM c_quiet", "INSERT INTO c_quiet VALUES (6)")  # fmt: skip
    came = [(await peer.change("realtime:quiet")).data["record"]["id"] for _ in range(3)]
    equal(came, [1, 5, 6], "the rows that were committed")


GUARDED = "id int PRIMARY KEY, owner uuid, v text"


def guarded_by(name, *policies):
    return published(
        name, GUARDED, f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY", *policies,
        f"GRANT SELECT ON {name} TO anon, authenticated, service_role")  # fmt: skip


async def two_users(stage, vsn, table, *events, sql):
    """What ana, ben, somebody without a policy and the service hear of this; all see the last row, an INSERT of 9."""
    peer = await stage.peer(vsn)
    tokens = {"ana": stage.ana, "ben": stage.ben, "anon": stage.anon, "service": stage.service}
    for name, token in tokens.items():
        await peer.subscribe(f"realtime:{name}", *(binding(table, event) for event in events), access_token=token)
    await stage.database.run(f"TRUNCATE {table}", *sql, f"INSERT INTO {table} (id) VALUES (9)")
    heard = {}
    for name in tokens:
        came = await peer.changes_until(f"realtime:{name}", lambda data: data["type"] == "INSERT" and data["record"]["id"] == 9)
        heard[name] = [(m.data["type"], m.data.get("record"), m.data.get("old_record")) for m in came]
    return heard


#: The last row is everybody's.
OWN_ROWS = "USING (owner = auth.uid() OR id = 9)"
STORY = (
    f"INSERT INTO {{0}} VALUES (1, '{ANA}', 'a'), (2, '{BEN}', 'b')", "UPDATE {0} SET v = v || '!'",
    f"UPDATE {{0}} SET owner = '{BEN}' WHERE id = 1", "DELETE FROM {0}")  # fmt: skip


def row(number, owner, v):
    return {"id": number, "owner": owner, "v": v}


@scenario("checklist 14: two users hear of the rows they may see, whole old rows of those they could see", vsn=BOTH, tables=guarded_by("c_guarded", f"CREATE POLICY own ON c_guarded FOR SELECT {OWN_ROWS}", "ALTER TABLE c_guarded REPLICA IDENTITY FULL"))
async def guarded(stage, vsn):
    heard = await two_users(stage, vsn, "c_guarded", "*", sql=[one.format("c_guarded") for one in STORY])
    first, second, moved = row(1, ANA, "a"), row(2, BEN, "b"), row(1, BEN, "a!")
    louder = [row(1, ANA, "a!"), row(2, BEN, "b!")]
    # Deletes come in the order in which the rows lie in the table.
    gone = [("DELETE", None, louder[1]), ("DELETE", None, moved)]
    equal(heard["ana"], [("INSERT", first, None), ("UPDATE", louder[0], first)], "what ana hears")
    equal(heard["ben"], [("INSERT", second, None), ("UPDATE", louder[1], second), ("UPDATE", moved, {}), *gone], "what ben hears")
    equal(heard["anon"], [], "what anon hears")
    equal(heard["service"], [
        ("INSERT", first, None), ("INSERT", second, None), ("UPDATE", louder[0], first), ("UPDATE", louder[1], second),
        ("UPDATE", moved, louder[0]), *gone], "what the service hears")  # fmt: skip


@scenario("without any policy for the role: subscribed, a warning that is no error, and no rows", vsn=BOTH, tables=guarded_by("c_sealed"))
async def sealed(stage, vsn):
    peer = await stage.peer(vsn)
    for topic, token in (("realtime:anon", stage.anon), ("realtime:ana", stage.ana)):
        await peer.subscribe(topic, binding("c_sealed"), access_token=token)
        said = await peer.warning(topic, "no policy lets role")
        true("Row level security is active on public.c_sealed" in said, "a warning that names the table", said)
    await peer.subscribe("realtime:service", binding("c_sealed"), access_token=stage.service)
    await stage.database.run("DELETE FROM c_sealed", "INSERT INTO c_sealed VALUES (1)", "UPDATE c_sealed SET id = 2", "INSERT INTO c_sealed VALUES (3)")
    await peer.changes_until("realtime:service", lambda data: data["type"] == "INSERT" and data["record"]["id"] == 3)
    leaked = [m for m in await peer.fence() if m.event == "postgres_changes" and m.topic != "realtime:service"]
    equal([str(m) for m in leaked], [], "what roles that do not bypass row level security hear")


#: Changes of definitions by which PostgreSQL cannot judge an earlier row any more, and how they are undone.
SHIFTS = [
    ("ALTER TABLE c_shifting ADD COLUMN more text DEFAULT 'x'", "ALTER TABLE c_shifting DROP COLUMN more"),
    ("ALTER TABLE c_shifting DROP COLUMN spare", "ALTER TABLE c_shifting ADD COLUMN spare int"),
    ("ALTER TABLE c_shifting RENAME COLUMN kind TO sort", "ALTER TABLE c_shifting RENAME COLUMN sort TO kind"),
    ("ALTER TABLE c_shifting RENAME TO c_shifted", "ALTER TABLE c_shifted RENAME TO c_shifting"),
    ("ALTER TYPE c_label RENAME VALUE 'a' TO 'z'", "ALTER TYPE c_label RENAME VALUE 'z' TO 'a'"),
    ("ALTER TYPE c_label RENAME TO c_labels", "ALTER TYPE c_labels RENAME TO c_label"),
    ("ALTER FUNCTION c_may_see RENAME TO c_might_see", "ALTER FUNCTION c_might_see RENAME TO c_may_see"),
    ("ALTER DOMAIN c_short ADD CONSTRAINT other CHECK (VALUE <> 'seen') NOT VALID", "ALTER DOMAIN c_short DROP CONSTRAINT other"),
]


SHIFTING = [
    "DROP TABLE IF EXISTS c_shifting CASCADE", "DROP TYPE IF EXISTS c_label CASCADE", "DROP DOMAIN IF EXISTS c_short CASCADE",
    "CREATE TYPE c_label AS ENUM ('a', 'b')", "CREATE DOMAIN c_short AS text",
    """CREATE OR REPLACE FUNCTION c_may_see(owner uuid, kind c_label) RETURNS boolean LANGUAGE plpgsql STABLE
        AS $$ BEGIN RETURN owner = auth.uid() OR kind = 'b'; END $$""",
    *published("c_shifting", "id int PRIMARY KEY, owner uuid, kind c_label, v c_short, spare int",
        "ALTER TABLE c_shifting REPLICA IDENTITY FULL", "ALTER TABLE c_shifting ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY seen ON c_shifting FOR SELECT USING (c_may_see(owner, kind))")]  # fmt: skip


class Shifted:
    """Two channels of one client, one of them with a filter, whose rows only PostgreSQL can judge."""

    topics = {"realtime:all": {}, "realtime:filtered": {"filter": "v=eq.seen"}}

    def __init__(self, stage, rows_may_be_late: bool = False):
        self.stage = stage
        self.rows_may_be_late = rows_may_be_late
        self.last = dict.fromkeys(self.topics, -1)

    async def subscribe(self):
        self.peer = await self.stage.peer()
        for topic, more in self.topics.items():
            await self.peer.subscribe(topic, binding("c_shifting", "INSERT", **more), access_token=self.stage.ana)

    async def heard(self, number: int, *sql: str) -> bool:
        """Whether both channels hear the row; who does not is told."""
        await self.stage.database.run(f"INSERT INTO c_shifting (id, owner, kind, v) VALUES ({number}, '{ANA}', 'a', 'seen')", *sql)
        if sql:
            os.kill(self.stage.hub.process_id, signal.SIGCONT)
        return all([await self._hears(topic, number) for topic in self.topics])

    async def _hears(self, topic: str, number: int) -> bool:
        """Whether the channel hears the row; otherwise it is told. Rows that it was told of may still come, each once and in order."""
        while True:
            came = await self.peer.expect(
                f"row {number} on {topic}, or word of its loss", lambda m: m.topic == topic and (
                    m.event == "postgres_changes" or m.event == "system" and says_of_loss(m.payload)))  # fmt: skip
            if came.event == "system":
                return False
            row = came.data["record"]["id"]
            true(self.last[topic] < row <= number if self.rows_may_be_late else row == number, f"row {number} only", row)
            self.last[topic] = row
            if row == number:
                return True

    async def are_heard_again(self, first: int, what: str) -> int:
        """The next number once rows are heard. The catalog may be read only a moment after a change."""
        for number in range(first, first + 20):
            if await self.heard(number):
                return number + 1
            await asyncio.sleep(1)
        raise AssertionError(f"rows are not heard again {what}")


@scenario("a row that PostgreSQL cannot judge any more, because definitions have changed since, is told of: with a filter, too", tables=SHIFTING)
async def shifting(stage):
    for place, (change, undo) in enumerate(SHIFTS):
        shifted = Shifted(stage)
        await shifted.subscribe()
        next = await shifted.are_heard_again(1000 * place, f"before {change}")
        os.kill(stage.hub.process_id, signal.SIGSTOP)
        await shifted.heard(next, change)
        await stage.database.run(undo)
        await shifted.peer.close()


@scenario("definitions that change and change back at any moment keep no row away in silence", tables=SHIFTING)
async def shifting_back(stage):
    dice = Random(int(os.environ.get("SEED", "1")))
    shifted = Shifted(stage, rows_may_be_late=True)
    await shifted.subscribe()
    next = await shifted.are_heard_again(0, "at the start")
    for _ in range(12):
        for change, undo in dice.sample(SHIFTS, 3):
            await stage.database.run(change)
            await asyncio.sleep(dice.choice([0, 0, 0.05, 0.3]))
            await stage.database.run(undo)
            await shifted.heard(next)
            next += 1
    await shifted.are_heard_again(next, "at the end")


@scenario("changes come in the order of commits, each once, to every channel", vsn=BOTH, tables=published("c_order", "n int PRIMARY KEY, batch int"))
async def order(stage, vsn):
    peers = [await stage.peer(vsn) for _ in range(5)]
    for number, peer in enumerate(peers):
        await peer.subscribe("realtime:order", binding("c_order", "INSERT"))
        await peer.subscribe(f"realtime:order-{number}", binding("c_order", "INSERT", filter=f"batch=eq.{number}"))
    await stage.database.run("TRUNCATE c_order")
    for batch in range(20):
        await stage.database.run(f"INSERT INTO c_order SELECT {batch} * 50 + i, {batch} FROM generate_series(0, 49) i")
    for number, peer in enumerate(peers):
        came = [(await peer.change("realtime:order")).data["record"]["n"] for _ in range(1000)]
        equal(came, list(range(1000)), "the numbers in order")
        came = [(await peer.change(f"realtime:order-{number}")).data["record"]["n"] for _ in range(50)]
        equal(came, list(range(number * 50, number * 50 + 50)), "the numbers of one batch in order")
        equal([str(m) for m in await peer.fence()], [], "what comes a second time")


@scenario("changes from before a subscription are not delivered", tables=published("c_before", "id int PRIMARY KEY"))
async def before(stage):
    peer = await stage.peer()
    await peer.subscribe("realtime:first", binding("c_before"))
    await stage.database.run("INSERT INTO c_before SELECT generate_series(1, 100)")
    for _ in range(100):
        await peer.change("realtime:first")
    await peer.subscribe("realtime:second", binding("c_before"))
    await stage.database.run("INSERT INTO c_before VALUES (101)")
    equal((await peer.change("realtime:second")).data["record"], {"id": 101}, "the first row the second channel hears of")
