package http

import (
	"strings"
	"testing"
)

// refused are bodies with exactly one broken rule.
func TestSubmit_Refuses(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.MaxRowBytes = 100 })
	url := `"inputs":"https://example.org/a.csv"`
	deep := func(levels int) string {
		return strings.Repeat(`{"not":`, levels-1) + `{}` + strings.Repeat("}", levels-1)
	}
	for name, c := range map[string]struct{ body, field, piece string }{
		"MissingInputs":               {`{}`, "inputs", "is missing"},
		"NullInputs":                  {`{"inputs":null}`, "inputs", "is missing"},
		"EmptyInputs":                 {`{"inputs":[]}`, "inputs", "is empty"},
		"EmptyURL":                    {`{"inputs":""}`, "inputs", "empty"},
		"NumberAsInputs":              {`{"inputs":5}`, "inputs", "must be an array of strings"},
		"ObjectAsInputs":              {`{"inputs":{"a":["b"]}}`, "inputs", "must be an array of strings"},
		"ObjectRow":                   {`{"inputs":["a",{"b":1}]}`, "inputs[1]", "is an object"},
		"NumberRow":                   {`{"inputs":[1,"a"]}`, "inputs[0]", "is a number"},
		"NullRow":                     {`{"inputs":["a","b",null]}`, "inputs[2]", "is null"},
		"BooleanRow":                  {`{"inputs":[true]}`, "inputs[0]", "is a boolean"},
		"ArrayRow":                    {`{"inputs":[["a"]]}`, "inputs[0]", "is an array"},
		"RowTooLong":                  {`{"inputs":["a","` + strings.Repeat("é", 51) + `"]}`, "inputs[1]", "longer than 100 bytes"},
		"S3URL":                       {`{"inputs":"s3://bucket/key"}`, "inputs", "s3"},
		"FTPURL":                      {`{"inputs":"ftp://example.org/a.csv"}`, "inputs", ""},
		"URLTooLong":                  {`{"inputs":"https://example.org/` + strings.Repeat("a", maxURLBytes) + `"}`, "inputs", "bytes"},
		"UnknownModel":                {`{"inputs":["a"],"model":"my-function"}`, "model", "neither a model"},
		"UnknownModelSuggestsNearest": {`{"inputs":["a"],"model":"llama-3-8b"}`, "model", `did you mean "llama-3.1-8b"?`},
		"EmptyModel":                  {`{"inputs":["a"],"model":""}`, "model", `""`},
		"ModelNotString":              {`{"inputs":["a"],"model":5}`, "model", "must be a string"},
		"ColumnNameWithInlineInputs":  {`{"inputs":["a"],"column_name":"a"}`, "column_name", "only for inputs given by a URL"},
		"ColumnNameEmpty":             {`{` + url + `,"column_name":""}`, "column_name", "is empty"},
		"ColumnNameNotString":         {`{` + url + `,"column_name":1}`, "column_name", "must be a string"},
		"IDColumnWithInlineInputs":    {`{"inputs":["a"],"id_column_name":"id"}`, "id_column_name", "only for inputs given by a URL"},
		"IDColumnReservedPrefix":      {`{` + url + `,"id_column_name":"RESERVED_x"}`, "id_column_name", "reserved prefix"},
		"IDColumnNamedInputs":         {`{` + url + `,"id_column_name":"inputs"}`, "id_column_name", "column of the results"},
		"IDColumnNamedOutputs":        {`{` + url + `,"id_column_name":"outputs"}`, "id_column_name", "column of the results"},
		"IDColumnNamedConfidence":     {`{` + url + `,"id_column_name":"confidence_score"}`, "id_column_name", "column of the results"},
		"IDColumnNamedLogprobs":       {`{` + url + `,"id_column_name":"cumulative_logprobs"}`, "id_column_name", "column of the results"},
		"IDColumnIsTheInputColumn":    {`{` + url + `,"column_name":"a","id_column_name":"a"}`, "id_column_name", "must differ"},
		"IDColumnEmpty":               {`{` + url + `,"id_column_name":""}`, "id_column_name", "is empty"},
		"IDColumnNotString":           {`{` + url + `,"id_column_name":[]}`, "id_column_name", "must be a string"},
		"SystemPromptNotString":       {`{"inputs":["a"],"system_prompt":{}}`, "system_prompt", "must be a string"},
		"SystemPromptTooLong":         {`{"inputs":["a"],"system_prompt":"` + strings.Repeat("a", 1<<20+1) + `"}`, "system_prompt", "more than 1048576"},
		"SchemaNotObject":             {`{"inputs":["a"],"json_schema":true}`, "json_schema", "must be an object"},
		"SchemaString":                {`{"inputs":["a"],"json_schema":"{}"}`, "json_schema", "must be an object"},
		"SchemaInvalid":               {`{"inputs":["a"],"json_schema":{"type":"text"}}`, "json_schema", "is no JSON Schema"},
		"SchemaBadPattern":            {`{"inputs":["a"],"json_schema":{"pattern":"("}}`, "json_schema", "is no JSON Schema"},
		"SchemaRemoteRef":             {`{"inputs":["a"],"json_schema":{"$ref":"https://example.org/s.json"}}`, "json_schema", "leaves the schema"},
		"SchemaFileRef":               {`{"inputs":["a"],"json_schema":{"$ref":"file:///etc/passwd"}}`, "json_schema", "leaves the schema"},
		"SchemaDanglingRef":           {`{"inputs":["a"],"json_schema":{"$ref":"#/$defs/x"}}`, "json_schema", "is no JSON Schema"},
		"SchemaTooLarge":              {`{"inputs":["a"],"json_schema":{"description":"` + strings.Repeat("a", 256<<10) + `"}}`, "json_schema", "more than 262144"},
		"SchemaTooDeep":               {`{"inputs":["a"],"json_schema":` + deep(65) + `}`, "json_schema", "65 levels"},
		"SchemaWithEmbeddingModel":    {`{"inputs":["a"],"model":"qwen-3-embedding-0.6b","json_schema":{"type":"object"}}`, "json_schema", "embedding"},
		"SamplingNotObject":           {`{"inputs":["a"],"sampling_params":[]}`, "sampling_params", "must be an object"},
		"SamplingUnknownName":         {`{"inputs":["a"],"sampling_params":{"temprature":1}}`, "sampling_params.temprature", `did you mean "temperature"?`},
		"SamplingOutOfRange":          {`{"inputs":["a"],"sampling_params":{"top_p":0}}`, "sampling_params.top_p", "above 0"},
		"SamplingIllTyped":            {`{"inputs":["a"],"sampling_params":{"max_tokens":"many"}}`, "sampling_params.max_tokens", "integer"},
		"SamplingN":                   {`{"inputs":["a"],"sampling_params":{"n":2}}`, "sampling_params.n", "must be 1"},
		"MaxTokensLeaveNoRoom":        {`{"inputs":["a"],"sampling_params":{"max_tokens":131072}}`, "sampling_params.max_tokens", "no room"},
		"PriorityOutOfRange":          {`{"inputs":["a"],"job_priority":2}`, "job_priority", "must be 0"},
		"PriorityNegative":            {`{"inputs":["a"],"job_priority":-1}`, "job_priority", "must be 0"},
		"PriorityFraction":            {`{"inputs":["a"],"job_priority":0.5}`, "job_priority", "the integer 0 or 1"},
		"PriorityString":              {`{"inputs":["a"],"job_priority":"1"}`, "job_priority", "the integer 0 or 1"},
		"PriorityBoolean":             {`{"inputs":["a"],"job_priority":true}`, "job_priority", "the integer 0 or 1"},
		"CostEstimateNotBoolean":      {`{"inputs":["a"],"cost_estimate":1}`, "cost_estimate", "must be a boolean"},
		"RandomSeedNotBoolean":        {`{"inputs":["a"],"random_seed_per_input":"yes"}`, "random_seed_per_input", "must be a boolean"},
		"TruncateRowsNotBoolean":      {`{"inputs":["a"],"truncate_rows":0}`, "truncate_rows", "must be a boolean"},
		"NameTooLong":                 {`{"inputs":["a"],"name":"` + strings.Repeat("é", 46) + `"}`, "name", "46 characters, more than 45"},
		"NameNotString":               {`{"inputs":["a"],"name":5}`, "name", "must be a string"},
		"DescriptionTooLong":          {`{"inputs":["a"],"description":"` + strings.Repeat("é", 513) + `"}`, "description", "513 characters, more than 512"},
		"DescriptionNotString":        {`{"inputs":["a"],"description":{}}`, "description", "must be a string"},
		"FieldTwice":                  {`{"inputs":["a"],"inputs":["b"]}`, "inputs", "twice"},
		"IdempotencyNotPrintable":     {`{"inputs":["a"]}`, "Idempotency-Key", "printable"},
	} {
		t.Run(name, func(t *testing.T) {
			var headers []string
			if name == "IdempotencyNotPrintable" {
				headers = []string{"Idempotency-Key", "é"}
			}
			w := *w
			w.TB = t
			w.post(c.body, headers...).wantField(c.field, c.piece)
			w.noJobs()
		})
	}
	if len(w.service.submitted) != 0 {
		t.Errorf("the pipeline was told of %v", w.service.submitted)
	}
}

