// Package columnar is the only place that knows Parquet. One half reads other
// people's files: File and Rows turn any column into text, safely, whatever
// the file claims about itself. The other half writes and reads the program's
// own files: Table and its kin copy column chunks byte for byte.
//
// The package knows nothing of jobs, inputs or results: it is given readers,
// writers and column names.
package columnar
