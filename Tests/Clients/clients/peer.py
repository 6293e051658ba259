"""A client of the protocol that judges every message it receives by what the protocol says of all of them."""

import decimal
import itertools
import json
import re
import urllib.parse
from dataclasses import dataclass

from .expect import Failure, equal, fail, keys, shown, true
from .wire import BINARY, Closed, Connection

SUBSCRIBED = "Subscribed to PostgreSQL"
UUID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
TIMESTAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
CODE = re.compile(r"^[A-Z][A-Za-z]+$")
#: Words that user code compares, and that call for nothing.
PLAIN = ("Subscribed to PostgreSQL", "Replication connection established", "Server requested disconnect")
REPLICA_KEYS = {"INSERT": "record", "UPDATE": "record old_record", "DELETE": "old_record"}


@dataclass
class Message:
    join_ref: str | None
    ref: str | None
    topic: str
    event: str
    payload: dict
    raw: str | bytes
    #: What it came as: text, or kind 4 with its payload as JSON or as bytes.
    form: str = "text"
    #: For programs, beside what is said in words. It is taken out of the payload once it was checked.
    code: str | None = None

    def __str__(self):
        return shown(self.raw if self.form == "text" else repr(self.raw))

    @property
    def status(self):
        return self.payload.get("status")

    @property
    def response(self):
        return self.payload.get("response")

    @property
    def reason(self):
        return (self.response or {}).get("reason")

    @property
    def data(self):
        return self.payload.get("data")


def without_repetition(pairs):
    """An object whose keys are each there once; readers disagree about which of two counts."""
    found = dict(pairs)
    true(len(found) == len(pairs), "each key of an object once", [key for key, _ in pairs])
    return found


def parsed(text: str):
    """Numbers keep their digits: 1.50 is not 1.5."""

    def refuse(word):
        raise Failure(f"expected JSON\n     came {word}, which is not a JSON number")

    return json.loads(
        text, parse_float=decimal.Decimal, object_pairs_hook=without_repetition, parse_constant=refuse)


def message_of(text: str, vsn: str, refs=str) -> Message:
    """`refs` is what a ref is made of: the hub gives back what it was sent."""
    try:
        value = parsed(text)
    except json.JSONDecodeError as error:
        fail(f"JSON ({error})", text)
    if vsn.startswith("1."):
        keys(value, "topic event payload ref", "a V1 message")
        message = Message(None, value["ref"], value["topic"], value["event"], value["payload"], text)
    else:
        true(isinstance(value, list) and len(value) == 5, "a V2 message of five elements", text)
        message = Message(*value, text)
    true(isinstance(message.topic, str) and isinstance(message.event, str), "topic and event to be strings", text)
    true(isinstance(message.payload, dict), "the payload to be an object (Swift tears the connection down)", text)
    for ref in (message.ref, message.join_ref):
        true(ref is None or isinstance(ref, refs), "refs to be strings or null, unless the client sent others", text)
    check_event(message)
    return message


def message_of_binary(data: bytes) -> Message:
    """Kind 4, which is all that clients read."""
    true(len(data) >= 5 and data[0] == 4, "a binary frame of kind 4", repr(data[:80]))
    lengths, encoding, at, parts = data[1:4], data[4], 5, []
    true(encoding in (0, 1), "a payload that is bytes or JSON", encoding)
    true(len(data) >= 5 + sum(lengths), "a frame as long as its lengths say", repr(data[:80]))
    for length in lengths:
        parts.append(data[at : at + length])
        at += length
    topic, event, metadata = parts[0].decode(), parts[1].decode(), parts[2].decode()
    payload = parsed(data[at:].decode()) if encoding else data[at:]
    content = {"type": "broadcast", "event": event, "payload": payload}
    if metadata:
        content["meta"] = parsed(metadata)
        check_meta(content["meta"])
    return Message(None, None, topic, "broadcast", content, data, "json" if encoding else "bytes")


