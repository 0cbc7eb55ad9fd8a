// What a program without C++ loads for itself alone: a module, whose C++ library nobody else sees.
#include <new>
extern "C" int fails_and_catches(void)
{
    try {
        volatile unsigned long bytes = 1ul << 62;
        char *at = static_cast<char *>(operator new(bytes));
        at[0] = 1;
        return 1;
    } catch (const std::bad_alloc &) {
        return 0;
    }
}
