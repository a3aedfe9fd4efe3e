package settings

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const envPrefix = "ROWMILL_"

// others lists the ROWMILL_ variables that are not settings of a node.
var others = []string{
	"ROWMILL_CONFIG",                                 // name of the settings file
	"ROWMILL_SERVER",                                 // address of the service, for commands of the client
	"ROWMILL_CI",                                     // turns skipped tests into failures
	"ROWMILL_SOAK", "ROWMILL_SEED", "ROWMILL_BINARY", // sizes, seeds and program for tests
	"ROWMILL_LLAMA_DIR", "ROWMILL_PYTHON", // locations of programs that tests run
	"ROWMILL_ACTIVE_HELP", "ROWMILL_COMPLETION_DESCRIPTIONS", // used by shell completion
}

// serviceLink matches the variables that Kubernetes sets in every pod for a Service
// named rowmill or rowmill-something.
var serviceLink = regexp.MustCompile(`^ROWMILL_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_(TCP|UDP)(_.*)?)?)$`)

// Sources are the sources from which Load reads settings.
type Sources struct {
	Flags   []Flag   // in order; a later flag overrides an earlier one
	Environ []string // NAME=value, like os.Environ
	File    string   // name of the YAML file; if empty, the variable ROWMILL_CONFIG names it

	// Alone makes Load ignore the ROWMILL_ variables in Environ, except the variables
	// that the file names.
	Alone bool
}

// A Flag is a setting that was given on the command line.
type Flag struct {
	Name   string   // name of the flag for error messages, such as --listen
	Key    string   // name of the setting, such as http.listen
	Values []string // one value, or several for a list
}

// Load returns the settings from the defaults and all sources, and validates them. The
// environment overrides the file, and flags override both.
func Load(src Sources) (Settings, error) {
	s, given := Defaults(), map[string]bool{}
	for _, read := range []func(*Settings, map[string]bool) error{src.loadFile, src.loadEnvironment, src.loadFlags} {
		if err := read(&s, given); err != nil {
			return Settings{}, err
		}
	}
	if !given["inputs.allow_loopback"] {
		s.Inputs.AllowLoopback = IsLoopback(s.HTTP.Listen)
	}
	if err := s.fillDefaults(src.Environ); err != nil {
		return Settings{}, err
	}
	if err := s.Tracing.fillFromEnviron(src.Environ, given["tracing.sample"]); err != nil {
		return Settings{}, err
	}
	return s, s.Validate()
}

// loadFile reads the settings file into a Settings, and adds the keys that it sets to
// given. The methods loadEnvironment and loadFlags do the same for the other sources.
func (src Sources) loadFile(into *Settings, given map[string]bool) error {
	name := src.File
	if name == "" && !src.Alone {
		name = lookupEnviron(src.Environ, "ROWMILL_CONFIG")
	}
	if name == "" {
		return nil
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read the configuration file: %w", err)
	}
	documents := yaml.NewDecoder(bytes.NewReader(content))
	var doc, more yaml.Node
	switch err := documents.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil // the file has only comments
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := documents.Decode(&more); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s:%d: only one YAML document is read; remove what follows the first", name, more.Line)
	}
	d := &decoder{source: name, lines: true, environ: src.Environ, given: given}
	d.decodeValue(doc.Content[0], reflect.ValueOf(into).Elem(), "")
	return d.err()
}

func (src Sources) loadEnvironment(into *Settings, given map[string]bool) error {
	if src.Alone {
		return nil
	}
	byName := map[string]string{}
	for _, key := range settingNames() {
		if _, single := settingType(key); single {
			byName[envName(key)] = key
		}
	}
	var errs []error
	for _, pair := range src.Environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, envPrefix) || value == "" || isNonSettingVariable(name) {
			continue
		}
		key, known := byName[name]
		if !known {
			names := slices.Concat(others, slices.Collect(maps.Keys(byName)))
			slices.Sort(names)
			errs = append(errs, fmt.Errorf("environment variable %s: unknown setting%s", name, formatSuggestion(name, names)))
			continue
		}
		d := &decoder{source: "environment variable " + name, environ: src.Environ, given: given}
		errs = append(errs, d.decodeStrings(into, key, splitList(key, value)))
	}
	return errors.Join(errs...)
}

func (src Sources) loadFlags(into *Settings, given map[string]bool) error {
	var errs []error
	for _, flag := range src.Flags {
		if _, known := settingType(flag.Key); !known {
			errs = append(errs, fmt.Errorf("flag %s: unknown key %s%s", flag.Name, flag.Key, formatSuggestion(flag.Key, settingNames())))
			continue
		}
		d := &decoder{source: "flag " + flag.Name, environ: src.Environ, given: given}
		errs = append(errs, d.decodeStrings(into, flag.Key, flag.Values))
	}
	return errors.Join(errs...)
}

