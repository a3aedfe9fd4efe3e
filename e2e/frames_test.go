package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill/deploy/wheel"
	"github.com/rowmill/rowmill/internal/must"
)

// framesPython returns a Python with the libraries of data frames.
func framesPython(t *testing.T) string {
	t.Helper()
	python := must.Get(filepath.Abs("../bin/tools/frames/bin/python3"))(t)
	if _, err := os.Stat(filepath.Join(filepath.Dir(python), "../complete")); err != nil {
		unable(t, "the libraries of data frames are not there (`.ci/tools frames`): %v", err)
	}
	return python
}

// TestPythonPackage installs the wheel with this program in an empty folder, and uses it with
// frames of all libraries, in a notebook and with a service.
func TestPythonPackage(t *testing.T) {
	t.Parallel()
	python, dir := framesPython(t), t.TempDir()
	w := wheel.Wheel{Version: "v0.0.1", Arch: runtime.GOARCH, Program: must.Get(os.ReadFile(binary))(t), Python: os.DirFS("../client/python"), Built: time.Unix(1<<30, 0)}
	var file bytes.Buffer
	must.Succeed(t, w.Write(&file))
	must.Succeed(t, os.WriteFile(filepath.Join(dir, w.Name()), file.Bytes(), 0o600))
	site := filepath.Join(dir, "site")
	runClient(t, python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", site, filepath.Join(dir, w.Name()))
	held := newWitness(t, 100, 0)
	held.hold.Store(1)
	go func() { // interrupts the program while its rows are in flight
		for held.calls.Load() < 2 && t.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		text, _ := os.ReadFile(filepath.Join(dir, "pid")) // without the file the script fails
		if pid, err := strconv.Atoi(string(text)); err == nil {
			_ = syscall.Kill(pid, syscall.SIGINT)
		}
		held.hold.Store(0)
	}()
	service := on(t, fmt.Sprintf("sources: {lake: {url: 'file://%s/lake', write: true}}\n", dir), startSimulated(t, "--ttft", "1ms", "--per-token", "0s")).start(t)
	script := must.Get(filepath.Abs("testdata/frames.py"))(t)
	runClient(t, "-C", dir, "PYTHONPATH="+site, "HOME="+dir, python, script, newWitness(t, 100, 0).url, held.url, service.base, apiKey)
}

// TestPythonPackage_Types checks the types of the Python package.
func TestPythonPackage_Types(t *testing.T) {
	t.Parallel()
	mypy := exec.CommandContext(t.Context(), framesPython(t), "-m", "mypy", "--cache-dir", t.TempDir(), "rowmill")
	mypy.Dir = "../client/python"
	if said, err := mypy.CombinedOutput(); err != nil {
		t.Errorf("mypy: %v\n%s", err, said)
	}
}
