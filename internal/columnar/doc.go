// Package columnar is the only package that knows the Parquet format. One half reads
// files that users bring: File and Rows turn any column into text, and stay within
// their limits whatever sizes the file claims. The other half writes and reads the
// program's own files: Table, TableWriter and Splicer copy column chunks byte for byte.
//
// The package does not know jobs, inputs or results. It works on readers, writers and
// column names.
package columnar
