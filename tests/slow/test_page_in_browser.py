"""The page in a real browser: it draws, sorts, filters, darkens, prints, fits a phone, and asks for nothing."""

import pytest

from pytest_roofline.report.page import SHOWN_ROWS, page

from ..report.page.page_runs import everything, hostile, many
from ..tools import require_tools
from .browser import chromium, complaints, emulate, main_thread, marked, opened, printed, requests, resize

# What ten thousand measurements may cost the page's main thread until they can be used. The wall clock, which tells of
# other programs too, is held to in benchmarks/report_page.py; here it has a cap.
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
    cells = "[...document.querySelectorAll(`#results-table tbody tr > :nth-child(${arguments[0]})`)]"
    return tell(driver, f"{cells}.map(cell => cell.dataset.v === undefined ? null : Number(cell.dataset.v))", number)


def shown_as(driver, **how):
    """Show the page on another medium or in another light, of which it hears at its next frame."""
    emulate(driver, **how)
    frame(driver)


def frame(driver):
    """Wait until the page has heard of what was done to it, and of the end of a print."""
    driver.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0]))")


def shown_names(driver):
    return tell(driver, "[...document.querySelectorAll('#results-table tbody th')].map(cell => cell.textContent)")


def all_drawn(driver):
    """Have every plot come into view, and wait until it is there."""
    from selenium.webdriver.support.ui import WebDriverWait

    resize(driver, 1280, 12_000)
    waiting = "document.querySelectorAll('.canvas:not(.js-plotly-plot)').length"
    WebDriverWait(driver, 30, 0.05).until(lambda it: tell(it, waiting) == 0)


def test_every_plot_is_drawn_with_its_traces(full):
    all_drawn(full)
    count = "canvas => canvas.querySelectorAll('.main-svg .trace, .main-svg .hm, .main-svg .bars').length"
    drawn = tell(full, f"[...document.querySelectorAll('.js-plotly-plot')].map({count})")
    assert len(drawn) >= 6
    assert all(traces > 0 for traces in drawn)
    assert [] == complaints(full)


def test_nothing_is_asked_for_but_the_page_itself(browser, pages):
    opened(browser, pages["full"])
    requests(browser)
    opened(browser, pages["full"])
    all_drawn(browser)
    assert [pages["full"].as_uri()] == [url for url in requests(browser) if not url.startswith("data:")]
    assert 0 == tell(browser, "performance.getEntriesByType('resource').length")


def test_a_click_or_the_enter_key_sorts_by_number_and_a_second_one_turns_it_round(full):
    heading = "#results-table thead th:nth-child(3) button"
    clicked(full, heading)
    up = [value for value in column(full, 3) if value is not None]
    assert (up, "ascending") == (sorted(up), tell(full, "document.querySelector('th[aria-sort]').ariaSort"))
    assert len(set(up)) > 20
    clicked(full, heading)
    down = column(full, 3)
    # What has no time comes last either way.
    assert sorted(up, reverse=True) + [None] * (len(down) - len(up)) == down
    assert len(down) > len(up)
    pressed(full, "ENTER", "#results-table thead th:nth-child(2) button")
    texts = tell(full, "[...document.querySelectorAll('#results-table tbody td:nth-child(2)')].map(c => c.textContent)")
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
    words = tell(full, "[...document.querySelectorAll('#results-table tbody tr')].map(row => row.dataset.verdict)")
    assert ["regressed"] * 3 == words
    assert "true" == tell(full, "document.querySelector('.chip[data-verdict=regressed]').getAttribute('aria-current')")


def test_dark_mode_is_a_button_that_the_plots_follow(full):
    ground = "getComputedStyle(document.body).backgroundColor"
    text = "document.querySelector('.js-plotly-plot .ytick text').style.fill"
    light = tell(full, ground), tell(full, text)
    pressed(full, "ENTER", "#dark")
    dark = tell(full, ground), tell(full, text)
    assert ("rgb(255, 255, 255)", "rgb(20, 23, 28)") == (light[0], dark[0])
    assert light[1] != dark[1]
    assert "true" == dark_pressed(full)


def test_a_phone_has_no_need_to_scroll_sideways(browser, pages):
    for name in ("full", "hostile"):
        resize(browser, 360, 740)
        opened(browser, pages[name])
        assert 360 == tell(browser, "document.documentElement.scrollWidth")
        widest = "Math.max(...[...document.querySelectorAll('.js-plotly-plot .main-svg')].map(e => e.clientWidth))"
        assert 0 < tell(browser, widest) <= 360


def dark_pressed(driver):
    return tell(driver, "document.getElementById('dark').getAttribute('aria-pressed')")


def inks(driver):
    """The colours of what the plots have written beside their axes, as they are."""
    return set(tell(driver, "[...document.querySelectorAll('.main-svg .ytick text')].map(e => e.style.fill)"))


def test_a_dark_page_is_printed_in_the_colours_of_a_light_one_and_stays_dark(full):
    paper, light = printed(full), inks(full)
    shown_as(full, scheme="dark")
    by_system = inks(full)
    assert light.isdisjoint(by_system)
    assert set(paper) == set(printed(full))
    frame(full)
    assert (by_system, "true") == (inks(full), dark_pressed(full))
    shown_as(full)
    assert (light, "false") == (inks(full), dark_pressed(full))
    clicked(full, "#dark")
    assert by_system == inks(full)
    assert set(paper) == set(printed(full))
    frame(full)
    assert (by_system, "true") == (inks(full), dark_pressed(full))
    assert "rgb(20, 23, 28)" == tell(full, "getComputedStyle(document.body).backgroundColor")


def test_paper_shows_what_was_folded_and_every_plot_and_no_controls(full):
    shown = "[...document.querySelectorAll(arguments[0])].filter(e => e.checkVisibility()).length"
    assert tell(full, "document.querySelectorAll('details:not([open])').length") > 5
    pressed(full, "ENTER", "#dark")
    resize(full, 690)
    shown_as(full, media="print")
    assert 0 == tell(full, "document.querySelectorAll('details:not([open])').length")
    assert 0 == tell(full, "document.querySelectorAll('.canvas:not(.js-plotly-plot)').length")
    assert [0, 0, 0] == [tell(full, shown, selector) for selector in ("#dark", ".filters label", "nav")]
    assert "rgb(255, 255, 255)" == tell(full, "getComputedStyle(document.body).backgroundColor")
    assert tell(full, "document.documentElement.scrollWidth") <= 690
    shown_as(full)
    assert tell(full, "document.querySelectorAll('details:not([open])').length") > 5


def test_keys_move_from_the_skip_link_through_the_page_in_its_order(full):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    seen = []
    for _ in range(12):
        ActionChains(full).send_keys(Keys.TAB).perform()
        seen.append(
            tell(
                full, "[document.activeElement.className, document.activeElement.getBoundingClientRect().top + scrollY]"
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
    (plot, *_) = [n for n in nodes if n.get("role", {}).get("value") == "image" and "REGRESSED" in n["name"]["value"]]
    assert "memcpy_d2d[512KiB] on NVIDIA H200: REGRESSED" == plot["name"]["value"]
    assert "+30.0 % time against the baseline" in plot["description"]["value"]


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
    assert "<img src=x" in tell(browser, "document.querySelector('.js-plotly-plot').closest('figure').textContent")


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
