"""Cases of kind sacct-json: the field log's inputs and right answers."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from reading import INPUTS, dated, read, usage

from slurm_ltgf.core.model import NO_LIMIT, UNKNOWN
from slurm_ltgf.errors import InputError
from slurm_ltgf.slurm.text import base_state

MINUTES = {"set": True, "infinite": False, "number": 60}
SHAPES: dict[str, dict[str, Any]] = {
    "21.08": {"state": {"current": "COMPLETED"}, "limit": 60},
    "23.02": {"state": "COMPLETED", "limit": MINUTES},
    "23.11": {"state": {"current": ["COMPLETED"]}, "limit": MINUTES},
    "24.05": {"state": ["COMPLETED"], "limit": MINUTES},
}


def answer(**changes: Any) -> dict[str, Any]:
    """JSN-01's job in the shape of 21.08, with some parts changed."""
    shape_a = (INPUTS / "jsn-01.txt").read_text().splitlines()[0]
    whole: dict[str, Any] = json.loads(shape_a.partition(": ")[2])
    job = whole["jobs"][0]
    if "limit" in changes:
        job["time"]["limit"] = changes.pop("limit")
    job |= changes
    return whole


@pytest.mark.parametrize("version", SHAPES)
def test_jsn_01_every_shape_gives_the_same_job(version):
    runs, skipped = read(json.dumps(answer(**SHAPES[version])))
    run = runs.row(0)
    assert (run.job_id, run.account, run.state, run.limit_s) == (1, "lab-a", "COMPLETED", 3600)
    assert usage(runs) == {"lab-a": 7200}
    assert skipped == []


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"tres": {"assigned": []}}, r"jobs\[0\].tres.allocated is missing"),
        ({"tres": {"allocated": {"gpu": 2}}}, r"jobs\[0\].tres.allocated: .*\"gpu\":2"),
        ({"state": {"now": "COMPLETED"}}, r"jobs\[0\].state.current: "),
        ({"limit": {"value": 60}}, r"jobs\[0\].time.limit: .*\"value\":60"),
        ({"time": {"begin": 1}}, r"jobs\[0\].time.start is missing"),
        ({"job_id": "1"}, r"jobs\[0\].job_id: "),
    ],
)
def test_jsn_01_a_shape_of_the_future_fails_with_its_path(changes, path):
    with pytest.raises(InputError, match=path):
        read(json.dumps(answer(**changes)))


def test_jsn_02_sentinels_are_not_numbers():
    runs, skipped = read((INPUTS / "jsn-02.txt").read_text(), now=1_700_003_600)
    running, pending = runs.rows()
    assert (running.end, running.limit_s, running.elapsed_s) == (UNKNOWN, NO_LIMIT, 3600)
    assert usage(runs, now=1_700_003_600) == {running.account: 7200}
    assert (pending.start, pending.end, pending.limit_s) == (UNKNOWN, UNKNOWN, 300)
    assert skipped == []


def test_jsn_04_base_state_and_flags_in_any_order():
    jobs = json.loads((INPUTS / "jsn-04.txt").read_text().partition(": ")[2])
    read_states = {job["job_id"]: base_state(job["job_state"]) for job in jobs}
    turned = {job["job_id"]: base_state(job["job_state"][::-1]) for job in jobs}
    assert read_states == turned
    assert {job: state for job, (state, _) in read_states.items()} == {
        **{1: "RUNNING", 2: "CANCELLED", 3: "COMPLETED", 4: "PENDING"}
    }
    assert read_states[2][1] == {"COMPLETING"}, "its GPUs are still held"


@pytest.mark.parametrize("flag", ["REQUEUED", "RESIZING"])
def test_jsn_04_a_run_that_ended_by_requeue_is_not_pending(flag):
    runs, _ = read(json.dumps(answer(state={"current": ["PENDING", flag]})))
    assert (runs.row(0).state, usage(runs)) == (flag, {"lab-a": 7200})


def test_jsn_04_a_pending_record_with_times_of_a_run_is_charged():
    runs, _ = read(json.dumps(answer(state=["PENDING"])))
    assert usage(runs) == {"lab-a": 7200}


def test_jsn_05_text_and_json_give_the_same_records():
    steps = dated((INPUTS / "txt-09.psv").read_text(), start="1000")
    from_text, _ = read(steps.replace("810", "1").replace("gpu=4", "gpu=2"))
    job = answer(state="COMPLETED", cluster="c", limit=None)
    from_json, _ = read(json.dumps(job))
    as_text = from_text.rows()[0]
    as_json = from_json.rows()[0]
    assert as_text.state == ""  # TXT-09 has no State, Submit or ReqTRES column
    assert as_json.state == "COMPLETED"
    for name in ("job_id", "account", "start", "end", "elapsed_s", "gres", "cluster", "limit_s"):
        assert getattr(as_text, name) == getattr(as_json, name), name


def test_a_job_that_ran_without_a_tres_list_has_unknown_gpus():
    runs, _ = read(json.dumps(answer(tres={"allocated": []})))
    assert runs.row(0).gres == "?"


def test_an_answer_cut_short_is_refused():
    with pytest.raises(InputError, match="cut short"):
        read(json.dumps(answer())[:-20])


def test_squeue_json_is_not_taken_for_sacct_json():
    listed = re.sub("^.*?: ", '{"jobs": ', (INPUTS / "jsn-04.txt").read_text().strip()) + "}"
    with pytest.raises(InputError, match=r"jobs\[0\].time"):
        read(listed)
