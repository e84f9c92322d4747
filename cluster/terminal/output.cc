#include "cluster/terminal/output.h"

#include <algorithm>
#include <array>
#include <iostream>

#include "absl/strings/str_format.h"
#include "cluster/base/status.h"
#include "cluster/terminal/exit_code.h"

namespace onepiece::terminal {

void Output::Print(const Json& document, std::string_view text) const {
  if (json) {
    std::cout << document.dump(2, ' ', false, Json::error_handler_t::replace) << std::endl;
  } else if (!text.empty()) {
    std::cout << text;
    if (text.back() != '\n') std::cout << '\n';
    std::cout.flush();
  }
}

void Output::Say(std::string_view text) const {
  if (!json) std::cerr << text << std::endl;
}

int Output::Fail(const absl::Status& status) const { return Fail(status, ExitCodeOf(status)); }

int Output::Fail(const absl::Status& status, int exit_code) const {
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

int RunCommandLine(CLI::App& app, Output& output, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    // The parser may have stopped before it reached the flag, so the flag is looked for here.
    output.json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
    const int code = output.Fail(UsageError(error.what()), kUsage);
    std::cerr << "Run `onepiece --help` or `onepiece VERB --help`.\n";
    return code;
  }
  return output.action();
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

}  // namespace onepiece::terminal
