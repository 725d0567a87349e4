"""The page in a real browser: it draws, sorts, filters, darkens, fits a phone, and asks for nothing."""

import pytest

from pytest_roofline.report.page import SHOWN_ROWS, page

from ..report.page.page_runs import everything, hostile, many
from ..tools import require_tools
from .browser import chromium, complaints, emulate, main_thread, marked, opened, requests, resize

# What ten thousand measurements may cost the page's main thread until they can be used. The wall clock, which tells of
# other programs too, has a cap.
MOST_CPU_S = 3.0
HARD_CAP_MS = 30_000


@pytest.fixture(scope="module")
def pages(make, tmp_path_factory):
    """The pages that are looked at, by name, written once."""
    folder = tmp_path_factory.mktemp("pages")

    def written(name, run):
        path = folder / f"{name}.html"
        path.write_text(page([run]), encoding="utf-8")
        return path

    return {
        "full": written("full", everything(make, folder / "full.jsonl")),
        "hostile": written("hostile", hostile(make, folder / "hostile.jsonl")),
        "many": written("many", many(make, folder / "many.jsonl", 10_000)),
        "long": written("long", many(make, folder / "long.jsonl", SHOWN_ROWS + 60)),
    }


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    require_tools("chromium", "chromedriver")
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


@pytest.fixture
def full(browser, pages):
    """The page with something of everything, freshly opened on a wide and light screen."""
    emulate(browser)
    resize(browser, 1280)
    opened(browser, pages["full"])
    return browser


def tell(driver, script, *arguments):
    return driver.execute_script(f"return {script}", *arguments)


