package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rowmill/rowmill"
)

// defaultRetentionDays is how long an account without a choice of its own
// keeps inputs and results.
const defaultRetentionDays = 90

// RetentionPresets are the days that an account may choose from, besides
// never.
func RetentionPresets() []int { return []int{1, 7, 30, defaultRetentionDays} }

// Settings are what an account has chosen for itself.
type Settings struct {
	// RetentionDays is how many days after its end a job's input, parts and
	// results are kept; nil for ever.
	RetentionDays *int `json:"retention_days"`
}

// SettingsValue names the value that holds an account's settings.
func SettingsValue(account string) string { return "settings/" + account }

// LoadSettings returns an account's settings and the version of their
// document, 0 where it has none and the defaults apply.
func LoadSettings(ctx context.Context, values Values, account string) (Settings, int64, error) {
	days := defaultRetentionDays
	text, version, err := values.GetValue(ctx, SettingsValue(account))
	if errors.Is(err, rowmill.ErrNotFound) {
		return Settings{RetentionDays: &days}, 0, nil
	}
	var settings Settings
	if err == nil {
		err = json.Unmarshal(text, &settings)
	}
	if err != nil {
		return Settings{}, 0, fmt.Errorf("read the settings of an account: %w", err)
	}
	return settings, version, nil
}
