package settings

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Suffixes of keys that say where a secret is: in a file, in an environment variable,
// or in a systemd credential. For example, api_key_file names the file of api_key, and
// ROWMILL_API_KEY_FILE does so for ROWMILL_API_KEY.
const (
	fileSuffix       = "_file"
	envSuffix        = "_env"
	credentialSuffix = "_credential"
)

var suffixes = []string{fileSuffix, envSuffix, credentialSuffix}

// splitSecretKey splits a key that says where a secret is, such as api_key_file, into
// the secret's key and the suffix. secret is empty for other keys.
func splitSecretKey(key string, fields map[string]reflect.StructField) (secret, suffix string) {
	for _, suffix := range suffixes {
		if secret, cut := strings.CutSuffix(key, suffix); cut && fields[secret].Type == secretType {
			return secret, suffix
		}
	}
	return "", ""
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	bytesType    = reflect.TypeFor[Bytes]()
	secretType   = reflect.TypeFor[Secret]()
)

// A decoder writes the YAML nodes of one source, such as a file, into Settings.
type decoder struct {
	source  string          // name of the file, the variable or the flag, for errors
	lines   bool            // if true, errors name the line in the source
	environ []string        // environment variables, for keys such as api_key_env
	given   map[string]bool // keys of the settings that were set; the decoder adds the keys that it sets
	errs    []error
}

func (d *decoder) addError(node *yaml.Node, format string, args ...any) {
	where := d.source
	if d.lines {
		where = fmt.Sprintf("%s:%d", d.source, node.Line)
	}
	d.errs = append(d.errs, fmt.Errorf("%s: %s", where, fmt.Sprintf(format, args...)))
}

func (d *decoder) err() error { return errors.Join(d.errs...) }

// decodeValue decodes a node into a setting and reports success. If the node is null, which
// means the default, or decoding fails, the setting does not change.
func (d *decoder) decodeValue(node *yaml.Node, into reflect.Value, path string) bool {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return false
	}
	switch into.Kind() {
	case reflect.Pointer:
		value := reflect.New(into.Type().Elem())
		if !d.decodeValue(node, value.Elem(), path) {
			return false
		}
		into.Set(value)
		return true
	case reflect.Struct:
		return d.decodeSection(node, into, path)
	case reflect.Slice:
		return d.decodeList(node, into, path)
	case reflect.Map:
		return d.decodeMap(node, into, path)
	}
	if node.Kind != yaml.ScalarNode {
		d.addError(node, "%s must be a single value", path)
		return false
	}
	v, err := parseScalar(node.Value, into.Type())
	if err != nil {
		d.addError(node, "%s: %v", path, err)
		return false
	}
	into.Set(reflect.ValueOf(v).Convert(into.Type()))
	return true
}

// decodeSection decodes a mapping into a struct of settings. Settings that are not in the
// mapping do not change.
func (d *decoder) decodeSection(node *yaml.Node, into reflect.Value, path string) bool {
	if node.Kind != yaml.MappingNode {
		d.addError(node, "%s must be a mapping of settings", cmp.Or(path, "the file"))
		return false
	}
	fields := settingFields(into.Type())
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name := key.Value
		if secret, suffix := splitSecretKey(name, fields); secret != "" {
			name = secret
			read := map[string]func(string) (string, error){fileSuffix: d.readFile, envSuffix: d.readVariable, credentialSuffix: d.readCredential}
			value = d.readSecret(value, joinPath(path, key.Value), read[suffix])
		}
		field, known := fields[name]
		if !known {
			d.addError(key, "unknown key %s%s", joinPath(path, key.Value), formatSuggestion(joinPath(path, key.Value), settingNames()))
			continue
		}
		if seen[name] {
			d.addError(key, "%s is set twice", joinPath(path, name))
			continue
		}
		seen[name] = true
		if d.decodeValue(value, into.FieldByIndex(field.Index), joinPath(path, name)) {
			d.given[joinPath(path, name)] = true
		}
	}
	return true
}

// readSecret returns a node with the secret that read finds. The value of node is the
// argument of read, such as the name of a file.
func (d *decoder) readSecret(node *yaml.Node, path string, read func(name string) (string, error)) *yaml.Node {
	secret := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: node.Line}
	if node.Kind != yaml.ScalarNode || node.Tag == "!!null" || node.Value == "" {
		return secret
	}
	text, err := read(node.Value)
	switch {
	case err != nil:
		d.addError(node, "%s: %v", path, err)
	case text == "":
		d.addError(node, "%s: %s is empty; it must hold the secret", path, node.Value)
	default:
		secret.Tag, secret.Value = "!!str", text
	}
	return secret
}

