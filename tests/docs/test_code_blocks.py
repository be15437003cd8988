"""Every Python block of the README and the docs runs, in order, as a reader would run it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda p: p.name)
def test_the_code_of_a_page_runs(page):
    names = {}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_command_in_the_docs_exists():
    from mgmem.cli import _COMMANDS

    for page in PAGES:
        for command in re.findall(r"^mgmem (\w+)", page.read_text(), re.MULTILINE):
            assert command in _COMMANDS, (page.name, command)
