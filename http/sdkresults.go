package http

import (
	"bufio"
	"fmt"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// jobResults answers POST /v1/job-results, by which existing clients fetch
// results: those of /results as JSON, under the key results.
func (s *Server) jobResults(c *gin.Context) {
	record, v, err := s.jobAskedFor(c)
	if err == nil {
		err = s.sendWrapped(c, record, v)
	}
	if err != nil {
		s.fail(c, err)
	}
}

// jobAskedFor reads the body. Fields that only newer clients know are ignored.
func (s *Server) jobAskedFor(c *gin.Context) (record store.Record, v results.Variant, err error) {
	var problems problems
	body, err := s.readObject(c, &problems)
	if err != nil {
		return record, v, err
	}
	var id string
	if !body.read("job_id", "a string", &id) && len(problems.fields) == 0 {
		problems.add("job_id", "is missing; it names the job whose results you want")
	}
	body.read("include_inputs", "true or false", &v.Inputs)
	body.read("include_cumulative_logprobs", "true or false", &v.Logprobs)
	if err := problems.err(); err != nil {
		return record, v, err
	}
	if record, err = s.jobOfAccount(c, id); err == nil {
		err = ready(record, v)
	}
	return record, v, err
}

func (s *Server) sendWrapped(c *gin.Context, record store.Record, v results.Variant) error {
	source, schema, err := s.openFull(c.Request.Context(), record)
	if err != nil {
		return err
	}
	defer source.Close()
	s.stream(c, jsonType, "", func(w *bufio.Writer) error {
		_, _ = w.WriteString(`{"results":`)
		if err := results.WriteJSON(c.Request.Context(), w, source, schema, v); err != nil {
			return removed(fmt.Errorf("write results: %w", err))
		}
		_, err := w.WriteString("}\n")
		return err
	})
	return nil
}
