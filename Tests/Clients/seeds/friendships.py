"""Friendships: both sides of a request hear of it, of the answer and of its end, without a filter; nobody else does."""

from clients.expect import equal
from clients.people import ANA, BEN, CLEO, DORA, device, of, somebody
from clients.peer import binding
from clients.scenario import application, scenario
from clients.supabase import SupabaseClients

APPLICATION = application("friendships")
NAMES = {ANA: "ana", BEN: "ben", CLEO: "cleo", DORA: "dora"}


def brief(item):
    """Who asked whom, and how it stands, as the record and the old record say it."""
    return (of(item)[0], *(told(item[part]) for part in ("record", "old_record") if part in item))


def told(record):
    if not record:
        return "nothing"
    if set(record) == {"id"}:
        return "its id"
    return f"{NAMES[record['requester_id']]} {NAMES[record['addressee_id']]} {record['status']}"


def last(*people):
    """The row of these two that is written last."""
    return lambda item: item.get("record", {}).get("message") == "last" and told(item["record"]).split()[:2] == list(people)


async def ask(database, requester, addressee, message=""):
    await database.run(
        f"INSERT INTO friendships (requester_id, addressee_id, message) VALUES ('{requester}', '{addressee}', '{message}')")


@scenario("both sides hear of a request, of the answer and of the end, and nobody else", tables=APPLICATION)
async def both_sides(stage):
    database = stage.database
    await database.run("TRUNCATE friendships")
    async with SupabaseClients(stage) as supabase:
        people = {}
        for name, who in (("ana", ANA), ("ben", BEN), ("cleo", CLEO)):
            # Everybody's channel has the same name, as in the application.
            people[name] = await (await device(supabase, name, somebody(stage, who), "public:friendships")).on("*", "friendships").ready()
        anon = await (await device(supabase, "nobody", stage.anon, "public:friendships")).on("*", "friendships").ready()
        await anon.channel.warning("no policy lets role anon SELECT")
        await ask(database, ANA, BEN)
        await database.run("UPDATE friendships SET status = 'accepted'", "DELETE FROM friendships")
        await ask(database, BEN, CLEO)
        await database.run("DELETE FROM friendships")
        await ask(database, ANA, DORA, "last")
        await ask(database, BEN, DORA, "last")
        await ask(database, CLEO, DORA, "last")
        story = [("INSERT", "ana ben pending"), ("UPDATE", "ana ben accepted", "ana ben pending"), ("DELETE", "ana ben accepted")]
        other = [("INSERT", "ben cleo pending"), ("DELETE", "ben cleo pending")]
        await people["ana"].hears(story, last("ana", "dora"), brief, "of her own")
        await people["ben"].hears(story + other, last("ben", "dora"), brief, "of both")
        await people["cleo"].hears(other, last("cleo", "dora"), brief, "of his own")
        # Who is on no side at all: a policy of her own lets the last row be heard.
        await database.run(
            "CREATE POLICY \"everybody reads the last one\" ON friendships FOR SELECT TO anon USING (message = 'the end')",
            "GRANT SELECT ON friendships TO anon")
        await database.run("DELETE FROM friendships WHERE requester_id <> addressee_id")
        await ask(database, ANA, BEN, "the end")
        await anon.hears([], lambda item: item.get("record", {}).get("message") == "the end", brief, "at all")
        await database.run("DROP POLICY \"everybody reads the last one\" ON friendships", "REVOKE ALL ON friendships FROM anon")


@scenario("a request that is passed on: its new addressee hears of it, and its former one only if it asked to", tables=APPLICATION)
async def passed_on(stage):
    database = stage.database
    await database.run("TRUNCATE friendships")
    async with SupabaseClients(stage) as supabase:
        people = {}
        for name, who in (("ana", ANA), ("ben", BEN), ("cleo", CLEO)):
            people[name] = await (await device(supabase, name, somebody(stage, who))).on("*", "friendships").ready()
        # The client of PyPI leaves out what it does not know of the configuration.
        peer = await stage.peer()
        await peer.subscribe("realtime:moves", binding("friendships"), moves=True, access_token=somebody(stage, BEN))
        await ask(database, ANA, BEN)
        await database.run(f"UPDATE friendships SET addressee_id = '{CLEO}'")
        for who in (ANA, BEN, CLEO):
            await ask(database, who, DORA, "last")
        begun = ("INSERT", "ana ben pending")
        await people["ana"].hears([begun, ("UPDATE", "ana cleo pending", "ana ben pending")], last("ana", "dora"), brief, "of both rows")
        await people["ben"].hears([begun], last("ben", "dora"), brief, "without asking for moves")
        came = await peer.changes_until("realtime:moves", last("ben", "dora"))
        equal([brief(message.data) for message in came], [begun, ("DELETE", "ana ben pending")], "what ben hears who asked for moves")
        await people["cleo"].hears([("UPDATE", "ana cleo pending", "nothing")], last("cleo", "dora"), brief, "of what comes to him")


@scenario("another user's token on the same channel: from then on their rows, and none of the former's", tables=APPLICATION)
async def another_user(stage):
    database = stage.database
    await database.run("TRUNCATE friendships")
    async with SupabaseClients(stage) as supabase:
        phone = await (await device(supabase, "the phone", somebody(stage, ANA))).on("*", "friendships").ready()
        await ask(database, ANA, CLEO)
        await ask(database, BEN, CLEO)
        equal(brief(await phone.heard.next()), ("INSERT", "ana cleo pending"), "what it hears as ana")
        await phone.becomes(somebody(stage, BEN))
        await database.run("UPDATE friendships SET status = 'accepted'")
        await ask(database, ANA, DORA, "last")
        await ask(database, BEN, DORA, "last")
        await phone.hears([("UPDATE", "ben cleo accepted", "ben cleo pending")], last("ben", "dora"), brief, "as ben")
