"""Names as a program may give them to threads, files and classes to drive whatever shows them."""

HOSTILE = (
    "</svg><script>alert(1)</script>",
    "two\nlines",
    "\x1b[31mred",
    "=cmd|' /C calc'!A0",
    "a;b;c",
    b"\xff\xfe latin".decode("utf-8", "surrogateescape"),
    "ends like a difference 12",
    "tab\tand\rreturn\x85next",
    "",
)
