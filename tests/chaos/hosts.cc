#include "tests/chaos/hosts.h"

#include <sched.h>

#include <cerrno>
#include <cstring>

namespace onepiece::chaos {
namespace {

using testing::Ip;

constexpr char kSwitch[] = "switch0";
constexpr char kCable[] = "eth0";  // A host's end; the other one is port{host}.
constexpr char kNetwork[] = "10.213.8.";
constexpr int kOwnNumber = 254;

QString Port(int host) { return "port" + QString::number(host); }

}  // namespace

Hosts::~Hosts() {
  for (int host = 0; host < count_; ++host) Ip({"netns", "del", Name(host)});
}

QString Hosts::Name(int host) { return testing::NamespaceName(QString::number(host)); }

std::string Hosts::Address(int host) { return kNetwork + std::to_string(host + 1); }

bool Hosts::Make(std::string& why) {
  for (const char* program : {"ip", "nft"}) {
    if (!testing::FindProgram(program).isEmpty()) continue;
    why = std::string("there is no program ") + program;
    return false;
  }
  testing::RemoveForgottenNamespaces();
  for (int host = 0; host < count_; ++host) {
    const testing::Outcome made = Ip({"netns", "add", Name(host)});
    if (made.exit_code == 0) continue;
    why = made.err;
    return false;
  }
  if (unshare(CLONE_NEWNET) == 0) return true;
  why = std::strerror(errno);
  return false;
}

std::string Hosts::Join() {
  const QString own = QString::fromStdString(kNetwork + std::to_string(kOwnNumber)) + "/24";
  std::string errors = Ip({"link", "set", "lo", "up"}).err;
  errors += Ip({"link", "add", kSwitch, "type", "bridge"}).err;
  errors += Ip({"addr", "add", own, "dev", kSwitch}).err;
  errors += Ip({"link", "set", kSwitch, "up"}).err;
  for (int host = 0; host < count_; ++host) {
    const QString address = QString::fromStdString(Address(host)) + "/24";
    errors +=
        Ip({"link", "add", Port(host), "type", "veth", "peer", "name", kCable, "netns", Name(host)})
            .err;
    errors += Ip({"link", "set", Port(host), "master", kSwitch, "up"}).err;
    errors += Ip({"-n", Name(host), "addr", "add", address, "dev", kCable}).err;
    for (const char* link : {"lo", kCable})
      errors += Ip({"-n", Name(host), "link", "set", link, "up"}).err;
  }
  return errors;
}

std::string Hosts::SetLink(int host, bool up) {
  return Ip({"link", "set", Port(host), up ? "up" : "down"}).err;
}

std::string Hosts::Drop(int host, const QString& where, const std::string& from_or_to) {
  const bool in = where == "input";
  const QString peer = from_or_to.empty() ? QString()
                                          : QString(in ? "ip saddr " : "ip daddr ") +
                                                QString::fromStdString(from_or_to) + " ";
  return Nft(host, QString("add table inet cut; "
                           "add chain inet cut way { type filter hook %1 priority 0; }; "
                           "add rule inet cut way %2 %3 %4drop")
                       .arg(where, in ? "iif" : "oif", kCable, peer));
}

std::string Hosts::DropNothing(int host) { return Nft(host, "delete table inet cut"); }

std::string Hosts::Nft(int host, const QString& rules) {
  return Ip({"netns", "exec", Name(host), testing::FindProgram("nft"), rules}).err;
}

}  // namespace onepiece::chaos
