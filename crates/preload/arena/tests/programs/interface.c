/* Every function of terrace.h, called from C. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <terrace.h>
#include <terrace/marker.h>
#include <unistd.h>

#define NEED(holds) do { if (!(holds)) { fprintf(stderr, "line %d: %s\n", __LINE__, #holds); exit(1); } } while (0)
#define MIB (1UL << 20)

static uint64_t *at(terrace_blocks *blocks, uint32_t index, uint64_t offset, int write)
{
    struct terrace_handle handle = { index, offset };
    void *address = NULL;
    int result = terrace_resolve(blocks, handle, 8, write, &address);
    return result ? NULL : address;
}
static void memory(void)
{
    struct terrace_memory one, other, small;
    NEED(terrace_allocate(8 * MIB, TERRACE_PAGES_2M, &one) == 0);
    NEED(terrace_allocate(8 * MIB, TERRACE_PAGES_1G, &other) == 0);
    NEED(terrace_allocate(100, TERRACE_PAGES_4K, &small) == 0);
    NEED(one.bytes == 8 * MIB && (uintptr_t)one.start % (2 * MIB) == 0 && other.pages <= TERRACE_PAGES_2M);
    NEED(small.bytes == 4096 && small.pages == TERRACE_PAGES_4K);
    memset(one.start, 7, 5 * MIB);
    void *start = one.start;
    int resized = terrace_resize(&one, TERRACE_PAGES_4K);
    NEED(resized == 0 || resized == -EOPNOTSUPP);
    NEED(one.pages == (resized ? TERRACE_PAGES_2M : TERRACE_PAGES_4K) && one.start == start && one.bytes == 8 * MIB);
    NEED(((char *)one.start)[5 * MIB - 1] == 7 && ((char *)one.start)[5 * MIB] == 0);
    NEED(terrace_resize(&one, TERRACE_PAGES_2M) == resized && one.pages == TERRACE_PAGES_2M);
    NEED(terrace_resize(&one, TERRACE_PAGES_1G) == -EINVAL && terrace_resize(&one, 3) == -EINVAL);
    NEED(terrace_hint(one.start, one.bytes, TERRACE_HINT_SPLIT, 0) == 0);
    memset(one.start, 0, 5 * MIB);
    NEED(terrace_allocate(0, TERRACE_PAGES_4K, &small) == -EINVAL && terrace_allocate(1, 7, &small) == -EINVAL);
    NEED(terrace_allocate(1, TERRACE_PAGES_4K, NULL) == -EINVAL);
    memset(one.start, 1, one.bytes);
    memset(other.start, 2, other.bytes);
    NEED(terrace_hint(one.start, one.bytes, TERRACE_HINT_COLD, 0) == 0);
    NEED(terrace_hint(one.start, one.bytes, TERRACE_HINT_NODE, 0) == 0);
    NEED(terrace_hint(one.start, one.bytes, TERRACE_HINT_NODE, 1UL << 40) == -EINVAL);
    NEED(terrace_hint(one.start, one.bytes, 99, 0) == -EINVAL);
    struct terrace_exchanged how = { 0, 0 };
    NEED(terrace_exchange(one.start, other.start, 8 * MIB, &how) == 0);
    NEED(how.moved + how.copied == 8 * MIB);
    for (size_t i = 0; i < 8 * MIB; i++) NEED(((char *)one.start)[i] == 2 && ((char *)other.start)[i] == 1);
    NEED(terrace_exchange(one.start, other.start, 8 * MIB, NULL) == 0 && *(char *)one.start == 1);
    NEED(terrace_exchange(one.start, one.start, 4096, NULL) == -EINVAL);
    NEED(terrace_exchange((char *)one.start + 1, other.start, 4096, NULL) == -EINVAL);
    NEED(terrace_free(&one) == 0 && one.start == NULL && terrace_free(&one) == 0);
    NEED(terrace_free(&other) == 0 && terrace_free(&small) == 0 && terrace_free(NULL) == -EINVAL);
}
static void pool(void)
{
    terrace_pool *pool = NULL;
    void *start = NULL, *more = NULL;
    NEED(terrace_pool_new(32 * MIB, 8 * MIB, &pool) == 0 && terrace_pool_new(0, 0, &pool) == -EINVAL);
    for (int i = 0; i < 6000 && terrace_pool_ready(pool) < 8 * MIB; i++) usleep(10000);
    NEED(terrace_pool_ready(pool) == 8 * MIB && terrace_pool_ready(NULL) == 0);
    NEED(terrace_pool_take(pool, 6 * MIB, &start) == 0 && (uintptr_t)start % (2 * MIB) == 0);
    for (size_t i = 0; i < 6 * MIB; i++) NEED(((char *)start)[i] == 0);
    memset(start, 1, 6 * MIB);
    NEED(terrace_pool_take(pool, 30 * MIB, &more) == -ENOMEM);
    NEED(terrace_pool_give(pool, (char *)start + 1, 2 * MIB) == -EINVAL && terrace_pool_give(pool, start, 6 * MIB) == 0);
    NEED(terrace_pool_give(pool, start, 6 * MIB) == -EINVAL && terrace_pool_take(NULL, 1, &start) == -EINVAL);
    terrace_pool_free(pool);
    terrace_pool_free(NULL);
}
static void stores(void)
{
    terrace_store *store = NULL;
    static uint32_t handles[2048];
    uint32_t handle;
    uint64_t moved = 99;
    void *address, *again;
    NEED(terrace_store_new(8 * MIB, TERRACE_PAGES_2M, &store) == 0 && terrace_store_new(8 * MIB, 9, &store) == -EINVAL);
    for (uint32_t i = 0; i < 2048; i++) {
        NEED(terrace_store_allocate(store, TERRACE_PAGES_4K, &handles[i]) == 0);
        NEED(terrace_store_pin(store, handles[i], &address) == 0);
        memset(address, (int)i, 4096);
        NEED(terrace_store_unpin(store, handles[i]) == 0);
    }
    NEED(terrace_store_allocate(store, TERRACE_PAGES_4K, &handle) == -ENOMEM);
    for (int i = 0; i < 2048; i++) if (i % 4) NEED(terrace_store_release(store, handles[i]) == 0);
    NEED(terrace_store_allocate(store, TERRACE_PAGES_2M, &handle) == -ENOMEM);
    NEED(terrace_store_compact(store, TERRACE_PAGES_2M, 7, NULL) == -EINVAL);
    NEED(terrace_store_compact(store, TERRACE_PAGES_2M, TERRACE_SMART, &moved) == 1 && moved == 128 * 4096);
    NEED(terrace_store_compact(store, TERRACE_PAGES_2M, TERRACE_TWO_CURSORS, NULL) == 1);
    NEED(terrace_store_trim(store) == 2 * MIB);
    for (int i = 0; i < 2048; i += 4) {
        NEED(terrace_store_pin(store, handles[i], &address) == 0 && *(unsigned char *)address == (unsigned char)i);
        NEED(terrace_store_pin(store, handles[i], &again) == 0 && address == again);
    }
    NEED(terrace_store_release(store, handles[0]) == -EBUSY && terrace_store_release(store, 12345) == -EBADF);
    NEED(terrace_store_unpin(store, handle = handles[0]) == 0 && terrace_store_unpin(store, handle) == 0);
    NEED(terrace_store_unpin(store, handle) == -EBUSY && terrace_store_release(store, handle) == 0);
    NEED(terrace_store_compact(store, TERRACE_PAGES_1G, TERRACE_SMART, NULL) == 0);
    NEED(terrace_store_trim(NULL) == 0 && terrace_store_pin(NULL, 1, &address) == -EINVAL);
    terrace_store_free(store);
    terrace_store_free(NULL);
}
static void blocks(void)
{
    terrace_blocks *table = terrace_blocks_new();
    uint32_t index = 99, copy = 99;
    uint64_t bytes = 0;
    NEED(table && terrace_request(table, 5000, &index) == 0 && terrace_size(table, index, &bytes) == 0);
    NEED(bytes == 131072);
    *at(table, index, 64, 1) = 11;
    NEED(at(table, index, 131072 - 7, 0) == NULL && at(table, 12345, 0, 0) == NULL);
    NEED(terrace_promote(table, index, MIB) == 0 && terrace_size(table, index, &bytes) == 0 && bytes == 4 * MIB);
    NEED(*at(table, index, 64, 0) == 11);
    NEED(terrace_describe(table, index, TERRACE_COLD) == 0 && terrace_describe(table, index, 7) == -EINVAL);
    NEED(terrace_clone(table, index, &copy) == 0 && copy != index);
    *at(table, index, 64, 1) = 12;
    NEED(*at(table, copy, 64, 0) == 11);
    int ends[2];
    NEED(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    NEED(terrace_send(table, index, ends[0], TERRACE_WRITE) == 0);
    NEED(terrace_send(table, copy, ends[0], TERRACE_READ) == 0);
    pid_t child = fork();
    if (child == 0) {
        terrace_blocks *own = terrace_blocks_new();
        uint32_t shared, readable;
        NEED(terrace_attach(own, ends[1], &shared) == 0 && terrace_attach(own, ends[1], &readable) == 0);
        NEED(*at(own, shared, 64, 1) == 12 && *at(own, readable, 64, 0) == 11);
        NEED(at(own, readable, 64, 1) == NULL);
        struct terrace_handle handle = { readable, 0 };
        void *address;
        NEED(terrace_resolve(own, handle, 8, 1, &address) == -EACCES);
        *at(own, shared, 72, 1) = 13;
        terrace_blocks_free(own);
        _exit(0);
    }
    int status;
    NEED(waitpid(child, &status, 0) == child && status == 0);
    NEED(*at(table, index, 72, 0) == 13);
    NEED(terrace_promote(table, index, 100 * MIB) == -EACCES);
    NEED(terrace_detach(table, index) == 0 && terrace_detach(table, index) == -EBADF);
    NEED(terrace_request(table, UINT64_MAX, &index) == -EFBIG && terrace_request(NULL, 1, &index) == -EINVAL);
    NEED(terrace_request(table, 1, NULL) == -EINVAL && terrace_send(table, copy, ends[0], 9) == -EINVAL);
    terrace_blocks_free(table);
    terrace_blocks_free(NULL);
}
int main(void)
{
    memory();
    pool();
    stores();
    blocks();
    puts(terrace_version());
    return 0;
}