def user_broadcast(
    topic: str, event: str, payload, ref: str | None = None, join_ref: str | None = None, metadata: bytes = b"",
    encoding: int | None = None,
) -> bytes:  # fmt: skip
    """Kind 3, as JavaScript and Swift send it; bytes are bytes, and all else becomes JSON."""
    if encoding is None:
        encoding = 0 if isinstance(payload, bytes) else 1
    body = payload if isinstance(payload, bytes) else json.dumps(payload, ensure_ascii=False).encode()
    parts = [(join_ref or "").encode(), (ref or "").encode(), topic.encode(), event.encode(), metadata]
    return bytes([3, *map(len, parts), encoding]) + b"".join(parts) + body


def check_meta(meta: dict):
    true(isinstance(meta, dict) and set(meta) <= {"id", "replayed"} and meta, "meta of id, replayed or both", meta)
    true("id" not in meta or UUID.match(meta["id"]), "an id that is a UUID", meta)
    true(meta.get("replayed", True) is True, "replayed to be true where it is there", meta)


def check_presences(presences: dict, what: str):
    """Swift drops everything when one entry has no phx_ref."""
    true(isinstance(presences, dict), f"{what} to be an object", presences)
    for entry in presences.values():
        keys(entry, "metas", f"an entry of {what}")
        true(isinstance(entry["metas"], list) and entry["metas"], f"metas in an entry of {what}", entry)
        for meta in entry["metas"]:
            true(isinstance(meta, dict) and isinstance(meta.get("phx_ref"), str) and meta["phx_ref"], "a phx_ref in each", meta)


def check_event(message: Message):
    """The exact key sets of every event."""
    payload, event = message.payload, message.event
    message.code = payload.pop("code", None) if event in ("phx_reply", "system") else None
    true(message.code is None or CODE.match(message.code), "a code of letters", message)
    if event == "phx_reply":
        keys(payload, "status response", "a reply")
        true(payload["status"] in ("ok", "error"), "a status of ok or error", message)
        true(isinstance(payload["response"], dict), "the response to be an object", message)
        # Errors of presence give no reason.
        if payload["status"] == "error" and payload["response"]:
            keys(payload["response"], "reason", "the response of an error")
            true(message.code, "a code beside the reason", message)
        return
    if event in ("phx_close", "phx_error"):
        equal(payload, {} if event == "phx_close" else {"reason": "channel_crash"}, f"the payload of {event}")
        return
    true(message.ref is None, f"no ref on the push {event}", message)
    if event == "system":
        # One message of the reference has no channel, and says so.
        if payload.get("message") != "Server requested disconnect":
            # Only who asked for positions, rows or moves is sent these.
            more = {"CaughtUp": " position", "SnapshotComplete": " position rows", "SetComplete": " rows"}.get(message.code, "")
            more += " sets" if message.code == "SetChanged" and "sets" in payload else ""
            for rows in payload.get("sets", []):
                keys(rows, "schema table column values", "a set")
            keys(payload, "extension status message channel" + more, "a system message")
            equal("realtime:" + payload["channel"], message.topic, "the channel of a system message, without prefix,")
        kinds = {"rows": int, "sets": list}
        true(all(isinstance(payload[key], kinds.get(key, str)) for key in payload),
             "a system message to be all strings, but for a number of rows and for sets", message)  # fmt: skip
        true(payload["extension"] in ("system", "postgres_changes"), "a known extension", message)
        true(payload["status"] in ("ok", "error"), "a status of ok or error", message)
        true(bool(message.code) == (payload["message"] not in PLAIN), "a code where there is more than that all is well", message)
    elif event == "postgres_changes":
        # Only who asked for positions is sent them.
        keys(payload, "ids data position previous" if "position" in payload else "ids data", "a change")
        ids = payload["ids"]
        true(isinstance(ids, list) and ids and all(type(i) is int and i > 0 for i in ids), "positive ids", message)
        check_data(payload["data"])
    elif event in ("INSERT", "UPDATE", "DELETE"):
        equal(payload.get("type"), event, "the type of a legacy change")
        check_data(payload)
    elif event == "presence_state":
        check_presences(payload, "a presence_state")
    elif event == "presence_diff":
        keys(payload, "joins leaves", "a presence_diff")
        true(message.join_ref is None, "no join_ref on a presence_diff", message)
        check_presences(payload["joins"], "joins")
        check_presences(payload["leaves"], "leaves")
    elif event == "broadcast":
        # What clients send is theirs; only what comes from the database or by a replay has meta of ours.
        true("ids" not in payload or "event" in payload, "no key ids of our own", message)
    else:
        fail("an event of the protocol", message)


