package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// TestConfigurationIsDocumented checks that docs/configuration.md has every setting
// that the binary prints.
func TestConfigurationIsDocumented(t *testing.T) {
	t.Parallel()
	doc := must.Get(os.ReadFile("../docs/configuration.md"))(t)
	command := exec.CommandContext(t.Context(), binary, "config", "print")
	command.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	out, err := command.Output()
	if err != nil {
		t.Fatalf("config print: %v\n%s", err, out)
	}
	keys := settingNames(string(out))
	if len(keys) < 20 {
		t.Fatalf("config print names %q only", keys)
	}
	for _, key := range keys {
		if !strings.Contains(string(doc), "`"+key+"`") {
			t.Errorf("docs/configuration.md does not mention `%s`", key)
		}
	}
}

var yamlKey = regexp.MustCompile(`^( *)(?:- )?([a-z_]+):(.*)$`)

// settingNames returns the paths of the values in a YAML document of at most
// two levels, and the names of lists.
func settingNames(yaml string) []string {
	var keys []string
	section := ""
	for line := range strings.Lines(yaml) {
		m := yamlKey.FindStringSubmatch(strings.TrimRight(line, "\n"))
		switch {
		case m == nil:
		case m[1] == "" && !strings.HasPrefix(line, "- "):
			section = m[2]
			if value, _, _ := strings.Cut(m[3], "#"); strings.TrimSpace(value) != "" {
				keys = append(keys, section)
			}
		case section == "quotas" || section == "engines":
		default:
			keys = append(keys, section+"."+m[2])
		}
	}
	return keys
}
