package wheel_test

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/deploy/wheel"
	"github.com/rowmill/rowmill/internal/must"
)

func TestWheel(t *testing.T) {
	t.Parallel()
	w := wheel.Wheel{
		Version: "v0.1.2", Arch: "amd64", Program: []byte("program"), Python: os.DirFS("../../client/python"),
		Texts: map[string][]byte{"LICENSE": []byte("text")}, Built: time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC),
	}
	var first, again bytes.Buffer
	must.Succeed(t, w.Write(&first))
	must.Succeed(t, w.Write(&again))
	if !bytes.Equal(first.Bytes(), again.Bytes()) {
		t.Error("the same content gives other bytes")
	}
	archive := must.Get(zip.NewReader(bytes.NewReader(first.Bytes()), int64(first.Len())))(t)
	files := map[string]string{}
	for _, f := range archive.File {
		in := must.Get(f.Open())(t)
		files[f.Name] = string(must.Get(io.ReadAll(in))(t))
		if executable := f.Mode()&0o111 != 0; executable != strings.HasSuffix(f.Name, "scripts/rowmill") {
			t.Errorf("%s has the mode %v", f.Name, f.Mode())
		}
	}
	record := files["rowmill-0.1.2.dist-info/RECORD"]
	for _, name := range []string{"rowmill/__init__.py", "rowmill/py.typed", "rowmill-0.1.2.data/scripts/rowmill", "rowmill-0.1.2.dist-info/licenses/LICENSE", "rowmill-0.1.2.dist-info/WHEEL"} {
		if files[name] == "" && name != "rowmill/py.typed" || !strings.Contains(record, name+",") {
			t.Errorf("the wheel lacks %s, or RECORD does:\n%s", name, record)
		}
	}
	if _, err := w.Python.Open("rowmill/py.typed"); err != nil || !strings.Contains(files["rowmill-0.1.2.dist-info/METADATA"], "Version: 0.1.2\n") {
		t.Errorf("metadata %s, %v", files["rowmill-0.1.2.dist-info/METADATA"], err)
	}
	for version, want := range map[string]string{"v1.2.3": "rowmill-1.2.3-", "v1.2.3-5-gabc": "rowmill-1.2.3.post5+gabc-", "4123c56f-dirty": "rowmill-0.dev20261129000000-"} {
		w.Version = version
		if got := w.Name(); got != want+"py3-none-manylinux2014_x86_64.whl" {
			t.Errorf("%s is %s", version, got)
		}
	}
	if w.Arch = "mips"; w.Write(io.Discard) == nil {
		t.Error("there is a wheel for another architecture")
	}
}
