package records

import (
	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// A job is ruined when its specification or its texts are damaged: none of its rows can
// run. When such a job is claimed or cancelled, the store ends it, with a final record that
// it builds from the header alone.

// buildRuinedRecord builds a record for a ruined job from the header, with a minimal specification.
func (t *tx) buildRuinedRecord(h jobHeader) (store.Record, error) {
	rec := h.Record
	rec.SpecDamaged = true
	rec.Spec = rowmill.Spec{Account: h.Account, Model: h.Price.asModel()}
	for _, dialect := range []string{rowmill.DialectOpenAI, rowmill.DialectAnthropic} {
		batch, err := t.Get(tableBatches, append(batchListPrefix(h.Account, dialect), h.Job.ID...))
		if err != nil {
			return rec, err
		}
		if batch != nil {
			rec.Spec.Model.Kind, rec.Spec.Raw = rowmill.KindRaw, &rowmill.RawBatch{Dialect: dialect}
		}
	}
	return rec, nil
}

// endRuined writes the record of a ruined job that has ended, and replaces the damaged
// specification.
func (t *tx) endRuined(before jobHeader, rec store.Record) (store.Record, error) {
	spec, err := encodeSpec(nil, rec.Spec)
	if err != nil {
		return rec, err
	}
	id := []byte(rec.Job.ID)
	t.Put(tableSpecs, id, spec)
	t.Delete(tableTexts, id)
	rec.RecordEnd(before.Job.Status, t.Now())
	return t.replaceRecord(before, rec)
}

// failRuined ends a ruined job as failed.
func (t *tx) failRuined(h jobHeader) error {
	rec, err := t.buildRuinedRecord(h)
	if err == nil {
		err = rec.Job.Become(rowmill.StatusFailed, t.Now())
	}
	if err != nil {
		return err
	}
	rec.Job.FailureReason = rowmill.Failf(rowmill.CodeInternalError,
		"The specification of the job is damaged in the record store, so no more rows of it can run. Submit the job again.")
	rec.Job.Message = rec.Job.FailureReason.Message
	rec.Job.JobCost = rec.Spec.Model.Cost(&rec.Job)
	_, err = t.endRuined(h, rec)
	return err
}
