// The state that the parts of Client share.
#pragma once

#include <utility>

#include "cluster/client/client.h"
#include "cluster/client/proxy_set.h"

namespace onepiece::client {

class Client::Impl {
 public:
  explicit Impl(ClientOptions given) : options(std::move(given)), proxies(options) {}
  const ClientOptions options;
  ProxySet proxies;
};

}  // namespace onepiece::client
