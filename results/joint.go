package results

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/rowmill/rowmill/internal/columnar"
)

// A JointFile has the result of one of several jobs on one input.
type JointFile struct {
	Job  string // id of the job
	File Source // the full file or the wide file
}

// WriteJoint writes the results of several jobs as one Parquet file with the rows in the order of the
// input: the columns of the input in the first file, and then the output of each job. An output
// column has the name that it has in its file. If another column has this name, the output column
// has the id of its job as its name.
func WriteJoint(ctx context.Context, w io.Writer, files []JointFile) error {
	joint := &jointFile{}
	err := joint.open(files)
	if err == nil {
		err = joint.write(ctx, w)
	}
	if err != nil {
		return fmt.Errorf("join the results of %d jobs: %w", len(files), err)
	}
	return nil
}

// A jointFile is the joint result of several jobs.
type jointFile struct {
	columns []columnar.TableColumn
	scans   []*rowScan // of each file
	rows    int64
}

// open opens the files and chooses the columns.
func (j *jointFile) open(files []JointFile) error {
	var outputs []columnar.TableColumn
	for i, f := range files {
		t, err := openTable(f.File)
		if err != nil {
			return err
		}
		s, err := schemaOf(t)
		if err != nil {
			return err
		}
		var names []string
		if i == 0 {
			j.rows = t.Rows()
			s.Unpacked, s.Meta = nil, nil
			j.columns = slices.DeleteFunc(s.variantColumns(FileVariant{Inputs: true, Columns: AllColumns}), func(c columnar.TableColumn) bool { return c.Name == s.OutputName() })
			names = namesOf(j.columns)
		} else if t.Rows() != j.rows {
			return fmt.Errorf("job %s has %d rows and job %s has %d", files[0].Job, j.rows, f.Job, t.Rows())
		}
		scan, err := newRowScan(t, append(names, s.OutputName())...)
		if err != nil {
			return err
		}
		j.scans, outputs = append(j.scans, scan), append(outputs, scan.columns[len(names)])
	}
	uses := map[string]int{}
	for _, name := range namesOf(slices.Concat(j.columns, outputs)) {
		uses[name]++
	}
	for i, c := range outputs {
		if uses[c.Name] > 1 {
			c.Name = files[i].Job
		}
		j.columns = append(j.columns, c)
	}
	return nil
}

// write writes all rows.
func (j *jointFile) write(ctx context.Context, w io.Writer) error {
	to, err := columnar.NewTableWriter(w, j.columns, nil, columnar.TableConfig{})
	if err != nil {
		return err
	}
	for row := range j.rows {
		if row%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		first := 0
		for _, scan := range j.scans {
			if err := scan.copyRow(to, row, first); err != nil {
				return err
			}
			first += len(scan.columns)
		}
		if err := to.EndRow(); err != nil {
			return err
		}
	}
	return to.Close()
}
