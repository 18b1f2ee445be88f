package record

import (
	"errors"
	"fmt"
)

// ErrTruncated says that the bytes end before the batch does. At the end of a segment or a fetch response that is
// normal; anywhere else the caller treats it as corruption.
var ErrTruncated = errors.New("record batch is truncated")

// ErrCorrupt marks bytes that no longer are, or never were, a record batch: wrong sizes, an unknown magic, a CRC that
// does not match, records that do not fill their batch. Every such error wraps it with the detail.
var ErrCorrupt = errors.New("corrupt record batch")

// ErrLimit marks bytes that are refused because reading them would exceed the caller's Limits.
var ErrLimit = errors.New("record batch exceeds a limit")

func corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
}

func limitf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrLimit}, args...)...)
}
