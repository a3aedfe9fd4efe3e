package http

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/http/caller"
)

func TestSubmit_WithoutIdempotencyKeyARepeatIsASecondJob(t *testing.T) {
	t.Parallel()
	w := setup(t)
	first, second := w.submitted(`{"inputs":["a"]}`), w.submitted(`{"inputs":["a"]}`)
	if first == second {
		t.Error("both have the same id")
	}
}

func TestSubmit_IdempotencyKey(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.MaxInlineBytes = 10 })
	body := `{"inputs":["a row that is spooled"],"x":1}`
	first := w.post(body, "Idempotency-Key", "k1").want(200).json()
	second := w.post(body, "Idempotency-Key", "k1").want(200).json()
	if first["results"] != second["results"] || fmt.Sprint(first["warnings"]) != fmt.Sprint(second["warnings"]) {
		t.Errorf("first %v, second %v", first, second)
	}
	objects, _ := w.bucket.List(t.Context(), "")
	if len(objects) != 1 || w.bucket.writing != 0 || len(w.service.submitted) != 1 {
		t.Errorf("objects %v, %d writers, hints %v", objects, w.bucket.writing, w.service.submitted)
	}
	w.post(`{"inputs":["another row"]}`, "Idempotency-Key", "k1").wantError(409, "idempotency_conflict", "another body")
	if id := w.submitted(body, "Idempotency-Key", "k2"); id == first["results"] {
		t.Error("another key led to the same job")
	}
	other := w.keyOf("other", caller.RoleUser)
	if id := w.submitted(body, "Idempotency-Key", "k1", "Authorization", "Key "+other); id == first["results"] {
		t.Error("another account's key led to the same job")
	}
	w.post(body, "Idempotency-Key", strings.Repeat("k", 129)).wantField("Idempotency-Key", "1 to 128")
	w.submitted(body, "Idempotency-Key", strings.Repeat("k", 128))
}

func TestSubmit_IdempotencyKeyIsNotUsedUpByARefusal(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.post(`{"inputs":[]}`, "Idempotency-Key", "k").want(400)
	w.submitted(`{"inputs":["a"]}`, "Idempotency-Key", "k")
}
