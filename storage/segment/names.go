package segment

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Endings of the files of a partition directory. The base offset in front has 20 decimal digits.
const (
	LogSuffix       = ".log"
	IndexSuffix     = ".index"
	TimeIndexSuffix = ".timeindex"
	TxnIndexSuffix  = ".txnindex"
	SnapshotSuffix  = ".snapshot" // of the producer states

	CleanedSuffix = ".cleaned" // output of a cleaner at work
	SwapSuffix    = ".swap"    // finished output that replaces segments
	DeletedSuffix = ".deleted" // waits for file.delete.delay.ms
)

const offsetDigits = 20

// FileName is the name of the file that starts with an offset, e.g. 00000000000000000042.log.
func FileName(offset int64, suffix string) string {
	return fmt.Sprintf("%0*d%s", offsetDigits, offset, suffix)
}

// FilePath is FileName in a directory.
func FilePath(dir string, offset int64, suffix string) string {
	return filepath.Join(dir, FileName(offset, suffix))
}

// ParseFileName takes a file name apart: the offset before the first dot and what follows (".log",
// ".index.swap"). ok is false when the name does not start with an offset.
func ParseFileName(name string) (offset int64, suffix string, ok bool) {
	digits, _, found := strings.Cut(name, ".")
	if !found || digits == "" {
		return 0, "", false
	}
	offset, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || offset < 0 || digits[0] == '+' {
		return 0, "", false
	}
	return offset, name[len(digits):], true
}
