// Hostile runtimes for `cargo xtask hostile`: files with names of generated code, and a false Java virtual machine.
// Each mode makes allocations through code that it generates, and says how many: `allocations=COUNT`. With JVM defined, this is that
// machine's library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef JVM

struct member {
    const char *type, *name, *type_of_member;
    int32_t is_static;
    uint64_t offset;
    void *address;
};
struct type {
    const char *name, *super;
    int32_t flags[4];
    uint64_t size;
};

// A page in which every word is the page's own address, so that every list is a circle and every name leads back.
uint64_t circle[512] __attribute__((aligned(4096)));
// The pieces of code that heaps are divided into. Each says that its head is 254 pieces below.
static unsigned char pieces[1 << 16];
// What the machine says of its code: where it is, and how it is divided.
static uint64_t heap[64], heaps[64], list[64], queue[64];
static char long_name[1 << 20];

static struct member members[9000];
static struct type types[9000];
struct member *gHotSpotVMStructs = members;
struct type *gHotSpotVMTypes = types;

static int count;
static void member(const char *type, const char *name, uint64_t offset, void *address) {
    members[count++] = (struct member){type, name, type, address != NULL, offset, address};
}

// Describes a machine whose heap of code is at an address, with lies: which ones depends on the mode.
void describe(void *code, uint64_t bytes, int mode) {
    for (int i = 0; i < 512; i++) circle[i] = (uint64_t)(mode == 1 ? (void *)0x7fffffff0000 : (void *)circle);
    memset(pieces, 0xfe, sizeof pieces);
    memset(long_name, 'a', sizeof long_name - 1);
    static int version = 17;
    list[0] = 1; // length
    list[1] = (uint64_t)heaps;
    heaps[0] = (uint64_t)heap;
    heap[0] = (uint64_t)code, heap[1] = (uint64_t)code + bytes;     // bounds
    heap[2] = (uint64_t)pieces, heap[3] = 7;                       // pieces of 128 bytes
    queue[0] = (uint64_t)circle, queue[1] = 0xffffffff;             // an interpreter of 4 GiB
    static uint64_t to_list, to_queue, low, high;
    to_list = (uint64_t)list, to_queue = (uint64_t)queue, low = 4096, high = UINT64_MAX;
    member("Abstract_VM_Version", "_vm_major_version", 0, &version);
    member("AbstractInterpreter", "_code", 0, &to_queue);
    member("StubQueue", "_stub_buffer", 0, NULL);
    member("StubQueue", "_buffer_limit", 8, NULL);
    member("CodeCache", "_heaps", 0, &to_list);
    member("GenericGrowableArray", "_len", 0, NULL);
    member("GrowableArrayBase", "_len", 0, NULL);
    member("GrowableArray<int>", "_data", 8, NULL);
    member("CodeHeap", "_memory", 0, NULL);
    member("CodeHeap", "_segmap", 16, NULL);
    member("CodeHeap", "_log2_segment_size", 24, NULL);
    member("VirtualSpace", "_low_boundary", 0, NULL);
    member("VirtualSpace", "_high_boundary", 8, NULL);
    member("VirtualSpace", "_low", 0, NULL);
    member("MetaspaceObj", "_shared_metaspace_base", 0, &low);
    member("MetaspaceObj", "_shared_metaspace_top", 0, &high);
    static const char *const rest[][2] = {
        {"CodeBlob", "_name"}, {"CodeBlob", "_size"}, {"CodeBlob", "_frame_size"}, {"CodeBlob", "_code_begin"},
        {"CodeBlob", "_code_offset"}, {"CodeBlob", "_data_offset"}, {"CompiledMethod", "_method"},
        {"CompiledMethod", "_scopes_data_begin"}, {"nmethod", "_method"}, {"nmethod", "_compile_id"},
        {"nmethod", "_scopes_pcs_offset"}, {"nmethod", "_scopes_data_offset"}, {"nmethod", "_dependencies_offset"},
        {"nmethod", "_metadata_offset"}, {"Method", "_constMethod"}, {"ConstMethod", "_constants"},
        {"ConstMethod", "_code_size"}, {"ConstMethod", "_name_index"}, {"ConstMethod", "_flags"},
        {"ConstantPool", "_pool_holder"}, {"ConstantPool", "_source_file_name_index"},
        {"InstanceKlass", "_source_file_name_index"}, {"Klass", "_name"}, {"Symbol", "_length"}, {"Symbol", "_body"},
    };
    for (unsigned i = 0; i < sizeof rest / sizeof *rest; i++) member(rest[i][0], rest[i][1], 8 * (i % 8), NULL);
    // The lists have no end that heaptrace may wait for, and names without one.
    while (count < 9000) member(long_name, (const char *)circle, UINT64_MAX, (void *)(uintptr_t)(mode == 2 ? 8 : 0));
    static const char *const sizes[] = {"ConstMethod", "ConstantPool", "HeapBlock", "PcDesc"};
    for (int i = 0; i < 9000; i++) types[i] = (struct type){i < 4 ? sizes[i] : long_name, NULL, {0}, 16 + 8 * (i % 2)};
}

