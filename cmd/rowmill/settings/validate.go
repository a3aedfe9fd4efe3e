package settings

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A requireFunc records an error if good is false. The error names the setting key; format
// and args give its message.
type requireFunc func(good bool, key, format string, args ...any)

// runChecks calls the rules and returns the errors that they record. Each error names its
// setting.
func runChecks(rules ...func(requireFunc)) error {
	var errs []error
	for _, rule := range rules {
		rule(func(good bool, key, format string, args ...any) {
			if !good {
				errs = append(errs, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
			}
		})
	}
	return errors.Join(errs...)
}

// Validate returns an error for each invalid setting. Each error names its setting.
func (s Settings) Validate() error {
	fields := func(check requireFunc) { checkFields(reflect.ValueOf(s), "", "", check) }
	return runChecks(fields, s.checkStorage, s.checkCluster, s.checkJobs, s.checkEngines, s.checkSources)
}

func (s Settings) check(require requireFunc) {
	require(s.SecretsInterval == 0 || s.SecretsInterval >= 100*time.Millisecond, "secrets_interval", "must be at least 100ms, or 0s to check only at SIGHUP, is %v", s.SecretsInterval)
	require(s.MemoryLimit == 0 || s.MemoryLimit >= s.Jobs.MemoryBudget, "memory_limit",
		"must be above jobs.memory_budget (%v), or 0 for three times that plus 32 MiB, is %v", s.Jobs.MemoryBudget, s.MemoryLimit)
}

// checkFields checks a value and all values within it: by the check method of each
// section, and by the min tag of each field. minTag is the min tag of value. The tag of
// a list or a mapping applies to each of its values.
func checkFields(value reflect.Value, key, minTag string, check requireFunc) {
	switch value.Kind() {
	case reflect.Struct:
		if section, ok := value.Interface().(interface{ check(requireFunc) }); ok {
			section.check(check)
		}
		for field, value := range value.Fields() {
			name := key
			if !field.Anonymous {
				name = joinPath(key, field.Tag.Get("yaml"))
			}
			checkFields(value, name, field.Tag.Get("min"), check)
		}
	case reflect.Slice:
		for i := range value.Len() {
			checkFields(value.Index(i), fmt.Sprintf("%s[%d]", key, i), minTag, check)
		}
	case reflect.Map:
		byName := func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) }
		for _, name := range slices.SortedFunc(slices.Values(value.MapKeys()), byName) {
			checkFields(value.MapIndex(name), joinPath(key, name.String()), minTag, check)
		}
	case reflect.Int, reflect.Int64:
		if minTag == "" {
			return
		}
		bound := mustParseTag(minTag, value.Type())
		switch n, least := value.Int(), bound.Int(); {
		case value.Type() == durationType:
			check(n >= least, key, "must be at least %v, is %v", bound, value)
		case least == 1:
			check(n >= least, key, "must be above 0, is %d", n)
		default:
			check(n >= least, key, "must be at least %d, is %d", least, n)
		}
	}
}

func isHostPort(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

func isBaseURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.RawQuery == "" && u.User == nil
}
