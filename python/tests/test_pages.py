"""Pages in a browser: what they draw, what a reader sees under the pointer, and that nothing fails."""

import csv
import io
import os
import pathlib
import re
import shutil

import pytest

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
SWEEP = """
[sweep]
name = "pages"
[axes]
workload = ["random:bytes=16M,references=100K", "touch:bytes=8M"]
machine = ["zen5", "neoverse-v2"]
policy = ["base", "thp", "reservation"]
memory = ["64M", "256M"]
"""


@pytest.fixture(scope="module")
def browser():
    if BROWSER is None:
        if skipped := os.environ.get("SUPERPAGE_SKIPPED"):
            with open(skipped, "a") as file:
                file.write("python/tests/test_pages.py: there is no browser; Debian and Ubuntu: apt install chromium\n")
        pytest.skip("there is no browser; Debian and Ubuntu: apt install chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page_of_sweep(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    (folder / "pages.toml").write_text(SWEEP)
    command("sweep", folder / "pages.toml", "-o", folder / "out")
    return folder / "out" / "index.html"


def opened(browser, path, choice, *, width=1600, dark=False):
    """A tab with the page, and what it logs and fails with."""
    scheme = "dark" if dark else "light"
    tab = browser.new_page(viewport={"width": width, "height": 1200}, color_scheme=scheme)
    wrong = []
    tab.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("request", lambda request: None if request.url.startswith(("file:", "blob:", "data:")) else wrong.append(request.url))
    tab.goto(f"{pathlib.Path(path).as_uri()}#{choice}")
    return tab, wrong


def fragment(tab):
    return tab.evaluate("location.hash.slice(1)")


def under(tab, mark):
    """What the tip says with the pointer on a mark."""
    box = mark.bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    return tab.locator('.panels [aria-label="tip"] text').text_content()


# Axes by number: program, memory, machine, policy.
VIEWS = ["view=each", "view=each&panels=2&show=1", "view=against&panels=0", "view=over&over=1&logx=on", "view=heat&over=2"]


@pytest.fixture(scope="module")
def page_of_sim(command, tmp_path_factory):
    page = tmp_path_factory.mktemp("sim") / "page.html"
    command("sim", "touch:bytes=8M;random:bytes=16M,references=100K", "-m", "zen5", "-p", "thp", "-p", "reservation",
            "--every", "1ms", "--export-html", page)
    return page


def test_the_page_of_sim_has_its_rows_and_their_memory(browser, page_of_sim):
    tab, wrong = opened(browser, page_of_sim, "")
    assert tab.locator(".explore .panels svg [aria-label='bar'] rect").count() == 3
    assert tab.locator("section:not(.explore) svg").count() == 6
    assert wrong == []
    tab.close()


@pytest.fixture(scope="module")
def page_of_reproduce(command, tmp_path_factory):
    page = tmp_path_factory.mktemp("reproduce") / "page.html"
    command("reproduce", "piehl12/table1-6", "navarro02/figure1", "--export-html", page)
    return page


# Axes by number: experiment, item, quantity, verdict.
@pytest.mark.parametrize("view", ["view=each&only-quantity=", "view=each&by=3&only-quantity=",
                                  "view=against&by=1&logx=on", "view=heat&by=0&over=3&only-quantity="])
def test_the_page_of_reproduce_has_its_values(browser, page_of_reproduce, view):
    tab, wrong = opened(browser, page_of_reproduce, view)
    marks = tab.locator(".panels svg [aria-label='dot'] circle, .panels svg [aria-label='cell'] rect")
    assert marks.count() >= 2
    assert tab.locator("section:not(.explore) svg").count() == 1
    assert wrong == []
    tab.close()


def test_values_of_the_paper_and_ours_have_no_order_and_one_quantity_at_first(browser, page_of_reproduce):
    tab, wrong = opened(browser, page_of_reproduce, "view=against&by=1")
    quantity = tab.locator("select[name='only-quantity'] option:checked").text_content()
    assert quantity not in ("all", ""), quantity
    assert tab.locator(".panels svg [aria-label='dot'] circle").count() >= 2
    # Of what is better in neither direction nothing is beaten.
    assert tab.locator(".panels svg [aria-label='line'] path").count() == 0
    tab.get_by_text("The values").wait_for()
    tab.locator("nav a").first.click()
    place = fragment(tab)
    assert "/" in place and tab.evaluate("place => document.getElementById(place)?.tagName", place) == "SECTION"
    assert wrong == []
    tab.close()


def test_the_pointer_finds_the_paper_s_value_and_ours(browser, page_of_reproduce, command):
    view = "view=each&by=2&only-experiment=0&only-item=0&only-quantity="
    rows = list(csv.DictReader(io.StringIO(command("reproduce", "piehl12/table1-6", "--format", "csv").decode())))
    judged = [row for row in rows if row["item"] == "1 GB" and row["quantity"] == "tables of 4 KB"]
    ratio = float(judged[0]["measured"]) / float(judged[0]["paper_value"])
    tab, wrong = opened(browser, page_of_reproduce, view)
    marks = tab.locator(".panels svg [aria-label='dot'] circle").all()
    told = [under(tab, mark).replace("\u200b", " ") for mark in marks]
    assert any(f"of the paper's value: {ratio:.4g}" in text and "verdict: differs" in text for text in told), told
    assert wrong == []
    tab.close()


@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("view", VIEWS)
def test_each_view_opens_at_any_width_in_both_schemes(browser, page_of_sweep, view, dark, width):
    tab, wrong = opened(browser, page_of_sweep, view, width=width, dark=dark)
    marks = tab.locator(".panels svg [aria-label='dot'] circle, .panels svg [aria-label='cell'] rect")
    assert marks.count() >= 3
    assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "it is wider than the screen"
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) == dark
    assert wrong == []
    tab.close()


