// Package connect finds the address of the service and the API key for a command: in
// flags, the environment, or the client's own settings file. It owns this file; package
// client speaks the API.
package connect

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// Help describes where the address of the service and the API key come from.
const Help = `The service and the key come from --server and --api-key-file, else from
ROWMILL_SERVER and ROWMILL_API_KEY (or ROWMILL_API_KEY_FILE), else from
$XDG_CONFIG_HOME/rowmill/config.yaml (~/.config/rowmill/config.yaml). This
file must be readable by you alone:

    server: http://127.0.0.1:8088
    api_key: …`

// defaultServer is the default address of `rowmill serve`.
const defaultServer = "http://127.0.0.1:8088"

// Options holds the flags that name the service and the API key.
type Options struct {
	Term      *terminal.IO
	UserAgent string

	server  string
	key     string
	keyFile string
}

// AddFlags adds the flags that name the service and the API key to a command and all its
// subcommands.
func (o *Options) AddFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&o.server, "server", "", "address of the service (default "+defaultServer+")")
	flags.StringVar(&o.keyFile, "api-key-file", "", "file that holds the API key")
	flags.StringVar(&o.key, "api-key", "", "the API key; other users of this machine can see the command line, so prefer a file or ROWMILL_API_KEY")
	flags.BoolVarP(&o.Term.Quiet, "quiet", "q", o.Term.Quiet, "no progress, and no messages except errors")
}

// clientConfig is the content of the client's settings file.
type clientConfig struct {
	Server string `yaml:"server"`
	APIKey string `yaml:"api_key"`
}

// NewClient returns a client of the service. The address and the key come from the flags,
// the environment or the profile, in this order.
func (o *Options) NewClient() (*client.Client, error) {
	server := cmp.Or(o.server, o.Term.Getenv("ROWMILL_SERVER"))
	key, err := o.findAPIKey()
	if err != nil {
		return nil, exit.WithCode(exit.Usage, err)
	}
	if server == "" || key == "" {
		name, p, err := o.readProfile()
		if err != nil {
			return nil, exit.WithCode(exit.Usage, err)
		}
		if server == "" {
			server = p.Server
		}
		// Send the profile's key only to the profile's server.
		if key == "" && p.APIKey != "" {
			if p.Server != "" && strings.TrimRight(p.Server, "/") != strings.TrimRight(server, "/") {
				return nil, exit.WithCode(exit.Auth, fmt.Errorf("no API key for %s: the one in %s is for %s; set ROWMILL_API_KEY or --api-key-file", server, name, p.Server))
			}
			key = p.APIKey
		}
	}
	if key == "" {
		return nil, exit.WithCode(exit.Auth, errors.New("no API key: set ROWMILL_API_KEY or use --api-key-file; `rowmill serve` prints a key when it first starts"))
	}
	api, err := client.New(client.Config{Server: cmp.Or(server, defaultServer), Key: key, UserAgent: o.UserAgent})
	return api, exit.WithCode(exit.Usage, err)
}

// findAPIKey returns the API key from the flags or the environment; empty if there is
// none.
func (o *Options) findAPIKey() (string, error) {
	switch {
	case o.key != "" && o.keyFile != "":
		return "", errors.New("--api-key and --api-key-file exclude each other")
	case o.key != "":
		return o.key, nil
	case o.keyFile != "":
		return readKeyFile(o.keyFile)
	case o.Term.Getenv("ROWMILL_API_KEY") != "":
		return o.Term.Getenv("ROWMILL_API_KEY"), nil
	case o.Term.Getenv("ROWMILL_API_KEY_FILE") != "":
		return readKeyFile(o.Term.Getenv("ROWMILL_API_KEY_FILE"))
	}
	return "", nil
}

func readKeyFile(name string) (string, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read the API key: %w", err)
	}
	// The file may be the api_key_file of a node, which may hold several keys, one per
	// line.
	key, _, _ := strings.Cut(strings.TrimSpace(string(content)), "\n")
	if key = strings.TrimSpace(key); key == "" {
		return "", fmt.Errorf("read the API key: %s is empty", name)
	}
	return key, nil
}

// readProfile reads the client's settings file and returns its name and content. If
// there is no file, the content is empty.
func (o *Options) readProfile() (string, clientConfig, error) {
	dir := o.Term.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) {
		home := o.Term.Getenv("HOME")
		if home == "" {
			return "", clientConfig{}, nil
		}
		dir = filepath.Join(home, ".config")
	}
	name := filepath.Join(dir, "rowmill", "config.yaml")
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return name, clientConfig{}, nil
	}
	if err != nil {
		return name, clientConfig{}, fmt.Errorf("read the client's settings: %w", err)
	}
	defer file.Close()
	var p clientConfig
	dec := yaml.NewDecoder(file)
	dec.KnownFields(true)
	if err := dec.Decode(&p); err != nil && !errors.Is(err, io.EOF) {
		return name, p, fmt.Errorf("read %s (it may hold server and api_key): %w", name, err)
	}
	info, err := file.Stat()
	if err != nil {
		return name, p, fmt.Errorf("read the client's settings: %w", err)
	}
	if p.APIKey != "" && info.Mode().Perm()&0o077 != 0 {
		return name, p, fmt.Errorf("%s holds an API key and others can read it; run: chmod 600 %s", name, name)
	}
	return name, p, nil
}
