package jobs

import (
	"strings"
	"testing"
)

// Without --model, submit uses the only served model if the default is not served.
func TestSubmit_ModelThatIsServed(t *testing.T) {
	t.Parallel()
	const own = `{"id":"acme/Own-7B","served_by":[{"node":"n","engine":"e"}]}`
	for name, test := range map[string]struct {
		models string
		args   []string
		code   int
		said   string
		sent   any
	}{
		"one":              {`{"data":[` + own + `,{"id":"gpt-oss-20b","served_by":[]}]}`, nil, 0, "using the model acme/Own-7B", "acme/Own-7B"},
		"one, and a model": {`{"data":[` + own + `]}`, []string{"--model", "gpt-oss-20b"}, 0, "", "gpt-oss-20b"},
		"the default":      {`{"data":[` + own + `,{"id":"gpt-oss-20b","served_by":[{"node":"n","engine":"e"}]}]}`, nil, 0, "", nil},
		"none":             {`{"data":[{"id":"gpt-oss-20b","served_by":[]}]}`, nil, 0, "", nil},
		"several":          {`{"data":[` + own + `,{"id":"b","served_by":[{"node":"n","engine":"e"}]}]}`, nil, 2, "choose one with --model: acme/Own-7B, b", nil},
		"no list":          {"", nil, 0, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, done)
			s.models = test.models
			c := newCall(t, s)
			c.stdin = "a\n"
			c.run(append([]string{"submit", "-", "-d"}, test.args...)...).want(t, test.code, test.said)
			if test.code != 0 {
				if len(s.submissions) > 0 {
					t.Error("something was sent")
				}
				return
			}
			if sent := s.submissions[0]["model"]; sent != test.sent {
				t.Errorf("model %v, want %v", sent, test.sent)
			}
			if test.said == "" && strings.Contains(c.err.String(), "using the model") {
				t.Errorf("said %s", c.err.String())
			}
		})
	}
}

// submit reports a broken quota before it sends a row.
func TestSubmit_Quotas(t *testing.T) {
	t.Parallel()
	const quotas = `{"quotas":[{"priority":0,"row_quota":5,"token_quota":0},{"priority":1,"row_quota":0,"token_quota":10000}]}`
	for name, test := range map[string]struct {
		rows int
		row  string
		args []string
		code int
		said []string
	}{
		"within":          {5, "x", nil, 0, nil},
		"too many rows":   {6, "x", nil, 2, []string{"has 6 rows", "may run 5 in one job of priority 0", "rowmill quotas set --priority 0 --rows 6"}},
		"no quota":        {6, "x", []string{"--priority", "1"}, 0, nil},
		"too many tokens": {10, strings.Repeat("word ", 1000), []string{"--priority", "1"}, 0, []string{"warning: the prompts have about 13,", "may run 10,000", "rowmill quotas set --priority 1 --tokens"}},
		"many short rows": {5000, "x", []string{"--priority", "1"}, 0, []string{"warning: the prompts have about"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, done)
			s.quotas = quotas
			c := newCall(t, s)
			c.stdin = strings.Repeat(test.row+"\n", test.rows)
			c.run(append([]string{"submit", "-", "-d", "-m", "gpt-oss-20b"}, test.args...)...).want(t, test.code, test.said...)
			if sent := len(s.submissions) > 0; sent != (test.code == 0) {
				t.Errorf("sent: %v", sent)
			}
			if test.said == nil && strings.Contains(c.err.String(), "quota") {
				t.Errorf("said %s", c.err.String())
			}
		})
	}
}
