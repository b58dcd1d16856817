// Churn PORTFILE: answers each line with seven times its number, takes native memory for it, and keeps that of the last 20,000 requests.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import sun.misc.Unsafe;

class Churn {
    static final long[] held = new long[20000];
    static final byte[][] objects = new byte[20000][];

    public static void main(String[] words) throws Exception {
        Field field = Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        Unsafe unsafe = (Unsafe) field.get(null);
        for (int i = 0; i < held.length; i++)
            take(unsafe, i);
        ServerSocket server = new ServerSocket(0, 5, InetAddress.getLoopbackAddress());
        Path there = Path.of(words[0]), made = Path.of(words[0] + ".new");
        Files.writeString(made, Integer.toString(server.getLocalPort()));
        Files.move(made, there, StandardCopyOption.ATOMIC_MOVE);
        Socket socket = server.accept();
        socket.setTcpNoDelay(true);
        BufferedReader in = new BufferedReader(new InputStreamReader(socket.getInputStream()));
        OutputStream out = socket.getOutputStream();
        for (String line; (line = in.readLine()) != null;) {
            long number = Long.parseLong(line);
            for (int i = 0; i < 50; i++)
                take(unsafe, (int) ((number * 50 + i) % held.length));
            out.write((number * 7 + "\n").getBytes());
        }
    }

    static void take(Unsafe unsafe, int place) {
        if (held[place] != 0)
            unsafe.freeMemory(held[place]);
        long bytes = 100 + place * 7919L % 6000;
        held[place] = unsafe.allocateMemory(bytes);
        unsafe.setMemory(held[place], bytes, (byte) 1);
        objects[place] = new byte[(int) bytes];
    }
}
