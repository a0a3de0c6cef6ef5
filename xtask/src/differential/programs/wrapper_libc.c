// A wrapper of the allocator's functions, as programs preload or contain it. It calls the C library's own functions by
// their other names, and asks for more than it was asked for: the caller's size is the one that counts.

#include <errno.h>
#include <stddef.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

#define MORE(size) ((size) > (size_t)-1 / 4 ? (size) : ((size) + 31) / 32 * 32)

// Link-time optimization would inline functions of the program into their callers. Such calls can't be traced.
#ifdef __clang__
#define WRAPPER __attribute__((noinline))
#else
#define WRAPPER __attribute__((noipa))
#endif

static volatile size_t calls;

WRAPPER void *malloc(size_t size) {
    void *block = __libc_malloc(MORE(size));
    calls++;
    return block;
}

WRAPPER void *calloc(size_t count, size_t size) {
    void *block = __libc_calloc(count, size);
    calls++;
    return block;
}

WRAPPER void *realloc(void *old, size_t size) {
    void *block = __libc_realloc(old, MORE(size));
    calls++;
    return block;
}

WRAPPER void free(void *block) {
    __libc_free(block);
    calls++;
}

WRAPPER void *memalign(size_t align, size_t size) {
    void *block = __libc_memalign(align, size);
    calls++;
    return block;
}

WRAPPER void *aligned_alloc(size_t align, size_t size) {
    void *block = __libc_memalign(align, size);
    calls++;
    return block;
}

WRAPPER int posix_memalign(void **out, size_t align, size_t size) {
    void *block = __libc_memalign(align, size);
    calls++;
    if (block == NULL)
        return ENOMEM;
    *out = block;
    return 0;
}
