/*
 * One malloc and one free, in a loop, so many calls deep: what each frame of a
 * stack costs a tracer. Prints the nanoseconds that a pair took, measured inside.
 *
 * usage: depth SECONDS THREADS DEPTH
 */
#include "work.h"

enum { PAIRS_PER_LOOK = 100 };

static double seconds;
static int depth;

__attribute__((noinline)) static void pairs(struct result *result)
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
    } while (spent < seconds * 1e9);
    result->ns = spent;
    result->operations = count;
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

static void work(struct result *result)
{
    deeper(result, depth);
}

int main(int argc, char **argv)
{
    if (argc != 4 || (seconds = atof(argv[1])) <= 0 || (depth = atoi(argv[3])) < 1) {
        fprintf(stderr, "usage: depth SECONDS THREADS DEPTH\n");
        return 2;
    }
    return measure_on_threads(atoi(argv[2]), work);
}
