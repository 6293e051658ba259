"""Tokens of channels: which one counts, expiry, refresh, keys of every kind. Protocol §6.1–6.4; checklist 18, 19."""

import json
import os
import re
import tempfile
import time

from clients import tokens
from clients.expect import equal, true
from clients.peer import binding
from clients.scenario import BOTH, published, scenario
from clients.stage import ANA, BEN

EXPIRED = re.compile(r"^Token has expired \d+ seconds ago$")
TOKEN_TABLE = published("c_token", "id int PRIMARY KEY, open text, secret text",
    "REVOKE ALL ON c_token FROM anon", "GRANT SELECT (id, open) ON c_token TO anon")  # fmt: skip


async def refused(peer, topic: str, **payload) -> str:
    ref = await peer.send_join(topic, {"config": {}} | payload)
    reply = await peer.reply(ref, "a refusal")
    equal(reply.status, "error", "the status")
    return reply.reason


async def ended(peer, topic: str) -> str:
    """A system error, then phx_close; the text of the first."""
    message = await peer.expect("a system error", lambda m: m.topic == topic and m.event == "system" and m.status == "error")
    equal(message.payload["extension"], "system", "the extension")
    close = await peer.expect("phx_close after it", lambda m: m.topic == topic)
    join_ref = peer.join_refs[topic]
    equal((close.event, close.ref, close.payload), ("phx_close", join_ref, {}), "what follows a lost right")
    if peer.vsn.startswith("2."):
        equal((message.join_ref in (join_ref, None), close.join_ref), (True, join_ref), "the join_refs")
    return message.payload["message"]


@scenario("trap 19: refusals of a join name their code", vsn=BOTH)
async def join_refusals(stage, vsn):
    peer = await stage.peer(vsn)
    secret, soon = stage.secret, tokens.in_seconds(60)
    cases = {
        stage.token("anon", -10): r"InvalidJWTToken: Token has expired \d+ seconds ago",
        tokens.sign(secret, {"role": "anon"}): r"InvalidJWTToken: Fields `role` and `exp` are required in JWT",
        tokens.sign(secret, {"exp": soon}): r"InvalidJWTToken: Fields `role` and `exp` are required in JWT",
        "nonsense": r"MalformedJWT: The token provided is not a valid JWT",
        tokens.sign("another", {"role": "anon", "exp": soon}): r"JwtSignatureError: Failed to validate JWT signature",
        tokens.unsigned({"role": "anon", "exp": soon}):
            r"JwtSignerError: Failed to generate JWT signer, check your JWT secret or JWKS configuration",
        tokens.sign(secret, {"role": "anon", "exp": soon}, header={"alg": "RS256", "kid": "k1"}):
            r'JwtSignerError: Failed to generate JWT signer for key ID \(kid\) "k1", check your JWT secret or JWKS configuration',
    }  # fmt: skip
    for index, (token, wanted) in enumerate(cases.items()):
        reason = await refused(peer, f"realtime:refused-{index}", access_token=token)
        true(re.fullmatch(wanted, reason), f"a reason like {wanted}", reason)
        # The topic was not joined, so it is nobody's.
        ref = await peer.push(f"realtime:refused-{index}", "x", {})
        equal((await peer.reply(ref)).reason, "unmatched topic", "the answer to a push after the refusal")


@scenario("trap 20: which token counts: user_token before access_token, the key of the socket without, and sb_ keys are passed over", vsn=BOTH)
async def which_token(stage, vsn):
    peer = await stage.peer(vsn)
    expired = stage.token("anon", -10)
    await peer.join("realtime:1", {})
    await peer.join("realtime:2", {}, access_token=None)
    await peer.join("realtime:3", {}, access_token="sb_publishable_whatever")
    await peer.join("realtime:4", {}, access_token=expired, user_token=stage.ana)
    await peer.join("realtime:5", {}, user_token=stage.ana)
    await peer.join("realtime:6", {}, user_token="sb_secret_whatever")
    # The choice looks at access_token first, and then sees the prefix.
    await peer.join("realtime:7", {}, access_token="sb_publishable_whatever", user_token=expired)
    true((await refused(peer, "realtime:8", access_token=stage.ana, user_token=expired)).startswith("InvalidJWTToken"),
         "user_token to count before access_token")  # fmt: skip


