#include "cluster/base/check.h"

#include <cstdlib>

#include "spdlog/spdlog.h"

namespace onepiece::base {

void CheckFailed(const char* condition, const char* file, int line) {
  spdlog::critical("check failed: {} at {}:{}", condition, file, line);
  spdlog::default_logger()->flush();
  std::abort();
}

}  // namespace onepiece::base
