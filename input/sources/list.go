package sources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
)

// WriteList stores a list of files as an object: JSON Lines, compressed with gzip.
func WriteList(ctx context.Context, bucket blob.Bucket, key string, list []File) error {
	_, err := blob.Write(ctx, bucket, key, layout.Bytes, func(w io.Writer) error {
		packed := gzip.NewWriter(w)
		lines := json.NewEncoder(packed)
		for _, file := range list {
			if err := lines.Encode(file); err != nil {
				return err
			}
		}
		return packed.Close()
	})
	if err != nil {
		return fmt.Errorf("write the list of files: %w", err)
	}
	return nil
}

// ReadList returns a list of files that WriteList stored, or rowmill.ErrNotFound.
func ReadList(ctx context.Context, bucket blob.Bucket, key string) (list []File, err error) {
	o, err := bucket.Open(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("open the list of files: %w", err)
	}
	defer o.Close()
	packed, err := gzip.NewReader(blob.NewReader(o))
	if err != nil {
		return nil, fmt.Errorf("read the list of files: %w", err)
	}
	for lines := json.NewDecoder(packed); ; {
		var file File
		err := lines.Decode(&file)
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the list of files: %w", err)
		}
		list = append(list, file)
	}
}
