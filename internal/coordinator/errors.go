package coordinator

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
)

// ErrUnknownRecord marks a record of a type that this version does not know.
var ErrUnknownRecord = errors.New("unknown coordinator record type")

// errOutOfSync says that the log holds records that the machine has not seen.
var errOutOfSync = errors.New("the machine is out of step with its log")

// ClientError translates the error of a [Write] or [Read] into the one that the
// client gets to see. The log's errors become those of a coordinator, so that
// clients look for the coordinator again or retry instead of giving up.
func ClientError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		// Nobody waits for the answer any more.
		return kerr.CoordinatorNotAvailable
	}
	for from, to := range clientErrors {
		if errors.Is(err, from) {
			return to
		}
	}
	return err
}

var clientErrors = map[error]error{
	// Verification of a transaction could not reach its coordinator. Old
	// clients do not expect this error, but retry the other.
	kerr.NetworkException:        kerr.CoordinatorLoadInProgress,
	kerr.UnknownTopicOrPartition: kerr.CoordinatorNotAvailable,
	kerr.NotEnoughReplicas:       kerr.CoordinatorNotAvailable,
	kerr.RequestTimedOut:         kerr.CoordinatorNotAvailable,
	kerr.NotLeaderForPartition:   kerr.NotCoordinator,
	kerr.KafkaStorageError:       kerr.NotCoordinator,
	kerr.MessageTooLarge:         kerr.UnknownServerError,
	kerr.RecordListTooLarge:      kerr.UnknownServerError,
	kerr.InvalidFetchSize:        kerr.UnknownServerError,
}
