"""Which row each block meets, by asking every condition of every row."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.census.world import CensusTarget, Recogniser, Signature, order_rows
from gdbheapx.kernel.blocks import signatures

HEAP, BLOCK_BYTES = 0x10000, 32
TEXT = frozenset([*range(0x20, 0x7F), *range(9, 14)])


class Told(NamedTuple):
    """What a signer tells."""

    found: List[signatures.Signed]
    labels: List[int]
    rest: signatures.Signed


def added(signed: Optional[signatures.Signed], row: int, key: int, address: int, usable: int) -> signatures.Signed:
    """With one more block."""
    before = signed or signatures.Signed(row, key, 0, 0, address, usable, usable)
    least, most = min(before.least_bytes, usable), max(before.most_bytes, usable)
    return before._replace(blocks=before.blocks + 1, bytes=before.bytes + usable, least_bytes=least, most_bytes=most)


def content(data: bytes, usable: int, order: Any) -> Optional[int]:
    """A string of 8 characters or more at the begin, nothing but zeros, or nine words of ten that are doubles of the size that programs have."""
    start = data[:64]
    text = start[: next((at for at, byte in enumerate(start) if byte not in TEXT), 64)]
    if len(text) >= 8 and (len(text) == len(start) or not start[len(text)]):
        return signatures.BEGINS_TEXT
    if data and len(data) == usable and not any(data):
        return signatures.ONLY_ZEROS
    words = [word for word in (int.from_bytes(data[at : at + 8], order) for at in range(0, len(data) - 7, 8)) if word]
    doubles = sum(-64 <= (word >> 52 & 0x7FF) - 1023 <= 64 for word in words)
    return signatures.NUMBERS if doubles >= 8 and 10 * (len(words) - doubles) <= len(words) else None


class PlainSigner:
    """Rows and sets as a signer has them."""

    def __init__(self, order: Any, rows: Sequence[signatures.SignatureRow], sets: Sequence[signatures.NumberSet]) -> None:
        self._order, self._rows, self._sets = order, rows, sets

    def _number(self, data: bytes, offset: int, width: int) -> Optional[int]:
        return int.from_bytes(data[offset : offset + width], self._order) if offset + width <= len(data) else None

    def _meets(self, one: signatures.Condition, address: int, usable: int, data: bytes) -> bool:
        number, other = self._number(data, one.offset, one.width), self._number(data, one.other, one.width)
        if number is None or (one.base == signatures.FIELD and other is None):
            return False
        is_of_set = one.op in (signatures.IN_SET, signatures.IN_RANGES)
        value, set_ = number & one.mask, self._sets[one.operand] if is_of_set else signatures.NumberSet()
        if one.op == signatures.IN_SET:
            return value != 0 and value in set_.numbers
        if one.op == signatures.IN_RANGES:
            return value != 0 and any(low <= value < high for low, high in set_.ranges)
        base = {signatures.USABLE: usable, signatures.ADDRESS: address, signatures.FIELD: (other or 0) & one.mask}.get(one.base, 0)
        bound = (base + one.operand) & signatures.ALL
        answers = (value == bound, value != bound, value <= bound, value >= bound)
        return answers[(signatures.EQUAL, signatures.NOT_EQUAL, signatures.AT_MOST, signatures.AT_LEAST).index(one.op)]

    def _row(self, address: int, usable: int, data: bytes) -> Optional[Tuple[int, int]]:
        """(row, key) of the first row that it meets."""
        for place, row in enumerate(self._rows):
            offset, width, mask = row.key or (0, 0, 0)
            number = self._number(data, offset, width)
            fits = row.least_usable <= usable <= row.most_usable and number is not None
            if fits and all(self._meets(one, address, usable, data) for one in row.conditions):
                key = (number or 0) & mask
                bits, size = signatures.SIZED_BITS, min(usable // 8, signatures.MOST_SIZED)
                return place, key & (1 << bits) - 1 | size << bits if row.sized else key
        known = content(data, usable, self._order)
        return None if known is None else (len(self._rows) + known, 0)

    def tell(self, memory: bytes, at: int, blocks: Sequence[Tuple[int, int]]) -> Told:
        """Of blocks at (address, usable bytes) in memory that begins at `at`."""
        signed: Dict[Tuple[int, int], signatures.Signed] = {}
        labels, rest = [], None
        for address, usable in blocks:
            met = self._row(address, usable, memory[address - at :][: min(usable, signatures.SIGNED_BYTES)])
            if met is None:
                labels.append(signatures.UNSIGNED)
                rest = added(rest, 0, 0, address, usable)
            else:
                signed[met] = added(signed.get(met), *met, address, usable)
                labels.append(list(signed).index(met) + 1)
        return Told(list(signed.values()), labels, rest or signatures.Signed(*[0] * 7))


def name_blocks(recogniser: Recogniser, world: CensusTarget, contents: Sequence[bytes], usable: int = BLOCK_BYTES) -> List[Optional[Signature]]:
    """What the recogniser says of blocks with these bytes, each at most BLOCK_BYTES long."""
    asked = order_rows(recogniser.asks(world))
    memory = b"".join(data.ljust(BLOCK_BYTES, b"\1") for data in contents)
    blocks = [(HEAP + at, usable) for at in range(0, len(memory), BLOCK_BYTES)]
    told = PlainSigner(world.target.byte_order, asked.rows, asked.sets).tell(memory, HEAP, blocks)
    return [asked.signature(told.found[label - 1]) if label else None for label in told.labels]
