"""Man pages from what the programs say of themselves: commands, ltgf-ckpt's parser, settings.

scripts/make-docs writes them; see docs/decisions on why no library does.
"""

from __future__ import annotations

import argparse
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path

import click

from slurm_ltgf import __version__
from slurm_ltgf.checkpoint import shell
from slurm_ltgf.cli.main import COMMANDS, cli
from slurm_ltgf.store.config_pages import QUOTA_ABOUT, QUOTA_RULES
from slurm_ltgf.store.quota_settings import QUOTA_SECTIONS
from slurm_ltgf.store.settings import SECTIONS, Setting, settings_of

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 78

#: ASCII that roff would turn into a typographic sign.
_SIGNS = {"\\": r"\e", "-": r"\-", "^": r"\(ha", "~": r"\(ti", "`": r"\(ga", "'": r"\(aq"}

ENVIRONMENT = (
    ("LTGF_CONFIG", "The settings file, where --config is not given."),
    ("SLURM_CONF", "Slurm's own configuration, as for its commands."),
    ("NO_COLOR", "Set to anything: no colours."),
)
FILES = (
    ("~/.config/ltgf/ltgf.toml", "Settings of this user; looked for first."),
    ("/etc/ltgf/ltgf.toml", "Settings of the site; see ltgf.toml(5). Without any, defaults hold."),
    ("/var/lib/ltgf/ledger.db", "The ledger, unless site.ledger says otherwise."),
)


def man_pages() -> dict[str, Callable[[], str]]:
    """Path in the repository -> what makes the page."""
    pages: dict[str, Callable[[], str]] = {
        "man/ltgf.1": ltgf_page,
        "man/ltgf-ckpt.1": ckpt_page,
        "man/ltgf.toml.5": toml_page,
        "man/quota.toml.5": quota_toml_page,
        "man/ltgf-mps.8": mps_page,
    }
    return pages | {f"man/ltgf-{name}.1": partial(command_page, name) for name in COMMANDS}


# --- the pages ------------------------------------------------------------------------------------


def ltgf_page() -> str:
    """ltgf(1): what the commands share, and which there are."""
    with click.Context(cli, info_name="ltgf") as ctx:
        own = list(options(cli, ctx))
    commands = ((f"ltgf {name}", text) for name, (_, text) in COMMANDS.items())
    return page(
        "ltgf",
        1,
        cli.help or "",
        [
            ("SYNOPSIS", synopsis("ltgf [OPTIONS] COMMAND ...")),
            ("OPTIONS", tagged(own)),
            ("COMMANDS", tagged(commands)),
            ("EXIT STATUS", tagged(exit_codes())),
            ("ENVIRONMENT", tagged(ENVIRONMENT)),
            ("FILES", tagged(FILES)),
        ],
        see=[*(f"ltgf-{name}(1)" for name in COMMANDS), "ltgf-ckpt(1)", "ltgf.toml(5)"],
    )


def command_page(name: str) -> str:
    """ltgf-NAME(1); a group's subcommands are sections of its page."""
    with click.Context(cli, info_name="ltgf") as root:
        command = cli.get_command(root, name)
        assert command is not None
        with click.Context(command, info_name=name, parent=root) as ctx:
            parts = group_parts(command, ctx)
    see = ["ltgf(1)", "ltgf.toml(5)"]
    return page(f"ltgf-{name}", 1, COMMANDS[name][1], parts, see=see)


def group_parts(command: click.Command, ctx: click.Context) -> list[tuple[str, list[str]]]:
    """Sections of a command, and one for each subcommand if it is a group."""
    parts = list(command_parts(command, ctx))
    for verb in command.list_commands(ctx) if isinstance(command, click.Group) else ():
        below = command.get_command(ctx, verb)
        assert below is not None
        with click.Context(below, info_name=verb, parent=ctx) as its:
            parts += subcommand_parts(below, its)
    return parts


def command_parts(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, list[str]]]:
    """Synopsis, description and options of a command."""
    yield "SYNOPSIS", synopsis(" ".join([ctx.command_path, *command.collect_usage_pieces(ctx)]))
    yield "DESCRIPTION", paragraphs(command.help or "")
    if own := list(options(command, ctx)):
        yield "OPTIONS", tagged(own)


