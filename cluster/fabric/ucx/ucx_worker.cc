#include "cluster/fabric/ucx/ucx_worker.h"

#include <poll.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "spdlog/spdlog.h"

namespace onepiece::fabric {
namespace {

// The library installs handlers for these signals when it is loaded, even in programs that never
// open this fabric. The program itself handles a crash and a hang-up.
const bool kSignalsAreOurs = [] {
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGHUP}) {
    ucs_debug_disable_signal(signal);
  }
  return true;
}();

struct Setting {
  const char* name;
  const char* value;
};
// The backend's promises rest on these settings. UCX_* variables may set everything else.
constexpr Setting kSettings[] = {
    {"TLS", "tcp"},                 // Never UCX's own shared memory, whose keys protect nothing.
    {"PROTO_ENABLE", "n"},          // One lane, one TCP stream, in order.
    {"KEEPALIVE_INTERVAL", "inf"},  // Channels have deadlines; an idle connection costs nothing.
    {"CONN_NB", "y"},               // A connect() must not hold up everybody else.
    {"TX_SEG_SIZE", "128k"},        // A chunk and its header are one segment.
    {"RX_SEG_SIZE", "128k"},
};

// Silences the library, which would write to the standard output of the program. Its errors, for
// instance a peer that went away, come back as statuses as well.
ucs_log_func_rc_t LogHandler(const char* /*file*/, unsigned /*line*/, const char* /*function*/,
                             ucs_log_level_t level, const ucs_log_component_config_t* component,
                             const char* format, va_list arguments) {
  if (level > component->log_level) return UCS_LOG_FUNC_RC_STOP;
  char text[512];
  std::vsnprintf(text, sizeof text, format, arguments);
  const bool fatal = level == UCS_LOG_LEVEL_FATAL;
  spdlog::log(fatal ? spdlog::level::critical : spdlog::level::debug, "ucx: {}", text);
  return UCS_LOG_FUNC_RC_STOP;
}

absl::Status Modify(ucp_config_t* config, const std::string& devices) {
  for (const auto& [name, value] : kSettings) {
    const ucs_status_t status = ucp_config_modify(config, name, value);
    if (status != UCS_OK) return UcxError(name, status);
  }
  const ucs_status_t status = ucp_config_modify(config, "NET_DEVICES", devices.c_str());
  return status == UCS_OK ? absl::OkStatus() : UcxError("NET_DEVICES", status);
}

}  // namespace

absl::Status UcxError(const char* what, ucs_status_t status) {
  const bool full = status == UCS_ERR_NO_MEMORY || status == UCS_ERR_EXCEEDS_LIMIT;
  return base::MakeError(full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal,
                         full ? "UCX_EXHAUSTED" : "UCX_FAILED",
                         std::string(what) + ": " + ucs_status_string(status));
}

absl::StatusOr<std::shared_ptr<UcxContext>> UcxContext::Open(const std::string& devices) {
  static std::once_flag logs_are_ours;
  std::call_once(logs_are_ours, [] { ucs_log_push_handler(LogHandler); });
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return UcxError("ucp_config_read", status);
  // ucp_config_read has taken the UCX_* variables. The backend's own settings come later and win.
  absl::Status modified = Modify(config, devices);
  ucp_context_h context = nullptr;
  if (modified.ok()) {
    ucp_params_t params{};
    params.field_mask =
        UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    // Different threads move the workers of one context.
    params.mt_workers_shared = 1;
    params.name = "onepiece";
    status = ucp_init(&params, config, &context);
  }
  ucp_config_release(config);
  ONEPIECE_RETURN_IF_ERROR(modified);
  if (status != UCS_OK) {
    return base::MakeError(
        absl::StatusCode::kInvalidArgument, "BAD_FABRIC_URI",
        "UCX cannot use the network interface " + devices + ": " + ucs_status_string(status));
  }
  return std::shared_ptr<UcxContext>(new UcxContext(context));
}

absl::StatusOr<std::unique_ptr<UcxWorker>> UcxWorker::Create(std::shared_ptr<UcxContext> context) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  params.flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK;  // A broken link gives its requests up.
  ucp_worker_h worker = nullptr;
  // UCX tells nobody which sockets it opens. One worker at a time, so that none takes another's.
  static base::Mutex mutex;
  const base::MutexLock lock(mutex);
  const std::vector<ListeningSocket> before = ListeningSocketsOfThisProcess();
  ucs_status_t status = ucp_worker_create(context->get(), &params, &worker);
  if (status != UCS_OK) return UcxError("ucp_worker_create", status);
  int fd = -1;
  status = ucp_worker_get_efd(worker, &fd);
  if (status != UCS_OK) {
    ucp_worker_destroy(worker);
    return UcxError("ucp_worker_get_efd", status);
  }
  std::unique_ptr<UcxWorker> made(new UcxWorker(std::move(context), worker, fd, {}));
  ONEPIECE_ASSIGN_OR_RETURN(const std::string address, made->Address());
  for (const ListeningSocket& socket : ListeningSocketsOfThisProcess()) {
    // Another thread may have opened a port for something else meanwhile. UCX's is in the address.
    const char port[] = {static_cast<char>(socket.port >> 8), static_cast<char>(socket.port)};
    const bool named = address.find(std::string_view(port, sizeof port)) != std::string::npos;
    if (named && std::ranges::find(before, socket) == before.end()) made->ports_.push_back(socket);
  }
  return made;
}

void UcxWorker::AdmitOnly(const std::vector<std::string>& sources) {
  for (const ListeningSocket& port : ports_) fabric::AdmitOnly(port, sources);
}

void UcxWorker::StopAccepting() {
  for (const ListeningSocket& port : ports_) Deafen(port);
  ports_.clear();
}

absl::StatusOr<std::string> UcxWorker::Address() const {
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
  attributes.address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY;
  const ucs_status_t status = ucp_worker_query(worker_, &attributes);
  if (status != UCS_OK) return UcxError("ucp_worker_query", status);
  std::string address(reinterpret_cast<const char*>(attributes.address), attributes.address_length);
  ucp_worker_release_address(worker_, attributes.address);
  return address;
}

void UcxWorker::Handle(unsigned message, ucp_am_recv_callback_t handler, void* argument) {
  ucp_am_handler_param_t params{};
  params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  params.id = message;
  params.flags = UCP_AM_FLAG_WHOLE_MSG;
  params.cb = handler;
  params.arg = argument;
  ucp_worker_set_am_recv_handler(worker_, &params);
}

void UcxWorker::Wait(base::Duration limit) {
  if (limit <= base::Duration::zero() || !Arm()) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const timespec relative{.tv_sec = seconds.count(), .tv_nsec = (limit - seconds).count()};
  pollfd poll_fd{.fd = fd_, .events = POLLIN, .revents = 0};
  ppoll(&poll_fd, 1, &relative, nullptr);
}

}  // namespace onepiece::fabric
