"""Charts: where things are drawn (computed by hand), gaps, thinning, ticks, hostile names."""

import math
import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ltgf.report.axes import Axis, scale_over
from slurm_ltgf.report.charts import bars, line_chart, stacked_area, step_cdf
from slurm_ltgf.report.series import MOST, Bar, Mark, Series, thin
from slurm_ltgf.report.svg import LINE_HEIGHT, apart, colour_class
from slurm_ltgf.report.words import clean, durations, number, shorten

HOSTILE = "</text><script>alert(1)</script>\"'&\x00\u202e\ud800"
UNKNOWN = [None, math.nan, math.inf, -math.inf]
PLAIN = Axis(low=0, high=10)


def lines(*values, x=None, marks=(), y_axis=PLAIN, title=""):
    """A line chart of 182 x 262 pixels: the plot is x 52..52 + 100, y 22..238, 21.6 a unit."""
    x = x if x is not None else list(range(len(values[0])))
    series = [Series(f"s{i}", list(v), i) for i, v in enumerate(values)]
    return line_chart(
        x, series, title=title, x_axis=Axis(), y_axis=y_axis, marks=marks, size=(282, 262)
    )


def shapes(svg, kind, classes):
    """Elements of a kind with exactly those classes."""
    return [e for e in ET.fromstring(svg).iter(kind) if e.get("class") == classes]


def texts(svg, classes):
    return [e.text for e in shapes(svg, "text", classes)]


def paths(svg, classes="line"):
    return [e.get("d") for e in shapes(svg, "path", classes)]


# --- lines ----------------------------------------------------------------------------------------


def test_a_line_goes_through_its_values():
    assert paths(lines([0, 5, 10])) == ["M52 238L102 130L152 22"]


@pytest.mark.parametrize("unknown", UNKNOWN)
def test_an_unknown_value_is_a_gap_and_a_lone_one_a_dot(unknown):
    assert paths(lines([0, 5, unknown, 5, 0])) == ["M52 238L77 130M127 130L152 238"]
    assert paths(lines([0, unknown, 5])) == ["M52 238L52 238M152 130L152 130"]


def test_values_beyond_a_bound_are_drawn_on_it_and_the_tick_says_so():
    svg = lines([0, 99])
    assert paths(svg) == ["M52 238L152 22"]
    assert texts(svg, "tick end")[-1] == "≥ 10"
    assert texts(lines([0, 9]), "tick end")[-1] == "10"


def test_a_mark_is_drawn_at_its_value_and_shaded_below():
    svg = lines([0, 10], marks=[Mark(5, "half", shade=True)])
    assert [e.get("y1") for e in shapes(svg, "line", "mark")] == ["130"]
    assert [(e.get("y"), e.get("height")) for e in shapes(svg, "rect", "shade")] == [("130", "108")]
    assert texts(svg, "mark-label") == ["half"]


def test_tooltips_say_every_value_of_their_moment():
    svg = line_chart(
        [0, 3600], [Series("a", [1, 2], 0), Series("b", [None, 4.5], 1)],
        title="", x_axis=Axis(kind="seconds"), y_axis=Axis(),
    )  # fmt: skip
    said = [e[0].text for e in shapes(svg, "rect", "hit")]
    assert said == ["0 s\na  1\nb  –", "1 h\na  2\nb  4.50"]


def test_a_series_of_another_length_is_refused():
    with pytest.raises(ValueError, match="s1: 1 values beside 2"):
        lines([1, 2], [1])


@pytest.mark.parametrize("values", [[], [None, math.nan]])
def test_nothing_known_is_said_so(values):
    x = list(range(len(values)))
    one = Series("a", values, 0)
    axis = Axis()
    for svg in (
        line_chart(x, [one], title="", x_axis=axis, y_axis=axis),
        stacked_area(x, [one], title="", x_axis=axis, y_axis=axis),
        step_cdf([one], title="", x_axis=Axis(log=True)),
    ):
        assert "nothing to show" in texts(svg, "tick middle")
        assert not paths(svg)


# --- thinning -------------------------------------------------------------------------------------


def test_thinned_lines_keep_every_peak_and_gap():
    values = [1.0] * 10_000
    values[4321] = 9.0
    values[7001] = -3.0
    values[2000:2200] = [None] * 200
    kept = thin(values)
    assert len(kept) <= MOST
    assert {4321, 7001} <= set(kept)
    assert kept == sorted(set(kept))
    assert any(values[i] is None for i in kept)
    assert thin([1, 2, None]) == [0, 1, 2]


