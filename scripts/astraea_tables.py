"""The tables of scripts/compare-with-astraea, for a terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

COLUMNS = {
    "worst_window": ("worst window", "{:.3f}"),
    "shortfall": ("shortfall", "{:.4f}"),
    "below_095": ("jobs < .95", "{:.1%}"),
    "rho_p5": ("job rho P5", "{:.3f}"),
    "mean_jct_s": ("mean JCT s", "{:,.0f}"),
    "p50_jct_s": ("P50 s", "{:,.0f}"),
    "p99_jct_s": ("P99 s", "{:,.0f}"),
    "utilisation": ("busy", "{:.3f}"),
    "unfinished": ("unfinished", "{:d}"),
}
#: Lines of a row of the first table and what they are called; the last one by our policy.
LINES = {
    "artifact": "artifact",
    "its_rules": "its rules",
    "its_rules_our_measure": "its rules, our measure",
    "our_rules": "",
}
Line = list[str]


def as_text(result: Mapping[str, Any]) -> str:
    """All tables in columns."""
    return "\n\n".join(aligned(list(table)) for table in tables(result))


def as_markdown(result: Mapping[str, Any]) -> str:
    """All tables for the page."""
    found = []
    for table in tables(result):
        head, *lines = table
        rule = ["---", "---", *["---:"] * len(COLUMNS)]
        found.append("\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines)))
    return "\n\n".join(found)


def tables(result: Mapping[str, Any]) -> Iterator[Iterator[Line]]:
    """The rows; what each switch makes of its rules and of ours, if any was tried."""
    yield rows(result)
    for rules in ("its_rules", "our_rules"):
        if any(one["of"] == rules for one in result["switches"]):
            yield switches(result, rules)


def rows(result: Mapping[str, Any]) -> Iterator[Line]:
    """Lines of a row: told, with its rules by its measure, by ours, and with our rules."""
    yield ["policy", "who", *(title for title, _ in COLUMNS.values())]
    for row in result["rows"]:
        for key, who in LINES.items():
            name = row["row"] if key == "artifact" else ""
            yield [name, who or row["spec"], *shown(row[key])]
            if key == "its_rules":
                yield ["", "difference", *differences(row["its_rules"], row["artifact"])]


def switches(result: Mapping[str, Any], rules: str) -> Iterator[Line]:
    """A line a switch, below the row in which it was made."""
    title = f"{rules.replace('_', ' ')}, but"
    yield ["policy", title, *(name for name, _ in COLUMNS.values())]
    base = {row["row"]: row[rules] for row in result["rows"]}
    last = ""
    for one in result["switches"]:
        if one["of"] != rules:
            continue
        if one["row"] != last:
            last = one["row"]
            yield [last, "", *shown(base[last])]
        yield ["", one["switch"], *shown(one["figures"])]


def shown(values: Mapping[str, Any]) -> Line:
    """Figures as text; nothing where there is none."""
    return [
        "" if values[key] is None else form.format(values[key])
        for key, (_, form) in COLUMNS.items()
    ]


def differences(values: Mapping[str, Any], told: Mapping[str, Any]) -> Line:
    """What is to be had more than was told, as text: of times the part, of others the amount."""
    found = []
    for key, (_, form) in COLUMNS.items():
        if values[key] is None or told[key] is None:
            found.append("")
        elif key.endswith("_s"):
            found.append(f"{values[key] / told[key] - 1:+.1%}")
        else:
            found.append(form.replace(":", ":+").format(values[key] - told[key]))
    return found


def aligned(lines: list[Line]) -> str:
    """Columns of equal width: two of words, the others of figures."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            text.ljust(width) if k < 2 else text.rjust(width)
            for k, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
