/* Markers for Terrace's recorder, for C and C++ on x86-64 Linux.
 *
 * Each function issues a system call with a number that Linux does not use. Under the recorder it becomes an event
 * of the trace; elsewhere it fails at once, without effect (about 100 ns).
 *
 * Strings need not outlive the call. Names are cut at 1024 bytes. The header may be included together with that of
 * libterrace.so, <terrace.h>, in either order.
 */
#ifndef TERRACE_MARKER_H
#define TERRACE_MARKER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TERRACE_SYSCALL 29797

#ifdef __cplusplus
extern "C" {
#endif

static inline void terrace_mark(uint64_t operation, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) {
#if defined(__x86_64__) && defined(__linux__)
    register uint64_t r10 __asm__("r10") = c;
    register uint64_t r8 __asm__("r8") = d;
    register uint64_t r9 __asm__("r9") = e;
    uint64_t result = TERRACE_SYSCALL;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(operation), "S"(a), "d"(b), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
#else
    (void)operation, (void)a, (void)b, (void)c, (void)d, (void)e;
#endif
}

/* A region of interest begins or ends; `terrace record --region` keeps only what lies in such regions. */
static inline void terrace_region_begin(const char *name) {
    terrace_mark(1, (uint64_t)(uintptr_t)name, strlen(name), 0, 0, 0);
}
static inline void terrace_region_end(const char *name) {
    terrace_mark(2, (uint64_t)(uintptr_t)name, strlen(name), 0, 0, 0);
}

/* A named phase of the program begins; the previous one ends. */
static inline void terrace_phase(const char *name) {
    terrace_mark(3, (uint64_t)(uintptr_t)name, strlen(name), 0, 0, 0);
}

/* A request begins or ends; `number` tells requests apart. */
static inline void terrace_request_begin(const char *name, uint64_t number) {
    terrace_mark(4, (uint64_t)(uintptr_t)name, strlen(name), number, 0, 0);
}
static inline void terrace_request_end(const char *name, uint64_t number) {
    terrace_mark(5, (uint64_t)(uintptr_t)name, strlen(name), number, 0, 0);
}

/* A data structure was allocated at `address`; `name` is what reports call it. For allocators of the program's own;
 * those of the C and C++ libraries are seen without. */
static inline void terrace_mark_alloc(const void *address, size_t bytes, const char *name) {
    terrace_mark(16, (uint64_t)(uintptr_t)address, bytes, 0, (uint64_t)(uintptr_t)name, strlen(name));
}

/* It is about to be freed. */
static inline void terrace_mark_free(const void *address) {
    terrace_mark(17, (uint64_t)(uintptr_t)address, 0, 0, 0, 0);
}

#ifdef __cplusplus
}
#endif

/* The names that these two had before libterrace.so came. To a program that includes its header too, terrace_free is that
 * library's. */
#define terrace_alloc(address, bytes, name) terrace_mark_alloc(address, bytes, name)
#ifndef TERRACE_ARENA_H
#define terrace_free(address) terrace_mark_free(address)
#endif

#endif
