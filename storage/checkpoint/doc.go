// Package checkpoint reads and writes the small files beside the logs, in Kafka 4.4's formats: offset
// checkpoints, leader epochs, meta.properties, partition.metadata, quorum-state and .kafka_cleanshutdown.
//
// Every write is atomic and durable: NAME.tmp, fsync, rename, fsync of the directory. A reader answers
// fs.ErrNotExist for a missing file and a *SyntaxError for one that is not what it should be.
package checkpoint

import (
	"errors"
	"fmt"
	"strconv"

	"gregor/storage/vfs"
)

// Names of the files in a log directory.
const (
	RecoveryPointFile  = "recovery-point-offset-checkpoint"
	LogStartOffsetFile = "log-start-offset-checkpoint"
	HighWatermarkFile  = "replication-offset-checkpoint"
	CleanerOffsetFile  = "cleaner-offset-checkpoint"
	MetaPropertiesFile = "meta.properties"
	CleanShutdownFile  = ".kafka_cleanshutdown"
)

// Names of the files in a partition directory.
const (
	LeaderEpochFile       = "leader-epoch-checkpoint"
	PartitionMetadataFile = "partition.metadata"
	QuorumStateFile       = "quorum-state"
)

// ErrSyntax is what errors.Is finds in a *SyntaxError.
var ErrSyntax = errors.New("malformed file")

// SyntaxError says where a file is malformed.
type SyntaxError struct {
	Path   string
	Line   int // from 1
	Reason string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%s:%d: %s", e.Path, e.Line, e.Reason) }

// Unwrap makes the error an ErrSyntax.
func (e *SyntaxError) Unwrap() error { return ErrSyntax }

func syntaxErrorf(line int, format string, args ...any) error {
	return &SyntaxError{Line: line, Reason: fmt.Sprintf(format, args...)}
}

// read reads a file and names it in the errors of parse.
func read[T any](fsys vfs.FS, path string, parse func(b []byte) (T, error)) (T, error) {
	b, err := vfs.ReadFile(fsys, path)
	if err != nil {
		var none T
		return none, err
	}
	v, err := parse(b)
	if syntax, ok := errors.AsType[*SyntaxError](err); ok {
		syntax.Path = path
	}
	return v, err
}

// parseInt is strict: decimal digits with an optional minus, no other form that strconv knows.
func parseInt(text string, bits int) (int64, bool) {
	v, err := strconv.ParseInt(text, 10, bits)
	if err != nil || text[0] == '+' {
		return 0, false
	}
	return v, true
}
