/*
 * One malloc and one free, in a loop, on one or more threads, for a given time.
 * Prints the nanoseconds that a pair took, measured inside: starting and ending
 * the program, and the tracer with it, doesn't count.
 *
 * usage: pair SECONDS THREADS
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PAIRS_PER_LOOK = 1000, MAX_THREADS = 1024 };

static pthread_barrier_t start;
static double seconds;

struct result {
    double ns;
    uint64_t pairs;
};

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Looks at the clock once in a thousand pairs, so that looking costs nothing. */
static void pairs(struct result *result, double limit_ns)
{
    double begin = now_ns();
    uint64_t count = 0;
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
    } while (spent < limit_ns);
    result->ns = spent;
    result->pairs = count;
}

static void *work(void *argument)
{
    struct result *result = argument;
    struct result warm_up;
    pthread_barrier_wait(&start);
    pairs(&warm_up, seconds * 1e8);
    pairs(result, seconds * 1e9);
    return NULL;
}

int main(int argc, char **argv)
{
    static struct result results[MAX_THREADS];
    static pthread_t threads[MAX_THREADS];
    if (argc != 3) {
        fprintf(stderr, "usage: pair SECONDS THREADS\n");
        return 2;
    }
    seconds = atof(argv[1]);
    int n = atoi(argv[2]);
    if (seconds <= 0 || n < 1 || n > MAX_THREADS) {
        fprintf(stderr, "pair: seconds above 0, and 1 to %d threads\n", MAX_THREADS);
        return 2;
    }
    pthread_barrier_init(&start, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        if (pthread_create(&threads[i], NULL, work, &results[i])) {
            fprintf(stderr, "pair: cannot start thread %d\n", i);
            return 1;
        }
    }
    double sum = 0;
    uint64_t count = 0;
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        sum += results[i].ns;
        count += results[i].pairs;
    }
    printf("ns_per_operation %.3f\noperations %llu\n", sum / (double)count,
           (unsigned long long)count);
    return 0;
}
