"""The simulation's page: sound HTML, nothing from outside, hostile names, missing parts, size."""

import json
import math
import random
import re
import time
from html.parser import HTMLParser

import pytest

from slurm_ltgf.errors import InputError
from slurm_ltgf.report.comparison import best, headline, table
from slurm_ltgf.report.policy_charts import OWN_COLOURS, over_time, tenant_colours
from slurm_ltgf.report.simulation import simulation_page

POLICIES = ("fifo-static", "fifo", "slurm-fairtree", "srtf", "las-2d", "ltgf-lease")


def made_up(*, tenants=11, hours=500, policies=POLICIES, gpus=512, seed=1):
    """A result as `ltgf simulate --json` prints it, with figures that look like a real one's."""
    rng = random.Random(seed)
    names = [f"vc-{n:02}" for n in range(tenants)]
    weights = {name: rng.choice([1, 2, 3, 5]) for name in names}
    quotas = {name: gpus * weights[name] / sum(weights.values()) for name in names}
    rows = [_policy(name, names, weights, quotas, hours, gpus, rng) for name in policies]
    return {
        "meta": {
            "version": "0.1.0",
            "trace": "philly_2w_11vc.csv",
            "jobs": 22009,
            "command": "ltgf simulate philly_2w_11vc.csv --gpus 512 -o page.html",
        },
        "gpus": gpus,
        "policies": rows,
        "skipped": [{"line": 7 + n, "reason": "end before start"} for n in range(40)]
        + [{"line": 5, "reason": "no GPUs asked for"}],
        "skipped_total": 41,
    }


def _policy(name, names, weights, quotas, hours, gpus, rng):
    fair = {"ltgf-lease": 0.9, "fifo-static": 0.5, "slurm-fairtree": 0.4}.get(name, 0.1)
    held, rho = {}, {}
    for tenant in names:
        phase, now = rng.random() * 6, 1.0
        held[tenant], rho[tenant] = [], []
        for hour in range(hours):
            wave = 1 + (1.1 - fair) * math.sin(hour / 31 + phase) * math.exp(-hour / 900)
            held[tenant].append(round(quotas[tenant] * wave * rng.uniform(0.55, 0.65), 1))
            now += 0.1 * (wave - now) + rng.gauss(0, 0.01)
            idle = hour < 24 or (tenant == "vc-03" and 200 < hour < 260)
            rho[tenant].append(None if idle else round(now, 4))
    low = [v for values in rho.values() for v in values if v is not None]
    mean_jct_s = {"srtf": 9000, "las-2d": 12000, "fifo-static": 39000}.get(name, 16000)
    levels = [n / 100 for n in range(101)]

    def spread(middle, width, scale=1.0):
        marks = (min(max(q, 0.004), 0.996) for q in levels)
        return [round(scale * math.exp(middle + width * math.log(q / (1 - q))), 3) for q in marks]

    return {
        "policy": name,
        "mean_jct_s": mean_jct_s * rng.uniform(0.95, 1.05),
        "p50_jct_s": mean_jct_s / 7,
        "p99_jct_s": mean_jct_s * 17,
        "mean_wait_s": mean_jct_s * 0.4,
        "makespan_s": hours * 3600 + rng.randrange(9000),
        "utilisation": 0.78 + 0.03 * rng.random(),
        "tenant_mean_shortfall": sum(max(1 - v, 0) for v in low) / len(low),
        "worst_window_rho": min(low),
        "windows_below_095": sum(v < 0.95 for v in low) / len(low),
        "jain": 0.8 + 0.19 * fair,
        "jobs_below_095": 0.3 * (1.05 - fair),
        "job_rho_p5": 0.2 + 0.7 * fair,
        "job_loss": 0.3 * (1.05 - fair),
        "job_fair": 0.3,
        "job_benefit": 0.7 - 0.3 * (1.05 - fair),
        "preemptions": 4211 if name in ("ltgf-lease", "las-2d", "srtf") else 0,
        "overhead_gpu_s": 812345.0 if name in ("ltgf-lease", "las-2d", "srtf") else 0.0,
        "unfinished": 0,
        "wall_s": 3.2 * rng.random(),
        "tenants": [
            {
                "tenant": tenant,
                "weight": float(weights[tenant]),
                "quota_gpus": quotas[tenant],
                "attained_gpu_s": sum(held[tenant]) * 3600,
                "rho": rho[tenant][-1],
                "credit": 0.8 * rho[tenant][-1],
                "share": rng.uniform(0.9, 1.1),
                "mean_wait_s": mean_jct_s * 0.4 * rng.uniform(0.5, 1.5),
                "mean_jct_s": mean_jct_s * rng.uniform(0.5, 1.5),
            }
            for tenant in names
        ],
        "by_size": [
            {
                "gpus": size,
                "jobs": jobs,
                "mean_jct_s": mean_jct_s * (1 + n / 5),
                "mean_wait_s": mean_jct_s * 0.3 * (1 + n / 2),
                "p99_wait_s": mean_jct_s * 6 * (1 + n / 2),
                "rho_p5": 0.9 - n / 10,
            }
            for n, (size, jobs) in enumerate(
                {"1": 17000, "2-3": 2100, "4-7": 1500, "8": 1200, "9-16": 209}.items()
            )
        ],
        "series": {
            "times_s": [hour * 3600 for hour in range(hours)],
            "held_gpus": held,
            "rho": rho,
            "credit": rho,
            "share": rho,
        },
        "quantiles": {
            "levels": levels,
            "jct_s": spread(math.log(mean_jct_s / 7), 0.9),
            "wait_s": [0.0] * 50 + spread(math.log(mean_jct_s / 30), 1.1)[50:],
            "job_rho": spread(math.log(0.8 + fair / 3), 0.25),
        },
    }  # fmt: skip


