import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.CountDownLatch;

public class Echo {
    static final List<Object> kept = Collections.synchronizedList(new ArrayList<>());

    public static void main(String[] arguments) throws Exception {
        CountDownLatch done = new CountDownLatch(20);
        for (int number = 0; number < 20; number++) {
            final int seed = number;
            Thread thread = new Thread(() -> {
                Random random = new Random(seed);
                for (int i = 0; i < 100; i++) kept.add(ByteBuffer.allocateDirect(1 + random.nextInt(30000)));
                done.countDown();
                try { Thread.sleep(Long.MAX_VALUE); } catch (InterruptedException stop) { }
            });
            thread.setDaemon(true);
            thread.start();
        }
        done.await();
        do {
            System.out.print("ready\n");
            System.out.flush();
        } while (System.in.read() >= 0);
    }
}
