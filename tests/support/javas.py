"""A Java program with memory of its own outside the heap."""

JAVA = """import java.util.*; import java.nio.*; public class Big { static List<Object> kept = new ArrayList<>();
public static void main(String[] a) throws Exception { for (int i = 0; i < 50000; i++) kept.add(("s" + i).intern());
for (int i = 0; i < 500; i++) kept.add(ByteBuffer.allocateDirect(1000)); System.out.println("ready"); Thread.sleep(1000000); } }
"""
