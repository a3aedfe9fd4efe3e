package submission

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/request"
)

// Each body breaks exactly one rule.
func TestSubmission_Refuses(t *testing.T) {
	t.Parallel()
	w := setup(t, func(in *Parser) { in.MaxRow = 100 })
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
		"ColumnNameWithInlineInputs":  {`{"inputs":["a"],"column_name":"a"}`, "column_name", "only for files, uploaded or given by a URL"},
		"ColumnNameEmpty":             {`{` + url + `,"column_name":""}`, "column_name", "is empty"},
		"ColumnNameNotString":         {`{` + url + `,"column_name":1}`, "column_name", "must be a string"},
		"FormatWithInlineInputs":      {`{"inputs":["a"],"input_format":"csv"}`, "input_format", "only for files, uploaded or given by a URL"},
		"KeepOfStrings":               {`{"inputs":["a"],"keep_columns":"*"}`, "keep_columns", "strings have no columns"},
		"KeepText":                    {`{` + url + `,"keep_columns":"a"}`, "keep_columns", `must be "*" or an array`},
		"KeepNothing":                 {`{` + url + `,"keep_columns":[]}`, "keep_columns", `must be "*" or an array`},
		"KeepAllAndOne":               {`{` + url + `,"keep_columns":["*","a"]}`, "keep_columns", `must be "*" or an array`},
		"KeepEmptyName":               {`{` + url + `,"keep_columns":["a",""]}`, "keep_columns[1]", "is empty"},
		"KeepReserved":                {`{` + url + `,"keep_columns":["inputs"]}`, "keep_columns[0]", "which is a column of the results"},
		"KeepTwice":                   {`{` + url + `,"keep_columns":["a","a"]}`, "keep_columns[1]", "named before"},
		"KeepLong":                    {`{` + url + `,"keep_columns":["` + strings.Repeat("a", 257) + `"]}`, "keep_columns[0]", "at most 256"},
		"LimitZero":                   {`{"inputs":["a"],"limit":0}`, "limit", "at least 1"},
		"LimitNotInteger":             {`{"inputs":["a"],"limit":"x"}`, "limit", "must be an integer"},
		"LimitOfEstimate":             {`{"inputs":["a"],"limit":1,"cost_estimate":true}`, "cost_estimate", "leave limit out"},
		"SampleUnknown":               {`{"inputs":["a"],"limit":1,"sample":"last"}`, "sample", `must be "first" or "random"`},
		"SampleWithoutLimit":          {`{"inputs":["a"],"sample":"random"}`, "sample", "needs limit"},
		"DeadlineNotTime":             {`{"inputs":["a"],"deadline":"tomorrow"}`, "deadline", "such as 2026-11-27T06:00Z"},
		"DeadlineWithoutZone":         {`{"inputs":["a"],"deadline":"2999-01-01T00:00"}`, "deadline", "with a time zone"},
		"DeadlineBeyondYears":         {`{"inputs":["a"],"deadline":"9999-12-31T23:00-02:00"}`, "deadline", "must be a time"},
		"DeadlineNotString":           {`{"inputs":["a"],"deadline":5}`, "deadline", "must be a string"},
		"DeadlinePassed":              {`{"inputs":["a"],"deadline":"2001-01-01T00:00Z"}`, "deadline", "has passed"},
		"DeadlineOfEstimate":          {`{"inputs":["a"],"deadline":"2999-01-01T00:00Z","cost_estimate":true}`, "deadline", "not for estimates"},
		"DeadlineWithLimit":           {`{"inputs":["a"],"deadline":"2999-01-01T00:00Z","limit":1}`, "deadline", "leave limit out"},
		"DeadlineWithReuse":           {`{"inputs":["a"],"deadline":"2999-01-01T00:00Z","reuse":{"from":"x"}}`, "deadline", "cannot be used with reuse"},
		"AdmitUnknown":                {`{"inputs":["a"],"deadline":"2999-01-01T00:00Z","admit":"maybe"}`, "admit", `must be "only_if_met" or null`},
		"AdmitNotString":              {`{"inputs":["a"],"deadline":"2999-01-01T00:00Z","admit":true}`, "admit", "must be a string"},
		"AdmitWithoutDeadline":        {`{"inputs":["a"],"admit":"only_if_met"}`, "admit", "needs deadline"},
		"RepairWithoutSchema":         {`{"inputs":["a"],"repair":true}`, "repair", "needs json_schema"},
		"FormatUnknown":               {`{` + url + `,"input_format":"xml"}`, "input_format", "must be csv, tsv, parquet, jsonl or lines"},
		"IDColumnWithInlineInputs":    {`{"inputs":["a"],"id_column_name":"id"}`, "id_column_name", "only for files, uploaded or given by a URL"},
		"IDColumnReservedPrefix":      {`{` + url + `,"id_column_name":"RESERVED_x"}`, "id_column_name", "reserved prefix"},
		"IDColumnNamedInputs":         {`{` + url + `,"id_column_name":"inputs"}`, "id_column_name", "column of the results"},
		"IDColumnNamedOutputs":        {`{` + url + `,"id_column_name":"outputs"}`, "id_column_name", "column of the results"},
		"IDColumnNamedConfidence":     {`{` + url + `,"id_column_name":"confidence_score"}`, "id_column_name", "column of the results"},
		"IDColumnNamedLogprobs":       {`{` + url + `,"id_column_name":"cumulative_logprobs"}`, "id_column_name", "column of the results"},
		"IDColumnIsTheInputColumn":    {`{` + url + `,"column_name":"a","id_column_name":"a"}`, "id_column_name", "must differ"},
		"IDColumnEmpty":               {`{` + url + `,"id_column_name":""}`, "id_column_name", "is empty"},
		"IDColumnNotString":           {`{` + url + `,"id_column_name":[]}`, "id_column_name", "must be a string"},
		"SystemPromptNotString":       {`{"inputs":["a"],"system_prompt":{}}`, "system_prompt", "must be a string"},
		"SystemPromptTooLong":         {`{"inputs":["a"],"system_prompt":"` + strings.Repeat("a", 1<<20+1) + `"}`, "system_prompt", "at most 1048576"},
		"SchemaNotObject":             {`{"inputs":["a"],"json_schema":true}`, "json_schema", "must be an object"},
		"SchemaString":                {`{"inputs":["a"],"json_schema":"{}"}`, "json_schema", "must be an object"},
		"SchemaInvalid":               {`{"inputs":["a"],"json_schema":{"type":"text"}}`, "json_schema", "is not a valid JSON Schema"},
		"SchemaBadPattern":            {`{"inputs":["a"],"json_schema":{"pattern":"("}}`, "json_schema", "is not a valid JSON Schema"},
		"SchemaRemoteRef":             {`{"inputs":["a"],"json_schema":{"$ref":"https://example.org/s.json"}}`, "json_schema", "leaves the schema"},
		"SchemaFileRef":               {`{"inputs":["a"],"json_schema":{"$ref":"file:///etc/passwd"}}`, "json_schema", "leaves the schema"},
		"SchemaDanglingRef":           {`{"inputs":["a"],"json_schema":{"$ref":"#/$defs/x"}}`, "json_schema", "is not a valid JSON Schema"},
		"SchemaTooLarge":              {`{"inputs":["a"],"json_schema":{"description":"` + strings.Repeat("a", 256<<10) + `"}}`, "json_schema", "more than 262144"},
		"SchemaTooDeep":               {`{"inputs":["a"],"json_schema":` + deep(65) + `}`, "json_schema", "65 levels"},
		"SchemaWithEmbeddingModel":    {`{"inputs":["a"],"model":"qwen-3-embedding-0.6b","json_schema":{"type":"object"}}`, "json_schema", "embedding"},
		"SamplingNotObject":           {`{"inputs":["a"],"sampling_params":[]}`, "sampling_params", "must be an object"},
		"SamplingUnknownName":         {`{"inputs":["a"],"sampling_params":{"temprature":1}}`, "sampling_params.temprature", `did you mean "temperature"?`},
		"SamplingOutOfRange":          {`{"inputs":["a"],"sampling_params":{"top_p":0}}`, "sampling_params.top_p", "above 0"},
		"SamplingIllTyped":            {`{"inputs":["a"],"sampling_params":{"max_tokens":"many"}}`, "sampling_params.max_tokens", "integer"},
		"SamplingN":                   {`{"inputs":["a"],"sampling_params":{"n":2}}`, "sampling_params.n", "must be 1"},
		"MaxTokensLeaveNoRoom":        {`{"inputs":["a"],"sampling_params":{"max_tokens":131072}}`, "sampling_params.max_tokens", "no room"},
		"PriorityOutOfRange":          {`{"inputs":["a"],"job_priority":9}`, "job_priority", "must be 0"},
		"PriorityNegative":            {`{"inputs":["a"],"job_priority":-1}`, "job_priority", "must be 0"},
		"PriorityFraction":            {`{"inputs":["a"],"job_priority":0.5}`, "job_priority", "the integer " + rowmill.PriorityValues},
		"PriorityString":              {`{"inputs":["a"],"job_priority":"1"}`, "job_priority", "the integer " + rowmill.PriorityValues},
		"PriorityBoolean":             {`{"inputs":["a"],"job_priority":true}`, "job_priority", "the integer " + rowmill.PriorityValues},
		"CostEstimateNotBoolean":      {`{"inputs":["a"],"cost_estimate":1}`, "cost_estimate", "must be a boolean"},
		"RandomSeedNotBoolean":        {`{"inputs":["a"],"random_seed_per_input":"yes"}`, "random_seed_per_input", "must be a boolean"},
		"DedupNotBoolean":             {`{"inputs":["a"],"dedup":"yes"}`, "dedup", "must be a boolean"},
		"DedupWithSeeds":              {`{"inputs":["a"],"dedup":true,"random_seed_per_input":true}`, "dedup", "leave one of the two fields out"},
		"TruncateRowsNotBoolean":      {`{"inputs":["a"],"truncate_rows":0}`, "truncate_rows", "must be a boolean"},
		"NameTooLong":                 {`{"inputs":["a"],"name":"` + strings.Repeat("é", 46) + `"}`, "name", "46 characters; it may have at most 45"},
		"NameNotString":               {`{"inputs":["a"],"name":5}`, "name", "must be a string"},
		"DescriptionTooLong":          {`{"inputs":["a"],"description":"` + strings.Repeat("é", 513) + `"}`, "description", "513 characters; it may have at most 512"},
		"DescriptionNotString":        {`{"inputs":["a"],"description":{}}`, "description", "must be a string"},
		"FieldTwice":                  {`{"inputs":["a"],"inputs":["b"]}`, "inputs", "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			w := *w
			w.TB = t
			w.wantField(c.body, c.field, c.piece)
		})
	}
	if objects := w.objects(); len(objects) != 0 || w.bucket.writing != 0 {
		t.Errorf("objects %v, %d writers are open", objects, w.bucket.writing)
	}
}

