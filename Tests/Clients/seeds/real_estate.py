"""Real-estate operations: an office that shares its work, as long as one belongs to it; what only PostgreSQL can decide."""

from clients.expect import equal
from clients.people import ANA, BEN, CLEO, device, of, somebody
from clients.scenario import application, scenario
from clients.supabase import SupabaseClients

APPLICATION = application("real_estate")
PEOPLE = {"ana": ANA, "ben": BEN, "cleo": CLEO}
TABLES = ("staff", "listings", "listing_notes", "activities", "agent_tasks", "listing_acknowledgments")


def brief(item):
    record = item.get("record") or item["old_record"]
    return (*of(item), next(str(record[name]) for name in ("title", "content", "name", "address", "acknowledged_from", "id") if name in record))


def last(item):
    """Everybody always sees themselves in the table of staff."""
    return item["table"] == "staff" and item["record"]["skills"] == ["last"]


async def emptied(stage):
    """Ana and ben work in operations; cleo is not active."""
    database = stage.database
    await database.run(f"TRUNCATE {', '.join(TABLES)}")
    await database.run(
        *(f"INSERT INTO staff (id, name, job, is_active) VALUES ('{who}', '{name}', 'operations', {name != 'cleo'})" for name, who in PEOPLE.items()),
        "INSERT INTO listings (id, address) VALUES ('lst_1', 'Old Quay')")  # fmt: skip


async def everybody(stage, supabase, *bindings, claims=None):
    people = {}
    for name, who in PEOPLE.items():
        one = await device(supabase, name, somebody(stage, who, **(claims or {}).get(name, {})), "office")
        for event, table, more in bindings:
            one.on(event, table, **more)
        people[name] = await one.on("UPDATE", "staff", filter=f"id=eq.{who}").ready()
    # What was written just before may still be on its way, and is nothing to judge anybody by.
    await heard(stage, people)
    return people


async def hear(stage, people, when, **wanted):
    for name, came in (await heard(stage, people)).items():
        equal(came, wanted.get(name, []), f"what {name} hears {when}")


async def heard(stage, people) -> dict:
    """What each heard up to their last row, which is not what this is about."""
    for name in people:
        await stage.database.run(
            f"UPDATE staff SET skills = '{{last}}' WHERE id = '{PEOPLE[name]}'", f"UPDATE staff SET skills = '{{}}' WHERE id = '{PEOPLE[name]}'")
    return {name: [brief(item) for item in await one.heard_until(last) if item["table"] != "staff"] for name, one in people.items()}


def insert(table, **values):
    return f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join(repr(value) for value in values.values())})"


@scenario("the office's work is heard by whoever is active, with filters, from and up to the moment of the change", tables=APPLICATION)
async def office(stage):
    database = stage.database
    await emptied(stage)
    async with SupabaseClients(stage) as supabase:
        people = await everybody(stage, supabase, ("*", "agent_tasks", {"filter": "status=eq.OPEN"}), ("*", "listings", {}))
        await database.run(
            insert("agent_tasks", id="t1", title="sign"), insert("agent_tasks", id="t2", title="done", status="DONE"),
            "UPDATE agent_tasks SET status = 'CLAIMED' WHERE id = 't1'", "UPDATE agent_tasks SET status = 'OPEN', title = 'again' WHERE id = 't2'",
            "DELETE FROM agent_tasks", "UPDATE listings SET address = 'New Quay'")
        seen = [("INSERT", "agent_tasks", "sign"), ("UPDATE", "agent_tasks", "again"), ("DELETE", "agent_tasks", "again"), ("UPDATE", "listings", "New Quay")]
        await hear(stage, people, "as the office is", ana=seen, ben=seen)
        await database.run(f"UPDATE staff SET is_active = false WHERE id = '{BEN}'", f"UPDATE staff SET is_active = true WHERE id = '{CLEO}'")
        await database.run(insert("agent_tasks", id="t3", title="keys"), "DELETE FROM agent_tasks")
        seen = [("INSERT", "agent_tasks", "keys"), ("DELETE", "agent_tasks", "keys")]
        await hear(stage, people, "when ben has left and cleo come", ana=seen, cleo=seen)
        await database.run(f"DELETE FROM staff WHERE id = '{ANA}'")
        await database.run(insert("agent_tasks", id="t4", title="sign"))
        people.pop("ana")
        await hear(stage, people, "when ana is no longer known", cleo=[("INSERT", "agent_tasks", "sign")])


