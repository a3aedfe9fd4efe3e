package blob

import (
	"mime"
	"testing"
)

func TestDisposition(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ header, saved string }{
		"":                        {`attachment`, ""},
		"in.jsonl":                {`attachment; filename="in.jsonl"`, "in.jsonl"},
		"a b; c=d~e.csv":          {`attachment; filename="a b; c=d~e.csv"`, "a b; c=d~e.csv"},
		"naïve name.txt":          {`attachment; filename="na_ve name.txt"; filename*=UTF-8''na%C3%AFve%20name.txt`, "naïve name.txt"},
		"結果\u3000🦙.json":          {`attachment; filename="____.json"; filename*=UTF-8''%E7%B5%90%E6%9E%9C%E3%80%80%F0%9F%A6%99.json`, "結果\u3000🦙.json"},
		`a "b" 100%25'.csv`:       {`attachment; filename="a _b_ 100_25'.csv"; filename*=UTF-8''a%20%22b%22%20100%2525%27.csv`, `a "b" 100%25'.csv`},
		"../../etc/passwd":        {`attachment; filename=".._.._etc_passwd"`, ".._.._etc_passwd"},
		`C:\x`:                    {`attachment; filename="C__x"`, "C__x"},
		"..":                      {`attachment; filename="__"`, "__"},
		"a\r\nSet-Cookie: b\x00":  {`attachment; filename="a__Set-Cookie_ b_"`, "a__Set-Cookie_ b_"},
		"exe\u202Elsj.\u2028\xff": {`attachment; filename="exe_lsj.__"`, "exe_lsj.__"},
	} {
		got := ContentDisposition(name)
		kind, params, err := mime.ParseMediaType(got)
		if got != want.header || err != nil || kind != "attachment" || params["filename"] != want.saved {
			t.Errorf("%q: %s, read as %q, %v; want %s and %q", name, got, params["filename"], err, want.header, want.saved)
		}
	}
}
