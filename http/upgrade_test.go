package http

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/http/access"
	"github.com/rowmill/rowmill/http/quotas"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// putValue writes a stored value as a newer version may have written it.
func (w *world) putValue(name, doc string, version int64) {
	w.Helper()
	must.Get(w.store.PutValue(w.Context(), name, json.RawMessage(doc), version))(w)
}

// wantValue checks that a stored value contains texts.
func (w *world) wantValue(name string, texts ...string) {
	w.Helper()
	doc, _, err := w.store.GetValue(w.Context(), name)
	must.Succeed(w, err)
	for _, text := range texts {
		if !strings.Contains(string(doc), text) {
			w.Errorf("%s lacks %s: %s", name, text, doc)
		}
	}
}

func TestSettings_KeepWhatANewerVersionWrote(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.putValue(store.SettingsValueName("default"), `{"retention_days":7,"region":{"only":["eu"],"digits":1.10}}`, 0)
	w.patchSettings("", `{"retention_days":1}`).wantBody(`{"account":"default","retention_days":1}`)
	w.wantValue(store.SettingsValueName("default"), `"retention_days":1`, `"region":{"only":["eu"],"digits":1.10}`)
}

func TestQuotas_KeepWhatANewerVersionWrote(t *testing.T) {
	t.Parallel()
	w := quotaed(t)
	w.putValue(quotas.ValueName("default"), `{"quotas":[{"priority":1,"row_quota":3,"burst":9}],"cost_quota_usd":null,"jobs_a_day":5}`, 0)
	w.putQuotas("", `{"quotas":[{"priority":0,"row_quota":7},{"priority":1,"row_quota":4}]}`).want(200)
	w.wantValue(quotas.ValueName("default"), `"row_quota":7`, `"row_quota":4`, `"burst":9`, `"jobs_a_day":5`)
}

// An unknown role of a newer version may allow less than all known roles, so the key is
// refused.
func TestKeys_OfAnUnknownRoleAreRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	text, key := access.NewKey("default", "auditor", "newer", time.Now())
	must.Succeed(t, w.store.PutKey(t.Context(), key))
	w.do("GET", "/v1/list-jobs", "", "Authorization", "Key "+text).want(401)
}
