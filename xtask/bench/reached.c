/*
 * Holds blocks that are all reached: lists of them, from one table. Then it says "ready" and waits in short sleeps until it reads a line.
 * Prints the longest time by which a sleep was too long: how long the process stood still, as it noticed.
 *
 * usage: reached MIB BUSY
 *
 * With BUSY, a thread writes other pointers into its blocks all the time.
 */
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCK 1024
#define LISTS 1024
#define POINTERS 8

struct block {
    struct block *next;
    struct block *volatile others[POINTERS];
    char rest[BLOCK - 16 - (1 + POINTERS) * sizeof(void *)];
};

static struct block *lists[LISTS];

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

static void *rewrite(void *unused)
{
    struct block *at = lists[0];
    for (uint64_t state = 88172645463325252ULL;; at = at->next ? at->next : lists[state % LISTS]) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        at->others[state % POINTERS] = lists[state / POINTERS % LISTS];
    }
    return unused;
}

int main(int count, char **words)
{
    long blocks = count > 1 ? atol(words[1]) * (1 << 20) / BLOCK : 1024;
    for (long i = 0; i < blocks; i++) {
        struct block *block = malloc(sizeof *block);
        memset(block, 1, sizeof *block);
        for (int at = 0; at < POINTERS; at++)
            block->others[at] = lists[(i + at) % LISTS];
        block->next = lists[i % LISTS];
        lists[i % LISTS] = block;
    }
    pthread_t thread;
    if (count > 2 && atoi(words[2]) && pthread_create(&thread, NULL, rewrite, NULL) != 0)
        return 2;
    printf("ready\n");
    fflush(stdout);
    double longest = 0;
    struct pollfd input = {.fd = 0, .events = POLLIN};
    for (;;) {
        double before = now();
        int has_input = poll(&input, 1, 1);
        double late = now() - before - 1;
        if (has_input)
            break;
        if (late > longest)
            longest = late;
    }
    printf("longest_pause_ms %.2f\n", longest);
    return 0;
}
