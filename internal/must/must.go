// Package must ends a test after an error.
package must

// A Test is a running test: a testing.TB or a *rapid.T.
type Test interface {
	Helper()
	Fatal(args ...any)
}

// Get returns a function that returns v, and ends the test if err is not nil:
// must.Get(os.ReadFile(name))(t).
func Get[T any](v T, err error) func(t Test) T {
	return func(t Test) T {
		t.Helper()
		Succeed(t, err)
		return v
	}
}

// Succeed ends the test if err is not nil.
func Succeed(t Test, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
