"""The doctor's check of the way SiteFactors go: by the plugin's table, or by scontrol."""

from __future__ import annotations

from slurm_ltgf.service.doctor_facts import RECONFIGURE, RESTART, TOML, Facts, Finding

NAME = "site-factor-plugin"
OURS = "site_factor/ltgf"
#: What the plugin reads when slurm.conf does not say.
DEFAULT_TABLE = "/run/ltgf/factors"
#: Slurm's walk over waiting jobs, in seconds: less it does not allow.
SHORTEST_PERIOD_S = 60


def site_factor_plugin(facts: Facts) -> Finding:
    """Which way SiteFactors go, and why; a plugin that is not ours sets them anew."""
    table, status = facts.config.site.factor_table, facts.plugin
    if table and status is not None and status.is_alive(facts.now):
        return _alive(facts, status.state, age_s=facts.now - status.generated_ns // 10**9)
    shown = facts.site.get("PrioritySiteFactorPlugin") or facts.conf_plugin
    if shown is None:
        return Finding(
            "note",
            NAME,
            "not checked: Slurm does not tell whether one is loaded, and"
            f" {facts.unread.get('conf_plugin', 'slurm.conf cannot be read here')}",
        )
    if shown in ("", "site_factor/none"):
        if table:
            return Finding(
                "note",
                NAME,
                f"slurmctld has no plugin for {table}: SiteFactors go by scontrol",
                f"PrioritySiteFactorPlugin={OURS}  # {RESTART}\n"
                f"PrioritySiteFactorParameters={table}",
            )
        return Finding("ok", NAME, "none: SiteFactors go by scontrol, and what it writes stays")
    if shown == OURS:
        return _silent(facts)
    return Finding(
        "fix",
        NAME,
        f"{shown} overwrites our SiteFactors every {_period(facts)} (PriorityCalcPeriod)",
        f"PrioritySiteFactorPlugin=site_factor/none  # {RESTART}",
    )


def _alive(facts: Facts, state: str, *, age_s: int) -> Finding:
    """The plugin answers."""
    table = facts.config.site.factor_table
    if state != "ok":
        return Finding(
            "fix",
            NAME,
            f"the plugin in slurmctld gives every job 0: {table} {state}",
            "systemctl start ltgf  # the daemon writes the table at each pass; or: ltgf tick",
        )
    if _seconds(_period(facts)) > SHORTEST_PERIOD_S:
        return Finding(
            "fix",
            NAME,
            f"SiteFactors go by the table, but waiting jobs take theirs only every"
            f" {_period(facts)}",
            f"PriorityCalcPeriod=1  # {RECONFIGURE}",
        )
    return Finding("ok", NAME, f"SiteFactors go by the table {table}, {age_s} s old")


def _silent(facts: Facts) -> Finding:
    """slurm.conf names our plugin, and nothing is heard of it where we look."""
    table, read = facts.config.site.factor_table, facts.conf_table or DEFAULT_TABLE
    if table == read:
        return Finding(
            "fix",
            NAME,
            f"slurm.conf names {OURS}, but no slurmctld writes {table}.status: SiteFactors go by"
            " scontrol",
            f"systemctl restart slurmctld  # and let SlurmUser write into the folder of {table}",
        )
    return Finding(
        "fix",
        NAME,
        f"slurmctld's {OURS} reads {read}, and we write"
        f" {table or 'none'}: every SiteFactor becomes 0 again",
        f'factor_table = "{read}"  # {TOML} [site]',
    )


def _period(facts: Facts) -> str:
    return facts.site.get("PriorityCalcPeriod", "00:05:00")


def _seconds(period: str) -> int:
    """HH:MM:SS, also with days before.

    >>> _seconds("00:05:00"), _seconds("1-00:00:00")
    (300, 86400)
    """
    days, _, clock = period.rpartition("-")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds
