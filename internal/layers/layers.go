// Package layers has the rules for imports between packages. Folders are on numbered
// layers: code imports only from lower layers, packages on the same layer do not import
// each other, and some libraries have only one importer. The package has the table of
// the rules and the check; its test checks the output of `go list`. It does not know
// the tasks of the packages.
package layers

import (
	"fmt"
	"slices"
	"strings"
)

// Module is the import path of the repository's root package, which every other package
// may import.
const Module = "github.com/rowmill/rowmill"

// ImportRules holds the rules. Paths are inside the module.
type ImportRules struct {
	// TopFolders lists all folders in the root of the repository that contain packages.
	TopFolders []string

	// Layer has the layer of each folder. It also applies to all subfolders without an
	// entry of their own. A package must be in a folder with an entry, or be a helper.
	Layer map[string]int

	// Within has the step of a package inside a folder of Layer. A package may import
	// the packages on lower steps of the same folder. Packages without an entry may
	// import only their parents and their own subfolders.
	Within map[string]int

	// Separate has pairs of top folders that must not import each other, on any layer.
	Separate [][2]string

	// Importers lists, for each library, the packages that may import it; their
	// subfolders may import it too. Libraries are matched by prefix.
	Importers map[string][]string

	// VagueNames are folder names that are refused, because they do not say what a
	// package is for.
	VagueNames []string

	// Programs are top folders with one program each. The packages of a program may
	// import each other.
	Programs []string

	// Adapters are packages that implement their parent's interface with one
	// technology. Only programs may import them.
	Adapters []string

	// Helpers are top folders of test helpers, except their subfolders that have an
	// entry in Layer. Shipped code must not import helpers; helpers may import
	// anything.
	Helpers []string
}

// RowmillRules returns the table of this repository. A test compares it with
// docs/architecture.md.
func RowmillRules() ImportRules {
	return ImportRules{
		TopFolders: []string{
			"actors", "bench", "blob", "client", "cluster", "cmd", "console", "deploy", "docs", "e2e",
			"engine", "examples", "http", "input", "internal", "results", "store", "tokenize",
		},
		Layer: map[string]int{
			"internal/panics": -1, "internal/textfmt": -1, "internal/certificate": -1, "internal/jsonpreserve": -1, "internal/cache": -1, "internal/durable": -1, "internal/loglimit": -1, "internal/must": -1,
			"internal/columnar": 0, "internal/port": 0, "internal/shard": 0, "internal/retry": 0, "tokenize": 0, "engine/sim": 0, "console": 0,
			"blob": 1, "client": 1, "cluster": 1, "engine": 1, "engine/catalog": 1, "engine/schema": 1, "http/oidc": 1,
			"input": 1, "internal/tracing": 1, "store": 1,
			"engine/fleet": 2, "engine/served": 2, "http/webhook": 2, "input/function": 2, "input/sources": 2, "results": 2, "store/backup": 2, "store/deployment": 2,
			"actors": 3, "http": 3,
			"cmd": 4, "bench": 4, "e2e": 4, "examples": 4,
		},
		Within: map[string]int{
			"actors/fair": 0, "actors/order": 0, "actors/registry": 0, "actors/nodes": 0, "actors/poison": 0, "actors/assign": 0, "actors/storage": 0, "actors/commit": 1, "actors/ingest": 1, "actors/dispatch": 1, "actors/work": 2,
			"store/kv": 0, "store/kv/bolt": 1, "store/kv/redis": 1, "store/records": 1, "store/storetest": 1, "store/bolt": 2, "store/redis": 2,
			"http/request": 0, "http/events": 0, "http/exchange": 1, "http/submission": 1, "http/caller": 2, "http/console": 2,
			"http/access": 3, "http/audit": 3, "http/sdk": 3,
			"http/jobs": 4, "http/keys": 4, "http/nodes": 4, "http/quotas": 4, "http/settings": 4, "http/usage": 4, "http/webhooks": 4,
			"http/submit": 5, "http/rows": 5, "http/downloads": 5, "http/streams": 5, "http/functions": 6, "http/batch": 6, "http/openai": 7, "http/anthropic": 7,
		},
		Separate: [][2]string{{"actors", "http"}},
		Importers: map[string][]string{
			"go.etcd.io/bbolt":                {"store/kv/bolt"},
			"github.com/redis/go-redis":       {"store/kv/redis"},
			"github.com/minio/minio-go":       {"blob/s3"},
			"github.com/hashicorp/memberlist": {"cluster"},
			"connectrpc.com":                  {"cluster"},
			"google.golang.org/protobuf":      {"cluster", "actors", "internal/tracing"},
			// bench compares other programs, which use their own libraries.
			"github.com/parquet-go/parquet-go":      {"internal/columnar", "bench"},
			"github.com/asynkron/protoactor-go":     {"actors"},
			"github.com/gin-gonic/gin":              {"http"},
			"github.com/spf13/cobra":                {"cmd"},
			"github.com/valyala/fasthttp":           {"engine"},
			"code.dny.dev/ssrf":                     {"input"},
			"github.com/go-jose/go-jose":            {"http/oidc"},
			"go.opentelemetry.io":                   {"internal/tracing", "cluster"},
			"github.com/dlclark/regexp2":            {"tokenize"},
			"github.com/santhosh-tekuri/jsonschema": {"engine/schema", "engine/sim"},
		},
		VagueNames: []string{"util", "utils", "common", "shared", "types", "models"},
		Adapters:   []string{"store/bolt", "store/redis", "blob/dir", "blob/s3", "engine/openai", "engine/sim"},
		Programs:   []string{"cmd", "bench", "e2e"},
		Helpers:    []string{"internal", "e2e", "bench", "deploy", "docs"},
	}
}

