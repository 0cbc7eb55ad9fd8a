// Hands what an OpenCL program does to memory over to Terrace: a plugin of Oclgrind (version 21.10, -fno-rtti).
//
// It decides nothing. Every load, store and atomic of global memory, every step of a work-item from one piece of straight
// code to the next, groups, barriers, kernels, buffers, what the host reads, writes and maps, and its calls that enqueue,
// flush and wait go over a socket as records of 24 bytes, some followed by a payload. The recorder makes warps of them
// (src/opencl/).

#include <oclgrind/common.h>
#include <oclgrind/Memory.h>
#include <oclgrind/Plugin.h>
#include <oclgrind/WorkGroup.h>
#include <oclgrind/WorkItem.h>
#include <oclgrind/KernelInvocation.h>

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

// Oclgrind's Kernel.h needs the headers of LLVM, of which no more than these names is used.
namespace llvm
{
class Argument;
struct StringRef
{
  const char* data;
  size_t length;
};
} // namespace llvm

namespace oclgrind
{
class Kernel
{
public:
  TypedValueMap::const_iterator values_begin() const;
  TypedValueMap::const_iterator values_end() const;
  const llvm::Argument* getArgument(unsigned int index) const;
  unsigned int getArgumentAccessQualifier(unsigned int index) const;
  unsigned int getArgumentAddressQualifier(unsigned int index) const;
  const llvm::StringRef getArgumentName(unsigned int index) const;
  const std::string& getName() const;
  unsigned int getNumArguments() const;
};
} // namespace oclgrind

using namespace oclgrind;

#include "process.h"

namespace
{
// As src/opencl/wire.rs has them.
enum Kind : uint8_t
{
  Load = 1,
  Store,
  Enter,
  ItemEnd,
  GroupBegin,
  GroupEnd,
  Barrier,
  KernelBegin,
  KernelEnd,
  Argument,
  Allocate,
  Free,
  HostRead,
  HostWrite,
  Problem,
  Enqueue,
  Run,
  Return,
  AtomicStore,
  Depends,
};

struct Record
{
  uint8_t kind;
  uint8_t bytes;
  uint16_t context;
  uint32_t item;
  uint64_t address;
  uint32_t code;
  uint32_t count;
};
static_assert(sizeof(Record) == 24, "the recorder expects 24 bytes");

void put(const void* data, size_t bytes)
{
  const char* from = static_cast<const char*>(data);
  if (channel >= 0)
    pending.insert(pending.end(), from, from + bytes);
}

// What no context says. Without one nobody listens yet, and nothing can have been enqueued.
void tell(Kind kind, const void* queue, uint32_t item, uint64_t more = thread)
{
  if (channel < 0)
    return;
  Turn turn;
  Record record{kind, 0, 0, item, reinterpret_cast<uint64_t>(queue), uint32_t(more), uint32_t(more >> 32)};
  put(&record, sizeof record);
}

void tellProblems()
{
  for (uint32_t left = problems.exchange(0); left > 0; left--)
    tell(Problem, nullptr, 0);
}

// The instruction of a group's copy, which comes after all that its work-items have done.
const uint32_t COPY = UINT32_MAX;

// What is known of a work-item between two callbacks.
struct Item
{
  const void* block = nullptr;
  const void* leader = nullptr;
  // The instruction that a memory callback has entered already.
  const void* entered = nullptr;
  uint32_t instructions = 0;
  uint32_t number = 0;
};

class Terrace : public Plugin
{
public:
  Terrace(const Context* context) : Plugin(context), number(nextContext()) {}
  ~Terrace() override
  {
    tellProblems();
    flush();
  }

  bool isThreadSafe() const override
  {
    return false;
  }

  // One kernel at a time: records of work-items do not say which kernel they belong to.
  void kernelBegin(const KernelInvocation* invocation) override
  {
    gate().lock();
    leaveOut();
    const Kernel* kernel = invocation->getKernel();
    leaders.clear();
    codes.clear();
    for (unsigned at = 0; at < kernel->getNumArguments(); at++)
    {
      cl_uint space = kernel->getArgumentAddressQualifier(at);
      if (space != CL_KERNEL_ARG_ADDRESS_GLOBAL && space != CL_KERNEL_ARG_ADDRESS_CONSTANT)
        continue;
      // A plain pointer: an argument is a value, and its first base class.
      const void* argument = kernel->getArgument(at);
      for (auto value = kernel->values_begin(); value != kernel->values_end(); ++value)
      {
        if (value->first != argument || !value->second.data || value->second.size != sizeof(size_t))
          continue;
        llvm::StringRef name = kernel->getArgumentName(at);
        uint64_t address;
        memcpy(&address, value->second.data, sizeof address);
        // An image is described by the host.
        if (kernel->getArgumentAccessQualifier(at) != CL_KERNEL_ARG_ACCESS_NONE)
          address = reinterpret_cast<const Image*>(address)->address;
        record(Argument, 0, address, 0, name.length);
        put(name.data, name.length);
      }
    }
    Size3 groups = invocation->getNumGroups();
    const std::string& name = kernel->getName();
    record(KernelBegin, thread, uint64_t(groups.x) * groups.y * groups.z, 0, name.size());
    put(name.data(), name.size());
  }

