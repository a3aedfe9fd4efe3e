// Package settings holds all settings of a Rowmill node: one struct with defaults and
// reasons, and the code that fills it from flags, environment, one YAML file and
// defaults, in that order. It knows the names and the valid values of settings, but not
// their effects.
package settings

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Settings holds the effective settings of a node. The name of a setting is the path of
// its yaml tags, such as jobs.max_active; the environment variable of this setting is
// ROWMILL_JOBS_MAX_ACTIVE. The tag default holds the default, and the tag min the
// minimum of a number, a size or a time.
type Settings struct {
	// Data is the directory of records and objects. Default: $XDG_STATE_HOME/rowmill,
	// else ~/.local/state/rowmill. This place survives a restart and does not depend on
	// where the program was started.
	Data string `yaml:"data"`

	// Catalog is a YAML file of models and aliases. It replaces the embedded catalog,
	// or adds to it if the file has the line "extends: default". Default: empty, which
	// means the embedded catalog.
	Catalog string `yaml:"catalog"`

	// Tokenizers is a directory of vocabularies in the format of Hugging Face:
	// NAME.json or NAME/tokenizer.json. NAME is the name of a tokenizer in the catalog.
	// For a model without a tokenizer in the catalog, NAME is the model's name, also as
	// ORGANISATION/NAME. Default: empty. Then tokens for gpt-oss are counted exactly;
	// tokens for other models are counted with a similar vocabulary and corrected by
	// the counts of their servers.
	Tokenizers string `yaml:"tokenizers"`

	Administration `yaml:",inline"`
	Process        `yaml:",inline"`

	HTTP    HTTP          `yaml:"http"`
	OIDC    OIDC          `yaml:"oidc"`
	Store   RecordStore   `yaml:"store"`
	Objects ObjectStorage `yaml:"objects"`
	Cluster Cluster       `yaml:"cluster"`
	Inputs  Inputs        `yaml:"inputs"`
	Jobs    Jobs          `yaml:"jobs"`

	// Sources maps names to places with files that jobs read as NAME:PATTERN. Default: none.
	Sources map[string]Source `yaml:"sources"`

	Engines []Engine `yaml:"engines"` // servers to use; none: the node uses servers that Discover finds
	Servers []Server `yaml:"servers"` // servers that the node starts, and uses like Engines

	Placement Placement `yaml:"placement"`

	EngineLimits `yaml:",inline"`

	Discover  Discovery `yaml:"discover"`
	Simulator Simulator `yaml:"simulator"`
	Estimates Estimates `yaml:"estimates"`
	Retention Retention `yaml:"retention"`
	Webhooks  Webhooks  `yaml:"webhooks"`
	Quotas    []Quota   `yaml:"quotas"` // one entry for a priority; quotas that are not set keep their defaults
	Log       Log       `yaml:"log"`
	Tracing   Tracing   `yaml:"tracing"`
}

// Administration holds the keys of administrators, and how a node notices new secrets.
type Administration struct {
	// APIKey is an administrator key of the account "default". With several keys, one
	// per line, a key can be changed while clients use it. Default: empty; the first
	// start then makes a key and prints it once.
	APIKey Secret `yaml:"api_key"`

	// SecretsInterval is the time between two checks whether secrets have changed, in
	// their files and in the configuration file. Default: 5s: a node uses a new secret
	// before an operator gets to the next node. With 0s the node checks only at SIGHUP.
	SecretsInterval time.Duration `yaml:"secrets_interval" default:"5s"`
}

// Process holds settings of the process of a node.
type Process struct {
	// ClockOffset is added to the wall clock of this process wherever a time is stored
	// in a record. Default: 0. Use it only to test wrong clocks.
	ClockOffset time.Duration `yaml:"clock_offset"`

	// MemoryLimit is the soft memory limit of the process: near this limit, Go collects
	// garbage more often. Default: 0, which means three times jobs.memory_budget plus
	// 32 MiB: for rows, their copies on the way to disk, garbage, and vocabularies.
	// With objects in S3 the limit is 32 MiB higher, for read-ahead and for data that
	// waits for upload. GOMEMLIMIT, if it is set, overrides this setting.
	MemoryLimit Bytes `yaml:"memory_limit"`
}

// EngineLimits are the limits of engines that have no limits of their own.
type EngineLimits struct {
	// MaxRequestsPerMinute and MaxTokensPerMinute limit how many requests, and tokens
	// of prompts and answers, this node sends to an engine that has no limits of its
	// own. Default: 0, no limit. They are for servers that cost money or have a quota.
	MaxRequestsPerMinute int `yaml:"max_requests_per_minute" min:"0"`
	MaxTokensPerMinute   int `yaml:"max_tokens_per_minute" min:"0"`
}

// APIKeys returns the administrator keys in the settings.
func (s Settings) APIKeys() (keys []string) {
	for line := range strings.Lines(s.APIKey.Reveal()) {
		if key := strings.TrimSpace(line); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// Defaults returns the settings of the default tags. Other settings stay empty until
// Load sets their defaults: Data, because it depends on the environment, and lists,
// because a list in the settings replaces the default list.
func Defaults() (s Settings) {
	setDefaults(reflect.ValueOf(&s).Elem())
	return s
}

// setDefaults sets each field of a section, and of the sections in it, to the value of
// its default tag.
func setDefaults(section reflect.Value) {
	for field, value := range section.Fields() {
		if value.Kind() == reflect.Struct {
			setDefaults(value)
		} else if text, found := field.Tag.Lookup("default"); found {
			value.Set(mustParseTag(text, value.Type()))
		}
	}
}

// mustParseTag returns the value of a default or min tag, as type t. It panics if the tag is
// invalid.
func mustParseTag(text string, t reflect.Type) reflect.Value {
	value, err := parseScalar(text, t)
	if err != nil {
		panic(fmt.Sprintf("a tag of a setting: %v", err))
	}
	return reflect.ValueOf(value).Convert(t)
}
