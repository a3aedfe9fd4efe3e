// Package results turns finished rows into the files that clients download. A worker
// writes the rows of a shard as parts. The parts of a shard are merged by row index
// into one complete part. The complete parts are concatenated by copying column chunks,
// in one pass per file. JSON and CSV are streamed from the full file.
//
//	rows ──► PartWriter ──► parts of a shard ──► MergeParts ──► complete part
//	                                                                │ of every shard
//	       WriteSubset ◄── full file ◄── ConcatParts ◄──────────────┤
//	WriteJSON, WriteJSONLines, ◄┘      "rows" file ◄── ConcatRows ◄─┘
//	WriteCSVZip
//
// If a row needed more than one attempt, the log of its attempts is stored beside the
// columns of parts and of the "rows" file. Files for clients do not have this log.
//
// The package defines the columns of these files and reads the files row by row. It
// does not know where files are stored or which parts count (package archive does), and
// it does not know the Parquet format (package columnar does).
package results
