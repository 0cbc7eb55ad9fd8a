// A kernel runs in one queue while another uploads. ARGUMENT: the bytes that are uploaded beside the kernel.
#include "host.h"

static const char *source = "__kernel void count(__global int *sums)\n"
                            "{\n"
                            "    sums[get_global_id(0)] += 1;\n"
                            "}\n";

int main(int argc, char **argv)
{
    size_t bytes = atoi(argv[1]), items = 1024, group = 64;
    cl_int status;
    start(source);
    cl_device_id device;
    check(clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof device, &device, NULL), "devices");
    cl_command_queue uploads = clCreateCommandQueue(context, device, 0, &status);
    check(status, "second queue");
    int *data = calloc(1, bytes > 4096 ? bytes : 4096);
    cl_mem sums = buffer(4 * items, data), next = buffer(bytes, NULL);
    cl_kernel kernel = clCreateKernel(program, "count", &status);
    check(status, "kernel");
    check(clSetKernelArg(kernel, 0, sizeof sums, &sums), "argument");
    for (int round = 0; round < 2; round++) {
        check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, &group, 0, NULL, NULL), "launch");
        check(clFlush(queue), "flush");
        check(clEnqueueWriteBuffer(uploads, next, CL_TRUE, 0, bytes, data, 0, NULL, NULL), "upload");
        check(clFinish(queue), "finish");
    }
    // As most programs do.
    launch(kernel, items, group);
    check(clEnqueueReadBuffer(queue, sums, CL_TRUE, 0, 4 * items, data, 0, NULL, NULL), "read");
    return data[items - 1] == 3 ? 0 : 1;
}
