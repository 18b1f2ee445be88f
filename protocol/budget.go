package protocol

import "fmt"

// A request may make its decoder allocate budgetFactor bytes for each of its
// own plus budgetBase. Elements of a few bytes, such as short topic names in an
// old Metadata request, become Go structs of more than ten times their size, so
// the first smallFrameBytes of a frame count for smallFrameFactor each: what
// clients really send fits, and a frame of a hundred megabytes cannot claim
// more than four times that, and 12 MiB.
const (
	budgetFactor     = 4
	budgetBase       = 64 << 10
	smallFrameFactor = 16
	smallFrameBytes  = 1 << 20
)

// DecodeBudgetBytes returns how much memory decoding a body of that size may
// allocate.
func DecodeBudgetBytes(bodyBytes int) int {
	return budgetBase + budgetFactor*bodyBytes + (smallFrameFactor-budgetFactor)*min(bodyBytes, smallFrameBytes)
}

// budget is what is left of it.
type budget struct{ left int }

func newBudget(bodyBytes int) budget { return budget{left: DecodeBudgetBytes(bodyBytes)} }

// charge takes n elements of size bytes; after a refusal r has failed.
func (b *budget) charge(r *reader, n, size int) {
	if n <= 0 || r.err != nil {
		return
	}
	if b.left -= n * size; b.left < 0 {
		r.err = fmt.Errorf("%w: %d elements of %d bytes", ErrBudget, n, size)
		r.buf = nil
	}
}
