"""Ways to damage an input. All randomness comes from the generator that is handed in."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["ABSURD", "NAMES", "Spice", "damage_bytes", "damage_text"]

#: Names of tasks as somebody may choose them who means harm: escapes of a terminal, HTML, ends of
#: lines, NUL, bytes that are no UTF-8, and what looks like a part of a line of text.
NAMES = (
    b"\x1b[31mred",
    b"\x1b]0;title\x07",
    b"\x9b2J",
    b"<script>x</scri",
    b"<img src=x>",
    b"a\nb-1 [0]",
    b"a\r\nb",
    b"\0",
    b"a\0b",
    b"\xff\xfe\xc3(",
    b"\xed\xa0\x80",
    "\u202egnp".encode(),
    b"",
    b" ",
    b"-1 [000] 1.0: b",
    b"x ==> y:1 [2]",
    b"a pid=7 prio=1",
    b"=",
    b"#x",
    b"%s%n%d",
    b"'\"&;`$(x)",
    b"A" * 15,
    b"A" * 16,
    b"swapper/0",
    b"<...>",
    b"CPU:1 [LOST 9 EV",
    b'{"a":[',
    b"\t\t",
    b"\\n\\",
)

#: Numbers that break sums, signs and sizes.
ABSURD = (
    0, 1, 2, 3, 7, 8, 15, 16, 255, 256, 4095, 4096, 4097, 0x7FFF, 0x8000, 0xFFFF, 1 << 16, 1 << 20,
    1 << 22, 1 << 26, 1 << 27, 1 << 30, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF, 1 << 32,
    1 << 40, 1 << 48, 1 << 59, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 8,
    (1 << 64) - 1,
)  # fmt: skip


@dataclass(frozen=True)
class Spice:
    """What the damage of a form is made with.

    ``words`` are pieces of its language (magics, keys, tags), ``names`` the tasks' names in it,
    ``others`` inputs of the same or another form from which pieces are taken.
    """

    words: Sequence[bytes] = ()
    names: Sequence[bytes] = ()
    others: Sequence[bytes] = ()


Operation = Callable[[bytearray, random.Random, Spice], None]


def _spot(out: bytearray, rng: random.Random) -> int:
    """A place: anywhere, in the head, or at a byte that is not 0 (pages are mostly empty)."""
    size = len(out)
    if not size:
        return 0
    how = rng.randrange(4)
    if how == 0:
        return rng.randrange(size)
    if how == 1:
        return rng.randrange(min(size, 512))
    for _ in range(20):
        at = rng.randrange(size)
        if out[at]:
            break
    return at


def _length(rng: random.Random) -> int:
    return rng.choice((1, 2, 4, 8, 16, rng.randrange(1, 64), rng.randrange(1, 600)))


def _flip(out: bytearray, rng: random.Random, spice: Spice) -> None:
    for _ in range(rng.choice((1, 1, 1, 4))):
        if out:
            out[_spot(out, rng)] ^= 1 << rng.randrange(8)


def _byte(out: bytearray, rng: random.Random, spice: Spice) -> None:
    if out:
        out[_spot(out, rng)] = rng.choice((0, 0xFF, 0x7F, 0x80, rng.randrange(256)))


def _number(out: bytearray, rng: random.Random, spice: Spice) -> None:
    """An absurd number, or one beside that which stands there."""
    width = rng.choice((1, 2, 4, 4, 8, 8))
    at = _spot(out, rng)
    if rng.random() < 0.8:
        at -= at % width
    order = "little" if rng.random() < 0.85 else "big"
    how = rng.randrange(4)
    value = rng.choice(ABSURD)
    if how == 0:
        value = int.from_bytes(out[at : at + width], order) + rng.choice((-8, -4, -1, 1, 4, 8))  # type: ignore[arg-type]
    elif how == 1:
        value = len(out) - rng.choice((0, at, at + width)) + rng.choice((-8, -1, 0, 1, 8))
    out[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, order)  # type: ignore[arg-type]


def _zero(out: bytearray, rng: random.Random, spice: Spice) -> None:
    at, n = _spot(out, rng), _length(rng)
    n = min(n, len(out) - at)
    out[at : at + n] = bytes(n)


def _zero_tail(out: bytearray, rng: random.Random, spice: Spice) -> None:
    at = rng.randrange(len(out) + 1)
    out[at:] = bytes(len(out) - at)


def _cut(out: bytearray, rng: random.Random, spice: Spice) -> None:
    del out[rng.randrange(len(out) + 1) :]


def _delete(out: bytearray, rng: random.Random, spice: Spice) -> None:
    at = _spot(out, rng)
    del out[at : at + _length(rng)]


def _repeat(out: bytearray, rng: random.Random, spice: Spice) -> None:
    at = _spot(out, rng)
    piece = bytes(out[at : at + _length(rng)])
    out[at:at] = piece * rng.choice((1, 1, 2, 20))


def _head_again(out: bytearray, rng: random.Random, spice: Spice) -> None:
    """The head, or all of it, a second time: in front, somewhere, behind."""
    piece = bytes(out[: rng.choice((16, 104, 512, len(out)))])
    at = rng.choice((0, len(piece), rng.randrange(len(out) + 1), len(out)))
    out[at:at] = piece


def _splice(out: bytearray, rng: random.Random, spice: Spice) -> None:
    """A piece of another input, or of another place, in or over what is here."""
    source = rng.choice(spice.others) if spice.others and rng.random() < 0.7 else bytes(out)
    if not source:
        return
    start = rng.randrange(len(source))
    piece = source[start : start + rng.choice((8, 64, 512, 4096))]
    at = _spot(out, rng)
    out[at : at + rng.choice((0, len(piece), len(piece)))] = piece


def _swap(out: bytearray, rng: random.Random, spice: Spice) -> None:
    n = _length(rng)
    a, b = _spot(out, rng), _spot(out, rng)
    out[a : a + n], out[b : b + n] = out[b : b + n], out[a : a + n]


def _noise(out: bytearray, rng: random.Random, spice: Spice) -> None:
    at, n = _spot(out, rng), _length(rng)
    out[at : at + rng.choice((0, n))] = rng.randbytes(n)


def _word(out: bytearray, rng: random.Random, spice: Spice) -> None:
    if not spice.words:
        return
    word = rng.choice(spice.words)
    at = _spot(out, rng)
    out[at : at + rng.choice((0, len(word)))] = word


def _name(out: bytearray, rng: random.Random, spice: Spice) -> None:
    """A hostile name for one that stands there, of the same length or not."""
    if not spice.names:
        return
    old, new = rng.choice(spice.names), rng.choice(NAMES)
    at = out.find(old, rng.randrange(len(out) + 1))
    if at < 0:
        at = out.find(old)
    if at < 0:
        return
    if rng.random() < 0.7:  # in its field
        new = new[: len(old) + 4]
        out[at : at + len(new)] = new
    else:
        out[at : at + len(old)] = new


_BYTES: tuple[tuple[Operation, int], ...] = (
    (_flip, 6), (_byte, 4), (_number, 12), (_zero, 2), (_zero_tail, 1), (_cut, 2), (_delete, 3),
    (_repeat, 3), (_head_again, 1), (_splice, 3), (_swap, 1), (_noise, 2), (_word, 3), (_name, 3),
)  # fmt: skip


def _several(
    data: bytes, rng: random.Random, spice: Spice, operations: tuple[tuple[Operation, int], ...]
) -> bytes:
    out = bytearray(data)
    kinds, weights = zip(*operations, strict=True)
    for operation in rng.choices(kinds, weights, k=rng.choice((1, 1, 1, 2, 2, 3, 5, 9))):
        operation(out, rng, spice)
    return bytes(out[: 4 * len(data) + 65536])


def damage_bytes(data: bytes, rng: random.Random, spice: Spice = Spice()) -> bytes:
    """One to nine injuries of binary data; never more than four times as long (and 64 KiB)."""
    return _several(data, rng, spice, _BYTES)


# ---------------------------------------------------------------- text


def _lines(out: bytearray) -> list[bytes]:
    return bytes(out).split(b"\n")


def _put(out: bytearray, lines: Sequence[bytes]) -> None:
    out[:] = b"\n".join(lines)


def _line_order(out: bytearray, rng: random.Random, spice: Spice) -> None:
    """A line less, twice, elsewhere, or cut."""
    lines = _lines(out)
    at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.randrange(5)
    if how == 0:
        del lines[at]
    elif how == 1:
        lines[at:at] = [lines[at]] * rng.choice((1, 3, 50))
    elif how == 2:
        lines.insert(to, lines.pop(at))
    elif how == 3:
        lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
    else:
        lines[at] = lines[at] + lines[to]
    _put(out, lines)


def _digits(out: bytearray, rng: random.Random, spice: Spice) -> None:
    """Another number for one that stands there."""
    at = rng.randrange(len(out) + 1)
    while at < len(out) and not 48 <= out[at] <= 57:
        at += 1
    end = at
    while end < len(out) and 48 <= out[end] <= 57:
        end += 1
    number = rng.choice(ABSURD)
    out[at:end] = rng.choice(
        (
            b"%d" % number,
            b"-%d" % number,
            b"%d" % (number * 10**12),
            b"9" * rng.randrange(1, 40),
            b"",
            b"%03d" % rng.randrange(1000),
            b"0x%x" % number,
            b"1.5",
            b"1e9",
            b"%d.%06d" % (number, 7),
        )
    )


def _field(out: bytearray, rng: random.Random, spice: Spice) -> None:
    """Two words of a line change places, or one goes."""
    lines = _lines(out)
    at = rng.randrange(len(lines))
    words = lines[at].split(b" ")
    a, b = rng.randrange(len(words)), rng.randrange(len(words))
    if rng.random() < 0.5:
        words[a], words[b] = words[b], words[a]
    else:
        words[a] = rng.choice((b"", words[b], *spice.words[:20]))
    lines[at] = b" ".join(words)
    _put(out, lines)


def _bad_text(out: bytearray, rng: random.Random, spice: Spice) -> None:
    at = rng.randrange(len(out) + 1)
    out[at:at] = rng.choice((
        b"\0", b"\xff", b"\xc3", b"\x1b[2J", b"\r", b"\n", b"\t", b"\x0b", b"\x85", b"\xe2\x80\xa8",
        b"\xef\xbb\xbf", b"x" * 20000, b" " * 500, b"=" * 200, b"\n" * 300, b"[000]", b"(" * 100,
    ))  # fmt: skip


def _header_again(out: bytearray, rng: random.Random, spice: Spice) -> None:
    lines = _lines(out)
    at = rng.randrange(len(lines) + 1)
    lines[at:at] = lines[: rng.randrange(1, 12)]
    _put(out, lines)


def _line_ends(out: bytearray, rng: random.Random, spice: Spice) -> None:
    out[:] = bytes(out).replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b"\\n\\\n")))


def _other_lines(out: bytearray, rng: random.Random, spice: Spice) -> None:
    if not spice.others:
        return
    source = rng.choice(spice.others).split(b"\n")
    lines = _lines(out)
    start, at = rng.randrange(len(source)), rng.randrange(len(lines) + 1)
    lines[at:at] = source[start : start + rng.choice((1, 3, 20))]
    _put(out, lines)


def _new_line(out: bytearray, rng: random.Random, spice: Spice) -> None:
    """A line that is a word of the form."""
    if spice.words:
        lines = _lines(out)
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(spice.words))
        _put(out, lines)


_TEXT: tuple[tuple[Operation, int], ...] = (
    (_line_order, 6), (_digits, 10), (_field, 5), (_bad_text, 4), (_header_again, 1),
    (_line_ends, 1), (_other_lines, 2), (_new_line, 3), (_name, 6), (_word, 3), (_flip, 3),
    (_zero, 1), (_zero_tail, 1), (_cut, 2), (_delete, 3), (_repeat, 2), (_noise, 1),
)  # fmt: skip


def damage_text(data: bytes, rng: random.Random, spice: Spice = Spice()) -> bytes:
    """One to nine injuries of a text: of lines, words, numbers and names, or of any bytes."""
    return _several(data, rng, spice, _TEXT)