def check_data(data: dict):
    kind = data.get("type")
    true(kind in REPLICA_KEYS, "a type of INSERT, UPDATE or DELETE", data)
    wanted = f"schema table commit_timestamp type columns errors {REPLICA_KEYS[kind]}"
    if "tidewire" in data:
        # Only who asked for moves is sent rows that left or came; only who asked for the rows there are those.
        marks = (("DELETE", {"moved": "out"}), ("INSERT", {"moved": "in"}), ("INSERT", {"snapshot": True}))
        true((kind, data["tidewire"]) in marks, "a mark", data)
        wanted += " tidewire"
    keys(data, wanted, f"the data of an {kind}")
    true(isinstance(data["commit_timestamp"], str) and TIMESTAMP.match(data["commit_timestamp"]),
         "a commit_timestamp as 2026-03-01T10:20:30.456Z", data["commit_timestamp"])  # fmt: skip
    errors = data["errors"]
    true(errors is None or isinstance(errors, list) and errors and all(isinstance(e, str) for e in errors),
         "errors to be null or a list of strings", errors)  # fmt: skip
    for column in data["columns"]:
        keys(column, "name type", "a column")
    names = {column["name"] for column in data["columns"]}
    for part in REPLICA_KEYS[kind].split():
        true(isinstance(data[part], dict), f"{part} to be an object", data[part])
        true(set(data[part]) <= names, f"{part} to have only columns that stand in columns", data)