func TestSubmission_CodesOfErrors(t *testing.T) {
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
		if got := w.refused(c[0]); got.Status != 400 || got.Code != c[1] {
			t.Errorf("%s: %d %s, want %s", c[0], got.Status, got.Code, c[1])
		}
	}
}

func TestSubmission_RowHasOneProblem(t *testing.T) {
	t.Parallel()
	w := setup(t)
	got := w.refused(`{"inputs":[` + strings.Repeat("1", 2*maxFieldBytes) + `]}`)
	if len(got.Fields) != 1 || got.Fields[0].Field != "inputs[0]" || !strings.Contains(got.Fields[0].Message, "is a number") {
		t.Errorf("fields %v", got.Fields)
	}
}

func TestSubmission_ManyBadRowsAreCounted(t *testing.T) {
	t.Parallel()
	w := setup(t)
	fields := w.fields(`{"inputs":[` + strings.TrimSuffix(strings.Repeat("1,", 100), ",") + `]}`)
	if len(fields) != maxReported+1 || fields["inputs"] != "has 80 further bad rows" {
		t.Errorf("fields %v", fields)
	}
}

func TestSubmission_MalformedBodies(t *testing.T) {
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
		`{"inputs":["a",]}`:                      "a value is expected here",
		`{"inputs":["a"],}`:                      "name in quotes",
		`{"inputs" ["a"]}`:                       "a colon",
		`{"inputs":["a"] "model":"x"}`:           "a comma or }",
		`{inputs:["a"]}`:                         "name in quotes",
		"\uFEFF" + `{"inputs":["a"]}`:            "byte order mark",
		`{"inputs":["a\x"]}`:                     "backslash",
		`{"inputs":["\u12g4"]}`:                  "hexadecimal",
		"{\"inputs\":[\"a\nb\"]}":                "control character",
		"{\"inputs\":[\"a\xff\"]}":               "not valid UTF-8",
		"{\"inputs\":[\"a\"],\"name\":\"\xff\"}": "not valid UTF-8",
		`{"inputs":["a"],"name":nul}`:            "malformed",
		`{"inputs":["a"],"name":}`:               "a value is expected here",
		`{"inputs":["a"],"x":[1,]}`:              "malformed",
		`{"inputs":["a"],"x":[1}}`:               "malformed",
		`{"inputs":["a"],"x":` + strings.Repeat("[", 20_000) + `}`: "deeper",
	} {
		if e := w.refused(body); e.Status != 400 || e.Code != "invalid_json" || !strings.Contains(e.Message, piece) {
			t.Errorf("%.50s: %d %s %s; want %q", body, e.Status, e.Code, e.Message, piece)
		}
	}
	if objects := w.objects(); len(objects) != 0 || w.bucket.writing != 0 {
		t.Errorf("objects %v, %d writers are open", objects, w.bucket.writing)
	}
}

