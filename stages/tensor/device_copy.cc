#include "stages/tensor/device_copy.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "stages/tensor/compute.h"

namespace onepiece::tensor {

absl::StatusOr<at::Tensor> ToDevice(const at::Tensor& host, at::Device device) {
  if (host.device() == device) return host;
  return Guarded([&]() -> absl::StatusOr<at::Tensor> {
    // A copy from one device to another has no host memory to stream from.
    if (!host.is_cpu()) return host.to(device);
    const c10::impl::VirtualGuardImpl streams(device.type());
    const c10::Stream current = streams.getStream(device);
    at::Tensor copy;
    {
      const c10::StreamGuard side(streams.getStreamFromGlobalPool(device));
      // A blocking copy waits for its own stream only.
      copy = host.to(device);
    }
    // The memory belongs to the side stream. Without this call the allocator could give it to the
    // next copy while kernels of the current stream still read it.
    copy.record_stream(current);
    return copy;
  });
}

}  // namespace onepiece::tensor
