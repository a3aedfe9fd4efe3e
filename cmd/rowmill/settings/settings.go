// Package settings is everything an operator of a Rowmill node can choose: one
// struct with defaults and reasons, and the code that fills it from flags,
// environment, one YAML file and defaults, in that order. It knows what the
// settings are called and what they may be, not what they do.
package settings

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Settings are the effective settings of one node. The name of a setting is
// its path of yaml tags, such as jobs.max_active; the environment variable is
// the same in capitals behind ROWMILL_, with underscores for the dots. The tag
// default is the default, and the tag min the least that a number, a size or a time
// may be.
type Settings struct {
	// Data is the directory of records and objects. Default:
	// $XDG_STATE_HOME/rowmill, else ~/.local/state/rowmill: state that must
	// survive a restart and does not depend on where the program was started.
	Data string `yaml:"data"`

	// Catalog is a YAML file of models and aliases that replaces the embedded
	// catalog, or adds to it where it says extends: default. Default: empty, the
	// embedded one.
	Catalog string `yaml:"catalog"`

	// Tokenizers is a directory of vocabularies in the form of Hugging Face,
	// NAME.json or NAME/tokenizer.json for each tokenizer that the catalog
	// names, and for each model that names none, under its own name, also as
	// ORGANISATION/NAME. Default: empty; gpt-oss is counted exactly, other models
	// by a stand-in that is corrected by what their servers report.
	Tokenizers string `yaml:"tokenizers"`

	// APIKey is an administrator key of the account "default", or several, each
	// on a line of its own, so that it can be changed while clients use it. Default:
	// empty; the first start then makes one and prints it once.
	APIKey Secret `yaml:"api_key"`

	// SecretsInterval is the time between looks for secrets that have changed, in
	// their files and in the configuration file. Default: 5s, sooner than anybody
	// goes on with the next node; 0s looks at SIGHUP alone.
	SecretsInterval time.Duration `yaml:"secrets_interval" default:"5s"`

	// ClockOffset is added to this process's wall clock wherever it reads the
	// time for a record. Default: 0. For tests of clocks that are wrong alone.
	ClockOffset time.Duration `yaml:"clock_offset"`

	// MemoryLimit is what the process tries to stay below: the nearer it
	// comes, the more often it collects garbage. Default: 0, three times
	// jobs.memory_budget and 32 MiB: rows, their copies on the way to disk and
	// what collecting leaves behind, and vocabularies; with objects in S3 32
	// MiB more, for what is read ahead and waits to be uploaded. GOMEMLIMIT,
	// where it is set, goes before it.
	MemoryLimit Bytes `yaml:"memory_limit"`

	HTTP    HTTP     `yaml:"http"`
	OIDC    OIDC     `yaml:"oidc"`
	Store   Store    `yaml:"store"`
	Objects Objects  `yaml:"objects"`
	Cluster Cluster  `yaml:"cluster"`
	Inputs  Inputs   `yaml:"inputs"`
	Jobs    Jobs     `yaml:"jobs"`
	Engines []Engine `yaml:"engines"` // servers to use; none: the servers that Discover finds

	// MaxRequestsPerMinute and MaxTokensPerMinute (of prompts and answers) are the
	// most that this node sends to an engine without limits of its own. Default: 0, no
	// limit. They are for upstreams that bill or that have a quota.
	MaxRequestsPerMinute int `yaml:"max_requests_per_minute" min:"0"`
	MaxTokensPerMinute   int `yaml:"max_tokens_per_minute" min:"0"`

	Discover  Discover  `yaml:"discover"`
	Simulator Simulator `yaml:"simulator"`
	Estimates Estimates `yaml:"estimates"`
	Retention Retention `yaml:"retention"`
	Webhooks  Webhooks  `yaml:"webhooks"`
	Quotas    []Quota   `yaml:"quotas"` // per priority; what is not named keeps its default
	Log       Log       `yaml:"log"`
	Tracing   Tracing   `yaml:"tracing"`
}

// APIKeys are the administrator keys of the configuration.
func (s Settings) APIKeys() (keys []string) {
	for line := range strings.Lines(s.APIKey.Reveal()) {
		if key := strings.TrimSpace(line); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// Defaults are the settings of a node that was told nothing, before Load
// completes them: Data depends on the environment, and a list that is given
// replaces its default.
func Defaults() (s Settings) {
	setDefaults(reflect.ValueOf(&s).Elem())
	return s
}

// setDefaults sets settings to the default tags of their fields.
func setDefaults(section reflect.Value) {
	for field, value := range section.Fields() {
		if value.Kind() == reflect.Struct {
			setDefaults(value)
		} else if text, found := field.Tag.Lookup("default"); found {
			value.Set(parsed(text, value.Type()))
		}
	}
}

// parsed is the value of a tag of this package.
func parsed(text string, t reflect.Type) reflect.Value {
	value, err := scalar(text, t)
	if err != nil {
		panic(fmt.Sprintf("a tag of a setting: %v", err))
	}
	return reflect.ValueOf(value).Convert(t)
}
