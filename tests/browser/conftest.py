"""A real server and a real Chromium. Every test fails when the page or the server's log shows a traceback."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from hydra_core.study import Study, StudyConfig

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "test-results"
CHROMIUM = os.environ.get("HYDRA_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
TROUBLE = re.compile(r"Traceback|Uncaught app|Warning:|deprecat|Exception|Error", re.IGNORECASE)
START_SECONDS = 60
SLOW = 60_000  # ms: the first page that needs a model imports torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@dataclass
class Server:
    """A running app."""

    url: str
    studies: Path
    log: Path
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def check_log(self) -> None:
        found = [line for line in self.log.read_text(errors="replace").splitlines() if TROUBLE.search(line)]
        assert not found, f"the server's log holds {found[:5]}"


def serve(studies: Path, log: Path, *options: str, path: str = "") -> Server:
    """Start the app on a free loopback port and wait until it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "HYDRA_STUDIES": str(studies), "OMP_NUM_THREADS": "2", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port), *options]
    with log.open("wb") as stream:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=stream, stderr=subprocess.STDOUT)
    server = Server(f"http://127.0.0.1:{port}{path}", studies, log, process)
    limit = time.monotonic() + START_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{server.url}/_stcore/health", timeout=2).close()
            return server
        except OSError:
            if process.poll() is not None or time.monotonic() > limit:
                server.stop()
                pytest.fail(f"the app did not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start a server of this test's own, with its own studies folder."""
    running: list[Server] = []

    def start(*options: str, path: str = "") -> Server:
        studies = tmp_path / "studies"
        studies.mkdir(exist_ok=True)
        running.append(serve(studies, tmp_path / f"server-{len(running)}.log", *options, path=path))
        return running[-1]

    yield start
    for server in running:
        server.stop()
        server.check_log()


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests that only need a study of their own in it (importing torch takes seconds)."""
    studies = tmp_path_factory.mktemp("shared-studies")
    server = serve(studies, studies.parent / f"{studies.name}.log")
    yield server
    server.stop()


@pytest.fixture
def server(shared_server: Server) -> Iterator[Server]:
    yield shared_server
    shared_server.check_log()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    context.set_default_timeout(20_000)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    page = context.new_page()
    yield page
    check_page(page)


def check_page(page: Page) -> None:
    """No traceback and no redacted one on the page."""
    text = page.locator("body").inner_text()
    assert "Traceback" not in text
    assert "encountered an error" not in text
    assert "A fault in the program" not in text


def settled(page: Page) -> None:
    """Wait until the script has run to its end and no job runs."""
    # A click takes a moment to reach the server; without it the state before the click would count as settled.
    page.wait_for_timeout(250)
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]', timeout=SLOW)


def job_done(page: Page, outcome: str) -> None:
    """Wait until the page says how a job ended."""
    expect(page.get_by_text(re.compile(re.escape(outcome)))).to_be_visible(timeout=4 * SLOW)
    settled(page)


def visit(page: Page, place: str) -> None:
    """Follow a link of the sidebar."""
    page.get_by_test_id("stSidebarNav").get_by_role("link", name=place, exact=True).click()
    expect(page.get_by_role("heading", level=1, name=place)).to_be_visible(timeout=SLOW)
    settled(page)


def choose(page: Page, label: str, option: str) -> None:
    """Choose an option of a select box, by keyboard, as often as a person would try.

    A list that opens while the page still moves is closed again. Enter takes only what the list offers, and the typed
    text stands in the box whether it was taken or not: so Enter waits for the option, and the box is left after it,
    which brings back the old value where nothing was taken.
    """
    box = page.get_by_role("combobox", name=label, exact=True)
    listed = page.get_by_role("option", name=option, exact=True)
    for _ in range(5):
        box.scroll_into_view_if_needed()
        box.fill(option)
        try:
            listed.wait_for(timeout=2_000)
            break
        except PlaywrightTimeoutError:
            box.blur()
    box.press("Enter")
    box.blur()
    expect(box).to_have_value(option)
    settled(page)


def head(page: Page, member: int, layer: int, number: int):
    """The button of one head."""
    return page.get_by_role("button", name=f"member {member}, layer {layer}, head {number}", exact=True)


def picture(page: Page, name: str) -> None:
    """A picture of the whole page, for people to look at."""
    PICTURES.mkdir(exist_ok=True)
    height = page.evaluate("() => document.querySelector('[data-testid=stMain]').scrollHeight")
    page.set_viewport_size({"width": 1440, "height": max(900, min(int(height) + 20, 6000))})
    page.wait_for_timeout(300)
    page.screenshot(path=PICTURES / f"{name}.png")
    page.set_viewport_size({"width": 1440, "height": 900})


@pytest.fixture
def vit_study(server: Server, request: pytest.FixtureRequest) -> Study:
    """A fresh study of the demo ViT on the shared server, named after the test."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    config = StudyConfig("demo/vit", "demo/fashion-mnist", {"mnist": "demo/mnist"}, limit=300)
    return Study.create(server.studies, name, config)
