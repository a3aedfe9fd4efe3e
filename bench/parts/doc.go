// Package parts compares this program's Parquet writer and reader with parquet-go:
// writing a part, merging the parts of a shard, joining complete parts and cutting
// columns. Both sides process the same rows in turns; the output is read back and
// compared. The package has only tests:
//
//	go test -run '^$' -bench . -count 5 ./bench/parts
package parts
