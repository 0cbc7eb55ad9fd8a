// A program that counts its objects by operators of its own: `new` and the plain `delete` alone, as is usual. The C++ library's other
// operators call these two.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

static long objects;
void *operator new(std::size_t bytes)
{
    auto *head = static_cast<std::size_t *>(std::malloc(bytes + 16));
    if (!head) throw std::bad_alloc();
    head[0] = 0x5eed;
    objects++;
    return head + 2;
}
void operator delete(void *at) noexcept
{
    if (!at) return;
    auto *head = static_cast<std::size_t *>(at) - 2;
    if (head[0] != 0x5eed) std::abort();
    objects--;
    std::free(head);
}
int main()
{
    long before = objects;
    {
        std::vector<std::string> all;
        for (int i = 0; i < 1000; i++) all.push_back("longer than what lies within a string: " + std::to_string(i));
        auto one = std::make_unique<int[]>(5000);
        delete[] new (std::nothrow) int[1000];
        delete new double;
        one[0] = 1;
        if (objects - before < 1000) return 5;
    }
    std::printf("%ld\n", objects - before);
    return 0;
}
