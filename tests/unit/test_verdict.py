"""What a report says in words: the answer at its bounds, who is named, what is worth a sentence."""

from dataclasses import replace

import pytest

from slurm_ltgf.core.fairness import Fairness, TenantIndex, state_of
from slurm_ltgf.core.model import Window
from slurm_ltgf.core.pulse import Pulse
from slurm_ltgf.core.verdict import Circumstances, verdict

H = 3600
PULSE = Pulse(80 * H, 100 * H, 0.8, 10, 60.0, 600.0, 0, 0, 0.0, 0.0, 0.0)


def tenant(name, attained, deserved=10, entitled=None, *, weight=1.0):
    """A tenant in GPU-hours."""
    entitled = deserved if entitled is None else entitled
    rho = attained / deserved if deserved else None
    share = attained / entitled if entitled else None
    asked = bool(attained or entitled)
    state = state_of(weight=weight, rho=rho, share=share, asked=asked)
    return TenantIndex(
        name, weight, 5.0 * weight, attained * H, deserved * H, 20 * H, entitled * H, rho,
        attained / 20, share, state,
    )  # fmt: skip


def of(*tenants, before=None, pulse=PULSE, earlier=None, only=None, **around):
    def made(rows):
        total = sum(row.attained_gpu_s for row in rows)
        return Fairness(Window(0, 100), tuple(rows), 100 * H, total, 1.0, 1.0, 0.0, 0.0)

    then = None if before is None else made(before)
    earlier = PULSE if before is not None and earlier is None else earlier
    around = Circumstances(**around)
    return verdict(made(tenants), then, pulse, earlier, around=around, only=only)


@pytest.mark.parametrize(
    ("attained", "answer"),
    [(9.5, "fair"), (9.49, "mostly fair"), (0, "not fair")],
)
def test_fair_is_that_nobody_is_below_095(attained, answer):
    assert of(tenant("a", attained), tenant("b", 10)).answer == answer


def test_mostly_fair_lacks_at_most_a_twentieth_of_what_was_due():
    assert of(tenant("a", 5), tenant("b", 90, 90)).answer == "mostly fair"
    assert of(tenant("a", 4.9), tenant("b", 90, 90)).answer == "not fair"


def test_the_headline_names_who_is_short_the_shortest_first():
    said = of(tenant("a", 8), tenant("b", 2), tenant("c", 10)).headline
    assert said == "2 of 3 tenants got less than they were due: b 20 % of it and a 80 %."
    assert of(tenant("a", 8)).headline == "a got 80 % of what it was due."
    many = of(*(tenant(f"t{i}", i / 10) for i in range(6))).headline
    assert "t0 0 % of it, t1 1 %, t2 2 % and 3 others" in many


def test_nobody_asked_is_no_usage_and_no_capacity_is_unknown():
    nobody = replace(PULSE, held_gpu_s=0.0, busy=0.0)
    assert of(tenant("a", 0, 0), pulse=nobody).answer == "no usage"
    not_known = dict.fromkeys(("rho", "deserved_gpu_s", "entitled_gpu_s", "share"))
    blind = replace(tenant("a", 3), **not_known, state="unknown")
    found = of(blind, pulse=replace(PULSE, busy=None, capacity_gpu_s=None, free_gpu_s=None))
    assert found.answer == "unknown"
    assert "`--capacity N`" in found.todo[0]


def test_owed_and_ahead_are_in_the_balance_with_the_others():
    found = of(tenant("a", 10, 10, 14), tenant("b", 10, 5, 8), tenant("c", 10, 10, 10))
    assert found.answer == "fair"
    assert [(one.tenant, one.gpu_s) for one in found.owed] == [("a", 4 * H)]
    assert [(one.tenant, one.gpu_s) for one in found.ahead] == [("b", 2 * H)]


def test_what_changed_is_said_when_it_is_worth_it():
    then = [tenant("a", 5), tenant("b", 10)]
    found = of(tenant("a", 10), tenant("b", 10), before=then).changed
    assert found[0] == "a gets its due again: 100 % of it, 50 % before."
    assert "a held 50 % of all GPU-time used, 33 % before." in found
    assert of(tenant("a", 10), before=[tenant("a", 10)]).changed == ("Nothing of note.",)
    assert of(tenant("a", 10)).changed == ("There is no history of the period before.",)


def test_waits_and_use_and_lost_work_are_compared():
    worse = replace(PULSE, busy=0.9, median_wait_s=7200.0, lost_gpu_s=2.0 * H)
    found = of(tenant("a", 10), before=[tenant("a", 10)], pulse=worse).changed
    assert found == (
        "GPUs were in use 90 % of the time, 80 % before.",
        "Half of the jobs started within 2 h, before within 60 s.",
        "2 GPU-hours of work were lost, 0 GPU-hours before.",
    )


def test_what_to_do_follows_from_what_is_wrong():
    short = tenant("a", 5)
    assert "`ltgf daemon` keeps it" in of(short).todo[0]
    assert "Nothing by hand for a" in of(short, writes=7).todo[0]
    assert of(tenant("a", 10)).todo == ("Nothing: leave it as it is.",)
    stranger = tenant("x", 5, 0, 5, weight=0.0)
    assert "Give x shares" in of(tenant("a", 10), stranger).todo[0]
    assert "Ask i whether" in of(tenant("a", 10), tenant("i", 0, 0)).todo[0]
    free = replace(PULSE, free_gpu_s=6.0 * H, lost_gpu_s=2.0 * H)
    found = of(tenant("a", 10), pulse=free, skipped=1, suspects=2).todo
    assert "6 GPU-hours stood free (6 % of all)" in found[0]
    assert "save their work" in found[1]
    assert found[2].endswith("1 row could not be read, 2 records cannot be right.")


def test_only_those_asked_for_are_named():
    found = of(tenant("a", 5), tenant("secret", 1), before=[tenant("secret", 9), tenant("a", 9)],
               only=frozenset({"a"}))  # fmt: skip
    assert "secret" not in repr(found)
    assert found.headline == "a got 50 % of what it was due."
