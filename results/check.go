package results

import (
	"context"
	"fmt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/columnar"
)

// ErrDamaged means that a file no longer has the content that was written.
var ErrDamaged = columnar.ErrDamaged

// CheckFooter returns an error if the footer of a file cannot be read, for example
// because storage has lost the end of the file.
func CheckFooter(src Source) error {
	if _, err := openTable(src); err != nil {
		return fmt.Errorf("read the footer: %w", err)
	}
	return nil
}

// CheckPart reads all rows of a part. It returns an error if a row cannot be read.
func CheckPart(ctx context.Context, part Source) error {
	s, err := ReadSchema(part)
	if err != nil {
		return err
	}
	return VisitPartRows(ctx, s, []PartSource{{Source: part}}, func(*rowmill.Row, *rowmill.RowOutput) error { return nil })
}

// CheckResult reads all rows of a result file. It returns an error if a row cannot be
// read.
func CheckResult(ctx context.Context, file Source) error {
	t, err := openTable(file)
	if err != nil {
		return fmt.Errorf("read the footer: %w", err)
	}
	rows, err := newRowScan(t, namesOf(t.Columns())...)
	if err != nil {
		return err
	}
	return rows.each(ctx, 0, t.Rows(), func(*columnar.RowBlock, int) (bool, error) { return true, nil })
}