def pressed(driver, key, selector):
    """Press a key on what a selector finds, as somebody without a mouse."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    driver.find_element(By.CSS_SELECTOR, selector).send_keys(getattr(Keys, key, key))


def clicked(driver, selector):
    tell(driver, "document.querySelector(arguments[0]).click()", selector)


def column(driver, number):
    """The sorting values of a column of all results, counted from 1, as they stand from top to bottom."""
    cells = (
        "[...document.querySelectorAll(`#results-table tbody tr > :nth-child(${arguments[0]})`)]"
    )
    return tell(
        driver,
        f"{cells}.map(cell => cell.dataset.v === undefined ? null : Number(cell.dataset.v))",
        number,
    )


def shown_names(driver):
    return tell(
        driver,
        "[...document.querySelectorAll('#results-table tbody th')].map(cell => cell.textContent)",
    )


def all_drawn(driver):
    """Have every plot come into view, and wait until it is there."""
    resize(driver, 1280, 12_000)
    wait_for_plots(driver)


def wait_for_plots(driver):
    from selenium.webdriver.support.ui import WebDriverWait

    waiting = "document.querySelectorAll('.canvas:not(.js-plotly-plot)').length"
    WebDriverWait(driver, 30, 0.05).until(lambda it: tell(it, waiting) == 0)


def test_every_plot_is_drawn_of_properties_that_this_plotly_knows(full):
    all_drawn(full)
    count = "canvas => canvas.querySelectorAll('.main-svg .trace, .main-svg .bars').length"
    drawn = tell(full, f"[...document.querySelectorAll('.js-plotly-plot')].map({count})")
    assert len(drawn) >= 6
    assert all(traces > 0 for traces in drawn)
    figures = "[...document.querySelectorAll('script[type=\"application/json\"]')].map(s => JSON.parse(s.textContent))"
    wrong = tell(
        full,
        f"{figures}.flatMap(f => Plotly.validate(f.data, f.layout) ?? []).map(e => [e.code, e.msg])",
    )
    # What has no effect in one figure has one in another.
    assert [] == [
        message for code, message in wrong if code not in ("unused", "dynamic", "invisible")
    ]
    assert [] == complaints(full)


def test_the_first_plot_of_a_red_run_is_in_the_first_screen_beside_its_verdict(full):
    top = "document.querySelector(arguments[0]).getBoundingClientRect().top + scrollY"
    plot = tell(full, top, ".js-plotly-plot")
    assert plot <= 600
    assert abs(plot - tell(full, top, "article:has(.js-plotly-plot) h3")) < 30


def test_nothing_is_asked_for_but_the_page_itself(browser, pages):
    opened(browser, pages["full"])
    requests(browser)
    opened(browser, pages["full"])
    all_drawn(browser)
    assert [pages["full"].as_uri()] == requests(browser)
    assert 0 == tell(browser, "performance.getEntriesByType('resource').length")


def test_a_click_or_the_enter_key_sorts_by_number_and_a_second_one_turns_it_round(full):
    heading = "#results-table thead th:nth-child(3) button"
    clicked(full, heading)
    up = [value for value in column(full, 3) if value is not None]
    assert (up, "ascending") == (
        sorted(up),
        tell(full, "document.querySelector('th[aria-sort]').ariaSort"),
    )
    assert len(set(up)) > 20
    clicked(full, heading)
    down = column(full, 3)
    # What has no time comes last either way.
    assert sorted(up, reverse=True) + [None] * (len(down) - len(up)) == down
    assert len(down) > len(up)
    size = 1 + tell(
        full, "[...document.querySelectorAll('#results-table thead th')].map(c => c.textContent)"
    ).index("size")
    pressed(full, "ENTER", f"#results-table thead th:nth-child({size}) button")
    cells = f"[...document.querySelectorAll('#results-table tbody td:nth-child({size})')]"
    texts = tell(full, f"{cells}.map(c => c.textContent)")
    assert texts.index("512 KiB") < texts.index("1 MiB") < texts.index("16 MiB")


def test_the_filter_keeps_rows_that_hold_the_text_the_test_id_or_the_verdict(full):
    pressed(full, "peer_copy", "#filter")
    names = shown_names(full)
    assert 12 == len(names)
    assert all("peer_copy" in name for name in names)
    status = tell(full, "document.getElementById('shown').textContent")
    assert status.startswith("12 shown, 12 of ")
    clicked(full, "#clear")
    assert len(column(full, 1)) > 40
    pressed(full, "test_own.py::TEST_D", "#filter")
    assert ["test_data"] == shown_names(full)
    clicked(full, "#clear")
    clicked(full, ".chip[data-verdict=regressed]")
    words = tell(
        full,
        "[...document.querySelectorAll('#results-table tbody tr')].map(row => row.dataset.verdict)",
    )
    assert ["regressed"] * 3 == words
    assert "true" == tell(
        full, "document.querySelector('.chip[data-verdict=regressed]').getAttribute('aria-current')"
    )


def test_the_button_says_the_theme_that_it_switches_to_and_the_plots_follow(full):
    def seen():
        ground = "getComputedStyle(document.body).backgroundColor"
        text = "document.querySelector('.js-plotly-plot .ytick text').style.fill"
        return (
            tell(full, ground),
            tell(full, text),
            tell(full, "document.getElementById('theme').textContent"),
        )

    light = seen()
    pressed(full, "ENTER", "#theme")
    dark = seen()
    assert ("rgb(255, 255, 255)", "rgb(20, 23, 28)") == (light[0], dark[0])
    assert light[1] != dark[1]
    assert ("Dark theme", "Light theme") == (light[2], dark[2])
    pressed(full, "ENTER", "#theme")
    assert light == seen()


OVERLAPS = """
  const texts = [...arguments[0].querySelectorAll('.main-svg text')].filter(e => e.textContent && e.checkVisibility());
  const boxes = texts.map(e => [e.textContent, e.getBoundingClientRect()]);
  return boxes.flatMap(([one, a], at) => boxes.slice(at + 1).filter(([_, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3
  ).map(([other]) => `${one} | ${other}`));
"""


def test_on_a_phone_nothing_is_wider_or_printed_over_another_and_the_verdict_is_in_sight(
    browser, pages
):
    from selenium.webdriver.common.by import By

    for name in ("full", "hostile"):
        resize(browser, 400, 740)
        opened(browser, pages[name])
        assert 400 == tell(browser, "document.documentElement.scrollWidth")
        resize(browser, 400, 16_000)
        wait_for_plots(browser)
        for canvas in browser.find_elements(By.CSS_SELECTOR, ".js-plotly-plot"):
            assert [] == browser.execute_script(OVERLAPS, canvas)
        badge = "document.querySelector('#results-table tbody tr > :nth-child(2) .badge').getBoundingClientRect().right"
        assert tell(browser, badge) <= 400


def test_on_a_phone_every_verdict_is_counted_in_sight_and_the_samples_come_before_the_commands(
    browser, pages
):
    resize(browser, 400, 740)
    opened(browser, pages["full"])
    chips = "document.querySelector('.chips')"
    assert tell(browser, f"[{chips}.scrollWidth - {chips}.clientWidth]") == [0]
    top = "document.querySelector(arguments[0]).getBoundingClientRect().top"
    article = "article:has(.js-plotly-plot)"
    heading, plot, command = (
        tell(browser, top, f"{article} {part}") for part in ("h3", ".js-plotly-plot", "code")
    )
    assert heading < plot < heading + 150
    assert plot < command


def test_keys_move_from_the_skip_link_through_the_page_in_its_order(full):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    seen = []
    for _ in range(12):
        ActionChains(full).send_keys(Keys.TAB).perform()
        seen.append(
            tell(
                full,
                "[document.activeElement.className, document.activeElement.getBoundingClientRect().top + scrollY]",
            )
        )
        outline = tell(full, "getComputedStyle(document.activeElement).outlineStyle")
        assert "solid" == outline
    assert ("skip", "needs-script") == (seen[0][0], seen[1][0])
    tops = [round(top) for _, top in seen[2:]]
    assert sorted(tops) == tops


def test_a_plot_is_told_by_its_title_and_its_sentence_and_not_by_its_drawing(full):
    full.execute_cdp_cmd("Accessibility.enable", {})
    nodes = full.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    (plot, *_) = [
        n
        for n in nodes
        if n.get("role", {}).get("value") == "image" and "Samples" in n["name"]["value"]
    ]
    assert "Samples of memcpy_d2d[512KiB] on NVIDIA H200" == plot["name"]["value"]
    assert (
        "3 of 3 processes slower than all 15 processes of the baseline."
        == plot["description"]["value"]
    )


def test_hostile_names_do_nothing(browser, pages):
    emulate(browser)
    resize(browser, 1280)
    opened(browser, pages["hostile"])
    all_drawn(browser)
    pressed(browser, "img", "#filter")
    clicked(browser, "#results-table thead th:nth-child(1) button")
    assert tell(browser, "window.pwned === undefined")
    assert 0 == tell(browser, "document.querySelectorAll('img[src=x], [onerror]').length")
    assert [] == complaints(browser)
    assert "\\u202e" in tell(browser, "document.querySelector('h1').textContent")
    assert "<img src=x" in tell(
        browser, "document.querySelector('.js-plotly-plot').closest('article, figure').textContent"
    )


def test_ten_thousand_measurements_open_in_three_seconds_of_the_main_thread(pages, tmp_path):
    require_tools("chromium", "chromedriver")
    # A browser that has seen nothing: it keeps what it made of the scripts of pages opened before.
    with chromium(tmp_path) as fresh:
        fresh.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        opened(fresh, pages["many"])
        spent = main_thread(fresh)
        assert 0 < spent["ScriptDuration"] < spent["TaskDuration"] < MOST_CPU_S
        assert marked(fresh, "table usable") < marked(fresh, "plots drawn") < HARD_CAP_MS


def test_ten_thousand_measurements_can_be_sorted_and_filtered_whole(browser, pages):
    emulate(browser)
    resize(browser, 1280)
    opened(browser, pages["many"])
    rows = "document.querySelectorAll('#results-table tbody tr').length"
    assert SHOWN_ROWS == tell(browser, rows)
    assert "200 of 10,000 shown" == tell(browser, "document.getElementById('shown').textContent")
    clicked(browser, ".scroll + noscript + .more button")
    assert 6 * SHOWN_ROWS == tell(browser, rows)
    pressed(browser, "copy_499[", "#filter")
    assert (20, "20 shown, 20 of 10,000 match") == (
        tell(browser, rows),
        tell(browser, "document.getElementById('shown').textContent"),
    )
    clicked(browser, "#clear")
    clicked(browser, "#results-table thead th:nth-child(3) button")
    times = column(browser, 3)
    assert sorted(times) == times
    # The shortest of all, most of which were not in the page before.
    assert min(times) < 2.1e-6
    assert [] == complaints(browser)


def test_without_javascript_everything_but_the_plots_is_there(browser, pages):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(pages["long"].as_uri())
        body = browser.find_element(By.TAG_NAME, "body")
        assert "JavaScript is off" in browser.find_element(By.CSS_SELECTOR, ".note").text
        assert SHOWN_ROWS + 60 == len(body.find_elements(By.CSS_SELECTOR, "#results tbody tr"))
        assert not browser.find_element(By.ID, "filter").is_displayed()
        assert not browser.find_element(By.CSS_SELECTOR, ".canvas").is_displayed()
        browser.get(pages["full"].as_uri())
        browser.find_element(By.CSS_SELECTOR, ".told summary").send_keys(Keys.ENTER)
        assert browser.find_element(By.CSS_SELECTOR, ".told pre").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
