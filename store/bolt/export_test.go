package bolt

// PagesWritten is how many pages were allocated for writing since Open.
func (s *Store) PagesWritten() int64 {
	stats := s.db.Stats()
	return stats.TxStats.GetPageAlloc() / int64(s.db.Info().PageSize)
}
