"""OpenSSL's connections, sessions and contexts, BIOs, certificates and their extensions (tried with 3.0, 3.5 and 4.0).

Each leads to a table among the constants of an object that has OpenSSL inside (libssl and libcrypto, a module of Python, node), which is
known by the form of these tables and by no name. Nothing else has them: methods of a protocol (ssl_local.h: ssl_method_st), methods of a
BIO (internal/bio.h: bio_method_st), and the objects of all identifiers, where the number of each is its place (crypto/objects/obj_dat.h:
nid_objs). What a connection owns besides has no mark: only the pointers to it are known. BoringSSL (tried as grpcio has it) has other
methods (ssl/internal.h: ssl_method_st) and writes the size before each block (crypto/mem.cc).
"""

import re
import struct
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Tuple

from gdbheapx.analysis.census.images import MOST_DATA_BYTES, Images, list_constant_ranges
from gdbheapx.analysis.census.world import EXACT, Ask, CensusTarget, Recogniser, Signature
from gdbheapx.kernel.blocks.signatures import (
    ALL,
    AT_LEAST,
    AT_MOST,
    EQUAL,
    FIELD,
    IN_SET,
    USABLE,
    Condition,
    NumberSet,
    SignatureRow,
    Signed,
)

MOST_PROTOCOL_FLAGS = 7
METHOD_FUNCTIONS = 20
"""Of ssl_method_st, one after the other, after its version, flags and mask."""
VERSIONS = (*range(0x300, 0x305), 0x100, 0xFEFF, 0xFEFD, 0x10000, 0x1FFFF)
"""SSL3_VERSION to TLS1_3_VERSION, DTLS1_BAD_VER, DTLS1_VERSION, DTLS1_2_VERSION, TLS_ANY_VERSION, DTLS_ANY_VERSION."""
BIO_KINDS, BIO_NUMBERS = (0, 0x200, 0x400, 0x500), 0xFF
"""BIO_TYPE_FILTER, BIO_TYPE_SOURCE_SINK and BIO_TYPE_DESCRIPTOR above the number (bio.h.in); BIO_TYPE_NONE has none."""
MOST_BIO_KIND = 0xFFFF
BIO_FUNCTIONS, LEAST_BIO_FUNCTIONS = 8, 5
OBJECT_BYTES, LEAST_OBJECTS, MOST_OBJECTS = 40, 500, 1 << 14
"""Of asn1_object_st {sn, ln, nid, length, data, flags}, of which nid_objs has 1,320 in 3.0."""
FIRST_NUMBER = 1 | 6 << 32
"""In nid_objs: the nid of rsadsi and the bytes of its identifier. OpenSSL has an object for 0 before it."""
ANY_VERSION = 0x10000
"""With no flags and no mask after it: how TLS_method, TLS_client_method and TLS_server_method begin."""
MOST_AWAY = 1 << 20
"""From one of a library's tables to the others, in bytes: a program of 47 MiB of constants has all of OpenSSL's within 0.5 MiB."""
HALF = (1 << 32) - 1
LOCKED_VERSIONS = (0x303, 0xFEFD)
"""With which BoringSSL's TLSv1_2_method and DTLSv1_2_method begin, before a pointer to the protocol's methods and one to X.509's."""
LEAST_PROTOCOL_FUNCTIONS, LEAST_X509_FUNCTIONS = 12, 10
"""Of SSL_PROTOCOL_METHOD after is_dtls, and of SSL_X509_METHOD."""
BORING_SSL, BORING_CONTEXT, BORING_SESSION = 8, 16, 152
"""In a block: where a connection has the protocol's methods, a context these and X.509's after, a session X.509's."""
MOST_KEY_BYTES = 64
SESSION_ZEROS = (*range(16, 80, 8), 144, 192, 256, 328)
"""Of ssl_session_st: early_secret, without a key of its own, and what no key of MOST_KEY_BYTES fills of master_key."""
LEAST_SESSION_BYTES, MOST_SESSION_BYTES = 560, 1200
CIPHER_ID, CIPHER_KIND = 3, 0x03
"""Of ssl_cipher_st: the word of its id, whose highest byte is 3 (SSL3_CK_FLAG)."""
LEAST_SSL_BYTES, LEAST_CONTEXT_BYTES, LEAST_BIO_BYTES, LEAST_X509_BYTES = 1024, 512, 80, 256
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


