"""What a program of je_stage.h recorded of itself."""

import json
import struct
from typing import Any, Dict, NamedTuple, Optional, Tuple

from tests.support.processes import Process

LIVE, CACHED, FREED, REUSED = 1, 2, 3, 4
NO_ARENA = (1 << 64) - 1
JSON_BYTES, WORDS, HEAD_WORDS = 4 << 20, 4096, 5


class Recorded(NamedTuple):
    """A block as the program recorded it."""

    address: int
    usable: int
    requested: int
    arena: Optional[int]
    """By jemalloc's arenas.lookup while it lived."""


class Record(NamedTuple):
    """What a program of je_stage.h left behind."""

    json: Dict[str, Any]
    """Its own malloc_stats_print(..., "J")["jemalloc"]; empty if it printed none."""
    print_buffer: int
    """The address of the text that malloc_stats_print handed over: from 5.3 on a block of jemalloc's own."""
    live: Dict[int, Recorded]
    cached: Dict[int, Recorded]
    freed: Dict[int, Recorded]
    """Addresses of freed blocks that no live and no cached block has."""
    words: Tuple[int, ...]


def read(process: Process) -> Record:
    """The record of a process at rest."""
    data = process.record()
    _, json_bytes, print_buffer, _, count = struct.unpack_from("<5Q", data)
    start_of_json = 8 * (HEAD_WORDS + WORDS)
    text = data[start_of_json : start_of_json + json_bytes]
    fates = {LIVE: {}, CACHED: {}, FREED: {}, REUSED: {}}  # type: Dict[int, Dict[int, Recorded]]
    for place in range(count):
        address, usable, requested, arena, state = struct.unpack_from("<5Q", data, start_of_json + JSON_BYTES + 40 * place)
        fates[state][address] = Recorded(address, usable, requested, None if arena == NO_ARENA else arena)
    live, cached, freed = fates[LIVE], fates[CACHED], fates[FREED]
    assert not set(live) & set(cached), "the record contradicts itself"
    freed = {address: block for address, block in freed.items() if address not in live and address not in cached}
    words = struct.unpack_from("<%dQ" % WORDS, data, 8 * HEAD_WORDS)
    return Record(json.loads(text)["jemalloc"] if text else {}, print_buffer, live, cached, freed, words)
