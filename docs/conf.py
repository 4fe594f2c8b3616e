"""The book: `make book` builds it with Sphinx from the Markdown of the repository; a warning is an error.

docs/README.md is its front page and its table of contents: a heading is a part, a link in a list a
page, a link in an indented line a page below that.
"""

import re
from pathlib import Path

project = "superpage"
html_title = "superpage"
html_theme = "furo"
html_show_copyright = False
extensions = ["myst_parser"]
myst_heading_anchors = 4  # links to headings, by the names that Git hosts give them
highlight_language = "text"
suppress_warnings = ["misc.highlighting_failure"]  # output of commands is no code
root_doc = "docs/README"
include_patterns = ["*.md", "docs/*.md", "docs/results/*.md", "corpus/README.md"]
exclude_patterns = [".git", "target", "kernel/target", "fuzz/target"]


def contents():
    """The pages below each page, by part."""
    pages, part, above = {}, None, root_doc
    for line in (Path(__file__).parent / "README.md").read_text().splitlines():
        if line.startswith("## "):
            part = line[3:]
        if not line.startswith(("- ", "  ")):
            continue
        links = re.findall(r"\]\(([^)#]+)\.md\)", line)
        linked = [at.removeprefix("../") if at.startswith("../") else f"docs/{at}" for at in links]
        top = line.startswith("- ")
        pages.setdefault(root_doc if top else above, {}).setdefault(part, []).extend(linked)
        if top and linked:
            above = linked[0]
    return pages


def add_contents(app, page, source):
    """Git hosts show the index as it is; the book's navigation follows from it."""
    text = re.sub("^```(rust,ignore|no_run)$", "```rust", source[0], flags=re.MULTILINE)
    for part, below in contents().get(page, {}).items():
        caption = f":caption: {part}\n" if page == root_doc else ""
        text += "\n\n```{toctree}\n:hidden:\n" + caption + "\n" + "\n".join(f"/{at}" for at in below) + "\n```\n"
    source[0] = text


def setup(app):
    app.connect("source-read", add_contents)
    return {"parallel_read_safe": True}
