/*
 * What a probe costs at one place: opens a plain uprobe on a file at an offset,
 * for itself alone, and calls an allocator function in a loop for a given time.
 *
 * usage: place FUNCTION SECONDS [FILE OFFSET]
 *
 * Prints the nanoseconds that an operation took, how many operations that were,
 * how often the probe was hit, and whether the kernel had to execute the
 * instruction out of line (it maps a page for that). Without a file, no probe.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "work.h"

enum { OPERATIONS_PER_LOOK = 100 };

void *memalign(size_t, size_t);
__attribute__((weak)) void *valloc(size_t);
__attribute__((weak)) void *pvalloc(size_t);

static void of_malloc(void)
{
    void *block = malloc(64);
    KEEP(block);
    free(block);
}

static void of_calloc(void)
{
    void *block = calloc(4, 16);
    KEEP(block);
    free(block);
}

/* The same size again: the block stays where it is. */
static void of_realloc(void)
{
    static void *block;
    block = realloc(block, 64);
    KEEP(block);
}

/* As realloc, whose block it is. */
static void of_reallocarray(void)
{
    static void *block;
    block = reallocarray(block, 4, 16);
    KEEP(block);
}

static void of_null(void)
{
    void *block = NULL;
    KEEP(block);
    free(block);
}

static void of_posix_memalign(void)
{
    void *block;
    if (posix_memalign(&block, 32, 64))
        exit(1);
    KEEP(block);
    free(block);
}

static void of_aligned_alloc(void)
{
    void *block = aligned_alloc(32, 64);
    KEEP(block);
    free(block);
}

static void of_memalign(void)
{
    void *block = memalign(32, 64);
    KEEP(block);
    free(block);
}

static void of_valloc(void)
{
    void *block = valloc(64);
    KEEP(block);
    free(block);
}

static void of_pvalloc(void)
{
    void *block = pvalloc(64);
    KEEP(block);
    free(block);
}

static const struct {
    const char *name;
    void (*operate)(void);
} functions[] = {
    {"malloc", of_malloc},
    {"free", of_malloc},
    {"free(NULL)", of_null},
    {"calloc", of_calloc},
    {"realloc", of_realloc},
    {"reallocarray", of_reallocarray},
    {"posix_memalign", of_posix_memalign},
    {"aligned_alloc", of_aligned_alloc},
    {"memalign", of_memalign},
    {"valloc", of_valloc},
    {"pvalloc", of_pvalloc},
};

/* By hand: not every C library comes with the kernel's headers. */
static int probe(const char *file, uint64_t offset)
{
    struct {
        uint32_t type, size;
        uint64_t config, period, sample_type, read_format, flags;
        uint32_t wakeup, breakpoint;
        uint64_t path, offset;
    } attr = {0};
    FILE *type = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
    if (!type || fscanf(type, "%u", &attr.type) != 1) {
        perror("/sys/bus/event_source/devices/uprobe/type");
        exit(1);
    }
    fclose(type);
    attr.size = sizeof attr;
    attr.path = (uint64_t)(uintptr_t)file;
    attr.offset = offset;
    int event = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
    if (event < 0) {
        fprintf(stderr, "place: %s at %#llx: %s\n", file, (unsigned long long)offset,
                strerror(errno));
        exit(1);
    }
    return event;
}

static int is_stepped(void)
{
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        found |= strstr(line, "[uprobes]") != NULL;
    if (maps)
        fclose(maps);
    return found;
}

int main(int argc, char **argv)
{
    void (*operate)(void) = NULL;
    if (argc != 2 && argc != 3 && argc != 5) {
        fprintf(stderr, "usage: place FUNCTION [SECONDS [FILE OFFSET]]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!strcmp(functions[i].name, argv[1]))
            operate = functions[i].operate;
    if ((!valloc && operate == of_valloc) || (!pvalloc && operate == of_pvalloc))
        operate = NULL;
    if (argc == 2) {
        puts(operate ? "can call" : "can't call");
        return 0;
    }
    if (!operate) {
        fprintf(stderr, "place: can't call %s\n", argv[1]);
        return 2;
    }
    double limit_ns = atof(argv[2]) * 1e9;
    unsigned long operations = 0;
    long long before = 0, hits = 0;
    int event = argc == 5 ? probe(argv[3], strtoull(argv[4], NULL, 0)) : -1;
    /* Warms up: what is done once for a process is done here. */
    for (int i = 0; i < OPERATIONS_PER_LOOK; i++)
        operate();
    if (event >= 0 && read(event, &before, sizeof before) != sizeof before)
        return 1;
    double begin = now_ns(), spent;
    do {
        for (int i = 0; i < OPERATIONS_PER_LOOK; i++)
            operate();
        operations += OPERATIONS_PER_LOOK;
        spent = now_ns() - begin;
    } while (spent < limit_ns);
    if (event >= 0 && read(event, &hits, sizeof hits) != sizeof hits)
        return 1;
    print_result(spent, operations);
    printf("hits %lld\nstepped %d\n", hits - before, is_stepped());
    return 0;
}
