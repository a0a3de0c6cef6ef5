// The counts of a generated program, and what it uses to start threads, processes, coroutines and libraries.

#include "runtime.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define SITES 1000
#define SLOTS 60000
#define STACK (256 << 10)

struct counts {
    size_t allocations, bytes, frees, freed_bytes;
};

static struct counts sites[SITES];
static size_t untracked, failed;
static struct d_block slots[SLOTS];
static size_t first_slot, last_slot;
static int lock, role, gate_open;
static const char *program;
// Volatile: the compiler takes raise() for a function that calls nothing here.
static __thread void (*volatile on_signal)(void);
static __thread void (*on_compare)(void);

__thread jmp_buf *d_jump;

static void release_malloc(void *at, size_t size, size_t align) {
    (void)size, (void)align;
    free(at);
}
d_release *d_releases[D_KINDS] = {release_malloc};

// Stacks through a file that was mapped just now are incomplete until the tracer has read it, which is a limit of its
// and documented.
static void settle(void) {
#ifdef D_SETTLES
    usleep(60000);
#endif
}

// Set by the oracle, if it is there. 0 prints its counts to the file, 1 resets them.
void (*d_oracle)(int command, int file);

#define ADD(counter, n) __atomic_fetch_add(&(counter), (n), __ATOMIC_RELAXED)

static void die(const char *what) {
    if (write(2, what, strlen(what)) < 0 || write(2, "\n", 1) < 0)
        _exit(97);
    _exit(98);
}

static void acquire(void) {
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE))
        sched_yield();
}

static void release(void) { __atomic_store_n(&lock, 0, __ATOMIC_RELEASE); }

// The size is not known to the compiler.
size_t d_size(size_t base, size_t step, size_t turn) {
    volatile size_t size = base + step * (turn % 13);
    return size;
}

static void put(struct d_block block) {
    acquire();
    if (last_slot - first_slot < SLOTS)
        slots[last_slot++ % SLOTS] = block;
    release();
}

static void count(int site, size_t size) {
    ADD(sites[site].allocations, 1);
    ADD(sites[site].bytes, size);
}

static void count_free(const struct d_block *block) {
    if (block->site < 0) {
        ADD(untracked, 1);
        return;
    }
    ADD(sites[block->site].frees, 1);
    ADD(sites[block->site].freed_bytes, block->size);
}

void d_keep(int site, void *at, size_t size, int kind, size_t align) {
    if (at == NULL) {
        ADD(failed, 1);
        return;
    }
    count(site, size);
    struct d_block block = {at, size, align, site, kind};
    put(block);
}

// A block that its function has released already.
void d_came_and_went(int site, size_t size) {
    struct d_block block = {NULL, size, 0, site, 0};
    count(site, size);
    count_free(&block);
}

// Takes the oldest block of a kind, or nothing.
void d_take_into(int kind, struct d_block *out) {
    memset(out, 0, sizeof *out);
    acquire();
    for (size_t i = first_slot; i < last_slot && i < first_slot + 64; i++) {
        struct d_block *slot = &slots[i % SLOTS];
        if (slot->kind == kind) {
            *out = *slot;
            *slot = slots[first_slot++ % SLOTS];
            break;
        }
    }
    release();
}

struct d_block d_take(int kind) {
    struct d_block block;
    d_take_into(kind, &block);
    return block;
}

void d_reallocated(int site, const struct d_block *old, void *at, size_t size) {
    if (at == NULL) {
        if (old->at != NULL && size == 0)
            count_free(old);
        else {
            ADD(failed, 1);
            if (old->at != NULL)
                put(*old);
        }
        return;
    }
    if (old->at != NULL)
        count_free(old);
    count(site, size);
    struct d_block block = {at, size, old->at != NULL ? old->align : 1, site, old->at != NULL ? old->kind : D_FREE};
    put(block);
}

