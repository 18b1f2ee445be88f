package kraft

import (
	"errors"

	"gregor/kraft/metadata"
)

// errTransaction says that the transaction records of the log do not fit each other.
var errTransaction = errors.New("metadata transaction records out of order")

// logged is a record with its offset.
type logged struct {
	record metadata.Record
	offset int64
}

// transactions holds back the records of an open metadata transaction (KIP-868) until it ends, and drops those of an
// aborted one.
type transactions struct {
	open bool
	held []logged
}

// feed takes the next record of the log and gives the records that take effect now.
func (t *transactions) feed(rec metadata.Record, offset int64) ([]logged, error) {
	switch rec.(type) {
	case *metadata.BeginTransactionRecord:
		if t.open {
			return nil, errTransaction
		}
		t.open = true
		return nil, nil
	case *metadata.EndTransactionRecord:
		if !t.open {
			return nil, errTransaction
		}
		held := t.held
		t.reset()
		return held, nil
	case *metadata.AbortTransactionRecord:
		if !t.open {
			return nil, errTransaction
		}
		t.reset()
		return nil, nil
	}
	if t.open {
		t.held = append(t.held, logged{rec, offset})
		return nil, nil
	}
	return []logged{{rec, offset}}, nil
}

func (t *transactions) reset() { t.open, t.held = false, nil }
