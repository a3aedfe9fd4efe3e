package results

import (
	"context"
	"fmt"

	"github.com/rowmill/rowmill"
)

// CheckFooter returns an error if the footer of a file cannot be read, for example
// because storage has only the first half of the file.
func CheckFooter(src Source) error {
	if _, err := open(src); err != nil {
		return fmt.Errorf("read the footer: %w", err)
	}
	return nil
}

// CheckPart reads all rows of a part, and returns an error if one cannot be read.
func CheckPart(ctx context.Context, part Source) error {
	s, err := ReadSchema(part)
	if err != nil {
		return err
	}
	return EachOfParts(ctx, s, []PartSource{{Source: part}}, func(*rowmill.Row, *rowmill.Output) error { return nil })
}
