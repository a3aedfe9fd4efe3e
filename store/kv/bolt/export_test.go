package bolt

// PagesWritten is how many pages were allocated for writing since Open.
func (e *Engine) PagesWritten() int64 {
	stats := e.db.Stats()
	return stats.TxStats.GetPageAlloc() / int64(e.db.Info().PageSize)
}
