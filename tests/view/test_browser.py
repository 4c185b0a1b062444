"""The page in a real browser: what it shows, what it does when touched, and no errors."""

import shutil

import pytest

from membptt.executor import bptt
from membptt.memory import Units
from membptt.schedules import schedule
from membptt.view import page

pytestmark = pytest.mark.browser

LIGHT, DARK = "light", "dark"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    """Return a driver of headless Chromium; skip, and say why, where there is none."""
    selenium = pytest.importorskip("selenium", reason='selenium is an extra, "membptt[browser]"')
    paths = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    for name, path in paths.items():
        if path is None:
            pytest.skip(f"{name} is not installed")
    from selenium.webdriver.chrome.service import Service

    options = selenium.webdriver.ChromeOptions()
    options.binary_location = paths["chromium"]
    for argument in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-extensions",
        "--disable-sync",
        "--no-first-run",
        f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = start(
        lambda: selenium.webdriver.Chrome(options=options, service=Service(paths["chromedriver"]))
    )
    yield driver
    driver.quit()


def start(make, tries=3):
    """Return a browser that has opened a page; on a busy machine one may never begin to."""
    from selenium.common.exceptions import WebDriverException

    for left in range(tries, 0, -1):
        driver = make()
        try:
            driver.set_page_load_timeout(30)
            driver.get("about:blank")
            return driver
        except WebDriverException:
            driver.quit()
            if left == 1:
                raise


class Page:
    """One open page, as a user has it."""

    def __init__(self, driver):
        self.driver = driver

    def of(self, name):
        return self.driver.find_element("css selector", name)

    def settle(self):
        """Wait until what was asked for is drawn."""
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
        )

    def text(self, name):
        self.settle()
        return self.of(name).text

    @property
    def words(self):
        return self.text("#words")

    @property
    def number(self):
        return int(self.text("#position").split()[1])

    def press(self, *keys):
        for key in keys:
            self.of("canvas").send_keys(key)

    def pixels(self, canvas=0):
        """Return how many pixels of the canvas have each colour."""
        self.settle()
        return self.driver.execute_script(
            "const shown = document.querySelectorAll('canvas')[arguments[0]], n = {};"
            "const c = document.createElement('canvas'); c.width = shown.width;"
            "c.height = shown.height;"
            "const context = c.getContext('2d', {willReadFrequently: true});"
            "context.drawImage(shown, 0, 0);"
            "const d = context.getImageData(0, 0, c.width, c.height).data;"
            "for (let i = 0; i < d.length; i += 4) {"
            "  const k = [d[i], d[i + 1], d[i + 2]].join(); n[k] = (n[k] || 0) + 1; }"
            "return n;",
            canvas,
        )


@pytest.fixture
def shown(chromium, tmp_path):
    """Return a function that opens a page; at the end there must be no message of the browser."""

    def show(*schedules, trace=None, width=1100, mode=LIGHT):
        path = tmp_path / "page.html"
        path.write_text(page(schedules[0], schedules[1:], trace), encoding="utf-8")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        feature = {"name": "prefers-color-scheme", "value": mode}
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        chromium.get(path.as_uri())
        return Page(chromium)

    yield show
    assert chromium.get_log("browser") == []


@pytest.fixture
def keys():
    return pytest.importorskip("selenium.webdriver.common.keys").Keys


def ten():
    return schedule(10, Units(6, 3))


def test_what_a_newcomer_sees(shown):
    opened = shown(ten())
    assert opened.driver.title == "Schedule optimal for 10 steps"
    assert opened.text("h1") == "Schedule optimal for 10 steps"
    assert opened.text(".numbers tbody tr").split()[:3] == ["optimal", "22", "2.200"]
    assert opened.text("#position") == "action 1 of 45"
    assert opened.text(".about") == "α = 3: a hidden state takes 1 unit, an internal state 3 units."
    assert opened.words.startswith("Action 1: run steps 1–2, save h2.")
    assert "Step 2 is computed for the first time" in opened.words
    assert len(opened.pixels()) > 20  # something is drawn


