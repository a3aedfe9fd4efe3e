package settings

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

// load calls Load with the content of a file and a HOME.
func load(t *testing.T, file string, environ []string, flags ...Flag) (Settings, error) {
	t.Helper()
	src := Sources{Flags: flags, Environ: append([]string{"HOME=/home/someone"}, environ...)}
	if file != "" {
		src.File = filepath.Join(t.TempDir(), "rowmill.yaml")
		must.Succeed(t, os.WriteFile(src.File, []byte(file), 0o600))
	}
	return Load(src)
}

// valid is load for settings without an error.
func valid(t *testing.T, file string, environ []string, flags ...Flag) Settings {
	t.Helper()
	s := must.Get(load(t, file, environ, flags...))(t)
	return s
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	file := "http: {listen: '127.0.0.1:1'}"
	environ := []string{"ROWMILL_HTTP_LISTEN=127.0.0.1:2"}
	flag := Flag{"--listen", "http.listen", []string{"127.0.0.1:3"}}
	for _, test := range []struct {
		name    string
		file    string
		environ []string
		flags   []Flag
		want    string
	}{
		{"default", "", nil, nil, "127.0.0.1:8088"},
		{"file over default", file, nil, nil, "127.0.0.1:1"},
		{"environment over file", file, environ, nil, "127.0.0.1:2"},
		{"environment without file", "", environ, nil, "127.0.0.1:2"},
		{"flag over all", file, environ, []Flag{flag}, "127.0.0.1:3"},
		{"later flag over earlier", "", nil, []Flag{flag, {"--set", "http.listen", []string{"127.0.0.1:4"}}}, "127.0.0.1:4"},
		{"empty variable is none", file, []string{"ROWMILL_HTTP_LISTEN="}, nil, "127.0.0.1:1"},
		{"null in the file is the default", "http: {listen: null}", nil, nil, "127.0.0.1:8088"},
		{"empty section", "http:\njobs:\n", nil, nil, "127.0.0.1:8088"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := valid(t, test.file, test.environ, test.flags...)
			if s.HTTP.Listen != test.want {
				t.Errorf("listen is %q, want %q", s.HTTP.Listen, test.want)
			}
			if s.Jobs.MaxActive != 64 {
				t.Errorf("max_active is %d: a setting that was not named lost its default", s.Jobs.MaxActive)
			}
		})
	}
}

func TestEveryType(t *testing.T) {
	t.Parallel()
	s := valid(t, `
data: /srv/mill
inputs: {max_bytes: 1.5GiB, max_row_bytes: 1000, allow_loopback: false, max_rows: 5_000}
jobs: {max_failed_rows: 1, part_interval: 250ms, weights: {acme: 3}}
sources: {lake: {url: 's3://lake/raw', credentials: file, profile: lake, accounts: [acme], prefixes: [reviews]}}
engines:
- http://127.0.0.1:8000
- {url: 'http://gpu2:8000/v1', name: two, api_key: s3cret, models: {llama-3.1-8b: meta/llama}}
servers:
- llama-server -m x.gguf --port {port}
- {run: 'vllm serve a/b --port {port} -tp 4', name: big, gpus: 4, ready: 1h, models: {a: a/b}}
discover: {enabled: always, addresses: ['127.0.0.1:8000', 'gpu2:9000']}
simulator: {enabled: never}
webhooks: {retries: [1s, 90m]}
quotas: [{priority: 1, row_quota: 7}]
`, []string{"ROWMILL_JOBS_MAX_ACTIVE=3", "ROWMILL_CI=1", "ROWMILL_PORT=tcp://10.0.0.1:80", "ROWMILL_SERVICE_HOST=10.0.0.1", "OTHER=x"})
	one, seven := int64(1), int64(7)
	want := Defaults()
	want.Data = "/srv/mill"
	want.Inputs.MaxBytes, want.Inputs.MaxRowBytes, want.Inputs.AllowLoopback, want.Inputs.MaxRows = 3<<29, 1000, false, 5000
	want.Jobs.MaxFailedRows, want.Jobs.PartInterval, want.Jobs.MaxActive = &one, 250*time.Millisecond, 3
	want.Jobs.Weights = map[string]int{"acme": 3}
	want.Sources = map[string]Source{"lake": {URL: "s3://lake/raw", Credentials: "file", Profile: "lake", Accounts: []string{"acme"}, Prefixes: []string{"reviews"}}}
	want.Engines = []Engine{
		{URL: "http://127.0.0.1:8000"},
		{URL: "http://gpu2:8000/v1", Name: "two", APIKey: "s3cret", Models: map[string]string{"llama-3.1-8b": "meta/llama"}},
	}
	want.Servers = []Server{
		{Run: "llama-server -m x.gguf --port {port}", Name: "server-1", Ready: 10 * time.Minute},
		{Run: "vllm serve a/b --port {port} -tp 4", Name: "big", GPUs: 4, Ready: time.Hour, Models: map[string]string{"a": "a/b"}},
	}
	want.Discover.Enabled, want.Discover.Addresses = Always, []string{"127.0.0.1:8000", "gpu2:9000"} // the two defaults are replaced
	want.Simulator.Enabled = Never
	want.Webhooks.Retries = []time.Duration{time.Second, 90 * time.Minute}
	want.Quotas = defaultQuotas()
	want.Quotas[rowmill.Production].RowQuota = &seven
	if diff := cmp.Diff(want, s); diff != "" {
		t.Error(diff)
	}
}

