// BuildGraph: from a program as a file states it to a graph, with the table of ops, its shape rules and its names.
//
// A call of an op of the table becomes a node of it, a collective of c10d a collective of Heddle, and anything else an opaque node,
// whose result types the file or ForeignShape states. Sizes are numbers: what a program computes of sizes is computed here, and what it
// reads from a tensor is taken for ImportOptions::hint.
#pragma once

#include "heddle/import/import.h"
#include "heddle/import/read/program.h"

namespace heddle {

// `source` is the text that offsets of the program point into.
Result<Imported> BuildGraph(const ForeignProgram& program, const SourceText& source,
                            const ImportOptions& options);

}  // namespace heddle
