#include <CLI/CLI.hpp>
#include <QCoreApplication>
#include <cstdio>

#include "tests/rdma_vm/program.h"

int main(int argc, char** argv) {
  using namespace onepiece::rdma_vm;
  const QCoreApplication application(argc, argv);  // The sockets need it.
  setvbuf(stdout, nullptr, _IOLBF, 0);             // Others read the logs while it runs.
  CLI::App app("The ring over a fabric, within a guest and between two");
  std::string uri, address, go;
  std::uint64_t producer_id = kKilled;
  auto* count = app.add_subcommand("count");
  auto* consume = app.add_subcommand("consume");
  auto* send = app.add_subcommand("send");
  auto* stall = app.add_subcommand("stall");
  auto* report = app.add_subcommand("report");
  for (auto* verb : {count, consume, send, stall}) verb->add_option("fabric", uri)->required();
  for (auto* verb : {send, stall, report}) verb->add_option("address", address)->required();
  stall->add_option("--producer", producer_id);
  stall->add_option("--go", go);
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);
  if (*count) return Count(uri);
  if (*consume) Consume(uri);
  if (*send) return Send(uri, address);
  if (*stall) return Stall(uri, address, producer_id, go);
  return Report(address);
}