func TestListsFromEnvironmentAndFlags(t *testing.T) {
	t.Parallel()
	file := "engines: [{url: 'http://a', name: a}, 'http://b', 'http://c']"
	s := valid(t, file, []string{"ROWMILL_ENGINES=http://d, http://e", "ROWMILL_QUOTAS=[{priority: 0, token_quota: 9}]"})
	if diff := cmp.Diff([]Engine{{URL: "http://d"}, {URL: "http://e"}}, s.Engines); diff != "" {
		t.Error("a list replaces the list below it:", diff)
	}
	if diff := cmp.Diff(defaultAddresses(), s.Discover.Addresses); diff != "" {
		t.Error(diff)
	}
	if *s.Quotas[0].TokenQuota != 9 || *s.Quotas[0].RowQuota != 1000 {
		t.Error("quotas not merged:", *s.Quotas[0].TokenQuota, *s.Quotas[0].RowQuota)
	}
	s, err := load(t, "", []string{"ROWMILL_DISCOVER_ADDRESSES=a:1, b:2"}, Flag{"--set", "simulator.enabled", []string{"never"}})
	if diff := cmp.Diff([]string{"a:1", "b:2"}, s.Discover.Addresses); diff != "" || err != nil {
		t.Error(diff, err)
	}
	s, err = load(t, file, []string{"ROWMILL_ENGINES=http://d"}, Flag{"--engine", "engines", []string{"http://x", "http://y"}})
	must.Succeed(t, err)
	if len(s.Engines) != 2 || s.Engines[1].URL != "http://y" {
		t.Error("flags did not replace the engines:", s.Engines)
	}
	s = valid(t, "servers: ['a {port}']", nil, Flag{"--run", "servers", []string{"b, {port}", "c {port}"}}, Flag{"--simulate", "simulator.enabled", []string{"never"}}, Flag{"--set", "discover.enabled", []string{"never"}})
	if len(s.Servers) != 2 || s.Servers[0].Run != "b, {port}" || s.Servers[1].Name != "server-2" || s.Servers[1].Ready != 10*time.Minute {
		t.Error("flags did not replace the servers:", s.Servers)
	}
	const lake = "{lake: {url: 'file:///srv/lake', write: true, accounts: [acme]}}"
	for _, from := range []string{"a flag", "the environment"} {
		var environ []string
		var flags []Flag
		if from == "a flag" {
			flags = append(flags, Flag{"--set", "sources", []string{lake}})
		} else {
			environ = append(environ, "ROWMILL_SOURCES="+lake)
		}
		s, err = load(t, "", environ, flags...)
		must.Succeed(t, err)
		if diff := cmp.Diff(map[string]Source{"lake": {URL: "file:///srv/lake", Write: true, Accounts: []string{"acme"}}}, s.Sources); diff != "" {
			t.Errorf("sources from %s: %s", from, diff)
		}
	}
}

