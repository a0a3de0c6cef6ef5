// Forks and waits for the child, over and over: what a tracer that follows children costs at their birth.
//
// Usage: fork SECONDS THREADS. Prints `ns_per_operation N`, an operation being one fork, exit and wait.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void *work(void *result) {
    double begin = now(), end;
    long forks = 0;
    do {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        if (child < 0 || waitpid(child, NULL, 0) != child)
            exit(1);
        forks++;
        end = now();
    } while (end - begin < seconds);
    *(double *)result = (end - begin) * 1e9 / (double)forks;
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 2 ? atoi(argv[2]) : 0;
    if (threads < 1 || threads > 256)
        return 2;
    seconds = atof(argv[1]);
    pthread_t ids[256];
    double results[256], sum = 0;
    for (int i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, work, &results[i]) != 0)
            return 1;
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        sum += results[i];
    }
    printf("ns_per_operation %.1f\n", sum / threads);
    return 0;
}
