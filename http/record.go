package http

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	"github.com/rowmill/rowmill"
)

// encode is JSON without HTML escapes: texts travel as they are.
func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// decimal is a number that always has a decimal point or exponent in JSON, so
// that a column of them never looks like integers to a reader that guesses.
type decimal float64

// MarshalJSON writes the shortest text that reads back.
func (d decimal) MarshalJSON() ([]byte, error) { return formatDecimal(float64(d), 64), nil }

// decimal32 is the same for the numbers of an embedding.
type decimal32 float32

// MarshalJSON writes the shortest text that reads back.
func (d decimal32) MarshalJSON() ([]byte, error) { return formatDecimal(float64(d), 32), nil }

func formatDecimal(f float64, bits int) []byte {
	form := byte('f')
	if size := math.Abs(f); size != 0 && (size < 1e-6 || size >= 1e21) {
		form = 'e'
	}
	text := strconv.AppendFloat(nil, f, form, -1, bits)
	if form == 'f' && !bytes.Contains(text, []byte(".")) {
		text = append(text, ".0"...)
	}
	return text
}

// jobView is a job as the API shows it. The fields below stand in for those of
// the same name in the job.
type jobView struct {
	rowmill.Job
	JobCost      *decimal      `json:"job_cost"`
	CostEstimate *decimal      `json:"cost_estimate"`
	Estimate     *estimateView `json:"estimate"`
}

type estimateView struct {
	rowmill.Estimate
	Low  decimal `json:"low"`
	High decimal `json:"high"`
}

func viewJob(job rowmill.Job) jobView {
	if job.Warnings == nil {
		job.Warnings = []string{}
	}
	if job.Sampling == nil {
		job.Sampling = map[string]any{}
	}
	view := jobView{Job: job, JobCost: (*decimal)(job.JobCost), CostEstimate: (*decimal)(job.CostEstimate)}
	if e := job.Estimate; e != nil {
		view.Estimate = &estimateView{Estimate: *e, Low: decimal(e.Low), High: decimal(e.High)}
	}
	return view
}
