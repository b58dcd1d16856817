"""A Java program with memory of its own outside the heap, and the JDKs that are here."""

import os
from pathlib import Path
from typing import List

JAVA = """import java.util.*; import java.nio.*; public class Big { static List<Object> kept = new ArrayList<>();
public static void main(String[] a) throws Exception { for (int i = 0; i < 50000; i++) kept.add(("s" + i).intern());
for (int i = 0; i < 500; i++) kept.add(ByteBuffer.allocateDirect(1000)); System.out.println("ready"); Thread.sleep(1000000); } }
"""

HANDLES, DROPPED_HANDLES, BUFFERS, DROPPED_BUFFERS, HANDLE_BYTES, BUFFER_BYTES = 3000, 2000, 30, 20, 200, 50_000  # 200 bytes are a whole chunk of glibc's
HOLDERS = """import java.lang.reflect.Field; import java.nio.*; import java.util.*;
public class Holders {
  static final sun.misc.Unsafe UNSAFE = unsafe();
  static List<Handle> kept = new ArrayList<>(); static Map<String, ByteBuffer> buffers = new HashMap<>();
  static class Handle { long address = UNSAFE.allocateMemory(%(handle_bytes)d); { UNSAFE.setMemory(address, %(handle_bytes)d, (byte) 1); } }
  static sun.misc.Unsafe unsafe() { try { Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe"); field.setAccessible(true);
    return (sun.misc.Unsafe) field.get(null); } catch (Exception error) { throw new Error(error); } }
  static void fill() {
    for (int i = 0; i < %(handles)d; i++) { Handle handle = new Handle(); if (i %% 3 == 0) kept.add(handle); }
    for (int i = 0; i < %(buffers)d; i++) { ByteBuffer buffer = ByteBuffer.allocateDirect(%(buffer_bytes)d); if (i %% 3 == 0) buffers.put("b" + i, buffer); }
  }
  public static void main(String[] words) throws Exception {
    Thread filler = new Thread(Holders::fill); filler.start(); filler.join();
    System.out.println("ready"); System.out.flush();
    if (System.in.read() == 'g') { System.gc(); System.out.println("ready"); System.out.flush(); }
    Thread.sleep(1000000);
  }
}
""" % {"handles": HANDLES, "buffers": BUFFERS, "handle_bytes": HANDLE_BYTES, "buffer_bytes": BUFFER_BYTES}
"""Objects with memory of malloc: two thirds of them are unreachable; of buffers a Cleaner frees it, of handles nothing does."""


def find_jdks() -> List[str]:
    """Return the folder of each JDK that is installed here, and of those that GDBHEAPX_JDKS names, with colons between them."""
    homes = {str(path.resolve().parents[1]) for path in Path("/usr/lib/jvm").glob("*/bin/java")}
    return sorted(homes) + [home for home in os.environ.get("GDBHEAPX_JDKS", "").split(":") if home]
