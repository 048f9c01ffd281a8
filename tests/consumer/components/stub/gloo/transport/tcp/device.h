// SPDX-License-Identifier: Apache-2.0
#ifdef BROKEN
#error broken
#endif
#include <memory>
namespace gloo::transport::tcp {
struct attr {};
inline std::shared_ptr<int> CreateDevice(attr) { return {}; }
}  // namespace gloo::transport::tcp
