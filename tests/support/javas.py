"""A Java program with memory of its own outside the heap, and the JDKs that are here."""

import os
from pathlib import Path
from typing import List

JAVA = """import java.util.*; import java.nio.*; public class Big { static List<Object> kept = new ArrayList<>();
public static void main(String[] a) throws Exception { for (int i = 0; i < 50000; i++) kept.add(("s" + i).intern());
for (int i = 0; i < 500; i++) kept.add(ByteBuffer.allocateDirect(1000)); System.out.println("ready"); Thread.sleep(1000000); } }
"""


def find_jdks() -> List[str]:
    """Return the folder of each JDK that is installed here, and of those that GDBHEAPX_JDKS names, with colons between them."""
    homes = {str(path.resolve().parents[1]) for path in Path("/usr/lib/jvm").glob("*/bin/java")}
    return sorted(homes) + [home for home in os.environ.get("GDBHEAPX_JDKS", "").split(":") if home]
