/* A random program over its own memory that knows what every byte has to be.
 *
 * torture SEED STEPS THREADS: each thread maps, unmaps, remaps, protects, advises, forks, allocates and frees at random, and
 * checks. A page is described by a stamp: 0 is all zeros; else each of its words is a function of stamp and position. The first
 * byte that is wrong ends it with status 1. What it prints depends on its arguments alone. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define WORDS (PAGE / 8)
#define REGIONS 24
#define BLOCKS 48
#define MOST 5000 /* pages of a region, about 20 MiB */

struct region { char *at; size_t pages; uint32_t *stamps; };
struct block { char *at; size_t bytes; uint32_t stamp; };
struct world {
    uint64_t random, digest;
    uint32_t stamp;
    int number;
    long steps;
    struct region regions[REGIONS];
    struct block blocks[BLOCKS];
};

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33; x *= 0xff51afd7ed558ccdUL; x ^= x >> 33; x *= 0xc4ceb9fe1a85ec53UL;
    return x ^ x >> 33;
}
static uint64_t draw(struct world *w, uint64_t below)
{
    w->random += 0x9e3779b97f4a7c15UL;
    return mix(w->random) % below;
}
static void fail(const char *what, const void *at)
{
    dprintf(2, "torture: %s at %p: %s\n", what, at, strerror(errno));
    _exit(1);
}
static void write_page(char *at, uint32_t stamp)
{
    uint64_t *words = (uint64_t *)at;
    for (size_t i = 0; i < WORDS; i++) words[i] = stamp ? (uint64_t)stamp << 32 ^ i * 0x9e3779b97f4a7c15UL : 0;
}
static void check_page(const char *at, uint32_t stamp)
{
    const uint64_t *words = (const uint64_t *)at;
    for (size_t i = 0; i < WORDS; i++)
        if (words[i] != (stamp ? (uint64_t)stamp << 32 ^ i * 0x9e3779b97f4a7c15UL : 0)) fail("a wrong byte", words + i);
}
static void check_region(const struct region *r)
{
    for (size_t i = 0; i < r->pages; i++) check_page(r->at + i * PAGE, r->stamps[i]);
}
static void fill_block(struct block *b)
{
    for (size_t i = 0; i < b->bytes; i++) b->at[i] = (char)(b->stamp + i * 31);
}
static void check_block(const struct block *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (b->at[i] != (char)(b->stamp + i * 31)) fail("a wrong byte of a block", b->at + i);
}
static void check_all(struct world *w)
{
    for (int i = 0; i < REGIONS; i++) if (w->regions[i].at) check_region(&w->regions[i]);
    for (int i = 0; i < BLOCKS; i++) if (w->blocks[i].at) check_block(&w->blocks[i], w->blocks[i].bytes);
}
static void write_some(struct world *w, struct region *r)
{
    size_t from = draw(w, r->pages), count = 1 + draw(w, r->pages - from);
    for (size_t i = from; i < from + count; i++) { r->stamps[i] = ++w->stamp; write_page(r->at + i * PAGE, r->stamps[i]); }
}
static void map(struct world *w, struct region *r)
{
    r->pages = 1 + draw(w, draw(w, 3) ? MOST : 300);
    r->at = mmap(NULL, r->pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r->at == MAP_FAILED) fail("mmap", NULL);
    r->stamps = calloc(r->pages, sizeof *r->stamps);
    write_some(w, r);
}
static void drop(struct region *r)
{
    if (munmap(r->at, r->pages * PAGE)) fail("munmap", r->at);
    free(r->stamps);
    r->at = NULL;
}
static struct region *empty(struct world *w)
{
    for (int i = 0; i < REGIONS; i++) if (!w->regions[i].at) return &w->regions[i];
    return NULL;
}
/* Takes a hole out of the middle. */
static void punch(struct world *w, struct region *r)
{
    struct region *rest = empty(w);
    if (!rest || r->pages < 3) return;
    size_t from = 1 + draw(w, r->pages - 2), count = 1 + draw(w, r->pages - from - 1), left = r->pages - from - count;
    if (munmap(r->at + from * PAGE, count * PAGE)) fail("munmap of a part", r->at);
    rest->at = r->at + (from + count) * PAGE;
    rest->pages = left;
    rest->stamps = malloc(left * sizeof *rest->stamps);
    memcpy(rest->stamps, r->stamps + from + count, left * sizeof *rest->stamps);
    r->pages = from;
}
static void remap(struct world *w, struct region *r)
{
    size_t pages = 1 + draw(w, MOST);
    char *at = mremap(r->at, r->pages * PAGE, pages * PAGE, MREMAP_MAYMOVE);
    if (at == MAP_FAILED) {
        /* A range that was advised or mapped over in parts is several mappings, which do not move together. */
        size_t kept = pages < r->pages ? pages : r->pages;
        if (errno != EFAULT) fail("mremap", r->at);
        at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) fail("mmap for mremap", r->at);
        memcpy(at, r->at, kept * PAGE);
        if (munmap(r->at, r->pages * PAGE)) fail("munmap for mremap", r->at);
    }
    r->stamps = realloc(r->stamps, pages * sizeof *r->stamps);
    for (size_t i = r->pages; i < pages; i++) r->stamps[i] = 0;
    r->at = at;
    r->pages = pages;
}
static void advise(struct world *w, struct region *r)
{
    size_t from = draw(w, r->pages), count = 1 + draw(w, r->pages - from);
    static const int advice[] = { MADV_DONTNEED, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLD, MADV_WILLNEED, MADV_RANDOM };
    int which = draw(w, 6);
    /* Whether the kernel takes it is not the question; what it does to bytes is known. */
    int result = madvise(r->at + from * PAGE, count * PAGE, advice[which]);
    if (which == 0) {
        if (result) fail("MADV_DONTNEED", r->at);
        for (size_t i = from; i < from + count; i++) r->stamps[i] = 0;
    }
}
static void map_over(struct world *w, struct region *r)
{
    size_t from = draw(w, r->pages), count = 1 + draw(w, r->pages - from);
    char *at = mmap(r->at + from * PAGE, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (at != r->at + from * PAGE) fail("MAP_FIXED", r->at);
    for (size_t i = from; i < from + count; i++) r->stamps[i] = 0;
}
static void protect(struct world *w, struct region *r)
{
    size_t from = draw(w, r->pages), count = 1 + draw(w, r->pages - from);
    if (mprotect(r->at + from * PAGE, count * PAGE, PROT_READ)) fail("mprotect", r->at);
    check_region(r);
    if (mprotect(r->at + from * PAGE, count * PAGE, PROT_READ | PROT_WRITE)) fail("mprotect back", r->at);
}
static void wait_for(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0) if (errno != EINTR) fail("waitpid", NULL);
    if (status) { errno = status; fail("a child failed", NULL); }
}
/* The child sees what was, and what it stores stays its own. */
static void branch(struct world *w)
{
    pid_t child = fork();
    if (child < 0) fail("fork", NULL);
    if (child == 0) {
        check_all(w);
        for (int i = 0; i < REGIONS; i++) if (w->regions[i].at) write_some(w, &w->regions[i]);
        check_all(w);
        void *block = malloc(3 << 20);
        memset(block, 1, 3 << 20);
        free(block);
        _exit(0);
    }
    for (int i = 0; i < REGIONS; i++) if (w->regions[i].at) write_some(w, &w->regions[i]);
    wait_for(child);
}
static void execute(void)
{
    pid_t child = vfork();
    if (child < 0) fail("vfork", NULL);
    if (child == 0) { execl("/bin/true", "true", (char *)NULL); _exit(127); }
    wait_for(child);
}
static void allocate(struct world *w)
{
    struct block *b = &w->blocks[draw(w, BLOCKS)];
    size_t bytes = 1 + draw(w, draw(w, 4) ? 200000 : 6 << 20), kept;
    if (b->at) {
        check_block(b, b->bytes);
        switch (draw(w, 2)) {
        case 0:
            free(b->at);
            b->at = NULL;
            return;
        default:
            b->at = realloc(b->at, bytes);
            if (!b->at) fail("realloc", NULL);
            kept = bytes < b->bytes ? bytes : b->bytes;
            check_block(b, kept);
        }
    } else if (draw(w, 2)) {
        b->at = malloc(bytes);
    } else {
        void *at = NULL;
        if (posix_memalign(&at, 64UL << draw(w, 10), bytes)) fail("posix_memalign", NULL);
        b->at = at;
    }
    if (!b->at) fail("malloc", NULL);
    b->bytes = bytes;
    b->stamp = ++w->stamp;
    fill_block(b);
}
static void *run(void *argument)
{
    struct world *w = argument;
    for (long step = 0; step < w->steps; step++) {
        struct region *r = &w->regions[draw(w, REGIONS)];
        uint64_t what = draw(w, 100);
        if (what < 35) allocate(w);
        else if (!r->at) map(w, r);
        else if (what < 50) write_some(w, r);
        else if (what < 60) check_region(r);
        else if (what < 68) remap(w, r);
        else if (what < 76) advise(w, r);
        else if (what < 81) punch(w, r);
        else if (what < 86) map_over(w, r);
        else if (what < 90) protect(w, r);
        else if (what < 95) drop(r);
        else if (what < 96) branch(w);
        else if (what < 97) execute();
        else if (what < 98) malloc_trim(draw(w, 2) << 20);
        else check_all(w);
    }
    check_all(w);
    for (int i = 0; i < REGIONS; i++)
        for (size_t page = 0; w->regions[i].at && page < w->regions[i].pages; page++)
            w->digest = mix(w->digest ^ w->regions[i].stamps[page]);
    return NULL;
}
/* Signals interrupt whatever happens, and map memory themselves. */
static void interrupt(int signal)
{
    (void)signal;
    int error = errno;
    char *at = mmap(NULL, 3 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED) {
        at[12345] = 1;
        munmap(at, 3 << 20);
    }
    errno = error;
}
int main(int count, char **arguments)
{
    if (count != 4) return 2;
    long seed = atol(arguments[1]), steps = atol(arguments[2]), threads = atol(arguments[3]);
    struct sigaction action = { .sa_handler = interrupt, .sa_flags = SA_RESTART };
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = { { 0, 3000 }, { 0, 3000 } };
    setitimer(ITIMER_REAL, &often, NULL);
    static struct world worlds[64];
    pthread_t all[64];
    uint64_t digest = 0;
    for (long i = 0; i < threads; i++) {
        worlds[i].random = mix(seed * 64 + i);
        worlds[i].steps = steps;
        if (pthread_create(&all[i], NULL, run, &worlds[i])) fail("pthread_create", NULL);
    }
    for (long i = 0; i < threads; i++) {
        pthread_join(all[i], NULL);
        digest = mix(digest ^ worlds[i].digest);
    }
    printf("%016lx\n", digest);
    return 0;
}
