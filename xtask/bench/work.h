/*
 * What the programs of the benchmarks share: a clock, and threads that do something for a time and say what it took.
 */
#ifndef WORK_H
#define WORK_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_THREADS = 1024 };

/* The compiler must not know what happens to a block. */
#define KEEP(block) __asm__ volatile("" : "+r"(block) : : "memory")

/* What one thread did. */
struct result {
    double ns;
    unsigned long operations;
};

static inline double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline void print_result(double ns, unsigned long operations)
{
    printf("ns_per_operation %.3f\noperations %lu\n", ns / (double)operations, operations);
}

struct worker {
    pthread_t thread;
    pthread_barrier_t *start;
    void (*work)(struct result *);
    struct result result;
};

static inline void *start_work(void *argument)
{
    struct worker *worker = argument;
    pthread_barrier_wait(worker->start);
    worker->work(&worker->result);
    return NULL;
}

/* Does the work on so many threads at a time, and adds up what they did. */
static inline int on_threads(int n, void (*work)(struct result *), struct result *all)
{
    static struct worker workers[MAX_THREADS];
    pthread_barrier_t start;
    if (n < 1 || n > MAX_THREADS) {
        fprintf(stderr, "1 to %d threads, not %d\n", MAX_THREADS, n);
        return 2;
    }
    pthread_barrier_init(&start, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        workers[i].start = &start;
        workers[i].work = work;
        if (pthread_create(&workers[i].thread, NULL, start_work, &workers[i])) {
            fprintf(stderr, "cannot start thread %d\n", i);
            return 1;
        }
    }
    for (int i = 0; i < n; i++) {
        pthread_join(workers[i].thread, NULL);
        all->ns += workers[i].result.ns;
        all->operations += workers[i].result.operations;
    }
    return 0;
}

/* The same, and prints the mean of what an operation took on each. */
static inline int measure_on_threads(int n, void (*work)(struct result *))
{
    struct result all = {0};
    int failed = on_threads(n, work, &all);
    if (!failed)
        print_result(all.ns, all.operations);
    return failed;
}

#endif
