/* A graph as streams of bytes, for a file: numbers of seven bits a byte, the least significant first, and a set upper bit where more
   follow. */
#ifndef HEAPX_PACKED_H
#define HEAPX_PACKED_H

#include "graph.h"

/* The streams, in the order in which they stand: numbers of blocks/packed.py.
   ADDRESSES: for each block how far it begins behind the one before, in units. SIZES: of each, in units of four bytes. DEGREES: edges
   of each node. EDGES: for each edge how far its target is from that of the edge before of the same node, at first from the node
   itself; zigzag. KINDS: one byte an edge, its rule, and LOOSE, SURE, UNOWNING. INSIDE: of each edge that leads_inside() the
   offset. SLOTS: for each edge whose slot is kept how far it is behind the one before of the same node. */
#define PACKED_MOST 10u         /* bytes of a number */

#endif
