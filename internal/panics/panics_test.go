package panics

import (
	"errors"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	t.Parallel()
	own := errors.New("its own")
	if err := Catch(func() error { return own }); !errors.Is(err, own) {
		t.Errorf("error = %v, want the error that do returned", err)
	}
	if err := Catch(func() error { return nil }); err != nil {
		t.Error(err)
	}
	err := Catch(func() error { var none []int; _ = none[1]; return nil })
	var caught *Panic
	if !errors.As(err, &caught) || !strings.HasPrefix(err.Error(), "panic at panics/panics_test.go:") || !strings.Contains(err.Error(), "out of range") || !strings.Contains(string(caught.Stack), "TestRun") {
		t.Errorf("%v", err)
	}
}
