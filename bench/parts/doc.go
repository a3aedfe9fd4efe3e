// Package parts measures this program's own Parquet writer and reader beside
// parquet-go: writing a part, merging the parts of a shard, joining complete
// parts and cutting columns. Both sides work on the same rows in turns, and
// what they write is read back and compared. It has no code beside its tests:
//
//	go test -run '^$' -bench . -count 5 ./bench/parts
package parts
