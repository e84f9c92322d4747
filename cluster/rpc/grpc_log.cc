#include "cluster/rpc/grpc_log.h"

#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdint>
#include <string_view>

#include "cluster/base/clock.h"
#include "grpc/support/log.h"

namespace onepiece::rpc {
namespace {

constexpr base::Duration kBetweenLines = std::chrono::seconds(10);

std::atomic<base::MonotonicTime> next_line{};
std::atomic<std::uint64_t> left_out{0};

void Shorten(gpr_log_func_args* line) {
  if (line->severity != GPR_LOG_SEVERITY_ERROR) return;
  const base::MonotonicTime now = base::SystemClock().Now();
  base::MonotonicTime next = next_line.load();
  if (now < next || !next_line.compare_exchange_strong(next, now + kBetweenLines)) {
    ++left_out;
    return;
  }
  spdlog::warn("op=grpc left_out={} detail=\"{}\"", left_out.exchange(0),
               std::string_view(line->message).substr(0, 300));
}

}  // namespace

void KeepGrpcLogShort() {
  gpr_set_log_function(&Shorten);
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
}

void SilenceGrpcLog() {
  gpr_set_log_function([](gpr_log_func_args* /*line*/) {});
}

}  // namespace onepiece::rpc
