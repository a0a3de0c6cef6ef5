/*
 * Forks and waits for the child, over and over: what a tracer that follows
 * children costs at their birth. An operation is one fork, exit and wait.
 *
 * usage: fork SECONDS THREADS
 */
#include <sys/wait.h>
#include <unistd.h>

#include "work.h"

static double seconds;

static void work(struct result *result)
{
    double begin = now_ns();
    do {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        if (child < 0 || waitpid(child, NULL, 0) != child) {
            perror("fork");
            exit(1);
        }
        result->operations++;
        result->ns = now_ns() - begin;
    } while (result->ns < seconds * 1e9);
}

int main(int argc, char **argv)
{
    if (argc != 3 || (seconds = atof(argv[1])) <= 0) {
        fprintf(stderr, "usage: fork SECONDS THREADS\n");
        return 2;
    }
    return measure_on_threads(atoi(argv[2]), work);
}