void d_free_some(size_t number, int newest) {
    for (size_t i = 0; i < number; i++) {
        struct d_block block = {NULL, 0, 0, 0, 0};
        acquire();
        if (first_slot < last_slot)
            block = newest ? slots[--last_slot % SLOTS] : slots[first_slot++ % SLOTS];
        release();
        if (block.at == NULL)
            return;
        d_releases[block.kind](block.at, block.size, block.align);
        count_free(&block);
    }
}

// Forgets what was counted: these blocks are from before tracing, or the parent's.
static void reset(void) {
    memset(sites, 0, sizeof sites);
    untracked = failed = 0;
    for (size_t i = first_slot; i < last_slot; i++)
        slots[i % SLOTS].site = -1;
    if (d_oracle != NULL)
        d_oracle(1, -1);
}

// Prints the counts as one line of JSON, in one write, so that lines of several processes don't mix.
static void report(void) {
    static char line[SITES * 64];
    const char *path = getenv("DIFFERENTIAL_OUT");
    int file = path == NULL ? 1 : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    int len = snprintf(line, sizeof line, "{\"role\":%d,\"pid\":%d,\"untracked\":%zu,\"failed\":%zu,\"sites\":{", role,
                       (int)getpid(), untracked, failed);
    const char *comma = "";
    for (int i = 0; i < SITES; i++) {
        const struct counts *it = &sites[i];
        if (it->allocations == 0)
            continue;
        len += snprintf(line + len, sizeof line - len, "%s\"%d\":[%zu,%zu,%zu,%zu]", comma, i, it->allocations,
                        it->bytes, it->frees, it->freed_bytes);
        comma = ",";
    }
    len += snprintf(line + len, sizeof line - len, "}}\n");
    if (file < 0 || write(file, line, len) != len)
        die("cannot report");
    if (d_oracle != NULL)
        d_oracle(0, file);
    if (path != NULL)
        close(file);
}

static void handle(int signal) {
    (void)signal;
    on_signal();
    D_END;
}

int d_begin(int argc, char **argv) {
    // A program that hangs must not outlive its run.
    alarm(100);
    program = "/proc/self/exe";
    role = argc > 1 ? atoi(argv[1]) : 0;
    settle();
    return role;
}

static pthread_t waiting[16];
static int waiting_count;

static void *wait_and_run(void *body) {
    while (!__atomic_load_n(&gate_open, __ATOMIC_ACQUIRE))
        usleep(500);
    ((void (*)(void))body)();
    D_END;
    return NULL;
}

void d_wait_for_gate(void (*body)(void)) {
    if (waiting_count == 16 || pthread_create(&waiting[waiting_count++], NULL, wait_and_run, (void *)body) != 0)
        die("no thread");
}

void d_gate(void) {
    if (getenv("DIFFERENTIAL_GATE") != NULL) {
        char text[32], byte;
        reset();
        int len = snprintf(text, sizeof text, "ready %d\n", (int)getpid());
        if (write(1, text, len) != len)
            die("cannot say that it is ready");
        while (read(0, &byte, 1) == 1 && byte != '\n')
            ;
    }
    __atomic_store_n(&gate_open, 1, __ATOMIC_RELEASE);
}

void d_end(void) {
    for (int i = 0; i < waiting_count; i++)
        pthread_join(waiting[i], NULL);
    report();
}

static void *run_thread(void *body) {
    ((void (*)(void))body)();
    D_END;
    return NULL;
}

void d_threads(int number, void (*body)(void)) {
    pthread_t threads[16];
    for (int i = 0; i < number && i < 16; i++)
        if (pthread_create(&threads[i], NULL, run_thread, (void *)body) != 0)
            die("no thread");
    for (int i = 0; i < number && i < 16; i++)
        pthread_join(threads[i], NULL);
}

