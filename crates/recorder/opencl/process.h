// Which process writes to the recorder, and which of its threads: records of two must not mix.
//
// One process is recorded at a time: it holds a lock of the file that all processes share, which the kernel gives back when
// the process ends. The file says how many contexts there were, so that a later process counts on. A process that was
// forked is never recorded, unless it executes another program: which one came first would be left to chance.
namespace
{
struct Shared
{
  uint32_t contexts;
  // Whether a process that is not recorded started a kernel.
  uint32_t leftOut;
};

std::atomic<int> channel{-1};
int shared = -1;
uint16_t contexts = 0;
std::vector<char> pending;
bool asked = false;
bool forked = false;
bool leavesOut = false;
// Mistakes that nobody has been told of yet.
std::atomic<uint32_t> problems{0};

// Depth of calls that came here first.
thread_local int depth = 0;
// A thread of Oclgrind that runs work-items, while the program's thread waits for it.
thread_local bool runsItems = false;
std::atomic<uint32_t> threads{0};
thread_local const uint32_t thread = ++threads;

// Held while a record is written, and by the thread that runs a kernel from its beginning to its end.
std::recursive_mutex& gate()
{
  static std::recursive_mutex* made = new std::recursive_mutex;
  return *made;
}

struct Turn
{
  Turn()
  {
    if (!runsItems)
      gate().lock();
  }
  ~Turn()
  {
    if (!runsItems)
      gate().unlock();
  }
};

void flush()
{
  size_t sent = 0;
  while (channel >= 0 && sent < pending.size())
  {
    ssize_t now = send(channel, pending.data() + sent, pending.size() - sent, MSG_NOSIGNAL);
    if (now >= 0)
      sent += now;
    else if (errno != EINTR)
      channel = -1; // Nobody listens any more: the program goes on unrecorded.
  }
  pending.clear();
}

// Other threads of the parent may have been in the middle of a record, with the lock.
void afterFork()
{
  new (&gate()) std::recursive_mutex;
  new (&pending) std::vector<char>;
  forked = true;
  if (channel < 0)
    return;
  // The number stays taken, for no other file must get it; the recording ends with the parent.
  int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nothing >= 0)
  {
    dup2(nothing, channel);
    close(nothing);
  }
  channel = -1;
  leavesOut = true;
}

__attribute__((constructor)) void watchForks()
{
  pthread_atfork(nullptr, nullptr, afterFork);
}

// Asks to be the process that is recorded, when the first context is made.
void join()
{
  if (asked)
    return;
  asked = true;
  const char* number = getenv("TERRACE_OPENCL_CHANNEL");
  const char* file = getenv("TERRACE_OPENCL_SHARED");
  if (!number || !file)
    return;
  shared = atoi(file);
  int kind;
  socklen_t bytes = sizeof kind;
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  leavesOut = forked || fcntl(shared, F_SETLK, &whole) != 0 ||
              getsockopt(atoi(number), SOL_SOCKET, SO_TYPE, &kind, &bytes) != 0;
  uint32_t before = 0;
  if (leavesOut || pread(shared, &before, sizeof before, offsetof(Shared, contexts)) < 0)
    return;
  contexts = before;
  channel = atoi(number);
}

// The number of a new context.
uint16_t nextContext()
{
  uint32_t number = contexts++, after = contexts;
  if (channel >= 0 && pwrite(shared, &after, sizeof after, offsetof(Shared, contexts)) < 0)
    channel = -1;
  return number;
}

// A kernel starts in a process that is not recorded.
void leaveOut()
{
  uint32_t one = 1;
  if (leavesOut && pwrite(shared, &one, sizeof one, offsetof(Shared, leftOut)) == sizeof one)
    leavesOut = false;
}
} // namespace
