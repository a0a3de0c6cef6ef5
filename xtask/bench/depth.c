/*
 * One malloc and one free, in a loop, so many calls deep and without frame pointers: what each frame
 * of a stack costs a tracer. Prints the nanoseconds that a pair took, measured inside.
 *
 * usage: depth SECONDS THREADS DEPTH
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PAIRS_PER_LOOK = 100, MAX_THREADS = 1024 };

static double seconds;
static int depth;

struct result {
    double ns;
    unsigned long pairs;
};

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

__attribute__((noinline)) static void pairs(struct result *result)
{
    double begin = now_ns();
    unsigned long count = 0;
    double spent;
    do {
        for (int i = 0; i < PAIRS_PER_LOOK; i++) {
            void *block = malloc(64);
            /* The compiler must not know what happens to the block. */
            __asm__ volatile("" : "+r"(block) : : "memory");
            free(block);
        }
        count += PAIRS_PER_LOOK;
        spent = now_ns() - begin;
    } while (spent < seconds * 1e9);
    result->ns = spent;
    result->pairs = count;
}

/* The last call is no jump, and each has a frame of its own. */
__attribute__((noinline)) static void deeper(struct result *result, int left)
{
    if (left > 1)
        deeper(result, left - 1);
    else
        pairs(result);
    __asm__ volatile("" : : "r"(result) : "memory");
}

static void *work(void *argument)
{
    deeper(argument, depth);
    return NULL;
}

int main(int argc, char **argv)
{
    static struct result results[MAX_THREADS];
    static pthread_t threads[MAX_THREADS];
    if (argc != 4) {
        fprintf(stderr, "usage: depth SECONDS THREADS DEPTH\n");
        return 2;
    }
    seconds = atof(argv[1]);
    int n = atoi(argv[2]);
    depth = atoi(argv[3]);
    if (seconds <= 0 || n < 1 || n > MAX_THREADS || depth < 1) {
        fprintf(stderr, "depth: seconds and depth above 0, and 1 to %d threads\n", MAX_THREADS);
        return 2;
    }
    for (int i = 0; i < n; i++) {
        if (pthread_create(&threads[i], NULL, work, &results[i])) {
            fprintf(stderr, "depth: cannot start thread %d\n", i);
            return 1;
        }
    }
    double ns = 0;
    unsigned long count = 0;
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        ns += results[i].ns;
        count += results[i].pairs;
    }
    printf("ns_per_operation %.3f\noperations %lu\n", ns / (double)count, count);
    return 0;
}
