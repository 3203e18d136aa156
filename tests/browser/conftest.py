"""A real browser on the admin of a live server, under a strict Content-Security-Policy. Its tests are marked `browser`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.engine.conftest import Desk
from tests.engine.conftest import desk as desk

CSP = "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; object-src 'none'"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")


@dataclass
class Screen:
    """One page of the browser, what it complained of, and where its pictures go."""

    page: Any
    base: str
    pictures: str
    complaints: list[str] = field(default_factory=list)

    def open(self, address: str) -> None:
        """Go to an address of the server."""
        self.page.goto(self.base + address)

    def tour(self, addresses: Mapping[str, str]) -> list[str]:
        """Go to each address, keep its picture under its name, and give back what the browser complained of, markup that became an image included."""
        for name, address in addresses.items():
            self.open(address)
            self.picture(name)
            self.complaints += [f"{name}: an image from markup" for _ in self.page.query_selector_all("img[src=x]")]
        return self.complaints

    def picture(self, name: str) -> None:
        """Keep a picture of the whole page."""
        self.page.screenshot(path=os.path.join(self.pictures, f"{name}.png"), full_page=True)

    def dismiss(self, dialog: Any) -> None:
        """Close a dialog that markup has opened, and complain of it."""
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def shows(self, text: str) -> None:
        """Wait until the page shows a text. Raises Playwright's `TimeoutError` where it does not."""
        self.page.get_by_text(text).first.wait_for(timeout=20_000)

    def text(self) -> str:
        """What a reader sees."""
        return str(self.page.inner_text("body"))


@pytest.fixture
def screen(desk: Desk, transactional_db: None, live_server: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    """A browser that nobody has logged in with yet. `PICTURES` says where to keep the pictures."""
    from playwright.sync_api import sync_playwright

    assert shutil.which(CHROMIUM), f"no Chromium at {CHROMIUM}: install it, or set CHROMIUM to where it is"
    # Playwright's loop runs in this thread, which Django takes for asynchronous code.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1360, "height": 900})
        screen = Screen(page, live_server.url, os.environ.get("PICTURES", str(tmp_path)))
        page.on("console", lambda message: screen.complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: screen.complaints.append(str(error)))
        page.on("dialog", screen.dismiss)
        page.route("**/*", _with_policy)
        yield screen
        browser.close()


def _with_policy(route: Any) -> None:
    response = route.fetch(max_redirects=0)
    route.fulfill(response=response, headers={**response.headers, "content-security-policy": CSP})
