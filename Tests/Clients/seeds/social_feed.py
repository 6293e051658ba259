"""Social feed: posts of whom one follows, comments of posts one sees, likes for everybody who is signed in."""

from clients.expect import equal
from clients.people import ANA, BEN, CLEO, device, of, somebody
from clients.scenario import application, scenario
from clients.supabase import SupabaseClients

APPLICATION = application("social_feed")
PEOPLE = {"ana": ANA, "ben": BEN, "cleo": CLEO}
POSTS = {name: f"00000000-0000-4000-8000-0000000000{place}1" for place, name in enumerate(PEOPLE)}


def brief(item):
    record = item.get("record") or item["old_record"]
    return (*of(item), record.get("caption") or record.get("body") or short(record))


def short(record):
    known = {who: name for name, who in PEOPLE.items()} | {post: f"{name}'s" for name, post in POSTS.items()}
    return " ".join(known.get(value, "?") for key, value in sorted(record.items()) if key in ("post_id", "user_id"))


def last(name):
    """Everybody likes their own post at the end."""
    return lambda item: of(item) == ("INSERT", "likes") and short(item["record"]) == f"{name}'s {name}"


def posts(name, caption, number=None):
    more = ("id, ", f"'{number}', ") if number else ("", "")
    return f"INSERT INTO posts ({more[0]}author, caption, media_key) VALUES ({more[1]}'{PEOPLE[name]}', '{caption}', 'k')"


def likes(name, whose):
    return f"INSERT INTO likes (post_id, user_id) VALUES ('{POSTS[whose]}', '{PEOPLE[name]}')"


def comments(name, whose, body):
    return f"INSERT INTO comments (post_id, user_id, body) VALUES ('{POSTS[whose]}', '{PEOPLE[name]}', '{body}')"


async def emptied(stage):
    await stage.database.run("TRUNCATE profiles, posts, likes, comments, follows")
    for name, who in PEOPLE.items():
        await stage.database.run(
            f"INSERT INTO profiles (user_id, username) VALUES ('{who}', '{name}')", posts(name, "first", POSTS[name]))


async def everybody(stage, supabase):
    people = {}
    for name, who in PEOPLE.items():
        one = await device(supabase, name, somebody(stage, who), "feed")
        one.on("INSERT", "posts").on("INSERT", "likes").on("DELETE", "likes").on("INSERT", "comments").on("DELETE", "comments")
        people[name] = await one.ready()
    # What was written just before may still be on its way, and is nothing to judge anybody by.
    await heard(stage, people)
    return people


async def heard(stage, people) -> dict:
    """What each heard up to a last row. Those are everybody's to see, and not what this is about."""
    everybody = list(people)
    for name in everybody:
        await stage.database.run(f"DELETE FROM likes WHERE user_id = '{PEOPLE[name]}' AND post_id = '{POSTS[name]}'", likes(name, name))
    own = {(kind, "likes", f"{who}'s {who}") for who in PEOPLE for kind in ("INSERT", "DELETE")}
    came = {}
    for name, one in people.items():
        # Up to the last of all, so that nothing is left over.
        came[name] = [brief(item) for item in await one.heard_until(last(everybody[-1]))]
        came[name] = [item for item in came[name] if item not in own]
    return came


async def hear(stage, people, when, **wanted):
    for name, came in (await heard(stage, people)).items():
        equal(came, wanted.get(name, []), f"what {name} hears {when}")


@scenario("followers see posts and their comments, from the moment they follow to the moment they stop", tables=APPLICATION)
async def feed(stage):
    database = stage.database
    await emptied(stage)
    async with SupabaseClients(stage) as supabase:
        people = await everybody(stage, supabase)
        await database.run(posts("ben", "alone"), comments("cleo", "ben", "lost"))
        seen = [("INSERT", "posts", "alone"), ("INSERT", "comments", "lost")]
        await hear(stage, people, "before anybody follows", ben=seen)
        await database.run(f"INSERT INTO follows (follower_id, followee_id) VALUES ('{ANA}', '{BEN}')")
        await database.run(
            posts("ben", "morning"), posts("cleo", "unseen"), comments("cleo", "ben", "nice"), comments("ben", "cleo", "well"),
            "DELETE FROM comments WHERE body = 'nice'")
        of_ben = [("INSERT", "posts", "morning"), ("INSERT", "comments", "nice"), ("DELETE", "comments", "nice")]
        of_cleo = [("INSERT", "posts", "unseen"), ("INSERT", "comments", "well")]
        await hear(stage, people, "when ana follows ben", ana=of_ben, ben=of_ben, cleo=of_cleo)
        await database.run(f"DELETE FROM follows WHERE follower_id = '{ANA}'")
        await database.run(posts("ben", "evening"), comments("cleo", "ben", "bye"))
        seen = [("INSERT", "posts", "evening"), ("INSERT", "comments", "bye")]
        await hear(stage, people, "when ana has stopped", ben=seen)
        # A follow and a post in one transaction.
        await database.transaction(posts("ben", "night"), f"INSERT INTO follows (follower_id, followee_id) VALUES ('{CLEO}', '{BEN}')")
        await hear(stage, people, "of a post that came with the follow", ben=[("INSERT", "posts", "night")], cleo=[("INSERT", "posts", "night")])


@scenario("likes are counted up and down by everybody who is signed in, though a DELETE carries the key alone", tables=APPLICATION)
async def counters(stage):
    database = stage.database
    await emptied(stage)
    async with SupabaseClients(stage) as supabase:
        people = await everybody(stage, supabase)
        await database.run(likes("ana", "cleo"), likes("ben", "cleo"), f"DELETE FROM likes WHERE user_id = '{ANA}'")
        seen = [("INSERT", "likes", "cleo's ana"), ("INSERT", "likes", "cleo's ben"), ("DELETE", "likes", "cleo's ana")]
        await hear(stage, people, "of likes", ana=seen, ben=seen, cleo=seen)


@scenario("a user who goes takes posts and comments along", tables=APPLICATION)
async def gone(stage):
    database = stage.database
    await emptied(stage)
    async with SupabaseClients(stage) as supabase:
        people = await everybody(stage, supabase)
        await database.run(f"INSERT INTO follows (follower_id, followee_id) VALUES ('{ANA}', '{BEN}')")
        await database.run(comments("cleo", "ben", "hello"))
        await hear(stage, people, "of a comment", ana=[("INSERT", "comments", "hello")], ben=[("INSERT", "comments", "hello")])
        # With the post goes what made its comments visible.
        await database.run(f"DELETE FROM posts WHERE id = '{POSTS['ben']}'", posts("ben", "again", POSTS["ben"]))
        again = [("INSERT", "posts", "again")]
        came = await heard(stage, people)
        for name in people:
            equal([item for item in came[name] if item[1] == "posts"], again if name != "cleo" else [], f"posts that {name} hears of")
            # PostgreSQL is asked whether a comment may be seen while its post is gone, or is there again: either is right,
            # and whoever could never see the post hears nothing.
            if name == "cleo":
                equal([item for item in came[name] if item[1] == "comments"], [], "comments that cleo hears of")
