"""What is shown of files that anybody may have written: tables, arrays and JSON as they are meant, and of hostile ones a bounded part."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from experiments.boxed import arrays, indented, previews, tables
from experiments.boxed.previews import Preview
from experiments.boxed.tables import Table


def look(data: bytes, name: str, **asked: Any) -> Preview:
    return previews.preview(io.BytesIO(data), len(data), name=name, **asked)


def table(data: bytes, name: str = "a.csv") -> Table:
    found = look(data, name).table
    assert found is not None
    return found


def cells(found: Table) -> list[list[str]]:
    return [[cell for cell, _ in row] for _, row in found.rows]


def saved(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def one(data: bytes) -> arrays.Array:
    return look(data, "x.npy").arrays[0]


def header(text: str, version: int = 1) -> bytes:
    return arrays.MAGIC + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text.encode()


def test_a_table_has_its_names_and_knows_its_columns_of_numbers() -> None:
    found = table(b'name,"right, mostly",share\nzero,972,0.99\n"one\nand only",1128,\n\n')
    assert found.columns == [("name", False), ("right, mostly", True), ("share", True)]
    assert cells(found) == [["zero", "972", "0.99"], ["one\nand only", "1128", ""]]
    assert found.said == ["2 rows, 3 columns."]


@pytest.mark.parametrize(
    ("data", "name"), [(b"a;b\n1;2\n", "a.csv"), (b"a\tb\n1\t2\n", "a.CSV"), (b"a\tb\n1\t2\n", "a.tsv"), (b"a|b\r\n1|2\r\n", "a.csv")]
)
def test_a_table_is_divided_by_what_divides_its_first_line(data: bytes, name: str) -> None:
    assert ([title for title, _ in table(data, name).columns], cells(table(data, name))) == (["a", "b"], [["1", "2"]])


def test_a_table_without_names_and_with_ragged_rows_is_filled_up() -> None:
    found = table(b"1,2\n3\n4,5,6\n")
    assert [name for name, _ in found.columns] == ["1", "2", "3"]
    assert cells(found) == [["1", "2", ""], ["3", "", ""], ["4", "5", "6"]]


def test_of_a_large_table_the_first_rows_and_columns_are_shown() -> None:
    row = ",".join(map(str, range(100))) + "\n"
    counted = table((row * 1000).encode())
    assert (len(counted.rows), len(counted.rows[0][1])) == (tables.MOST_ROWS, tables.MOST_COLUMNS)
    assert counted.said == ["The first 300 of 1,000 rows, the first 40 of 100 columns."]
    assert table((row * 5000).encode()).said == ["The first 300 rows, the first 40 of 100 columns."], "nobody has counted the others"
    long = table(b"text\n" + b"x" * 5000 + b"\n")
    assert len(long.rows[0][1][0][0]) == tables.MOST_CELL
    full = table(b"text,more\n" + (b"y" * 150 + b",") * 40 + b"\n" + ((b"y" * 150 + b",") * 40 + b"\n") * 60)
    assert sum(len(cell) for row in cells(full) for cell in row) <= tables.MOST_CHARACTERS


def test_what_is_not_utf_8_is_spelled_out_and_said() -> None:
    found = table(b"name\ncaf\xe9\n")
    assert cells(found) == [["caf\\xe9"]]
    assert "bytes that are not are shown as \\xNN" in found.said[1]
    assert cells(table("name,n\ncafé,1\n".encode("utf-16"))) == [["café", "1"]]
    assert table("é,b\n1,2\n".encode("utf-8-sig")).columns[0] == ("é", True)
    cut = "é".encode() * (tables.READ_BYTES // 2 + 10)
    assert table(b"a\n" + cut).said == ["The first 1 rows, 1 column."], "a character that is cut in two is no error"


def test_a_quote_that_is_never_closed_ends_the_table_and_is_said() -> None:
    found = table(b'a,b\n1,2\n3,"' + b"x" * 200_000)
    assert cells(found) == [["1", "2"]]
    assert "cannot be read as a table: field larger than field limit" in found.said[1]


def test_json_lines_are_rows_with_a_column_for_each_key() -> None:
    digits = b"9" * 5000
    found = table(
        b'{"step": 1, "loss": 0.10}\n\n{"step": 2, "at": {"slots": [1, "two", null]}}\n{broken\n[true]\n{"step": ' + digits + b"}\n",
        "a.jsonl",
    )
    assert found.columns == [("step", True), ("loss", True), ("at", False), (tables.NOT_AN_OBJECT, False)]
    assert cells(found)[:4] == [
        ["1", "0.10", "", ""],
        ["2", "", '{"slots": [1, "two", null]}', ""],
        ["", "", "", "{broken"],
        ["", "", "", "[true]"],
    ]
    assert cells(found)[4][0].startswith("99999")
    assert found.said[1] == "Not JSON, or too long to be read: line 4."
    deep = table(b"[" * 900 + b"]" * 900 + b"\n" + b"[" * 100_000, "a.ndjson")
    assert len(deep.rows) == 2


def test_json_is_indented_as_it_was_written() -> None:
    text = '{"b": 1.0e5,"a":[1, 2,\n3],"b":{}, "s":"[\\"x\\", {"  ,"l":["one"], "big": 123456789012345678901234567890}'
    shown = look(text.encode(), "a.json")
    assert shown.text == (
        '{\n  "b": 1.0e5,\n  "a": [1, 2, 3],\n  "b": {},\n  "s": "[\\"x\\", {",\n  "l": [\n    "one"\n  ],\n'
        '  "big": 123456789012345678901234567890\n}'
    )
    assert json.loads(shown.text) == json.loads(text)
    assert (shown.laid_out, shown.as_text, shown.whole) == ("Indented", False, True)
    assert look(text.encode(), "a.json", as_text=True).text == text
    broken = look(b'{"a": 1,}', "a.json")
    assert broken.text == '{"a": 1,}'
    assert "not valid JSON: " in broken.said[0]


def test_json_that_would_grow_without_end_does_not() -> None:
    deep = b"[" * 600 + b"[],[]," * 10_000 + b"[]" + b"]" * 600
    shown = look(deep, "a.json")
    assert shown.text is not None
    assert len(shown.text) <= previews.JSON_CHARACTERS
    assert look(b"[" * 100_000, "a.json").said, "too deep to be checked"
    beginning = look(b'{"a": ["' + b"x" * 500_000, "a.json")
    assert not beginning.whole
    assert beginning.text is not None
    assert beginning.text.startswith('{\n  "a": [\n    "xxx')


KINDS = ["?", "i1", "<i2", ">i4", "<i8", "u1", "<u2", ">u4", "<u8", "<f2", ">f4", "<f8", "<c8", ">c16"]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_array_is_shown_as_numpy_would(kind: str, order: str) -> None:
    array = np.array((np.arange(24) % 2 if kind == "?" else np.arange(24)).reshape(2, 3, 4), dtype=kind, order=order)  # type: ignore[call-overload]
    found = one(saved(array))
    facts = dict(found.facts)
    assert facts["Shape"] == "2 × 3 × 4"
    assert facts["Values"] == f"24 of {array.dtype.name}"
    if array.dtype.kind not in "bc":
        assert (float(facts["Least"]), float(facts["Greatest"]), float(facts["Mean"])) == (0, 23, 11.5)
    assert found.table is not None
    read = {"c": complex, "b": "True".__eq__}.get(array.dtype.kind, float)
    shown = [[read(cell) for cell in row] for row in cells(found.table)]
    assert shown == array[0].tolist()
    assert found.table.said == ["3 rows, 4 columns of the slice [0, :, :]."]


def test_arrays_of_text_of_one_value_of_one_row_and_of_none_are_shown() -> None:
    assert cells(_table(saved(np.array(["naïve", "", "<b>"])))) == [["naïve"], [""], ["<b>"]]
    assert cells(_table(saved(np.array([b"a\xff", b"bc"])))) == [["a\\xff"], ["bc"]]
    assert cells(_table(saved(np.float64(2.5)))) == [["2.5"]]
    assert dict(one(saved(np.zeros((0, 3)))).facts) == {"Shape": "0 × 3", "Values": "0 of float64"}
    flat = _table(saved(np.arange(1000)))
    assert (len(flat.rows), flat.said) == (300, ["The first 300 of 1,000 values."])
    wide = _table(saved(np.zeros((2, 1_000_000), dtype="f4")))
    assert wide.said == ["2 rows, the first 40 of 1,000,000 columns."]


def _table(data: bytes) -> Table:
    found = one(data).table
    assert found is not None
    return found


def test_what_is_no_number_is_counted_apart() -> None:
    facts = dict(one(saved(np.array([1.0, np.nan, np.inf, 3.0]))).facts)
    assert facts == {"Shape": "4", "Values": "4 of float64", "Least": "1", "Greatest": "3", "Mean": "2", "Not finite": "2"}
    assert "Least" not in dict(one(saved(np.zeros(arrays.MOST_VALUES + 1))).facts)


class Trap:
    """What a pickle can do to who loads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_python_objects_are_never_loaded(tmp_path: Path) -> None:
    trap = saved(np.array([Trap(tmp_path / "sprung")], dtype=object))
    archive = io.BytesIO()
    np.savez(archive, good=np.arange(2), bad=np.array([Trap(tmp_path / "sprung")], dtype=object))
    assert one(trap).said == [arrays.PICKLED]
    found = look(archive.getvalue(), "a.npz").arrays
    assert [(each.name, each.said) for each in found] == [("good", []), ("bad", [arrays.PICKLED])]
    assert look(pickle.dumps(Trap(tmp_path / "sprung")), "a.npy").text is None
    assert not (tmp_path / "sprung").exists()