def test_a_long_line_has_few_points_and_its_peak():
    values = [1.0] * 10_000
    values[4321] = 10.0
    (drawn,) = paths(lines(values))
    assert drawn.count("L") < MOST
    assert " 22L" in drawn


def test_thinned_areas_keep_the_mean():
    # 600 values in 300 stretches of (0, 4): each is drawn at 2, a third of 6
    svg = area([0, 4] * 300, high=6)
    (drawn,) = paths(svg, "area")
    assert set(re.findall(r" (\d+)", drawn)) == {"166", "238"}


# --- stacked areas --------------------------------------------------------------------------------


def area(*values, high=10, **more):
    """Stacked areas on a plot of x 52..152, y 22..238."""
    series = [Series(f"s{i}", list(v), i) for i, v in enumerate(values)]
    x = list(range(len(values[0])))
    y_axis = Axis(low=0, high=high)
    return stacked_area(
        x, series, title="", x_axis=Axis(), y_axis=y_axis, size=(304, 262), **more
    )  # fmt: skip


def test_areas_lie_on_each_other():
    assert paths(area([5, 0], [5, 5]), "area") == [
        "M52 130L152 238L152 238L52 238Z",
        "M52 22L152 130L152 238L52 130Z",
    ]


def test_where_one_is_unknown_the_stack_has_a_gap():
    lower, upper = paths(area([5, 5, 5, 5, 5], [5, 5, None, 5, 5]), "area")
    assert lower == "M52 130L77 130L77 238L52 238ZM127 130L152 130L152 238L127 238Z"
    assert upper.count("M") == 2


def test_a_series_that_is_never_known_is_left_out():
    assert len(paths(area([1, 1], [None, None]), "area")) == 1


def test_the_column_stacks_what_to_compare_with():
    svg = area([1, 1], [1, 1], column=[5, 2.5], column_title="quota")
    boxes = [(e.get("y"), e.get("height")) for e in shapes(svg, "rect", "area")]
    assert boxes == [("130", "108"), ("76", "54")]
    assert "quota" in texts(svg, "axis-title")


# --- distributions --------------------------------------------------------------------------------


def test_a_sample_is_a_staircase():
    # x: 0..4 on 52..84, y: 22..276; steps to 1/4 at 1, 3/4 at 2, 1 at 4
    one = Series("a", [2, 4, None, 1, 2], 0)
    svg = step_cdf([one], title="", x_axis=Axis(low=0, high=4), size=(468, 300))
    assert paths(svg) == [
        "M152 276L152 212.5L252 212.5L252 149L252 149L252 85.5L452 85.5L452 22L452 22"
    ]


def test_quantiles_are_drawn_at_their_levels():
    one = Series("a", [0, 2, 4], 0)
    axis = Axis(low=0, high=4)
    svg = step_cdf([one], title="", x_axis=axis, levels=[0, 0.5, 1], size=(468, 300))
    assert paths(svg) == ["M52 276L52 276L252 276L252 149L452 149L452 22L452 22"]
    said = [e[0].text for e in shapes(svg, "rect", "hit")]
    assert said[0] == "2.50 % are at or below\na  2"
    assert said[-1] == "97.5 % are at or below\na  4"


def test_zero_waits_start_at_the_left_edge_of_a_logarithmic_axis():
    one = Series("a", [0, 0, 10, 100], 0)
    axis = Axis(kind="seconds", log=True, low=1, high=100)
    svg = step_cdf([one], title="", x_axis=axis, size=(468, 300))
    # half of all wait 0 s: the line rises to 50 % at the edge, then to 75 % at 10 s, the middle
    assert paths(svg)[0].startswith("M52 276L52 212.5L52 212.5L52 149L252 149L252 85.5L452")


def test_many_samples_are_thinned_and_end_at_all():
    one = Series("a", list(range(100_000)), 0)
    (drawn,) = paths(step_cdf([one], title="", x_axis=Axis()))
    assert drawn.count("L") <= 2 * MOST
    assert drawn.endswith(" 22")


# --- bars -----------------------------------------------------------------------------------------


def test_bars_are_as_long_as_their_values_and_unknown_is_none():
    rows = [Bar("a", 10, "ten", best=True), Bar("b", 5, "five"), Bar("c", None, "")]
    svg = bars(rows, title="t", axis=Axis(low=0, high=10), width=400)
    widths = [float(e.get("width")) for e in shapes(svg, "rect", "bar")]
    assert widths == [pytest.approx(400 - 76 - 8 - 6.4, abs=0.1), pytest.approx(154.8, abs=0.1)]
    assert texts(svg, "label value") == ["ten", "five", "–"]
    assert len(shapes(svg, "g", "series best")) == 1