def subcommand_parts(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, list[str]]]:
    """One section for a subcommand of a group."""
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    text = [*synopsis(usage), ".PP", *paragraphs(command.help or "")]
    yield ctx.command_path.upper(), text + tagged(options(command, ctx))


def ckpt_page() -> str:
    """ltgf-ckpt(1), from its argparse parser."""
    parser = shell._options()
    of = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    said = {action.dest: action.help or "" for action in of._choices_actions}
    rows: list[tuple[str, str]] = []
    for name, one in of.choices.items():
        usage = " ".join(one.format_usage().removeprefix("usage: ").split())
        rows.append((usage.replace(" [-h]", ""), said[name]))
    rest = [f"{line.strip()[:1].upper()}{line.strip()[1:]}." for line in _lines(shell._HELP)]
    summary = (parser.description or "").partition(": ")[2]
    parts = [
        ("SYNOPSIS", synopsis("ltgf-ckpt COMMAND ...")),
        ("COMMANDS", tagged(rows)),
        ("NOTES", paragraphs("\n\n".join(rest))),
    ]
    return page("ltgf-ckpt", 1, summary, parts, see=["ltgf(1)", "ltgf-requeue(1)"])


def toml_page() -> str:
    """ltgf.toml(5): every setting."""
    parts: list[tuple[str, list[str]]] = [
        (
            "DESCRIPTION",
            paragraphs(
                "A TOML file, looked for as --config, $LTGF_CONFIG, ~/.config/ltgf/ltgf.toml and "
                "/etc/ltgf/ltgf.toml; without any, the defaults hold. `ltgf init` writes a first "
                "one.\n\nDurations are whole seconds, or texts like '90s', '15min', '24h', '7d', "
                "'2w'. Unknown names and values out of range are refused."
            ),
        )
    ]
    for section, struct in SECTIONS.items():
        rows = (
            (f"{row.key} = {row.default}", f"{row.meaning} ({row.unit})")
            for row in settings_of(section, struct).values()
        )
        intro = paragraphs(inspect.cleandoc(struct.__doc__ or ""))
        parts.append((f"[{section}]", intro + tagged(rows)))
    parts.append(("FILES", tagged(FILES[:2])))
    return page("ltgf.toml", 5, "Settings of slurm-ltgf.", parts, see=["ltgf(1)", "ltgf-init(1)"])


def quota_toml_page() -> str:
    """quota.toml(5): every key of the file that ltgf quota reads."""
    parts = [("DESCRIPTION", paragraphs(f"{QUOTA_ABOUT}\n\n{QUOTA_RULES}"))]
    for section, struct in QUOTA_SECTIONS.items():
        rows = (
            (row.key, f"{row.meaning} ({row.unit}{left_out(row)})")
            for row in settings_of(section, struct).values()
        )
        intro = paragraphs(inspect.cleandoc(struct.__doc__ or ""))
        parts.append((f"[{section}]", intro + tagged(rows)))
    see = ["ltgf-quota(1)", "ltgf.toml(5)", "sacctmgr(1)"]
    return page("quota.toml", 5, "Quotas and budgets of GPUs, for ltgf quota.", parts, see=see)


def left_out(row: Setting) -> str:
    """What a key that is left out is, if it is anything."""
    return "" if row.default == "None" else f"; left out: {row.default}"


def mps_page() -> str:
    """ltgf-mps(8), from the usage text in its source."""
    source = (ROOT / "spank" / "ltgf_mps.c").read_text(encoding="utf-8")
    body = source.partition("usage[] =\n")[2].partition('";\n')[0] + '"'
    text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', body)).replace("\\n", "\n")
    usage, summary, rest = text.partition("\n")[0], *text.split("\n", 2)[1:]
    parts = [
        ("SYNOPSIS", synopsis(usage.removeprefix("Usage: "))),
        ("COMMANDS AND OPTIONS", literal(rest)),
    ]
    return page("ltgf-mps", 8, summary, parts, see=["ltgf(1)"])


