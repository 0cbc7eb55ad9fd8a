// Loads a module of C++ with a library that only that module sees, as Python does with its extensions.
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words)
{
    void *module = count > 1 ? dlopen(words[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*call)(void) = module ? (int (*)(void))dlsym(module, "fails_and_catches") : NULL;
    if (!call || call() != 0) return 4;
    puts("caught");
    return 0;
}
