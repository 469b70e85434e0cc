"""Kinds of settings: what a value must be, in the words of messages and of the reference."""

from __future__ import annotations

from typing import Any

from msgspec import Meta


def meta(meaning: str, unit: str, must: str, **bounds: Any) -> Meta:
    """A setting of any kind."""
    return Meta(description=meaning, extra={"unit": unit, "must": must}, **bounds)


def text(meaning: str, must: str = "a text") -> Meta:
    """A text."""
    return meta(meaning, "text", must)


def texts(meaning: str) -> Meta:
    """A list of texts."""
    return meta(meaning, "list of texts", "a list of texts")


def duration(meaning: str, *, least_s: int = 1, endless: str = "") -> Meta:
    """A length of time, in seconds inside; endless: the word for no end."""
    also = f" or '{endless}'" if endless else ""
    must = f"a duration of {least_s} s or more, like 90, '15min', '24h', '7d'{also}"
    extra = {"unit": "duration", "must": must, "endless": endless}
    return Meta(description=meaning, extra=extra, ge=least_s)


def count(meaning: str, unit: str, *, least: int = 1) -> Meta:
    """A whole number of something."""
    return meta(meaning, unit, f"a whole number >= {least}", ge=least)