#else

typedef void *(*caller_fn)(size_t, void *(*)(size_t));

static long allocations;

__attribute__((noinline)) static void *allocate(size_t size) {
    void *volatile block = malloc(size);
    allocations++;
    return block;
}

static void fail(const char *what) {
    perror(what);
    exit(99);
}

// Code with a frame pointer that calls its second argument with its first one, at every 128th byte.
static char *generate(size_t bytes) {
    static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd6, 0x5d, 0xc3};
    char *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) fail("mmap");
    for (size_t at = 0; at < bytes; at += 128) memcpy(area + at, code, sizeof code);
    return area;
}

static void use(char *area, int times) {
    for (int i = 0; i < times; i++) free(((caller_fn)(area + 128 * (i % 16)))(100 + i, allocate));
}

static FILE *named(const char *path) {
    FILE *file = fopen(path, "w");
    if (!file) fail(path);
    return file;
}

static void perf_map_names(const char *path, char *area) {
    FILE *file = named(path);
    for (int i = 0; i < 200000; i++) fprintf(file, "%lx %x f\x1b[31m%d\n", (long)area + i % 997, 1 + i % 65536, i);
    fputs("0 ffffffffffffffff everything\nffffffffffffffff 2 beyond\n\n \nzz 1 x\n1\n1 1\n-1 -1 -1\n", file);
    fprintf(file, "%lx 800 ", (long)area);
    for (int i = 0; i < 1 << 20; i++) fputc(i % 3 ? 'n' : '\xff', file);
    fputc('\n', file);
    for (int i = 0; i < 200; i++) {
        use(area, 1);
        fprintf(file, "%lx 10 again%c%d\n", (long)area + 128 * (i % 16), i % 2 ? 0 : ' ', i);
        fflush(file);
    }
    fputs("1234 no end of the line", file);
    fclose(file);
}

// What is at the path of a perf map instead of a file of the process's own.
static void perf_map_kinds(const char *path, char *area, int kind) {
    const mode_t modes[] = {S_IFIFO | 0666, S_IFCHR | 0666, S_IFSOCK | 0666};
    if (kind == 3) {
        if (mkdir(path, 0700)) fail(path);
    } else if (kind < 3) {
        if (mknod(path, modes[kind], kind == 1 ? makedev(1, 5) : 0)) fail(path);
    } else if (kind == 4) {
        if (symlink("/etc/shadow", path)) fail(path);
    } else if (kind == 5) {
        int file = open(path, O_RDWR | O_CREAT, 0600);
        if (file < 0 || ftruncate(file, 1L << 40)) fail(path);
    } else {
        // Grows while it is read, by lines and by holes, and shrinks again.
        int file = open(path, O_RDWR | O_CREAT, 0600);
        if (file < 0) fail(path);
        for (int i = 0; i < 100; i++) {
            if (ftruncate(file, i % 3 ? (1 << 16) * i : 0)) fail(path);
            if (pwrite(file, "1 1 a\n", 6, (1 << 16) * i) != 6) fail(path);
            use(area, 1);
        }
    }
    use(area, 100);
    if (kind == 3) rmdir(path); else unlink(path);
}