  void kernelEnd(const KernelInvocation*) override
  {
    tellProblems();
    record(KernelEnd, 0, 0, 0, 0);
    flush();
    gate().unlock();
  }

  void workGroupBegin(const WorkGroup* group) override
  {
    runsItems = true;
    copied = 0;
    size = group->getGroupSize();
    items.assign(size.x * size.y * size.z, Item());
    for (size_t at = 0; at < items.size(); at++)
      items[at].number = at;
    current = nullptr;
    record(GroupBegin, 0, group->getGroupIndex(), 0, items.size());
  }

  void workGroupComplete(const WorkGroup*) override
  {
    record(GroupEnd, 0, 0, 0, 0);
    if (pending.size() >= 1 << 18)
      flush();
  }

  void workGroupBarrier(const WorkGroup*, uint32_t) override
  {
    record(Barrier, 0, 0, 0, 0);
    copied = 0;
    current = nullptr;
  }

  void workItemBegin(const WorkItem*) override
  {
    current = nullptr;
  }

  void workItemComplete(const WorkItem* item) override
  {
    Item& state = of(item);
    record(ItemEnd, state.number, 0, 0, state.instructions);
    state.instructions = 0;
  }

  void instructionExecuted(const WorkItem* item, const llvm::Instruction* instruction, const TypedValue&) override
  {
    Item& state = of(item);
    if (state.entered != instruction)
      enter(item, state, instruction);
    state.entered = nullptr;
    state.instructions++;
  }

  void memoryLoad(const Memory* memory, const WorkItem* item, size_t address, size_t bytes) override
  {
    access(Load, memory, item, address, bytes);
  }
  void memoryStore(const Memory* memory, const WorkItem* item, size_t address, size_t bytes, const uint8_t*) override
  {
    access(Store, memory, item, address, bytes);
  }
  void memoryAtomicLoad(const Memory* memory, const WorkItem* item, AtomicOp, size_t address, size_t bytes) override
  {
    access(Load, memory, item, address, bytes);
  }
  void memoryAtomicStore(const Memory* memory, const WorkItem* item, AtomicOp, size_t address, size_t bytes) override
  {
    access(AtomicStore, memory, item, address, bytes);
  }
  // Copies of a whole group are its work-items' in turn, an element each.
  void memoryLoad(const Memory* memory, const WorkGroup*, size_t address, size_t bytes) override
  {
    copies(Load, memory, address, bytes);
  }
  void memoryStore(const Memory* memory, const WorkGroup*, size_t address, size_t bytes, const uint8_t*) override
  {
    copies(Store, memory, address, bytes);
  }

  void memoryAllocated(const Memory* memory, size_t address, size_t bytes, cl_mem_flags flags,
                       const uint8_t* data) override
  {
    if (memory->getAddressSpace() != AddrSpaceGlobal)
      return;
    Turn turn;
    uint64_t offset = 0;
    std::string module = callSite(offset);
    uint64_t more[2] = {bytes, offset};
    record(Allocate, data != nullptr, address, uint32_t(flags), sizeof more + module.size());
    put(more, sizeof more);
    put(module.data(), module.size());
    flush();
  }
  void memoryDeallocated(const Memory* memory, size_t address) override
  {
    if (memory->getAddressSpace() != AddrSpaceGlobal)
      return;
    Turn turn;
    record(Free, 0, address, 0, 0);
    flush();
  }

  void hostMemoryLoad(const Memory* memory, size_t address, size_t bytes) override
  {
    host(HostRead, memory, address, bytes);
  }
  void hostMemoryStore(const Memory* memory, size_t address, size_t bytes, const uint8_t*) override
  {
    host(HostWrite, memory, address, bytes);
  }
  // What a host does to a mapped buffer is plain memory to it. It is taken to read all of what it maps for reading when it maps
  // it, and to write all of what it maps for writing before it unmaps it.
  void memoryMap(const Memory* memory, size_t address, size_t offset, size_t bytes, cl_map_flags flags) override
  {
    Turn turn;
    if (flags & CL_MAP_READ)
      host(HostRead, memory, address + offset, bytes);
    if (flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION))
      written[address].push_back({address + offset, bytes});
  }
  void memoryUnmap(const Memory* memory, size_t address, const void*) override
  {
    Turn turn;
    auto mapped = written.find(address);
    if (mapped == written.end())
      return;
    auto range = mapped->second.back();
    mapped->second.pop_back();
    if (mapped->second.empty())
      written.erase(mapped);
    host(HostWrite, memory, range.first, range.second);
  }

