package jobs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rowmill/rowmill/cmd/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
)

// defaultServer is where `rowmill serve` listens unless it is told otherwise.
const defaultServer = "http://127.0.0.1:8088"

// profile is the client's file of settings.
type profile struct {
	Server string `yaml:"server"`
	APIKey string `yaml:"api_key"`
}

// connect returns a client of the service that flags, environment and profile
// name, in that order.
func (c *commands) connect() (*client.Client, error) {
	server := first(c.server, c.IO.Getenv("ROWMILL_SERVER"))
	key, err := c.findKey()
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	if server == "" || key == "" {
		name, p, err := c.readProfile()
		if err != nil {
			return nil, exit.With(exit.Usage, err)
		}
		if server == "" {
			server = p.Server
		}
		// The profile's key belongs to the profile's server.
		if key == "" && p.APIKey != "" {
			if p.Server != "" && strings.TrimRight(p.Server, "/") != strings.TrimRight(server, "/") {
				return nil, exit.With(exit.Auth, fmt.Errorf("no API key for %s: the one in %s is for %s; set ROWMILL_API_KEY or --api-key-file", server, name, p.Server))
			}
			key = p.APIKey
		}
	}
	if key == "" {
		return nil, exit.With(exit.Auth, errors.New("no API key: set ROWMILL_API_KEY or use --api-key-file; `rowmill serve` prints a key when it first starts"))
	}
	api, err := client.New(client.Config{Server: first(server, defaultServer), Key: key, UserAgent: c.UserAgent})
	return api, exit.With(exit.Usage, err)
}

// findKey returns the key that flags or environment name, empty for none.
func (c *commands) findKey() (string, error) {
	switch {
	case c.key != "" && c.keyFile != "":
		return "", errors.New("--api-key and --api-key-file exclude each other")
	case c.key != "":
		return c.key, nil
	case c.keyFile != "":
		return readKey(c.keyFile)
	case c.IO.Getenv("ROWMILL_API_KEY") != "":
		return c.IO.Getenv("ROWMILL_API_KEY"), nil
	case c.IO.Getenv("ROWMILL_API_KEY_FILE") != "":
		return readKey(c.IO.Getenv("ROWMILL_API_KEY_FILE"))
	}
	return "", nil
}

func readKey(name string) (string, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read the API key: %w", err)
	}
	key := strings.TrimSpace(string(content))
	if key == "" {
		return "", fmt.Errorf("read the API key: %s is empty", name)
	}
	return key, nil
}

// readProfile reads the client's file, if there is one.
func (c *commands) readProfile() (string, profile, error) {
	dir := c.IO.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) {
		home := c.IO.Getenv("HOME")
		if home == "" {
			return "", profile{}, nil
		}
		dir = filepath.Join(home, ".config")
	}
	name := filepath.Join(dir, "rowmill", "config.yaml")
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return name, profile{}, nil
	}
	if err != nil {
		return name, profile{}, fmt.Errorf("read the client's settings: %w", err)
	}
	defer file.Close()
	var p profile
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

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
