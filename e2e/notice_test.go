package e2e

import (
	"debug/buildinfo"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/notice"
)

// TestNoticeNamesEveryModule checks that NOTICE names exactly the modules in the
// binary, each with its licence. So a developer who adds a module reads its licence.
func TestNoticeNamesEveryModule(t *testing.T) {
	t.Parallel()
	named := must.Get(notice.Read("../NOTICE"))(t)
	build := must.Get(buildinfo.ReadFile(binary))(t)
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

// TestDependenciesAreExplained checks that docs/dependencies.md has every direct module
// of go.mod.
func TestDependenciesAreExplained(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../docs/dependencies.md"))(t)
	text := must.Get(os.ReadFile("../go.mod"))(t)
	direct := regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(string(text), -1)
	if len(direct) < 20 {
		t.Fatalf("go.mod asks for %v only", direct)
	}
	for _, module := range direct {
		if !strings.Contains(string(page), "`"+module[1]+"`") {
			t.Errorf("docs/dependencies.md does not mention `%s`", module[1])
		}
	}
	for _, module := range regexp.MustCompile("`([a-z.]+\\.[a-z]+/[^` ]+)`").FindAllStringSubmatch(string(page), -1) {
		if !strings.Contains(string(text), "\t"+module[1]+" v") {
			t.Errorf("docs/dependencies.md explains `%s`, which go.mod does not ask for", module[1])
		}
	}
}