@scenario("checklist 18: a token that ends in 3 s ends its channel, not before, and nothing else", vsn=BOTH, tables=TOKEN_TABLE)
async def expiry(stage, vsn):
    peer = await stage.peer(vsn)
    await peer.join("realtime:lasting", {})
    ends = tokens.in_seconds(3)
    token = tokens.sign(stage.secret, {"role": "anon", "exp": ends})
    await peer.subscribe("realtime:ending", binding("c_token"), access_token=token)
    text = await ended(peer, "realtime:ending")
    true(time.time() >= ends, "the end not before exp", f"{ends - time.time():.3f} s before it")
    true(EXPIRED.match(text), "Token has expired N seconds ago", text)
    await peer.subscribe("realtime:lasting", binding("c_token"))
    await stage.database.run("INSERT INTO c_token VALUES (1, 'a', 'b')", "DELETE FROM c_token")
    equal((await peer.change("realtime:lasting")).data["type"], "INSERT", "what the channel with a good token hears")
    others = [m for m in await peer.fence() if m.topic == "realtime:ending"]
    equal([str(m) for m in others], [], "what the ended channel hears")
    await peer.subscribe("realtime:ending", binding("c_token"), access_token=stage.anon)
    missed = [(await peer.change("realtime:ending")).data["type"] for _ in range(2)]
    equal(missed, ["INSERT", "DELETE"], "what it missed, when it joins again on its socket")
    await peer.push("realtime:ending", "phx_leave", {})
    await peer.fence()
    await peer.subscribe("realtime:ending", binding("c_token"), access_token=stage.anon)
    await stage.database.run("INSERT INTO c_token VALUES (2, 'a', 'b')")
    equal((await peer.change("realtime:ending")).data["record"]["id"], 2, "what comes first to who had left")


@scenario("the key of the socket may expire: the socket stays, new joins with it are refused", vsn=BOTH)
async def key_expiry(stage, vsn):
    peer = await stage.peer(vsn, apikey=stage.token("anon", 2))
    await peer.join("realtime:own-token", {}, access_token=stage.ana)
    await peer.join("realtime:key", {})
    await ended(peer, "realtime:key")
    equal(await peer.fence(), [], "what else came")
    true((await refused(peer, "realtime:key")).startswith("InvalidJWTToken: Token has expired"), "a refusal")
    await peer.push("realtime:own-token", "phx_leave", {})


@scenario("trap 8: an access_token is never answered, and a refresh in time keeps the channel", vsn=BOTH)
async def refresh(stage, vsn):
    peer = await stage.peer(vsn)
    ends = tokens.in_seconds(3)
    await peer.join("realtime:refreshed", {}, access_token=tokens.sign(stage.secret, {"role": "anon", "exp": ends}))
    await peer.join("realtime:forgotten", {}, access_token=tokens.sign(stage.secret, {"role": "anon", "exp": ends}))
    await peer.push("realtime:refreshed", "access_token", {"access_token": stage.anon})
    equal([str(m) for m in await peer.fence()], [], "what a new token brings")
    await ended(peer, "realtime:forgotten")
    equal([str(m) for m in await peer.fence()], [], "what the refreshed one hears when its first token is over")
    ref = await peer.push("realtime:refreshed", "phx_leave", {})
    equal((await peer.reply(ref)).status, "ok", "the answer to leaving the refreshed channel")


@scenario("access_token: null, sb_ keys, the same token and things that are no strings change nothing", vsn=BOTH)
async def ignored_refreshes(stage, vsn):
    peer = await stage.peer(vsn)
    token = stage.ana
    await peer.join("realtime:same", {}, access_token=token)
    for payload in ({"access_token": None}, {"access_token": "sb_publishable_x"}, {"access_token": token},
                    {"access_token": 7}, {"access_token": {}}, {}, {"token": "nonsense"}):  # fmt: skip
        await peer.push("realtime:same", "access_token", payload)
        # Python is not consistent with join_ref, so a stale one counts too.
        await peer.push("realtime:same", "access_token", payload, join_ref="999")
    equal([str(m) for m in await peer.fence()], [], "what they bring")


@scenario("checklist 19: access_token: one that is wrong ends the channel with its reason", vsn=BOTH)
async def wrong_refreshes(stage, vsn):
    peer = await stage.peer(vsn)
    cases = {
        stage.token("anon", -10): EXPIRED.pattern,
        "nonsense": r"^The token provided is not a valid JWT$",
        tokens.sign(stage.secret, {"exp": tokens.in_seconds(60)}): r"^Fields `role` and `exp` are required in JWT$",
        tokens.sign("another", {"role": "anon", "exp": tokens.in_seconds(60)}): r".",
        stage.token("anon", nbf=tokens.in_seconds(60)): r"^Token is not valid for another \d+ seconds$",
        stage.token("postgres"): r"^The role of the token may not be used by clients$",
        tokens.sign(stage.secret, {"role": "anon", "exp": tokens.in_seconds(60)}, header={"alg": "ES256", "kid": "k"}):
            r'^Failed to generate JWT signer for key ID \(kid\) "k", check your JWT secret or JWKS configuration$',
    }  # fmt: skip
    for index, (token, wanted) in enumerate(cases.items()):
        topic = f"realtime:wrong-token-{index}"
        await peer.join(topic, {})
        await peer.push(topic, "access_token", {"access_token": token})
        text = await ended(peer, topic)
        true(re.search(wanted, text), f"a message like {wanted}", text)
    await peer.fence()


@scenario("a refresh makes the subscriptions anew with what the new token may see", vsn=BOTH, tables=TOKEN_TABLE)
async def refreshed_rights(stage, vsn):
    peer = await stage.peer(vsn)
    topic = "realtime:rights"
    await peer.subscribe(topic, binding("c_token", "INSERT"))
    await stage.database.run("INSERT INTO c_token VALUES (1, 'a', 'b')")
    equal((await peer.change(topic)).data["record"], {"id": 1, "open": "a"}, "what anon may see")
    await peer.push(topic, "access_token", {"access_token": stage.ana})
    await peer.subscribed(topic)
    await stage.database.run("INSERT INTO c_token VALUES (2, 'a', 'b')", "DELETE FROM c_token")
    wanted = {"id": 2, "open": "a", "secret": "b"}
    equal((await peer.change(topic)).data["record"], wanted, "what authenticated may see")


