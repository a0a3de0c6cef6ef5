/*
 * Runs a program to its end, what it prints thrown away, and prints what that
 * took: wall-clock time, processor time with all of its children's, and the most
 * memory that one of them had.
 *
 * usage: timed PROGRAM [ARGUMENT]...
 */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "work.h"

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: timed PROGRAM [ARGUMENT]...\n");
        return 2;
    }
    double begin = now_ns();
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        if (null < 0 || dup2(null, STDOUT_FILENO) < 0)
            _exit(127);
        execvp(argv[1], argv + 1);
        perror(argv[1]);
        _exit(127);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("timed");
        return 1;
    }
    double ns = now_ns() - begin;
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    double seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                     (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    print_result(ns, 1);
    printf("cpu_ns %.0f\npeak_bytes %ld\n", seconds * 1e9, usage.ru_maxrss * 1024);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
