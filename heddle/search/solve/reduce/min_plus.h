// Sums and minima over matrices: where the time goes, in a file of its own that is compiled for speed.
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

// Where the least stands, the first of equals. There is one.
size_t FirstLeast(const double* row, size_t size);
// out[i] += row[i] - base
void AddDifference(const double* row, double base, size_t size, double* out);
// The largest b[i] - a[i]. Where both are infinite, that is no number, and passed over.
double LargestDifference(const double* a, const double* b, size_t size);

}  // namespace heddle::search