func TestComplaints(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		file    string
		environ string
		flag    Flag
		want    []string
	}{
		{name: "slip of a key", file: "jobs:\n  max_activ: 3", want: []string{"rowmill.yaml:2: unknown key jobs.max_activ; did you mean jobs.max_active?"}},
		{name: "key in the wrong place", file: "listen: ':80'", want: []string{"unknown key listen; did you mean http.listen?"}},
		{name: "nothing near", file: "colour: blue", want: []string{"unknown key colour", "config print"}},
		{name: "inside a list", file: "engines:\n- uri: http://a", want: []string{":2: unknown key engines[0].uri; did you mean engines[].url?"}},
		{name: "all at once", file: "a_b: 1\nlog: {level: info, levle: x}", want: []string{"unknown key a_b", "did you mean log.level?"}},
		{name: "twice", file: "api_key: a\napi_key_file: /etc/hostname", want: []string{"api_key is set twice"}},
		{name: "duration without unit", file: "jobs: {drain_timeout: 30}", want: []string{"jobs.drain_timeout", `"30" is not a duration`, "30s"}},
		{name: "size", file: "inputs: {max_bytes: 10 gallons}", want: []string{"inputs.max_bytes", "is not a size"}},
		{name: "number", environ: "ROWMILL_JOBS_MAX_ACTIVE=many", want: []string{"environment variable ROWMILL_JOBS_MAX_ACTIVE", `"many" is not a whole number`}},
		{name: "boolean", file: "inputs: {allow_loopback: perhaps}", want: []string{"neither true nor false"}},
		{name: "unknown variable", environ: "ROWMILL_LISTEN=x", want: []string{"environment variable ROWMILL_LISTEN: unknown setting; did you mean ROWMILL_HTTP_LISTEN?"}},
		{name: "unknown flag key", flag: Flag{"--set", "jobs.max_actve", []string{"1"}}, want: []string{"flag --set: unknown key jobs.max_actve; did you mean jobs.max_active?"}},
		{name: "flag key inside a list", flag: Flag{"--set", "engines[].url", []string{"http://a"}}, want: []string{"flag --set: unknown key engines[].url"}},
		{name: "section as a value", flag: Flag{"--set", "jobs", []string{"1"}}, want: []string{"jobs is a section"}},
		{name: "list as a value", file: "data: [a]", want: []string{"data must be a single value"}},
		{name: "two documents", file: "data: /a\n---\ndata: /b", want: []string{"only one YAML document"}},
		{name: "no YAML", file: "data: [", want: []string{"rowmill.yaml"}},
		{name: "half of TLS", file: "http: {tls_cert: a.pem}", want: []string{"http.tls_cert: must be set together with http.tls_key"}},
		{name: "address", flag: Flag{"--listen", "http.listen", []string{"8088"}}, want: []string{"http.listen: must be HOST:PORT"}},
		{name: "priority", file: "quotas: [{priority: 9}]", want: []string{"quotas[0].priority: is 9; it must be " + rowmill.PriorityValues}},
		{name: "quota", file: "quotas: [{priority: 1, token_quota: 0}]", want: []string{"quotas[1].token_quota: must be at least 1"}},
		{name: "engine URL", file: "engines: [localhost]", want: []string{"engines[0].url"}},
		{name: "engine twice", file: "engines: ['http://a', 'http://a']", want: []string{"engines[1].name", "used twice"}},
		{name: "server without a port", file: "servers: [vllm serve]", want: []string{`servers[0].run: must contain {port}, such as vllm serve MODEL --port {port}, is "vllm serve"`}},
		{name: "names of servers", file: "engines: [{url: 'http://a', name: a}]\nservers: [{run: '{port}', name: a}, {run: '{port}', name: ../b}]", want: []string{`servers[0].name: "a" is used twice`, "servers[1].name: must have only letters"}},
		{name: "bounds of a server", file: "servers: [{run: '{port}', gpus: -1, ready: 0s}]", want: []string{"servers[0].gpus: must be at least 0, is -1", "servers[0].ready: must be at least 1s, is 0s"}},
		{name: "simulated, and a server", file: "servers: ['{port}']", flag: Flag{"--simulate", "simulator.enabled", []string{"always"}}, want: []string{"simulator.enabled: is always, but engines are configured"}},
		{name: "servers of a node that runs no rows", file: "servers: ['{port}']\nstore: {url: 'redis://a:6379'}\ncluster: {listen: '10.0.0.1:7946', role: api}", want: []string{"cluster.role: is api"}},
		{name: "choice", file: "simulator: {enabled: yes}", want: []string{`simulator.enabled: must be auto, always or never, is "yes"`}},
		{name: "port alone", file: "discover: {addresses: [':8000']}", want: []string{"discover.addresses[0]: must be HOST:PORT"}},
		{name: "address twice", file: "discover: {addresses: ['a:1', 'b:1', 'a:1']}", want: []string{"discover.addresses[2]: a:1 is named twice"}},
		{name: "no address", file: "discover: {addresses: []}", want: []string{"discover.addresses: names no address", "never"}},
		{name: "restless", file: "discover: {interval: 1ms, timeout: 0s}\njobs: {probe_interval: 0s}", want: []string{"discover.interval: must be at least 100ms", "discover.timeout", "jobs.probe_interval"}},
		{name: "simulated and real", file: "engines: ['http://a']", flag: Flag{"--simulate", "simulator.enabled", []string{"always"}}, want: []string{"simulator.enabled: is always, but engines are configured"}},
		{name: "no engine at all", file: "discover: {enabled: never}\nsimulator: {enabled: never}", want: []string{"simulator.enabled: is never", "--engine URL"}},
		{name: "secret variable missing", file: "engines: [{url: 'http://a', api_key_env: NO_SUCH_KEY}]", want: []string{":1: engines[0].api_key_env: environment variable NO_SUCH_KEY is not set"}},
		{name: "secret twice", file: "engines: [{url: 'http://a', api_key_env: HOME, api_key: x}]", want: []string{"engines[0].api_key is set twice"}},
		{name: "credential without systemd", file: "api_key_credential: api-key", want: []string{"api_key_credential: CREDENTIALS_DIRECTORY is not set", "LoadCredential=api-key:FILE"}},
		{name: "credential elsewhere", file: "api_key_credential: ../key", environ: "CREDENTIALS_DIRECTORY=/run", want: []string{`"../key" is not the name of a credential`}},
		{name: "credential twice", file: "api_key_credential: a\napi_key_file: b", environ: "CREDENTIALS_DIRECTORY=/nonexistent", want: []string{"api_key is set twice"}},
		{name: "short signing key", file: "http: {signing_key: 'records eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eA=='}", want: []string{"http.signing_key: key 2 of 2 must be 32 bytes or more in base64"}},
		{name: "audience without issuer", file: "oidc: {audience: mill}", want: []string{"oidc: needs oidc.issuer"}},
		{name: "issuer in the clear", file: "oidc: {issuer: 'http://login.example.org', audience: mill, account: a, role: user}", want: []string{"oidc.issuer: must be an https URL"}},
		{name: "issuer alone", file: "oidc: {issuer: 'https://login.example.org'}", want: []string{"oidc.audience: must be", "oidc.account: must name", "oidc.role: must be the role"}},
		{name: "unknown role", file: "oidc: {issuer: 'https://a', audience: mill, account: a, role_claim: g, roles: {x.y: root}}", want: []string{"oidc.roles.x.y: must be admin, user or reader, is \"root\""}},
		{name: "roles of no claim", file: "oidc: {issuer: 'https://a', audience: mill, account: a, role: user, roles: {x: user}, accounts: {x: y}}", want: []string{"oidc.roles: maps", "oidc.accounts: maps"}},
		{name: "share as a word", file: "tracing: {sample: all}", want: []string{"tracing.sample", `"all" is not a number`}},
		{name: "shares beyond all", file: "tracing: {sample: 1.5, rows: -1, queue: 0, timeout: 1ms}", want: []string{"tracing.sample: must be a share from 0 to 1, is 1.5", "tracing.rows", "tracing.queue", "tracing.timeout"}},
		{name: "collector without a scheme", file: "tracing: {endpoint: 'collector:4318'}", want: []string{"tracing.endpoint: must be an http or https URL"}},
		{name: "weight that is no number", file: "jobs: {weights: {acme: heavy}}", want: []string{"rowmill.yaml:1: jobs.weights.acme: \"heavy\" is not a whole number"}},
		{name: "header without a value", file: "tracing: {headers: 'a=b,x-key'}", want: []string{"tracing.headers: entry 2 of 2 must be NAME=VALUE"}},
		{name: "header of two lines", file: "tracing: {headers: 'a=b%0d%0ac'}", want: []string{"tracing.headers: entry 1 of 1"}},
		{name: "unknown sampler", environ: "OTEL_TRACES_SAMPLER=jaeger_remote", file: "tracing: {endpoint: 'http://c'}", want: []string{`OTEL_TRACES_SAMPLER: "jaeger_remote" is not supported`, "tracing.sample"}},
		{name: "sampler without a share", environ: "OTEL_TRACES_SAMPLER=traceidratio", file: "tracing: {endpoint: 'http://c'}", want: []string{"OTEL_TRACES_SAMPLER_ARG: must be a number"}},
		{name: "source without a place", file: "sources: {lake: {}}", want: []string{"sources.lake.url: must be s3://BUCKET, s3://BUCKET/PREFIX or file:///DIRECTORY"}},
		{name: "source with a relative folder", file: "sources: {lake: {url: 'file://data/x'}}", want: []string{"sources.lake.url: must be"}},
		{name: "source without a bucket", file: "sources: {lake: {url: 's3:///x'}}", want: []string{"sources.lake.url: must be"}},
		{name: "names of sources", file: "sources: {job: {url: 'file:///a'}, La-ke: {url: 'file:///a'}}", want: []string{"sources.job: the name of a source must not be job", "sources.La-ke: the name of a source must have"}},
		{name: "folder with a region", file: "sources: {lake: {url: 'file:///a', region: r, endpoint: 'http://e', credentials: role, credentials_file: f, profile: p}}", want: []string{
			"sources.lake.region: is only for", "sources.lake.endpoint: is", "sources.lake.credentials: is", "sources.lake.credentials_file: is", "sources.lake.profile: is",
		}},
		{name: "credentials of a source", file: "sources: {lake: {url: 's3://b', endpoint: e, credentials: password, credentials_file: f, profile: p}}", want: []string{
			"sources.lake.endpoint: must be an http", `sources.lake.credentials: must be environment, file or role, is "password"`, "sources.lake.credentials_file: needs", "sources.lake.profile: needs",
		}},
		{name: "rules of a source", file: "sources: {lake: {url: 's3://b', prefixes: [a/, ../b], accounts: ['']}}", want: []string{`sources.lake.prefixes[1]: must be the path of a folder`, "sources.lake.accounts[0]: must name"}},
		{name: "unknown key of a source", file: "sources: {lake: {uri: 's3://b'}}", want: []string{":1: unknown key sources.lake.uri"}},
		{name: "sources in a variable", environ: "ROWMILL_SOURCES=lake", want: []string{"sources must be a mapping"}},
		{name: "budget below a row", file: "jobs: {memory_budget: 1MiB}", want: []string{"jobs.memory_budget", "8MiB"}},
		{name: "level", file: "log: {level: chatty}", want: []string{"log.level"}},
		{name: "URL of the audit webhook", file: "log: {audit_webhook: 'http://siem/?token=hush'}", want: []string{"log.audit_webhook: must be an http or https URL", "together with log.audit_webhook_secret"}},
		{name: "audit_webhook_secret alone", file: "log: {audit_webhook_secret: whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz}", want: []string{"log.audit_webhook: must be set together"}},
		{name: "secret of acts too short", file: "log: {audit_webhook: 'http://siem', audit_webhook_secret: whsec_MDEyMw==}", want: []string{"log.audit_webhook_secret: secret 1 of 1 must be whsec_"}},
		{name: "no failed rows", file: "jobs: {max_failed_rows: 0}", want: []string{"jobs.max_failed_rows: must be at least 1, or null for 5 % of"}},
		{name: "redacted secret", file: "api_key: (redacted)", want: []string{"api_key: holds the placeholder"}},
		{name: "secret file missing", environ: "ROWMILL_API_KEY_FILE=/nonexistent/key", want: []string{"ROWMILL_API_KEY_FILE", "no such file"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var environ []string
			var flags []Flag
			if test.environ != "" {
				environ = []string{test.environ}
			}
			if test.flag.Key != "" {
				flags = []Flag{test.flag}
			}
			_, err := load(t, test.file, environ, flags...)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"api": "one\n two \n\n", "gpu": "three\n"} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	s := valid(t, "engines: [{url: 'http://a', api_key_credential: gpu}]", []string{"CREDENTIALS_DIRECTORY=" + dir, "ROWMILL_API_KEY_CREDENTIAL=api"})
	if got := s.APIKeys(); !slices.Equal(got, []string{"one", "two"}) || s.Engines[0].APIKey.Reveal() != "three" {
		t.Errorf("administrators' keys %q, an engine's %q", got, s.Engines[0].APIKey.Reveal())
	}
}

func TestSigningKeys(t *testing.T) {
	t.Parallel()
	key := strings.Repeat("A", 43) + "="
	s := valid(t, "http: {signing_key: '"+key+", records'}", nil)
	keys, err := s.HTTP.SigningKeys()
	if err != nil || len(keys) != 2 || len(keys[0]) != 32 || keys[1] != nil {
		t.Errorf("got %v, %v", keys, err)
	}
}

// OpenTelemetry's own variables replace settings that are not set, if they ask for OTLP
// over HTTP.
func TestTracing(t *testing.T) {
	t.Parallel()
	injected := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://agent:4318/", "OTEL_EXPORTER_OTLP_HEADERS=x-key=one, Authorization=Basic%20YQ==", "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.25"}
	for _, test := range []struct {
		name    string
		file    string
		environ []string
		want    Tracing
	}{
		{"nothing", "", nil, Tracing{Sample: 1}},
		{"a sampler without a collector", "", injected[2:], Tracing{Sample: 1}},
		{"variables", "", injected, Tracing{Endpoint: "http://agent:4318/v1/traces", Headers: "x-key=one, Authorization=Basic%20YQ==", Sample: 0.25}},
		{"one for traces", "", append([]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://vendor/otlp", "OTEL_EXPORTER_OTLP_TRACES_HEADERS=a=b"}, injected...), Tracing{Endpoint: "https://vendor/otlp", Headers: "a=b", Sample: 0.25}},
		{"settings first", "tracing: {endpoint: 'http://own:4318', headers: c=d, sample: 0.5}", injected, Tracing{Endpoint: "http://own:4318/v1/traces", Headers: "c=d", Sample: 0.5}},
		{"a path of its own", "tracing: {endpoint: 'http://own/in/traces'}", nil, Tracing{Endpoint: "http://own/in/traces", Sample: 1}},
		{"another protocol", "", append([]string{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, injected...), Tracing{Sample: 1}},
		{"the same for traces", "", append([]string{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf"}, injected[:1]...), Tracing{Endpoint: "http://agent:4318/v1/traces", Sample: 1}},
		{"another exporter", "", append([]string{"OTEL_TRACES_EXPORTER=none"}, injected...), Tracing{Sample: 1}},
		{"switched off", "", append([]string{"OTEL_SDK_DISABLED=true"}, injected...), Tracing{Sample: 1}},
		{"always off", "", append([]string{"OTEL_TRACES_SAMPLER=always_off"}, injected[:1]...), Tracing{Endpoint: "http://agent:4318/v1/traces"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := valid(t, test.file, test.environ)
			test.want.Rows, test.want.Queue, test.want.Timeout = 0.01, 4096, 10*time.Second
			if s.Tracing != test.want {
				t.Errorf("got %#v", s.Tracing)
			}
		})
	}
	s := valid(t, "", injected)
	values, err := s.Tracing.HeaderValues()
	if diff := cmp.Diff(map[string]string{"X-Key": "one", "Authorization": "Basic YQ=="}, values); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "key")
	must.Succeed(t, os.WriteFile(name, []byte("from-a-file\n"), 0o600))
	s := must.Get(load(t, "engines: [{url: 'http://a', api_key_file: "+name+"}, {url: 'http://b', api_key_env: GPU_KEY}]",
		[]string{"ROWMILL_API_KEY=from-the-environment", "GPU_KEY=from-a-variable"}, Flag{"--api-key-file", "api_key_file", []string{name}}))(t)
	if s.APIKey.Reveal() != "from-a-file" || s.Engines[0].APIKey.Reveal() != "from-a-file" {
		t.Errorf("keys read: %q, %q", s.APIKey.Reveal(), s.Engines[0].APIKey.Reveal())
	}
	if s.Engines[1].APIKey.Reveal() != "from-a-variable" {
		t.Errorf("key read from a variable: %q", s.Engines[1].APIKey.Reveal())
	}
	var printed strings.Builder
	must.Succeed(t, s.Print(&printed))
	fmt.Fprintf(&printed, "%v %+v %#v %s", s, s, s, s.APIKey)
	if strings.Contains(printed.String(), "from-") {
		t.Error("a secret was printed:\n" + printed.String())
	}
	if !strings.Contains(printed.String(), "api_key: (redacted)") {
		t.Error("print does not say that a key is set:\n" + printed.String())
	}
}

// Load reads the output of Print: it knows each printed key.
func TestPrintRoundTrip(t *testing.T) {
	t.Parallel()
	s := valid(t, "", nil)
	var printed strings.Builder
	must.Succeed(t, s.Print(&printed))
	again := must.Get(load(t, printed.String(), nil))(t)
	if diff := cmp.Diff(s, again, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

func TestDataDirectory(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		environ []string
		want    string
	}{
		{[]string{"HOME=/h"}, "/h/.local/state/rowmill"},
		{[]string{"HOME=/h", "XDG_STATE_HOME=/state"}, "/state/rowmill"},
		{[]string{"HOME=/h", "XDG_STATE_HOME=relative"}, "/h/.local/state/rowmill"},
		{[]string{"HOME=/h", "ROWMILL_DATA=/d"}, "/d"},
		{nil, ""},
	} {
		s, err := Load(Sources{Environ: test.environ})
		if test.want == "" {
			if err == nil || !strings.Contains(err.Error(), "--data") {
				t.Errorf("%v: error %v does not name the remedy", test.environ, err)
			}
			continue
		}
		if err != nil || s.Data != test.want {
			t.Errorf("%v: data %q, error %v; want %q", test.environ, s.Data, err, test.want)
		}
	}
}

func TestBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Bytes{"0": 0, "17": 17, "16MiB": 16 * MiB, "1.5 GiB": 3 << 29, "2kB": 2000, "7B": 7, "3TiB": 3 * TiB} {
		got, err := ParseBytes(text)
		if err != nil || got != want {
			t.Errorf("%q is %d, error %v; want %d", text, got, err, want)
		}
		if again, err := ParseBytes(got.String()); err != nil || again != got {
			t.Errorf("%v does not read back: %v, error %v", got, again, err)
		}
	}
	for _, text := range []string{"", "-1", "MiB", "1 mib", "99999999TiB", "NaNMiB", "-3MiB"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("%q was read as %d", text, got)
		}
	}
}

// A node that other machines reach fetches nothing from its own machine, unless a
// setting allows it.
func TestLoopbackInputsFollowTheListener(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		file string
		want bool
	}{
		{"", true},
		{"http: {listen: 'localhost:80'}", true},
		{"http: {listen: '[::1]:80'}", true},
		{"http: {listen: '0.0.0.0:80'}", false},
		{"http: {listen: ':80'}", false},
		{"http: {listen: '10.0.0.7:80'}", false},
		{"http: {listen: ':80'}\ninputs: {allow_loopback: true}", true},
		{"inputs: {allow_loopback: false}", false},
	} {
		s, err := load(t, test.file, nil)
		if err != nil || s.Inputs.AllowLoopback != test.want {
			t.Errorf("%s: %v, error %v", test.file, s.Inputs.AllowLoopback, err)
		}
	}
}
