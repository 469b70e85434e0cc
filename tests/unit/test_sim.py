"""The simulator: placement, backfill on scenarios computed by hand, theory, traces."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from slurm_ltgf.cli.main import run
from slurm_ltgf.core.order import Rules
from slurm_ltgf.errors import InputError
from slurm_ltgf.sim.cluster import Cluster, NodeType
from slurm_ltgf.sim.engine import simulate
from slurm_ltgf.sim.metrics import measures
from slurm_ltgf.sim.policies import POLICIES, Site
from slurm_ltgf.sim.policies.fifo import Fifo
from slurm_ltgf.sim.traces.columns import read_csv, read_weights
from slurm_ltgf.sim.traces.generated import generated
from slurm_ltgf.sim.workload import Job, workload


def job(job_id, gpus, run_s, *, submit=0, tenant="a", limit_s=None):
    return Job(job_id, tenant, gpus, submit, run_s, limit_s or run_s)


def nodes_of(count, gpus, placement="consolidated"):
    return Cluster([NodeType(count, gpus)], placement)


def ask(gpus, **more):
    return Job(0, "a", gpus, 0, 1, 1, **more)


def starts(jobs, policy, *, nodes=1, per_node=8, **terms):
    """Start time of each job."""
    weights = terms.pop("weights", None) or {j.tenant: 1.0 for j in jobs}
    site = Site(weights, nodes * per_node, rules=Rules(**terms))
    outcome = simulate(workload(jobs), nodes_of(nodes, per_node), POLICIES[policy](site))
    return {j.job_id: j.start for j in outcome.jobs}


# --- placement ------------------------------------------------------------------------------------


def test_a_job_goes_where_it_fits_most_tightly():
    cluster = nodes_of(3, 8)
    cluster.take(((0, 6), (1, 3)), ask(1))
    assert cluster.find(ask(2)) == ((0, 2),)
    assert cluster.find(ask(4)) == ((1, 4),)
    assert cluster.find(ask(8)) == ((2, 8),)
    assert cluster.find(ask(12)) == ((2, 8), (1, 4))
    assert cluster.find(ask(14)) is None


def test_larger_jobs_take_whole_nodes_and_the_rest_on_one():
    cluster = nodes_of(3, 8)
    cluster.take(((2, 2),), ask(1))
    assert cluster.find(ask(20)) == ((0, 8), (1, 8), (2, 4))
    assert cluster.find(ask(23)) is None


@pytest.mark.parametrize(
    ("placement", "found"),
    [("consolidated", None), ("packed", ((0, 2), (1, 2))), ("spread", ((1, 3), (0, 1)))],
)
def test_placement_decides_whether_a_job_may_be_split(placement, found):
    cluster = nodes_of(2, 8, placement)
    cluster.take(((0, 6), (1, 5)), ask(1))
    assert cluster.find(ask(4)) == found


def test_what_is_given_back_is_free_again():
    cluster = nodes_of(2, 8)
    cluster.take(((0, 8), (1, 4)), ask(1))
    cluster.give(((0, 8), (1, 4)), ask(1))
    assert (cluster.free, cluster.free_gpus, cluster.find(ask(16))) == (
        [8, 8],
        16,
        ((0, 8), (1, 8)),
    )


# --- backfill -------------------------------------------------------------------------------------


def test_backfill_fills_the_hole_before_a_reservation_and_never_delays_it():
    jobs = [
        job(1, 6, 100),
        job(2, 8, 50),  # waits for 1: reserved at 100
        job(3, 2, 100),  # ends at 100: may go first
        job(4, 2, 101),  # would end after 100 on the only node: may not
    ]
    assert starts(jobs, "fifo") == {1: 0, 3: 0, 2: 100, 4: 150}


def test_a_long_job_may_pass_on_a_node_that_is_not_reserved():
    jobs = [job(1, 8, 100), job(2, 4, 200), job(3, 8, 10), job(4, 4, 999)]
    assert starts(jobs, "fifo", nodes=2) == {1: 0, 2: 0, 4: 0, 3: 100}


def test_backfill_trusts_limits_and_not_run_times():
    jobs = [job(1, 6, 100), job(2, 8, 50), job(3, 2, 10, limit_s=500)]
    assert starts(jobs, "fifo") == {1: 0, 2: 100, 3: 150}


# --- theory ---------------------------------------------------------------------------------------


def test_one_tenant_alone_gets_all_it_asks_for():
    jobs = [job(k, 8, 3600, submit=3600 * (k - 1)) for k in range(1, 31)]
    outcome = simulate(workload(jobs), nodes_of(1, 8), Fifo())
    m = measures(outcome, {"a": 1})
    assert (m.tenant_mean_shortfall, m.worst_window_rho, m.utilisation) == (0, 1, 1)
    assert m.mean_wait_s == 0


def test_two_tenants_that_take_turns_have_what_they_deserve():
    """a and b each want the whole cluster half of the time: U = 2 D, no window is short."""
    jobs = [job(k, 8, 3600, submit=3600 * k, tenant="ab"[k % 2]) for k in range(48)]
    m = measures(simulate(workload(jobs), nodes_of(1, 8), Fifo()), {"a": 1, "b": 1})
    assert [row.rho for row in m.tenants] == [2, 2]
    assert m.windows_below_095 == 0


def test_the_mean_wait_of_a_queue_is_erlangs():
    """M/M/c: 8 servers, load 0.9; the mean over seeds within three standard errors of Erlang C."""
    servers, load, mean_run = 8, 0.9, 1000.0
    means = [mm_c_wait(seed, servers, load, mean_run) for seed in range(12)]
    error = np.std(means, ddof=1) / math.sqrt(len(means))
    assert abs(np.mean(means) - erlang_wait(servers, load, mean_run)) < 3 * error


def mm_c_wait(seed, servers, load, mean_run):
    """Mean wait of 8,000 jobs, the first thousand left out."""
    random = np.random.default_rng(seed)
    n = 8000
    gaps = random.exponential(mean_run / (servers * load), n)
    runs = random.exponential(mean_run, n)
    # a thousand ticks a second, so that whole numbers do not round waits away
    submit, run_s = (np.cumsum(gaps) * 1000).astype(int), np.maximum(runs * 1000, 1).astype(int)
    jobs = [job(k, 1, int(run_s[k]), submit=int(submit[k])) for k in range(n)]
    outcome = simulate(workload(jobs), nodes_of(1, servers), Fifo())
    return float(np.mean([j.start - j.submit for j in outcome.jobs[1000:]])) / 1000


def erlang_wait(servers, load, mean_run):
    """Erlang C: P(wait) / (c μ - λ)."""
    offered = servers * load
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    last = offered**servers / math.factorial(servers) / (1 - load)
    return last / (sum(terms) + last) * mean_run / (servers * (1 - load))


# --- traces and the command -----------------------------------------------------------------------

PHILLY = [
    "timestamp,duration,num_gpus,gpu_time,cluster\n",
    "2017-10-09 07:01:55,66.0,1,66.0,aa\n",
    "2017-10-09 07:01:45,100.0,2,200.0,bb\n",
    "gestern,1,1,1,aa\n",
    "2017-10-09 07:01:45,100.0,0,0,bb\n",
]
ASTRAEA = [
    "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval\n",
    "0,aa,1,115,100,alexnet,70,0\n",
    "1,bb,2,132,100,alexnet,18,0\n",
]


def test_philly_is_read_and_bad_rows_are_named():
    work = read_csv(PHILLY, "philly")
    assert [(j.tenant, j.gpus, j.submit, j.run_s) for j in work.jobs] == [
        ("bb", 2, 0, 100),
        ("aa", 1, 10, 66),
    ]
    assert [row.line for row in work.skipped] == [4, 5]


def test_the_artifacts_form_is_read():
    work = read_csv(ASTRAEA, "astraea", limit_factor=2)
    assert [(j.tenant, j.gpus, j.submit, j.run_s, j.limit_s) for j in work.jobs] == [
        ("aa", 1, 0, 70, 140),
        ("bb", 2, 17, 18, 36),
    ]


def test_an_unknown_trace_is_refused():
    with pytest.raises(InputError, match="no trace that is known"):
        read_csv(["a,b\n", "1,2\n"], "x")


@pytest.mark.parametrize("lines", [["name,weight\n"], ["name,share\n", "a,-1\n"]])
def test_wrong_weights_are_refused(lines):
    with pytest.raises(InputError):
        read_weights(lines, "w")


def test_generated_workloads_have_phillys_sizes_and_the_load_asked_for():
    work, weights = generated(jobs=20_000, tenants=5, gpus=64, load=0.8, seed=3)
    sizes = np.array([j.gpus for j in work.jobs])
    assert 0.91 < (sizes == 1).mean() < 0.95
    span = work.jobs[-1].submit
    asked = sum(j.gpus * j.run_s for j in work.jobs)
    assert asked / (64 * span) == pytest.approx(0.8, rel=0.01)
    assert len(weights) == 5


def test_simulate_prints_the_stated_json(capsys, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("".join(PHILLY))
    words = ["simulate", str(trace), "--gpus", "8", "--policy", "fifo,ltgf", "--json"]
    assert run([*words, "--weights", "aa=3,bb=1"]) == 0
    answer = json.loads(capsys.readouterr().out)
    keys = (
        "policy mean_jct_s p50_jct_s p99_jct_s makespan_s utilisation tenant_mean_shortfall "
        "worst_window_rho windows_below_095 jobs_below_095 job_rho_p5 preemptions overhead_gpu_s "
        "unfinished wall_s"
    )
    assert all(policy.keys() >= set(keys.split()) for policy in answer["policies"])
    assert [policy["policy"] for policy in answer["policies"]] == ["fifo", "ltgf"]
    assert answer["skipped_total"] == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--policy", "lottery"], 2),
        (["{trace}"], 2),
        (["{trace}", "--gpus", "12"], 2),
        (["/nonexistent", "--gpus", "8"], 65),
    ],
    ids=["policy", "no size", "odd size", "no file"],
)
def test_a_wrong_simulation_is_one_line(capsys, tmp_path, words, code):
    trace = tmp_path / "trace.csv"
    trace.write_text("".join(PHILLY))
    assert run(["simulate", *[word.format(trace=trace) for word in words]]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_real_traces_are_read_where_they_lie():
    shared = Path(__file__).parents[3] / "shared" / "traces"
    if not shared.is_dir():
        pytest.skip("the traces are not here")
    with (shared / "philly" / "philly_2w_11vc.csv").open() as lines:
        assert len(read_csv(lines, "philly").jobs) == 22_009
    with (shared / "philly" / "philly.csv").open() as lines:
        work = read_csv(lines, "philly")
    assert len(work.jobs) + len(work.skipped) == 82_247
    with (shared / "openb" / "openb_pod_list_default.csv").open() as lines:
        work = read_csv(lines, "openb")
    assert len(work.jobs) + len(work.skipped) == 8_152
