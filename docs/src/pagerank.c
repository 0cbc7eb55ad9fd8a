/* PageRank on a graph of argv[1] nodes with four links into each, argv[2] rounds: two OpenCL kernels and their host.
   Links come from a generator with a fixed seed, so that every run is the same. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>

/* ANCHOR: kernels */
static const char *source =
    "kernel void share(global const float *ranks, global const int *degrees, global float *shares) {\n"
    "    int node = get_global_id(0);\n"
    "    shares[node] = ranks[node] / degrees[node];\n"
    "}\n"
    "kernel void pull(global const int *starts, global const int *links, global const float *shares,\n"
    "                 global float *ranks, int nodes) {\n"
    "    int node = get_global_id(0);\n"
    "    float sum = 0;\n"
    "    for (int i = starts[node]; i < starts[node + 1]; i++)\n"
    "        sum += shares[links[i]];\n"
    "    ranks[node] = 0.15f / nodes + 0.85f * sum;\n"
    "}\n";
/* ANCHOR_END: kernels */

static cl_context context;
static cl_command_queue queue;

static void check(cl_int status, const char *what) {
    if (status != CL_SUCCESS) {
        fprintf(stderr, "%s: OpenCL error %d\n", what, status);
        exit(1);
    }
}

static cl_mem buffer(size_t bytes, const void *data) {
    cl_int status;
    cl_mem made = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &status);
    check(status, "buffer");
    if (data)
        check(clEnqueueWriteBuffer(queue, made, CL_TRUE, 0, bytes, data, 0, NULL, NULL), "write");
    return made;
}

static void launch(cl_kernel kernel, size_t items) {
    size_t group = 256;
    check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, &group, 0, NULL, NULL), "launch");
    check(clFinish(queue), "finish");
}

int main(int argc, char **argv) {
    int nodes = argc > 1 ? atoi(argv[1]) / 256 * 256 : 65536, rounds = argc > 2 ? atoi(argv[2]) : 2;
    size_t links = 4 * (size_t)nodes;
    int *start_of = malloc((nodes + 1) * sizeof(int)), *from = malloc(links * sizeof(int));
    int *degree = calloc(nodes, sizeof(int));
    float *rank = malloc(nodes * sizeof(float));
    unsigned long long state = 1;
    for (size_t i = 0; i < links; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        from[i] = (state >> 33) % nodes;
        degree[from[i]]++;
    }
    for (int node = 0; node <= nodes; node++)
        start_of[node] = 4 * node;
    for (int node = 0; node < nodes; node++) {
        degree[node] += degree[node] == 0;
        rank[node] = 1.0f / nodes;
    }

    cl_platform_id platform;
    cl_device_id device;
    cl_int status;
    check(clGetPlatformIDs(1, &platform, NULL), "platform");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "device");
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    check(status, "context");
    queue = clCreateCommandQueue(context, device, 0, &status);
    check(status, "queue");
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &status);
    check(status, "program");
    check(clBuildProgram(program, 1, &device, "", NULL, NULL), "build");
    cl_kernel share = clCreateKernel(program, "share", NULL), pull = clCreateKernel(program, "pull", NULL);

    cl_mem starts = buffer((nodes + 1) * sizeof(int), start_of), in = buffer(links * sizeof(int), from);
    cl_mem degrees = buffer(nodes * sizeof(int), degree), ranks = buffer(nodes * sizeof(float), rank);
    cl_mem shares = buffer(nodes * sizeof(float), NULL);
    cl_mem of_share[] = {ranks, degrees, shares}, of_pull[] = {starts, in, shares, ranks};
    for (int at = 0; at < 3; at++)
        clSetKernelArg(share, at, sizeof(cl_mem), &of_share[at]);
    for (int at = 0; at < 4; at++)
        clSetKernelArg(pull, at, sizeof(cl_mem), &of_pull[at]);
    clSetKernelArg(pull, 4, sizeof nodes, &nodes);
    for (int round = 0; round < rounds; round++) {
        launch(share, nodes);
        launch(pull, nodes);
    }
    check(clEnqueueReadBuffer(queue, ranks, CL_TRUE, 0, nodes * sizeof(float), rank, 0, NULL, NULL), "read");
    int best = 0;
    for (int node = 1; node < nodes; node++)
        best = rank[node] > rank[best] ? node : best;
    printf("node %d has the highest rank, %.2f times the average\n", best, rank[best] * nodes);
    return 0;
}
