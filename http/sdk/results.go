package sdk

import (
	"bufio"
	"fmt"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// sendResults answers POST /v1/job-results, with which existing clients fetch results. The
// answer has the JSON of GET /v1/jobs/{job_id}/results under the key results.
func (d *Dialect) sendResults(c *gin.Context) error {
	record, v, err := d.readRequest(c)
	if err != nil {
		return err
	}
	ctx := c.Request.Context()
	source, schema, err := d.Archive.OpenFull(ctx, record)
	if err != nil {
		return err
	}
	defer source.Close()
	if UsesDialect(c) {
		schema = ToSDKSchema(record, schema)
	}
	return d.Exchange.Stream(c, exchange.JSON, "", func(w *bufio.Writer) error {
		_, _ = w.WriteString(`{"results":`)
		if err := results.WriteJSON(ctx, w, source, schema, v); err != nil {
			return archive.MissingAsRemoved(fmt.Errorf("write results: %w", err))
		}
		_, err := w.WriteString("}\n")
		return err
	})
}

// readRequest reads the body of POST /v1/job-results. It returns the named job and the
// variant of its results. It ignores unknown fields, which newer clients may send.
func (d *Dialect) readRequest(c *gin.Context) (record store.Record, v results.FileVariant, err error) {
	body, err := d.Exchange.ReadObject(c, exchange.SmallObject)
	if err != nil {
		return record, v, err
	}
	var id string
	body.Require("job_id", "a string", &id, "it names the job whose results you want")
	for _, o := range v.Options() {
		body.Read(o.Parameter, "true or false", o.Value)
	}
	if err := body.Err(); err != nil {
		return record, v, err
	}
	if record, err = d.Jobs.Find(c, id); err == nil {
		err = request.CheckHasResults(record, v)
	}
	return record, v, err
}
