package http

import (
	"bytes"
	"encoding/json"
	"fmt"
	nethttp "net/http"
	"os"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rowmill/rowmill/http/anthropic"
)

// openAISchemas returns the schemas in testdata/openai.json by route, such as "GET
// /v1/files". The schema of all errors has the key "error".
var openAISchemas = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	text, err := os.ReadFile("testdata/openai.json")
	if err != nil {
		return nil, err
	}
	var head struct {
		Answers map[string]string `json:"answers"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("openai.json", document); err != nil {
		return nil, err
	}
	schemas := map[string]*jsonschema.Schema{}
	for answer, name := range head.Answers {
		if schemas[answer], err = compiler.Compile("openai.json#/$defs/" + name); err != nil {
			return nil, err
		}
	}
	return schemas, nil
})

// checkOpenAI returns an error if an answer does not match OpenAI's OpenAPI document. It
// accepts answers to Anthropic's clients and answers of other routes.
func checkOpenAI(r *nethttp.Request, path string, status int, body []byte) error {
	schemas, err := openAISchemas()
	if err != nil {
		return err
	}
	schema := schemas[r.Method+" "+path]
	if schema == nil || r.Header.Get(anthropic.HeaderVersion) != "" {
		return nil
	}
	if status >= nethttp.StatusBadRequest {
		if strings.HasPrefix(path, "/v1/models") && !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") {
			return nil // an error in the API's own form
		}
		schema = schemas["error"]
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	if err := schema.Validate(value); err != nil {
		return err
	}
	return checkCounts(body)
}

// openAICounts has the fields of a batch that a schema alone cannot check.
type openAICounts struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Counts *struct {
		Total     int64 `json:"total"`
		Completed int64 `json:"completed"`
		Failed    int64 `json:"failed"`
	} `json:"request_counts"`
}

// checkCounts returns an error if the request counts of an ended batch do not add up.
func checkCounts(body []byte) error {
	var one openAICounts
	if err := json.Unmarshal(body, &one); err != nil {
		return err
	}
	var list struct {
		Data []openAICounts `json:"data"`
	}
	_ = json.Unmarshal(body, &list) // an answer about a single batch has no list
	for _, b := range append(list.Data, one) {
		if b.Counts == nil {
			continue
		}
		sum := b.Counts.Completed + b.Counts.Failed
		switch b.Status {
		case "completed", "failed", "expired", "cancelled":
			if sum != b.Counts.Total {
				return fmt.Errorf("batch %s is %s with %d of %d requests", b.ID, b.Status, sum, b.Counts.Total)
			}
		}
		if sum > b.Counts.Total && b.Counts.Total > 0 {
			return fmt.Errorf("batch %s has %d of %d requests", b.ID, sum, b.Counts.Total)
		}
	}
	return nil
}