def test_keys_step_through_and_say_why(shown, keys):
    opened = shown(ten())
    opened.press(keys.RIGHT, keys.RIGHT)
    assert opened.number == 3
    opened.press(keys.LEFT)
    assert opened.number == 2
    opened.press(keys.END)
    assert opened.number == 45
    opened.press(keys.HOME, keys.PAGE_DOWN)
    assert opened.number == 11
    seen = []
    for _ in range(45):
        seen.append(opened.words)
        opened.press(keys.RIGHT)
    third = [words for words in seen if "Step 8 is computed a third time" in words]
    assert len(third) == 1
    assert "(before: actions 4, 8), because its backward comes next" in third[0]
    assert any("its room becomes a part of the internal state" in words for words in seen)
    assert "Saved after action 45" in opened.text("#saved")


def test_where_a_restore_takes_its_state_from(shown, keys):
    opened = shown(schedule(10, Units(2, 3), "ism"))
    seen = []
    for _ in range(30):
        seen.append(opened.words)
        opened.press(keys.RIGHT)
    assert any("derived from the internal state [7]" in words for words in seen)
    assert any("the initial state, which the caller holds" in words for words in seen)


def test_the_words_agree_with_the_machine(shown, keys):
    made = ten()
    opened = shown(made)
    machine = made.machine()
    for number, action in enumerate(made, start=1):
        assert machine.fault(action) is None
        saved = [f"[{step}]" if internal else f"h{step}" for step, internal in machine.stack]
        line = f"Saved after action {number}, {machine.used} of 6 units: "
        assert opened.text("#saved") == line + (" ".join(saved) or "nothing")
        opened.press(keys.RIGHT)


def test_play_pause_and_scrub(shown, keys):
    opened = shown(ten())
    opened.of("#speed").send_keys("16")
    opened.of("#play").click()
    opened.driver.implicitly_wait(0)
    assert opened.of("#play").text == "Pause"
    assert opened.of("#words").get_attribute("aria-live") == "off"
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(opened.driver, 10).until(lambda _: opened.of("#play").text == "Play")
    assert opened.number == 45
    assert opened.of("#words").get_attribute("aria-live") == "polite"
    opened.of("#scrub").send_keys(keys.HOME, keys.RIGHT, keys.RIGHT, keys.RIGHT)
    assert opened.number == 4


def test_jump_to_the_runs_of_a_step(shown, keys):
    opened = shown(ten())
    opened.of("#step").send_keys("8", keys.ENTER)
    assert opened.number == 4 and "Step 8 is computed for the first time" in opened.words
    opened.of("#jump").click()
    assert "Step 8 is computed a second time" in opened.words
    opened.press(keys.DOWN)
    assert "Step 8 is computed a third time" in opened.words
    opened.press(keys.DOWN)
    assert "backward of step 8" in opened.words
    opened.press(keys.UP)
    assert "Step 8 is computed a third time" in opened.words


def test_the_pointer_explains_steps_and_states(shown):
    opened = shown(ten())
    from selenium.webdriver import ActionChains

    opened.settle()
    canvas = opened.of("canvas")
    width, height = canvas.size["width"], canvas.size["height"]

    def at(tick, position):
        """Move to a place of the drawing, whose margins stand in viewer.js."""
        x = 40 + tick / 32 * (width - 40 - 64)
        y = 12 + 240 * (1 - position / 10)
        return ActionChains(opened.driver).move_to_element_with_offset(
            canvas, round(x - width / 2), round(y - height / 2)
        )

    at(2.5, 2.5).perform()
    assert opened.words.startswith("Action 2: run steps 3–4, save h4.")
    assert "Step 3 is computed for the first time" in opened.words
    at(6, 2).perform()
    assert opened.words.startswith("The hidden state h2, 1 unit, saved by action 1")
    at(13.5, 8.6).click().perform()
    assert opened.number == 9 and "backward of step 9" in opened.words


