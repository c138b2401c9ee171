"""What one row of the fuzzing is: a form, its whole inputs, and how numbers become damaged ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

from fuzz.mutate import Spice, damage_bytes, damage_text

__all__ = ["Files", "Input", "Target", "damaged_folder", "single"]

#: Relative name -> content. A capture of one file has the name "".
Files = dict[str, bytes]
#: An input is made at most this many times by cutting; longer ones are cut at some bytes only.
MAX_CUTS = 6000


def single(data: bytes) -> Files:
    return {"": data}


@dataclass(frozen=True)
class Input:
    """One input, and in words how it came about."""

    files: Files
    how: str


@dataclass(frozen=True, eq=False)
class Target:
    """A row: ``inputs`` of them, each made from its number alone.

    ``form`` is a name of the registry's FORMS, "" for what is none of its rows. ``wholes`` gives
    the undamaged inputs (each must be read cleanly), ``inside`` makes one that is damaged before
    it is packed, compressed or put into an archive (as often as ``inside_share``), ``bombs`` those
    that unpack to very much.
    """

    name: str
    form: str
    inputs: int
    wholes: Callable[[], Sequence[Files]]
    spice: Callable[[], Spice] = Spice
    inside: Callable[[random.Random], Files] | None = None
    inside_share: float = 0.5
    bombs: Sequence[Callable[[], bytes | Files]] = field(default=())
    text: bool = False

    def input(self, number: int) -> Input:
        """The input of that number; the same one each time.

        The first ones are the shortest whole, cut at each of its bytes; then come the bombs; all
        others are made at random.
        """
        short, places = _cuts(self)
        if number < len(places):
            name, at = places[number]
            return Input(short | {name: short[name][:at]}, f"{name or 'file'} cut at {at}")
        number -= len(places)
        if number < len(self.bombs):
            blown = self.bombs[number]()
            return Input(blown if isinstance(blown, dict) else single(blown), f"bomb {number}")
        return self._random(random.Random(f"{self.name} {number}"))

    def _random(self, rng: random.Random) -> Input:
        if self.inside is not None and rng.random() < self.inside_share:
            return Input(self.inside(rng), "damaged inside")
        files = rng.choice(self.wholes())
        damage = damage_text if self.text else damage_bytes
        if len(files) == 1:
            return Input({name: damage(data, rng, self.spice()) for name, data in files.items()},
                         "damaged")  # fmt: skip
        return Input(damaged_folder(files, rng, self.spice()), "files damaged")


@cache
def _cuts(target: Target) -> tuple[Files, list[tuple[str, int]]]:
    """The shortest whole input, and where it is cut: file and size that is left."""
    short = min(target.wholes(), key=lambda files: sum(map(len, files.values())))
    places = [(name, at) for name, data in short.items() for at in range(len(data))]
    step = -(-len(places) // min(MAX_CUTS, max(1, target.inputs // 3)))
    return short, places[::step]


def damaged_folder(files: Files, rng: random.Random, spice: Spice) -> Files:
    """One to three files damaged, gone, empty, or with the content or name of another."""
    out = dict(files)
    for _ in range(rng.choice((1, 1, 2, 3))):
        if not out:
            break
        name = rng.choice(list(out))
        how = rng.randrange(10)
        if how == 0:
            del out[name]
        elif how == 1:
            out[name] = b""
        elif how == 2:
            out[name] = rng.choice(list(out.values()))
        elif how == 3:
            digits = [i for i, letter in enumerate(name) if letter.isdigit()]
            if digits:
                at = rng.choice(digits)
                new = (
                    name[:at]
                    + rng.choice(("0", "9", "65535", "999999", "-1", "x"))
                    + name[at + 1 :]
                )
                out[new] = out.pop(name)
        else:
            out[name] = damage_bytes(out[name], rng, spice)
    return out
