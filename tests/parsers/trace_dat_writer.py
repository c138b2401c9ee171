"""Writes trace.dat files, versions 6 and 7, whose content is known to the last bit.

Made from the format's description (trace-cmd.dat.v6(5), trace-cmd.dat.v7(5), the kernel's
ring_buffer.c), sharing nothing with the reader. A :class:`Kernel` says how events are laid out,
a :class:`Page` is filled record by record, :func:`v6` and :func:`v7` put files together.
"""

from __future__ import annotations

import lzma
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

Spec = tuple[str, str, int, bool]  # C text of the type, name, size, signed

COMMON: tuple[Spec, ...] = (
    ("unsigned short", "common_type", 2, False),
    ("unsigned char", "common_flags", 1, False),
    ("unsigned char", "common_preempt_count", 1, False),
    ("int", "common_pid", 4, True),
)

LETTERS_4_14 = (
    "(REC->prev_state & ((((0x00000000 | 0x00000001 | 0x00000002 | 0x00000004 | 0x00000008 | "
    "0x00000010 | 0x00000020 | 0x00000040) + 1) << 1) - 1)) ? __print_flags(REC->prev_state & "
    "((((0x00000000 | 0x00000001 | 0x00000002 | 0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 "
    '| 0x00000040) + 1) << 1) - 1), "|", { 0x00000001, "S" }, { 0x00000002, "D" }, { 0x00000004, '
    '"T" }, { 0x00000008, "t" }, { 0x00000010, "X" }, { 0x00000020, "Z" }, { 0x00000040, "P" }, '
    '{ 0x00000080, "I" }) : "R", REC->prev_state & (((0x00000000 | 0x00000001 | 0x00000002 | '
    '0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | 0x00000040) + 1) << 1) ? "+" : ""'
)


def old_letters(plus: int, pairs: str) -> str:
    """The table as kernels before 4.14 printed it."""
    return (
        f'REC->prev_state & ({plus}-1) ? __print_flags(REC->prev_state & ({plus}-1), "|", {pairs}) '
        f': "R", REC->prev_state & {plus} ? "+" : ""'
    )


LETTERS_4_4 = old_letters(
    4096,
    '{ 1, "S"} , { 2, "D" }, { 4, "T" }, { 8, "t" }, { 16, "Z" }, { 32, "X" }, { 64, "x" }, '
    '{ 128, "K" }, { 256, "W" }, { 512, "P" }, { 1024, "N" }',
)


@dataclass
class Layout:
    """One event's format: each field with its offset, and the text of its format file."""

    name: str
    system: str
    ident: int
    fields: list[tuple[str, str, int, int, bool]]  # type, name, offset, size, signed
    print_fmt: str

    @property
    def size(self) -> int:
        return max(offset + size for _, _, offset, size, _ in self.fields)

    def text(self) -> bytes:
        lines = [f"name: {self.name}", f"ID: {self.ident}", "format:"]
        blank = False
        for ctype, name, offset, size, signed in self.fields:
            if not name.startswith("common_") and not blank:
                lines.append("")
                blank = True
            base, _, array = ctype.partition("[")
            declared = f"{ctype} {name}"
            if array and "__" not in ctype:
                declared = f"{base} {name}[{array}"
            lines.append(
                f"\tfield:{declared};\toffset:{offset};\tsize:{size};\tsigned:{int(signed)};"
            )
        return ("\n".join(lines) + f"\n\nprint fmt: {self.print_fmt}\n").encode()


