// What the test programs share: a context, a program from source, buffers.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>

static cl_context context;
static cl_command_queue queue;
static cl_program program;

static void check(cl_int status, const char *what)
{
    if (status != CL_SUCCESS) {
        fprintf(stderr, "%s: OpenCL error %d\n", what, status);
        exit(1);
    }
}

static void start(const char *source)
{
    cl_platform_id platform;
    cl_device_id device;
    cl_int status;
    check(clGetPlatformIDs(1, &platform, NULL), "platform");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "device");
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    check(status, "context");
    queue = clCreateCommandQueue(context, device, 0, &status);
    check(status, "queue");
    program = clCreateProgramWithSource(context, 1, &source, NULL, &status);
    check(status, "program");
    check(clBuildProgram(program, 1, &device, "", NULL, NULL), "build");
}

static cl_mem buffer(size_t bytes, const void *data)
{
    cl_int status;
    cl_mem made = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &status);
    check(status, "buffer");
    if (data)
        check(clEnqueueWriteBuffer(queue, made, CL_TRUE, 0, bytes, data, 0, NULL, NULL), "write");
    return made;
}

static void launch(cl_kernel kernel, size_t items, size_t group)
{
    check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, &group, 0, NULL, NULL), "launch");
    check(clFinish(queue), "finish");
}
