"""Expectations that say what was expected and what came."""

import asyncio
import json


class Failure(Exception):
    """Something came that the protocol does not allow, or something that it promises did not come."""


class NotHere(Exception):
    """The scenario asks for what this run does not have, such as a hub of its own settings."""


async def within(awaitable, seconds: float):
    """As asyncio.wait_for, which before Python 3.12 may let a task live on that was cancelled while it waited."""
    async with asyncio.timeout(seconds):
        return await awaitable


def shown(value) -> str:
    """A value for a message: JSON where it is JSON, and never pages of it."""
    if isinstance(value, (dict, list)):
        text = json.dumps(value, ensure_ascii=False, default=str)
    else:
        text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 1500 else f"{text[:1500]}… ({len(text)} characters)"


def fail(expectation: str, came):
    raise Failure(f"expected {expectation}\n     came {shown(came)}")


def true(condition, expectation: str, came=None):
    if not condition:
        fail(expectation, "something else" if came is None else came)


def equal(came, wanted, what: str):
    # True == 1 in Python, and not in JSON.
    if came != wanted or type(came) is bool and type(wanted) is not bool:
        fail(f"{what} to be {shown(wanted)}", came)


def keys(came: dict, wanted: str, what: str):
    """Exactly these keys, written as one line of words."""
    true(isinstance(came, dict), f"{what} to be an object", came)
    if sorted(came) != sorted(wanted.split()):
        fail(f"{what} to have exactly the keys {' '.join(sorted(wanted.split()))}", " ".join(sorted(came)))


def contains(text: str, part: str, what: str):
    true(isinstance(text, str) and part in text, f"{what} to contain {shown(part)}", text)


def one_of(came, wanted, what: str):
    true(came in wanted, f"{what} to be one of {shown(list(wanted))}", came)
