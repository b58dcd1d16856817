"""What OpenSSL keeps (tried with 3.0 and 3.5): connections and their contexts, BIOs, certificates and their extensions.

Each leads to a table among the constants of libssl or libcrypto, and each table has a form that nothing else has: methods of a protocol
(ssl_local.h: ssl_method_st), methods of a BIO (internal/bio.h: bio_method_st), and the objects of all identifiers, where the number of each
is its place (crypto/objects/obj_dat.h: nid_objs). What a connection owns besides has no mark: who points to it is told.
"""

from typing import Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from gdbheapx.analysis.census.vtables import Images, constant_ranges
from gdbheapx.analysis.census.world import EXACT, Ask, Recogniser, Signature, World
from gdbheapx.kernel.blocks.signatures import ALL, AT_LEAST, AT_MOST, EQUAL, FIELD, IN_SET, Condition, NumberSet, SignatureRow

MOST_PROTOCOL_FLAGS = 7
METHOD_FUNCTIONS = 20
"""Of ssl_method_st, one after the other, behind its version, flags and mask."""
VERSIONS = (*range(0x300, 0x305), 0x100, 0xFEFF, 0xFEFD, 0x10000, 0x1FFFF)
"""SSL3_VERSION to TLS1_3_VERSION, DTLS1_BAD_VER, DTLS1_VERSION, DTLS1_2_VERSION, TLS_ANY_VERSION, DTLS_ANY_VERSION."""
BIO_KINDS, BIO_NUMBERS = (0, 0x200, 0x400, 0x500), 0xFF
"""BIO_TYPE_FILTER, BIO_TYPE_SOURCE_SINK and BIO_TYPE_DESCRIPTOR above the number (bio.h.in); BIO_TYPE_NONE has none."""
MOST_BIO_KIND = 0xFFFF
BIO_FUNCTIONS, LEAST_BIO_FUNCTIONS = 10, 5
OBJECT_BYTES, LEAST_OBJECTS, MOST_OBJECTS = 40, 500, 1 << 14
"""Of asn1_object_st {sn, ln, nid, length, data, flags}, of which nid_objs has 1,320 in 3.0."""
FIRST_NUMBER = OBJECT_BYTES + 16
"""From nid_objs on: the number of the second one, which is 1."""
HALF = (1 << 32) - 1
MOST_SEARCHED = 1 << 20
"""Words of a library's constants."""
LEAST_SSL_BYTES, LEAST_CONTEXT_BYTES, LEAST_BIO_BYTES, LEAST_X509_BYTES = 1024, 512, 96, 256
MOST_CONTEXT_BYTES, MOST_BIO_BYTES, MOST_X509_BYTES = 4096, 256, 1024
MOST_NAME = 40
X509, X509_NAME, X509_PUBKEY, ENTRIES, EXTENSIONS = "X509", "X509_NAME", "X509_PUBKEY", "stack of an X509_NAME", "stack of extensions"
FIELDS: Dict[Tuple[str, int], str] = {
    (X509, 0x10): "bytes of a serial number",
    (X509, 0x30): X509_NAME,
    (X509, 0x38): "ASN1_TIME",
    (X509, 0x40): "ASN1_TIME",
    (X509, 0x48): X509_NAME,
    (X509, 0x50): X509_PUBKEY,
    (X509, 0x68): EXTENSIONS,
    (X509, 0x70): "X509 as it was signed (DER)",
    (X509, 0xA0): "bytes of a signature",
    (X509_NAME, 0x00): ENTRIES,
    (X509_NAME, 0x18): "X509_NAME in canonical form",
    (ENTRIES, 0x08): "elements of a stack",
    (EXTENSIONS, 0x08): "elements of a stack",
    ("X509_EXTENSION", 0x18): "bytes of an extension",
}
"""Pointers in x509_st, X509_name_st and stack_st (include/crypto/x509.h and crypto/stack/stack.c: the same in 3.0 and 3.5)."""


class Tables(NamedTuple):
    """Addresses of what is constant."""

    methods: Sequence[int]
    bios: Sequence[int]
    objects: Sequence[int]


