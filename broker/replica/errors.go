package replica

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/protocol/record"
	"gregor/storage"
	"gregor/storage/producer"
)

// logErrors maps what the log and the producer state answer to the error that Kafka's clients know.
var logErrors = []struct {
	from error
	to   error
}{
	{storage.ErrOffsetOutOfRange, kerr.OffsetOutOfRange},
	{storage.ErrRecordTooLarge, kerr.MessageTooLarge},
	{storage.ErrSegmentTooSmall, kerr.RecordListTooLarge},
	{storage.ErrStorage, kerr.KafkaStorageError},
	{storage.ErrNoSpace, kerr.KafkaStorageError}, // clients try again, as after Kafka's own
	{storage.ErrClosed, kerr.NotLeaderForPartition},
	{storage.ErrOldLeaderEpoch, kerr.NotLeaderForPartition},
	{producer.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber},
	{producer.ErrInvalidProducerEpoch, kerr.InvalidProducerEpoch},
	{producer.ErrInvalidTxnState, kerr.InvalidTxnState},
	{producer.ErrCoordinatorFenced, kerr.TransactionCoordinatorFenced},
	{record.ErrCorrupt, kerr.CorruptMessage},
	{storage.ErrCorrupt, kerr.KafkaStorageError},
}

// mapped wraps a failure of the log with the error code that a client is told. The cause stays in the text.
func mapped(err error) error {
	if err == nil {
		return nil
	}
	for _, m := range logErrors {
		if errors.Is(err, m.from) {
			return errors.Join(m.to, err)
		}
	}
	return err
}
