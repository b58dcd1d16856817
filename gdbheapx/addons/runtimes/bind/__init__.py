"""BIND's structures, which begin with a number of four letters (lib/isc/include/isc/magic.h; the numbers: BIND 9.16 to 9.18)."""

from typing import Dict, Iterable, List, Mapping, Tuple

from gdbheapx.analysis.census.world import EXACT, Ask, Recogniser, Signature, World
from gdbheapx.kernel.blocks.signatures import IN_SET, Condition, NumberSet, SignatureRow

STRUCTURES: Dict[str, str] = {
    "Buf!": "isc_buffer", "Cntr": "isc_counter", "HEAP": "isc_heap", "HTab": "isc_ht", "MemC": "isc_mem", "MEMp": "isc_mempool",
    "NETM": "isc_nm", "NMHD": "isc_nmhandle", "NMSK": "isc_nmsocket", "NMUR": "isc__nm_uvreq", "RdxT": "isc_radix_tree",
    "IOio": "isc_socket", "Stat": "isc_stats", "SymT": "isc_symtab", "TASK": "isc_task", "TSKM": "isc_taskmgr", "TIMR": "isc_timer",
    "Dacl": "dns_acl", "Dadb": "dns_adb", "adAI": "dns_adbaddrinfo", "adbE": "dns_adbentry", "adF4": "dns_adbfetch",
    "adbH": "dns_adbfind", "adbN": "dns_adbname", "adNH": "dns_adbnamehook", "BdCa": "dns_badcache", "$$$$": "dns_cache",
    "Disp": "dns_dispatch", "Drsp": "dns_dispentry", "Dsoc": "dispsocket", "Ftch": "dns_fetch", "F!!!": "fetchctx",
    "Q!!!": "resquery", "Tabl": "dns_iptable", "KyIO": "dns_keyfileio", "KNod": "dns_keynode", "KTbl": "dns_keytable",
    "MSG@": "dns_message", "DNSn": "dns_name", "Ntfy": "dns_notify", "RBT+": "dns_rbt", "RBD4": "dns_rbtdb", "DNSR": "dns_rdataset",
    "Rqu!": "dns_request", "Res!": "dns_resolver", "Dstt": "dns_stats", "TSIG": "dns_tsigkey", "Val?": "dns_validator",
    "View": "dns_view", "XfrI": "dns_xfrin_ctx", "ZONE": "dns_zone", "DSTK": "dst_key", "NSCc": "ns_client",
}  # fmt: skip
"""What a structure is called whose first word has this number. A release that names one otherwise keeps the number."""

LEAST_BYTES = 24


def magic_number(letters: str) -> int:
    """Return the number that ISC_MAGIC makes of four letters."""
    return int.from_bytes(letters.encode("ascii"), "big")


POOLED = "freed, in an isc_mempool"
"""What lies on a pool's list (lib/isc/mem.c: struct isc_mempool, items; each element's first word is the next one)."""
ITEMS_OFFSET = 0x20

NAMES = {magic_number(letters): "%s ('%s')" % (name, letters) for letters, name in STRUCTURES.items()}


class Bind(Recogniser):
    """The number is written when a structure is made, and zeroed when it ends."""

    module, objects, is_wide = "bind", ("libisc", "named"), False

    def asks(self, world: World) -> Iterable[Ask]:
        row = SignatureRow([Condition(0, 4, IN_SET, 0)], least_usable=LEAST_BYTES, key=(0, 4, 0xFFFFFFFF))
        yield Ask(row, lambda key: Signature(NAMES[key], self.module, EXACT), sets=[NumberSet(numbers=sorted(NAMES))], order=30)

    def fields(self, world: World) -> Mapping[Tuple[str, int], str]:
        """Return names for the first two elements of each pool's list."""
        if world.word_bytes != 8:
            return {}
        return {(NAMES[magic_number("MEMp")], ITEMS_OFFSET): POOLED, (POOLED, 0): POOLED}


RECOGNISERS: List[Recogniser] = [Bind()]
