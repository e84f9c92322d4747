#include "cluster/cli/bench_report.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string_view>
#include <thread>

namespace onepiece::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

Json Machine() {
  utsname system{};
  uname(&system);
  const auto memory = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return {{"cpu", CpuModel()},
          {"cores", std::thread::hardware_concurrency()},
          {"memory_bytes", memory},
          {"system", std::string(system.sysname) + " " + system.release}};
}

}  // namespace

Json ToJson(const BenchReport& report) {
  Json results = Json::array();
  for (const BenchResult& result : report.results) {
    Json row = {{"name", result.name}, {"workload", result.workload}, {"metric", result.metric},
                {"unit", result.unit}, {"better", result.better},     {"ours", result.ours},
                {"peer", nullptr},     {"theirs", nullptr},           {"ratio", nullptr},
                {"runs", result.runs}};
    for (const auto& [part, value] : result.split) row["split"][part] = value;
    results.push_back(std::move(row));
  }
  return {{"machine", Machine()}, {"results", std::move(results)}};
}

std::string ToText(const BenchReport& report) {
  std::string text;
  for (const BenchResult& result : report.results) {
    char line[160];
    std::snprintf(line, sizeof(line), "%-20s %12.1f %-4s", result.name.c_str(), result.ours,
                  result.unit.c_str());
    text += line;
    for (const auto& [part, value] : result.split) {
      std::snprintf(line, sizeof(line), "  %s %.1f", part.c_str(), value);
      text += line;
    }
    text += "\n";
  }
  return text;
}

}  // namespace onepiece::cli
