import java.lang.reflect.*; import java.net.URI; import java.nio.file.*; import java.util.*; import java.util.stream.*;
public class Offsets {
  static Object[] kept = new Object[2000];
  static long[] big;
  public static void main(String[] a) throws Exception {
    Field own = sun.misc.Unsafe.class.getDeclaredField("theUnsafe"); own.setAccessible(true);
    sun.misc.Unsafe unsafe = (sun.misc.Unsafe) own.get(null);
    Path root = FileSystems.getFileSystem(URI.create("jrt:/")).getPath("/modules/java.base");
    List<String> names, lines = new ArrayList<>();
    try (Stream<Path> files = Files.walk(root)) {
      names = files.map(f -> root.relativize(f).toString()).filter(f -> f.endsWith(".class") && !f.contains("-info"))
        .sorted(Comparator.comparing(f -> f.hashCode())).limit(400).collect(Collectors.toList());
    }
    for (String name : names) try {
      Class<?> found = Class.forName(name.substring(0, name.length() - 6).replace('/', '.'), false, null);
      for (Field field : found.getDeclaredFields()) try {
        boolean fixed = Modifier.isStatic(field.getModifiers());
        long offset = fixed ? unsafe.staticFieldOffset(field) : unsafe.objectFieldOffset(field);
        lines.add(found.getName() + " " + field.getName() + " " + offset + " " + fixed);
      } catch (UnsupportedOperationException hidden) { }
    } catch (Throwable other) { }
    Files.write(Paths.get(a[0]), lines);
    big = new long[400000];
    for (int i = 0; i < kept.length; i++) kept[i] = new Object[] {"text" + i, new long[i % 7], new byte[i % 50], new int[2][3]};
    System.out.println("ready");
    System.in.read();
  }
}