func TestSubmit_CodesOfErrors(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, c := range [][2]string{
		{`{"inputs":["a"],"model":"x"}`, "unknown_model"},
		{`{"inputs":["a"],"model":""}`, "unknown_model"},
		{`{"inputs":["a"],"sampling_params":{"top_p":5}}`, "invalid_sampling_params"},
		{`{"inputs":["a"],"sampling_params":5}`, "invalid_sampling_params"},
		{`{"inputs":["a"],"sampling_params":{"top_p":5,"min_p":5}}`, "invalid_sampling_params"},
		{`{"inputs":["a"],"job_priority":5}`, "invalid_request"},
		{`{"inputs":["a"],"sampling_params":{"top_p":5},"job_priority":5}`, "invalid_request"},
		{`{"inputs":["a"]`, "invalid_json"},
	} {
		if got := w.post(c[0]).want(400).json()["code"]; got != c[1] {
			t.Errorf("%s: code %v, want %s", c[0], got, c[1])
		}
	}
}

func TestSubmit_NamesAllBrokenFields(t *testing.T) {
	t.Parallel()
	w := setup(t)
	fields := w.post(`{"inputs":["a",1,2],"model":"x","job_priority":7,"name":5,"sampling_params":{"top_p":0,"min_p":9},"column_name":"c"}`).fields()
	for _, want := range []string{"inputs[1]", "inputs[2]", "model", "job_priority", "name", "sampling_params.top_p", "sampling_params.min_p", "column_name"} {
		if fields[want] == "" {
			t.Errorf("%s is missing in %v", want, fields)
		}
	}
}

