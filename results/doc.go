// Package results turns finished rows into what clients download. A worker
// writes the rows of one shard as parts; the parts of a shard are merged by
// row index into one complete part; complete parts are put one behind the
// other by copying column chunks, all columns of a client's file in one pass.
// JSON and CSV are streamed from the full file.
//
//	rows ──► PartWriter ──► parts of a shard ──► Merge ──► complete part
//	                                                           │ of every shard
//	            Subset ◄── full file ◄── Concat ◄──────────────┤
//	WriteJSON, WriteCSVZip ◄─┘    "rows" file ◄── ConcatRows ◄─┘
//
// The attempts at rows that were not done at the first stand beside the columns of
// parts and of the "rows" file, and of nothing that clients download.
//
// It owns the columns of these files and reads them back row by row. It
// refuses to know where files are kept and which parts count, which is archive's,
// and Parquet itself, which is columnar's.
package results
