package kraft

import (
	"errors"
	"fmt"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
)

// replay applies the next record of the log to a delta and gives what takes effect by that: the record, or those that a
// transaction has held back until it. Those that do not fit are in the error, with their offsets; the others are applied.
func replay(delta *image.Delta, txns *metadata.Transactions, rec metadata.Record, offset int64) ([]metadata.Logged, error) {
	due, err := txns.Feed(rec, offset)
	if err != nil {
		return nil, fmt.Errorf("metadata record at offset %d: %s: %w", offset, rec.MessageName(), err)
	}
	applied := due[:0]
	for _, r := range due {
		if bad := delta.Replay(r.Record); bad != nil {
			err = errors.Join(err, fmt.Errorf("metadata record at offset %d: %w", r.Offset, bad))
			continue
		}
		applied = append(applied, r)
	}
	return applied, err
}
