#include "tests/bench/bench_report.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string_view>
#include <thread>

namespace onepiece::bench {
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

// Shows about three significant digits.
std::string Number(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), value >= 100 ? "%.0f" : value >= 10 ? "%.1f" : "%.3f", value);
  return text;
}

}  // namespace

double MedianOf(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

Json ToJson(const BenchReport& report) {
  Json results = Json::array();
  for (const BenchResult& result : report.results) {
    Json row = {{"name", result.name}, {"workload", result.workload}, {"metric", result.metric},
                {"unit", result.unit}, {"better", result.better},     {"ours", result.ours},
                {"peer", nullptr},     {"theirs", nullptr},           {"ratio", nullptr},
                {"runs", result.runs}};
    if (const auto& other = result.comparison; other.has_value()) {
      row["peer"] = other->peer;
      row["theirs"] = other->theirs;
      row["ratio"] = other->ratio;
    }
    for (const auto& [part, value] : result.split) row["split"][part] = value;
    results.push_back(std::move(row));
  }
  return {{"machine", Machine()}, {"results", std::move(results)}};
}

std::string ToText(const BenchReport& report) {
  const Json machine = Machine();
  std::string text = machine["cpu"].get<std::string>() + ", " +
                     std::to_string(machine["cores"].get<int>()) + " cores, " +
                     machine["system"].get<std::string>() + "\n";
  for (const BenchResult& result : report.results) {
    char line[200];
    std::snprintf(line, sizeof(line), "%-40s %12s %-10s", result.name.c_str(),
                  Number(result.ours).c_str(), result.unit.c_str());
    text += line;
    if (const auto& other = result.comparison; other.has_value()) {
      std::snprintf(line, sizeof(line), " theirs %12s  ratio %5.2f (%.2f to %.2f)",
                    Number(other->theirs).c_str(), other->ratio, other->ratio_min,
                    other->ratio_max);
      text += line;
    }
    for (const auto& [part, value] : result.split) {
      text += "  " + part + " " + Number(value);
    }
    text += "\n";
  }
  return text;
}

void Print(const BenchReport& report, bool json) {
  const std::string text = json ? ToJson(report).dump(2) + "\n" : ToText(report);
  std::fputs(text.c_str(), stdout);
}

}  // namespace onepiece::bench