func TestSubmit_ManyBadRowsAreCounted(t *testing.T) {
	t.Parallel()
	w := setup(t)
	fields := w.post(`{"inputs":[` + strings.TrimSuffix(strings.Repeat("1,", 100), ",") + `]}`).fields()
	if len(fields) != maxReported+1 || fields["inputs"] != "has 80 further bad rows" {
		t.Errorf("fields %v", fields)
	}
}

func TestSubmit_MalformedBodies(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for body, piece := range map[string]string{
		``:                                       "ends too early",
		` `:                                      "ends too early",
		`[]`:                                     "must be an object",
		`"a"`:                                    "must be an object",
		`{"inputs":["a"]} x`:                     "text follows",
		`{"inputs":["a"]}{}`:                     "text follows",
		`{"inputs":["a"]`:                        "ends too early",
		`{"inputs":["a`:                          "ends too early",
		`{"inputs":["a" "b"]}`:                   "a comma or ]",
		`{"inputs":["a",]}`:                      "a value must stand here",
		`{"inputs":["a"],}`:                      "name in quotes",
		`{"inputs" ["a"]}`:                       "a colon",
		`{"inputs":["a"] "model":"x"}`:           "a comma or }",
		`{inputs:["a"]}`:                         "name in quotes",
		`{"inputs":["a\x"]}`:                     "backslash",
		`{"inputs":["\u12g4"]}`:                  "hexadecimal",
		"{\"inputs\":[\"a\nb\"]}":                "control character",
		"{\"inputs\":[\"a\xff\"]}":               "not valid UTF-8",
		"{\"inputs\":[\"a\"],\"name\":\"\xff\"}": "not valid UTF-8",
		`{"inputs":["a"],"name":nul}`:            "malformed",
		`{"inputs":["a"],"name":}`:               "a value must stand here",
		`{"inputs":["a"],"x":[1,]}`:              "malformed",
		`{"inputs":["a"],"x":[1}}`:               "malformed",
		`{"inputs":["a"],"x":` + strings.Repeat("[", 20_000) + `}`: "deeper",
	} {
		w.post(body).wantError(400, "invalid_json", piece)
	}
	w.noJobs()
	if w.bucket.writing != 0 {
		t.Errorf("%d writers are open", w.bucket.writing)
	}
}

