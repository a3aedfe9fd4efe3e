package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/rowmill/rowmill/internal/must"
)

// TestCompose checks that the program accepts the settings of every node in
// deploy/compose.yaml. The file itself needs Docker and does not run here.
func TestCompose(t *testing.T) {
	text := must.Get(os.ReadFile("../../deploy/compose.yaml"))(t)
	secrets := map[string]string{
		"ROWMILL_API_KEY": adminKey, "ROWMILL_S3_SECRET": "a secret", "ROWMILL_GOSSIP_KEY": firstGossipKey,
	}
	// ${NAME:?why} is a variable that must be set.
	filled := regexp.MustCompile(`\$\{(\w+):\?[^}]*\}`).ReplaceAllStringFunc(string(text), func(s string) string {
		name, _, _ := strings.Cut(s[2:], ":")
		if secrets[name] == "" {
			t.Errorf("the file wants %s, which its first lines do not set", name)
		}
		return secrets[name]
	})
	var file struct {
		Services map[string]struct {
			Environment map[string]string `yaml:"environment"`
		} `yaml:"services"`
	}
	must.Succeed(t, yaml.Unmarshal([]byte(filled), &file))
	for number := range 3 {
		name := fmt.Sprint("node", number+1)
		node, found := file.Services[name]
		if !found || node.Environment["ROWMILL_CLUSTER_NODE"] != name {
			t.Errorf("no service %s of that name in the cluster: %+v", name, node)
			continue
		}
		command := exec.CommandContext(t.Context(), binary, "config", "validate")
		command.Env = []string{"HOME=" + t.TempDir()}
		for setting, value := range node.Environment {
			command.Env = append(command.Env, setting+"="+value)
		}
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}