def test_the_table_is_the_text_alternative(shown):
    opened = shown(ten())
    opened.of("summary").click()
    rows = opened.driver.find_elements("css selector", ".actions tbody tr")
    assert len(rows) == 45
    rows[3].click()
    assert opened.number == 4
    assert rows[3].get_attribute("class") == "now"
    label = opened.of("canvas").get_attribute("aria-label")
    assert "45 actions, 22 forward steps for 10 steps" in label


def test_strategies_side_by_side_share_the_clock(shown, keys):
    opened = shown(ten(), schedule(10, Units(4, 3), "hsm"), schedule(10, Units(2, 3), "ism"))
    headings = opened.driver.find_elements("css selector", "#panels h2")
    assert [heading.text for heading in headings] == ["optimal", "hsm", "ism"]
    before = opened.pixels(2)
    opened.press(*[keys.RIGHT] * 20)
    assert opened.pixels(2) != before
    assert opened.words.startswith("optimal — Action 21")
    opened.driver.find_elements("css selector", "canvas")[1].send_keys(keys.RIGHT)
    assert opened.words.startswith("hsm — Action ")
    active = opened.of("section.active h2")
    assert active.text == "hsm"


def test_planned_and_executed_as_two_layers(shown, window):
    made = window(T=10)
    planned = schedule(10, 6 * made.cell.hidden_nbytes(2), "optimal", made.cell, 2)
    trace = bptt(*made.arguments(), planned, record=True).trace
    opened = shown(planned, trace=trace)
    assert opened.text(".verdict").startswith("Planned and executed are the same: 45 actions")
    assert "planned (broad) and executed (narrow)" in opened.text("#legend")
    wrong = "207,34,46"
    budget_line = opened.pixels().get(wrong, 0)
    changed = trace.copy()
    changed[5, 1] -= 1
    opened = shown(planned, trace=changed)
    assert "differ, first at action 6" in opened.text(".verdict")
    assert opened.pixels().get(wrong, 0) > budget_line


@pytest.mark.parametrize("width", [360, 1100])
def test_dark_and_narrow(shown, width):
    opened = shown(ten(), mode=DARK, width=width)
    assert opened.pixels()["13,17,23"] > 10_000  # the dark ground
    overflow = opened.driver.execute_script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert overflow == 0
    light = shown(ten(), width=width)
    assert light.pixels()["255,255,255"] > 10_000


def test_ten_thousand_steps_are_quick(shown, keys):
    made = schedule(10_000, Units(200, 3))
    opened = shown(made)
    opened.press(keys.END)
    assert opened.number == len(made)
    # A step of the clock is no new drawing: one frame, whatever the length. No seconds are
    # asserted but those after which a user would think that the page hangs.
    milliseconds = opened.driver.execute_script(
        "const from = performance.now(); document.getElementById('in').click();"
        "document.getElementById('fit').click(); return performance.now() - from;"
    )
    assert milliseconds < 5000
    for _ in range(12):
        opened.of("#in").click()
    opened.of("#step").send_keys("7000", keys.ENTER)
    assert "tep 7000" in opened.words


def test_states_on_disk(shown, keys):
    made = schedule(30, Units(12, 3), "disk")
    opened = shown(made)
    assert "a hidden state on disk" in opened.text("#legend")
    seen = ""
    for _ in range(len(made)):
        seen += opened.words
        opened.press(keys.RIGHT)
    for words in ("goes to disk by one of 2 buffers", "is read from disk", "which came from disk"):
        assert words in seen
    assert "on disk" not in shown(ten()).text("#legend")


@pytest.mark.parametrize("strategy", ["full", "lookahead", "uniform", "hsm", "msm"])
def test_every_kind_of_schedule_opens(shown, keys, strategy):
    opened = shown(schedule(30, Units(90, 3), strategy))
    opened.press(keys.END, keys.LEFT, keys.LEFT)
    assert opened.words


@pytest.mark.parametrize("steps", [1, 2])
def test_the_shortest(shown, keys, steps):
    opened = shown(schedule(steps, Units(3, 3)))
    opened.press(keys.END, "+", "0")
    assert "backward is done" in opened.words
