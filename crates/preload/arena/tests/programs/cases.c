/* Small programs, one per case: what the library has to do for a program, and what it must not do to it. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1UL << 20)

#ifdef LOCAL_BYTES
/* Every thread has so much on its stack before it begins. */
static __thread volatile char local[LOCAL_BYTES];
#endif

static void fail(const char *what) { perror(what); exit(1); }
static void need(int holds, const char *what) { if (!holds) { fprintf(stderr, "not so: %s\n", what); exit(1); } }
static long line_of(const char *path, const char *name)
{
    char text[256];
    long value = -1;
    FILE *file = fopen(path, "r");
    if (!file) fail(path);
    while (fgets(text, sizeof text, file)) if (!strncmp(text, name, strlen(name))) value = atol(text + strlen(name));
    fclose(file);
    return value;
}
static long huge_mib(void) { return line_of("/proc/self/smaps_rollup", "AnonHugePages:") / 1024; }
static long threads(void) { return line_of("/proc/self/status", "Threads:"); }
static char *map(size_t bytes)
{
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) fail("mmap");
    return at;
}
static void touch(char *at, size_t bytes) { for (size_t i = 0; i < bytes; i += 512) at[i] = (char)(i >> 9); }
static void check(const char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 512) need(at[i] == (char)(i >> 9), "bytes are as they were");
}
static void rest(void) { struct timespec span = { 0, 50000000 }; nanosleep(&span, NULL); }

