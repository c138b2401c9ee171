"""Event formats: fields, kinds, state letters, page heads; and texts that are none."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceana.parsers.formats import (
    EventFormat,
    FieldKind,
    known_kind,
    parse_header_page,
    state_table,
    supports_header_event,
)
from traceana.parsers.payload import Layouts, as_bytes, ctx_table, extract
from traceana.schema import Ctx, EventKind, State

sys.path.insert(0, str(Path(__file__).parent))
import trace_dat_writer as w


def fmt(*fields: str, name: str = "e", ident: int = 7, system: str = "") -> EventFormat:
    body = "\n".join(f"\t{line}" for line in fields)
    text = f'name: {name}\nID: {ident}\nformat:\n{body}\n\nprint fmt: ""\n'.encode()
    parsed = EventFormat.parse(text, system)
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(
    ("declaration", "offset", "size", "kind", "text"),
    [
        ("pid_t prev_pid", 24, 4, FieldKind.INT, False),
        ("unsigned long long x", 8, 8, FieldKind.INT, False),
        ("char x[16]", 8, 16, FieldKind.CHARS, True),
        ("char x[TASK_COMM_LEN]", 8, 16, FieldKind.CHARS, True),
        ("char x[32]", 8, 16, FieldKind.CHARS, True),  # arm 3.10 says 32 and means 16
        ("char x[4]", 8, 4, FieldKind.CHARS, True),
        ("char buf[]", 16, 0, FieldKind.CHARS, True),
        ("char x", 8, 1, FieldKind.INT, False),
        ("bool x", 8, 1, FieldKind.INT, False),
        ("__data_loc char[] x", 8, 4, FieldKind.DATA_LOC, True),
        ("__rel_loc char[] x", 8, 4, FieldKind.REL_LOC, True),
        ("__data_loc u8[] x", 8, 4, FieldKind.DATA_LOC, False),
        ("void * x", 8, 8, FieldKind.INT, False),
        ("const char * x", 8, 8, FieldKind.INT, False),
        ("u32 args[6]", 8, 24, FieldKind.BYTES, False),
        ("struct timespec x", 8, 16, FieldKind.BYTES, False),
    ],
)
def test_kinds_of_fields(
    declaration: str, offset: int, size: int, kind: FieldKind, text: bool
) -> None:
    (field,) = fmt(f"field:{declaration};\toffset:{offset};\tsize:{size};\tsigned:0;").fields
    assert (field.offset, field.size, field.kind, field.is_text) == (offset, size, kind, text)
    assert field.name in declaration


def test_very_old_lines_lack_signed() -> None:
    (field,) = fmt("field:pid_t pid;\toffset:8;\tsize:4;").fields
    assert not field.signed


def test_common_fields_are_not_own_fields() -> None:
    parsed = fmt(
        "field:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;",
        "field:int common_pid;\toffset:4;\tsize:4;\tsigned:1;",
        "",
        "field:u32 state;\toffset:8;\tsize:4;\tsigned:0;",
    )
    assert [f.name for f in parsed.fields] == ["state"]
    assert parsed.by_name["common_pid"].signed


@pytest.mark.parametrize("text", [b"", b"name: x\n", b"ID: 3\n", b"name: \nID: x\n", b"\0\xff"])
def test_what_has_no_name_or_id_is_no_format(text: bytes) -> None:
    assert EventFormat.parse(text) is None


def test_impossible_places_are_left_out() -> None:
    assert not fmt("field:int x;\toffset:99999999;\tsize:4;\tsigned:1;").fields


def test_a_probe_of_the_same_name_is_another_event() -> None:
    assert known_kind(fmt(name="cpu_idle", system="power")) is EventKind.CPU_IDLE
    assert known_kind(fmt(name="cpu_idle", system="")) is EventKind.CPU_IDLE
    assert known_kind(fmt(name="cpu_idle", system="kprobes")) is None
    assert known_kind(fmt(name="sched_switch", system="synthetic")) is None


def pairs(text: str) -> str:
    return ", ".join(f'{{ {v}, "{c}" }}' for v, c in (p.split() for p in text.split(", ")))


@pytest.mark.parametrize(
    ("letters", "raw", "state"),
    [
        # since 4.14
        (w.LETTERS_4_14, 0, State(0)),
        (w.LETTERS_4_14, 1, State.SLEEP),
        (w.LETTERS_4_14, 2, State.DISK),
        (w.LETTERS_4_14, 16, State.DEAD),
        (w.LETTERS_4_14, 32, State.ZOMBIE),
        (w.LETTERS_4_14, 64, State.PARKED),
        (w.LETTERS_4_14, 128, State.IDLE),
        (w.LETTERS_4_14, 256, State.PREEMPTED),
        (w.LETTERS_4_14, 0x400, State(0)),  # masked away when printed: R
        # 4.8 to 4.13: the plus is 4096
        (w.LETTERS_4_4, 4096, State.PREEMPTED),
        (w.LETTERS_4_4, 16, State.ZOMBIE),
        (w.LETTERS_4_4, 32, State.DEAD),
        (w.LETTERS_4_4, 130, State.DISK | State.WAKEKILL),
        (w.LETTERS_4_4, 1026, State.DISK | State.NOLOAD),
        (w.LETTERS_4_4, 512, State.PARKED),
        (w.LETTERS_4_4, 2048, State.OTHER),  # NEW: within the mask, without a letter
        (w.LETTERS_4_4, 4096 | 1, State.SLEEP | State.PREEMPTED),
        # 3.0 to 3.8: W at 128, the plus is 512
        (w.old_letters(512, pairs("1 S, 16 Z, 32 X, 64 x, 128 W")), 128, State.WAKING),
        (w.old_letters(512, pairs("1 S, 16 Z, 32 X, 64 x, 128 W")), 512, State.PREEMPTED),
        # 3.9 to 4.1: K at 128, W at 256, P at 512, the plus is 1024
        (w.old_letters(1024, pairs("1 S, 2 D, 128 K, 256 W, 512 P")), 130,
         State.DISK | State.WAKEKILL),
        (w.old_letters(1024, pairs("1 S, 2 D, 128 K, 256 W, 512 P")), 1024, State.PREEMPTED),
        # a letter of a kernel to come
        (w.old_letters(1024, pairs("1 S, 2 Q")), 2, State.OTHER),
    ],
)  # fmt: skip
def test_prev_state_by_the_files_own_letters(letters: str, raw: int, state: State) -> None:
    table, told = state_table(f'"prev_state=%s%s", {letters}')
    assert told
    assert State(int(table[raw])) == state


def test_without_letters_only_the_low_bits_are_believed() -> None:
    table, told = state_table('"prev_state=%ld", REC->prev_state')
    assert not told
    assert table[1] == State.SLEEP
    assert table[256] == table[64] == State.OTHER


@pytest.mark.parametrize(
    "text",
    ["REC->prev_state & ((((", "REC->prev_state & (1<<9999)", "__print_flags { 1, \"", "&" * 9999,
     "REC->prev_state & " + "(" * 1500 + "1" + ")" * 1500],
)  # fmt: skip
def test_hostile_print_formats_do_no_harm(text: str) -> None:
    state_table(text)


@given(st.text(alphabet='RECprev_state->&|<>()+- 0123456789x{},"SD?:\n'))
def test_no_print_format_raises(text: str) -> None:
    table, _ = state_table("__print_flags" + text)
    assert table.shape == (1 << 16,)


@given(st.binary(max_size=300))
def test_no_bytes_raise(data: bytes) -> None:
    parsed = EventFormat.parse(b"name: x\nID: 9\nformat:\n" + data)
    assert parsed is not None
    Layouts([EventFormat(n, "", 9, parsed.text) for n in ("sched_switch", "sched_waking")])
    parse_header_page(data)
    supports_header_event(data)


@pytest.mark.parametrize(("long", "page"), [(8, 4096), (4, 4096), (8, 65536)])
def test_header_page(long: int, page: int) -> None:
    head = parse_header_page(w.header_page(w.Kernel(long=long), page))
    assert head is not None
    assert (head.commit_size, head.data_offset, head.page_size) == (long, 8 + long, page)


def test_header_page_without_its_fields() -> None:
    assert parse_header_page(b"") is None
    whole = w.header_page(w.Kernel(), 4096)
    for line in whole.splitlines(keepends=True):
        if b"overwrite" not in line:
            assert parse_header_page(whole.replace(line, b"")) is None


def test_header_event() -> None:
    assert supports_header_event(w.HEADER_EVENT)
    assert not supports_header_event(w.HEADER_EVENT.replace(b"27 bits", b"29 bits"))


def test_context_bits() -> None:
    table = ctx_table()
    assert table[0x01] == 0
    assert table[0x0C] == Ctx.HARDIRQ | Ctx.NEED_RESCHED
    assert table[0x50] == Ctx.SOFTIRQ | Ctx.NMI
    assert table[0x80] == Ctx.BH_OFF


@pytest.mark.parametrize("big", [False, True])
def test_extract_gives_every_field_by_its_own_format(big: bool) -> None:
    kernel = w.Kernel(big=big)
    kernel.add(
        "odd", "mine", 300,
        [("u8", ("u8", 1, False)), ("s8", ("s8", 1, True)), ("u16", ("u16", 2, False)),
         ("s32", ("s32", 4, True)), ("u64", ("u64", 8, False)), ("name", ("char[16]", 16, False)),
         ("loc", ("__data_loc char[]", 4, False)), ("rel", ("__rel_loc char[]", 4, False)),
         ("cpu", ("int", 4, True)), ("raw", ("u32[3]", 12, False))],
    )  # fmt: skip
    body = kernel.pack(
        "odd", 41, 9, 3, u8=200, s8=-3, u16=65535, s32=-70000, u64=2**63 + 5,
        name=b"a b\xff\0rest", loc=b"/bin/x", rel=b"rel", cpu=5, raw=bytes(range(12)),
    )  # fmt: skip
    data = b"\0" * 8 + body + body[:9]
    parsed = EventFormat.parse(kernel.layouts["odd"].text(), "mine")
    assert parsed is not None
    table = extract(
        as_bytes(data),
        np.array([5, 6]),
        np.array([2, 3], np.int32),
        np.array([8, 8 + len(body)]),
        np.array([len(body), 9], np.int32),
        parsed,
        big_endian=big,
    )
    whole, cut = table.to_pylist()
    assert whole == {
        "ts": 5, "cpu": 2, "common_pid": 41, "common_flags": 9, "common_preempt_count": 3,
        "u8": 200, "s8": -3, "u16": 65535, "s32": -70000, "u64": 2**63 + 5, "name": "a b\\xff",
        "loc": "/bin/x", "rel": "rel", "cpu_": 5, "raw": bytes(range(12)),
    }  # fmt: skip
    assert cut["common_pid"] == 41
    assert cut["u8"] == 200
    assert cut["u16"] is cut["name"] is cut["loc"] is cut["raw"] is None
    assert [str(t) for t in table.schema.types[5:9]] == ["uint8", "int8", "uint16", "int32"]


def test_letters_behind_numbers_as_c_writes_them() -> None:
    pairs = '{ 0010, "t" }, { 0x2, "D" }, { 0096, "X" }, { 99999999999999999999, "Z" }, { 1, "S" }'
    table, told = state_table(f'__print_flags(REC->prev_state, "|", {pairs})')
    assert told
    states = [0, State.SLEEP, State.DISK, State.TRACED, State.DEAD]
    assert [int(table[raw]) for raw in (0, 1, 2, 8, 64)] == states
