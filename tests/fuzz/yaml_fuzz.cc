// Gives any text to ParseYaml, for a message with nesting, lists, enums and numbers of every size.
#include <cstdint>

#include "cluster/base/check.h"
#include "cluster/config/yaml.h"
#include "google/protobuf/descriptor.pb.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  google::protobuf::FileDescriptorProto message;
  const absl::Status status = onepiece::config::ParseYaml(
      {reinterpret_cast<const char*>(data), size}, "fuzz.yaml", &message);
  // An error names the place, and leaves the message empty.
  ONEPIECE_CHECK(status.ok() || onepiece::base::GetReason(status).reason == "BAD_CONFIG");
  ONEPIECE_CHECK(status.ok() || onepiece::base::Message(status).starts_with("fuzz.yaml:"));
  ONEPIECE_CHECK(status.ok() || message.ByteSizeLong() == 0);
  return 0;
}