@scenario("a role the database does not know is an error of the subscription", tables=TOKEN_TABLE)
async def unknown_role(stage):
    peer = await stage.peer()
    await peer.join("realtime:nobody", {"postgres_changes": [binding("c_token")]}, access_token=stage.token("nobody_of_ours"))
    message = await peer.system("realtime:nobody")
    equal(message.status, "error", "the status")
    true('role "nobody_of_ours" does not exist' in message.payload["message"], "a message that names the role", message)


def key_settings(*pairs) -> dict[str, str]:
    """A file of keys, kept as long as the process."""
    keys = [pair.jwk() for pair in pairs]
    keys.append({"kty": "oct", "kid": "shared", "alg": "HS256", "k": tokens.base64url(b"of the set")})
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
        json.dump({"keys": keys}, file)
    return {"jwks": file.name}


@scenario("keys of a set: RS256, ES256, EdDSA, HS256 by kid", own_hub=True)
async def key_set(stage):
    pairs = [tokens.KeyPair(algorithm, f"key-{algorithm}") for algorithm in ("RS256", "ES256", "EdDSA")]
    settings = key_settings(*pairs)
    await stage.hub.use(settings)
    try:
        claims = {"role": "authenticated", "exp": tokens.in_seconds(600), "sub": "someone"}
        peer = await stage.peer()
        for pair in pairs:
            await stage.peer(apikey=pair.sign(claims))
            await peer.join(f"realtime:{pair.algorithm}", {}, access_token=pair.sign(claims))
            wrong = pair.sign(claims)
            forged = ".".join([*wrong.split(".")[:2], pair.sign(claims | {"role": "service_role"}).split(".")[2]])
            equal(await refused(peer, "realtime:forged", access_token=forged),
                  "JwtSignatureError: Failed to validate JWT signature", f"the reason for a forged {pair.algorithm}")  # fmt: skip
            equal(await refused(peer, "realtime:no-kid", access_token=pair.sign(claims, {"kid": None})),
                  "JwtSignerError: Failed to generate JWT signer, check your JWT secret or JWKS configuration",
                  f"the reason for {pair.algorithm} without a kid")  # fmt: skip
        shared = tokens.sign(b"of the set", claims, header={"kid": "shared"})
        await peer.join("realtime:shared", {}, access_token=shared)
        # A kid that the set does not have falls back to the secret, for HS256 alone.
        await peer.join("realtime:secret", {}, access_token=tokens.sign(stage.secret, claims, header={"kid": "lost"}))
        # The public half of a pair is no secret of HS256, however a token may call it.
        confused = tokens.sign(json.dumps(pairs[0].jwk()), claims, header={"kid": "key-RS256"})
        equal(await refused(peer, "realtime:confused", access_token=confused),
              "JwtSignatureError: Failed to validate JWT signature", "the reason for HS256 by the kid of an RSA key")  # fmt: skip
    finally:
        os.unlink(settings["jwks"])


def members(name: str) -> list:
    """A table whose rows are seen by the members of a table of its own, which is followed."""
    return [
        *published(name, "id int PRIMARY KEY", f"ALTER TABLE {name} REPLICA IDENTITY FULL", f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY"),
        *published(f"{name}_members", "who uuid PRIMARY KEY", f"ALTER TABLE {name}_members REPLICA IDENTITY FULL"),
        f"CREATE POLICY members ON {name} FOR SELECT USING (auth.uid() IN (SELECT who FROM {name}_members))",
    ]


@scenario("a join that waits for its memberships goes on waiting while another channel's token changes", settings={"loops": "1"}, tables=[*members("c_quick"), *members("c_slow")])
async def waits_for_memberships(stage):
    await stage.database.run(*(f"INSERT INTO c_{table}_members VALUES ('{ANA}'), ('{BEN}')" for table in ("quick", "slow")))
    first, second = await stage.peer(), await stage.peer()
    await first.subscribe("realtime:quick", binding("c_quick"), access_token=stage.ana)
    # By then both policies are known, and what is left to ask is who is a member.
    await second.subscribe("realtime:slow-too", binding("c_slow"), access_token=stage.ben)
    await stage.database.run("BEGIN", "LOCK TABLE c_slow_members IN ACCESS EXCLUSIVE MODE")
    await second.send_join("realtime:slow", {"config": {"postgres_changes": [binding("c_slow")]}, "access_token": stage.ana})
    await first.push("realtime:quick", "access_token", {"access_token": stage.ben})
    await first.subscribed("realtime:quick")
    await stage.database.run("COMMIT")
    await second.subscribed("realtime:slow")
    await stage.database.run("INSERT INTO c_slow VALUES (1)")
    equal((await second.change("realtime:slow")).data["record"], {"id": 1}, "what is heard then")