void d_raise(void (*body)(void), int alternate) {
    void (*outer)(void) = on_signal;
    stack_t stack = {0}, before;
    struct sigaction action = {0};
    action.sa_handler = handle;
    action.sa_flags = SA_NODEFER | (alternate ? SA_ONSTACK : 0);
    sigaction(SIGUSR1, &action, NULL);
    if (sigaltstack(NULL, &before) != 0)
        die("no sigaltstack");
    // Rust's own is too small. A thread that is on its alternate stack stays there.
    int change = alternate && !(before.ss_flags & SS_ONSTACK);
    if (change) {
        stack.ss_size = STACK;
        stack.ss_sp = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (stack.ss_sp == MAP_FAILED || sigaltstack(&stack, NULL) != 0)
            die("no stack for signals");
    }
    on_signal = body;
    raise(SIGUSR1);
    on_signal = outer;
    if (change) {
        sigaltstack(&before, NULL);
        munmap(stack.ss_sp, STACK);
    }
}

static int compare(const void *a, const void *b) {
    void (*body)(void) = on_compare;
    on_compare = NULL;
    if (body != NULL)
        body();
    return *(const int *)a - *(const int *)b;
}

void d_call_back(void (*body)(void)) {
    int numbers[2] = {1, 2};
    on_compare = body;
    qsort(numbers, 2, sizeof numbers[0], compare);
}

struct coroutine {
    ucontext_t self, caller;
    void (*body)(void);
    int over;
};
static __thread struct coroutine *current;

static void run_coroutine(unsigned low, unsigned high) {
    struct coroutine *it = (struct coroutine *)((uintptr_t)low | (uintptr_t)high << 32);
    it->body();
    it->over = 1;
}

void d_coroutine(void (*body)(void)) {
    struct coroutine it = {.body = body, .over = 0}, *outer = current;
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED || getcontext(&it.self) != 0)
        die("no coroutine");
    it.self.uc_stack.ss_sp = stack;
    it.self.uc_stack.ss_size = STACK;
    it.self.uc_link = &it.caller;
    makecontext(&it.self, (void (*)(void))run_coroutine, 2, (unsigned)(uintptr_t)&it,
                (unsigned)((uintptr_t)&it >> 32));
    while (!it.over) {
        current = &it;
        swapcontext(&it.caller, &it.self);
        current = outer;
    }
    munmap(stack, STACK);
}

void d_yield(void) {
    struct coroutine *it = current;
    if (it != NULL)
        swapcontext(&it->self, &it->caller);
}

int d_fork(int child_role) {
    acquire();
    int pid = fork();
    release();
    if (pid < 0)
        die("no fork");
    if (pid == 0) {
        alarm(100);
        role = child_role;
        waiting_count = 0;
        reset();
    }
    return pid;
}

void d_fork_end(void) {
    report();
    _exit(0);
}

void d_wait(int pid) {
    int status;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        die("a child failed");
}

void d_execute(int part) {
    char number[16];
    snprintf(number, sizeof number, "%d", part);
    char *arguments[] = {(char *)"program", number, NULL};
    report();
    execv(program, arguments);
    die("no exec");
}

void d_spawn(int part, int with_vfork) {
    char number[16];
    snprintf(number, sizeof number, "%d", part);
    char *arguments[] = {(char *)"program", number, NULL};
    int pid;
    if (with_vfork)
        pid = vfork();
    else
        pid = fork();
    if (pid < 0)
        die("no fork");
    if (pid == 0) {
        execv(program, arguments);
        _exit(96);
    }
    d_wait(pid);
}

#ifdef D_STATIC
void d_library(int number, const char *function) {
    (void)number, (void)function;
    die("a static program loads nothing");
}
#else
void d_library(int number, const char *function) {
    char path[4096];
    snprintf(path, sizeof path, "%s/lib%d.so", D_FOLDER, number);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        die(dlerror());
    void (*body)(void) = (void (*)(void))dlsym(library, function);
    if (body == NULL)
        die("the library has no such function");
    settle();
    body();
    dlclose(library);
}
#endif
