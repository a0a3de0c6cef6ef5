// The hostile programs of `cargo xtask hostile`, each a mode of this one. Each makes COUNT allocations through whatever
// it does, and says so: `allocations=COUNT`.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void *(*allocate_fn)(size_t);
typedef void *(*caller_fn)(allocate_fn, size_t);

static long allocations;

static void fail(const char *what) {
    perror(what);
    exit(99);
}

__attribute__((noinline)) void *zoo_allocate(size_t size) {
    void *volatile block = malloc(size);
    allocations++;
    return block;
}

// Maps a file of ours, and allocates through its code, which is at offset 0x200.
static void *map_at(void *where, const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) fail(path);
    void *code = mmap(where, 0x1000, PROT_READ | PROT_EXEC, MAP_PRIVATE | (where ? MAP_FIXED : 0), file, 0);
    if (code == MAP_FAILED) fail("mmap");
    close(file);
    return code;
}

static void call(void *code, int times, size_t size) {
    caller_fn function = (caller_fn)((char *)code + 0x200);
    for (int i = 0; i < times; i++) free(function(zoo_allocate, size + i % 7));
}

static void pause_a_while(int ms) { usleep(ms * 1000); }

static void *thread(void *argument) {
    for (int i = 0; i < 10; i++) free(malloc(64 + (intptr_t)argument % 32));
    return NULL;
}

