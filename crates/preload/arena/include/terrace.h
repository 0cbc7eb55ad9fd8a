/* Page sizes, exchange and virtual blocks: the C interface of libterrace.so.
 *
 * Functions that return int return 0, or a negative error number as of errno.h. A program that is linked with the library has
 * huge pages in its other memory too, as if the library were preloaded; TERRACE_ARENA=off keeps it to what is called here. */
#ifndef TERRACE_ARENA_H
#define TERRACE_ARENA_H

#include <stddef.h>
#include <stdint.h>

/* An old name in <terrace/marker.h>, which may be included before or after. */
#undef terrace_free

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library, such as "0.1.0". */
const char *terrace_version(void);

/* Memory. */

enum terrace_pages {
    TERRACE_PAGES_4K = 0,
    TERRACE_PAGES_2M = 1, /* transparent */
    TERRACE_PAGES_1G = 2, /* of the kernel's pool: given back only whole, and not for memory that a forked child stores to */
};

struct terrace_memory {
    void *start;  /* at a multiple of the page size */
    size_t bytes; /* a multiple of the page size */
    int pages;    /* enum terrace_pages: what was had */
};

/* At least so many bytes of zeros, in pages of the size that is wished for where they can be had, else of the next smaller.
 * The kernel's pool of 1 GiB pages is grown where the environment says TERRACE_GROW_1G=PAGES and the process may; what was
 * added is given back when the process ends. */
int terrace_allocate(size_t bytes, int wish, struct terrace_memory *memory);
/* Gives memory pages of another size, at the same address: enum terrace_pages. What holds zeros alone takes no memory on the way
 * down. Threads may read and store meanwhile; no system call is handed the memory, and no forked child has it. EINVAL: address
 * or length is no multiple of the size; ENOMEM: there are no such pages; EOPNOTSUPP: on a kernel before 6.7. It is then as it
 * was. ESTALE: the kernel had no memory left to map it at its address again; it is whole, and the structure has its new address. */
int terrace_resize(struct terrace_memory *memory, int pages);
/* Gives memory back, whole, and clears the structure. */
int terrace_free(struct terrace_memory *memory);

enum terrace_hint {
    TERRACE_HINT_COLLAPSE = 0,   /* used often: join it into huge pages now */
    TERRACE_HINT_POPULATE = 1,   /* used soon: bring all of it in, zeroed, now */
    TERRACE_HINT_COLD = 2,       /* not used for a while: to be taken first */
    TERRACE_HINT_PAGE_OUT = 3,   /* not used for long: to swap now */
    TERRACE_HINT_NODE = 4,       /* argument: the node in which it shall lie where there is room */
    TERRACE_HINT_INTERLEAVE = 5, /* argument: the set of nodes, a bit each, in which it shall lie in turn */
    TERRACE_HINT_SPLIT = 6,      /* used here and there: huge pages apart, and what holds zeros given back (Linux 6.12) */
};

/* Says what is known about a range of whole pages. Changes no byte. */
int terrace_hint(void *start, size_t bytes, int hint, uint64_t argument);

struct terrace_exchanged {
    size_t moved;  /* bytes whose pages were moved */
    size_t copied; /* bytes that were copied: pinned, shared, not anonymous, or on a kernel before 6.8 */
};

/* Exchanges what two ranges of whole pages hold. No other thread accesses them meanwhile. `how` may be null. */
int terrace_exchange(void *one, void *other, size_t bytes, struct terrace_exchanged *how);

/* A pool of huge pages that a thread zeroes ahead, as Trident decides. A forked child may use what was taken before, not the
 * pool. */
typedef struct terrace_pool terrace_pool;

/* A pool of so many bytes, of which `ahead` are kept ready where that many are free. */
int terrace_pool_new(size_t bytes, size_t ahead, terrace_pool **pool);
/* Nothing that was taken is used any more. */
void terrace_pool_free(terrace_pool *pool);
/* So many bytes of zeros, rounded up to 2 MiB. ENOMEM: there are no so many in a row. */
int terrace_pool_take(terrace_pool *pool, size_t bytes, void **start);
/* Gives back what was taken, or whole 2 MiB of it. EINVAL: nobody has it. */
int terrace_pool_give(terrace_pool *pool, void *start, size_t bytes);
/* Bytes that are ready now. */
size_t terrace_pool_ready(const terrace_pool *pool);

