"""The census as text: sizes of classes, and classes without a name."""

from typing import Optional

from gdbheapx.analysis.census.find import Census, CensusRow, has_in_name
from gdbheapx.command import Style
from gdbheapx.model import Address
from gdbheapx.report import census_text

BUILD = "5b5a8786e5374bcf9a93c6eb0b5fe401211607ed"


def shown(signature: Optional[str], size_bytes: Optional[int], blocks: int, bytes_: int) -> str:
    row = CensusRow(signature, "gwsvc", "exact", size_bytes, blocks, bytes_, 100.0, Address(16))
    return "\n".join(census_text.lines(Style(False, False), Census([row], blocks, bytes_, bytes_, 0, [], False), None))


def test_a_size_or_an_average() -> None:
    """Where all blocks have one size it is that; else the average, marked so; never what means unknown."""
    assert " 616 B " in shown("Reply", 616, 10, 6160)
    assert " ~40 B " in shown("string", None, 10, 404) and "?" not in shown("string", None, 10, 404)


def test_a_class_without_a_name() -> None:
    """It has its module and offset; the build-id stands below the table, once; --like takes either form."""
    name = "CLASS@%s+0x6c98" % BUILD
    text = shown(name, 616, 10, 6160)
    assert "class gwsvc+0x6c98" in text and "CLASS@" not in text and text.count(BUILD) == 1
    assert has_in_name(name, "class gwsvc+0x6c98") and has_in_name(name, name[:20]) and not has_in_name(name, "class gwsvc+0x6c9")


def test_sizes_without_a_name_are_ranges() -> None:
    """A cache of values of many sizes is few rows, which add up; a size that has half of its range stands alone; JSON has each."""
    sizes = {2000 + 16 * place: 100 + place for place in range(28)}
    rows = [CensusRow(None, "", "", size, count, size * count, 1.0, Address(16)) for size, count in sizes.items()]
    alone = CensusRow(None, "", "", 168, 50_000, 168 * 50_000, 50.0, Address(16))
    beside = CensusRow(None, "", "", 136, 10, 1360, 0.1, Address(16))
    every = sorted([*rows, alone, beside], key=lambda row: -row.bytes)
    ranges = census_text.in_ranges(every)
    assert len(ranges) == 4 and sum(row.bytes for row, _ in ranges) == sum(row.bytes for row in every)
    assert sum(row.blocks for row, _ in ranges) == sum(row.blocks for row in every)
    assert [str(sizes.get("size_bytes", row.size_bytes)) for row, sizes in ranges] == ["168", "2,048 B-2,432 B", "2,000 B-2,032 B", "136"]
    census = Census(every, 0, sum(row.bytes for row in every), 0, 0, [], False)
    assert "2,048 B-2,432 B" in "\n".join(census_text.lines(Style(False, False), census, None))
    assert len(census_text.data(census, None)["rows"]) == 30