def test_the_pointer_finds_the_value_of_a_row(browser, page_of_sweep, command):
    # One row alone, of which the command prints the same value.
    tab, wrong = opened(browser, page_of_sweep, "view=against&only-machine=0&only-workload=0&only-memory=0")
    rows = command("sim", "random:bytes=16M,references=100K", "-m", "zen5", "-p", "thp", "--memory", "64M", "--format", "csv")
    [row] = [row for row in csv.DictReader(io.StringIO(rows.decode())) if row["policy"] == "thp"]
    told = [under(tab, mark) for mark in tab.locator(".panels svg [aria-label='dot'] circle").all()]
    [of_thp] = [text for text in told if "policy: thp" in text]
    assert f"speed-up over base: {float(row['speedup']):.4g}" in of_thp, told
    assert wrong == []
    tab.close()


def test_figures_and_rows_can_be_saved(browser, page_of_sweep):
    tab, wrong = opened(browser, page_of_sweep, "view=over&over=1&only-machine=1")
    with tab.expect_download() as saved:
        tab.get_by_text("save as SVG").click()
    text = pathlib.Path(saved.value.path()).read_text()
    assert text.startswith("<svg") and "var(--" not in text
    with tab.expect_download() as saved:
        tab.get_by_text("save the rows as CSV").click()
    rows = list(csv.DictReader(io.StringIO(pathlib.Path(saved.value.path()).read_text())))
    assert len(rows) == 12 and {row["machine"] for row in rows} == {"neoverse-v2"}
    assert any(len(row["speedup"]) > 7 for row in rows) and all(len(row["speedup"]) < 13 for row in rows), rows
    assert wrong == []
    tab.close()


def test_the_address_changes_only_when_a_reader_chooses(browser, page_of_sweep):
    for place in ["", "a/place", "item", "view=over&over=1"]:
        tab, wrong = opened(browser, page_of_sweep, place)
        tab.set_viewport_size({"width": 900, "height": 700})
        tab.wait_for_function("document.querySelector('.panels svg').clientWidth < 900")
        assert fragment(tab) == place
        assert wrong == []
        tab.close()


def test_the_address_has_every_choice_and_replaces_all(browser, page_of_sweep):
    tab, wrong = opened(browser, page_of_sweep, "view=over&over=1&logx=on&only-machine=1")
    tab.locator("select[name='only-machine']").select_option("")
    names = tab.evaluate("[...document.forms[0].elements].map(node => node.name).filter(name => name)")
    choices = dict(pair.split("=") for pair in fragment(tab).split("&"))
    assert sorted(choices) == sorted(names)
    assert (choices["view"], choices["logx"], choices["logy"], choices["only-machine"]) == ("over", "on", "off", "")
    # What a link does not name is as at first.
    tab.evaluate("location.hash = 'view=heat&over=2&only-memory=1'")
    tab.wait_for_selector(".panels svg [aria-label='cell']")
    assert not tab.locator("input[name='logx']").is_checked()
    tab.evaluate("location.hash = 'view=each'")
    tab.wait_for_selector(".panels svg [aria-label='bar']")
    assert tab.locator("select[name='only-memory']").input_value() == ""
    # A link to a place of the page chooses nothing.
    tab.evaluate("location.hash = 'a/place'")
    assert tab.locator("select[name='view']").input_value() == "each" and fragment(tab) == "a/place"
    assert wrong == []
    tab.close()