@scenario("private notes are their author's (restrictive), and who may see a row changes with it", tables=APPLICATION)
async def notes(stage):
    database = stage.database
    await emptied(stage)
    async with SupabaseClients(stage) as supabase:
        people = await everybody(stage, supabase, ("*", "listing_notes", {}))
        await database.run(
            insert("listing_notes", listing_id="lst_1", id="n1", content="open", created_by=ANA),
            f"INSERT INTO listing_notes (listing_id, id, content, created_by, is_private) VALUES ('lst_1', 'n2', 'secret', '{ANA}', true)",
            "UPDATE listing_notes SET content = content || '!'", "UPDATE listing_notes SET is_private = NOT is_private",
            "DELETE FROM listing_notes")
        note = "listing_notes"
        shared = [("INSERT", note, "open"), ("UPDATE", note, "open!")]
        # The open one became private and the private one open.
        of_ana = [("INSERT", note, "open"), ("INSERT", note, "secret"), ("UPDATE", note, "open!"), ("UPDATE", note, "secret!"),
                  ("UPDATE", note, "open!"), ("UPDATE", note, "secret!"), ("DELETE", note, "open!"), ("DELETE", note, "secret!")]  # fmt: skip
        await hear(stage, people, "of notes", ana=of_ana, ben=shared + [("UPDATE", note, "secret!"), ("DELETE", note, "secret!")])


@scenario("what a function in PL/pgSQL says is asked of PostgreSQL: each hears the work of their job", tables=APPLICATION)
async def jobs(stage):
    database = stage.database
    await emptied(stage)
    await database.run(f"UPDATE staff SET job = 'marketing', is_active = true WHERE id = '{CLEO}'")
    async with SupabaseClients(stage) as supabase:
        people = await everybody(stage, supabase, ("*", "activities", {}), ("INSERT", "agent_tasks", {}))
        await database.run(
            insert("activities", listing_id="lst_1", name="photos", task_category="marketing"),
            insert("agent_tasks", id="t1", title="between"),
            insert("activities", listing_id="lst_1", name="keys", task_category="operations"),
            "INSERT INTO activities (listing_id, name) VALUES ('lst_1', 'anybody')",
            # It moves from one job to the other.
            "UPDATE activities SET task_category = 'operations' WHERE name = 'photos'",
            "DELETE FROM activities WHERE name = 'photos'")
        work, between, anybody = "activities", ("INSERT", "agent_tasks", "between"), ("INSERT", "activities", "anybody")
        moved = [("UPDATE", work, "photos"), ("DELETE", work, "photos")]
        operations = [between, ("INSERT", work, "keys"), anybody, *moved]
        await hear(stage, people, "by job", ana=operations, ben=operations, cleo=[("INSERT", work, "photos"), between, anybody])
        await database.run(f"UPDATE staff SET job = 'admin' WHERE id = '{BEN}'", f"UPDATE staff SET is_active = false WHERE id = '{ANA}'")
        # By what PostgreSQL says when it is asked: after this change, as it is committed before the rows.
        await database.run(
            insert("activities", listing_id="lst_1", name="more photos", task_category="marketing"),
            insert("activities", listing_id="lst_1", name="more keys", task_category="operations"))
        photos, keys = ("INSERT", work, "more photos"), ("INSERT", work, "more keys")
        await hear(stage, people, "by their new jobs", ben=[photos, keys], cleo=[photos])


@scenario("an administrator is known by a claim alone (app_metadata), as long as the token says so", tables=APPLICATION)
async def administrators(stage):
    database = stage.database
    await emptied(stage)
    admin = {"app_metadata": {"office_role": "admin"}}
    async with SupabaseClients(stage) as supabase:
        people = await everybody(
            stage, supabase, ("*", "listing_acknowledgments", {}),
            # What users may write themselves counts for nothing.
            claims={"ben": admin, "cleo": {"user_metadata": {"office_role": "admin"}}})
        ack = "listing_acknowledgments"

        def acknowledges(who, where):
            return insert(ack, listing_id="lst_1", staff_id=who, acknowledged_from=where)

        await database.run(acknowledges(ANA, "mobile"), acknowledges(BEN, "web"), acknowledges(CLEO, "notification"))
        mobile, web, notification = [("INSERT", ack, one) for one in ("mobile", "web", "notification")]
        await hear(stage, people, "of acknowledgments", ana=[mobile], ben=[mobile, web, notification], cleo=[notification])
        await people["ben"].becomes(somebody(stage, BEN))
        await people["ana"].becomes(somebody(stage, ANA, **admin))
        await database.run(f"DELETE FROM {ack}")
        mobile, web, notification = [("DELETE", ack, one) for one in ("mobile", "web", "notification")]
        await hear(stage, people, "after the claim went from ben to ana", ana=[mobile, web, notification], ben=[web], cleo=[notification])
