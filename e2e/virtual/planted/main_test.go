package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// A fault that the code has outgrown would be planted nowhere, or would not compile. The
// first faults of all files are compiled together, then the second ones, and so on.
func TestPlants(t *testing.T) {
	t.Parallel()
	root := must.Get(filepath.Abs("../../.."))(t)
	plants := must.Get(read(root, nil))(t)
	if len(plants) < 10 {
		t.Errorf("%d faults can be planted, want ten", len(plants))
	}
	for len(plants) > 0 {
		overlay := struct{ Replace map[string]string }{map[string]string{}}
		var later []plant
		var packages []string
		for _, p := range plants {
			file := filepath.Join(root, p.file)
			if overlay.Replace[file] != "" {
				later = append(later, p)
				continue
			}
			text := must.Get(p.in(root))(t)
			overlay.Replace[file] = filepath.Join(t.TempDir(), "planted.go")
			must.Succeed(t, os.WriteFile(overlay.Replace[file], []byte(text), 0o600))
			packages = append(packages, "./"+filepath.Dir(p.file))
		}
		plants = later
		doc := must.Get(json.Marshal(overlay))(t)
		name := filepath.Join(t.TempDir(), "overlay.json")
		must.Succeed(t, os.WriteFile(name, doc, 0o600))
		build := exec.CommandContext(t.Context(), "go", append([]string{"build", "-overlay", name}, packages...)...)
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			t.Errorf("planted faults do not compile: %v\n%s", err, out)
		}
	}
}