def test_an_array_that_is_cut_or_has_records_is_said_so() -> None:
    cut = one(saved(np.arange(100.0))[:-80])
    assert cut.said == ["It is cut short: 80 bytes are missing."]
    assert cut.table is not None
    assert len(cut.table.rows) == 90
    assert "named fields" in one(saved(np.zeros(2, dtype=[("a", "f4"), ("b", "i2")]))).said[0]
    assert one(saved(np.array(["2026-01-01"], dtype="M8[s]"))).said == ["Values of the kind datetime64[s] are not shown."]
    assert one(b"\x93NUMPY\x01\x00\x76").said == ["Its header is cut short."]


@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * 17 + ", " + "9" * 17 + "), }",
        "{'descr': '<f8', 'fortran_order': True, 'shape': (" + "9" * 17 + "," + "9" * 17 + "), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1" * 900 + "x), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1," * 400 + "), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1 1), }",
        "{'descr': '|S999999999', 'fortran_order': False, 'shape': (9,9), }",
        "{'descr': '<U999999999', 'fortran_order': False, 'shape': (9,), }",
        "{'descr': __import__('os').system('false'), 'shape': (1,)}",
        "'descr'" + " " * 60_000,
        "'descr':'" * 7_000,
    ],
)
def test_a_header_is_searched_and_not_believed(text: str) -> None:
    found = one(header(text, version=2) + b"\0" * 64)
    assert found.said
    assert found.table is None or len(found.table.rows) <= 1


