// Adds two vectors of argv[1] numbers.
#include "host.h"

static const char *source =
    "kernel void vecadd(global const float *a, global const float *b, global float *c) {\n"
    "    size_t i = get_global_id(0);\n"
    "    c[i] = a[i] + b[i];\n"
    "}\n";

int main(int argc, char **argv)
{
    size_t n = argc > 1 ? strtoul(argv[1], NULL, 0) : 1 << 20;
    float *numbers = malloc(n * sizeof *numbers);
    for (size_t i = 0; i < n; i++)
        numbers[i] = i;
    start(source);
    cl_mem a = buffer(4 * n, numbers), b = buffer(4 * n, numbers), c = buffer(4 * n, NULL);
    cl_kernel kernel = clCreateKernel(program, "vecadd", NULL);
    clSetKernelArg(kernel, 0, sizeof a, &a);
    clSetKernelArg(kernel, 1, sizeof b, &b);
    clSetKernelArg(kernel, 2, sizeof c, &c);
    launch(kernel, n, 256);
    check(clEnqueueReadBuffer(queue, c, CL_TRUE, 0, 4 * n, numbers, 0, NULL, NULL), "read");
    for (size_t i = 0; i < n; i++)
        if (numbers[i] != 2.0f * i) {
            fprintf(stderr, "wrong sum at %zu\n", i);
            return 2;
        }
    clReleaseMemObject(a), clReleaseMemObject(b), clReleaseMemObject(c);
    return 0;
}
