import java.lang.reflect.Field;
import sun.misc.Unsafe;

public class Image {
    static final long LARGE = 3_000_000;
    static Unsafe unsafe;

    static void inner(long size) {
        unsafe.freeMemory(unsafe.allocateMemory(size));
    }

    void keep(long size) {
        inner(size);
    }

    static void outer(long size) {
        Runnable call = () -> new Image().keep(size);
        call.run();
    }

    public static void main(String[] words) throws Exception {
        Field field = Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        unsafe = (Unsafe) field.get(null);
        outer(LARGE);
        for (int round = 0; round < 60_000; round++) {
            outer(round % 16 + 1);
        }
        Thread.sleep(300);
        for (int round = 0; round < 4; round++) {
            outer(LARGE + round);
        }
        Thread.sleep(1500);
    }
}
