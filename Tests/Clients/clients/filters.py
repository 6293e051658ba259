"""One table of many types, its rows, and filters with the condition of SQL that says what they mean.

PostgreSQL is the oracle: a filter must deliver exactly the rows for which its condition is true.
"""

from .scenario import published

COLUMNS = """
    id int PRIMARY KEY, small int2, big int8, amount numeric, ratio float8, flag bool, name text, code varchar(20),
    fixed char(5), owner uuid, born date, at timestamp, atz timestamptz, hour time, mood c_mood, tags text[],
    nums int[], doc jsonb, span int4range, addr inet, wait interval
"""

ROWS = """
INSERT INTO {table} VALUES
 (1, -1, 9007199254740993, 1.50, 0.1, true, 'milk', 'A-1', 'ab', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2026-03-01',
  '2026-03-01 10:20:30.5', '2026-03-01 10:20:30.5+00', '03:04:05', 'sad', '{{a,b}}', '{{1,2}}', '{{"k": 1, "l": [1, 2]}}',
  '[1,10)', '10.0.0.1', '1 day'),
 (2, 0, -9223372036854775808, 1.5, -1e300, false, 'Oat milk', 'a-2', 'abc', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12', '1999-12-31',
  'infinity', '2026-03-01 12:20:30.5+02', '00:00', 'ok', '{{}}', '{{3}}', '{{"k": "1"}}', 'empty', '10.0.0.0/8', '24 hours'),
 (3, 32767, 9223372036854775807, 'NaN', 'NaN', NULL, '', '', '', '00000000-0000-0000-0000-000000000000', '0044-03-15 BC',
  '-infinity', '-infinity', '24:00', 'happy', '{{"a,b",NULL}}', '{{NULL}}', 'null', '[5,5]', '::1', '-1 mon'),
 (4, 7, 7, 12345678901234567890.123, 'Infinity', true, 'a, b', '100%', 'x"y', NULL, NULL, NULL, NULL, NULL, NULL, NULL,
  NULL, NULL, NULL, NULL, NULL),
 (5, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
 (6, 100, 0, -0.000, 0, false, 'say "hi"', 'a.b=c', 'é', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'infinity',
  '2026-03-01 00:00', '2026-02-28 23:59:59.999999-10', '12:00:00.000001', 'ok', '{{null,a}}', '{{1,2,3}}', '[1, {{"k": 1}}]',
  '(,3)', '10.0.0.2', '00:00:01'),
 (7, 7, 10, 10, 1e-7, true, 'straße\\(x)', 'B_1', 'AB', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A13', '2026-03-02',
  '2026-03-01 10:20:30.499999', '2026-12-31 23:59:60+00', '03:04:05.5', 'sad', '{{b}}', '{{2,1}}', '{{"k": 1.0, "m": null}}',
  '[9,)', '192.168.0.1', '90 min')
"""

