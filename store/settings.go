package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rowmill/rowmill"
)

// defaultRetentionDays is the number of days for which inputs and results are kept if the
// account has no setting of its own.
const defaultRetentionDays = 90

// RetentionPresets returns the numbers of days that an account can choose from; "never"
// is the other choice.
func RetentionPresets() []int { return []int{1, 7, 30, defaultRetentionDays} }

// AccountSettings are the settings that an account can change.
type AccountSettings struct {
	// RetentionDays is the number of days after the end of a job for which its input,
	// parts and results are kept. nil means that they never expire.
	RetentionDays *int `json:"retention_days"`
}

// SettingsValueName returns the name of the value that holds an account's settings.
func SettingsValueName(account string) string { return "settings/" + account }

// LoadSettings returns an account's settings and the version of their document. The
// version is 0 when no document exists and the defaults apply.
func LoadSettings(ctx context.Context, values NamedValues, account string) (AccountSettings, int64, error) {
	days := defaultRetentionDays
	text, version, err := values.GetValue(ctx, SettingsValueName(account))
	if errors.Is(err, rowmill.ErrNotFound) {
		return AccountSettings{RetentionDays: &days}, 0, nil
	}
	var settings AccountSettings
	if err == nil {
		err = json.Unmarshal(text, &settings)
	}
	if err != nil {
		return AccountSettings{}, 0, fmt.Errorf("read the settings of an account: %w", err)
	}
	return settings, version, nil
}
