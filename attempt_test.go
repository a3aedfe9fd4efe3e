package rowmill_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
)

func TestTries_KeepFirstAndLast(t *testing.T) {
	t.Parallel()
	var tries rowmill.RowAttempts
	var want string
	for i := range 30 {
		tries.Add(rowmill.Attempt{Code: fmt.Sprint(i), Message: strings.Repeat("x", 100)})
		if i < 8 {
			want += fmt.Sprint(i, " ")
		} else {
			want = fmt.Sprint("0 1 2 ", i-4, " ", i-3, " ", i-2, " ", i-1, " ", i, " ")
		}
		got := ""
		for _, a := range tries.Attempts {
			got += a.Code + " "
		}
		if got != want || tries.Omitted != max(0, i-7) {
			t.Fatalf("after %d attempts Tries holds %s and omits %d, want %s", i+1, got, tries.Omitted, want)
		}
	}
	if n := tries.Bytes(); n < 8*(100+50) || n > 8*(100+200) {
		t.Errorf("%d bytes", n)
	}
	if (*rowmill.RowAttempts)(nil).Bytes() != 0 {
		t.Error("no attempts take memory")
	}
}