__attribute__((noinline)) static void *deep(int depth) {
    volatile char room[64];
    room[0] = (char)depth;
    void *block = depth ? deep(depth - 1) : zoo_allocate(100);
    return room[0] == (char)depth ? block : NULL;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "plain";
    const char *path = argc > 2 ? argv[2] : NULL;
    int number = argc > 3 ? atoi(argv[3]) : 0;
    setvbuf(stdout, NULL, _IONBF, 0);
    for (int i = 0; i < 100; i++) free(zoo_allocate(1000 + i));
#define IS(name) (strcmp(mode, name) == 0)
    if (IS("plain")) {
    } else if (IS("map")) {
        // Each file in turn, all of them kept.
        for (int i = 2; i < argc; i++) call(map_at(NULL, argv[i]), 10, 200);
        pause_a_while(300);
    } else if (IS("map-one-address")) {
        void *room = mmap(NULL, 0x1000, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        // Each in a process of its own: in one, a stack of the same addresses is the same stack.
        for (int i = 2; i < argc; i++) {
            pid_t child = fork();
            if (child == 0) {
                map_at(room, argv[i]);
                call(room, 10, 200);
                _exit(0);
            }
            if (waitpid(child, NULL, 0) != child) fail("waitpid");
        }
    } else if (IS("map-replaced")) {
        // A pipe (or a device) gets the name of what is mapped.
        void *code = map_at(NULL, path);
        char other[5000];
        snprintf(other, sizeof other, "%s.other", path);
        if (number ? mknod(other, S_IFCHR | 0666, makedev(1, 5)) : mkfifo(other, 0666)) fail("mknod");
        if (rename(other, path)) fail("rename");
        call(code, 100, 200);
        // With an argument more, it waits; without, it is gone when its files are looked at.
        if (argc > 4) pause_a_while(500);
    } else if (IS("map-truncated")) {
        void *code = map_at(NULL, path);
        call(code, 50, 200);
        // The page with the code becomes our own first, so that only others are hit.
        void *copy = mmap(NULL, 0x1000, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memcpy(copy, code, 0x1000);
        for (int i = 0; i < 20; i++) {
            if (truncate(path, i % 2 ? 1 << 22 : 0)) fail("truncate");
            call(copy, 10, 200);
            pause_a_while(50);
        }
    } else if (IS("map-deleted")) {
        void *code = map_at(NULL, path);
        unlink(path);
        call(code, 100, 200);
    } else if (IS("map-written")) {
        void *code = map_at(NULL, path);
        call(code, 50, 200);
        int file = open(path, O_WRONLY);
        char noise[4096];
        for (int i = 0; i < 64; i++) {
            memset(noise, i, sizeof noise);
            if (pwrite(file, noise, sizeof noise, 0x1000 + i * 4096) < 0) fail("pwrite");
            if (i % 16 == 0) pause_a_while(20);
        }
        call(code, 50, 200);
    } else if (IS("chroot")) {
        if (chroot(path) || chdir("/")) fail("chroot");
        void *code = map_at(NULL, argv[3]);
        unlink(argv[3]);
        call(code, 100, 200);
    } else if (IS("memfd")) {
        int from = open(path, O_RDONLY), file = memfd_create("\x1b[2Jmemory\n", 0);
        char buffer[65536];
        ssize_t got;
        while ((got = read(from, buffer, sizeof buffer)) > 0)
            if (write(file, buffer, got) != got) fail("write");
        void *code = mmap(NULL, 0x1000, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
        call(code, 100, 200);
    } else if (IS("many-files")) {
        // PATH is a folder, in which NUMBER copies of one small file are made and mapped.
        int from = open(argv[4], O_RDONLY);
        char image[4096], name[5000];
        ssize_t length = read(from, image, sizeof image);
        for (int i = 0; i < number; i++) {
            snprintf(name, sizeof name, "%s/%d.so", path, i);
            int file = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0755);
            if (write(file, image, length) != length || ftruncate(file, 4096)) fail(name);
            void *code = mmap(NULL, 0x1000, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
            if (code == MAP_FAILED) fail("mmap");
            close(file);
            call(code, 1, 200);
        }
    } else if (IS("many-mappings")) {
        for (int i = 0; i < number; i++) {
            void *code = map_at(NULL, path);
            // Every other page differs, so that none are put together.
            if (i % 2) mprotect(code, 0x1000, PROT_READ | PROT_WRITE | PROT_EXEC);
            if (i % 100 == 0) call(code, 1, 200);
        }
    } else if (IS("forks")) {
        for (int i = 0; i < number; i++) {
            pid_t child = fork();
            if (child == 0) {
                free(zoo_allocate(300));
                _exit(0);
            }
            allocations++;
            waitpid(child, NULL, 0);
        }
    } else if (IS("execs")) {
        if (number > 0) {
            char left[16];
            snprintf(left, sizeof left, "%d", number - 1);
            execl("/proc/self/exe", argv[0], mode, "-", left, NULL);
            fail("exec");
        }
    } else if (IS("exec")) {
        execl(path, path, "plain", NULL);
        fail("exec");
    } else if (IS("threads")) {
        for (int round = 0; round < number / 50; round++) {
            pthread_t threads[50];
            for (intptr_t i = 0; i < 50; i++) pthread_create(&threads[i], NULL, thread, (void *)i);
            for (int i = 0; i < 50; i++) pthread_join(threads[i], NULL);
        }
    } else if (IS("deep")) {
        for (int i = 0; i < 20; i++) free(deep(number));
    } else if (IS("jit")) {
        unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3};
        char *page = mmap(NULL, 0x1000, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (int i = 0; i < 500; i++) {
            memset(page, 0xcc, 0x1000);
            memcpy(page + 0x200 + i % 64, code, sizeof code);
            free(((caller_fn)(page + 0x200 + i % 64))(zoo_allocate, 200));
        }
    } else if (IS("bad-frame-pointer")) {
        for (uintptr_t i = 0; i < 200; i++) {
            uintptr_t bad = (uintptr_t[]){0, 1, ~(uintptr_t)0, 0x7fffffffffff, 0xffff888000000000, 8 * i}[i % 6];
            uintptr_t size = 200;
            register uintptr_t frame __asm__("r12") = bad;
            register uintptr_t function __asm__("r13") = (uintptr_t)zoo_allocate;
            __asm__ volatile("push %%rbp\n sub $8, %%rsp\n mov %1, %%rbp\n call *%2\n add $8, %%rsp\n pop %%rbp"
                             : "+D"(size)
                             : "r"(frame), "r"(function)
                             : "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
        }
    } else if (IS("comm")) {
        for (int i = 0; i < 1000; i++) {
            char name[16];
            snprintf(name, sizeof name, i % 2 ? "\x1b[31m%d\n" : "\xff\xfe%d\t\"", i);
            prctl(PR_SET_NAME, name);
            free(zoo_allocate(50));
        }
    } else if (IS("dlopens")) {
        for (int i = 0; i < number; i++) {
            void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (!library) {
                fprintf(stderr, "%s\n", dlerror());
                exit(99);
            }
            caller_fn function = (caller_fn)dlsym(library, "through_library");
            free(function(zoo_allocate, 200));
            dlclose(library);
        }
    } else if (IS("traced")) {
        pid_t child = fork();
        if (child == 0) {
            ptrace(PTRACE_TRACEME, 0, 0, 0);
            raise(SIGSTOP);
            for (int i = 0; i < 100; i++) free(zoo_allocate(300));
            _exit(0);
        }
        int status;
        while (waitpid(child, &status, 0) > 0 && !WIFEXITED(status) && !WIFSIGNALED(status))
            ptrace(PTRACE_CONT, child, 0, WSTOPSIG(status) == SIGSTOP || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status));
        if (!WIFEXITED(status)) exit(98);
        allocations += 100;
    } else if (IS("zombies")) {
        for (int i = 0; i < number; i++)
            if (fork() == 0) _exit(0);
        pause_a_while(200);
    } else if (IS("wait")) {
        printf("pid=%d\n", getpid());
        for (int i = 0; i < number * 10; i++) {
            free(zoo_allocate(500));
            pause_a_while(100);
        }
    } else if (IS("zombie")) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        printf("pid=%d\n", child);
        pause_a_while(number * 1000);
    } else if (IS("undumpable")) {
        prctl(PR_SET_DUMPABLE, 0);
        for (int i = 0; i < 200; i++) free(zoo_allocate(300));
    } else if (IS("signals")) {
        struct sigaction action = {.sa_handler = SIG_IGN};
        for (int i = 1; i < 32; i++) sigaction(i, &action, NULL);
        for (int i = 0; i < 200; i++) {
            kill(getpid(), 1 + i % 15 == SIGKILL ? SIGUSR1 : 1 + i % 15);
            kill(getppid(), SIGCONT);
            free(zoo_allocate(300));
        }
    } else {
        fprintf(stderr, "no mode %s\n", mode);
        return 99;
    }
    printf("allocations=%ld\n", allocations);
    return 0;
}
