"""A headless Chromium of our own, which ends with what started it."""

import contextlib
import json
import os
import shutil

# The page is looked at as most people have it.
WIDTH, HEIGHT = 1280, 900
# The only words of a browser's log that a page without network and without faults may cause are none.
_FLAGS = (
    "--headless=new",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
)


@contextlib.contextmanager
def chromium(folder, *flags):
    """A driver of a browser that keeps its things in `folder`."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in (*_FLAGS, f"--user-data-dir={folder}", f"--window-size={WIDTH},{HEIGHT}", *flags):
        options.add_argument(flag)
    if os.geteuid() == 0:
        # Chromium's sandbox refuses to run as root, as tests do in a container.
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.set_page_load_timeout(60)
        yield driver
    finally:
        driver.quit()


def opened(driver, path):
    """Open a file and wait until its first plots are drawn."""
    from selenium.webdriver.support.ui import WebDriverWait

    driver.get(path.as_uri())
    WebDriverWait(driver, 60, 0.05).until(lambda it: marked(it, "plots drawn"))


def marked(driver, name):
    """When the page said so, in milliseconds since it was asked for; None where it has not yet."""
    found = driver.execute_script(
        "return performance.getEntriesByName(arguments[0]).map(e => e.startTime)", name
    )
    return found[0] if found else None


def main_thread(driver):
    """What the page's main thread computed since `Performance.enable`, in seconds of its own clock by what it was."""
    metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return {metric["name"]: metric["value"] for metric in metrics}


def complaints(driver):
    """What the browser logged as a warning or worse since this was asked last."""
    return [
        entry["message"]
        for entry in driver.get_log("browser")
        if entry["level"] in ("SEVERE", "WARNING")
    ]


def requests(driver):
    """Every address that was asked for since this was asked last, but data in the page itself.

    What the browser asks for its own first page may come late, and is left out.
    """
    messages = (json.loads(entry["message"])["message"] for entry in driver.get_log("performance"))
    sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [
        one["request"]["url"]
        for one in sent
        if not one["documentURL"].startswith("chrome:")
        and not one["request"]["url"].startswith("data:")
    ]


def emulate(driver, media="screen", scheme="light"):
    """Show the page as on paper, or in the dark."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def resize(driver, width, height=HEIGHT):
    """The width of the page in CSS pixels, as on a phone also below what a window can have."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
