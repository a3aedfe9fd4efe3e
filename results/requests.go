package results

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/columnar"
)

// Names of columns that exist only in the result file of a batch.
const (
	columnStatus       = "status_code" // HTTP status of the server's reply; null if there was no reply
	columnTokensIn     = "input_tokens"
	columnTokensOut    = "output_tokens"
	columnErrorCode    = "error_code" // null if the request was answered
	columnErrorMessage = "error_message"
)

// RequestWriter writes the Parquet file of a batch (rowmill.RawBatch). For each request, the
// file has the custom_id, the request if inputs is true, and the server's reply (also
// an error reply) with status code and tokens, or the reason why there is no reply.
type RequestWriter struct {
	table  *columnar.TableWriter
	inputs bool
}

// NewRequestWriter returns a RequestWriter on w. If inputs is true, the file has the
// requests.
func NewRequestWriter(w io.Writer, jobID, model, idColumn string, inputs bool) (*RequestWriter, error) {
	columns := []columnar.TableColumn{{Name: idColumn, Kind: columnar.TableText}}
	if inputs {
		columns = append(columns, columnar.TableColumn{Name: columnInputs, Kind: columnar.TableText})
	}
	columns = append(columns,
		columnar.TableColumn{Name: jobID, Kind: columnar.TableText}, columnar.TableColumn{Name: columnStatus, Kind: columnar.TableInt},
		columnar.TableColumn{Name: columnTokensIn, Kind: columnar.TableInt, Required: true}, columnar.TableColumn{Name: columnTokensOut, Kind: columnar.TableInt, Required: true},
		columnar.TableColumn{Name: columnErrorCode, Kind: columnar.TableText}, columnar.TableColumn{Name: columnErrorMessage, Kind: columnar.TableText},
	)
	table, err := columnar.NewTableWriter(w, columns, Schema{JobID: jobID, Model: model}.meta(), columnar.TableConfig{})
	if err != nil {
		return nil, fmt.Errorf("begin the file of a batch: %w", err)
	}
	return &RequestWriter{table: table, inputs: inputs}, nil
}

// Add writes a request and its reply. It can be used as a RowVisitor.
func (r *RequestWriter) Add(row *rowmill.Row, out *rowmill.RowOutput) error {
	t, c := r.table, 0
	text := func(s string, exists bool) {
		if exists {
			t.AppendText(c, toValidUTF8(s))
		} else {
			t.AppendNull(c)
		}
		c++
	}
	text(row.ID.Text, row.ID.Kind != rowmill.IDNull)
	if r.inputs {
		text(row.Text, row.Text != "") // the text is empty if the input was removed
	}
	status, replied := ReplyStatus(out)
	if out.Failed() {
		text(out.Err.Raw, replied && out.Err.Raw != "")
	} else {
		text(out.Text, true)
	}
	if replied {
		t.AppendInt(c, int64(status))
	} else {
		t.AppendNull(c)
	}
	t.AppendInt(c+1, out.InputTokens)
	t.AppendInt(c+2, out.OutputTokens)
	c += 3
	var why rowmill.RowError
	if out.Failed() {
		why = *out.Err
	}
	text(why.Code, out.Failed())
	text(why.Message, out.Failed())
	if err := t.EndRow(); err != nil {
		return fmt.Errorf("write request %d: %w", row.Index, err)
	}
	return nil
}

// Close writes all buffered rows and the footer of the file. It does not close the
// underlying writer.
func (r *RequestWriter) Close() error {
	if err := r.table.Close(); err != nil {
		return fmt.Errorf("close the file of a batch: %w", err)
	}
	return nil
}

// ReplyStatus returns the HTTP status of the server's reply to a request. replied is false
// if there was no reply.
func ReplyStatus(out *rowmill.RowOutput) (status int, replied bool) {
	if !out.Failed() {
		return 200, true
	}
	text, refused := strings.CutPrefix(out.Err.Code, rowmill.RowHTTP)
	status, err := strconv.Atoi(text)
	return status, refused && err == nil
}
