// `onepiece-bench-console`: every page of the console with 64 GPUs, 200 rings and 10^5 jobs at ten
// snapshots a second.
#include <CLI/CLI.hpp>
#include <QApplication>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tests/bench/console/load.h"

namespace {

using namespace onepiece;

constexpr double kFrameMs = 33, kStallMs = 100;

nlohmann::json ToJson(const bench::Spread& spread) {
  return {{"p50", spread.p50_ms}, {"p95", spread.p95_ms}, {"max", spread.max_ms}};
}

const char* Verdict(const bench::PageTimes& page) {
  return page.wall.p95_ms <= kFrameMs && page.stall_ms <= kStallMs ? "pass" : "fail";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App flags{"The console's window under load", "onepiece-bench-console"};
  bench::ConsoleLoad load;
  load.scene.nodes = 198;  // 64 of them with a GPU; each has a ring, and so have the databases.
  load.scene.device_nodes = 64;
  load.scene.rings = 200;
  load.scene.jobs = 100'000;
  load.scene.audit = 1000;
  load.scene.plans = 100;
  load.scene.alerts = 50;
  bool json = false;
  flags.add_option("--jobs", load.scene.jobs, "Jobs that the session keeps")->capture_default_str();
  flags.add_option("--ticks", load.ticks, "Snapshots for each page")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  flags.add_flag("--json", json, "One document on stdout");
  CLI11_PARSE(flags, argc, argv);
  if (qEnvironmentVariableIsEmpty("QT_QPA_PLATFORM")) qputenv("QT_QPA_PLATFORM", "offscreen");
  const QApplication app(argc, argv);
  const std::vector<bench::PageTimes> pages = bench::MeasurePages(load);
  nlohmann::json results = nlohmann::json::array();
  if (!json) {
    std::printf("%-22s %6s  %21s  %21s  %9s  (limits: p95 %.0f, stall %.0f)\n", "page, ms",
                "frames", "wall p50   p95   max", "cpu p50   p95   max", "stall", kFrameMs,
                kStallMs);
  }
  for (const bench::PageTimes& page : pages) {
    results.push_back({{"page", page.page.toStdString()},
                       {"frames", page.frames},
                       {"frame_ms", ToJson(page.wall)},
                       {"frame_cpu_ms", ToJson(page.cpu)},
                       {"stall_ms", page.stall_ms},
                       {"verdict", Verdict(page)}});
    if (json) continue;
    std::printf("%-22s %6d  %9.1f %5.1f %5.1f  %9.1f %5.1f %5.1f  %9.1f  %s\n",
                page.page.toUtf8().constData(), page.frames, page.wall.p50_ms, page.wall.p95_ms,
                page.wall.max_ms, page.cpu.p50_ms, page.cpu.p95_ms, page.cpu.max_ms, page.stall_ms,
                Verdict(page));
  }
  if (json) {
    const nlohmann::json document = {
        {"limits", {{"frame_p95_ms", kFrameMs}, {"stall_ms", kStallMs}}}, {"results", results}};
    std::printf("%s\n", document.dump(2).c_str());
  }
  return 0;
}
