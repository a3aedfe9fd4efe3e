package jobs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

func TestCompare_WritesAllRowsAsCSV(t *testing.T) {
	t.Parallel()
	s := newService(t, done)
	c := newCall(t, s)
	c.run("compare", "a", "b", "c", "--rows", "0", "--csv", "DIR/c.csv").want(t, 0, "wrote DIR/c.csv (3 rows)", "cut at 16 KiB: 1;")
	want := "row,input,job-a,job-b,job-c\n" + `0,"a, ""b""","x` + "\n" + `y",,[1.5]` + "\n1,,,,[1.5]\n2,c,z,,[1.5]\n"
	if got := string(must.Get(os.ReadFile(filepath.Join(c.dir, "c.csv")))(t)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if first := s.queries[1]; !strings.HasSuffix(first, "/jobs/compare?jobs=a%2Cb%2Cc&limit=1000") {
		t.Error(first)
	}
	c.run("compare", "a", "b", "--csv", "DIR/c.csv").want(t, 2, "exists; choose another file with --csv")
	c.run("compare", "a", "b", "--rows", "0", "--csv", "DIR/none/c.csv").want(t, 1, "write DIR/none/c.csv")
}

func TestCompare_ReadsPagesUntilItHasEnoughRows(t *testing.T) {
	t.Parallel()
	s := newService(t, done)
	c := newCall(t, s)
	c.run("compare", "a", "b", "c", "--rows", "3").want(t, 0)
	if got := c.out.String(); strings.Count(got, "\nrow ") != 3 || len(s.queries) != 3 {
		t.Errorf("%d requests:\n%s", len(s.queries), got)
	}
	c.run("compare", "a", "b", "c", "--rows", "2").want(t, 0)
	if got := c.out.String(); strings.Count(got, "\nrow ") != 2 || len(s.queries) != 5 {
		t.Errorf("%d requests:\n%s", len(s.queries), got)
	}
}
