#include "nodemanager/simulator/workload.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cluster/base/status.h"
#include "cluster/base/utf8.h"
#include "nodemanager/simulator/random.h"

namespace onepiece::simulator {
namespace {

int DrawApp(const System& system, Random& random) {
  double left = random.Uniform();
  for (std::size_t a = 0; a + 1 < system.apps.size(); ++a) {
    left -= system.apps[a].share;
    if (left < 0) return static_cast<int>(a);
  }
  return static_cast<int>(system.apps.size()) - 1;
}

// Makes a Poisson process whose rate is `share_at(t)` times `peak`. It draws at the peak rate and
// keeps each arrival with the probability share_at(t).
std::vector<Arrival> Thin(const System& system, double duration_s, double peak, Random random,
                          const std::function<double(double)>& share_at) {
  std::vector<Arrival> arrivals;
  for (double t = random.Exponential(1 / peak); t < duration_s; t += random.Exponential(1 / peak)) {
    const double kept = random.Uniform();
    if (kept < share_at(t)) arrivals.push_back({.time_s = t, .app = DrawApp(system, random)});
  }
  return arrivals;
}

std::vector<Arrival> Bursty(const System& system, const v1::SimulationConfig& settings,
                            double rate) {
  // The peak is so high that the mean over bursts and gaps is `rate`.
  const double share = settings.burst_share();
  const double peak_over_mean =
      settings.burst_ratio() / (1 - share + share * settings.burst_ratio());
  Random switches(settings.seed(), 2, 0);
  // The history begins in a burst with the probability of being in one at any time.
  bool burst = switches.Uniform() < share;
  double until = 0;
  const auto next = [&] {
    const double gap_s = settings.burst_s() * (1 - share) / share;
    until += switches.Exponential(burst ? settings.burst_s() : gap_s);
  };
  next();
  return Thin(system, settings.duration_s(), rate * peak_over_mean, Random(settings.seed(), 1, 0),
              [&](double t) {
                while (t >= until) {
                  burst = !burst;
                  next();
                }
                return burst ? 1 : 1 / settings.burst_ratio();
              });
}

struct TraceReader {
  std::string_view name;
  const System& system;
  bool has_units = false;

  [[nodiscard]] absl::Status Bad(std::size_t line, const std::string& what) const {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_TRACE",
                           absl::StrCat(std::string(name), ":", line, ": ", what));
  }

  absl::Status ReadHeader(const std::vector<std::string>& cells) {
    has_units = cells.size() == 3 && cells[2] == "units";
    if (cells.size() >= 2 && cells[0] == "time_s" && cells[1] == "app" &&
        (cells.size() == 2 || has_units))
      return absl::OkStatus();
    return Bad(1, "the first line must be 'time_s,app,units' or 'time_s,app'");
  }

  absl::StatusOr<Arrival> ReadRow(std::size_t line, const std::vector<std::string>& cells) const {
    Arrival arrival;
    if (cells.size() != (has_units ? 3 : 2))
      return Bad(line,
                 absl::StrCat("has ", cells.size(), " cells, the header has ", has_units ? 3 : 2));
    if (!absl::SimpleAtod(cells[0], &arrival.time_s) || !std::isfinite(arrival.time_s) ||
        arrival.time_s < 0 || arrival.time_s > 366 * 86400.0)
      return Bad(line, "time_s '" + base::ToUtf8(cells[0], 40) +
                           "' is not a number of seconds from 0 to 31622400");
    const auto app = std::ranges::find(system.apps, cells[1], &App::id);
    if (app == system.apps.end())
      return Bad(line, "application '" + base::ToUtf8(cells[1], 64) + "' is not in the profile");
    arrival.app = static_cast<int>(app - system.apps.begin());
    if (has_units && (!absl::SimpleAtod(cells[2], &arrival.units) ||
                      !std::isfinite(arrival.units) || arrival.units <= 0 || arrival.units > 1e6))
      return Bad(line, "units '" + base::ToUtf8(cells[2], 40) +
                           "' is not a number above 0, at most 1000000");
    return arrival;
  }
};

}  // namespace

double OfferedRate(const System& system, const v1::SimulationConfig& settings) {
  if (settings.rate() > 0) return settings.rate();
  return settings.load() * system.devices / IdealDeviceSeconds(system);
}

absl::StatusOr<std::vector<Arrival>> MakeWorkload(std::string_view kind, const System& system,
                                                  const v1::SimulationConfig& settings) {
  const double rate = OfferedRate(system, settings);
  if (rate * settings.duration_s() > 0.9 * kMaxArrivals) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "TOO_MANY_JOBS",
                           absl::StrFormat("%.3g jobs/s for %.0f s are more than %u jobs: lower "
                                           "rate, load or duration_s",
                                           rate, settings.duration_s(), kMaxArrivals));
  }
  const Random random(settings.seed(), 1, 0);
  if (kind == "poisson")
    return Thin(system, settings.duration_s(), rate, random, [](double) { return 1.0; });
  if (kind == "bursty") return Bursty(system, settings, rate);
  if (kind == "diurnal") {
    const double a = settings.amplitude();
    const double turns = 2 * std::numbers::pi / settings.period_s();
    return Thin(system, settings.duration_s(), rate * (1 + a), random,
                [&](double t) { return (1 - a * std::cos(turns * t)) / (1 + a); });
  }
  return base::MakeError(absl::StatusCode::kInvalidArgument, "WORKLOAD_UNKNOWN",
                         "workload '" + base::ToUtf8(kind, 64) +
                             "': give poisson, bursty, diurnal, or a trace file FILE.csv");
}

absl::StatusOr<std::vector<Arrival>> ParseTrace(std::string_view text, std::string_view name,
                                                const System& system) {
  TraceReader reader{.name = name, .system = system};
  std::vector<Arrival> arrivals;
  std::size_t line = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string row(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (row.ends_with('\r')) row.pop_back();
    ++line;
    if (row.empty()) continue;
    const std::vector<std::string> cells = absl::StrSplit(row, ',');
    if (line == 1) {
      ONEPIECE_RETURN_IF_ERROR(reader.ReadHeader(cells));
      continue;
    }
    ONEPIECE_ASSIGN_OR_RETURN(const Arrival arrival, reader.ReadRow(line, cells));
    if (!arrivals.empty() && arrival.time_s < arrivals.back().time_s)
      return reader.Bad(line, "is earlier than the line before; sort the trace by time_s");
    if (arrivals.size() >= kMaxArrivals)
      return reader.Bad(line, absl::StrCat("more than ", kMaxArrivals, " jobs"));
    arrivals.push_back(arrival);
  }
  if (arrivals.empty()) return reader.Bad(std::max<std::size_t>(line, 1), "no job in the trace");
  return arrivals;
}

std::string TraceText(const System& system, const std::vector<Arrival>& arrivals) {
  std::string text = "time_s,app,units\n";
  for (const Arrival& arrival : arrivals) {
    // 17 digits bring the same number back.
    absl::StrAppendFormat(&text, "%.17g,%s,%.17g\n", arrival.time_s, system.apps[arrival.app].id,
                          arrival.units);
  }
  return text;
}

}  // namespace onepiece::simulator