# --- what they are made of ------------------------------------------------------------------------


def page(
    name: str, section: int, summary: str, parts: list[tuple[str, list[str]]], *, see: list[str]
) -> str:
    """A page of sections; each part is a heading and its lines of roff."""
    short = roff(" ".join(summary.split()).rstrip("."))
    version = f'"slurm\\-ltgf {__version__}" "slurm\\-ltgf"'
    lines = [
        f".TH {roff(name.upper())} {section} {released()} {version}",
        ".SH NAME",
        *wrapped(f"{roff(name)} \\- {short[:1].lower()}{short[1:]}"),
    ]
    for heading, body in parts:
        lines += [f".SH {heading_of(heading)}", *body]
    others = ", ".join(other for other in see if not other.startswith(f"{name}("))
    lines += [".SH SEE ALSO", *filled(others)]
    return "\n".join(lines) + "\n"


def released() -> str:
    """Day of this version, from Debian's changelog: pages must not differ from day to day."""
    text = (ROOT / "debian" / "changelog").read_text(encoding="utf-8")
    dated = re.search(r"^ -- .*>  (.+)$", text, re.MULTILINE)
    assert dated is not None
    return f"{parsedate_to_datetime(dated[1]):%Y-%m-%d}"


def heading_of(text: str) -> str:
    """A section's heading; brackets of ltgf.toml's sections are kept."""
    return f'"{roff(text)}"' if " " in text else roff(text)


def synopsis(usage: str) -> list[str]:
    """How a program is called: words of its name in bold."""
    names, arguments = re.fullmatch(r"([a-z\- ]+?)((?: [\[A-Z].*)?)", usage).groups()
    return [f".B {roff(names)}", *filled(arguments.strip())]


def paragraphs(text: str) -> list[str]:
    """Help text; a block that click is told by \\b not to fill stays as it is."""
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        lines += [".PP"] if lines else []
        lines += literal(block[2:]) if block.startswith("\b\n") else filled(block)
    return lines


def tagged(rows: Iterable[tuple[str, str]]) -> list[str]:
    """A list of names in bold, each with its text indented below."""
    lines: list[str] = []
    for name, text in rows:
        lines += [".TP", f"\\fB{roff(name)}\\fR", *filled(text or "See above.")]
    return lines


def filled(text: str) -> list[str]:
    """Text in lines of the source, for roff to fill."""
    return wrapped(roff(" ".join(text.split())))


def wrapped(source: str) -> list[str]:
    """Roff in lines."""
    lines = textwrap.wrap(source, WIDTH, break_long_words=False, break_on_hyphens=False)
    return [guarded(line) for line in lines]


def literal(text: str) -> list[str]:
    """Lines as they are."""
    return [".nf", *(guarded(roff(line)) for line in _lines(text, blank=True)), ".fi"]


def guarded(line: str) -> str:
    """A line that roff does not take for a request."""
    return f"\\&{line}" if line.startswith(".") else line


def roff(text: str) -> str:
    """Text as roff prints it unchanged."""
    return "".join(_SIGNS.get(c, c if c.isascii() else f"\\[u{ord(c):04X}]") for c in text)


def options(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Names and help of a command's options but hidden ones."""
    for option in command.get_params(ctx):
        record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
        if record is not None:
            yield record


def exit_codes() -> Iterator[tuple[str, str]]:
    """Each code once, from the page on exit codes."""
    text = (ROOT / "docs" / "reference" / "exit-codes.md").read_text(encoding="utf-8")
    codes: dict[str, list[str]] = {}
    for code, meaning in re.findall(r"^\| (\d+) \| \S+ \| (.+) \|$", text, re.MULTILINE):
        plain = re.sub(r" \(\[[^]]+\]\([^)]+\)\)", "", meaning).replace(r"\|", "|").replace("`", "")
        codes.setdefault(code, []).append(plain)
    for code, meanings in codes.items():
        yield code, "; or: ".join(meanings)


def _lines(text: str, *, blank: bool = False) -> list[str]:
    """Lines of a text; blank: with empty ones between."""
    return [line for line in text.strip("\n").split("\n") if blank or line.strip()]
