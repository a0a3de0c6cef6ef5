/*
 * Allocates and frees, with more and more of one thing: how a tracer's cost
 * grows with it. Prints the nanoseconds that a pair of malloc and free took.
 *
 * usage: grow (blocks | stacks | threads | processes) N PAIRS
 *
 * blocks: N live at a time. stacks: by N different ways of calls. threads and
 * processes: N at a time, each with its share of the pairs.
 */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "work.h"

static unsigned long n, share;

static void pair(void)
{
    void *block = malloc(64);
    KEEP(block);
    free(block);
}

static void blocks(unsigned long pairs)
{
    /* Its own block is none of those that are measured. */
    void **all = calloc(n, sizeof *all);
    for (unsigned long done = 0; done < pairs; done += n) {
        for (unsigned long i = 0; i < n; i++)
            all[i] = malloc(64);
        for (unsigned long i = 0; i < n; i++)
            free(all[i]);
    }
    free(all);
}

/* Each bit of a way is a call of the one or of the other. No last call is a jump, and they differ, or the compiler
   made one of the two. */
#define WAY(name)                                                      \
    __attribute__((noinline)) static void name(unsigned long way, int depth) \
    {                                                                  \
        if (depth == 0)                                                \
            pair();                                                    \
        else if (way & 1)                                              \
            right(way >> 1, depth - 1);                                \
        else                                                           \
            left(way >> 1, depth - 1);                                 \
        __asm__ volatile("# " #name : : : "memory");                   \
    }

static void left(unsigned long way, int depth);
static void right(unsigned long way, int depth);
WAY(left)
WAY(right)

static void stacks(unsigned long pairs)
{
    int depth = 20;
    for (unsigned long i = 0; i < pairs; i++)
        left(i % n, depth);
}

static void work(struct result *result)
{
    double begin = now_ns();
    for (unsigned long i = 0; i < share; i++)
        pair();
    result->ns = now_ns() - begin;
    result->operations = share;
}

/* All of them live until the last one is done, as the processes of a busy machine do. */
static int processes(void)
{
    int gate[2];
    double begin = now_ns();
    if (pipe(gate))
        return 1;
    for (unsigned long i = 0; i < n; i++) {
        pid_t child = fork();
        if (child < 0) {
            perror("fork");
            return 1;
        }
        if (child == 0) {
            char end;
            struct result result;
            close(gate[1]);
            work(&result);
            _exit(read(gate[0], &end, 1) != 0);
        }
    }
    close(gate[1]);
    int status, failed = 0;
    while (wait(&status) > 0)
        failed |= status;
    print_result(now_ns() - begin, n * share);
    return failed != 0;
}

int main(int argc, char **argv)
{
    unsigned long pairs = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
    n = pairs ? strtoul(argv[2], NULL, 10) : 0;
    if (n == 0) {
        fprintf(stderr, "usage: grow (blocks | stacks | threads | processes) N PAIRS\n");
        return 2;
    }
    share = pairs / n ? pairs / n : 1;
    if (!strcmp(argv[1], "processes"))
        return processes();
    double begin = now_ns();
    struct result all = {0};
    if (!strcmp(argv[1], "threads")) {
        if (on_threads((int)n, work, &all))
            return 1;
        pairs = all.operations;
    } else if (!strcmp(argv[1], "blocks"))
        blocks(pairs);
    else if (!strcmp(argv[1], "stacks"))
        stacks(pairs);
    else
        return 2;
    print_result(now_ns() - begin, pairs < n ? n : pairs);
    return 0;
}
