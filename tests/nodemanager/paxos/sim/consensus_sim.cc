// consensus_sim: runs one or many histories of the consensus core (docs/simulation.md).
#include <charconv>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <thread>

#include "tests/nodemanager/paxos/sim/report.h"

namespace onepiece::paxos::sim {
namespace {

constexpr const char* kHelp =
    "consensus_sim: deterministic simulation of the consensus core.\n"
    "\n"
    "  --seed N       tell one history, with its trace; 1 when it violates an invariant\n"
    "  --seeds N      tell N histories and sum them up\n"
    "  --from N       the first seed of --seeds; a fresh one without it\n"
    "  --jobs N       threads of --seeds; all cores without it\n"
    "  --mutant NAME  with something broken on purpose; \"list\" names them\n"
    "  --help         this text\n";

int Complain(const std::string& what) {
  std::cerr << "consensus_sim: " << what << ". See --help.\n";
  return 2;
}

bool ReadNumber(const std::string& text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

int TellOne(std::uint64_t seed, const NamedMutant& mutant) {
  const Outcome outcome = RunSeed(seed, mutant, &std::cout);
  if (!outcome.violation.found()) {
    std::cout << "seed " << seed << ": all is well; " << outcome.tally.delivered
              << " messages delivered, " << outcome.tally.leader_changes << " leader changes\n";
    return 0;
  }
  std::cout << Explain({seed, outcome.violation, outcome.at}, mutant) << '\n';
  return 1;
}

int TellMany(std::uint64_t from, std::uint64_t count, unsigned jobs, const NamedMutant& mutant) {
  std::cout << "seeds " << from << " and on" << std::endl;
  const Report report = RunSeeds(from, count, jobs, mutant);
  std::cout << report.Text() << '\n';
  if (!report.failure) return report.stuck.empty() && report.hopeless.empty() ? 0 : 1;
  std::cout << Explain(*report.failure, mutant) << '\n';
  return 1;
}

int Main(int argc, char** argv) {
  std::map<std::string, std::uint64_t> numbers;
  const NamedMutant* mutant = FindMutant("none");
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--help") {
      std::cout << kHelp;
      return 0;
    }
    if (i + 1 == argc) return Complain(option + " needs a value, or is unknown");
    const std::string value = argv[++i];
    if (option == "--mutant") {
      if (value == "list") {
        for (const NamedMutant& each : AllMutants()) std::cout << each.name << '\n';
        return 0;
      }
      mutant = FindMutant(value);
      if (mutant == nullptr) return Complain("no mutant is named " + value);
    } else if (option == "--seed" || option == "--seeds" || option == "--from" ||
               option == "--jobs") {
      if (!ReadNumber(value, numbers[option])) return Complain(option + " needs a number");
    } else {
      return Complain(option + " is unknown");
    }
  }
  NameSeedOnAbort();
  if (numbers.contains("--seed")) return TellOne(numbers["--seed"], *mutant);
  if (!numbers.contains("--seeds")) return Complain("--seed or --seeds is needed");
  const std::uint64_t from = numbers.contains("--from")
                                 ? numbers["--from"]
                                 : std::random_device()() * std::uint64_t{1'000'000};
  const auto jobs = numbers.contains("--jobs") ? static_cast<unsigned>(numbers["--jobs"])
                                               : std::thread::hardware_concurrency();
  return TellMany(from, numbers["--seeds"], jobs, *mutant);
}

}  // namespace
}  // namespace onepiece::paxos::sim

int main(int argc, char** argv) { return onepiece::paxos::sim::Main(argc, argv); }
