"""Expense sync: the devices of one person; six tables on one channel, all with the filter owner_id=eq.<user>."""

from clients.expect import equal
from clients.people import ANA, BEN, device, of, somebody
from clients.scenario import application, scenario
from clients.supabase import SupabaseClients

APPLICATION = application("expense_sync")
TABLES = ("financial_transactions", "settlements", "chat_messages", "reminders", "subscriptions", "subscription_reminders")
NAMES = {ANA: "ana", BEN: "ben"}


def brief(item):
    return (*of(item), *(told(item[part]) for part in ("record", "old_record") if part in item))


def told(record):
    if not record:
        return "nothing"
    if set(record) == {"id"}:
        return "its id"
    return f"{NAMES[record['owner_id']]} {record.get('title') or record.get('note')} {record['amount']:g}"


def last(item):
    return item["table"] == "reminders"


async def fence(database, *people):
    """A row that everybody of these must hear."""
    for who in people:
        await database.run(f"INSERT INTO reminders (owner_id, message) VALUES ('{who}', 'last')")


def spends(who, title, amount):
    return f"INSERT INTO financial_transactions (owner_id, title, amount) VALUES ('{who}', '{title}', {amount})"


def settles(who, note, amount):
    return f"INSERT INTO settlements (owner_id, counterparty_id, note, amount) VALUES ('{who}', gen_random_uuid(), '{note}', {amount})"


async def everything(supabase, name, token, who, more=()):
    one = await device(supabase, name, token, f"user-sync-{who}")
    for table in TABLES:
        one.on("*", table, filter=f"owner_id=eq.{who}")
    for table, owner in more:
        one.on("*", table, filter=f"owner_id=eq.{owner}")
    return await one.ready()


async def emptied(stage):
    await stage.database.run(f"TRUNCATE {', '.join(TABLES)}")


@scenario("all devices of a person hear what is theirs, and somebody else's filter shows nothing", tables=APPLICATION)
async def devices(stage):
    database = stage.database
    await emptied(stage)
    async with SupabaseClients(stage) as supabase:
        ana, ben = somebody(stage, ANA), somebody(stage, BEN)
        phone, tablet = [await everything(supabase, name, ana, ANA) for name in ("ana's phone", "ana's tablet")]
        # Ben asks for ana's expenses, too: the filter is his own word.
        curious = await everything(supabase, "ben", ben, BEN, more=[("financial_transactions", ANA)])
        await database.run(
            spends(ANA, "coffee", 3.5), spends(BEN, "tea", 2), "UPDATE financial_transactions SET amount = amount + 1",
            # It turns out to be ben's.
            f"UPDATE financial_transactions SET owner_id = '{BEN}' WHERE title = 'coffee'",
            "DELETE FROM financial_transactions WHERE title = 'tea'")
        await database.run(
            f"WITH s AS (INSERT INTO subscriptions (owner_id, name, amount) VALUES ('{ANA}', 'music', 9) RETURNING id) "
            f"INSERT INTO subscription_reminders (owner_id, subscription_id, message) SELECT '{ANA}', id, 'soon' FROM s",
            f"INSERT INTO chat_messages (owner_id, conversation_id, sender_id, body) VALUES ('{ANA}', gen_random_uuid(), '{BEN}', 'hi')")
        await fence(database, ANA, BEN)
        table = "financial_transactions"
        for one in (phone, tablet):
            came = await one.heard_until(last)
            equal([brief(item) for item in came[:2]], [("INSERT", table, "ana coffee 3.5"), ("UPDATE", table, "ana coffee 4.5", "ana coffee 3.5")], f"what {one.name} hears of the coffee")
            others = [("INSERT", "subscriptions"), ("INSERT", "subscription_reminders"), ("INSERT", "chat_messages")]
            equal(sorted(of(item) for item in came[2:]), sorted(others), f"what else {one.name} hears")
        wanted = [("INSERT", table, "ben tea 2"), ("UPDATE", table, "ben tea 3", "ben tea 2"),
                  # The old row was not his to see.
                  ("UPDATE", table, "ben coffee 4.5", "nothing"), ("DELETE", table, "ben tea 3")]  # fmt: skip
        await curious.hears(wanted, last, brief, "of all that")


@scenario("settlements are heard with a second factor only (restrictive, aal2), from the moment it is given", tables=APPLICATION)
async def second_factor(stage):
    database = stage.database
    await emptied(stage)
    async with SupabaseClients(stage) as supabase:
        weak, strong = somebody(stage, ANA, aal="aal1"), somebody(stage, ANA, aal="aal2")
        phone, tablet = await everything(supabase, "the phone", weak, ANA), await everything(supabase, "the tablet", strong, ANA)
        ben = await everything(supabase, "ben", somebody(stage, BEN, aal="aal2"), BEN, more=[("settlements", ANA)])
        await database.run(settles(ANA, "rent", 500), spends(ANA, "coffee", 3))
        await fence(database, ANA, BEN)
        coffee, rent = ("INSERT", "financial_transactions", "ana coffee 3"), ("INSERT", "settlements", "ana rent 500")
        await phone.hears([coffee], last, brief, "with one factor")
        await tablet.hears([rent, coffee], last, brief, "with two factors")
        await ben.hears([], last, brief, "of ana's settlements")
        await phone.becomes(strong)
        await tablet.becomes(weak)
        await database.run("UPDATE settlements SET amount = 600", "DELETE FROM settlements")
        await fence(database, ANA)
        raised = ("UPDATE", "settlements", "ana rent 600", "ana rent 500")
        await phone.hears([raised, ("DELETE", "settlements", "ana rent 600")], last, brief, "after the second factor")
        await tablet.hears([], last, brief, "without the second factor")


@scenario("some columns only: the policy is about one that was not asked for", tables=APPLICATION)
async def some_columns(stage):
    database = stage.database
    await emptied(stage)
    async with SupabaseClients(stage) as supabase:
        people = []
        for name, who in (("ana", ANA), ("ben", BEN)):
            one = (await device(supabase, name, somebody(stage, who))).on("*", "financial_transactions", select=["title"])
            people.append(await one.on("INSERT", "reminders").ready())
        await database.run(
            spends(ANA, "coffee", 3), spends(BEN, "tea", 2), "UPDATE financial_transactions SET title = title || '!'",
            "DELETE FROM financial_transactions")  # fmt: skip
        await fence(database, ANA, BEN)
        for one, title in zip(people, ("coffee", "tea")):
            came = await one.heard_until(last)
            equal([of(item)[0] for item in came], ["INSERT", "UPDATE", "DELETE"], f"what {one.name} hears")
            equal([sorted(item["record"]) for item in came[:2]], [["id", "title"]] * 2, "the columns")
            equal(came[1]["record"]["title"], title + "!", "the title")
            equal({key: value for key, value in came[2]["old_record"].items() if key != "id"}, {"title": title + "!"}, "the old row")
