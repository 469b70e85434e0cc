"""The report in a real browser: what it shows and must not do, keyboard, paper, hostile names."""

from __future__ import annotations

import json

import pytest

from slurm_ltgf.cli.main import run
from slurm_ltgf.report.report_page import email_page, page

#: What has run as script somewhere when it was shown as a name.
HOSTILE = (
    "<script>hacked=1</script>",
    "</script><script>hacked=1</script>",
    "<img src=x onerror=hacked=1>",
    '"><svg onload=hacked=1>',
    "' onmouseover='hacked=1",
    "javascript:hacked=1",
    "</title><script>hacked=1</script>",
    "</style><script>hacked=1</script>",
    "{{ 7*7 }}{% raw %}",
    "&lt;script&gt;hacked=1&lt;/script&gt;",
    "\u202egnp.exe\u0000",
    "<a href='https://example.org/'>x</a>",
    "<!--",
    "]]><script>hacked=1</script>",
)
HEAD = (
    "JobIDRaw,Cluster,Account,User,Partition,State,Submit,Eligible,Start,End,ElapsedRaw,AllocTRES,"
    "NodeList"
)
T0, H = 1_700_000_000, 3600
#: The contrast of text that WCAG's level AA asks for: 4.5, and 3 where it is large.
CONTRAST = """() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const under = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const [r, g, b, a = 1] = rgb(getComputedStyle(at).backgroundColor);
      if (a === 1) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const poor = new Set();
  for (const node of document.querySelectorAll("body *:not(svg, svg *, script, style)")) {
    const own = [...node.childNodes].some((c) => c.nodeType === 3 && c.data.trim());
    if (!own || !node.getClientRects().length) continue;
    const style = getComputedStyle(node);
    const pair = [light(rgb(style.color)), light(under(node))].sort((a, b) => b - a);
    const found = (pair[0] + 0.05) / (pair[1] + 0.05);
    const large = parseFloat(style.fontSize) >= 24;
    const name = node.className || node.tagName;
    if (found < (large ? 3 : 4.5)) poor.add(`${name}: ${found.toFixed(1)}`);
  }
  return [...poor];
}"""


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """The invented site's report."""
    path = tmp_path_factory.mktemp("report") / "demo.json"
    assert run(["report", "--demo", "-o", str(path)]) == 0
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def html(result):
    return page(result)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_shows_itself_and_does_nothing_else(show, html, scheme):
    tab = show(html, color_scheme=scheme)
    assert tab.page.get_by_role("heading", name="Was it fair? Mostly fair").is_visible()
    assert tab.page.locator("svg.chart").count() >= 7
    assert tab.page.evaluate(CONTRAST) == []
    tab.shot(f"report-{scheme}")
    tab.shot(f"report-{scheme}-whole", full_page=True)
    for link in tab.page.get_by_role("navigation").get_by_role("link").all():
        link.click()
    assert tab.did == []


def test_the_first_screen_has_the_whole_answer(show, html):
    tab = show(html)
    for name in ("Who is owed", "Who is ahead", "What changed", "What to do"):
        box = tab.page.get_by_role("region", name=name).bounding_box()
        assert box["y"] + box["height"] < 900


@pytest.mark.parametrize("width", [360, 768])
def test_nothing_is_cut_on_a_narrow_screen(show, html, width):
    tab = show(html, width=width)
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    tab.shot(f"report-{width}", full_page=True)


def column(tab, title):
    """The words of a column of the tenants."""
    headings = tab.page.locator("#tenants thead th").all_inner_texts()
    cell = f"#tenants tbody tr > :nth-child({headings.index(title) + 1})"
    return tab.page.locator(cell).all_inner_texts()


def test_a_click_sorts_and_says_so_aloud(show, html):
    tab = show(html)
    heading = tab.page.locator("#tenants thead th", has_text="Attained, h")
    before = column(tab, "Tenant")
    heading.get_by_role("button").click()
    numbers = [float(text.replace(",", "")) for text in column(tab, "Attained, h")]
    assert numbers == sorted(numbers, reverse=True)
    assert heading.get_attribute("aria-sort") == "descending"
    heading.get_by_role("button").click()
    numbers = [float(text.replace(",", "")) for text in column(tab, "Attained, h")]
    assert numbers == sorted(numbers)
    assert heading.get_attribute("aria-sort") == "ascending"
    tab.page.locator("#tenants thead th", has_text="Tenant").get_by_role("button").click()
    assert column(tab, "Tenant") == sorted(before)
    assert heading.get_attribute("aria-sort") is None
    assert tab.did == []


