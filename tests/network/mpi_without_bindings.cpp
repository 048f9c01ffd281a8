// SPDX-License-Identifier: Apache-2.0
// MPI's old C++ bindings, which need a library of their own and warn, stay out without a flag of the user's: were they
// in, this would define a class of theirs again.
#undef OMPI_SKIP_MPICXX
#undef MPICH_SKIP_MPICXX
#include <acco/mpi.hpp>

namespace MPI {
class Comm {};
}  // namespace MPI
