// C = A B of square matrices of argv[1] rows, in tiles of 16 x 16 through local memory with barriers, as in Parboil's sgemm
// (Stratton et al., 2012), written anew. The result is read through a mapping.
#include "host.h"

static const char *source =
    "kernel void sgemm(global const float *a, global const float *b, global float *c, int n) {\n"
    "    local float one[16][16], other[16][16];\n"
    "    int x = get_local_id(0), y = get_local_id(1);\n"
    "    int column = get_global_id(0), row = get_global_id(1);\n"
    "    float sum = 0;\n"
    "    for (int tile = 0; tile < n; tile += 16) {\n"
    "        one[y][x] = a[row * n + tile + x];\n"
    "        other[y][x] = b[(tile + y) * n + column];\n"
    "        barrier(CLK_LOCAL_MEM_FENCE);\n"
    "        for (int k = 0; k < 16; k++)\n"
    "            sum += one[y][k] * other[k][x];\n"
    "        barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    }\n"
    "    c[row * n + column] = sum;\n"
    "}\n";

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 64;
    float *a = malloc(4L * n * n), *b = malloc(4L * n * n);
    for (int i = 0; i < n * n; i++)
        a[i] = i % 7, b[i] = i % 5;
    start(source);
    cl_mem d_a = buffer(4L * n * n, a), d_b = buffer(4L * n * n, b), d_c = buffer(4L * n * n, NULL);
    cl_kernel kernel = clCreateKernel(program, "sgemm", NULL);
    clSetKernelArg(kernel, 0, sizeof d_a, &d_a);
    clSetKernelArg(kernel, 1, sizeof d_b, &d_b);
    clSetKernelArg(kernel, 2, sizeof d_c, &d_c);
    clSetKernelArg(kernel, 3, sizeof n, &n);
    size_t items[] = {n, n}, group[] = {16, 16};
    check(clEnqueueNDRangeKernel(queue, kernel, 2, NULL, items, group, 0, NULL, NULL), "launch");
    cl_int status;
    float *c = clEnqueueMapBuffer(queue, d_c, CL_TRUE, CL_MAP_READ, 0, 4L * n * n, 0, NULL, NULL, &status);
    check(status, "map");
    for (int row = 0; row < n; row++)
        for (int column = 0; column < n; column++) {
            float sum = 0;
            for (int k = 0; k < n; k++)
                sum += a[row * n + k] * b[k * n + column];
            if (c[row * n + column] != sum) {
                fprintf(stderr, "wrong at %d, %d\n", row, column);
                return 2;
            }
        }
    check(clEnqueueUnmapMemObject(queue, d_c, c, 0, NULL, NULL), "unmap");
    check(clFinish(queue), "finish");
    return 0;
}
