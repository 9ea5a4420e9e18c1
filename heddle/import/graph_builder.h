// BuildGraph: converts a program from a file to a graph.
//
// A call of an op in the table becomes a node of that op, a collective of c10d becomes a collective
// of Heddle, and any other call becomes an opaque node. The file or ForeignShape states the result
// types of opaque nodes. Sizes are numbers: arithmetic with sizes is evaluated here, and a size
// read from a tensor gets the value ImportOptions::hint.
#pragma once

#include "heddle/import/import.h"
#include "heddle/import/read/program.h"

namespace heddle {

// `source` is the text to which offsets in the program refer.
Result<Imported> BuildGraph(const ForeignProgram& program, const SourceText& source,
                            const ImportOptions& options);

}  // namespace heddle
