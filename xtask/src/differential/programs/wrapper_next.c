// A wrapper of the allocator's functions that calls the next library's, whichever that is: glibc, or another allocator
// that is preloaded behind it. It asks for more than it was asked for: the caller's size is the one that counts.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#define MORE(size) ((size) > (size_t)-1 / 4 ? (size) : ((size) + 31) / 32 * 32)

static volatile size_t calls;
static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static void (*next_free)(void *);

static void find(void) {
    next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    next_calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
    next_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
}

void *malloc(size_t size) {
    if (next_malloc == NULL)
        find();
    void *block = next_malloc(MORE(size));
    calls++;
    return block;
}

void *calloc(size_t count, size_t size) {
    if (next_calloc == NULL)
        find();
    void *block = next_calloc(count, size);
    calls++;
    return block;
}

void *realloc(void *old, size_t size) {
    if (next_realloc == NULL)
        find();
    void *block = next_realloc(old, MORE(size));
    calls++;
    return block;
}

void free(void *block) {
    if (next_free == NULL)
        find();
    next_free(block);
    calls++;
}