/* Memory enough for the helper to be started, and a wait until it runs. */
static void have_helper(void)
{
    char *at = map(96 * MIB + 4096);
    touch(at, 96 * MIB);
    /* Without the library there is none to wait for. */
    for (int i = 0; i < 400 && getenv("LD_PRELOAD") && threads() == 1; i++) {
        char *more = map(4 * MIB + 4096);
        touch(more, 4 * MIB);
        free(malloc(100));
        munmap(more, 4 * MIB + 4096);
        rest();
    }
}
static void mapping(void)
{
    char *at = map(64 * MIB + 12288);
    touch(at, 64 * MIB + 12288);
    printf("%ld\n", huge_mib());
}
static void pieces(void)
{
    char *all[200];
    for (int i = 0; i < 200; i++) { all[i] = map(MIB); need(all[i][5] == 0, "new memory is zero"); touch(all[i], MIB); }
    printf("%ld\n", huge_mib());
    for (int i = 0; i < 200; i += 2) need(munmap(all[i], MIB) == 0, "a piece is unmapped by itself");
    for (int i = 1; i < 200; i += 2) check(all[i], MIB);
    for (int i = 1; i < 200; i += 2) need(mprotect(all[i], MIB, PROT_READ) == 0, "a piece is protected by itself");
    for (int i = 1; i < 200; i += 2) need(munmap(all[i], MIB) == 0, "a piece is unmapped by itself");
}
static void heap(void)
{
    char **all = malloc(200000 * sizeof *all);
    for (int i = 0; i < 200000; i++) { all[i] = malloc(1000); memset(all[i], i, 1000); }
    printf("%ld\n", huge_mib());
    for (int i = 0; i < 200000; i++) { need(all[i][999] == (char)i, "bytes are as they were"); free(all[i]); }
}
static void *many(void *argument)
{
    char **all = argument;
    for (int i = 0; i < 200000; i++) { all[i] = malloc(1000); memset(all[i], i, 1000); }
    return NULL;
}
static void arenas(void)
{
    char **all = malloc(200000 * sizeof *all);
    pthread_t thread;
    pthread_create(&thread, NULL, many, all);
    pthread_join(thread, NULL);
    /* As long as there is more: each join waits on a busy machine whose free memory lies in small pieces. */
    long had = 0;
    for (int i = 0; i < 600 && huge_mib() < 150; i++) {
        if (huge_mib() > had) { had = huge_mib(); i = 0; }
        rest();
    }
    printf("%ld\n", huge_mib());
    for (int i = 0; i < 200000; i++) need(all[i][999] == (char)i, "bytes are as they were");
}
static void large(void)
{
    char *at = malloc(64 * MIB);
    touch(at, 64 * MIB);
    printf("%ld\n", huge_mib());
    at = realloc(at, 100 * MIB);
    check(at, 64 * MIB);
    free(at);
    at = calloc(8 * MIB, 1);
    for (size_t i = 0; i < 8 * MIB; i++) need(at[i] == 0, "calloc gives zeros");
}
static void tiny(void)
{
    free(malloc(100000));
    need(threads() == 1, "no further thread");
    printf("%ld\n", huge_mib());
}
static void helped(void)
{
    have_helper();
#ifdef LOCAL_BYTES
    for (size_t i = 0; i < sizeof local; i++) local[i] = 1;
#endif
    printf("%ld\n", threads());
}
static void branch(void)
{
    char *at = map(64 * MIB);
    touch(at, 64 * MIB);
    have_helper();
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0) {
            check(at, 64 * MIB);
            need(threads() == 1, "a child has its own thread alone");
            memset(at, 7, 64 * MIB);
            have_helper();
            exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) < 0 || status) { fprintf(stderr, "child: %x\n", status); exit(1); }
        check(at, 64 * MIB);
    }
    puts("done");
}
static void *last(void *argument) { (void)argument; rest(); rest(); puts("last"); fflush(stdout); return NULL; }
/* The first thread ends; the process ends with the last of its own. */
static void leader(void)
{
    pthread_t thread;
    have_helper();
    pthread_create(&thread, NULL, last, NULL);
    pthread_exit(NULL);
}
static void namespaces(void)
{
    have_helper();
    printf("%d\n", unshare(CLONE_NEWUSER) == 0 ? 0 : errno);
    have_helper();
}
/* From here on whatever the helper does would be the end. */
static void filter(void)
{
    have_helper();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) fail("no new privileges");
    static const int forbidden[] = { SYS_openat, SYS_ioctl, SYS_madvise, SYS_pread64, SYS_futex, SYS_getrusage };
    struct sock_filter code[20] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)) };
    int at = 1, count = sizeof forbidden / sizeof *forbidden;
    for (int i = 0; i < count; i++) {
        code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, forbidden[i], 0, 1);
        code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    }
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = { at, code };
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program)) fail("seccomp");
    char *at_last = map(64 * MIB + 4096);
    touch(at_last, 64 * MIB);
    for (int i = 0; i < 30; i++) rest();
    write(1, "alive\n", 6);
    _exit(0);
}
/* To the program, and to the kernel, these are one mapping, although it made them one after the other. */
static void remap(void)
{
    char *place = mmap(NULL, 64 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, protection = PROT_READ | PROT_WRITE;
    need(mmap(place, 4 * MIB, protection, flags, -1, 0) == place, "the first part");
    need(mmap(place + 4 * MIB, 65536, protection, flags, -1, 0) == place + 4 * MIB, "the second part");
    touch(place, 4 * MIB + 65536);
    char *at = mremap(place, 4 * MIB + 65536, 16 * MIB, MREMAP_MAYMOVE);
    if (at == MAP_FAILED) fail("mremap");
    check(at, 4 * MIB + 65536);
    need(mremap(at, 16 * MIB, 16 * MIB, 1 << 20) == MAP_FAILED && errno == EINVAL, "a wrong flag is refused");
    puts("moved");
}
static void limit(void)
{
    long now = line_of("/proc/self/status", "VmSize:") * 1024;
    struct rlimit limit = { now + 70 * MIB, now + 70 * MIB };
    setrlimit(RLIMIT_AS, &limit);
    /* There is room for this, and none to align it. */
    size_t bytes = 69 * MIB + 4096;
    char *at = map(bytes);
    touch(at, bytes);
    need(mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED, "the limit holds");
    need(errno == ENOMEM, "and is told");
    errno = 0;
    need(malloc(64 * MIB) == NULL && errno == ENOMEM, "for malloc too");
    check(at, bytes);
    puts("kept");
}
static void errors(void)
{
    errno = 77;
    char *at = map(33 * MIB + 4096);
    char *other = malloc(40 * MIB);
    for (int i = 0; i < 40; i++) map(MIB);
    for (int i = 0; i < 100000; i++) if (!malloc(500)) exit(1);
    need(errno == 77, "errno is left alone");
    munmap(at, 33 * MIB + 4096);
    free(other);
    need(mmap(NULL, 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL, "EINVAL");
    need(mmap(NULL, SIZE_MAX - 5, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED, "too much");
    need(errno == ENOMEM, "ENOMEM");
    need(mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, 999, 0) == MAP_FAILED && errno == EBADF, "EBADF");
    puts("as they are");
}
int main(int count, char **arguments)
{
    static const struct { const char *name; void (*run)(void); } all[] = {
        { "mapping", mapping }, { "pieces", pieces }, { "heap", heap }, { "arenas", arenas }, { "large", large },
        { "tiny", tiny }, { "helped", helped }, { "branch", branch }, { "leader", leader },
        { "namespaces", namespaces }, { "filter", filter }, { "remap", remap }, { "limit", limit }, { "errors", errors },
    };
    for (size_t i = 0; count == 2 && i < sizeof all / sizeof *all; i++)
        if (!strcmp(arguments[1], all[i].name)) { all[i].run(); return 0; }
    return 2;
}