func TestSubmit_BodyTooLarge(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.MaxBodyBytes = 1000; c.MaxInlineBytes = 100 })
	body := `{"inputs":["` + strings.Repeat(`a","`, 400) + `"]}`
	w.post(body).wantError(413, "body_too_large", "1000 bytes")
	// Without Content-Length it is found while reading.
	chunked := w.request("POST", "/v1/batch-inference", body)
	chunked.ContentLength = -1
	w.send(chunked).wantError(413, "body_too_large", "1000 bytes")
	w.noJobs()
	if w.bucket.writing != 0 {
		t.Errorf("%d writers are open", w.bucket.writing)
	}
	w.submitted(`{"inputs":["a"]}`)
}

func TestSubmit_CompressedBodyIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.post(`{"inputs":["a"]}`, "Content-Encoding", "gzip").wantError(415, "unsupported_encoding", "gzip")
	w.submitted(`{"inputs":["a"]}`, "Content-Encoding", "identity")
}

func TestSubmit_RefusedRowsLeaveNoObject(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.MaxInlineBytes = 10 })
	rows := strings.Repeat(`"aaaaaaaaaa",`, 20_000)
	for _, body := range []string{
		`{"inputs":[` + rows + `1]}`,
		`{"inputs":[` + rows + `"a"],"job_priority":5}`,
		`{"inputs":[` + rows + `"a"],"cost_estimate":3}`,
		`{"inputs":[` + rows + `"a"]`,
	} {
		before := w.bucket.created
		if status := w.post(body).status; status < 400 {
			t.Fatalf("status %d", status)
		}
		if w.bucket.created == before || w.bucket.writing != 0 {
			t.Errorf("%d objects begun, %d writers are open", w.bucket.created-before, w.bucket.writing)
		}
	}
	w.noJobs()
}

// What is refused for another reason is refused before its schema is compiled.
func TestSchema_IsCompiledLast(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const schema = `"json_schema":{"pattern":"("}`
	w.post(`{"inputs":["a"],`+schema+`}`).wantField("json_schema", "is no JSON Schema")
	w.post(`{"inputs":["a"],"model":"x",`+schema+`}`).wantField("model", "neither")
	w.post(`{"inputs":["a",1],`+schema+`}`).wantField("inputs[1]", "number")
	w.post(`{"inputs":["a"],"json_schema":{"multipleOf":1e-99999999}}`).wantField("json_schema", "out of range")
	// What costs nothing to see is named beside the rest.
	if fields := w.post(`{"inputs":["a"],"model":"x","json_schema":[]}`).fields(); len(fields) != 2 {
		t.Errorf("broken fields %v", fields)
	}
	w.do("POST", "/v1/functions", `{"name":"f","prompt":"x","model":"x",`+schema+`}`).wantField("model", "no model")
	w.do("POST", "/v1/functions", `{"name":"f","prompt":"x","model":"llama-3.1-8b",`+schema+`}`).wantField("json_schema", "is no JSON Schema")
}