func TestSubmission_RefusedRowsLeaveNoObject(t *testing.T) {
	t.Parallel()
	w := setup(t, func(in *Parser) { in.MaxInline = 10 })
	rows := strings.Repeat(`"aaaaaaaaaa",`, 20_000)
	for _, body := range []string{
		`{"inputs":[` + rows + `1]}`,
		`{"inputs":[` + rows + `"a"],"job_priority":5}`,
		`{"inputs":[` + rows + `"a"],"cost_estimate":3}`,
		`{"inputs":[` + rows + `"a"]`,
	} {
		before := w.bucket.created
		w.refused(body)
		if w.bucket.created == before || w.bucket.writing != 0 {
			t.Errorf("%d objects begun, %d writers are open", w.bucket.created-before, w.bucket.writing)
		}
	}
	if objects := w.objects(); len(objects) != 0 {
		t.Errorf("objects %v are left", objects)
	}
}

// An error in the middle of the body is returned unchanged.
func TestSubmission_BrokenBody(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for name, c := range map[string]struct {
		err  error
		code string
	}{
		"Connection": {errBroken, "body_unreadable"},
		"TooLarge":   {&http.MaxBytesError{Limit: 5}, "body_too_large"},
		"Stalled":    {request.Errorf(408, "body_stalled", "x"), "body_stalled"},
	} {
		_, err := w.Read(t.Context(), io.MultiReader(strings.NewReader(`{"inputs":["a`), iotest.ErrReader(c.err)))
		if e := request.FromError(err); e.Code != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A schema is compiled only if there are no other problems.
func TestSchema_IsCompiledLast(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const schema = `"json_schema":{"pattern":"("}`
	w.wantField(`{"inputs":["a"],`+schema+`}`, "json_schema", "is not a valid JSON Schema")
	w.wantField(`{"inputs":["a"],"model":"x",`+schema+`}`, "model", "neither")
	w.wantField(`{"inputs":["a",1],`+schema+`}`, "inputs[1]", "number")
	w.wantField(`{"inputs":["a"],"json_schema":{"multipleOf":1e-99999999}}`, "json_schema", "out of range")
	// Problems that are cheap to find are reported together with the others.
	if fields := w.fields(`{"inputs":["a"],"model":"x","json_schema":[]}`); len(fields) != 2 {
		t.Errorf("broken fields %v", fields)
	}
	for model, want := range map[string]string{"x": "model", "llama-3.1-8b": "json_schema"} {
		if _, problems := w.define(`{"name":"f","prompt":"x","model":"` + model + `",` + schema + `}`); problems.Len() != 1 || !problems.Has(want) {
			t.Errorf("model %s: %v, want a problem with %s", model, problems.Err(), want)
		}
	}
}