// readFile returns a file's content without the line end.
func (d *decoder) readFile(name string) (string, error) {
	content, err := os.ReadFile(name)
	return strings.TrimRight(string(content), "\r\n"), err
}

func (d *decoder) readVariable(name string) (string, error) {
	text := lookupEnviron(d.environ, name)
	if text == "" {
		return "", fmt.Errorf("environment variable %s is not set", name)
	}
	return text, nil
}

// readCredential returns a credential that systemd gave the service by LoadCredential=
// or LoadCredentialEncrypted=.
func (d *decoder) readCredential(name string) (string, error) {
	dir := lookupEnviron(d.environ, credentialsVariable)
	switch {
	case dir == "":
		return "", fmt.Errorf("%s is not set; systemd sets it for a unit with LoadCredential=%s:FILE", credentialsVariable, name)
	case name != filepath.Base(name) || name == "..":
		return "", fmt.Errorf("%q is not the name of a credential", name)
	}
	return d.readFile(filepath.Join(dir, name))
}

// credentialsVariable is the variable in which systemd names the directory of a unit's
// credentials.
const credentialsVariable = "CREDENTIALS_DIRECTORY"

// decodeList decodes a sequence into a slice. It replaces all old elements of the slice.
func (d *decoder) decodeList(node *yaml.Node, into reflect.Value, path string) bool {
	if node.Kind != yaml.SequenceNode {
		d.addError(node, "%s must be a list", path)
		return false
	}
	out := reflect.MakeSlice(into.Type(), 0, len(node.Content))
	for i, item := range node.Content {
		element := reflect.New(into.Type().Elem()).Elem()
		if element.Kind() == reflect.Struct {
			setDefaults(element)
		}
		// In a list of engines, a plain string is an engine's URL, and in a list of servers
		// the command of a server.
		if short, ok := element.Addr().Interface().(interface{ mainField() *string }); ok && item.Kind == yaml.ScalarNode {
			*short.mainField() = item.Value
		} else if !d.decodeValue(item, element, fmt.Sprintf("%s[%d]", path, i)) {
			continue
		}
		out = reflect.Append(out, element)
	}
	into.Set(out)
	return true
}

// decodeMap decodes a mapping whose keys may be any names, such as accounts, and adds its
// entries to the map.
func (d *decoder) decodeMap(node *yaml.Node, into reflect.Value, path string) bool {
	if node.Kind == yaml.SequenceNode && into.Type().Elem().Kind() == reflect.String {
		node = mapOfNames(node)
	}
	if node.Kind != yaml.MappingNode {
		d.addError(node, "%s must be a mapping of names", path)
		return false
	}
	if into.IsNil() {
		into.Set(reflect.MakeMap(into.Type()))
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, element := node.Content[i], reflect.New(into.Type().Elem()).Elem()
		if d.decodeValue(node.Content[i+1], element, joinPath(path, name.Value)) {
			into.SetMapIndex(reflect.ValueOf(name.Value), element)
		}
	}
	return true
}

// mapOfNames returns a mapping that has each name of a list with an empty value.
func mapOfNames(list *yaml.Node) *yaml.Node {
	names := *list
	names.Kind, names.Content = yaml.MappingNode, nil
	for _, name := range list.Content {
		names.Content = append(names.Content, name, &yaml.Node{Kind: yaml.ScalarNode, Line: name.Line, Column: name.Column})
	}
	return &names
}

func parseScalar(text string, t reflect.Type) (any, error) {
	switch t {
	case durationType:
		v, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a duration; write a number and a unit, such as 30s, 5m or 2h", text)
		}
		return v, nil
	case bytesType:
		return ParseBytes(text)
	case secretType:
		if text == redacted {
			return nil, errors.New("holds the placeholder that `rowmill config print` writes for a secret; put the secret there, or remove the line")
		}
		return Secret(text), nil
	}
	switch t.Kind() {
	case reflect.Bool:
		v, err := strconv.ParseBool(text)
		if err != nil {
			return nil, fmt.Errorf("%q is neither true nor false", text)
		}
		return v, nil
	case reflect.Int, reflect.Int64:
		v, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a whole number", text)
		}
		return v, nil
	case reflect.Float64:
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", text)
		}
		return v, nil
	}
	return text, nil
}

// settingFields returns the fields of a struct of settings and of the structs embedded in it. The
// key is the name of the setting. For a type that is not a struct, the result is empty.
func settingFields(t reflect.Type) map[string]reflect.StructField {
	fields := map[string]reflect.StructField{}
	if t.Kind() != reflect.Struct {
		return fields
	}
	for _, field := range reflect.VisibleFields(t) {
		if !field.Anonymous {
			fields[field.Tag.Get("yaml")] = field
		}
	}
	return fields
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