static void record(FILE *file, uint32_t kind, uint32_t length, const void *body, size_t bytes) {
    uint64_t time = UINT64_MAX;
    fwrite(&kind, 4, 1, file), fwrite(&length, 4, 1, file), fwrite(&time, 8, 1, file);
    if (bytes) fwrite(body, bytes, 1, file);
}

static void jitdump(const char *path, char *area, int kind) {
    FILE *file = named(path);
    uint32_t header[10] = {0x4a695444, 1, kind == 1 ? 0xffffffff : 40, 62, 0, getpid()};
    fwrite(header, sizeof header, 1, file);
    fflush(file);
    int again = open(path, O_RDONLY);
    if (again < 0 || mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, again, 0) == MAP_FAILED) fail("mmap");
    uint64_t load[64] = {getpid(), (uint64_t)area, (uint64_t)area, UINT64_MAX, 0};
    for (int i = 0; i < 100; i++) {
        load[3] = i % 2 ? UINT64_MAX : 1 << 20;
        memset(load + 5, i % 5 ? 'x' : 0x1b, 24 * 8);
        record(file, 0, i % 3 ? 16 + 40 + 24 * 8 : 20, load, i % 3 ? 40 + 24 * 8 : 4);
        uint64_t lines[4] = {(uint64_t)area, i % 2 ? UINT64_MAX : 1 << 30, (uint64_t)area, 0x41414141};
        record(file, 2, 16 + sizeof lines, lines, sizeof lines);
        uint64_t move[5] = {0, 0, (uint64_t)area, (uint64_t)area + i, UINT64_MAX};
        record(file, 1, 16 + sizeof move, move, sizeof move);
        fflush(file);
        use(area, 1);
    }
    record(file, 0, kind == 2 ? 8 : 0xffffffff, load, 40);
    fclose(file);
    use(area, 100);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    // A process for each kind.
    int children = strcmp(mode, "perf-map-kinds") == 0 ? 7 : strcmp(mode, "perf-map-names") == 0 ? 1 : 3;
    for (int kind = 0; kind < children; kind++) {
        int ends[2];
        if (pipe(ends)) fail("pipe");
        pid_t child = fork();
        if (child == 0) {
            char path[4200];
            allocations = 0;
            char *area = generate(1 << 16);
            snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
            if (strcmp(mode, "perf-map-names") == 0) {
                perf_map_names(path, area);
                unlink(path);
            } else if (strcmp(mode, "perf-map-kinds") == 0) {
                perf_map_kinds(path, area, kind);
            } else if (strcmp(mode, "jitdump") == 0) {
                snprintf(path, sizeof path, "%s/jit-%d.dump", argv[2], getpid());
                jitdump(path, area, kind);
            } else {
                void *library = dlopen(argv[2], RTLD_NOW);
                void (*describe)(void *, uint64_t, int) = library ? (void (*)(void *, uint64_t, int))dlsym(library, "describe") : NULL;
                if (!describe) fail(argv[2]);
                describe(area, 1 << 16, kind);
                for (int i = 0; i < 20; i++) {
                    use(area, 16);
                    usleep(20000);
                }
            }
            if (write(ends[1], &allocations, sizeof allocations) != sizeof allocations) _exit(98);
            _exit(0);
        }
        long made = 0;
        close(ends[1]);
        if (read(ends[0], &made, sizeof made) != sizeof made) fail("child");
        close(ends[0]);
        allocations += made;
        int status;
        waitpid(child, &status, 0);
        if (status) {
            fprintf(stderr, "%s %d: status %x\n", mode, kind, status);
            return 97;
        }
    }
    printf("allocations=%ld\n", allocations);
    return 0;
}

#endif
