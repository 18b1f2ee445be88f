package record

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"strings"
)

// refusal renders a refused produce for the table: the code, whether there is a message for the client, the records.
func refusal(code int16, message *string, errs []RecordError) string {
	var b strings.Builder
	fmt.Fprintf(&b, "error %d", code)
	for _, e := range errs {
		fmt.Fprintf(&b, " record %d", e.Index)
		if e.Message == "" {
			b.WriteString(" (no message)")
		}
	}
	if message != nil {
		b.WriteString(" message: " + *message)
	}
	return b.String()
}

// outcome renders a stored batch for the table, with timestamps relative to now.
func outcome(sent []byte, stored Batch, now, appendTime int64) string {
	relative := func(ts int64) string {
		switch {
		case ts == NoTimestamp:
			return "none"
		case appendTime != NoTimestamp && ts == appendTime:
			return "append"
		case ts-now > -1<<42 && ts-now < 1<<42 && ts > 1<<40:
			return fmt.Sprintf("now%+d", ts-now)
		}
		return fmt.Sprint(ts)
	}
	payload := "kept"
	if len(sent) < len(stored) || !bytes.Equal(sent[HeaderSizeBytes:len(stored)], stored.Payload()) {
		payload = "rebuilt"
	}
	digest := crc32.NewIEEE()
	records := 0
	for r, err := range stored.Records(Limits{}) {
		if err != nil {
			payload += ", unreadable"
			break
		}
		fmt.Fprintf(digest, "%d %s %q %q %d;", r.Offset-stored.BaseOffset(), relative(r.Timestamp), r.Key, r.Value, len(r.Headers))
		records++
	}
	return fmt.Sprintf("stored %s attributes %#x last %d base %s max %s count %d producer %d %d %d %s records %d %08x",
		stored.Codec(), uint16(stored.Attributes()), stored.LastOffsetDelta(), relative(stored.BaseTimestamp()),
		relative(stored.MaxTimestamp()), stored.Count(), stored.ProducerID(), stored.ProducerEpoch(), stored.BaseSequence(),
		payload, records, digest.Sum32())
}