@pytest.fixture(scope="module")
def result():
    return made_up(tenants=4, hours=40)


@pytest.fixture(scope="module")
def page(result):
    return simulation_page(result)


class Reader(HTMLParser):
    """Reads a page strictly: every element is closed in its order; gathers what it finds."""

    VOID = {"meta", "br"}

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.ids, self.links, self.words = [], [], [], [], []
        self.attributes = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag}: an attribute twice"
        self.attributes += [(tag, name, value) for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        self.links += [value for name, value in attrs if name in ("href", "src", "xlink:href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))


def cells(page, title):
    """Texts of the row of the big table with this title, best ones with a star."""
    shown = re.escape(title.replace("'", "&#39;").replace("<", "&lt;"))
    row = re.search(rf'<th scope="row">{shown}</th>(.*?)</tr>', page)[1]
    found = re.findall(r"<td( class=.best.)?>([^<]*)", row)
    return [words + ("*" if mark else "") for mark, words in found]


# --- a sound page, closed in itself ---------------------------------------------------------------


def test_the_page_is_sound_html(page):
    read = Reader(page)
    assert page.startswith("<!DOCTYPE html>")
    assert len(read.ids) == len(set(read.ids))
    assert {link.removeprefix("#") for link in read.links} <= set(read.ids)
    assert [read.tags.count(tag) for tag in ("html", "head", "title", "main", "h1")][:2] == [1, 1]
    assert read.tags.count("main") == read.tags.count("h1") == 1


def test_nothing_comes_from_outside_and_nothing_runs(page):
    read = Reader(page)
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    assert ("meta", "content", policy) in read.attributes
    assert not {"script", "link", "img", "iframe", "object", "form", "use"} & set(read.tags)
    assert not [name for _, name, _ in read.attributes if name.startswith("on")]
    assert not re.search(r"https?:|url\(|@import|javascript:", page)


def test_every_policy_has_its_section_and_every_chart_is_there(page, result):
    read = Reader(page)
    # 3 at a glance, 2 over time, 3 distributions, 2 for each policy; and the legend's samples
    charts = [value for tag, name, value in read.attributes if (tag, name) == ("svg", "aria-label")]
    assert len(charts) == 3 + 2 + 3 + 2 * len(result["policies"])
    for n, name in enumerate(POLICIES, 1):
        assert f'<section id="p{n}" class="linked">\n<h2>{name}</h2>' in page


def test_a_name_lights_up_in_every_chart_of_its_part(page):
    assert ".linked:has(.k3:hover) .series:not(.k3)" in page
    assert page.count('<g class="series c3 k3">') == 2 + 3 + 2 * len(POLICIES)


# --- what it says ---------------------------------------------------------------------------------


def two(**of_b):
    """Two policies: a takes 2 h a job and is fair, b is quicker and is not."""
    a = {"policy": "a", "mean_jct_s": 7200, "mean_wait_s": 3600, "tenant_mean_shortfall": 0.01}
    a |= {"jobs_below_095": 0.1, "worst_window_rho": 0.9, "unfinished": 0, "wall_s": 2.0}
    b = {"policy": "b", "mean_jct_s": 5400, "mean_wait_s": 1800, "tenant_mean_shortfall": 0.2}
    b |= {"jobs_below_095": 0.4, "worst_window_rho": 0.5, "unfinished": 0, "wall_s": 1.0}
    return {"meta": {}, "gpus": 8, "policies": [a, b | of_b]}


def test_the_headline_says_who_is_best_at_what():
    assert headline(two()["policies"]) == [
        {
            "names": ["a"],
            "deeds": [
                "keeps tenants closest to what they are due (mean shortfall 0.010, next b 0.200)",
                "leaves the fewest jobs with too little (rho < 0.95: 10.0 %, next b 40.0 %)",
            ],
        },
        {
            "names": ["b"],
            "deeds": [
                "finishes jobs soonest (on average after 1.50 h, next a 2.00 h)",
                "makes jobs wait least (on average 30.0 min, next a 60.0 min)",
            ],
        },
    ]


def test_policies_that_are_alike_are_not_ranked():
    same = two()
    same["policies"][1] = same["policies"][0] | {"policy": "b"}
    assert headline(same["policies"]) == []
    assert "The policies do not differ" in simulation_page(same)


def test_the_best_of_each_row_is_marked():
    page = simulation_page(two())
    assert cells(page, "Mean completion time") == ["2.00 h", "1.50 h*"]
    assert cells(page, "Mean shortfall") == ["0.010*", "0.200"]
    assert cells(page, "Worst window's rho") == ["0.900*", "0.500"]
    assert cells(page, "Jobs unfinished") == ["0", "0"]
    assert cells(page, "Time to simulate") == ["2 s", "1 s"]


def test_unknown_is_a_dash_and_never_best():
    page = simulation_page(two(mean_jct_s=None, tenant_mean_shortfall=math.nan, unfinished=None))
    assert cells(page, "Mean completion time") == ["2.00 h", "–"]
    assert cells(page, "Mean shortfall") == ["0.010", "–"]
    assert "Makespan" not in [r["title"] for g in table(two()["policies"]) for r in g["rows"]]
    assert best([1, None, 1, 2], ["1", "–", "1", "2"], "low") == [True, False, True, False]


def test_a_single_policy_has_a_sentence_of_its_own():
    alone = two()
    del alone["policies"][1]
    said = Reader(simulation_page(alone)).text
    assert "Under a a job takes 2.00 h on average, of which it waits 60.0 min" in said.replace(
        "  ", " "
    )


def test_tenants_below_095_are_marked(page, result):
    rows = [row for policy in result["policies"] for row in policy["tenants"]]
    assert page.count('class="rho low"') == sum(row["rho"] < 0.95 for row in rows) > 0


def test_the_worst_off_tenant_and_the_gpus_in_use_are_those_of_each_moment():
    given = two()
    for policy, rho in zip(given["policies"], (0.9, 0.5), strict=True):
        policy["series"] = {
            "times_s": [0, 3600],
            "held_gpus": {"x": [2, 3], "y": [1, None]},
            "rho": {"x": [1.2, rho], "y": [None, 1.1]},
        }
    worst, busy = over_time(given["policies"], 8)
    assert "<title>1 h\na  0.900\nb  0.500</title>" in worst.svg
    assert "<title>0 s\na  1.20\nb  1.20</title>" in worst.svg
    assert "<title>1 h\na  3\nb  3</title>" in busy.svg


def test_policies_with_other_times_meet_on_one_axis():
    given = two()
    hours = [3600 * n for n in range(11)]
    rho = [0.5 + n / 100 for n in range(11)]
    given["policies"][0]["series"] = {"times_s": hours, "rho": {"x": rho}}
    given["policies"][1]["series"] = {"times_s": [0, 9 * 3600], "rho": {"x": [0.8, 0.9]}}
    worst, _ = over_time(given["policies"], 8)
    assert "<title>1 h\na  0.510\nb  0.800</title>" in worst.svg
    assert "<title>9 h\na  0.590\nb  0.900</title>" in worst.svg
    assert "<title>10 h\na  0.600\nb  –</title>" in worst.svg


def test_one_policy_that_takes_far_longer_does_not_squeeze_the_others():
    given = made_up(tenants=2, hours=100, policies=("fifo", "ltgf"))
    slow = made_up(tenants=2, hours=400, policies=("fifo-static",))
    figures = over_time(given["policies"] + slow["policies"], 8)
    # half of all end at 99 h: shown until 1.25 times that
    assert all(f.note.endswith("; 16 d 15 h in all, here the first 5 d 3 h") for f in figures)
    assert "<title>5 d 2 h\nfifo  –\n" in figures[0].svg
    assert "in all" not in over_time(given["policies"], 8)[0].note


def test_a_sweep_names_its_values_and_what_failed():
    given = two(values={"lease": 300, "gpus": 8}, left_out=3)
    given["policies"].append({"policy": "c", "values": {"gpus": 1}, "error": "too small"})
    given["notes"] = ["node types <b> were guessed"]
    said = Reader(simulation_page(given)).text
    assert "2 policies" in said
    assert "b lease=300 gpus=8: 3 jobs are left out, no nodes have what they ask for" in said
    assert "c gpus=1 failed: too small" in said
    assert "node types <b> were guessed" in said
    with pytest.raises(InputError, match="c gpus=1 failed: too small"):
        simulation_page(given | {"policies": given["policies"][2:]})


def test_an_oracle_is_called_one():
    given = two()
    given["policies"][1]["policy"] = "srtf:cap=1"
    assert "srtf is told every run time in advance" in Reader(simulation_page(given)).text
    assert "srtf is told" not in simulation_page(two())


def test_skipped_rows_are_counted_by_reason():
    given = two() | {
        "skipped": [{"line": 4, "reason": "no end"}, {"line": 9, "reason": "no end"}],
        "skipped_total": 2000,
    }
    said = Reader(simulation_page(given)).text
    assert "2,000 rows of the trace could not be used" in said
    assert "Reasons are known for the first 2." in said
    assert re.search(r"2 4 no end", said)
    assert "every row of the trace was used" in Reader(simulation_page(two())).text


# --- many tenants, missing parts, hostile names, bad input ----------------------------------------


def test_small_tenants_are_summed_up_and_stand_in_the_table():
    given = made_up(tenants=40, hours=30, policies=("fifo", "ltgf"))
    colours = tenant_colours(given["policies"])
    quotas = {row["tenant"]: row["quota_gpus"] for row in given["policies"][0]["tenants"]}
    own = [name for name, colour in colours.items() if colour is not None]
    assert len(own) == OWN_COLOURS
    assert min(quotas[name] for name in own) >= max(
        quotas[name] for name, colour in colours.items() if colour is None
    )
    page = simulation_page(given)
    assert page.count(">29 others</text>") == 2
    assert "the other 29 are summed up in grey" in Reader(page).text
    assert all(page.count(f"</span>{name}</th>") == 2 for name in quotas)


def test_a_result_with_the_least_is_a_page():
    read = Reader(simulation_page({"policies": [{"policy": "a"}, {"policy": "b"}]}))
    assert "over-time" not in read.ids
    assert "jobs" not in read.ids


@pytest.mark.parametrize("missing", ["series", "by_size", "quantiles", "tenants"])
def test_a_part_may_be_missing_or_null(missing, result):
    for empty in (None, {} if missing in ("series", "quantiles") else []):
        policies = [policy | {missing: empty} for policy in result["policies"]]
        Reader(simulation_page(result | {"policies": policies}))
    gone = [{k: v for k, v in p.items() if k != missing} for p in result["policies"]]
    Reader(simulation_page(result | {"policies": gone}))


def test_every_number_may_be_null(result):
    def without(value):
        if isinstance(value, dict):
            return {k: v if k in ("times_s", "levels") else without(v) for k, v in value.items()}
        if isinstance(value, list):
            return [without(inner) for inner in value]
        return value if isinstance(value, str) else None

    read = Reader(simulation_page(without(result)))
    assert not re.search(r"\b(nan|None|null|inf)\b", read.text)


def test_hostile_names_stay_text(result):
    evil = "</style></title><script>alert(1)</script>\"'{{ 7*7 }}\x00\u202e\ud800"
    text = json.dumps(result).replace("vc-01", json.dumps(evil)[1:-1])
    given = json.loads(text)
    given["meta"] = {"trace": evil, "command": evil, "version": evil, "jobs": evil}
    given["policies"][0]["policy"] = evil
    given["skipped"] = [{"line": evil, "reason": evil}]
    page = simulation_page(given)
    read = Reader(page)
    assert not {"script"} & set(read.tags)
    assert page.count("</style>") == 1
    assert "{{ 7*7 }}" in read.text
    assert "\\u202e\\ud800" in read.text
    assert page.encode("utf-8")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "no list of policies"),
        ({}, "no list of policies"),
        ({"policies": []}, "no policy"),
        ({"policies": [{"mean_jct_s": 1}]}, "a policy has no name"),
        ({"policies": ["fifo"]}, "no list of policies"),
        (
            {"policies": [{"policy": "a", "series": {"times_s": [0, 1], "rho": {"t": [1]}}}]},
            "a: rho of t has 1 values for 2 times",
        ),
        ({"policies": [{"policy": "a", "tenants": [{"rho": 1}]}]}, "not a result"),
        ({"policies": [{"policy": "a", "series": {"times_s": ["x"]}}]}, "not a result"),
        ({"policies": [{"policy": "a", "quantiles": {"jct_s": [1]}}]}, "not a result"),
    ],
)
def test_what_is_no_result_is_one_line(given, said):
    with pytest.raises(InputError, match=said) as caught:
        simulation_page(given)
    assert "\n" not in str(caught.value)


# --- size -----------------------------------------------------------------------------------------


def test_six_policies_eleven_tenants_500_hours_are_small_and_quick():
    given = made_up()
    began = time.process_time()
    page = simulation_page(given)
    assert time.process_time() - began < 2
    assert len(page.encode()) < 2_000_000
    assert page == simulation_page(made_up())