@dataclass
class Kernel:
    """How a kernel lays out its events."""

    big: bool = False
    long: int = 8
    common: Sequence[Spec] = COMMON
    letters: str = LETTERS_4_14
    success: bool = False
    comm_loc: bool = False  # since 7.0 fork tells comms as __data_loc
    layouts: dict[str, Layout] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        comm = ("char[16]", 16, False)
        pid = ("pid_t", 4, True)
        num = ("int", 4, True)
        loc = ("__data_loc char[]", 4, False)
        fork_comm = loc if self.comm_loc else comm
        wake = [("comm", comm), ("pid", pid), ("prio", num)]
        wake += [("success", num)] if self.success else []
        wake += [("target_cpu", num)]
        self.add(
            "sched_switch", "sched", 103,
            [("prev_comm", comm), ("prev_pid", pid), ("prev_prio", num),
             ("prev_state", ("long", self.long, True)), ("next_comm", comm), ("next_pid", pid),
             ("next_prio", num)],
            '"prev_comm=%s prev_state=%s%s", REC->prev_comm, ' + self.letters,
        )  # fmt: skip
        for ident, name in ((107, "waking"), (105, "wakeup"), (106, "wakeup_new")):
            self.add(f"sched_{name}", "sched", ident, wake, '"comm=%s", REC->comm')
        self.add(
            "sched_migrate_task", "sched", 102,
            [("comm", comm), ("pid", pid), ("prio", num), ("orig_cpu", num), ("dest_cpu", num)],
        )  # fmt: skip
        self.add(
            "sched_process_fork", "sched", 90,
            [("parent_comm", fork_comm), ("parent_pid", pid), ("child_comm", fork_comm),
             ("child_pid", pid)],
        )  # fmt: skip
        self.add(
            "sched_process_exec", "sched", 89,
            [("filename", loc), ("pid", pid), ("old_pid", pid)],
        )  # fmt: skip
        self.add("sched_process_exit", "sched", 93, [("comm", comm), ("pid", pid), ("prio", num)])
        self.add(
            "sched_stat_runtime", "sched", 91,
            [("comm", comm), ("pid", pid), ("runtime", ("u64", 8, False)),
             ("vruntime", ("u64", 8, False))],
        )  # fmt: skip
        self.add(
            "cpu_idle", "power", 194, [("state", ("u32", 4, False)), ("cpu_id", ("u32", 4, False))]
        )
        self.add(
            "task_rename", "task", 70,
            [("pid", pid), ("oldcomm", comm), ("newcomm", comm),
             ("oom_score_adj", ("short", 2, True))],
        )  # fmt: skip
        self.add("irq_handler_entry", "irq", 60, [("irq", num), ("name", loc)])

    def add(
        self,
        name: str,
        system: str,
        ident: int,
        fields: Sequence[tuple[str, tuple[str, int, bool]]],
        print_fmt: str = '"", REC',
    ) -> None:
        """An event whose fields follow each other as a C compiler would lay them out."""
        placed, at = [], 0
        specs = [*self.common, *((t, n, s, g) for n, (t, s, g) in fields)]
        for ctype, fname, size, signed in specs:
            align = 1 if ctype.startswith("char[") else min(size, self.long if size == 8 else size)
            at = -(-at // align) * align
            placed.append((ctype, fname, at, size, signed))
            at += size
        self.layouts[name] = Layout(name, system, ident, placed, print_fmt)

    @property
    def order(self) -> str:
        return "big" if self.big else "little"

    def pack(
        self, event: str, common_pid: int = 0, flags: int = 0, preempt: int = 0, /, **values: object
    ) -> bytes:
        """The payload of one event, a whole number of 4 bytes; comms given as bytes."""
        layout = self.layouts[event]
        body = bytearray(-(-layout.size // 4) * 4)
        values |= {
            "common_type": layout.ident,
            "common_flags": flags,
            "common_preempt_count": preempt,
            "common_pid": common_pid,
        }
        for ctype, name, offset, size, signed in layout.fields:
            value = values.get(name, 0)
            if "__data_loc" in ctype or "__rel_loc" in ctype:
                text = bytes(value or b"") + b"\0"  # type: ignore[call-overload]
                place = len(body)
                if "__rel_loc" in ctype:
                    place -= offset + 4
                body += text + bytes(-len(text) % 4)
                value = len(text) << 16 | place
            if isinstance(value, bytes):
                body[offset : offset + size] = value[:size].ljust(size, b"\0")
            else:
                body[offset : offset + size] = int(value).to_bytes(size, self.order, signed=signed)  # type: ignore[call-overload]
        return bytes(body)


class Page:
    """One ring-buffer page (sub-buffer), filled record by record."""

    def __init__(self, kernel: Kernel, stamp: int, size: int = 4096) -> None:
        self.kernel = kernel
        self.stamp = stamp
        self.size = size
        self.data = bytearray()
        self.missed: int | None = None  # -1: lost, number not told
        self.commit: int | None = None  # a false one

    @property
    def head(self) -> int:
        return 8 + self.kernel.long

    @property
    def room(self) -> int:
        return self.size - self.head - len(self.data)

    def _u32(self, value: int) -> None:
        self.data += value.to_bytes(4, self.kernel.order)  # type: ignore[arg-type]

    def _word(self, kind: int, delta: int) -> None:
        assert 0 <= delta < 1 << 27
        self._u32(kind << 27 | delta if self.kernel.big else delta << 5 | kind)

    def event(self, payload: bytes, delta: int = 0, *, long_form: bool = False) -> Page:
        """A record; ``long_form`` has its length in a word of its own (always so over 112)."""
        if long_form or len(payload) > 112 or not payload:
            self._word(0, delta)
            self._u32(len(payload) + 4)
        else:
            assert len(payload) % 4 == 0
            self._word(len(payload) // 4, delta)
        self.data += payload + bytes(-len(payload) % 4)
        return self

    def extend(self, delta: int) -> Page:
        self._word(30, delta & 0x7FFFFFF)
        self._u32(delta >> 27)
        return self

    def absolute(self, stamp: int) -> Page:
        stamp &= (1 << 59) - 1
        self._word(31, stamp & 0x7FFFFFF)
        self._u32(stamp >> 27)
        return self

    def discard(self, size: int, delta: int = 1) -> Page:
        """A record that was taken back: padding with a delta, ``size`` bytes in all."""
        assert delta and size >= 8 and size % 4 == 0
        self._word(29, delta)
        self._u32(size - 4)
        self.data += bytes(size - 8)
        return self

    def fill(self) -> Page:
        """Padding to the end of the data."""
        self._word(29, 0)
        return self

    def bytes(self) -> bytes:
        order, long = self.kernel.order, self.kernel.long
        commit = len(self.data) if self.commit is None else self.commit
        tail = b""
        if self.missed is not None:
            commit |= 1 << 31
            if self.missed >= 0:
                commit |= 1 << 30
                tail = self.missed.to_bytes(long, order)  # type: ignore[arg-type]
        out = self.stamp.to_bytes(8, order) + commit.to_bytes(long, order)  # type: ignore[arg-type]
        out += bytes(self.data) + tail
        assert len(out) <= self.size
        return out.ljust(self.size, b"\0")


def header_page(kernel: Kernel, page_size: int) -> bytes:
    long, head = kernel.long, 8 + kernel.long
    return (
        "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"
        f"\tfield: local_t commit;\toffset:8;\tsize:{long};\tsigned:1;\n"
        "\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n"
        f"\tfield: char data;\toffset:{head};\tsize:{page_size - head};\tsigned:1;\n"
    ).encode()


HEADER_EVENT = b"""# compressed entry header
\ttype_len    :    5 bits
\ttime_delta  :   27 bits
\tarray       :   32 bits

\tpadding     : type == 29
\ttime_extend : type == 30
\ttime_stamp : type == 31
\tdata max type_len  == 28
"""


@dataclass
class Capture:
    """What goes into a file. ``cpus`` maps CPU to its pages' bytes (or a longer run of bytes)."""

    kernel: Kernel
    cpus: dict[int, bytes]
    page_size: int = 4096
    options: list[tuple[int, bytes]] = field(default_factory=list)
    cmdlines: bytes = b""
    user_long: int = 8
    cpu_count: int | None = None
    instances: dict[str, dict[int, bytes]] = field(default_factory=dict)
    clock: str = "local"  # "": not told
    clocks: dict[str, str] = field(default_factory=dict)  # v7: of instances, where another one
    texts: dict[str, bytes] = field(default_factory=dict)  # v7: BUFFER_TEXT instead of buffers

    def _n(self, value: int, size: int) -> bytes:
        return value.to_bytes(size, self.kernel.order)  # type: ignore[arg-type]

    def start(self, version: int) -> bytes:
        return (
            b"\x17\x08\x44tracing"
            + f"{version}\0".encode()
            + bytes([int(self.kernel.big), self.user_long])
            + self._n(self.page_size, 4)
        )

    def headers(self) -> bytes:
        page = header_page(self.kernel, self.page_size)
        return (
            b"header_page\0" + self._n(len(page), 8) + page
            + b"header_event\0" + self._n(len(HEADER_EVENT), 8) + HEADER_EVENT
        )  # fmt: skip

    def ftrace_formats(self) -> bytes:
        text = (
            b"name: print\nID: 5\nformat:\n"
            b"\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n"
            b"\tfield:char buf[];\toffset:16;\tsize:0;\tsigned:1;\n\n"
            b'print fmt: "%s"\n'
        )
        return self._n(1, 4) + self._n(len(text), 8) + text

    def event_formats(self) -> bytes:
        systems: dict[str, list[bytes]] = {}
        for layout in self.kernel.layouts.values():
            systems.setdefault(layout.system, []).append(layout.text())
        out = self._n(len(systems), 4)
        for system, texts in systems.items():
            out += system.encode() + b"\0" + self._n(len(texts), 4)
            out += b"".join(self._n(len(t), 8) + t for t in texts)
        return out

    def option(self, ident: int, data: bytes) -> bytes:
        return self._n(ident, 2) + self._n(len(data), 4) + data

    def align(self, at: int) -> int:
        return -(-at // self.page_size) * self.page_size


def v6(cap: Capture, *, tag: bytes = b"flyrecord\0", table_cpus: int | None = None) -> bytes:
    """A version 6 file. ``table_cpus``: the count word, when it is to differ."""
    n = cap._n
    out = cap.start(6) + cap.headers() + cap.ftrace_formats() + cap.event_formats()
    out += n(0, 4) + n(0, 4) + n(len(cap.cmdlines), 8) + cap.cmdlines
    count = cap.cpu_count if cap.cpu_count is not None else max(cap.cpus, default=-1) + 1
    out += n(count if table_cpus is None else table_cpus, 4)
    options = b"".join(cap.option(i, d) for i, d in cap.options)
    if cap.clock:
        options += cap.option(4, f"[{cap.clock}] other\n\0".encode())
    size = len(out) + 10 + len(options) + sum(6 + 8 + len(m) + 1 for m in cap.instances) + 2 + 10
    at = cap.align(size + 16 * count)
    tables, blobs = [], []
    for index, cpus in enumerate([cap.cpus, *cap.instances.values()]):
        place = at
        if index:
            at = cap.align(at + 10 + 16 * count)
        rows = b""
        for cpu in range(count):
            data = cpus.get(cpu, b"")
            rows += n(at if data else 0, 8) + n(len(data), 8)
            if data:
                blobs.append((at, data))
                at = cap.align(at + len(data))
        tables.append((place, b"flyrecord\0" + rows))
    for (place, _), name in zip(tables[1:], cap.instances, strict=True):
        options += cap.option(3, n(place, 8) + name.encode() + b"\0")
    out += b"options  \0" + options + n(0, 2)
    assert tag == b"flyrecord\0" or not blobs
    out += tag + tables[0][1][10:] if tag == b"flyrecord\0" else tag
    for place, data in sorted([*blobs, *tables[1:]]):
        out = out.ljust(place, b"\0") + data
    return out


def compress(name: str, data: bytes) -> bytes:
    if name == "zlib":
        return zlib.compress(data)
    if name == "lzma":
        return lzma.compress(data, lzma.FORMAT_ALONE, preset=0)
    import zstandard

    return zstandard.ZstdCompressor(write_content_size=False).compress(data)


def v7(
    cap: Capture, *, compression: str = "none", chunk_pages: int = 2, extra_sections: bool = True
) -> bytes:
    """A version 7 file; with a compression every section and every CPU's data is packed."""
    n = cap._n
    out = bytearray(cap.start(7) + compression.encode() + b"\0" + b"1.0\0")
    link = len(out)
    out += bytes(8)

    def section(ident: int, content: bytes, *, packed: bool = True) -> int:
        at = len(out)
        flags = 0
        if compression != "none" and packed:
            flags = 1
            small = compress(compression, content)
            content = n(len(small), 4) + n(len(content), 4) + small
        out.extend(n(ident, 2) + n(flags, 2) + n(0, 4) + n(len(content), 8) + content)
        return at

    def options(entries: list[tuple[int, bytes]]) -> int:
        """A list of options; returns where its link to the next one stands (0: packed)."""
        content = b"".join(cap.option(i, d) for i, d in entries) + cap.option(0, bytes(8))
        section(0, content, packed=False)
        return len(out) - 8

    def set_link(at: int) -> None:
        out[at : at + 8] = n(len(out), 8)

    places = [
        (16, section(16, cap.headers())),
        (17, section(17, cap.ftrace_formats())),
        (18, section(18, cap.event_formats())),
        (21, section(21, n(len(cap.cmdlines), 8) + cap.cmdlines)),
    ]
    set_link(link)
    entries = [(i, n(at, 8)) for i, at in places] + cap.options
    if cap.cpu_count is not None:
        entries.append((8, n(cap.cpu_count, 4)))
    link = options(entries)
    for name, text in cap.texts.items():
        at, size = len(out), chunk_pages * 64
        body = text
        if compression != "none":
            chunks = [text[i : i + size] for i in range(0, len(text), size)]
            body = n(len(chunks), 4)
            for chunk in chunks:
                small = compress(compression, chunk)
                body += n(len(small), 4) + n(len(chunk), 4) + small
        out += n(22, 2) + n(compression != "none", 2) + n(0, 4) + n(len(body), 8) + body
        set_link(link)
        link = options([(22, n(at, 8) + name.encode() + b"\0" + cap.clock.encode() + b"\0")])
    for name, cpus in [] if cap.texts else [("", cap.cpus), *cap.instances.items()]:
        at = len(out)
        head = n(3, 2) + n(compression != "none", 2) + n(0, 4)
        out += head + bytes(8)
        rows = b""
        for cpu, data in cpus.items():
            if compression != "none" and data:
                step = chunk_pages * cap.page_size
                chunks = [data[i : i + step] for i in range(0, len(data), step)]
                packed = b""
                for chunk in chunks:
                    small = compress(compression, chunk)
                    packed += n(len(small), 4) + n(len(chunk), 4) + small
                size, data = len(packed), n(len(chunks), 4) + packed
            else:
                size = len(data)
            start = cap.align(len(out))
            if data:
                out.extend(bytes(start - len(out)) + data)
            rows += n(cpu, 4) + n(start, 8) + n(size, 8)
        out[at + 8 : at + 16] = n(len(out) - at - 16, 8)
        clock = cap.clocks.get(name, cap.clock)
        buffer = n(at, 8) + name.encode() + b"\0" + clock.encode() + b"\0"
        buffer += n(cap.page_size, 4) + n(len(cpus), 4) + rows
        set_link(link)
        link = options([(3, buffer)])
    return bytes(out)


def stat(
    cpu: int, *, entries: int = 0, overrun: int = 0, dropped: int = 0, read: int = 0
) -> tuple[int, bytes]:
    """A CPUSTAT option."""
    return 2, (
        f"CPU: {cpu}\nentries: {entries}\noverrun: {overrun}\ncommit overrun: 0\nbytes: 0\n"
        f"oldest event ts:     1.000000\nnow ts:     2.000000\ndropped events: {dropped}\n"
        f"read events: {read}\n\0"
    ).encode()


def tsc2nsec(mult: int, shift: int, *, big: bool = False) -> tuple[int, bytes]:
    """A TSC2NSEC option."""
    return 14, struct.pack((">" if big else "<") + "IIQ", mult, shift, 0)
