// The program's own calls, which come here first where this library was preloaded: Oclgrind tells plugins neither of queues
// nor of enqueueing and waiting. Kernels run in the program's thread, in calls that flush a queue or block for it. What such
// a call calls in turn is part of it.
namespace
{
template <typename F> F* next(const char* name)
{
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

struct Running
{
  Running(const void* queue, bool blocks)
  {
    if (depth++ == 0)
      tell(Run, queue, blocks);
  }
  Running(cl_uint count, const cl_event* events)
  {
    if (depth++ > 0)
      return;
    for (cl_uint at = 0; events && at < count; at++)
    {
      cl_command_queue queue = nullptr;
      if (clGetEventInfo(events[at], CL_EVENT_COMMAND_QUEUE, sizeof queue, &queue, nullptr) == CL_SUCCESS && queue)
        tell(Run, queue, true);
    }
  }
  ~Running()
  {
    if (--depth > 0)
      return;
    tell(Return, nullptr, 0);
    Turn turn;
    flush();
  }
};

// A command of `queue` waits for events, some of which are other queues'.
void waitsFor(cl_command_queue queue, cl_uint count, const cl_event* events)
{
  for (cl_uint at = 0; depth == 0 && events && at < count; at++)
  {
    cl_command_queue other = nullptr;
    if (clGetEventInfo(events[at], CL_EVENT_COMMAND_QUEUE, sizeof other, &other, nullptr) != CL_SUCCESS)
      continue;
    if (other && other != queue)
      tell(Depends, queue, 0, reinterpret_cast<uint64_t>(other));
  }
}

// Work-items of a group where the program leaves that to the device. Oclgrind takes one, with which a warp has one lane;
// a GPU takes what the kernel says that it needs, or some warps of neighbours. Returns whether it is known.
bool chooseGroup(cl_command_queue queue, cl_kernel kernel, size_t items, size_t* group)
{
  cl_device_id device = nullptr;
  size_t needed[3] = {0, 0, 0}, most = 0;
  if (clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof device, &device, nullptr) != CL_SUCCESS ||
      clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof needed, needed, nullptr) !=
        CL_SUCCESS ||
      clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most, nullptr) != CL_SUCCESS)
    return false;
  group[0] = std::min<size_t>(std::min<size_t>(most, 64), items);
  while (group[0] > 1 && items % group[0] > 0)
    group[0]--;
  if (needed[0] > 0)
    std::copy(needed, needed + 3, group);
  return group[0] > 0;
}
} // namespace

#define FORWARD(name, ...)                                                                                                       \
  static auto real = next<decltype(name)>(#name);                                                                                \
  return real(__VA_ARGS__)

// What the compiler said of a program that it rejected: most programs keep it to themselves.
static void showBuildLog(cl_program program)
{
  cl_device_id device = nullptr;
  size_t bytes = 0;
  if (clGetProgramInfo(program, CL_PROGRAM_DEVICES, sizeof device, &device, nullptr) != CL_SUCCESS ||
      clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &bytes) != CL_SUCCESS)
    return;
  std::vector<char> text(bytes + 1);
  if (clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, bytes, text.data(), nullptr) == CL_SUCCESS)
    fprintf(stderr, "Oclgrind rejects a program:\n%s\n", text.data());
}

extern "C"
{
cl_int clBuildProgram(cl_program program, cl_uint count, const cl_device_id* devices, const char* options,
                      void(CL_CALLBACK* notify)(cl_program, void*), void* data)
{
  static auto real = next<decltype(clBuildProgram)>("clBuildProgram");
  cl_int status = real(program, count, devices, options, notify, data);
  if (status == CL_BUILD_PROGRAM_FAILURE)
    showBuildLog(program);
  return status;
}

cl_int clFinish(cl_command_queue queue)
{
  Running running(queue, true);
  FORWARD(clFinish, queue);
}

cl_int clFlush(cl_command_queue queue)
{
  Running running(queue, false);
  FORWARD(clFlush, queue);
}

cl_int clReleaseCommandQueue(cl_command_queue queue)
{
  Running running(queue, false);
  FORWARD(clReleaseCommandQueue, queue);
}

cl_int clWaitForEvents(cl_uint count, const cl_event* events)
{
  Running running(count, events);
  FORWARD(clWaitForEvents, count, events);
}

cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocks, size_t offset, size_t bytes, void* to,
                           cl_uint waits, const cl_event* events, cl_event* event)
{
  waitsFor(queue, waits, events);
  Running running(queue, blocks);
  FORWARD(clEnqueueReadBuffer, queue, buffer, blocks, offset, bytes, to, waits, events, event);
}

cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocks, size_t offset, size_t bytes, const void* from,
                            cl_uint waits, const cl_event* events, cl_event* event)
{
  waitsFor(queue, waits, events);
  Running running(queue, blocks);
  FORWARD(clEnqueueWriteBuffer, queue, buffer, blocks, offset, bytes, from, waits, events, event);
}

void* clEnqueueMapBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocks, cl_map_flags flags, size_t offset, size_t bytes,
                         cl_uint waits, const cl_event* events, cl_event* event, cl_int* status)
{
  waitsFor(queue, waits, events);
  Running running(queue, blocks);
  FORWARD(clEnqueueMapBuffer, queue, buffer, blocks, flags, offset, bytes, waits, events, event, status);
}

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t* offset,
                              const size_t* size, const size_t* group, cl_uint waits, const cl_event* events, cl_event* event)
{
  static auto real = next<decltype(clEnqueueNDRangeKernel)>("clEnqueueNDRangeKernel");
  size_t chosen[3] = {1, 1, 1};
  if (!group && size && dimensions > 0 && chooseGroup(queue, kernel, size[0], chosen))
    group = chosen;
  waitsFor(queue, waits, events);
  depth++;
  cl_int status = real(queue, kernel, dimensions, offset, size, group, waits, events, event);
  if (--depth == 0 && status == CL_SUCCESS)
    tell(Enqueue, queue, 0);
  return status;
}

// Commands that run in a later call, unless they block. Their waiting is all that is of interest.
cl_int clEnqueueFillBuffer(cl_command_queue queue, cl_mem buffer, const void* pattern, size_t length, size_t offset,
                           size_t bytes, cl_uint waits, const cl_event* events, cl_event* event)
{
  waitsFor(queue, waits, events);
  FORWARD(clEnqueueFillBuffer, queue, buffer, pattern, length, offset, bytes, waits, events, event);
}

cl_int clEnqueueCopyBuffer(cl_command_queue queue, cl_mem from, cl_mem to, size_t offset, size_t start, size_t bytes,
                           cl_uint waits, const cl_event* events, cl_event* event)
{
  waitsFor(queue, waits, events);
  FORWARD(clEnqueueCopyBuffer, queue, from, to, offset, start, bytes, waits, events, event);
}

cl_int clEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint waits, const cl_event* events, cl_event* event)
{
  waitsFor(queue, waits, events);
  FORWARD(clEnqueueMarkerWithWaitList, queue, waits, events, event);
}

cl_int clEnqueueBarrierWithWaitList(cl_command_queue queue, cl_uint waits, const cl_event* events, cl_event* event)
{
  waitsFor(queue, waits, events);
  FORWARD(clEnqueueBarrierWithWaitList, queue, waits, events, event);
}
}
