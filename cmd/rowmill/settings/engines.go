package settings

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill/engine"
)

// Engine names one OpenAI-compatible inference server and configures its use.
type Engine struct {
	// URL is the server's base URL, such as http://127.0.0.1:8000. A path that ends in
	// /v1 is accepted. Required.
	URL string `yaml:"url"`
	// Name is the engine's name in rows and logs. Default: host and port of URL.
	Name string `yaml:"name"`
	// APIKey is sent to the server as a bearer token. Default: none. api_key_file names
	// a file with the key, api_key_env an environment variable with the key.
	APIKey Secret `yaml:"api_key"`
	// Models maps model IDs of the catalog to the names that the server uses. Default:
	// the engine_names of the catalog.
	Models map[string]string `yaml:"models"`
	// MaxRequestsPerMinute and MaxTokensPerMinute limit what this node sends to this
	// engine. Default: 0, which means the limits of the node with the same names.
	MaxRequestsPerMinute int `yaml:"max_requests_per_minute" min:"0"`
	MaxTokensPerMinute   int `yaml:"max_tokens_per_minute" min:"0"`
}

func (e *Engine) mainField() *string { return &e.URL }

// Server configures one inference server that the node starts, uses as an engine, and
// ends.
type Server struct {
	// Run is the command that starts the server, for `sh -c`. The node writes the port of
	// the server in place of {port}. Required.
	Run string `yaml:"run"`
	// Name is the name of the engine, and of the server's files. Default: server-1,
	// server-2 and so on, by the place in the list.
	Name string `yaml:"name"`
	// GPUs is the number of GPUs of this machine that only this server uses while it runs. If
	// the servers need more GPUs than there are, they take turns, by the rows that wait.
	// Default: 0, which leaves CUDA_VISIBLE_DEVICES as it is.
	GPUs int `yaml:"gpus" min:"0"`
	// Ready is the time after a start in which the server must answer. Default: 10m; a
	// large model takes minutes to load.
	Ready time.Duration `yaml:"ready" default:"10m" min:"1s"`
	// Idle is how long the server runs without rows before it stops. Default: 0, which means
	// that it runs until another server needs its GPUs.
	Idle time.Duration `yaml:"idle" min:"0s"`
	// Sleep makes the server sleep in place of stopping: it keeps the weights in the memory of
	// the machine, and is back in seconds. Only vLLM with --enable-sleep-mode can do this.
	// Default: false.
	Sleep bool `yaml:"sleep"`
	// Models is like Models of Engine, or a list of model IDs of the catalog. Default: the node
	// starts the server once and asks it.
	Models map[string]string `yaml:"models"`
	// Adapters has the paths of LoRA adapters, by the name of the model that each makes. The
	// node loads an adapter into the server when rows need it. The command of vLLM needs
	// --enable-lora. Default: none.
	Adapters map[string]string `yaml:"adapters"`
}

// Placement configures how servers that the node starts share its GPUs.
type Placement struct {
	// GPUs has the indices of the GPUs that servers use. Default: all NVIDIA GPUs of this
	// machine. Two nodes on one machine need different GPUs.
	GPUs []int `yaml:"gpus" min:"0"`
	// Hold is the shortest time for which a server with rows runs, except when rows of
	// priority 0 wait for another server. Default: 2m, so that loading does not take most of
	// the time.
	Hold time.Duration `yaml:"hold" default:"2m" min:"0s"`
	// MaxWait is how long rows of a model wait until a server with rows of another model makes
	// room. Default: 30m; until then the order is chosen so that all rows are done soonest.
	MaxWait time.Duration `yaml:"max_wait" default:"30m" min:"1s"`
	// Drain is how long a server that makes room may run the rows that it has. Then these rows
	// run again. Default: 20s, enough for most answers.
	Drain time.Duration `yaml:"drain" default:"20s" min:"0s"`
}

func (s *Server) mainField() *string { return &s.Run }

// PortVariable is the text in Server.Run that the node replaces by the port.
const PortVariable = "{port}"

// serverName matches the names of servers. They are names of files too.
var serverName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Discovery configures how the node finds inference servers that are not in the
// settings. The node never sends a key to such servers.
type Discovery struct {
	// Enabled is auto, always or never. Default: auto, which looks for servers only if
	// no engine is configured: an operator who names servers wants only these.
	Enabled FeatureMode `yaml:"enabled" default:"auto"`
	// Addresses are the addresses at which the node looks for servers, HOST:PORT.
	// Default: 127.0.0.1 with the usual ports 8000 (vLLM), 8080 (llama.cpp), 11434
	// (Ollama) and 30000 (SGLang).
	Addresses []string `yaml:"addresses"`
	// Interval is the time between two searches for servers. Default: 5s, less than any
	// model takes to load.
	Interval time.Duration `yaml:"interval" default:"5s" min:"100ms"`
	// Timeout limits one search of all addresses, also the search at start. Default:
	// 1s; an idle server answers in milliseconds.
	Timeout time.Duration `yaml:"timeout" default:"1s" min:"10ms"`
}

