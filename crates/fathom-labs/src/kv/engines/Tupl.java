// The key-value load on Tupl, as in O'Neill 2018: 8-byte keys, no transactions, no redo log, checkpoints every second.
// Pages go to the file with O_DIRECT through an aligned buffer of each thread; Tupl's own option does not align.
// Run by fathom: java -cp JARS Tupl.java FILE PAGE CACHE COMMIT KEYS VALUE THREADS RAMP_MS TIME_MS READ UPDATE INSERT SEED FILL

import com.sun.nio.file.ExtendedOpenOption;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.cojen.tupl.*;
import org.cojen.tupl.io.DirectAccess;
import org.cojen.tupl.io.PageArray;

public class Tupl {
    static final class Direct extends PageArray {
        private final FileChannel file;
        private final ThreadLocal<ByteBuffer> buffers;
        // Of these pages the file is known to consist; more may have been written before.
        private final AtomicLong pages = new AtomicLong();

        Direct(Path path, int page, long fill) throws IOException {
            super(page);
            file = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.READ,
                StandardOpenOption.WRITE, ExtendedOpenOption.DIRECT);
            buffers = ThreadLocal.withInitial(
                () -> ByteBuffer.allocateDirect(2 * page + 4096).alignedSlice(4096).limit(page).slice());
            // Blocks that were never written cost the file system more than blocks that were.
            ByteBuffer ones = ByteBuffer.allocateDirect(2 << 20).alignedSlice(4096);
            ones.limit(1 << 20);
            while (ones.hasRemaining()) ones.put((byte) 0xff);
            for (long at = 0; at < fill; ) at += file.write(ones.rewind(), at);
            file.force(true);
        }
        private ByteBuffer read(long index) throws IOException {
            ByteBuffer b = buffers.get();
            b.clear().limit(pageSize());
            while (b.hasRemaining()) {
                if (file.read(b, index * pageSize() + b.position()) < 0) throw new java.io.EOFException();
            }
            return b.flip();
        }
        private void write(long index, ByteBuffer b) throws IOException {
            b.flip();
            while (b.hasRemaining()) file.write(b, index * pageSize() + b.position());
            pages.accumulateAndGet(index + 1, Math::max);
        }
        private ByteBuffer empty() {
            ByteBuffer b = buffers.get();
            b.clear().limit(pageSize());
            return b;
        }
        public boolean isReadOnly() { return false; }
        public boolean isEmpty() throws IOException { return pages.get() == 0; }
        public long getPageCount() throws IOException { return pages.get(); }
        public void setPageCount(long n) throws IOException {
            if (file.size() >= n * pageSize()) pages.set(n);
            else {
                ByteBuffer b = empty();
                while (b.hasRemaining()) b.put((byte) 0);
                write(n - 1, b);
            }
        }
        public void readPage(long index, byte[] to, int offset, int length) throws IOException {
            read(index).get(to, offset, length);
        }
        public void readPage(long index, long to) throws IOException { readPage(index, to, 0, pageSize()); }
        public void readPage(long index, long to, int offset, int length) throws IOException {
            ByteBuffer b = read(index);
            b.limit(length);
            DirectAccess.ref(to + offset, length).put(b);
        }
        public void writePage(long index, byte[] from, int offset) throws IOException {
            write(index, empty().put(from, offset, pageSize()));
        }
        public void writePage(long index, long from) throws IOException { writePage(index, from, 0); }
        public void writePage(long index, long from, int offset) throws IOException {
            write(index, empty().put(DirectAccess.ref(from + offset, pageSize())));
        }
        public void sync(boolean metadata) throws IOException { file.force(metadata); }
        public void close(Throwable cause) throws IOException { file.close(); }
    }

    static long mix(long z) {
        z += 0x9e3779b97f4a7c15L;
        z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
        z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
        return z ^ (z >>> 31);
    }

    static byte[] key(long k) {
        return ByteBuffer.allocate(8).putLong(k).array();
    }

    // 16 buckets for each power of two.
    static int bucket(long v) {
        if (v < 16) return (int) v;
        int shift = 59 - Long.numberOfLeadingZeros(v);
        return (shift + 1) * 16 + (int) ((v >>> shift) & 15);
    }
    static long middle(int b) {
        if (b < 16) return b;
        int shift = b / 16 - 1;
        return ((16L + b % 16) << shift) + ((1L << shift) >> 1);
    }

    static volatile boolean stop, measuring;

    public static void main(String[] a) throws Exception {
        Path path = Path.of(a[0]);
        int page = Integer.parseInt(a[1]);
        long cache = Long.parseLong(a[2]);
        boolean commit = a[3].equals("1");
        long keys = Long.parseLong(a[4]);
        byte[] value = new byte[Integer.parseInt(a[5])];
        int threads = Integer.parseInt(a[6]);
        long ramp = Long.parseLong(a[7]), time = Long.parseLong(a[8]);
        int read = Integer.parseInt(a[9]), update = Integer.parseInt(a[10]), insert = Integer.parseInt(a[11]);
        long seed = Long.parseLong(a[12]);
        // Without a ramp everything counts, from the first operation on.
        measuring = ramp == 0;

        DatabaseConfig config = new DatabaseConfig()
            .pageSize(page).minCacheSize(cache).maxCacheSize(cache).directPageAccess(true)
            .checkpointRate(1, TimeUnit.SECONDS)
            .durabilityMode(commit ? DurabilityMode.SYNC : DurabilityMode.NO_REDO)
            .dataPageArray(new Direct(path, page, Long.parseLong(a[13])));
        if (commit) config.baseFile(new File(a[0] + "-base"));
        Database db = Database.open(config);
        Index ix = db.openIndex("t");
        Transaction none = commit ? null : Transaction.BOGUS;
        for (long k = 0; k < keys; k++) ix.store(Transaction.BOGUS, key(k), value);
        db.checkpoint();
        System.out.println("start");

        AtomicLong newest = new AtomicLong(keys);
        long[][] counts = new long[threads][16];
        long[][] histograms = new long[threads][64 * 16];
        var system = (com.sun.management.OperatingSystemMXBean)
            java.lang.management.ManagementFactory.getOperatingSystemMXBean();
        if (measuring) System.out.println("measuring");
        long start = System.nanoTime(), last = start, lastOps = 0;
        long baseAt = start, baseOps = 0, baseCpu = system.getProcessCpuTime();
        Thread[] workers = new Thread[threads];
        Throwable[] failed = new Throwable[1];
        for (int t = 0; t < threads; t++) {
            final int me = t;
            workers[t] = new Thread(() -> {
                long random = mix(seed ^ mix(me + 1));
                long began = System.nanoTime();
                try {
                    while (!stop) {
                        random = mix(random);
                        int dice = (int) Long.remainderUnsigned(random, 100);
                        random = mix(random);
                        byte[] k = key(Long.remainderUnsigned(random, Math.max(1, newest.get())));
                        if (dice < read) ix.load(none, k);
                        else if (dice < read + update) ix.store(none, k, value);
                        else if (dice < read + update + insert)
                            ix.store(none, insert == 100 ? key(random) : key(newest.getAndIncrement()), value);
                        else {
                            ix.load(none, k);
                            ix.store(none, k, value);
                        }
                        long now = System.nanoTime();
                        if (measuring) histograms[me][bucket(now - began)]++;
                        began = now;
                        counts[me][8]++;
                    }
                } catch (Throwable e) {
                    failed[0] = e;
                    stop = true;
                }
            });
            workers[t].start();
        }
        while (!stop) {
            Thread.sleep(100);
            long now = System.nanoTime(), ops = total(counts);
            System.out.printf("rate %.3f %.1f%n", (now - start) / 1e9, (ops - lastOps) * 1e9 / (now - last));
            last = now;
            lastOps = ops;
            if (!measuring && now - start >= ramp * 1_000_000) {
                baseAt = now;
                baseOps = ops;
                baseCpu = system.getProcessCpuTime();
                measuring = true;
                System.out.println("measuring");
            } else if (measuring && now - baseAt >= time * 1_000_000) break;
        }
        long end = System.nanoTime(), ops = total(counts), cpu = system.getProcessCpuTime();
        stop = true;
        System.out.printf("end %d %.6f %.6f%n", ops - baseOps, (end - baseAt) / 1e9, (cpu - baseCpu) / 1e9);
        for (Thread w : workers) w.join();
        if (failed[0] != null) throw new Exception(failed[0]);
        long[] sum = new long[64 * 16];
        for (long[] h : histograms) for (int i = 0; i < sum.length; i++) sum[i] += h[i];
        for (int i = 0; i < sum.length; i++) if (sum[i] > 0) System.out.println("latency " + middle(i) + " " + sum[i]);
        System.out.println("done");
        System.out.flush();
        // Nothing of the file is needed any more: no last checkpoint.
        Runtime.getRuntime().halt(0);
    }

    static long total(long[][] counts) {
        long n = 0;
        for (long[] c : counts) n += c[8];
        return n;
    }
}