class OpenSslTables(NamedTuple):
    """Addresses of what is constant."""

    methods: List[int]
    bios: List[int]
    objects: List[int]
    boring: List[int]
    """Methods of a protocol, as BoringSSL has them."""
    boring_x509: List[int]


class ObjectConstants:
    """Constants of one object, in one piece."""

    def __init__(self, images: Images, start: int, data: bytes) -> None:
        self._images, self.start, self._data = images, start, data
        self._first, self._last, _ = images.span_at(start) or (0, 0, None)

    def around(self, address: int) -> "ObjectConstants":
        """Return those that are not farther from an address than one library's."""
        first = max(0, address - self.start - MOST_AWAY)
        return ObjectConstants(self._images, self.start + first, self._data[first : first + 2 * MOST_AWAY])

    def places(self, *words: int) -> Iterator[int]:
        """Yield each address at which these words lie one after the other."""
        for match in re.finditer(re.escape(struct.pack("<%dQ" % len(words), *words)), self._data):
            if not (self.start + match.start()) % 8:
                yield self.start + match.start()

    def pairs(self) -> Iterator[Tuple[int, int, int]]:
        """Yield (address, word, next word)."""
        skipped = -self.start % 8
        words = struct.unpack_from("<%dQ" % ((len(self._data) - skipped) // 8), self._data, skipped)
        return zip(range(self.start + skipped, self.start + len(self._data), 8), words, words[1:])

    def word(self, address: int) -> int:
        """Return the word there; 0 if it is none of these constants."""
        at = address - self.start
        return int.from_bytes(self._data[at : at + 8], "little") if at >= 0 else 0

    def is_own(self, address: int) -> bool:
        return self._first <= address < self._last

    def functions(self, address: int, count: int) -> int:
        """Return the number of pointers to functions among so many words; 0 if one of them is neither that nor 0."""
        words = [word for word in (self.word(address + 8 * number) for number in range(count)) if word]
        return len(words) if all(map(self._images.is_code, words)) else 0


def find_openssl_tables(world: CensusTarget) -> OpenSslTables:
    """Return those of every object that has OpenSSL inside: a library of that name, a module of Python, a program."""
    images = world.once(Images)
    found = OpenSslTables([], [], [], [], [])
    for constants in _find_constants(world, images):
        objects = next(filter(None, (find_identifiers(constants, at - 16) for at in constants.places(FIRST_NUMBER))), [])
        near = constants.around(objects[0]) if objects else constants
        method = next((at for at in near.places(ANY_VERSION, 0) if is_method(near, at)), None)
        if method is None and not objects:
            continue
        near = near if objects or method is None else constants.around(method)
        found.objects.extend(objects)
        for version in LOCKED_VERSIONS if method is None else ():
            boring = [near.word(at + 8) for at in near.places(version) if is_boring(near, near.word(at + 8), near.word(at + 16))]
            found.boring.extend(boring)
            found.boring_x509.extend(near.word(at + 16) for at in near.places(version) if near.word(at + 8) in boring)
        # they have many constants: few words begin as one of these does, and only they are looked at
        for at, word, name in near.pairs():
            if word & HALF in VERSIONS and is_method(near, at):
                found.methods.append(at)
            elif 0 < word <= MOST_BIO_KIND and near.is_own(name) and is_bio(near, at, word):
                found.bios.append(at)
    return found


def _find_constants(world: CensusTarget, images: Images) -> Iterator[ObjectConstants]:
    """Yield all; what an executable at a fixed address never writes to by its file: a core may not even know where that was."""
    for start, end in list_constant_ranges(world, images, whole=False):
        yield ObjectConstants(images, start, world.read(start, min(end - start, MOST_DATA_BYTES)))
    for _, _, module in world.target.image_ranges():
        for start, data in () if module.base else world.target.file_constants(module):
            yield ObjectConstants(images, start, data)


def is_method(constants: ObjectConstants, at: int) -> bool:
    """Return whether methods of a protocol lie there: a version, flags, a mask, functions."""
    first = constants.word(at)
    if first & HALF not in VERSIONS or first >> 32 > MOST_PROTOCOL_FLAGS or constants.word(at + 8) >> 32:
        return False
    return constants.functions(at + 16, METHOD_FUNCTIONS) == METHOD_FUNCTIONS


def is_boring(constants: ObjectConstants, protocol: int, x509: int) -> bool:
    """Return whether these are methods of a protocol and of X.509, as BoringSSL has them."""
    if not protocol or constants.word(protocol) > 1 or protocol % 8 or x509 % 8:
        return False
    places = ((protocol + 8, LEAST_PROTOCOL_FUNCTIONS), (x509, LEAST_X509_FUNCTIONS))
    return all(constants.functions(at, count) == count for at, count in places)


def is_bio(constants: ObjectConstants, at: int, kind: int) -> bool:
    """Return whether methods of a BIO lie there: a number, a name, functions of which some are lacking."""
    return kind & ~BIO_NUMBERS in BIO_KINDS and constants.functions(at + 16, BIO_FUNCTIONS) >= LEAST_BIO_FUNCTIONS


def find_identifiers(constants: ObjectConstants, at: int) -> List[int]:
    """Return the objects of nid_objs from 1 on, if that lies there; numbers that are not in use have an empty one."""
    objects = []
    for number in range(1, MOST_OBJECTS):
        place = at + (number - 1) * OBJECT_BYTES
        if constants.word(place + 16) & HALF == number and constants.is_own(constants.word(place)):
            objects.append(place)
        elif constants.word(place + 16) & HALF or constants.word(place):
            break
    return objects if len(objects) >= LEAST_OBJECTS else []


class OpenSsl(Recogniser):
    """Structures with a pointer to one of these tables, at a place of its own."""

    module = "openssl"

    def is_here(self, world: CensusTarget) -> bool:
        return world.word_bytes == 8 and world.little_endian and any(world.constant(find_openssl_tables))

    def asks(self, world: CensusTarget) -> Iterable[Ask]:
        constants = world.constant(find_openssl_tables)
        if constants.methods:
            yield from self._of_ssl(constants)
            yield self._of_sessions(world)
        if constants.boring:
            yield from self._of_boring(constants)
        if constants.bios:
            row = SignatureRow([Condition(8, 8, IN_SET, 0)], LEAST_BIO_BYTES, MOST_BIO_BYTES, key=(8, 8, ALL))
            yield Ask(row, lambda key: self._name_bio(world, key), [NumberSet(sorted(set(constants.bios)))], 20)
        if constants.objects:
            yield from self._of_x509(constants)

    def _of_ssl(self, constants: OpenSslTables) -> Iterator[Ask]:
        """Return rows for SSL, which begins with the version that it speaks, and SSL_CTX, which begins with a pointer to a library
        context, or 0. From 3.2 on an SSL begins with its sort and its context, followed by two methods, its own and the usual one.
        """
        sets, method = [NumberSet(sorted(set(constants.methods)))], Condition(8, 8, IN_SET, 0)
        speaks = [Condition(0, 8, AT_LEAST, 0x100), Condition(0, 8, AT_MOST, 0xFFFF)]
        yield Ask(SignatureRow([method, *speaks], LEAST_SSL_BYTES), self._make_fixed_namer("SSL"), sets, 20)
        both = [Condition(16, 8, IN_SET, 0), Condition(24, 8, IN_SET, 0), Condition(0, 8, AT_MOST, 0xFF)]
        yield Ask(SignatureRow(both, LEAST_SSL_BYTES), self._make_fixed_namer("SSL"), sets, 20)
        yield Ask(SignatureRow([method], LEAST_CONTEXT_BYTES, MOST_CONTEXT_BYTES), self._make_fixed_namer("SSL_CTX"), sets, 21)

    def _of_sessions(self, world: CensusTarget) -> Ask:
        """Return the row of sessions: version, length of the key, and a cipher, which the first session must show."""

        def has_cipher(signed: Signed) -> bool:
            images = world.once(Images)
            words = world.words(signed.sample, signed.least_bytes // 8) or ()
            ciphers = (world.words(word, CIPHER_ID + 1) for word in words if images.span_at(word))
            return any(cipher is not None and cipher[CIPHER_ID] >> 24 & 0xFF == CIPHER_KIND for cipher in ciphers)

        begins = [Condition(0, 8, IN_SET, 0), Condition(8, 8, AT_MOST, MOST_KEY_BYTES)]
        row = SignatureRow(begins + [Condition(at, 8, EQUAL, 0) for at in SESSION_ZEROS], LEAST_SESSION_BYTES, MOST_SESSION_BYTES)
        return Ask(row, self._make_fixed_namer("SSL_SESSION"), [NumberSet(VERSIONS)], 22, accepts=has_cipher)

    def _of_boring(self, constants: OpenSslTables) -> Iterator[Ask]:
        """Return rows for BoringSSL's objects, which the size before each confirms."""
        sets = [NumberSet(sorted(set(constants.boring))), NumberSet(sorted(set(constants.boring_x509)))]
        size = [Condition(0, 8, AT_LEAST, 64), Condition(0, 8, AT_MOST, -8, USABLE)]
        context = [Condition(BORING_CONTEXT, 8, IN_SET, 0), Condition(BORING_CONTEXT + 8, 8, IN_SET, 1)]
        for name, conditions in (
            ("SSL_CTX", context),
            ("SSL", [Condition(BORING_SSL, 8, IN_SET, 0)]),
            ("SSL_SESSION", [Condition(BORING_SESSION, 8, IN_SET, 1)]),
        ):
            yield Ask(SignatureRow(size + conditions, BORING_SSL + 64), self._make_fixed_namer(name), sets, 20)

    def _of_x509(self, constants: OpenSslTables) -> Iterator[Ask]:
        """Return rows for certificates, which name the algorithm of their signature twice (RFC 5280, 4.1.1.2); the value of an extension
        is an OCTET STRING.
        """
        sets = [NumberSet(sorted(set(constants.objects)))]
        twice = [Condition(32, 8, IN_SET, 0), Condition(136, 8, EQUAL, 0, FIELD, other=32), Condition(12, 4, EQUAL, 2, mask=0xFEFF)]
        yield Ask(SignatureRow(twice, LEAST_X509_BYTES, MOST_X509_BYTES), self._make_fixed_namer(X509), sets, 20)
        value = [Condition(0, 8, IN_SET, 0), Condition(20, 4, EQUAL, 4)]
        yield Ask(SignatureRow(value, OBJECT_BYTES, OBJECT_BYTES + 8), self._make_fixed_namer("X509_EXTENSION"), sets, 20)

    def _make_fixed_namer(self, name: str) -> Callable[[int], Signature]:
        return lambda key: Signature(name, self.module, EXACT)

    def _name_bio(self, world: CensusTarget, methods: int) -> Signature:
        words = world.words(methods, 2)
        name = world.text(words[1], MOST_NAME) if words is not None else None
        return Signature("BIO (%s)" % name if name else "BIO", self.module, EXACT)

    def fields(self, world: CensusTarget) -> Mapping[Tuple[str, int], str]:
        return FIELDS if world.word_bytes == 8 else {}


RECOGNISERS: List[Recogniser] = [OpenSsl()]
