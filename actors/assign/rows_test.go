package assign

import (
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"pgregory.net/rapid"
)

// The two halves of a span have all its rows, in their order, and the requested number.
func TestSpan_Cut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.IntRange(0, 40).Draw(t, "from")
		s := RowSpan{Shard: 3, From: from, To: from + rapid.IntRange(2, 40).Draw(t, "rows")}
		if rapid.Bool().Draw(t, "has holes") {
			s.Except = RowSet{roaring.New()}
			for _, row := range rapid.SliceOfN(rapid.IntRange(s.From, s.To-1), 0, 10).Draw(t, "except") {
				s.Except.AddInt(row)
			}
		}
		if s.Count() < 2 {
			s.Except = RowSet{} // otherwise there would be nothing to cut
		}
		n := rapid.IntRange(1, s.Count()-1).Draw(t, "n")
		whole := s.Rows()
		rest, last := s.SplitLast(n)
		if last.Count() != n || rest.Count() != int(whole.GetCardinality())-n || rest.Shard != 3 || last.Shard != 3 {
			t.Fatalf("%+v cut into %+v and %+v at %d", s, rest, last, n)
		}
		if rest.Rows().Maximum() >= last.Rows().Minimum() || !roaring.Or(rest.Rows(), last.Rows()).Equals(whole) || !s.Rows().Equals(whole) {
			t.Fatalf("%v became %v and %v", whole, rest.Rows(), last.Rows())
		}
	})
}
