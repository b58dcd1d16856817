import java.nio.ByteBuffer;
import java.util.*;
import java.util.zip.*;

public class Hoard {
    static final List<Object> kept = Collections.synchronizedList(new ArrayList<>());

    public static void main(String[] arguments) throws Exception {
        List<Thread> threads = new ArrayList<>();
        java.util.concurrent.CountDownLatch done = new java.util.concurrent.CountDownLatch(24);
        for (int number = 0; number < 24; number++) {
            final int seed = number;
            Thread thread = new Thread(() -> {
                Random random = new Random(seed);
                for (int i = 0; i < 60; i++) {
                    kept.add(ByteBuffer.allocateDirect(1 + random.nextInt(60000)));
                    Deflater deflater = new Deflater();
                    deflater.setInput(new byte[10000]);
                    deflater.finish();
                    deflater.deflate(new byte[10000]);
                    if (i % 2 == 0) deflater.end(); else kept.add(deflater);
                }
                done.countDown();
                try { Thread.sleep(Long.MAX_VALUE); } catch (InterruptedException stop) { }
            });
            thread.setDaemon(true);
            thread.start();
        }
        done.await();
        System.out.println("ready");
        System.out.flush();
        while (System.in.read() >= 0) { }
    }
}