// decodeStrings writes a setting whose values are texts, from a variable or a flag, into a
// Settings.
func (d *decoder) decodeStrings(into *Settings, key string, values []string) error {
	parts := strings.Split(key, ".")
	node := &yaml.Node{}
	switch t, _ := settingType(key); {
	case len(values) == 1 && isFlow(t.Kind(), values[0]):
		if err := yaml.Unmarshal([]byte(values[0]), node); err != nil {
			return fmt.Errorf("%s: %w", d.source, err)
		}
		node = node.Content[0]
	case t.Kind() == reflect.Slice:
		node.Kind = yaml.SequenceNode
		for _, v := range values {
			node.Content = append(node.Content, stringNode(v))
		}
	case t.Kind() == reflect.Struct:
		return fmt.Errorf("%s: %s is a section; name one of its settings", d.source, key)
	case len(values) != 1:
		return fmt.Errorf("%s: %s takes one value", d.source, key)
	default:
		node = stringNode(values[0])
		if strings.EqualFold(values[0], "null") {
			node.Tag = "!!null"
		}
	}
	// Wrap the value in nodes for its sections, so that d.decodeValue also checks values of
	// flags and variables.
	for i := len(parts) - 1; i >= 0; i-- {
		node = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{stringNode(parts[i]), node}}
	}
	d.decodeValue(node, reflect.ValueOf(into).Elem(), "")
	return d.err()
}

// isFlow reports whether the text of a list or a map is YAML: [a, b] or {a: b}.
func isFlow(kind reflect.Kind, text string) bool {
	text = strings.TrimSpace(text)
	return kind == reflect.Slice && strings.HasPrefix(text, "[") || kind == reflect.Map && strings.HasPrefix(text, "{")
}

func stringNode(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
}

// splitList splits the text of an environment variable at commas if the setting is a
// list and the text is not YAML.
func splitList(key, value string) []string {
	t, _ := settingType(key)
	if t.Kind() != reflect.Slice || isFlow(t.Kind(), value) {
		return []string{value}
	}
	var out []string
	for part := range strings.SplitSeq(value, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// fillDefaults sets the settings that are still empty and that depend on other settings or
// the environment.
func (s *Settings) fillDefaults(environ []string) error {
	if s.Data == "" {
		state := lookupEnviron(environ, "XDG_STATE_HOME")
		if home := lookupEnviron(environ, "HOME"); !filepath.IsAbs(state) && home != "" {
			state = filepath.Join(home, ".local", "state")
		}
		if !filepath.IsAbs(state) {
			return errors.New("data: neither XDG_STATE_HOME nor HOME is set; name a directory with --data or ROWMILL_DATA")
		}
		s.Data = filepath.Join(state, "rowmill")
	}
	if s.Discover.Addresses == nil {
		s.Discover.Addresses = defaultAddresses()
	}
	if s.Webhooks.Retries == nil {
		s.Webhooks.Retries = defaultRetries()
	}
	for i := range s.Servers {
		s.Servers[i].Name = cmp.Or(s.Servers[i].Name, fmt.Sprintf("server-%d", i+1))
	}
	s.Cluster.fillDefaults()
	return s.mergeQuotas()
}

// mergeQuotas sets Quotas to the default quotas of all priorities, with the quotas of
// the settings in place of the defaults.
func (s *Settings) mergeQuotas() error {
	merged := defaultQuotas()
	for i, q := range s.Quotas {
		if err := q.Priority.Validate(); err != nil {
			return fmt.Errorf("quotas[%d].priority: %w", i, err)
		}
		if q.RowQuota != nil {
			merged[q.Priority].RowQuota = q.RowQuota
		}
		if q.TokenQuota != nil {
			merged[q.Priority].TokenQuota = q.TokenQuota
		}
	}
	s.Quotas = merged
	return nil
}

// isNonSettingVariable reports whether a variable with the prefix ROWMILL_ is not a setting of a
// node.
func isNonSettingVariable(name string) bool {
	return slices.Contains(others, name) || serviceLink.MatchString(name) ||
		strings.HasPrefix(name, "ROWMILL_BENCH_") || strings.HasPrefix(name, "ROWMILL_TEST_")
}

func lookupEnviron(environ []string, name string) string {
	for i := len(environ) - 1; i >= 0; i-- {
		if key, value, _ := strings.Cut(environ[i], "="); key == name {
			return value
		}
	}
	return ""
}
