// What generated programs share: they count their own allocations here, per site, and print the counts at their end.
//
// A site is a generated function, known by its number. Nothing here allocates, except where a generated program
// would: threads and libraries are started and loaded by the C library, which allocates for itself.

#ifndef D_RUNTIME_H
#define D_RUNTIME_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <alloca.h>
#include <malloc.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) && !defined(__clang__)
#define D_FUNCTION __attribute__((noipa, visibility("default")))
#else
#define D_FUNCTION __attribute__((noinline, visibility("default")))
#endif
// After the last call of a function: the call before it is no tail call.
#define D_END __asm__ volatile("")

// How a block is released: an index into d_releases.
enum { D_FREE, D_DELETE, D_DELETE_ARRAY, D_DELETE_ALIGNED, D_DELETE_SIZED, D_RUST, D_KINDS };

struct d_block {
    void *at;
    size_t size;
    size_t align;
    int site;
    int kind;
};

typedef void d_release(void *at, size_t size, size_t align);
extern d_release *d_releases[D_KINDS];

// The innermost setjmp of the thread.
extern __thread jmp_buf *d_jump;

size_t d_size(size_t base, size_t step, size_t turn);
void d_keep(int site, void *at, size_t size, int kind, size_t align);
void d_came_and_went(int site, size_t size);
struct d_block d_take(int kind);
void d_take_into(int kind, struct d_block *out);
void d_reallocated(int site, const struct d_block *old, void *at, size_t size);
void d_free_some(size_t count, int newest);

int d_begin(int argc, char **argv);
void d_gate(void);
void d_wait_for_gate(void (*body)(void));
void d_end(void);
void d_threads(int count, void (*body)(void));
void d_raise(void (*body)(void), int alternate);
void d_call_back(void (*body)(void));
void d_coroutine(void (*body)(void));
void d_yield(void);
int d_fork(int role);
void d_fork_end(void) __attribute__((noreturn));
void d_wait(int pid);
void d_spawn(int part, int with_vfork);
void d_execute(int part);
void d_library(int number, const char *function);

#ifdef __cplusplus
}
#endif
#endif
