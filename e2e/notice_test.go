package e2e

import (
	"debug/buildinfo"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestNoticeNamesEveryModule wants NOTICE to name the modules that the binary is
// linked from, each under its licence, and no others: who takes one in looks at
// what it asks for.
func TestNoticeNamesEveryModule(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../NOTICE")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]string{}
	licence := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if head, is := strings.CutSuffix(line, ":"); is && !strings.HasPrefix(line, " ") {
			licence = head
		}
		if module, is := strings.CutPrefix(line, "  "); is {
			if named[module] != "" || licence == "" {
				t.Errorf("%s is under %q and %q", module, named[module], licence)
			}
			named[module] = licence
		}
	}
	build, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	linked := map[string]string{}
	for _, module := range build.Deps {
		linked[module.Path] = module.Version
		if named[module.Path] == "" {
			t.Errorf("the binary holds %s %s, which NOTICE does not name", module.Path, module.Version)
		}
	}
	for _, module := range slices.Sorted(maps.Keys(named)) {
		if linked[module] == "" {
			t.Errorf("NOTICE names %s, which the binary does not hold", module)
		}
	}
	if named["github.com/hashicorp/memberlist"] != "MPL-2.0" {
		t.Errorf("memberlist is under %q", named["github.com/hashicorp/memberlist"])
	}
}
