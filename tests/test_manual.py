"""The man page is that of the verbs as they are.

make man      # writes docs/traceana.1 anew
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from traceana.cli.app import command
from traceana.cli.manual import manual

PAGE = Path(__file__).resolve().parents[1] / "docs" / "traceana.1"


def test_it_is_up_to_date() -> None:
    assert PAGE.read_text() == manual(), "make man"


def test_every_verb_and_every_option_is_in_it() -> None:
    text = PAGE.read_text().replace("\\-", "-")
    for name, verb in command().commands.items():
        assert f".SS {name}\n" in text
        for param in verb.params:
            if param.param_type_name == "option":
                assert param.opts[-1] in text, f"{name} {param.opts}"


def test_groff_has_nothing_to_say() -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("no groff here: the page is not formatted")
    done = subprocess.run(
        [groff, "-man", "-ww", "-Tutf8", "-z", PAGE], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
