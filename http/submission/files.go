package submission

import (
	"cmp"
	"errors"
	"fmt"
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
		sub.files, sub.base = files.String(), files.Base()
	}
	sub.url = ""
}

// sinkColumn is the name of the column with the answers in the files of a sink, unless the client
// chooses another name: the files of all jobs have the same columns.
const sinkColumn = "answer"

// checkSink checks the field output: a folder of a source to which the account may write.
func (sub *Submission) checkSink(job *CheckedJob, folder string) error {
	spec, account := &job.Spec, sub.account
	sink, err := sub.Sources.FindSink(account, folder)
	names := sub.Sources.SinkNames(account)
	switch {
	case errors.Is(err, rowmill.ErrNotFound) && len(names) == 0:
		return errors.New("names a folder, but your account can write to no source; leave it out, or ask the operator for a source with write: true")
	case errors.Is(err, rowmill.ErrNotFound):
		return fmt.Errorf("must be a folder of a source, such as %s:answers/; your account can write to %s", names[0], strings.Join(names, ", "))
	case err != nil:
		return err
	}
	if err := cmp.Or(
		refuseIf(spec.Estimate, "is not for estimates, which have no results; leave it out"),
		refuseIf(spec.Limit > 0, "is for jobs that run all rows; leave limit out, or run the other rows first"),
		refuseIf(sub.ofSet, "cannot be used in a set, because all its jobs would write the same files; submit the jobs one by one"),
	); err != nil {
		return err
	}
	spec.Output = cmp.Or(spec.Output, sinkColumn)
	spec.Sink = &rowmill.Sink{Folder: sink.String(), Base: sub.base}
	return nil
}