#: (filter, condition of SQL). What a client types on the left, what PostgreSQL makes of it on the right.
FILTERS = [
    # Every operator on a number, and negated.
    *((f"small={op}.7", f"small {sql} 7") for op, sql in
      (("eq", "="), ("neq", "<>"), ("lt", "<"), ("lte", "<="), ("gt", ">"), ("gte", ">="))),
    *((f"small=not.{op}.7", f"NOT small {sql} 7") for op, sql in
      (("eq", "="), ("neq", "<>"), ("lt", "<"), ("lte", "<="), ("gt", ">"), ("gte", ">="))),
    ("small=in.(7,0,-1)", "small IN (7, 0, -1)"),
    ("small=not.in.(7,0)", "NOT small IN (7, 0)"),
    ("small=not.in.(7,NULL)", "NOT small = ANY ('{7,NULL}')"),
    ("small=isdistinct.7", "small IS DISTINCT FROM 7"),
    ("small=not.isdistinct.7", "small IS NOT DISTINCT FROM 7"),
    ("small=is.null", "small IS NULL"),
    ("small=not.is.null", "small IS NOT NULL"),
    ("small=eq. 7 ", "small = 7"),
    # Numbers of every kind, by value.
    ("big=eq.9007199254740993", "big = 9007199254740993"),
    ("big=eq.9007199254740992", "big = 9007199254740992"),
    ("big=lt.0", "big < 0"),
    ("big=gte.9223372036854775807", "big >= 9223372036854775807"),
    ("amount=eq.1.5", "amount = 1.5"),
    ("amount=eq.1.500", "amount = 1.5"),
    ("amount=eq.0", "amount = 0"),
    ("amount=eq.NaN", "amount = 'NaN'"),
    ("amount=gt.12345678901234567890.122", "amount > 12345678901234567890.122"),
    ("amount=eq.1e1", "amount = 10"),
    ("amount=in.(1.50,10.0)", "amount IN (1.50, 10.0)"),
    ("ratio=eq.0.1", "ratio = 0.1"),
    ("ratio=eq.1e-7", "ratio = 1e-7"),
    ("ratio=gt.1e308", "ratio > 1e308"),
    ("ratio=eq.NaN", "ratio = 'NaN'"),
    ("ratio=lt.-0", "ratio < 0"),
    # Booleans.
    ("flag=eq.true", "flag"),
    ("flag=eq.f", "NOT flag"),
    ("flag=is.true", "flag IS TRUE"),
    ("flag=is.false", "flag IS FALSE"),
    ("flag=is.unknown", "flag IS UNKNOWN"),
    ("flag=not.is.true", "flag IS NOT TRUE"),
    ("flag=not.is.unknown", "flag IS NOT UNKNOWN"),
    ("flag=neq.true", "flag <> true"),
    # Text: quotes, dots, commas, order, patterns.
    ("name=eq.milk", "name = 'milk'"),
    ("name=eq.", "name = ''"),
    ('name=eq."a, b"', "name = 'a, b'"),
    ('name=eq."say \\"hi\\""', "name = 'say \"hi\"'"),
    ('name=eq."milk"x', "name = '\"milk\"x'"),
    ("name=eq.null", "name = 'null'"),
    ("name=isdistinct.null", "name IS DISTINCT FROM 'null'"),
    ("name=gt.a", "name > 'a'"),
    ("name=lt.a", "name < 'a'"),
    ("name=like.%milk", "name LIKE '%milk'"),
    ("name=like._ilk", "name LIKE '_ilk'"),
    ("name=ilike.OAT%", "name ILIKE 'OAT%'"),
    ("name=ilike.%STRA%", "name ILIKE '%STRA%'"),
    ("name=not.like.%i%", "NOT name LIKE '%i%'"),
    ("name=match.^.{4}$", "name ~ '^.{4}$'"),
    ('name=match."^(milk|a, b)$"', "name ~ '^(milk|a, b)$'"),
    ("name=imatch.MILK$", "name ~* 'MILK$'"),
    ("name=not.match.i", "NOT name ~ 'i'"),
    ("name=not.imatch.O", "NOT name ~* 'O'"),
    ('name=in.(milk,"a, b")', "name IN ('milk', 'a, b')"),
    ('name=in.("",milk)', "name IN ('', 'milk')"),
    ("name=in.()", "false"),
    ("code=eq.a.b=c", "code = 'a.b=c'"),
    ("code=eq.100%", "code = '100%'"),
    ("code=like.a%", "code LIKE 'a%'"),
    ("code=like.100\\%", "code LIKE '100\\%'"),
    ("code=like.B\\_1", "code LIKE 'B\\_1'"),
    ("code=in.(A-1,a-2)", "code IN ('A-1', 'a-2')"),
    ("fixed=eq.ab", "fixed = 'ab'"),
    ("fixed=eq.é", "fixed = 'é'"),
    # UUIDs in any case.
    ("owner=eq.A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "owner = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"),
    ("owner=eq.{a0eebc999c0b4ef8bb6d6bb9bd380a13}", "owner = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a13'"),
    ("owner=neq.A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A12", "owner <> 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12'"),
    ("owner=gt.a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "owner > 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"),
    ("owner=in.(FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF,00000000-0000-0000-0000-000000000000)",
     "owner IN ('ffffffff-ffff-ffff-ffff-ffffffffffff', '00000000-0000-0000-0000-000000000000')"),
    ("owner=is.null", "owner IS NULL"),
    # Times as instants.
    ("born=eq.2026-03-01", "born = '2026-03-01'"),
    ("born=lt.0001-01-01", "born < '0001-01-01'"),
    ("born=gte.2026-03-02", "born >= '2026-03-02'"),
    ("born=eq.infinity", "born = 'infinity'"),
    ("at=eq.2026-03-01T10:20:30.5", "at = '2026-03-01 10:20:30.5'"),
    ("at=lt.2026-03-01 10:20:30.5", "at < '2026-03-01 10:20:30.5'"),
    ("at=eq.infinity", "at = 'infinity'"),
    ("atz=eq.2026-03-01T10:20:30.5Z", "atz = '2026-03-01 10:20:30.5+00'"),
    ("atz=eq.2026-03-01T12:20:30.500+02:00", "atz = '2026-03-01 10:20:30.5+00'"),
    ("atz=gt.2026-03-01T10:20:30.500Z", "atz > '2026-03-01 10:20:30.5+00'"),
    ("atz=lt.2026-03-01T00:00:00-10:00", "atz < '2026-03-01 00:00:00-10'"),
    ("hour=gt.03:04:05", "hour > '03:04:05'"),
    ("hour=eq.24:00", "hour = '24:00'"),
    ("wait=eq.1 day", "wait = '1 day'"),
    ("wait=gt.01:00:00", "wait > '1 hour'"),
    # An enum in its own order.
    ("mood=eq.ok", "mood = 'ok'"),
    ("mood=gt.sad", "mood > 'sad'"),
    ("mood=lte.ok", "mood <= 'ok'"),
    ("mood=in.(sad,happy)", "mood IN ('sad', 'happy')"),
    ("mood=not.in.(sad)", "NOT mood IN ('sad')"),
    ("addr=eq.10.0.0.1", "addr = '10.0.0.1'"),
    ("addr=lt.10.0.0.2", "addr < '10.0.0.2'"),
    # Several conditions, all of which count.
    ("small=gt.0, flag=is.true", "small > 0 AND flag IS TRUE"),
    (" id=gte.2 ,id=lte.6,small=not.is.null ", "id BETWEEN 2 AND 6 AND small IS NOT NULL"),
    ('name=neq."a, b",code=in.(A-1,a-2,"a.b=c")', "name <> 'a, b' AND code IN ('A-1', 'a-2', 'a.b=c')"),
]  # fmt: skip

#: Beyond the reference: alternatives, nesting, containment, ranges, long lists.
FURTHER = [
    ("or=(small.eq.7,name.eq.milk)", "small = 7 OR name = 'milk'"),
    ("or=(id.lt.2,id.gt.6)", "id < 2 OR id > 6"),
    ("and=(id.gt.1,id.lt.4)", "id > 1 AND id < 4"),
    ("or=(id.eq.1,and(id.gt.2,id.lt.5))", "id = 1 OR (id > 2 AND id < 5)"),
    ("and=(flag.is.true,or(small.lt.0,small.eq.7))", "flag IS TRUE AND (small < 0 OR small = 7)"),
    ("or=(id.eq.1,and(flag.is.true,or(small.eq.7,small.eq.9)))", "id = 1 OR (flag IS TRUE AND (small = 7 OR small = 9))"),
    ("not.or=(id.eq.1,small.eq.7)", "NOT (id = 1 OR small = 7)"),
    ("not.and=(id.gt.2,id.lt.5)", "NOT (id > 2 AND id < 5)"),
    ("or=(id.eq.1,not.and(id.gt.2,id.lt.5))", "id = 1 OR NOT (id > 2 AND id < 5)"),
    ("or=(small.not.eq.7,flag.is.null)", "NOT small = 7 OR flag IS NULL"),
    ("or=(name.in.(milk,\"a, b\"),code.like.B%)", "name IN ('milk', 'a, b') OR code LIKE 'B%'"),
    ("flag=is.true,or=(small.eq.7,name.eq.milk)", "flag AND (small = 7 OR name = 'milk')"),
    ("or=(owner.is.null,owner.eq.A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11)",
     "owner IS NULL OR owner = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"),
    ("tags=cs.{a}", "tags @> '{a}'"),
    ('tags=cs."{a,b}"', "tags @> '{a,b}'"),
    ('tags=cd."{a,b,c}"', "tags <@ '{a,b,c}'"),
    ('tags=ov."{b,z}"', "tags && '{b,z}'"),
    ("tags=not.ov.{b}", "NOT tags && '{b}'"),
    ('nums=cs."{1,2}"', "nums @> '{1,2}'"),
    ("nums=eq.{3}", "nums = '{3}'"),
    ('nums=cd."{1,2}"', "nums <@ '{1,2}'"),
    ('doc=cs.{"k":1}', "doc @> '{\"k\": 1}'"),
    ('doc=cs."{\\"k\\":1,\\"l\\":[2]}"', "doc @> '{\"k\": 1, \"l\": [2]}'"),
    ('doc=cd."{\\"k\\":\\"1\\",\\"z\\":0}"', "doc <@ '{\"k\": \"1\", \"z\": 0}'"),
    ('span=cs."[5,7)"', "span @> '[5,7)'::int4range"),
    ('span=cd."[0,20)"', "span <@ '[0,20)'::int4range"),
    ('span=ov."[4,6)"', "span && '[4,6)'::int4range"),
    (f"id=in.({','.join(str(n * 2) for n in range(250))})", "id % 2 = 0 AND id < 500"),
]  # fmt: skip


def tables(name: str) -> list[str]:
    return [
        f"DROP TABLE IF EXISTS {name} CASCADE",
        "DO $$ BEGIN CREATE TYPE c_mood AS ENUM ('sad', 'ok', 'happy'); EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        *published(name, COLUMNS, f"ALTER TABLE {name} REPLICA IDENTITY FULL"),
    ]


def rows(name: str) -> str:
    return ROWS.format(table=name)


async def wanted(database, table: str, filters) -> dict[str, list[int]]:
    """For each filter the rows that PostgreSQL says it is true for."""
    select = "SELECT coalesce(string_agg(id::text, ',' ORDER BY id), '') FROM {} WHERE {}"
    found = {}
    for text, condition in filters:
        ids = await database.run(select.format(table, condition))
        found[text] = [int(one) for one in ids.split(",") if one]
    return found


#: (filter, which of the changes below it matches: the number of each in their order)
EVENTS = [
    ("changed=v", [1, 2, 3, 5]), ("changed=not.v", [4]), ("changed=in.(v,w)", [1, 2, 3, 4, 5]), ("changed=id", [1, 2, 5]),
    ("old.v=eq.a", [3]), ("old.v=eq.b", [4, 5]), ("old.v=not.eq.a", [4, 5]), ("old.w=is.null", [3, 4]), ("old.v=eq.a,v=eq.b", [3]),
    ("or=(old.v.eq.a,w.eq.x)", [3, 4, 5]), ("not.or=(old.v.eq.a,changed.v)", [4]), ("and=(changed.not.v,old.w.is.null)", [4]),
]  # fmt: skip


def event_table(table: str, identity: str) -> list[str]:
    return published(table, "id int PRIMARY KEY, v text, w text", f"ALTER TABLE {table} REPLICA IDENTITY {identity}")


def event_statements(table: str) -> list[str]:
    """Five changes, which `EVENTS` numbers from one."""
    return [
        f"INSERT INTO {table} VALUES (1, 'a'), (2, 'z')", f"UPDATE {table} SET v = 'b' WHERE id = 1",
        f"UPDATE {table} SET w = 'x' WHERE id = 1", f"DELETE FROM {table} WHERE id = 1",
    ]  # fmt: skip
