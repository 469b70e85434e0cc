"""`ltgf-ckpt lint SCRIPT`: what in a batch script keeps a checkpoint from being made."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

#: What --signal takes as lead time, in seconds; Slurm may send up to 60 s earlier.
LONGEST_LEAD_S = 65535
_LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate launch")
_QUICK = {
    "cd", "echo", "export", "module", "mkdir", "set", "source", ".", "ulimit", "trap", "wait",
    "date", "hostname", "rm", "cp", "ln", "conda", "ml", "unset", "umask", "if", "then", "fi",
    "for", "do", "done", "else", "exit", "test", "[", "[[", "}", "sleep", "env", "nvidia-smi",
}  # fmt: skip
_ASSIGNMENT = re.compile(r"\w+=")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. line: from 1; 1 if it is about what is not there."""

    line: int
    text: str


@dataclass(slots=True)
class _Script:
    """What of a batch script matters here."""

    options: dict[str, tuple[int, str]] = field(default_factory=dict)
    commands: list[tuple[int, str]] = field(default_factory=list)


def lint(text: str) -> list[Finding]:
    """What should be said of a batch script, in order of its lines."""
    script = _read(text)
    found = [*_open_mode(script), *_signal(script)]
    return sorted(found, key=lambda one: one.line)


def _read(text: str) -> _Script:
    script = _Script()
    lines = text.replace("\\\n", "  ").splitlines()
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if line.startswith("#SBATCH") and not script.commands:
            for name, value in _options(line.removeprefix("#SBATCH")):
                script.options[name] = (number, value)
        elif line and not line.startswith("#"):
            script.commands.append((number, line))
    return script


def _options(line: str) -> Iterator[tuple[str, str]]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("--"):
            name, sign, value = word[2:].partition("=")
            yield name, value if sign or after.startswith("-") else after


def _open_mode(script: _Script) -> Iterator[Finding]:
    line, value = script.options.get("open-mode", (1, ""))
    if not value.startswith("a"):
        yield Finding(
            line,
            "a requeue overwrites the output file: add #SBATCH --open-mode=append (some sites"
            " have it as default: scontrol show config | grep JobFileAppend)",
        )


def _signal(script: _Script) -> Iterator[Finding]:
    line, value = script.options.get("signal", (0, ""))
    if not value:
        return
    match = re.fullmatch(r"((?:[RB]{1,2}:)?)(?:SIG)?(\w+?)(?:@(\d+))?", value)
    if match is None:
        yield Finding(line, f"--signal={value}: must be [R|B:]SIGNAL[@SECONDS]")
        return
    where, name, lead_s = match[1], match[2], int(match[3] or 60)
    if lead_s > LONGEST_LEAD_S:
        yield Finding(line, f"--signal={value}: at most {LONGEST_LEAD_S} seconds ahead")
    if name in ("USR1", "10"):
        yield Finding(line, "USR1 is taken by some releases of NCCL: use USR2")
    yield from (_to_shell(script, line, name) if "B" in where else _to_steps(script, line, name))


def _to_steps(script: _Script, line: int, name: str) -> Iterator[Finding]:
    """Without B: the signal goes to what srun started, and to nothing else."""
    for number, command in _long_ones(script):
        if _is_step(command):
            if _launcher(command) and "ltgf-ckpt" not in command:
                yield Finding(number, _kills_launcher(command, name))
            continue
        yield Finding(
            number,
            f"`{_shown(command)}` never sees {name}: --signal (line {line}) reaches steps of srun"
            " alone; start it by srun, or use --signal=B:… and `ltgf-ckpt run -- …`",
        )


def _to_shell(script: _Script, line: int, name: str) -> Iterator[Finding]:
    """With B: the signal goes to bash alone, which waits for its command before it runs a trap."""
    has_trap = any(re.search(rf"\btrap\b.*\b(SIG)?{name}\b", c) for _, c in script.commands)
    long_ones = [(n, c) for n, c in _long_ones(script) if "ltgf-ckpt run" not in c]
    for number, command in long_ones:
        if command.endswith("&"):
            continue
        if has_trap:
            yield Finding(
                number,
                f"bash runs its trap for {name} only after `{_shown(command)}` has ended: write"
                " `exec ltgf-ckpt run -- …`, or put & behind it and wait",
            )
        if _launcher(command):
            yield Finding(number, _kills_launcher(command, name))
    wrapped = [(n, c) for n, c in _long_ones(script) if "ltgf-ckpt run" in c]
    if not has_trap and (long_ones or not all(c.startswith("exec ") for _, c in wrapped)):
        yield Finding(
            line,
            f"{name} ends the batch script: bash has no trap for it;"
            " `exec ltgf-ckpt run -- …` as the last line takes it instead",
        )


def _kills_launcher(command: str, name: str) -> str:
    return (
        f"`{_shown(command)}`: {_launcher(command)} does not pass {name} on, it dies of it; write"
        " `ltgf-ckpt run -- …`, which signals the ranks themselves"
    )


def _long_ones(script: _Script) -> Iterator[tuple[int, str]]:
    """Commands that may be the work itself."""
    for number, command in script.commands:
        words = command.split()
        while words and _ASSIGNMENT.match(words[0]):
            words = words[1:]
        if words and words[0] not in _QUICK and "()" not in words[0]:
            yield number, command


def _is_step(command: str) -> bool:
    words = command.split()
    return any(word.rpartition("/")[2] in ("srun", "mpirun", "mpiexec") for word in words[:4])


def _launcher(command: str) -> str:
    return next((one for one in _LAUNCHERS if one in command), "")


def _shown(command: str) -> str:
    return command if len(command) <= 40 else command[:39] + "…"
