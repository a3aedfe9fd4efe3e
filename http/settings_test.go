package http

import (
	"testing"

	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/store"
)

func (w *world) patchSettings(query, body string, headers ...string) *answered {
	w.Helper()
	return w.do("PATCH", "/v1/settings"+query, body, headers...)
}

func TestSettings_RetentionIs90DaysByDefault(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.get("/v1/settings").wantBody(`{"account":"default","retention_days":90}`)
	settings, version, err := store.LoadSettings(t.Context(), w.store, "acme")
	if err != nil || version != 0 || settings.RetentionDays == nil || *settings.RetentionDays != 90 {
		t.Errorf("%+v, version %d, %v", settings, version, err)
	}
}

func TestSettings_RetentionPresets(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, days := range []string{"1", "7", "30", "90", "null"} {
		want := `{"account":"default","retention_days":` + days + `}`
		w.patchSettings("", `{"retention_days":`+days+`}`).wantBody(want)
		w.get("/v1/settings").wantBody(want)
		// Absent fields keep their values.
		w.patchSettings("", `{}`).wantBody(want)
	}
	settings, _, err := store.LoadSettings(t.Context(), w.store, "default")
	if err != nil || settings.RetentionDays != nil {
		t.Errorf("never is %+v, %v", settings, err)
	}
	for body, piece := range map[string]string{
		`{"retention_days":0}`:    "one of 1, 7, 30 and 90",
		`{"retention_days":2}`:    "one of 1, 7, 30 and 90",
		`{"retention_days":-1}`:   "one of 1, 7, 30 and 90",
		`{"retention_days":365}`:  "one of 1, 7, 30 and 90",
		`{"retention_days":1.5}`:  "one of 1, 7, 30 and 90",
		`{"retention_days":"90"}`: "or null for never",
	} {
		w.patchSettings("", body).wantField("retention_days", piece)
	}
	w.patchSettings("", `{"retention":1}`).wantField("retention", "is unknown")
	w.patchSettings("", `[]`).wantError(400, "invalid_json", "object")
	w.get("/v1/settings").wantBody(`{"account":"default","retention_days":null}`)
}

func TestSettings_ArePerAccount(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.patchSettings("?account=acme", `{"retention_days":7}`).wantBody(`{"account":"acme","retention_days":7}`)
	w.patchSettings("", `{"account":"other","retention_days":1}`).wantBody(`{"account":"other","retention_days":1}`)
	w.get("/v1/settings").wantBody(`{"account":"default","retention_days":90}`)
	admin := "Key " + w.keyOf("acme", caller.RoleAdmin)
	w.get("/v1/settings", "Authorization", admin).wantBody(`{"account":"acme","retention_days":7}`)
	w.patchSettings("?account=a", `{"account":"b"}`).wantField("account", "name one")
}

func TestSettings_IfMatch(t *testing.T) {
	t.Parallel()
	w := setup(t)
	tag := w.get("/v1/settings").want(200).header.Get("ETag")
	next := w.patchSettings("", `{"retention_days":1}`, "If-Match", tag).want(200).header.Get("ETag")
	w.patchSettings("", `{"retention_days":7}`, "If-Match", tag).wantError(412, "changed_meanwhile", "read them again")
	w.patchSettings("", `{"retention_days":7}`, "If-Match", "*").want(200)
	w.patchSettings("", `{"retention_days":30}`, "If-Match", next).want(412)
	w.get("/v1/settings").wantBody(`{"account":"default","retention_days":7}`)
}

// All roles of an account may read the settings; only administrators may change them.
func TestSettings_AreReadByAll(t *testing.T) {
	t.Parallel()
	w := setup(t)
	keys := map[string]string{}
	for _, role := range []string{caller.RoleUser, caller.RoleReader} {
		keys[role] = "Key " + w.keyOf("acme", role)
	}
	w.patchSettings("?account=acme", `{"retention_days":7}`).want(200)
	for role, key := range keys {
		w.get("/v1/settings", "Authorization", key).wantBody(`{"account":"acme","retention_days":7}`)
		w.get("/v1/settings?account=other", "Authorization", key).wantError(403, "forbidden", role)
		w.get("/v1/settings/preview?account=other", "Authorization", key).wantError(403, "forbidden", role)
		w.patchSettings("", `{"retention_days":1}`, "Authorization", key).wantError(403, "forbidden", "role")
	}
	w.get("/v1/settings?account=acme").wantBody(`{"account":"acme","retention_days":7}`)
}
