package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// settingFlags lists the flags that each set one setting. If list is true, the flag may
// be repeated, and each use adds a value.
var settingFlags = []struct {
	flag, key string
	list      bool
	help      string
}{
	{"data", "data", false, "directory of records and objects (default: rowmill in $XDG_STATE_HOME, else ~/.local/state/rowmill)"},
	{"listen", "http.listen", false, "address of the API, HOST:PORT (default 127.0.0.1:8088)"},
	{"admin-listen", "http.admin_listen", false, "separate address for /metrics and pprof (default: /metrics on --listen, no pprof)"},
	{"public-url", "http.public_url", false, "base of signed download URLs, if clients reach this node by another address than --listen"},
	{"tls-cert", "http.tls_cert", false, "certificate file (PEM) to serve HTTPS"},
	{"tls-key", "http.tls_key", false, "key file (PEM) to serve HTTPS"},
	{"api-key-file", "api_key_file", false, "file that holds an administrator key (default: $ROWMILL_API_KEY, else one is made at the first start)"},
	{"catalog", "catalog", false, "YAML file of models (default: the built-in catalog)"},
	{"simulate", "simulator.enabled", false, "simulated answers: always, never or auto; without a value it means always (default auto: if no server is configured or found and there is no GPU)"},
	{"max-requests-per-minute", "max_requests_per_minute", false, "maximum number of requests that this node sends to each engine in a minute (default: no limit)"},
	{"max-tokens-per-minute", "max_tokens_per_minute", false, "maximum number of tokens, of prompts and answers, that this node sends to each engine in a minute (default: no limit)"},
	{"log-level", "log.level", false, "debug, info, warn or error (default info)"},
	{"log-format", "log.format", false, "text, json or auto (default auto: text on a terminal)"},
	{"engine", "engines", true, "URL of an OpenAI-compatible server; repeatable (default: servers found at the usual local ports)"},
	{"run", "servers", true, "command of an inference server that the node starts and ends, with {port} for the port; repeatable (default: none)"},
	{"join", "cluster.join", true, "another node's gossip address, HOST:PORT, its cluster.listen; repeatable (default: none)"},
}

// addSettingsFlags adds the flags of a node's settings to flags. The returned function
// loads the settings; call it after the flags are parsed.
func addSettingsFlags(flags *pflag.FlagSet, term *terminal.IO) func() (settings.Settings, error) {
	file := flags.String("config", "", "YAML file of settings (default: $ROWMILL_CONFIG)")
	for _, f := range settingFlags {
		if f.list {
			flags.StringArray(f.flag, nil, f.help)
		} else {
			flags.String(f.flag, "", f.help)
		}
	}
	flags.Lookup("simulate").NoOptDefVal = string(settings.Always)
	sets := flags.StringArray("set", nil, "any other setting as KEY=VALUE, such as jobs.max_active=8; repeatable")
	return func() (settings.Settings, error) {
		src := settings.Sources{Environ: term.Environ, File: *file}
		for _, set := range *sets {
			key, value, found := strings.Cut(set, "=")
			if !found {
				return settings.Settings{}, exit.WithCode(exit.Usage, fmt.Errorf("flag --set %q must be KEY=VALUE", set))
			}
			src.Flags = append(src.Flags, settings.Flag{Name: "--set", Key: key, Values: []string{value}})
		}
		for _, f := range settingFlags {
			given := flags.Lookup(f.flag)
			if !given.Changed {
				continue
			}
			values := []string{given.Value.String()}
			if list, ok := given.Value.(pflag.SliceValue); ok {
				values = list.GetSlice()
			}
			src.Flags = append(src.Flags, settings.Flag{Name: "--" + f.flag, Key: f.key, Values: values})
		}
		s, err := settings.Load(src)
		return s, exit.WithCode(exit.Usage, err)
	}
}

func configCommand(term *terminal.IO) *cobra.Command {
	root := &cobra.Command{
		Use:   "config",
		Short: "Show or check the settings of a node",
		Long: `Show or check the settings of a node.

Settings come from flags, then ROWMILL_ variables, then one YAML file (--config
or ROWMILL_CONFIG), then defaults. The variable of jobs.max_active is
ROWMILL_JOBS_MAX_ACTIVE; a list of engines may be written as URLs with commas
in ROWMILL_ENGINES. To read a secret such as api_key from a file, set
api_key_file or ROWMILL_API_KEY_FILE to the name of the file; to read it from
another variable, set api_key_env to the name of the variable. Unknown keys
are errors.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	show := &cobra.Command{
		Use:     "print",
		Short:   "Print the effective settings as YAML, with secrets redacted",
		Example: "  rowmill config print > rowmill.yaml   # a file to begin with",
		Args:    cobra.NoArgs,
	}
	load := addSettingsFlags(show.Flags(), term)
	show.RunE = func(*cobra.Command, []string) error {
		s, err := load()
		if err != nil {
			return err
		}
		return s.Print(term.Out)
	}
	check := &cobra.Command{
		Use:     "validate",
		Short:   "Check the settings; if some are wrong, print the errors and exit with code 2",
		Example: "  rowmill config validate --config rowmill.yaml",
		Args:    cobra.NoArgs,
	}
	loadToCheck := addSettingsFlags(check.Flags(), term)
	check.RunE = func(*cobra.Command, []string) error {
		if _, err := loadToCheck(); err != nil {
			return err
		}
		term.Say("the settings are valid")
		return nil
	}
	root.AddCommand(show, check)
	return root
}
