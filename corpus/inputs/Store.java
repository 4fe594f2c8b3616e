import java.util.HashMap;

/** Fills a map with two million texts, reads as many at random, removes every second one, and waits for so many seconds. */
public class Store {
    public static void main(String[] words) throws Exception {
        var kept = new HashMap<Integer, String>();
        for (int key = 0; key < 2_000_000; key++) kept.put(key, "value " + key);
        long length = 0;
        for (int read = 0, key = 1; read < 2_000_000; read++) {
            key = key * 1103515245 + 12345;
            length += kept.get((key >>> 8) % 2_000_000).length();
        }
        for (int key = 0; key < 2_000_000; key += 2) kept.remove(key);
        Thread.sleep(Long.parseLong(words[0]) * 1000);
        System.out.println(kept.size() + " texts, " + length + " characters read");
    }
}