  // In any thread.
  void log(MessageType type, const char*) override
  {
    if (type == ERROR)
      problems++;
  }

private:
  uint16_t number;
  Size3 size;
  std::vector<Item> items;
  const WorkItem* current = nullptr;
  Item* state = nullptr;
  // Elements that the group has copied since its last barrier.
  size_t copied = 0;
  // The first instruction of every block that was entered, and the numbers of instructions.
  std::unordered_map<const void*, const void*> leaders;
  std::unordered_map<const void*, uint32_t> codes;
  std::unordered_map<size_t, std::vector<std::pair<size_t, size_t>>> written;

  void record(Kind kind, uint32_t item, uint64_t address, uint32_t code, uint32_t count, uint8_t bytes = 0)
  {
    Record record{kind, bytes, number, item, address, code, count};
    put(&record, sizeof record);
    if (pending.size() >= 1 << 20 && count < 32)
      flush();
  }

  uint32_t codeOf(const void* instruction)
  {
    return codes.emplace(instruction, codes.size()).first->second;
  }

  Item& of(const WorkItem* item)
  {
    if (item != current)
    {
      Size3 at = item->getLocalID();
      current = item;
      state = &items[at.x + size.x * (at.y + size.y * at.z)];
    }
    return *state;
  }

  // A piece of straight code begins with the first instruction of a block, or behind a call that has returned.
  void enter(const WorkItem* item, Item& state, const void* instruction)
  {
    const void* block = item->getCurrentBlock();
    if (block == state.block && instruction != state.leader)
      return;
    if (block != state.block)
    {
      state.block = block;
      state.leader = leaders.emplace(block, instruction).first->second;
    }
    record(Enter, state.number, 0, codeOf(instruction), 0);
  }

  void access(Kind kind, const Memory* memory, const WorkItem* item, size_t address, size_t bytes)
  {
    Item& state = of(item);
    const void* instruction = item->getCurrentInstruction();
    if (state.entered != instruction)
    {
      enter(item, state, instruction);
      state.entered = instruction;
    }
    if (memory->getAddressSpace() != AddrSpaceGlobal)
      return;
    uint32_t code = codeOf(instruction);
    for (; bytes > 0; bytes -= std::min<size_t>(bytes, 128), address += 128)
    {
      // The instruction itself is counted when it has been executed.
      record(kind, state.number, address, code, state.instructions, std::min<size_t>(bytes, 128));
      state.instructions = 0;
    }
  }

  void copies(Kind kind, const Memory* memory, size_t address, size_t bytes)
  {
    if (memory->getAddressSpace() == AddrSpaceGlobal && !items.empty())
      record(kind, copied++ % items.size(), address, COPY, 1, bytes);
  }

  void host(Kind kind, const Memory* memory, size_t address, size_t bytes)
  {
    if (memory->getAddressSpace() != AddrSpaceGlobal)
      return;
    Turn turn;
    tellProblems();
    uint64_t more = bytes;
    record(kind, thread, address, 0, sizeof more);
    put(&more, sizeof more);
    // A program may end in any way after this, and says no more then. Where the end of the call is seen, many go at once.
    if (depth == 0)
      flush();
  }

  // The innermost caller outside the OpenCL runtime and the standard library: its module, and the address in it.
  std::string callSite(uint64_t& offset)
  {
    void* frames[64];
    int count = backtrace(frames, 64);
    Dl_info own;
    dladdr(reinterpret_cast<const void*>(&flush), &own);
    for (int at = 0; at < count; at++)
    {
      Dl_info info;
      if (!dladdr(frames[at], &info) || !info.dli_fname)
        continue;
      std::string module = info.dli_fname;
      bool runtime = info.dli_fbase == own.dli_fbase;
      for (const char* part : {"liboclgrind", "libOpenCL", "libstdc++", "libc.so"})
        runtime |= module.find(part) != std::string::npos;
      if (runtime)
        continue;
      // Code of a program at fixed addresses is named by them.
      bool fixed = reinterpret_cast<uint64_t>(info.dli_fbase) == 0x400000;
      offset = reinterpret_cast<uint64_t>(frames[at]) - (fixed ? 0 : reinterpret_cast<uint64_t>(info.dli_fbase));
      return module;
    }
    return std::string();
  }
};

} // namespace

#include "calls.h"

extern "C" void initializePlugins(Context* context);
extern "C" void releasePlugins(Context* context);

namespace oclgrind
{
class Context
{
public:
  void registerPlugin(Plugin* plugin);
  void unregisterPlugin(Plugin* plugin);
};
} // namespace oclgrind

static std::unordered_map<Context*, Terrace*> plugins;

extern "C" void initializePlugins(Context* context)
{
  Turn turn;
  join();
  Terrace* plugin = new Terrace(context);
  plugins[context] = plugin;
  context->registerPlugin(plugin);
}

extern "C" void releasePlugins(Context* context)
{
  Turn turn;
  auto found = plugins.find(context);
  if (found == plugins.end())
    return;
  context->unregisterPlugin(found->second);
  delete found->second;
  plugins.erase(found);
}
