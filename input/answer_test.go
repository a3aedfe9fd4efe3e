package input

import "testing"

func TestCondition(t *testing.T) {
	t.Parallel()
	for condition, answers := range map[string]map[string]bool{
		"answer.score < 4":          {`{"score": 3}`: true, `{"score": 4}`: false, `{"score": "3.5"}`: true, `{"score": "low"}`: false, `{}`: false, "3": false, "": false, `{"score":`: false},
		"answer.score<=4":           {`{"score": 4}`: true, `{"score": 4.5}`: false},
		"answer.score >= 1e3":       {`{"score": 1000}`: true, `{"score": 999}`: false},
		"answer > 2":                {"3": true, "2\n": false, "x": false},
		"answer.a.b = yes":          {`{"a": {"b": "yes"}}`: true, `{"a": {"b": "no"}}`: false, `{"a": "yes"}`: false},
		`answer.a.b = "yes"`:        {`{"a": {"b": "yes"}}`: true, `{"a.b": "yes"}`: true},
		"answer.tags.0 != x":        {`{"tags": ["y"]}`: true, `{"tags": ["x"]}`: false, `{"tags": []}`: false},
		"answer.ok = true":          {`{"ok": true}`: true, `{"ok": false}`: false},
		`answer = "5"`:              {"5": true, "5.0": false},
		"answer = 5":                {"5": true, "5.0": true, "6": false},
		"answer.score != 1":         {`{"score": 2}`: true, `{"score": 1.0}`: false, `{}`: false},
		"answer = two words = some": {"two words = some": true, "two": false},
	} {
		c, err := ParseCondition(condition)
		if err != nil {
			t.Errorf("%s: %v", condition, err)
			continue
		}
		for answer, want := range answers {
			if got := c.Holds(answer); got != want {
				t.Errorf("%s of %q is %v", condition, answer, got)
			}
		}
	}
	for _, condition := range []string{"", "answer", "answer.score", "score < 4", "answers < 4", "answer <", "answer ! 4", "answer == 4", "answer < x", `answer > "4"`, "answer =< 4"} {
		if c, err := ParseCondition(condition); err == nil {
			t.Errorf("%q is %+v, want an error", condition, c)
		}
	}
}

func FuzzCondition(f *testing.F) {
	f.Add("answer.score < 4", `{"score": 3}`)
	f.Add(`answer.a.0 = "x"`, `{"a": ["x"]}`)
	f.Add("answer != -1e400", "null")
	f.Fuzz(func(t *testing.T, text, answer string) {
		c, err := ParseCondition(text)
		if err != nil {
			return
		}
		opposites := map[string]string{"=": "!=", "<": ">=", "<=": ">", ">": "<=", ">=": "<", "!=": "="}
		o := c
		o.operator = opposites[c.operator]
		if c.Holds(answer) && o.Holds(answer) {
			t.Errorf("%q and its opposite hold for %q", text, answer)
		}
	})
}
