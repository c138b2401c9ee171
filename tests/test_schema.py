"""The contract: frozen by a fingerprint, and enforced by check()."""

from __future__ import annotations

import enum

import pyarrow as pa
import pytest

from traceana import output, schema

# A change of any table's names, types, nulls, units, enums or order changes this. When that is
# meant: raise schema.SCHEMA_VERSION, add the new line, and say so in the CHANGELOG.
FINGERPRINTS = {
    1: "0a9305bd0971be7177dafb2667109a1c265b9a5b179d0f76440a2fce167c30cf",
    2: "c2311d5b93d7959cc88bfe5c8d133d34b31b8239beb1339333bd188f27067016",
}


def test_a_change_of_the_contract_is_deliberate() -> None:
    assert schema.fingerprint() == FINGERPRINTS[schema.SCHEMA_VERSION]
    assert max(FINGERPRINTS) == schema.SCHEMA_VERSION


def test_machine_output_carries_the_same_version() -> None:
    assert output.SCHEMA_VERSION == schema.SCHEMA_VERSION


@pytest.mark.parametrize("table", schema.TABLES.values(), ids=lambda t: t.name)
class TestEveryTable:
    def test_empty_obeys(self, table: schema.Table) -> None:
        schema.check(schema.empty(table.name))

    def test_columns_are_documented(self, table: schema.Table) -> None:
        assert table.doc
        names = [c.name for c in table.columns]
        assert len(set(names)) == len(names)
        for column in table.columns:
            assert column.doc, column.name

    def test_names_tell_the_unit(self, table: schema.Table) -> None:
        for column in table.columns:
            if column.name.endswith("_ns"):
                assert column.unit == "ns" and column.type == pa.int64(), column.name
            if column.unit == "ns":
                assert column.type == pa.int64(), column.name

    def test_order_names_time_columns(self, table: schema.Table) -> None:
        for name in table.order:
            assert table.column(name).unit == "ns"

    def test_round_trip_of_field_metadata(self, table: schema.Table) -> None:
        for column in table.columns:
            field = table.schema.field(column.name)
            assert field.nullable == bool(column.null)
            assert field.metadata[b"doc"].decode() == column.doc


def _names(rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema.NAMES.schema)


def _row(**change: object) -> dict[str, object]:
    return {"pid": 1, "tgid": 1, "comm": "a", "since_ts": 10, "evidence": 0, **change}


def _with_null(name: str) -> pa.Table:
    """One row that Arrow lets pass because its schema does not forbid nulls."""
    loose = pa.schema([f.with_nullable(True) for f in schema.NAMES.schema])
    return pa.Table.from_pylist([_row(**{name: None})], schema=loose)


def test_check_accepts_a_good_table() -> None:
    schema.check(_names([_row(since_ts=None), _row(), _row(since_ts=11, tgid=None)]))


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (_names([_row()]).drop_columns("tgid"), r"names: columns differ: missing \['tgid'\]"),
        (_names([_row()]).append_column("x", pa.array([1])), r"surplus \['x'\]"),
        (_names([_row(since_ts=11), _row()]), "rows are not in the order of since_ts"),
        (_names([_row(evidence=99)]), r"names\.evidence: value 99 is not of Evidence"),
        (
            _with_null("pid"),
            r"names\.pid: 1 nulls, none allowed",
        ),
    ],
    ids=["missing", "surplus", "order", "enum", "null"],
)  # fmt: skip
def test_check_says_what_is_wrong(table: pa.Table, says: str) -> None:
    with pytest.raises(schema.SchemaError, match=says):
        schema.check(table, "names")


def test_check_knows_its_tables() -> None:
    with pytest.raises(schema.SchemaError, match="unknown table 'nonsense'"):
        schema.check(schema.empty("names"), "nonsense")
    wrong = schema.empty("names").cast(
        pa.schema([f.with_type(pa.int64()) if f.name == "pid" else f for f in schema.NAMES.schema])
    )
    with pytest.raises(schema.SchemaError, match=r"names\.pid: type int64, expected int32"):
        schema.check(wrong, "names")


def test_enum_values_fit_their_columns() -> None:
    for table in schema.TABLES.values():
        for column in table.columns:
            if column.enum is None:
                continue
            limit = 2**column.type.bit_width
            for member in column.enum:
                assert 0 <= int(member) < limit, (table.name, column.name, member)
            assert issubclass(column.enum, enum.IntEnum | enum.IntFlag)