def test_the_arrays_of_an_archive_are_listed_and_the_first_are_shown() -> None:
    for save in (np.savez, np.savez_compressed):
        archive = io.BytesIO()
        save(archive, weights=np.arange(600.0).reshape(3, 200), **{f"more {n}": np.arange(3) for n in range(60)})
        shown = look(archive.getvalue(), "a.npz")
        assert shown.said == ["The first 50 of 61 arrays."]
        assert [each.name for each in shown.arrays[:2]] == ["weights", "more 0"]
        assert dict(shown.arrays[0].facts)["Greatest"] == "599"
        assert sum(each.table is not None for each in shown.arrays) == arrays.MOST_TABLES


def test_of_an_archive_that_unpacks_to_very_much_little_is_unpacked() -> None:
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for n in range(3):
            with archive.open(f"zeros {n}.npy", "w", force_zip64=True) as member:
                member.write(header("{'descr': '<f8', 'fortran_order': False, 'shape': (4000000,), }"))
                for _ in range(32):
                    member.write(bytes(1_000_000))
    data = bomb.getvalue()
    tracemalloc.start()
    shown = look(data, "a.npz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 << 20
    assert [dict(each.facts)["Values"] for each in shown.arrays] == ["4,000,000 of float64"] * 3
    assert shown.arrays[0].table is not None
    with zipfile.ZipFile(slow := io.BytesIO(), "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a.npy", saved(np.arange(3)))
    assert look(slow.getvalue(), "a.npz").arrays[0].said == ["It is packed in a way that is not read here."]
    with zipfile.ZipFile(many := io.BytesIO(), "w") as archive:
        for n in range(4000):
            archive.writestr(f"{n:0100}", b"")
    assert "table of contents is too large" in look(many.getvalue(), "a.npz").said[0]
    np.savez_compressed(good := io.BytesIO(), a=np.random.default_rng(1).normal(size=100))
    damaged = good.getvalue()[:300] + b"\xff" * 100 + good.getvalue()[400:]
    assert "It is damaged: " in look(damaged, "a.npz").arrays[0].said[0]


NAMES = ["a.csv", "a.tsv", "a.jsonl", "a.json", "a.npy", "a.npz", "a.txt"]


@given(st.binary(max_size=400), st.sampled_from(NAMES), st.sampled_from([b"", arrays.MAGIC + b"\1\0", b"PK\3\4", b'{"a":', b"\xff\xfe"]))
@example(b"\0\0", "a.csv", b"\xff\xfe")
def test_whatever_a_file_holds_something_is_shown(data: bytes, name: str, start: bytes) -> None:
    for as_text in (False, True):
        shown = look(start + data, name, as_text=as_text)
        assert shown.size_bytes == len(start + data)


SCALARS = st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text()


@given(st.recursive(SCALARS, lambda each: st.lists(each) | st.dictionaries(st.text(), each), max_leaves=30))
def test_indented_json_means_what_it_meant(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=3)):
        shown, whole = indented.indented(text, limit=10**6)
        assert whole
        assert json.loads(shown) == value


@pytest.mark.parametrize(
    ("data", "name", "said"),
    [
        (b"PAR1\0\x15\x04", "table.parquet", "A Parquet table, which is not shown here. Download it; pandas.read_parquet"),
        (b"PAR1\0\x15\x04", "no ending", "A Parquet table"),
        (
            b"\x18\0\0\0\0\0\0\0",
            "logs/events.out.tfevents.1700000000.host.12.0",
            "TensorBoard's events, which are not shown",
        ),
        (b"PK\x03\x04\0", "model/model_epoch_2.pth", "A model or checkpoint of PyTorch"),
        (b"PK\x03\x04\0", "everything.zip", "A zip"),
        (b"\x80\x04\x95\0", "state.pkl", "A pickle, which is never opened here: it may hold code."),
        (b"\0\1\2", "raw.bin", "This is neither text nor an array nor a picture"),
    ],
)
def test_of_what_is_not_shown_it_is_said_what_it_is_and_what_to_do(data: bytes, name: str, said: str) -> None:
    found = look(data, name)
    assert (found.text, found.image, found.table, found.arrays) == (None, "", None, [])
    assert found.instead.startswith(said)
    assert "ownload" in found.instead
    assert look(b"a text", name).instead == ""
