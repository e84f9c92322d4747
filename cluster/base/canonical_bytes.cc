#include "cluster/base/canonical_bytes.h"

#include "cluster/base/check.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace onepiece::base {

std::string CanonicalBytes(const google::protobuf::MessageLite& message) {
  std::string bytes;
  {
    // The streams cut `bytes` to its length when they end.
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    ONEPIECE_CHECK(message.SerializeToCodedStream(&coded));
  }
  return bytes;
}

}  // namespace onepiece::base
