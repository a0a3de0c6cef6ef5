/*
 * One malloc and one free, in a loop, on one or more threads, for a given time.
 * Prints the nanoseconds that a pair took, measured inside: starting and ending
 * the program, and the tracer with it, doesn't count.
 *
 * usage: pair SECONDS THREADS
 */
#include "work.h"

enum { PAIRS_PER_LOOK = 1000 };

static double seconds;

/* Looks at the clock once in a thousand pairs, so that looking costs nothing. */
static void pairs(struct result *result, double limit_ns)
{
    double begin = now_ns();
    unsigned long count = 0;
    double spent;
    do {
        for (int i = 0; i < PAIRS_PER_LOOK; i++) {
            void *block = malloc(64);
            KEEP(block);
            free(block);
        }
        count += PAIRS_PER_LOOK;
        spent = now_ns() - begin;
    } while (spent < limit_ns);
    result->ns = spent;
    result->operations = count;
}

static void work(struct result *result)
{
    struct result warm_up;
    pairs(&warm_up, seconds * 1e8);
    pairs(result, seconds * 1e9);
}

int main(int argc, char **argv)
{
    if (argc != 3 || (seconds = atof(argv[1])) <= 0) {
        fprintf(stderr, "usage: pair SECONDS THREADS\n");
        return 2;
    }
    return measure_on_threads(atoi(argv[2]), work);
}