# --- axes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "axis", "expected"),
    [
        (0, 10, Axis(), ["0", "2", "4", "6", "8", "10"]),
        (0, 1, Axis(kind="percent"), ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]),
        (0, 86400, Axis(kind="seconds"), ["0", "6 h", "12 h", "18 h", "24 h"]),
        (0, 20 * 86400, Axis(kind="seconds"), ["0", "4 d", "8 d", "12 d", "16 d", "20 d"]),
        (10, 3600, Axis(kind="seconds", log=True), ["10 s", "1 min", "10 min", "1 h"]),
        (1, 1000, Axis(log=True), ["1", "10", "100", "1,000"]),
        (1767225600, 1767657600, Axis(kind="date"),
         ["01 Jan", "02 Jan", "03 Jan", "04 Jan", "05 Jan", "06 Jan"]),
    ],
)  # fmt: skip
def test_ticks_are_round_in_their_unit(low, high, axis, expected):
    assert [words for _, words in scale_over([low, high], axis, 0, 300).ticks()] == expected


def test_a_linear_axis_starts_at_zero_and_one_value_is_no_trouble():
    assert scale_over([5, 7], Axis(), 0, 100).low == 0
    for axis in (Axis(), Axis(kind="seconds"), Axis(log=True), Axis(low=3, high=3)):
        scale = scale_over([3], axis, 0, 100)
        assert scale.high > scale.low
        assert 0 <= scale.at(3) <= 100


# --- names and colours ----------------------------------------------------------------------------


def every_chart(name, x, values, levels):
    one, axis = Series(name, values, 3), Axis(title=name)
    mark = [Mark(1, name, shade=True)]
    rows = [Bar(name, v, name) for v in values]
    return [
        line_chart(x, [one], title=name, x_axis=axis, y_axis=axis, marks=mark),
        line_chart(x, [one], title=name, x_axis=Axis(kind="seconds"), y_axis=Axis(log=True)),
        stacked_area(x, [one, one], title=name, x_axis=axis, y_axis=axis, column=[1, None]),
        step_cdf([one], title=name, x_axis=Axis(name, "seconds", log=True), marks=mark),
        step_cdf([one], title=name, x_axis=axis, levels=levels),
        bars(rows, title=name),
    ]


def test_hostile_names_stay_text():
    for svg in every_chart(HOSTILE, [0, 1], [1, 2], [0, 1]):
        root = ET.fromstring(svg)
        assert {e.tag for e in root.iter()} <= {"svg", "g", "path", "line", "rect", "text", "title"}
        assert root.get("aria-label") == clean(HOSTILE)
        assert svg.encode("utf-8")


VALUES = st.one_of(st.none(), st.floats(-1e15, 1e15), st.sampled_from(UNKNOWN), st.integers(0, 9))


@given(st.text(max_size=30), st.lists(VALUES, max_size=12))
def test_any_values_and_names_give_sound_svg(name, values):
    x = [float(i) for i in range(len(values))]
    levels = [i / max(len(values), 1) for i in range(len(values))]
    for svg in every_chart(name, x, values, levels):
        for element in ET.fromstring(svg).iter():
            assert element.get("class") or element.tag == "title"
            numbers = " ".join(
                v for k, v in element.attrib.items() if k not in ("class", "aria-label", "style")
            )
            assert not re.search(r"nan|inf|none", numbers.replace("role", ""), re.IGNORECASE)


@given(st.lists(st.floats(0, 200), max_size=14))
def test_labels_keep_apart_in_their_order(wanted):
    placed = apart(wanted, 0, 200)
    assert all(-1e-9 <= p <= 200 + 1e-9 for p in placed)
    ranked = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    gaps = [placed[b] - placed[a] for a, b in pairwise(ranked)]
    assert all(gap >= LINE_HEIGHT - 1e-6 for gap in gaps)


def test_colours_repeat_with_other_dashes():
    assert colour_class(0) == "c0 k0"
    assert colour_class(6) == "c6 k6 d1"
    assert colour_class(13) == "c1 k13 d2"
    assert colour_class(None) == "c-rest k-rest"


def test_words():
    assert shorten("日本語の名前", 7) == "日本語…"
    assert clean("a\nb\u202e") == "a\\nb\\u202e"
    assert durations([30, 45]) == ["30 s", "45 s"]
    assert durations([None, 200000, 400000]) == ["–", "2.31 d", "4.63 d"]
    assert number(0.0) == "0"
    assert number(10**400) == "–"
