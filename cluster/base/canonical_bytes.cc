#include "cluster/base/canonical_bytes.h"

#include "cluster/base/check.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace onepiece::base {

std::string CanonicalBytes(const google::protobuf::MessageLite& message) {
  // A StringOutputStream would grow and clear the string several times.
  std::string bytes(message.ByteSizeLong(), '\0');
  google::protobuf::io::ArrayOutputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeWithCachedSizes(&coded);
  coded.Trim();
  ONEPIECE_CHECK(!coded.HadError());
  return bytes;
}

}  // namespace onepiece::base
