package bolt

// PagesWritten returns the number of pages allocated for writes since Open.
func (e *Backend) PagesWritten() int64 {
	stats := e.db.Stats()
	return stats.TxStats.GetPageAlloc() / int64(e.db.Info().PageSize)
}