/* A store: memory that is taken once, and given out in pages that can be moved, so that large blocks become free again. A page is
 * named by its handle. Its functions may be called from several threads. */
typedef struct terrace_store terrace_store;

/* A store of at least so many bytes, in pages of the size that is wished for or the next smaller one: enum terrace_pages. */
int terrace_store_new(size_t bytes, int wish, terrace_store **store);
void terrace_store_free(terrace_store *store);
/* A page of a size; what it holds is not defined. ENOMEM: there is no free block: terrace_store_compact may help. */
int terrace_store_allocate(terrace_store *store, int pages, uint32_t *handle);
/* Gives it back. EBUSY: it is pinned. */
int terrace_store_release(terrace_store *store, uint32_t handle);
/* Where it lies, and stays until it is unpinned as often. */
int terrace_store_pin(terrace_store *store, uint32_t handle, void **address);
int terrace_store_unpin(terrace_store *store, uint32_t handle);

enum terrace_compaction {
    TERRACE_SMART = 0,       /* the emptiest region into the fullest, by counters, as Trident does */
    TERRACE_TWO_CURSORS = 1, /* from both ends, as Linux does */
};

/* Moves pages that are not pinned until a block of a size is free, unless one is. Returns 1 where one is, 0 where none could be
 * made, or a negative error number. `moved`, which may be null: the bytes. */
int terrace_store_compact(terrace_store *store, int pages, int how, uint64_t *moved);
/* Gives free blocks back to the kernel, of 2 MiB, or of 1 GiB in a store of such pages. Returns the bytes. */
size_t terrace_store_trim(terrace_store *store);

/* Virtual blocks. */

struct terrace_handle {
    uint32_t index;  /* of the block in the table */
    uint64_t offset; /* bytes from its start */
};

enum terrace_rights { TERRACE_READ = 0, TERRACE_WRITE = 1 };

/* A table of blocks. Its functions may be called from several threads. */
typedef struct terrace_blocks terrace_blocks;

terrace_blocks *terrace_blocks_new(void);
/* Detaches all blocks of the table; no address in them is used any more. */
void terrace_blocks_free(terrace_blocks *blocks);

/* A new block of the smallest size that holds so many bytes: 4 KiB, 128 KiB, 4 MiB and on, each 32 times the one before. */
int terrace_request(terrace_blocks *blocks, uint64_t bytes, uint32_t *index);
int terrace_size(terrace_blocks *blocks, uint32_t index, uint64_t *bytes);
/* Where so many bytes from a handle on lie, until the block is promoted or detached. ERANGE: beyond the block; EACCES: the
 * block may not be written. */
int terrace_resolve(terrace_blocks *blocks, struct terrace_handle handle, uint64_t bytes, int write, void **address);
/* A larger size; handles stay valid, addresses do not. EACCES: others have the block attached. */
int terrace_promote(terrace_blocks *blocks, uint32_t index, uint64_t bytes);
/* Another block with what this one holds now. Nothing is copied: a page is, when one of the two is written to. Addresses in the
 * source stay valid. Nobody writes to it meanwhile. A block that others have attached, or that a child forked before has too, is
 * copied at once. */
int terrace_clone(terrace_blocks *blocks, uint32_t index, uint32_t *copy);
enum terrace_property {
    TERRACE_LATENCY_SENSITIVE = 0,   /* its accesses wait for one another: the fast tier of memory */
    TERRACE_BANDWIDTH_SENSITIVE = 1, /* its accesses are many at a time: all tiers in turn */
    TERRACE_COLD = 2,                /* hardly used: the slow tier */
};

/* Says what is known of a block: where it shall lie. Changes no byte. Where there is one tier of memory, huge pages are asked for
 * what is sensitive to latency, and what is cold is given up first. */
int terrace_describe(terrace_blocks *blocks, uint32_t index, int property);
/* Hands a block over through a connected Unix socket. TERRACE_READ seals it: nobody can map it for writing from then on. One
 * that was cloned is copied; nobody writes to it meanwhile. */
int terrace_send(terrace_blocks *blocks, uint32_t index, int socket, int rights);
/* Takes a block over from a connected Unix socket. */
int terrace_attach(terrace_blocks *blocks, int socket, uint32_t *index);
/* Gives a block up; no address in it is used any more. */
int terrace_detach(terrace_blocks *blocks, uint32_t index);

#ifdef __cplusplus
}
#endif
#endif