def test_unknown_values_come_last_both_ways(show, result):
    rows = [
        row | {"rho": None if row["tenant"] == "bio" else row["rho"]} for row in result["tenants"]
    ]
    tab = show(page(result | {"tenants": rows}))
    button = tab.page.locator("#tenants thead th", has_text="rho").first.get_by_role("button")
    for _ in range(2):
        button.click()
        assert column(tab, "Tenant")[-1] == "bio"


def test_all_of_it_can_be_reached_by_keyboard(show, html):
    tab = show(html)
    press = tab.page.keyboard.press
    press("Tab")
    assert tab.page.evaluate("document.activeElement.className") == "skip"
    press("Enter")
    tab.page.wait_for_url("**#answer")
    assert tab.page.url.endswith("#answer")
    button = tab.page.locator("#tenants thead th", has_text="Difference").get_by_role("button")
    button.focus()
    press("Tab")
    press("Shift+Tab")
    assert tab.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press("Enter")
    first = column(tab, "Difference, h")[0]
    assert first.startswith("+")
    summary = tab.page.locator("#waiting summary")
    summary.focus()
    press("Enter")
    assert tab.page.locator("#waiting table").is_visible()
    assert tab.did == []


def test_a_screen_reader_finds_landmarks_and_what_charts_say(show, html):
    tab = show(html)
    session = tab.page.context.new_cdp_session(tab.page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    roles = [node.get("role", {}).get("value") for node in nodes]
    assert {
        "banner",
        "main",
        "navigation",
        "contentinfo",
        "table",
        "columnheader",
        "rowheader",
    } <= {*roles}
    charts = [node for node, role in zip(nodes, roles, strict=True) if role in ("image", "img")]
    assert len(charts) >= 7
    for chart in charts:
        assert chart["name"]["value"]
        assert len(chart["description"]["value"]) > 20


def test_on_paper_there_is_no_navigation_and_tables_are_as_left(show, html):
    tab = show(html)
    tab.page.locator("#waiting summary").click()
    tab.page.emulate_media(media="print")
    assert not tab.page.get_by_role("navigation").is_visible()
    assert tab.page.locator("#waiting table").is_visible()
    assert not tab.page.locator("#jobs details").is_visible()
    tab.page.set_viewport_size({"width": 1032, "height": 730})  # A4 across, less its margins
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 1032
    tab.shot("report-print", full_page=True)
    pdf = tab.page.pdf(prefer_css_page_size=True)
    assert 3 <= pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") <= 12


def test_without_script_it_is_whole_and_has_no_dead_buttons(show, html):
    tab = show(html, java_script_enabled=False)
    assert tab.page.locator("button").count() == 0
    assert tab.page.locator("#tenants tbody tr").count() == 6
    assert tab.did == []


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A report in which every name is an attack."""
    folder = tmp_path_factory.mktemp("hostile")
    rows = [HEAD.replace(",", "|")]
    for i, name in enumerate(HOSTILE, 1):
        text = name.replace("|", "")
        at = [str(T0 + n * H) for n in (0, 0, 1, 3)]
        row = [str(i), "c<b>", text, text, text, "PREEMPTED" if i % 2 else "COMPLETED", *at, "7200",
               "gres/gpu=1", text]  # fmt: skip
        rows.append("|".join(row))
    rows.insert(1, f"99|c<b>|{HOSTILE[0]}")
    (folder / "dump").write_text("\n".join(rows) + "\n", encoding="utf-8")
    out = folder / "report.json"
    window = ("-S", str(T0), "-E", str(T0 + 4 * H), "--capacity", "12")
    words = ["report", "--from-file", str(folder / "dump"), *window, "-o", str(out)]
    assert run(words) == 0
    return json.loads(out.read_text())


@pytest.mark.parametrize("make", [page, email_page], ids=["page", "letter"])
def test_hostile_names_are_shown_and_do_nothing(show, hostile, make):
    tab = show(make(hostile))
    for summary in tab.page.locator("summary").all():
        summary.click()
    for button in tab.page.locator("th button").all():
        button.click()
    assert tab.page.evaluate("typeof hacked") == "undefined"
    assert tab.page.locator("img, iframe, a[href^='http'], svg[onload]").count() == 0
    text = tab.page.locator("body").inner_text()
    for name in ("<script>hacked=1</script>", "<img src=x onerror=hacked=1>", "{{ 7*7 }}"):
        assert name in text
    assert tab.did == []


def test_the_policy_stops_a_script_that_slips_through(show, html):
    """The second line of defence, were a name ever not escaped."""
    tab = show(html.replace("</main>", "<script>hacked=1</script><img src='x.png'></main>"))
    assert tab.page.evaluate("typeof hacked") == "undefined"
    assert len([line for line in tab.did if "Content Security Policy" in line]) == 2
