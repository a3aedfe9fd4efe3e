package contain

import (
	"errors"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	t.Parallel()
	own := errors.New("its own")
	if err := Run(func() error { return own }); !errors.Is(err, own) {
		t.Errorf("error = %v, want the error that do returned", err)
	}
	if err := Run(func() error { return nil }); err != nil {
		t.Error(err)
	}
	err := Run(func() error { var none []int; _ = none[1]; return nil })
	var caught *Panic
	if !errors.As(err, &caught) || !strings.HasPrefix(err.Error(), "panic at contain/contain_test.go:") || !strings.Contains(err.Error(), "out of range") || !strings.Contains(string(caught.Stack), "TestRun") {
		t.Errorf("%v", err)
	}
}
