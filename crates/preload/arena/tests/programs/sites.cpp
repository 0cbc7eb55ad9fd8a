// Data structures of four allocation sites, for hints: by malloc, by realloc, by new, and by new[] in another thread.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

static const size_t MIB = 1 << 20;
static volatile char sink;

// What follows the call keeps it from being a jump, which would leave the caller's address.
__attribute__((noinline)) static char *by_malloc(size_t bytes)
{
    char *at = static_cast<char *>(malloc(bytes));
    sink = 1;
    return at;
}
__attribute__((noinline)) static char *by_new(size_t bytes)
{
    char *at = static_cast<char *>(operator new(bytes));
    sink = 2;
    return at;
}
__attribute__((noinline)) static char *by_array(size_t bytes)
{
    char *at = new (std::nothrow) char[bytes];
    sink = 3;
    return at;
}
static void fill(char *at, size_t bytes, char with) { for (size_t i = 0; i < bytes; i++) at[i] = static_cast<char>(with + i / 7); }
static bool holds(const char *at, size_t bytes, char with)
{
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != static_cast<char>(with + i / 7)) return false;
    return true;
}
static long huge_kib()
{
    char line[256];
    long value = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "AnonHugePages: %ld", &value);
    if (file) fclose(file);
    return value;
}
// Memory that escapes here is there: what nobody can see the compiler leaves out.
static char *volatile seen;
// 6 of 10 pages of an object of 16 MiB, in base pages; whether they are joined while it waits.
static bool joined()
{
    char *ballast = static_cast<char *>(malloc(96 * MIB));
    memset(ballast, 1, 96 * MIB);
    seen = ballast;
    char *at = by_malloc(16 * MIB);
    auto start = reinterpret_cast<char *>((reinterpret_cast<size_t>(at) + 4095) & ~4095UL);
    madvise(start, 15 * MIB, MADV_NOHUGEPAGE);
    for (size_t page = 0; page < 15 * MIB / 4096; page++)
        if (page % 10 < 6) start[page * 4096] = 5;
    madvise(start, 15 * MIB, MADV_HUGEPAGE);
    long before = huge_kib();
    bool is_joined = false;
    for (int i = 0; i < 2400 && !is_joined; i++) {
        // It looks only while the program takes faults, and starts at an allocation.
        char *more = static_cast<char *>(malloc(3 * MIB));
        memset(more, 1, 3 * MIB);
        seen = more;
        usleep(50000);
        free(more);
        is_joined = huge_kib() >= before + 8 * 1024;
    }
    for (size_t page = 0; page < 15 * MIB / 4096; page++)
        if (start[page * 4096] != (page % 10 < 6 ? 5 : 0)) return false;
    return is_joined;
}
int main(int count, char **arguments)
{
    if (count == 2 && !strcmp(arguments[1], "joined")) {
        puts(joined() ? "joined" : "not joined");
        return 0;
    }
    bool same = true;
    for (int round = 0; round < 20; round++) {
        char *first = by_malloc(8 * MIB + 100), *second = by_new(4 * MIB), *third = nullptr;
        std::thread other([&] { third = by_array(2 * MIB + 5000); });
        other.join();
        fill(first, 8 * MIB + 100, 1), fill(second, 4 * MIB, 2), fill(third, 2 * MIB + 5000, 3);
        first = static_cast<char *>(realloc(first, 12 * MIB));
        same = same && holds(first, 8 * MIB + 100, 1) && holds(second, 4 * MIB, 2) && holds(third, 2 * MIB + 5000, 3);
        first = static_cast<char *>(realloc(first, 300000));
        same = same && holds(first, 300000, 1);
        free(first);
        operator delete(second);
        delete[] third;
    }
    puts(same ? "same" : "a wrong byte");
    return !same;
}
