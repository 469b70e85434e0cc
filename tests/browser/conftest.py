"""A browser for the tests of this folder: Debian's Chromium, without a network, one a session.

Screenshots are kept for people in build/screenshots, which git ignores.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SHOTS = Path(__file__).parents[2] / "build" / "screenshots"


@dataclass
class Tab:
    """An open page, and everything that it did besides showing itself."""

    page: Any
    path: Path
    did: list[str] = field(default_factory=list)

    def shot(self, name: str, **how: Any) -> None:
        """Keep a picture for people."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png", **how)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium on PATH: apt-get install chromium")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def show(chromium: Any, tmp_path: Path) -> Iterator[Callable[..., Tab]]:
    """Open HTML as a file; `did` of the tab lists console lines, errors, dialogs and requests."""
    contexts = []

    def opened(html: str, *, width: int = 1280, height: int = 900, **how: Any) -> Tab:
        path = tmp_path / f"page{len(contexts)}.html"
        path.write_text(html, encoding="utf-8")
        context = chromium.new_context(viewport={"width": width, "height": height}, **how)
        contexts.append(context)
        tab = Tab(context.new_page(), path)
        page, own = tab.page, path.as_uri()
        page.set_default_timeout(10_000)
        page.on("console", lambda line: tab.did.append(f"console: {line.text}"))
        page.on("pageerror", lambda error: tab.did.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (tab.did.append("dialog"), dialog.dismiss()))
        page.on(
            "request",
            lambda asked: asked.url.split("#")[0] == own or tab.did.append(f"asked {asked.url}"),
        )
        page.goto(own)
        return tab

    yield opened
    for context in contexts:
        context.close()
