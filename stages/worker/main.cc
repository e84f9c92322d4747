// onepiece-worker: computes stages on one device, for the instance that started it.
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>

#include "cluster/base/logging.h"
#include "stages/worker/worker_server.h"

int main(int argc, char** argv) {
  using namespace onepiece;
  struct stat about {};
  if (argc != 2 || ::fstat(worker::kControlFd, &about) != 0 || !S_ISSOCK(about.st_mode)) {
    std::fprintf(stderr,
                 "onepiece-worker is started by onepiece-instance, for each of its devices; "
                 "see `onepiece-instance --help`.\n");
    return 2;
  }
  if (const int core = std::atoi(argv[1]); core >= 0) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (::sched_setaffinity(0, sizeof one, &one) != 0) std::perror("onepiece-worker: core");
  }
  base::InitLogging("worker");
  worker::Serve(worker::PacketSocket(worker::FileDescriptor(worker::kControlFd)));
}
