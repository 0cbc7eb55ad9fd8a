// Commands, processes and threads that recorders find hard. ARGUMENTS: what to do, and more for some.
#include "host.h"
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *source =
    "kernel void increment(global int *data) { data[get_global_id(0)] += 1; }\n"
    "kernel void flat(global int *data) { data[get_global_id(1) * get_global_size(0) + get_global_id(0)] = 1; }\n"
    "kernel __attribute__((reqd_work_group_size(16, 1, 1))) void sixteen(global int *data) { data[get_global_id(0)] = 1; }\n"
    "kernel void atomics(global int *data) { atomic_inc(&data[get_global_id(0)]); }\n"
    "kernel void some(global int *data) { atomic_cmpxchg(&data[get_global_id(0)], (int)get_global_id(0) & 1, 5); }\n"
    "kernel void staged(global const int *data, local int *tile, global int *out) {\n"
    "    event_t event = async_work_group_copy(tile, data + 256 * get_group_id(0), 256, 0);\n"
    "    wait_group_events(1, &event);\n"
    "    out[get_global_id(0)] = tile[255 - get_local_id(0)];\n"
    "}\n"
    "kernel void picture(read_only image2d_t image, global float *out) {\n"
    "    const sampler_t sampler = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;\n"
    "    out[get_global_id(0)] = read_imagef(image, sampler, (int2)(get_global_id(0), 0)).x;\n"
    "}\n";

static cl_device_id device(void)
{
    cl_device_id device;
    check(clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof device, &device, NULL), "device");
    return device;
}

static cl_kernel kernel(const char *name, cl_mem data)
{
    cl_int status;
    cl_kernel kernel = clCreateKernel(program, name, &status);
    check(status, "kernel");
    check(clSetKernelArg(kernel, 0, sizeof data, &data), "argument");
    return kernel;
}

static void increments(int rounds)
{
    int zeros[1024] = {0};
    cl_mem data = buffer(sizeof zeros, zeros);
    cl_kernel increment = kernel("increment", data);
    for (int round = 0; round < rounds; round++)
        launch(increment, 1024, 64);
    check(clEnqueueReadBuffer(queue, data, CL_TRUE, 0, sizeof zeros, zeros, 0, NULL, NULL), "read");
    for (int at = 0; at < 1024; at++)
        if (zeros[at] != rounds)
            exit(2);
}

// A context of its own, with which no other thread has to do.
static void *alone(void *nothing)
{
    cl_int status;
    cl_platform_id platform;
    cl_device_id device;
    check(clGetPlatformIDs(1, &platform, NULL), "platform");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "device");
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &status);
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &status);
    check(clBuildProgram(program, 1, &device, "", NULL, NULL), "build");
    cl_mem data = clCreateBuffer(context, CL_MEM_READ_WRITE, 4096, NULL, &status);
    int numbers[1024] = {0};
    check(clEnqueueWriteBuffer(queue, data, CL_TRUE, 0, 4096, numbers, 0, NULL, NULL), "write");
    cl_kernel kernel = clCreateKernel(program, "increment", &status);
    check(clSetKernelArg(kernel, 0, sizeof data, &data), "argument");
    size_t items = 1024, group = 64;
    for (int round = 0; round < 8; round++) {
        check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, &group, 0, NULL, NULL), "launch");
        check(clFinish(queue), "finish");
    }
    check(clEnqueueReadBuffer(queue, data, CL_TRUE, 0, 4096, numbers, 0, NULL, NULL), "read");
    if (numbers[1023] != 8)
        exit(2);
    return NULL;
}

// A copy of another queue waits for a kernel, and the next kernel for the copy. Both are flushed at once.
static void waits(void)
{
    cl_int status;
    static int numbers[1024];
    cl_command_queue copies = clCreateCommandQueue(context, device(), 0, &status);
    check(status, "second queue");
    cl_mem data = buffer(4096, numbers);
    cl_kernel increment = kernel("increment", data);
    size_t items = 1024, group = 64;
    cl_event ran, copied;
    for (int round = 0; round < 2; round++) {
        cl_event *before = round ? &copied : NULL;
        check(clEnqueueNDRangeKernel(queue, increment, 1, NULL, &items, &group, round, before, &ran), "launch");
        check(clFlush(queue), "flush");
        check(clEnqueueReadBuffer(copies, data, CL_FALSE, 0, 4096, numbers, 1, &ran, &copied), "read");
        check(clFlush(copies), "flush");
    }
    check(clFinish(copies), "finish");
    check(clFinish(queue), "finish");
    if (numbers[0] != 2)
        exit(2);
}

int main(int argc, char **argv)
{
    const char *what = argv[1];
    size_t wide = argc > 2 ? atoi(argv[2]) : 0, high = argc > 3 ? atoi(argv[3]) : 1;
    if (!strcmp(what, "fork-first") || !strcmp(what, "fork-unused")) {
        // The child is first, and no accident of timing.
        if (!fork()) {
            start(source);
            if (what[5] == 'f')
                increments(3);
            _exit(0);
        }
        wait(NULL);
        start(source);
        increments(2);
        return 0;
    }
    if (!strcmp(what, "threads")) {
        pthread_t threads[4];
        for (int at = 0; at < 4; at++)
            pthread_create(&threads[at], NULL, alone, NULL);
        for (int at = 0; at < 4; at++)
            pthread_join(threads[at], NULL);
        return 0;
    }
    start(source);
    if (!strcmp(what, "increment"))
        increments(wide);
    else if (!strcmp(what, "waits"))
        waits();
    else if (!strcmp(what, "fork-later")) {
        pid_t child = fork();
        // Both at once, with the context that both have.
        increments(child ? 2 : 8);
        if (!child)
            _exit(0);
        waitpid(child, NULL, 0);
    } else if (!strcmp(what, "fill")) {
        char zero = 0;
        cl_mem data = buffer(wide, NULL);
        check(clEnqueueFillBuffer(queue, data, &zero, 1, 0, wide, 0, NULL, NULL), "fill");
        launch(kernel("increment", data), 64, 64);
    } else if (!strcmp(what, "picture")) {
        cl_int status;
        static float pixels[4096];
        cl_image_format format = {CL_RGBA, CL_FLOAT};
        cl_image_desc shape = {CL_MEM_OBJECT_IMAGE2D, 1024, 1};
        cl_mem image = clCreateImage(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, &format, &shape, pixels, &status);
        check(status, "image");
        cl_mem out = buffer(4096, NULL);
        cl_kernel picture = kernel("picture", image);
        check(clSetKernelArg(picture, 1, sizeof out, &out), "argument");
        launch(picture, 1024, 64);
    } else if (!strcmp(what, "staged")) {
        cl_mem data = buffer(4 * 1024, NULL), out = buffer(4 * 256, NULL);
        cl_kernel staged = kernel("staged", data);
        check(clSetKernelArg(staged, 1, 1024, NULL), "argument");
        check(clSetKernelArg(staged, 2, sizeof out, &out), "argument");
        launch(staged, 256, 64);
    } else {
        static int zeros[8192];
        size_t items[2] = {wide, high}, *group = NULL;
        cl_kernel launched = kernel(what, buffer(sizeof zeros, zeros));
        check(clEnqueueNDRangeKernel(queue, launched, 1 + (high > 1), NULL, items, group, 0, NULL, NULL), what);
        check(clFinish(queue), "finish");
    }
    return 0;
}