class Peer:
    """One WebSocket that speaks the protocol. What comes while something else is waited for is kept, in order."""

    def __init__(self, connection: Connection, vsn: str):
        self.connection = connection
        self.vsn = vsn
        self.refs = itertools.count(1)
        self.waiting: list[Message] = []
        self.join_refs: dict[str, str] = {}
        #: What empties tables between two scenarios may come to the next one's channels.
        self.hears_truncates = False
        #: Whoever sends noise may have sent a number where a ref belongs, and is given it back.
        self.refs_made_of = (str,)

    @classmethod
    async def open(
        cls, hub, apikey: str, vsn: str = "2.0.0", path: str | None = None, buffer=None, headers=None, **parameters,
    ) -> "Peer":  # fmt: skip
        connection = await Connection.open(hub, buffer)
        query = urllib.parse.urlencode({"apikey": apikey, "vsn": vsn} | parameters)
        response = await connection.upgrade(hub, f"{path or hub.path}?{query}", headers)
        true(response.status == 101, "101 Switching Protocols", response)
        return cls(connection, vsn)

    # Sending

    def encoded(self, topic, event, payload, ref, join_ref) -> str:
        if self.vsn.startswith("1."):
            value = {"topic": topic, "event": event, "payload": payload, "ref": ref}
            return json.dumps(value if join_ref is None else value | {"join_ref": join_ref})
        return json.dumps([join_ref, ref, topic, event, payload])

    async def push(self, topic: str, event: str, payload: dict, *, ref="next", join_ref="current") -> str | None:
        ref = str(next(self.refs)) if ref == "next" else ref
        join_ref = self.join_refs.get(topic) if join_ref == "current" else join_ref
        await self.connection.text(self.encoded(topic, event, payload, ref, join_ref))
        return ref

    async def say(self, topic: str, event: str, payload, **more) -> str | None:
        """A broadcast as text. `more` are keys beside the usual ones."""
        return await self.push(topic, "broadcast", {"type": "broadcast", "event": event, "payload": payload} | more)

    async def say_binary(self, topic: str, event: str, payload, metadata: bytes = b"", *, ref="next") -> str | None:
        """A broadcast of kind 3."""
        ref = str(next(self.refs)) if ref == "next" else ref
        await self.connection.frame(
            BINARY, user_broadcast(topic, event, payload, ref, self.join_refs.get(topic), metadata))
        return ref

    async def present(self, topic: str, event: str, *payload, **more) -> str | None:
        """A push of presence; without a payload it has none."""
        content = {"type": "presence", "event": event} | ({"payload": payload[0]} if payload else {})
        return await self.push(topic, "presence", content | more)

    async def send_join(self, topic: str, payload: dict) -> str:
        ref = str(next(self.refs))
        self.join_refs[topic] = ref
        return await self.push(topic, "phx_join", payload, ref=ref, join_ref=ref)

    # Receiving

    async def next(self, what: str = "a message", limit=None) -> Message:
        """The next one, whatever it is."""
        if self.waiting:
            return self.waiting.pop(0)
        return await self._read(what, limit)

    async def _read(self, what: str, limit=None) -> Message:
        while True:
            frame = await self.connection.receive(what, limit)
            if frame.opcode == BINARY:
                true(self.vsn.startswith("2."), "no binary frames in V1", frame)
                return message_of_binary(frame.payload)
            message = message_of(frame.payload.decode(), self.vsn, self.refs_made_of)
            if message.code != "Truncated" or self.hears_truncates:
                return message

    async def _find(self, what: str, condition, limit=None, start: int = 0) -> int:
        """Where the first that it holds for stands among those that wait, which grow until there is one."""
        for index, message in enumerate(self.waiting[start:], start):
            if condition(message):
                return index
        while True:
            try:
                message = await self._read(what, limit)
            except Failure as failure:
                others = "".join(f"\n   before {message}" for message in self.waiting[-8:])
                raise Failure(f"{failure}{others}") from None
            except Closed as end:
                others = "".join(f"\n   before {message}" for message in self.waiting[-8:])
                raise Failure(f"expected {what}\n     came {end}{others}") from None
            self.waiting.append(message)
            if condition(message):
                return len(self.waiting) - 1

    async def expect(self, what: str, condition, limit=None) -> Message:
        """The first message that it holds for; the others stay waiting."""
        return self.waiting.pop(await self._find(what, condition, limit))

    async def reply(self, ref: str | None, what: str = "a reply") -> Message:
        return await self.expect(f"{what} (ref {ref})", lambda m: m.event == "phx_reply" and m.ref == ref)

    async def fence(self) -> list[Message]:
        """What has come by the time a heartbeat that is sent now is answered, without the report that a new log has begun."""
        ref = f"fence-{next(self.refs)}"
        await self.push("phoenix", "heartbeat", {}, ref=ref, join_ref=None)
        answer = await self.reply(ref, "the answer to a heartbeat")
        equal(answer.payload, {"status": "ok", "response": {}}, "the answer to a heartbeat")
        come, self.waiting = self.waiting, []
        return [message for message in come if "is followed from now on" not in str(message)]

    # The usual conversations

    async def join(self, topic: str, config: dict | None = None, **payload) -> Message:
        """A join that must succeed; the reply."""
        body = ({} if config is None else {"config": config}) | payload
        ref = await self.send_join(topic, body)
        first = await self.expect("the reply to a join", lambda m: m.topic == topic)
        true(first.event == "phx_reply" and first.ref == ref, "the join reply before anything else of the channel", first)
        equal(first.status, "ok", f"the status of the reply to joining {topic} ({shown(first.response)})")
        if self.vsn.startswith("2."):
            equal(first.join_ref, ref, "the join_ref of a join reply")
        true(isinstance(first.response.get("postgres_changes"), list), "postgres_changes in the reply, always", first)
        asked = (config or {}).get("tidewire", {})
        told = " tidewire" if asked.get("position") or asked.get("resume") else ""
        keys(first.response, "postgres_changes" + told, "the response to a join")
        return first

    async def system(self, topic: str, what: str = "a system message", limit=None) -> Message:
        return await self.expect(what, lambda m: m.event == "system" and m.topic == topic, limit)

    async def subscribed(self, topic: str, limit=None) -> Message:
        """The sign that changes flow, and the first of the system messages: warnings come after it."""
        message = await self.system(topic, f"{SUBSCRIBED!r} on {topic}", limit)
        wanted = {"extension": "postgres_changes", "status": "ok", "message": SUBSCRIBED, "channel": topic[9:]}
        equal(message.payload, wanted, "the system message after a subscription")
        return message

    async def warning(self, topic: str, words: str) -> str:
        """What a subscription may not expect. Never an error: one of the clients joins again at each of those, forever."""
        message = await self.expect(
            f"a warning about {words} on {topic}",
            lambda m: m.event == "system" and m.topic == topic and words in m.payload["message"])  # fmt: skip
        wanted = {"extension": "postgres_changes", "status": "ok", "channel": topic[9:]}
        equal({key: message.payload[key] for key in wanted}, wanted, f"the warning about {words}")
        return message.payload["message"]

    async def subscribe(self, topic: str, *bindings: dict, moves: bool = False, **payload) -> list[int]:
        """Joins with these bindings and waits until changes flow; their ids. `moves` asks for an event when a row leaves
        what a binding sees, which is beyond the reference."""
        config = {"postgres_changes": list(bindings)} | ({"tidewire": {"moves": True}} if moves else {})
        reply = await self.join(topic, config, **payload)
        await self.subscribed(topic)
        return [binding["id"] for binding in reply.response["postgres_changes"]]

    async def change(self, topic: str, what: str = "a change") -> Message:
        return await self.expect(what, lambda m: m.topic == topic and m.event == "postgres_changes")

    async def changes_until(self, topic: str, last, what: str = "the last change") -> list[Message]:
        """All changes up to the first whose data satisfies `last`, which is left out."""
        found = []
        while True:
            message = await self.change(topic, what)
            if last(message.data):
                return found
            found.append(message)

    async def broadcast(self, topic: str, what: str = "a broadcast") -> Message:
        return await self.expect(what, lambda m: m.topic == topic and m.event == "broadcast")

    async def hears(self, topic: str, event: str, payload, what: str = "a broadcast") -> Message:
        """The next broadcast, which is this one."""
        message = await self.broadcast(topic, what)
        equal((message.payload.get("event"), message.payload.get("payload")), (event, payload), what)
        return message

    async def state(self, topic: str, what: str = "presence_state") -> Message:
        return await self.expect(what, lambda m: m.topic == topic and m.event == "presence_state")

    async def diff(self, topic: str, what: str = "presence_diff") -> Message:
        return await self.expect(what, lambda m: m.topic == topic and m.event == "presence_diff")

    async def ended(self, topic: str) -> str:
        """A system error, then phx_close and nothing between; the text of the first."""
        at = await self._find(
            "a system error", lambda m: m.topic == topic and m.event == "system" and m.status == "error")
        message = self.waiting.pop(at)
        equal(message.payload["extension"], "system", "the extension")
        close = self.waiting.pop(await self._find("phx_close after it", lambda m: m.topic == topic, start=at))
        join_ref = self.join_refs[topic]
        equal((close.event, close.ref, close.payload), ("phx_close", join_ref, {}), "what follows a system error")
        if self.vsn.startswith("2."):
            equal((message.join_ref in (join_ref, None), close.join_ref), (True, join_ref), "the join_refs")
        return message.payload["message"]

    async def refused(self, topic: str, config: dict | None = None, **payload) -> str:
        """A join that must be refused; why."""
        ref = await self.send_join(topic, {"config": config or {}} | payload)
        reply = await self.reply(ref, "a refusal")
        equal(reply.status, "error", "the status")
        return reply.reason

    async def close(self):
        await self.connection.close()


def binding(table: str, event: str = "*", **more) -> dict:
    return {"event": event, "schema": "public", "table": table} | more
