#include "cluster/base/logging.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "nlohmann/json.hpp"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

namespace onepiece::base {
namespace {

// One JSON object a line; the JSON library escapes what the message quotes from strangers.
class JsonFormatter final : public spdlog::formatter {
 public:
  explicit JsonFormatter(std::string node) : node_(std::move(node)) {}

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    spdlog::memory_buf_t time;
    time_.format(message, time);
    const auto level = spdlog::level::to_string_view(message.level);
    const nlohmann::ordered_json line = {
        {"ts", std::string(time.data(), time.size())},
        {"level", std::string(level.data(), level.size())},
        {"node", node_},
        {"message", std::string(message.payload.data(), message.payload.size())}};
    const std::string text =
        line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    out.append(text.data(), text.data() + text.size());
  }

  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>(node_);
  }

 private:
  std::string node_;
  spdlog::pattern_formatter time_{"%Y-%m-%dT%H:%M:%S.%e%z", spdlog::pattern_time_type::utc, ""};
};

}  // namespace

void InitLogging(std::string_view node) {
  auto logger = std::make_shared<spdlog::logger>(
      std::string(node), std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  if (isatty(STDERR_FILENO) != 0) {
    logger->set_pattern("%H:%M:%S.%e %^%l%$ %n: %v");
  } else {
    logger->set_formatter(std::make_unique<JsonFormatter>(std::string(node)));
  }
  const char* level = std::getenv("ONEPIECE_LOG_LEVEL");
  logger->set_level(level != nullptr ? spdlog::level::from_str(level) : spdlog::level::info);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

void LogWarning(std::string_view line) { spdlog::warn(line); }

}  // namespace onepiece::base
