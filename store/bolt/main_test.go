package bolt_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childEnv tells a child process, which runs this test binary, its role.
const childEnv = "ROWMILL_BOLT_TEST_CHILD"

func TestMain(m *testing.M) {
	roles := map[string]func(path string) error{"hold": hold, "write": writeForEver, "fill": fill}
	if run, ok := roles[os.Getenv(childEnv)]; ok {
		if err := run(os.Args[1]); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
