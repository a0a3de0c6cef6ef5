// The second oracle: a preloaded library that counts what passes through the functions of the allocator, in total and
// by calling function. It knows nothing of what the program says about itself.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALLERS 4096

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t), *__libc_valloc(size_t), *__libc_pvalloc(size_t);
extern void __libc_free(void *);

// The program's.
extern void (*d_oracle)(int command, int file) __attribute__((weak));

struct caller {
    void *address;
    size_t allocations, bytes;
};

static struct caller callers[CALLERS];
static size_t allocations, bytes, frees;

#define ADD(counter, n) __atomic_fetch_add(&(counter), (n), __ATOMIC_RELAXED)

static void *counted(void *block, size_t size, void *address) {
    if (block == NULL)
        return NULL;
    ADD(allocations, 1);
    ADD(bytes, size);
    size_t start = ((size_t)address * 0x9e3779b97f4a7c15u) >> 52;
    for (size_t i = 0; i < CALLERS; i++) {
        struct caller *it = &callers[(start + i) % CALLERS];
        void *none = NULL;
        if (it->address == address ||
            __atomic_compare_exchange_n(&it->address, &none, address, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED) ||
            none == address) {
            ADD(it->allocations, 1);
            ADD(it->bytes, size);
            break;
        }
    }
    return block;
}

#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

void *malloc(size_t size) { return counted(__libc_malloc(size), size, CALLER); }

void *calloc(size_t count, size_t size) { return counted(__libc_calloc(count, size), count * size, CALLER); }

void free(void *block) {
    if (block != NULL)
        ADD(frees, 1);
    __libc_free(block);
}

void *realloc(void *old, size_t size) {
    void *block = __libc_realloc(old, size);
    if (old != NULL && (block != NULL || size == 0))
        ADD(frees, 1);
    return counted(block, size, CALLER);
}

void *reallocarray(void *old, size_t count, size_t size) {
    size_t product;
    if (__builtin_mul_overflow(count, size, &product)) {
        errno = ENOMEM;
        return NULL;
    }
    void *block = __libc_realloc(old, product);
    if (old != NULL && (block != NULL || product == 0))
        ADD(frees, 1);
    return counted(block, product, CALLER);
}

void *memalign(size_t align, size_t size) { return counted(__libc_memalign(align, size), size, CALLER); }

void *aligned_alloc(size_t align, size_t size) { return counted(__libc_memalign(align, size), size, CALLER); }

void *valloc(size_t size) { return counted(__libc_valloc(size), size, CALLER); }

void *pvalloc(size_t size) { return counted(__libc_pvalloc(size), size, CALLER); }

int posix_memalign(void **out, size_t align, size_t size) {
    void *block = __libc_memalign(align, size);
    if (block == NULL)
        return ENOMEM;
    *out = counted(block, size, CALLER);
    return 0;
}

// Whether an address is in the page to which the kernel lets a function with a return probe return. Another tracer of
// this machine hides the callers so, while it probes these functions.
static int is_trampoline(const void *address) {
    size_t page = (size_t)address & ~(size_t)0xfff;
    return page == 0x7fffffffe000 || page == 0xffffffffffe000;
}

// Functions are named by the dynamic symbols, so programs export theirs.
static void say(int command, int file) {
    static char line[CALLERS * 96];
    size_t hidden = 0;
    if (command == 1) {
        memset(callers, 0, sizeof callers);
        allocations = bytes = frees = 0;
        return;
    }
    for (size_t i = 0; i < CALLERS; i++)
        if (is_trampoline(callers[i].address))
            hidden += callers[i].allocations;
    int len = snprintf(line, sizeof line,
                       "{\"oracle\":%d,\"allocations\":%zu,\"bytes\":%zu,\"frees\":%zu,\"hidden\":%zu,\"by\":[",
                       (int)getpid(), allocations, bytes, frees, hidden);
    const char *comma = "";
    for (size_t i = 0; i < CALLERS; i++) {
        struct caller *it = &callers[i];
        Dl_info info;
        if (it->allocations == 0 || dladdr((char *)it->address - 1, &info) == 0 || info.dli_sname == NULL)
            continue;
        len += snprintf(line + len, sizeof line - len, "%s[\"%.40s\",%zu,%zu]", comma, info.dli_sname,
                        it->allocations, it->bytes);
        comma = ",";
    }
    len += snprintf(line + len, sizeof line - len, "]}\n");
    if (write(file, line, len) != len)
        _exit(97);
}

__attribute__((constructor)) static void begin(void) {
    if (&d_oracle != NULL)
        d_oracle = say;
}
