"""The examples in docstrings hold."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import traceana

MODULES = sorted(
    m.name
    for m in pkgutil.walk_packages(traceana.__path__, "traceana.")
    if "__main__" not in m.name
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert found.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder()
    modules = [importlib.import_module(name) for name in MODULES]
    assert sum(len(t.examples) for m in modules for t in finder.find(m)) > 10
