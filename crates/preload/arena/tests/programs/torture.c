/* A random program over its own memory that knows what every byte has to be.
 *
 * torture SEED STEPS THREADS: each thread maps, unmaps, remaps, protects, advises, forks, allocates and frees at random, and
 * checks. A page is described by a stamp: 0 is all zeros; else each of its words is a function of stamp and position. The first
 * byte that is wrong ends it with status 1.
 *
 * It prints a digest of all stamps, and how many calls that change the address space it made by itself. Both depend on its
 * arguments alone. Most steps are for small regions, of which a step looks at a window; one in LARGE_SHARE is for a large one.
 * One step in 4,000 checks everything, and one forks a child that does. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
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
#define LARGE 6 /* regions of up to LARGE_MOST pages, the first ones */
#define REGIONS 30
#define BLOCKS 48
#define LARGE_SHARE 50
#define LARGE_MOST 5000 /* pages, about 20 MiB */
#define SMALL_MOST 600  /* pages: past the 2 MiB from which a mapping is advised by itself */
#define WINDOW 16       /* pages of a small region that a step writes or checks at most; of a large one mostly SMALL_MOST */

struct region { char *at; size_t pages; uint32_t *stamps; };
struct block { char *at; size_t bytes; uint32_t stamp; };
struct world {
    uint64_t random, digest, calls;
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
/* The bytes I*8 to I*8+7 of a block. The last of them may lie past its end. */
static uint64_t block_word(const struct block *b, size_t i)
{
    return (uint64_t)b->stamp << 32 ^ i * 0x9e3779b97f4a7c15UL;
}
static void fill_block(struct block *b)
{
    for (size_t i = 0; i < b->bytes; i += 8) {
        uint64_t word = block_word(b, i / 8);
        memcpy(b->at + i, &word, b->bytes - i < 8 ? b->bytes - i : 8);
    }
}
static void check_block(const struct block *b, size_t bytes)
{
    uint64_t found;
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        memcpy(&found, b->at + i, 8);
        if (found != block_word(b, i / 8)) fail("a wrong byte of a block", b->at + i);
    }
    uint64_t last = block_word(b, bytes / 8);
    if (memcmp(b->at + bytes / 8 * 8, &last, bytes % 8)) fail("a wrong byte at the end of a block", b->at + bytes / 8 * 8);
}
static void check_all(struct world *w)
{
    for (int i = 0; i < REGIONS; i++) if (w->regions[i].at) check_region(&w->regions[i]);
    for (int i = 0; i < BLOCKS; i++) if (w->blocks[i].at) check_block(&w->blocks[i], w->blocks[i].bytes);
}
/* Some pages of a region: of a small one a few, of a large one more, and now and then any number. */
struct window { size_t from, count; };
static struct window some(struct world *w, const struct region *r)
{
    size_t from = draw(w, r->pages), left = r->pages - from, most = left;
    if (r->pages <= SMALL_MOST) most = WINDOW;
    else if (draw(w, 4)) most = SMALL_MOST;
    return (struct window){ from, 1 + draw(w, most < left ? most : left) };
}
static void check_some(struct world *w, const struct region *r)
{
    struct window part = some(w, r);
    for (size_t i = part.from; i < part.from + part.count; i++) check_page(r->at + i * PAGE, r->stamps[i]);
}
static void write_some(struct world *w, struct region *r)
{
    struct window part = some(w, r);
    for (size_t i = part.from; i < part.from + part.count; i++) {
        r->stamps[i] = ++w->stamp;
        write_page(r->at + i * PAGE, r->stamps[i]);
    }
}
static void zeros(struct region *r, struct window part)
{
    memset(r->stamps + part.from, 0, part.count * sizeof *r->stamps);
}
static size_t size(struct world *w, int large)
{
    return large ? SMALL_MOST + 1 + draw(w, LARGE_MOST - SMALL_MOST) : 1 + draw(w, draw(w, 3) ? 40 : SMALL_MOST);
}
static void map(struct world *w, struct region *r)
{
    r->pages = size(w, r < w->regions + LARGE);
    r->at = mmap(NULL, r->pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    w->calls++;
    if (r->at == MAP_FAILED) fail("mmap", NULL);
    r->stamps = calloc(r->pages, sizeof *r->stamps);
    write_some(w, r);
}
static void drop(struct world *w, struct region *r)
{
    w->calls++;
    if (munmap(r->at, r->pages * PAGE)) fail("munmap", r->at);
    free(r->stamps);
    r->at = NULL;
}
/* The places of large regions stay theirs. */
static struct region *empty(struct world *w, size_t pages)
{
    for (int i = pages > SMALL_MOST ? 0 : LARGE; i < REGIONS; i++) if (!w->regions[i].at) return &w->regions[i];
    return NULL;
}
/* Takes a hole out of the middle. */
static void punch(struct world *w, struct region *r)
{
    struct window hole = some(w, r);
    size_t after = hole.from + hole.count;
    struct region *rest = empty(w, r->pages - after);
    if (!rest || hole.from == 0 || after == r->pages) return;
    w->calls++;
    if (munmap(r->at + hole.from * PAGE, hole.count * PAGE)) fail("munmap of a part", r->at);
    rest->at = r->at + after * PAGE;
    rest->pages = r->pages - after;
    rest->stamps = malloc(rest->pages * sizeof *rest->stamps);
    memcpy(rest->stamps, r->stamps + after, rest->pages * sizeof *rest->stamps);
    r->pages = hole.from;
}
static void remap(struct world *w, struct region *r)
{
    size_t pages = size(w, r->pages > SMALL_MOST);
    char *at = mremap(r->at, r->pages * PAGE, pages * PAGE, MREMAP_MAYMOVE);
    w->calls++;
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
    check_some(w, r);
}
static void advise(struct world *w, struct region *r)
{
    struct window part = some(w, r);
    static const int advice[] = { MADV_DONTNEED, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLD, MADV_WILLNEED, MADV_RANDOM };
    int which = draw(w, 6);
    /* Whether the kernel takes it is not the question; what it does to bytes is known. */
    int result = madvise(r->at + part.from * PAGE, part.count * PAGE, advice[which]);
    w->calls++;
    if (which == 0) {
        if (result) fail("MADV_DONTNEED", r->at);
        zeros(r, part);
    }
    check_some(w, r);
}
static void map_over(struct world *w, struct region *r)
{
    struct window part = some(w, r);
    char *to = r->at + part.from * PAGE;
    w->calls++;
    if (mmap(to, part.count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != to)
        fail("MAP_FIXED", r->at);
    zeros(r, part);
    check_some(w, r);
}
static void protect(struct world *w, struct region *r)
{
    struct window part = some(w, r);
    char *from = r->at + part.from * PAGE;
    w->calls += 2;
    if (mprotect(from, part.count * PAGE, PROT_READ)) fail("mprotect", r->at);
    for (size_t i = part.from; i < part.from + part.count; i++) check_page(r->at + i * PAGE, r->stamps[i]);
    if (mprotect(from, part.count * PAGE, PROT_READ | PROT_WRITE)) fail("mprotect back", r->at);
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
    w->calls++;
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
static void execute(struct world *w)
{
    w->calls += 2;
    pid_t child = vfork();
    if (child < 0) fail("vfork", NULL);
    if (child == 0) { execl("/bin/true", "true", (char *)NULL); _exit(127); }
    wait_for(child);
}
static void allocate(struct world *w)
{
    struct block *b = &w->blocks[draw(w, BLOCKS)];
    size_t bytes = 1 + (draw(w, 4 * LARGE_SHARE) ? draw(w, draw(w, 8) ? 2000 : 200000) : draw(w, 6 << 20)), kept;
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
/* What takes long. */
static void seldom(struct world *w)
{
    switch (draw(w, 4)) {
    case 0: branch(w); break;
    case 1: execute(w); break;
    case 2: malloc_trim(draw(w, 2) << 20); break;
    default: check_all(w);
    }
}
static void *run(void *argument)
{
    struct world *w = argument;
    for (long step = 0; step < w->steps; step++) {
        int large = !draw(w, LARGE_SHARE);
        struct region *r = &w->regions[large ? draw(w, LARGE) : LARGE + draw(w, REGIONS - LARGE)];
        uint64_t what = draw(w, 1000);
        if (what < 1) seldom(w);
        else if (what < 200) allocate(w);
        else if (!r->at) map(w, r);
        else if (what < 300) write_some(w, r);
        else if (what < 380) check_some(w, r);
        else if (what < 500) remap(w, r);
        else if (what < 620) advise(w, r);
        else if (what < 700) punch(w, r);
        else if (what < 800) map_over(w, r);
        else if (what < 880) protect(w, r);
        else drop(w, r);
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
    static atomic_int times;
    int error = errno;
    size_t bytes = atomic_fetch_add(&times, 1) % 8 ? 80 << 10 : 3 << 20;
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED) {
        at[12345] = 1;
        munmap(at, bytes);
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
    uint64_t digest = 0, calls = 0;
    for (long i = 0; i < threads; i++) {
        worlds[i].random = mix(seed * 64 + i);
        worlds[i].steps = steps;
        if (pthread_create(&all[i], NULL, run, &worlds[i])) fail("pthread_create", NULL);
    }
    for (long i = 0; i < threads; i++) {
        pthread_join(all[i], NULL);
        digest = mix(digest ^ worlds[i].digest);
        calls += worlds[i].calls;
    }
    printf("%016lx %lu\n", digest, calls);
    return 0;
}
