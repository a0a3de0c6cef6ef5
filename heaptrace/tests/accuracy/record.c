// Records the allocations and frees of a program into which it is preloaded: a file per process, in the folder
// HEAPTRACE_TRACE. A record has four numbers: 1 for an allocation or 0 for a free, the address of the caller, the
// block, and its size.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t records[4096][4];
static size_t count;
static int file = -1;

// Memory for the allocations of dlsym, before malloc is found.
static char early[65536];
static size_t early_used;

static void *(*real_malloc)(size_t);
static void *(*real_realloc)(void *, size_t);
static void (*real_free)(void *);
static void *(*real_memalign)(size_t, size_t);

static void find(void) {
    static __thread int busy;
    if (real_malloc || busy) return;
    busy = 1;
    real_realloc = dlsym(RTLD_NEXT, "realloc");
    real_free = dlsym(RTLD_NEXT, "free");
    real_memalign = dlsym(RTLD_NEXT, "memalign");
    real_malloc = dlsym(RTLD_NEXT, "malloc");
    busy = 0;
}

static void flush(void) {
    if (file < 0) {
        const char *folder = getenv("HEAPTRACE_TRACE");
        char path[4096];
        if (folder && snprintf(path, sizeof path, "%s/%d", folder, getpid()) < (int)sizeof path)
            file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
    if (file >= 0 && write(file, records, count * sizeof *records) < 0) abort();
    count = 0;
}

static void note(int allocated, void *site, void *block, size_t size) {
    if (!block) return;
    uint64_t *record = records[count++];
    record[0] = allocated;
    record[1] = (uint64_t)site;
    record[2] = (uint64_t)block;
    record[3] = size;
    if (count == 4096) flush();
}

static int is_early(void *block) {
    return (char *)block >= early && (char *)block < early + sizeof early;
}

static void *allocate(void *site, size_t alignment, size_t size) {
    find();
    if (!real_malloc) {
        early_used = (early_used + 63) & ~(size_t)63;
        if (early_used + size > sizeof early) abort();
        early_used += size;
        return early + early_used - size;
    }
    pthread_mutex_lock(&lock);
    void *block = alignment ? real_memalign(alignment, size) : real_malloc(size);
    note(1, site, block, size);
    pthread_mutex_unlock(&lock);
    return block;
}

void *malloc(size_t size) { return allocate(__builtin_return_address(0), 0, size); }
void *memalign(size_t alignment, size_t size) { return allocate(__builtin_return_address(0), alignment, size); }
void *aligned_alloc(size_t alignment, size_t size) { return allocate(__builtin_return_address(0), alignment, size); }

int posix_memalign(void **result, size_t alignment, size_t size) {
    *result = allocate(__builtin_return_address(0), alignment, size);
    return *result ? 0 : 12;
}

void *calloc(size_t number, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(number, size, &bytes)) return NULL;
    void *block = allocate(__builtin_return_address(0), 0, bytes);
    return block ? memset(block, 0, bytes) : NULL;
}

void free(void *block) {
    if (!block || is_early(block)) return;
    find();
    pthread_mutex_lock(&lock);
    note(0, NULL, block, 0);
    real_free(block);
    pthread_mutex_unlock(&lock);
}

void *realloc(void *old, size_t size) {
    void *site = __builtin_return_address(0);
    if (!old || is_early(old)) {
        void *block = allocate(site, 0, size);
        if (old && block) memcpy(block, old, size);
        return block;
    }
    find();
    pthread_mutex_lock(&lock);
    void *block = real_realloc(old, size);
    if (block || !size) {
        note(0, NULL, old, 0);
        note(1, site, block, size);
    }
    pthread_mutex_unlock(&lock);
    return block;
}

__attribute__((destructor)) static void end(void) {
    pthread_mutex_lock(&lock);
    flush();
    pthread_mutex_unlock(&lock);
}