// Package is one package of the module: its import path, and the direct imports of its
// shipped files, without tests.
type Package struct {
	Path    string
	Imports []string
}

// Check returns one sentence for each rule that the packages break.
func (t ImportRules) Check(packages []Package) []string {
	var broken []string
	for _, p := range packages {
		from, inside := cutModulePath(p.Path)
		if !inside {
			continue
		}
		broken = append(broken, t.checkName(from)...)
		if t.isHelper(from) {
			continue
		}
		for _, path := range p.Imports {
			if reason := t.checkImport(from, path); reason != "" {
				broken = append(broken, fmt.Sprintf("%s imports %s: %s", displayName(from), path, reason))
			}
		}
	}
	return broken
}

func (t ImportRules) checkName(path string) []string {
	var broken []string
	for _, element := range strings.Split(path, "/") {
		if slices.Contains(t.VagueNames, element) {
			broken = append(broken, fmt.Sprintf("%s: %q says nothing about what the package owns", path, element))
		}
	}
	if t.layerFolder(path) == "" && path != "" && !t.isHelper(path) {
		broken = append(broken, fmt.Sprintf("%s: no layer is set for folder %q", path, topFolder(path)))
	}
	return broken
}

// checkImport returns the reason why from must not import path, or "" if the import is
// allowed.
func (t ImportRules) checkImport(from, path string) string {
	to, inside := cutModulePath(path)
	if !inside {
		return t.checkLibrary(from, path)
	}
	program := slices.Contains(t.Programs, topFolder(from))
	for _, adapter := range t.Adapters {
		if isUnder(to, adapter) && !isUnder(from, adapter) && !program {
			return "only programs may import adapters"
		}
	}
	switch {
	case to == "":
		return "" // the root package
	case t.isHelper(to):
		return "shipped code must not import test helpers"
	case from == "":
		return "the root package imports no other package"
	case t.layerFolder(from) == t.layerFolder(to):
		below, low := t.Within[to]
		own, high := t.Within[from]
		if program || isUnder(from, to) || isUnder(to, from) || low && high && below < own {
			return ""
		}
		return "within a folder a package may import only its parents, its subfolders and packages on lower steps"
	}
	for _, pair := range t.Separate {
		if pair == [2]string{topFolder(from), topFolder(to)} || pair == [2]string{topFolder(to), topFolder(from)} {
			return "these two folders must not import each other"
		}
	}
	if below, own := t.Layer[t.layerFolder(to)], t.Layer[t.layerFolder(from)]; below >= own {
		return fmt.Sprintf("layer %d may only import layers below it, not layer %d", own, below)
	}
	return ""
}

func (t ImportRules) checkLibrary(from, path string) string {
	for library, allowed := range t.Importers {
		if !isUnder(path, library) {
			continue
		}
		if !slices.ContainsFunc(allowed, func(a string) bool { return isUnder(from, a) }) {
			return fmt.Sprintf("only %s may import this library", strings.Join(allowed, ", "))
		}
	}
	return ""
}

func (t ImportRules) isHelper(path string) bool {
	return slices.Contains(t.Helpers, topFolder(path)) && !strings.Contains(t.layerFolder(path), "/")
}

// layerFolder returns the folder with an entry in Layer that contains the package at
// path; empty if there is none.
func (t ImportRules) layerFolder(path string) string {
	for path != "" {
		if _, known := t.Layer[path]; known {
			return path
		}
		path = path[:max(strings.LastIndexByte(path, '/'), 0)]
	}
	return ""
}

// cutModulePath returns the part of an import path inside the module, empty for the root
// package. It returns false if the path is outside the module.
func cutModulePath(path string) (string, bool) {
	if path == Module {
		return "", true
	}
	return strings.CutPrefix(path, Module+"/")
}

// topFolder returns the first element of a path.
func topFolder(path string) string {
	first, _, _ := strings.Cut(path, "/")
	return first
}

// isUnder reports whether path is dir or lies below it.
func isUnder(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

func displayName(path string) string {
	if path == "" {
		return "the root package"
	}
	return path
}
