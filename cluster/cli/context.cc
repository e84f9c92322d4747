#include "cluster/cli/context.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "absl/strings/str_format.h"
#include "cluster/base/status.h"
#include "cluster/local/control.h"

namespace onepiece::cli {

std::string ExitCodesHelp() {
  return "Exit codes:\n"
         "  0 ok                    5 permission\n"
         "  1 failure              69 cluster unavailable\n"
         "  2 usage                75 deadline, or retry later\n"
         "  3 not found            78 bad configuration\n"
         "  4 precondition        130 interrupted\n"
         "\nEnvironment: ONEPIECE_DATA_DIR, ONEPIECE_NODEMANAGER, ONEPIECE_PROXIES, "
         "ONEPIECE_BIN_DIR,\n"
         "ONEPIECE_RESOURCE_DIR, ONEPIECE_TIME_SCALE (multiplies every timeout), "
         "ONEPIECE_LOG_LEVEL. Flags go before "
         "variables.";
}

int ExitCodeOf(const absl::Status& status) {
  const std::string reason = base::GetReason(status).reason;
  if (reason == "INTERRUPTED") return kInterrupted;
  if (reason == "BAD_CONFIG" || reason == "BAD_WORKFLOW") return kBadConfig;
  if (reason == "DEADLINE_TOO_SHORT") return kRetryLater;
  if (reason == "DISK_FULL" || reason == "START_FAILED") return kFailure;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return kUsage;
    case absl::StatusCode::kNotFound:
      return kNotFound;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kAlreadyExists:
      return kPrecondition;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kPermission;
    case absl::StatusCode::kUnavailable:
      return kUnavailable;
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
      return kRetryLater;
    default:
      return kFailure;
  }
}

absl::StatusOr<std::unique_ptr<client::Client>> Context::MakeClient() const {
  client::Options options;
  options.nodemanagers = nodemanagers;
  options.proxies = proxies;
  if (options.nodemanagers.empty() && options.proxies.empty()) {
    ONEPIECE_ASSIGN_OR_RETURN(const local::ClusterState state, local::FindCluster(data_dir));
    options.nodemanagers = state.nodemanagers;
    // The supervisor knows them too: no job waits for the NodeManager to have a leader.
    for (const local::ProcessRecord& record : state.processes) {
      if (record.role == "proxy" && !record.address.empty())
        options.proxies.push_back(record.address);
    }
  }
  return std::make_unique<client::Client>(options);
}

absl::StatusOr<std::unique_ptr<client::Client>> Context::MakeManagerClient() const {
  if (!nodemanagers.empty() || proxies.empty()) return MakeClient();
  const auto state = local::FindCluster(data_dir);
  if (!state.ok()) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "NO_NODEMANAGER",
                           "this verb asks the NodeManager, and only proxies are given: add "
                           "--nodemanager HOST:PORT (" +
                               base::Message(state.status()) + ")");
  }
  client::Options options;
  options.nodemanagers = state->nodemanagers;
  options.proxies = proxies;
  return std::make_unique<client::Client>(options);
}

void Context::Print(const Json& document, std::string_view text) const {
  if (json) {
    std::cout << document.dump(2, ' ', false, Json::error_handler_t::replace) << std::endl;
  } else if (!text.empty()) {
    std::cout << text;
    if (text.back() != '\n') std::cout << '\n';
    std::cout.flush();
  }
}

void Context::Say(std::string_view text) const {
  if (!json) std::cerr << text << std::endl;
}

int Context::Fail(const absl::Status& status) const { return Fail(status, ExitCodeOf(status)); }

int Context::Fail(const absl::Status& status, int exit_code) const {
  std::cerr << "onepiece: " << base::Message(status) << std::endl;
  if (json) {
    Print({{"error",
            {{"code", absl::StatusCodeToString(status.code())},
             {"reason", base::GetReason(status).reason},
             {"message", base::Message(status)},
             {"metadata", base::GetReason(status).metadata}}}},
          "");
  }
  return exit_code;
}

ProgressBar::ProgressBar(const Context& context) {
  const char* terminal = std::getenv("TERM");
  const bool dumb = terminal == nullptr || std::string_view(terminal) == "dumb";
  enabled_ = !context.json && !dumb && isatty(STDERR_FILENO) == 1;
}

ProgressBar::~ProgressBar() { Erase(); }

void ProgressBar::Show(double share, std::string_view what) {
  if (!enabled_) return;
  constexpr int kWidth = 30;
  const int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * kWidth);
  const std::string bar = std::string(static_cast<std::size_t>(filled), '#') +
                          std::string(static_cast<std::size_t>(kWidth - filled), '.');
  std::cerr << "\r\x1b[K[" << bar << "] " << what << std::flush;
  drawn_ = true;
}

void ProgressBar::Erase() {
  if (drawn_) std::cerr << "\r\x1b[K" << std::flush;
  drawn_ = false;
}

Interrupt::Interrupt()
    : thread_([this](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          if (!signals_.WaitFor(std::chrono::milliseconds(100)).has_value()) continue;
          if (source_.stop_requested()) _exit(kInterrupted);
          source_.request_stop();
        }
      }) {}

CLI::App* AddManagerVerb(CLI::App& parent, Context& context, const std::string& name,
                         const std::string& help, std::function<int(client::Client& client)> run) {
  CLI::App* verb = parent.add_subcommand(name, help);
  verb->callback([&context, run = std::move(run)] {
    context.action = [&context, run] {
      const auto client = context.MakeManagerClient();
      return client.ok() ? run(**client) : context.Fail(client.status());
    };
  });
  return verb;
}

std::string HumanBytes(std::int64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.*f %s", unit == 0 ? 0 : 1, value, kUnits[unit]);
}

}  // namespace onepiece::cli
