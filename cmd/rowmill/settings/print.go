package settings

import (
	"io"

	"go.yaml.in/yaml/v3"
)

// Print writes the settings as a YAML file that Load reads back, except that
// secrets are redacted.
func (s Settings) Print(w io.Writer) error {
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(s); err != nil {
		return err
	}
	return enc.Close()
}
