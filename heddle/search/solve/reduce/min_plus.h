// Sums and minima over matrices. They take most of the time, so this file is compiled for speed.
#pragma once

#include <cstddef>

namespace heddle::search {

// out[c] = min over r of add[r] + matrix[r][c].
void MinOverRows(const double* matrix, size_t rows, size_t columns, const double* add, double* out);
// out[r] = min over c of add[c] + matrix[r][c].
void MinOverColumns(const double* matrix, size_t rows, size_t columns, const double* add,
                    double* out);
// out[r][c] = min over k of a[k][r] + add[k] + b[k][c].
void MinOverInner(const double* a, const double* b, size_t inner, size_t rows, size_t columns,
                  const double* add, double* out);

// Returns the index of the minimum, the first of equals. `size` must not be 0.
size_t FirstLeast(const double* row, size_t size);
// out[i] += row[i] - base
void AddDifference(const double* row, double base, size_t size, double* out);
// Returns the largest b[i] - a[i], ignoring entries where both are infinite.
double LargestDifference(const double* a, const double* b, size_t size);

}  // namespace heddle::search
