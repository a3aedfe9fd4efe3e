package ingest

import (
	"fmt"

	"github.com/rowmill/rowmill"
)

// checkRows returns a failure if a number of rows exceeds the job's quota. mayBeMore means
// that further rows may follow.
func checkRows(rows int64, mayBeMore bool, spec *rowmill.Spec) error {
	if spec.RowQuota == 0 || rows <= spec.RowQuota {
		return nil
	}
	return rowmill.Failf(rowmill.CodeRowQuota, "The input has %s rows, and the quota of a job of priority %d is %d rows. %s",
		formatCount(rows, mayBeMore), spec.Priority, spec.RowQuota, quotaAdvice(spec, "rows", rows, mayBeMore))
}

// tokenQuotaFailure returns the failure of a job whose rows up to row have more tokens than
// its quota.
func tokenQuotaFailure(tokens, row int64, spec *rowmill.Spec) *rowmill.Failure {
	return rowmill.Failf(rowmill.CodeTokenQuota, "The input has %s tokens, counted to row %d, and the quota of a job of priority %d is %d tokens. %s",
		formatCount(tokens, true), row, spec.Priority, spec.TokenQuota, quotaAdvice(spec, "tokens", tokens, true))
}

// formatCount returns n as text for a message. more means that the total may be larger.
func formatCount(n int64, more bool) string {
	if more {
		return fmt.Sprintf("at least %d", n)
	}
	return fmt.Sprint(n)
}

// quotaAdvice returns advice for a job that exceeds its quota. what is "rows" or "tokens". If
// more is true, the total is not known, and the command has N in place of value.
func quotaAdvice(spec *rowmill.Spec, what string, value int64, more bool) string {
	remedy := "Split the input"
	if spec.Priority < rowmill.Lowest {
		remedy += fmt.Sprintf(", submit it with priority %d", spec.Priority+1)
	}
	to := fmt.Sprint(value)
	if more {
		to = "N"
	}
	return fmt.Sprintf("%s, or ask an administrator to raise the quota: rowmill quotas set --priority %d --%s %s.", remedy, spec.Priority, what, to)
}
