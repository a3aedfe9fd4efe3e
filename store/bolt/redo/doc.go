// Package redo is a log in front of a bbolt file, so that a commit waits for one
// flush of a few pages in a row instead of two of pages that lie scattered. It knows
// how bbolt lays out its pages, and nothing of what is in them.
//
//	commit:   bbolt writes its pages and the page that names them, and flushes nothing
//	          ──► the log takes a copy of both, and flushes it ──► the commit is durable
//	start:    copies are put back into the file, it is flushed, the log is removed
//
// Without flushes of its own the file may hold any mixture of what was written to it
// since it was last flushed. It does not matter what: each page that was written since
// then is in the log, and is written again. What a transaction has written that never
// came to be in the log lies on pages that were free before it, and the page that names
// it is replaced.
//
// # Segments
//
// The log is two files beside the bbolt file, which take turns. When one is full the
// other is begun and the bbolt file is flushed meanwhile, after which the copies in the
// full one are not needed any more. They are filled with zeros ahead of what is written,
// so that a flush has no metadata to write.
//
//	segment    header, in the first page of 4 KiB: magic, generation, whether the segment
//	           before is needed too, hash, and the two meta pages that the file had;
//	           records, each from a multiple of 4 KiB on
//	record     magic, generation, length, hash, meta page of bbolt;
//	           page after page: number, how many it is in a row, bytes, bytes without
//	           the zeros at the end
//
// A record belongs to the segment if it has its generation and the transaction after that
// of the record before. Numbers have the byte order of the machine, as bbolt's do.
//
// # A stop
//
// Close flushes the file and removes the log: what is left is a bbolt file like any
// other. After a crash of the process alone the file is one, too. After a power cut it is
// one once Recover has been over it.
package redo
