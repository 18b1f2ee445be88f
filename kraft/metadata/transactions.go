package metadata

import "errors"

// ErrTransactionOrder says that the transaction records of a log do not fit each other.
var ErrTransactionOrder = errors.New("metadata transaction records out of order")

// Logged is a record with its offset in the metadata log.
type Logged struct {
	Record Record
	Offset int64
}

// Transactions holds back the records of an open metadata transaction (KIP-868) until it ends, and drops those of an
// aborted one. The zero value is ready.
type Transactions struct {
	open bool
	held []Logged
}

// Open tells whether a transaction has begun and not ended.
func (t *Transactions) Open() bool { return t.open }

// Held is how many records the open transaction holds back.
func (t *Transactions) Held() int { return len(t.held) }

// Feed takes the next record of the log and gives the records that take effect now. ErrTransactionOrder: the record does
// not fit and has no effect.
func (t *Transactions) Feed(rec Record, offset int64) ([]Logged, error) {
	switch rec.(type) {
	case *BeginTransactionRecord:
		if t.open {
			return nil, ErrTransactionOrder
		}
		t.open = true
		return nil, nil
	case *EndTransactionRecord:
		if !t.open {
			return nil, ErrTransactionOrder
		}
		held := t.held
		t.Reset()
		return held, nil
	case *AbortTransactionRecord:
		if !t.open {
			return nil, ErrTransactionOrder
		}
		t.Reset()
		return nil, nil
	}
	if t.open {
		t.held = append(t.held, Logged{rec, offset})
		return nil, nil
	}
	return []Logged{{rec, offset}}, nil
}

// Reset forgets an open transaction, as where a snapshot takes the place of the log.
func (t *Transactions) Reset() { t.open, t.held = false, nil }