def tables(world: World) -> Tables:
    """Those of every libssl and libcrypto in the process."""
    images = world.once(Images)
    methods: List[int] = []
    bios: List[int] = []
    objects: List[int] = []
    for start, end in constant_ranges(world, images):
        first, last, module = images.span_at(start) or (0, 0, None)
        name = module.file_name if module is not None else ""
        if "libssl" not in name and "libcrypto" not in name:
            continue
        places = range(start + -start % 8, min(end, start + 8 * MOST_SEARCHED) - 8, 8)
        words = images.words(places.start, places.stop + 8)[:: 8 // images.word_bytes]
        known = words if len(words) > len(places) else [images.word(at) or 0 for at in range(places.start, places.stop + 8, 8)]
        # they have many constants: few words begin as one of these does, and only they are looked at
        if "libssl" in name:
            methods += [at for at, word in zip(places, known) if word & HALF in VERSIONS and is_method(images, at)]
        else:
            pairs = zip(places, known, known[1:])
            bios += [at for at, kind, name_ in pairs if first <= name_ < last and 0 < kind <= MOST_BIO_KIND and is_bio(images, at)]
            begins = [at - FIRST_NUMBER for at, word in zip(places, known) if word & HALF == 1 or word >> 32 == 1]
            objects += next((found for found in (identifiers(images, at) for at in begins if at in places) if found), [])
    return Tables(methods, bios, objects)


def is_method(images: Images, at: int) -> bool:
    """Of a protocol."""
    if images.half(at) not in VERSIONS or (images.half(at + 4) or 0) > MOST_PROTOCOL_FLAGS or (images.word(at + 8) or 0) >> 32:
        return False
    return all(is_function(images, at + 16 + 8 * number) for number in range(METHOD_FUNCTIONS))


def is_bio(images: Images, at: int) -> bool:
    """Methods of a BIO: a number, a name, functions of which some are lacking."""
    kind = images.word(at)
    if not kind or kind & ~BIO_NUMBERS not in BIO_KINDS or kind > MOST_BIO_KIND:
        return False
    name, span = images.word(at + 8), images.span_at(at)
    if name is None or span is None or not span[0] <= name < span[1]:
        return False
    functions = 0
    for place in range(at + 16, at + 16 + 8 * BIO_FUNCTIONS, 8):
        word = images.word(place)
        if word is None or (word and not images.is_code(word)):
            return False
        functions += word != 0
    return functions >= LEAST_BIO_FUNCTIONS


def is_function(images: Images, at: int) -> bool:
    """A pointer to one stands there."""
    word = images.word(at)
    return word is not None and images.is_code(word)


def identifiers(images: Images, at: int) -> List[int]:
    """The objects of nid_objs, if it begins there; numbers that are not in use have an empty one."""
    if images.half(at + FIRST_NUMBER) != 1 or images.half(at + 2 * OBJECT_BYTES + 16) != 2 or images.half(at + 16):
        return []
    objects = []
    for number in range(MOST_OBJECTS):
        place = at + number * OBJECT_BYTES
        if images.half(place + 16) == number and images.word(place):
            objects.append(place)
        elif images.half(place + 16) != 0 or images.word(place):
            break
    return objects if len(objects) >= LEAST_OBJECTS else []


class OpenSsl(Recogniser):
    """Structures with a pointer to one of these tables, at a place of its own."""

    module, objects = "openssl", ("libssl", "libcrypto")

    def asks(self, world: World) -> Iterable[Ask]:
        """Those whose tables are there."""
        constants = world.constant(tables)
        if constants.methods:
            yield from self._of_ssl(constants)
        if constants.bios:
            row = SignatureRow([Condition(8, 8, IN_SET, 0)], LEAST_BIO_BYTES, MOST_BIO_BYTES, key=(8, 8, ALL))
            yield Ask(row, lambda key: Signature(self._bio(world, key), self.module, EXACT), [NumberSet(constants.bios)], 20)
        if constants.objects:
            yield from self._of_x509(constants)

    def _of_ssl(self, constants: Tables) -> Iterator[Ask]:
        """SSL begins with the version that it speaks, SSL_CTX with a pointer to a library context, or 0. From 3.2 on an SSL begins with its
        sort and its context, and then has two methods, its own and the usual one."""
        sets, method = [NumberSet(constants.methods)], Condition(8, 8, IN_SET, 0)
        speaks = [Condition(0, 8, AT_LEAST, 0x100), Condition(0, 8, AT_MOST, 0xFFFF)]
        yield Ask(SignatureRow([method, *speaks], LEAST_SSL_BYTES), self._named("SSL"), sets, 20)
        both = [Condition(16, 8, IN_SET, 0), Condition(24, 8, IN_SET, 0), Condition(0, 8, AT_MOST, 0xFF)]
        yield Ask(SignatureRow(both, LEAST_SSL_BYTES), self._named("SSL"), sets, 20)
        yield Ask(SignatureRow([method], LEAST_CONTEXT_BYTES, MOST_CONTEXT_BYTES), self._named("SSL_CTX"), sets, 21)

    def _of_x509(self, constants: Tables) -> Iterator[Ask]:
        """A certificate names the algorithm of its signature twice (RFC 5280, 4.1.1.2); the value of an extension is an OCTET STRING."""
        sets = [NumberSet(constants.objects)]
        twice = [Condition(32, 8, IN_SET, 0), Condition(136, 8, EQUAL, 0, FIELD, other=32), Condition(12, 4, EQUAL, 2, mask=0xFEFF)]
        yield Ask(SignatureRow(twice, LEAST_X509_BYTES, MOST_X509_BYTES), self._named(X509), sets, 20)
        value = [Condition(0, 8, IN_SET, 0), Condition(20, 4, EQUAL, 4)]
        yield Ask(SignatureRow(value, OBJECT_BYTES, OBJECT_BYTES + 8), self._named("X509_EXTENSION"), sets, 20)

    def _named(self, name: str) -> Callable[[int], Signature]:
        return lambda key: Signature(name, self.module, EXACT)

    def _bio(self, world: World, methods: int) -> str:
        """By the name in its methods, which a core may not have."""
        words = world.words(methods, 2)
        name = world.text(words[1], MOST_NAME) if words is not None else None
        return "BIO (%s)" % name if name else "BIO"

    def fields(self, world: World) -> Mapping[Tuple[str, int], str]:
        """What a certificate consists of."""
        return FIELDS if world.word_bytes == 8 else {}


RECOGNISERS: List[Recogniser] = [OpenSsl()]
