package hostile

import (
	"fmt"
	"strings"
)

// badUsageKinds returns the kinds that send impossible token counts in an otherwise correct
// answer. Clients must refuse such an answer, because the account would be billed for
// the counts.
func badUsageKinds() (kinds []AnswerKind) {
	for _, count := range []struct{ name, input, output string }{
		{"negative", "-1", "-1"},
		{"enormous", "9007199254740992", "9007199254740992"},
		{"beyond counts", "9223372036854775808", "18446744073709551616"},
		{"large", "4000000000", "4000000000"},
		{"fractions", "3.5", "0.25"},
		{"exponents", "1e15", "1e15"},
		{"infinite", "1e400", "1e400"},
		{"texts", `"3"`, `"1"`},
	} {
		usage := fmt.Sprintf(`{"prompt_tokens":%s,"completion_tokens":%s,"total_tokens":0}`, count.input, count.output)
		kinds = append(kinds, AnswerKind{Name: "usage: " + count.name, paths: []string{Chat, Embeddings}, write: func(w *answerWriter) {
			w.writeBody(strings.TrimSuffix(strings.TrimSpace(string(w.Good)), "}") + `,"usage":` + usage + "}")
		}})
	}
	return kinds
}

// badListKinds returns the kinds that send bad information about the server and its models.
func badListKinds() []AnswerKind {
	page := func(name string, outcome Outcome, of, text string) AnswerKind {
		return pageKind(name, outcome, []string{of}, text)
	}
	const one = `{"object":"list","data":[{"id":%q,"owned_by":"vllm","max_model_len":%s}]}`
	return []AnswerKind{
		page("many models", Breaks, Models, `{"data":[{"id":"x"}`+strings.Repeat(`,{"id":"x"}`, 2_000)+`]}`),
		page("many empty models", Breaks, Models, `{"data":[{}`+strings.Repeat(`,{}`, 100_000)+`]}`),
		page("no models", Either, Models, `{"data":null}`),
		page("a model with a long name", Either, Models, fmt.Sprintf(one, strings.Repeat("x", 900_000), "100")),
		page("a model with escapes", Either, Models, fmt.Sprintf(one, "\x1b[2Jm", "100")),
		page("a negative context", Either, Models, fmt.Sprintf(one, "m", "-100")),
		page("an enormous context", Either, Models, fmt.Sprintf(one, "m", "9223372036854775807")),
		page("a context beyond numbers", Either, Models, fmt.Sprintf(one, "m", "1e30")),
		page("a long version", Either, "/version", `{"version":"`+strings.Repeat("1.", 400_000)+`"}`),
		page("enormous slots", Either, "/props", `{"total_slots":9223372036854775807,"default_generation_settings":{"n_ctx":9223372036854775807},"build_info":"`+strings.Repeat("b", 500_000)+`"}`),
		page("negative slots", Either, "/props", `{"total_slots":-9223372036854775808,"default_generation_settings":{"n_ctx":-5}}`),
		page("enormous ranks", Either, "/server_info", `{"version":"0.5.0","dp_size":9223372036854775807,"max_total_num_tokens":9223372036854775807,"internal_states":[{"effective_max_running_requests_per_dp":9223372036854775807}]}`),
		page("an enormous count", Either, Tokenize, `{"count":9007199254740992,"input_tokens":9007199254740992}`),
		page("a negative count", Either, Tokenize, `{"count":-1}`),
	}
}

// badMetricsKinds returns the kinds that send bad metrics.
func badMetricsKinds() []AnswerKind {
	page := func(name, text string) AnswerKind { return pageKind(name, Either, []string{Metrics}, text) }
	bulky := func(name, start, piece string) AnswerKind {
		return endlessKind(name, Either, []string{Metrics}, start, piece)
	}
	load := func(value string) string {
		return "vllm:num_requests_running{engine=\"0\"} " + value + "\nvllm:num_requests_waiting " + value +
			"\nvllm:kv_cache_usage_perc " + value + "\nvllm:num_preemptions_total " + value + "\n"
	}
	var ranks strings.Builder
	for rank := range 300 {
		fmt.Fprintf(&ranks, "vllm:cache_config_info{engine=\"%d\",num_gpu_blocks=\"999999999\",block_size=\"999999999\"} 1\n%s", rank,
			strings.ReplaceAll(load("9007199254740992"), `"0"`, fmt.Sprintf(`"%d"`, rank)))
	}
	return []AnswerKind{
		page("gauges: NaN", load("NaN")),
		page("gauges: Inf", load("+Inf")),
		page("gauges: negative", load("-7")),
		page("gauges: enormous", load("1e308")),
		page("gauges: 100 percent", load("100")),
		page("gauges: fractions", load("0.5")),
		page("gauges: hexadecimal", load("0x1p-2")),
		page("gauges: many ranks", ranks.String()),
		page("gauges: no value", "vllm:num_requests_running\nvllm:num_requests_running{\nvllm:num_requests_running{engine=\"\\\nvllm:num_requests_waiting \n"),
		bulky("gauges: endless lines", "", load("1")),
		bulky("gauges: an endless label", `vllm:num_requests_running{engine="`, "0"),
		bulky("gauges: endless labels", `vllm:num_requests_running{`, `a="b",`),
		bulky("gauges: an endless name", "vllm:", "n"),
	}
}
