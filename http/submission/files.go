package submission

import (
	"errors"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/input/sources"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// findSourceFiles recognises inputs of the form NAME:PATTERN, which name files of a source that the
// account may read. If they cannot be used, findSourceFiles adds a problem. For an account without
// sources, such inputs are a URL that is not valid.
func (sub *Submission) findSourceFiles(account string) {
	name, _, ok := sources.SplitName(sub.url)
	names := sub.Sources.Names(account)
	if !ok || len(names) == 0 {
		return
	}
	files, err := sub.Sources.Find(account, sub.url)
	switch {
	case errors.Is(err, rowmill.ErrNotFound):
		sub.problems.Add(fieldInputs, "names the source %q, which does not exist; your account can read %s", textfmt.Shorten(name, 64), strings.Join(names, ", "))
	case err != nil:
		sub.problems.Add(fieldInputs, "names no files of the source %s: %s", name, err)
	default:
		sub.files = files.String()
	}
	sub.url = ""
}
