/*
 * A fork bomb that ends: each process allocates, starts two more, and ends. At most so many run at a time, as in a control group with
 * a limit of processes; when all forks are used up, the first process waits for the last one.
 *
 * usage: bomb FORKS MOST
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "work.h"

/* What all processes share. */
struct shared {
    atomic_long left;
    atomic_long running;
};

static void explode(struct shared *shared, long most)
{
    void *block = malloc(1000);
    KEEP(block);
    for (int i = 0; i < 2 && atomic_load(&shared->left) > 0; i++) {
        if (atomic_fetch_add(&shared->running, 1) >= most) {
            /* As a fork at the limit of a control group fails. */
            atomic_fetch_sub(&shared->running, 1);
            sched_yield();
            continue;
        }
        atomic_fetch_sub(&shared->left, 1);
        pid_t child = fork();
        if (child == 0) {
            explode(shared, most);
            atomic_fetch_sub(&shared->running, 1);
            _exit(0);
        }
        if (child < 0)
            atomic_fetch_sub(&shared->running, 1);
    }
    free(block);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: bomb FORKS MOST\n");
        return 2;
    }
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
        perror("bomb");
        return 1;
    }
    atomic_store(&shared->left, atol(argv[1]));
    /* Nobody has to wait for a process. */
    signal(SIGCHLD, SIG_IGN);
    while (atomic_load(&shared->left) > 0)
        explode(shared, atol(argv[2]));
    while (wait(NULL) > 0 || errno == EINTR)
        ;
    return 0;
}
