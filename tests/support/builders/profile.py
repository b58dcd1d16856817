"""A heap profile in memory: the table of backtraces, the red-black trees below it, the tree of threads."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.jemalloc import layouts
from tests.support.builders.jemalloc import JemallocMemory

LINE_CELLS = 4
"""Cells of a bucket: half of a cache line holds keys."""
NOMINAL, INITIALIZING, PURGATORY = 1, 0, 3


class Share(NamedTuple):
    """What a thread has by one backtrace."""

    uid: int
    objects: int
    bytes: int
    ever_objects: int = 0
    ever_bytes: int = 0
    state: int = NOMINAL


class ProfileWorld(JemallocMemory):
    """A process that samples."""

    def __init__(self, version: layouts.Version, lg_sample: int = 12, accum: bool = False, unbias: bool = True) -> None:
        super().__init__(version, 1)
        self.variable("opt_prof", 1, 1)
        self.variable("opt_prof_accum", int(accum), 1)
        self.variable("lg_prof_sample", lg_sample)
        self.corrects = "curobjs_shifted_unbiased" in self.types.structs["prof_cnt_s"].members
        if self.corrects:
            self.variable("opt_prof_unbias", int(unbias), 1)
        self.tdatas: Dict[int, int] = {}
        self.gctxs: Dict[Tuple[int, ...], int] = {}
        self.tctxs: Dict[Tuple[Tuple[int, ...], int], int] = {}

    def threads(self, named: Dict[int, Optional[str]], expired: Sequence[int] = ()) -> None:
        """prof_tdata_t by thr_uid, in their tree."""
        for uid, name in named.items():
            address = self.tdatas[uid] = self.struct("prof_tdata_s")
            self.put("prof_tdata_s", address, thr_uid=uid, expired=int(uid in expired))
            if name is not None and self.types.structs["prof_tdata_s"].members["thread_name"].kind == "char":
                self.memory.write(address + self.offset("prof_tdata_s", "thread_name"), name.encode())
            elif name is not None:
                self.put("prof_tdata_s", address, thread_name=self.bytes(name.encode() + b"\0"))
        root = self.tree("prof_tdata_s", "tdata_link", [self.tdatas[uid] for uid in sorted(named)])
        self.variable("tdatas", root)

    def backtraces(self, found: Dict[Tuple[int, ...], Sequence[Share]]) -> None:
        """prof_gctx_t by frames, each with the tree of its prof_tctx_t, in bt2gctx."""
        for frames, shares in found.items():
            gctx = self.gctxs[frames] = self.struct("prof_gctx_s")
            vec = self.bytes(b"".join(frame.to_bytes(8, "little") for frame in frames)) if frames else 0
            members = []
            for place, share in enumerate(sorted(shares)):
                tctx = self.tctxs[(frames, share.uid)] = self.struct("prof_tctx_s")
                self.put("prof_tctx_s", tctx, tdata=self.tdatas[share.uid], thr_uid=share.uid, tctx_uid=place, gctx=gctx, state=share.state)
                self.count(tctx, share)
                members.append(tctx)
            self.put("prof_gctx_s", gctx, bt__vec=vec, bt__len=len(frames), tctxs__rbt_root=self.tree("prof_tctx_s", "tctx_link", members))
        self.table(list(self.gctxs.values()))

    def count(self, tctx: int, share: Share) -> None:
        """Plain counters and, where the release has them, those that are corrected for sampling: here as if every block had been sampled."""
        self.put(
            "prof_tctx_s", tctx, cnts__curobjs=share.objects, cnts__curbytes=share.bytes, cnts__accumobjs=share.ever_objects,
            cnts__accumbytes=share.ever_bytes,
        )
        if self.corrects:
            shifted: Dict[str, Any] = {"cnts__curobjs_shifted_unbiased": 8 * share.objects, "cnts__curbytes_unbiased": share.bytes}
            shifted.update({"cnts__accumobjs_shifted_unbiased": 8 * share.ever_objects, "cnts__accumbytes_unbiased": share.ever_bytes})
            self.put("prof_tctx_s", tctx, **shifted)

    def table(self, gctxs: List[int]) -> None:
        """A ckh_t with room for twice as many."""
        lg = max(2 * len(gctxs) // LINE_CELLS, 1).bit_length()
        cells = self.room((LINE_CELLS << lg) * 16)
        for place, gctx in enumerate(gctxs):
            cell = cells + 16 * (2 * place + 1)  # every other one is empty
            self.memory.write(cell, (gctx + 8).to_bytes(8, "little") + gctx.to_bytes(8, "little"))
        table = self.struct("ckh_t")
        self.put("ckh_t", table, count=len(gctxs), lg_curbuckets=lg, lg_minbuckets=lg, tab=cells)
        self.symbols.places["bt2gctx"] = (table, self.types.size_bytes("ckh_t"))

    def tree(self, struct: str, link: str, members: Sequence[int], depth: int = 0) -> int:
        """A red-black tree of these nodes in order; gives its root. Nodes of odd depth are red."""
        if not members:
            return 0
        middle = len(members) // 2
        left = self.tree(struct, link, members[:middle], depth + 1)
        right = self.tree(struct, link, members[middle + 1 :], depth + 1)
        self.put_path(struct, members[middle], link + ".rbn_left", left)
        self.put_path(struct, members[middle], link + ".rbn_right_red", right | depth & 1)
        return members[middle]
