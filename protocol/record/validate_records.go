package record

import (
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// produceValidator checks the records of one batch and stamps or rebuilds it.
type produceValidator struct {
	batch Batch
	opts  ProduceOptions

	maxTimestamp int64
	// consecutive is whether the offset deltas are 0, 1, 2, ...
	consecutive bool
	// reusable is whether the payload can serve a batch of another codec as it is.
	reusable bool

	recordErrors []RecordError
	faults       int  // of single records, also those that recordErrors has no room for
	badTimestamp bool // one of the faults is about a timestamp
}

// maxRecordErrors bounds the answer: a batch can have millions of records.
const maxRecordErrors = 10_000

func (v *produceValidator) run() (ProduceResult, *ProduceError) {
	payload := v.batch.Payload()
	if codec := v.batch.Codec(); codec != CodecNone {
		buf := getBuffer()
		defer putBuffer(buf)
		plain, err := Decompress(*buf, codec, payload, v.opts.Limits)
		if err != nil {
			return ProduceResult{}, v.unreadable(err)
		}
		*buf, payload = plain, plain
	}
	if perr := v.checkRecords(payload); perr != nil {
		return ProduceResult{}, perr
	}
	target := v.opts.TargetCodec
	if target == CodecProducer {
		target = v.batch.Codec()
	}
	if target == v.batch.Codec() {
		if v.consecutive {
			return v.stamp(), nil
		}
		if target != CodecNone {
			return ProduceResult{}, refuse(kerr.InvalidRecord,
				"The offset deltas of the records in the compressed batch are not consecutive in topic partition %s",
				v.opts.TopicPartition)
		}
	}
	return v.rebuild(payload, target)
}

// unreadable turns an error from reading records into the answer. A payload above the limits is too large: then
// producers split the batch, or give up, instead of sending it again.
func (v *produceValidator) unreadable(err error) *ProduceError {
	if errors.Is(err, ErrLimit) {
		return refuse(kerr.MessageTooLarge, "%v in topic partition %s", err, v.opts.TopicPartition)
	}
	return refuse(kerr.InvalidRecord, "%v in topic partition %s", err, v.opts.TopicPartition)
}

// checkRecords walks the plain payload. A structural fault ends it; faults of single records are gathered.
func (v *produceValidator) checkRecords(payload []byte) *ProduceError {
	v.maxTimestamp = NoTimestamp
	v.consecutive = true
	v.reusable = v.batch.TimestampType() == CreateTime
	c := newCursor(payload, v.batch.Count(), v.opts.Limits)
	base, sharedTimestamp := v.batch.BaseTimestamp(), v.batch.TimestampType() == LogAppendTime
	var raw rawRecord
	for index := int32(0); c.more(); index++ {
		if err := c.next(&raw); err != nil {
			return v.unreadable(err)
		}
		timestamp := base + raw.timestampDelta
		if sharedTimestamp {
			timestamp = v.batch.MaxTimestamp()
		}
		if v.opts.Compacted && raw.key == nil {
			v.fault(index, nullKeyMessage+v.opts.TopicPartition)
		} else if message := v.timestampFault(timestamp, &raw); message != "" {
			v.fault(index, message)
			v.badTimestamp = true
		}
		v.maxTimestamp = max(v.maxTimestamp, timestamp)
		v.consecutive = v.consecutive && raw.offsetDelta == index
		if raw.attributes != 0 || (index == 0 && raw.timestampDelta != 0) {
			v.reusable = false
		}
	}
	if err := c.end(); err != nil {
		return v.unreadable(err)
	}
	return v.refused()
}

const nullKeyMessage = "Compacted topic cannot accept message without key in topic partition "

func (v *produceValidator) fault(index int32, message string) {
	v.faults++
	if len(v.recordErrors) < maxRecordErrors {
		v.recordErrors = append(v.recordErrors, RecordError{index, message})
	}
}

// timestampFault returns what is wrong with the timestamp of a record.
func (v *produceValidator) timestampFault(timestamp int64, raw *rawRecord) string {
	o := &v.opts
	if o.TimestampType == CreateTime && timestamp != NoTimestamp {
		// The difference may wrap around, as it does in Kafka.
		age := o.NowMillis - timestamp
		if age > o.TimestampBeforeMaxMillis || -age > o.TimestampAfterMaxMillis {
			return fmt.Sprintf("Timestamp %d of message with offset %d is out of range. "+
				"The timestamp should be within [%d, %d]", timestamp, raw.offsetDelta,
				o.NowMillis-o.TimestampBeforeMaxMillis, o.NowMillis+o.TimestampAfterMaxMillis)
		}
		return ""
	}
	if v.batch.TimestampType() == LogAppendTime {
		return fmt.Sprintf("Invalid timestamp type in message DefaultRecord(offset=%d, timestamp=%d, key=%d bytes, value=%d bytes). "+
			"Producer should not set timestamp type to LogAppendTime.", raw.offsetDelta, timestamp, len(raw.key), len(raw.value))
	}
	return ""
}

// shownRecordErrors is how many record errors the message of the batch repeats.
const shownRecordErrors = 3

// refused returns the error for the gathered faults. A bad timestamp wins over all others.
func (v *produceValidator) refused() *ProduceError {
	if v.faults == 0 {
		return nil
	}
	if v.badTimestamp {
		return &ProduceError{
			Err:          kerr.InvalidTimestamp,
			Message:      "One or more records have been rejected due to invalid timestamp",
			RecordErrors: v.recordErrors,
		}
	}
	var shown []string
	for _, e := range v.recordErrors[:min(len(v.recordErrors), shownRecordErrors)] {
		shown = append(shown, fmt.Sprintf("RecordError(batchIndex=%d, message='%s')", e.Index, e.Message))
	}
	return &ProduceError{
		Err: kerr.InvalidRecord,
		Message: fmt.Sprintf("One or more records have been rejected due to %d record errors in total, "+
			"and only showing the first three errors at most: [%s]", v.faults, strings.Join(shown, ", ")),
		RecordErrors: v.recordErrors,
	}
}

// stamp keeps the payload and sets the timestamp type and the largest timestamp of the header.
func (v *produceValidator) stamp() ProduceResult {
	res := ProduceResult{Batch: v.batch, LogAppendTimeMillis: NoTimestamp, MaxTimestamp: v.maxTimestamp}
	if v.opts.TimestampType == LogAppendTime {
		res.LogAppendTimeMillis, res.MaxTimestamp = v.opts.NowMillis, v.opts.NowMillis
	}
	v.batch.SetMaxTimestamp(v.opts.TimestampType, res.MaxTimestamp)
	return res
}

// rebuild writes the batch anew with consecutive offsets and the target codec.
func (v *produceValidator) rebuild(payload []byte, target Codec) (ProduceResult, *ProduceError) {
	src, o := v.batch, &v.opts
	b := NewBuilder(BuilderOptions{
		LeaderEpoch: src.LeaderEpoch(), Codec: target, Level: o.Level,
		TimestampType: o.TimestampType, LogAppendTimeMillis: o.NowMillis,
		HasProducer: true, ProducerID: src.ProducerID(), ProducerEpoch: src.ProducerEpoch(), BaseSequence: src.BaseSequence(),
		Transactional: src.IsTransactional(),
	})
	if v.reusable && v.consecutive {
		b.setPayload(payload, src, v.maxTimestamp)
	} else {
		v.copyRecords(b, payload)
	}
	batch := b.Bytes()
	if perr := checkSize(batch, o); perr != nil {
		return ProduceResult{}, perr
	}
	res := ProduceResult{Batch: batch, LogAppendTimeMillis: NoTimestamp, MaxTimestamp: batch.MaxTimestamp(), Rebuilt: true}
	if o.TimestampType == LogAppendTime {
		res.LogAppendTimeMillis = o.NowMillis
	}
	return res, nil
}

// copyRecords adds the records of a payload that checkRecords has seen.
func (v *produceValidator) copyRecords(b *Builder, payload []byte) {
	c := newCursor(payload, v.batch.Count(), v.opts.Limits)
	var raw rawRecord
	for c.more() && c.next(&raw) == nil {
		timestamp := v.batch.BaseTimestamp() + raw.timestampDelta
		if v.batch.TimestampType() == LogAppendTime {
			timestamp = v.batch.MaxTimestamp()
		}
		b.addRaw(b.lastOffset+1, timestamp, &raw)
	}
}

// setPayload makes the batch out of the plain payload of another with the same deltas.
func (b *Builder) setPayload(payload []byte, src Batch, maxTimestamp int64) {
	b.buf = append(b.buf, payload...)
	b.count = src.Count()
	b.lastOffset = b.opts.BaseOffset + int64(src.LastOffsetDelta())
	b.baseTimestamp = src.BaseTimestamp()
	b.maxTimestamp = maxTimestamp
}