// A FeatureMode says when the node uses a feature.
type FeatureMode string

// The values of a FeatureMode.
const (
	Auto   FeatureMode = "auto"   // the node decides from other settings and from its machine
	Always FeatureMode = "always" // the feature is on, whatever the other settings are
	Never  FeatureMode = "never"
)

// Simulator configures the built-in simulated engine. This engine serves every model of
// the catalog and makes up its answers.
type Simulator struct {
	// Enabled is auto, always or never. Default: auto, which simulates if no engine is
	// configured or found at start and the machine has no NVIDIA GPU. A machine with a
	// GPU probably has a server that is still loading, so the node waits for it.
	Enabled FeatureMode `yaml:"enabled" default:"auto"`
	// TTFT is the time to the first token. Default: 20ms, similar to a small model.
	TTFT time.Duration `yaml:"ttft" default:"20ms" min:"0s"`
	// PerToken is the time of each further token. Default: 200us, so that a
	// thousand-row demo ends in seconds.
	PerToken time.Duration `yaml:"per_token" default:"200us" min:"0s"`
	// Slots is how many rows the simulator runs at the same time. Default: 256, like
	// vLLM.
	Slots int `yaml:"slots" default:"256" min:"1"`
}

// defaultAddresses returns the addresses at which inference servers usually listen on
// this machine.
func defaultAddresses() []string {
	return []string{"127.0.0.1:8000", "127.0.0.1:8080", "127.0.0.1:11434", "127.0.0.1:30000"}
}

// DisplayName returns the engine's name, or the host and port of its URL.
func (e Engine) DisplayName() string {
	if e.Name != "" {
		return e.Name
	}
	return e.Host()
}

// EngineRateLimit returns how many requests and tokens per minute this node may send to an engine.
func (s Settings) EngineRateLimit(engineName string) engine.RateLimit {
	pace := engine.RateLimit{Requests: s.MaxRequestsPerMinute, Tokens: s.MaxTokensPerMinute}
	for _, e := range s.Engines {
		if e.DisplayName() == engineName {
			pace.Requests = cmp.Or(e.MaxRequestsPerMinute, pace.Requests)
			pace.Tokens = cmp.Or(e.MaxTokensPerMinute, pace.Tokens)
		}
	}
	return pace
}

// Host returns the host and port of the engine's URL.
func (e Engine) Host() string {
	if u, err := url.Parse(e.URL); err == nil && u.Host != "" {
		return u.Host
	}
	return e.URL
}

// checkEngines checks the settings of inference servers against each other.
func (s Settings) checkEngines(check requireFunc) {
	names, configured := map[string]bool{}, len(s.Engines)+len(s.Servers) > 0
	for i, e := range s.Engines {
		key := fmt.Sprintf("engines[%d]", i)
		check(isBaseURL(e.URL), key+".url", "must be an http or https URL without query, such as http://127.0.0.1:8000, is %q", e.URL)
		check(!names[e.DisplayName()], key+".name", "%q is used twice; give each engine a name of its own", e.DisplayName())
		names[e.DisplayName()] = true
	}
	for i, e := range s.Servers {
		key := fmt.Sprintf("servers[%d]", i)
		check(strings.Contains(e.Run, PortVariable), key+".run", "must contain %s, such as vllm serve MODEL --port %s, is %q", PortVariable, PortVariable, e.Run)
		check(serverName.MatchString(e.Name), key+".name", "must have only letters, digits and . _ -, and begin with a letter or a digit, because files get this name; is %q", e.Name)
		check(!names[e.Name], key+".name", "%q is used twice; give each server and engine a name of its own", e.Name)
		names[e.Name] = true
	}
	chosen := func(key string, c FeatureMode) {
		check(slices.Contains([]FeatureMode{Auto, Always, Never}, c), key, "must be auto, always or never, is %q", c)
	}
	chosen("discover.enabled", s.Discover.Enabled)
	chosen("simulator.enabled", s.Simulator.Enabled)
	for i, address := range s.Discover.Addresses {
		key := fmt.Sprintf("discover.addresses[%d]", i)
		check(isHostPort(address) && address[0] != ':', key, "must be HOST:PORT, such as 127.0.0.1:8000, is %q", address)
		check(!slices.Contains(s.Discover.Addresses[:i], address), key, "%s is named twice", address)
	}
	check(len(s.Discover.Addresses) > 0, "discover.addresses", "names no address; to look nowhere, set discover.enabled to never")
	check(s.Simulator.Enabled != Always || !configured, "simulator.enabled",
		"is always, but engines are configured: simulated and real outputs are never mixed; remove one of the two (--simulate=auto)")
	check(s.Simulator.Enabled != Never || configured || s.Discover.Enabled != Never, "simulator.enabled",
		"is never, as is discover.enabled, and no engine is configured: name one with --engine URL")
}
