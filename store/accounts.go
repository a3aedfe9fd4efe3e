package store

import "context"

// Accounts reads data of all accounts, for operators.
type Accounts interface {
	// Accounts returns the accounts that have jobs, files or API keys, sorted.
	Accounts(ctx context.Context) ([]string, error)
	// ListAll is Jobs.List for the jobs of all accounts. A cursor of one of them is valid
	// for the other.
	ListAll(ctx context.Context, limit int, cursor string) (jobs []*JobHead, next string, err error)
}
