package inspect

import (
	"encoding/json"

	"gregor/protocol/record"
)

// jsonBatch is a batch as --json prints it.
type jsonBatch struct {
	Kind          string `json:"kind"`
	Position      int64  `json:"position"`
	BaseOffset    int64  `json:"baseOffset"`
	LastOffset    int64  `json:"lastOffset"`
	Count         int32  `json:"count"`
	SizeBytes     int    `json:"sizeBytes"`
	Magic         int8   `json:"magic"`
	LeaderEpoch   int32  `json:"leaderEpoch"`
	Codec         string `json:"codec"`
	TimestampType string `json:"timestampType"`
	MaxTimestamp  int64  `json:"maxTimestamp"`
	ProducerID    int64  `json:"producerId"`
	ProducerEpoch int16  `json:"producerEpoch"`
	BaseSequence  int32  `json:"baseSequence"`
	Transactional bool   `json:"isTransactional"`
	Control       bool   `json:"isControl"`
	DeleteHorizon *int64 `json:"deleteHorizonMillis,omitempty"`
	CRC           uint32 `json:"crc"`
	Valid         bool   `json:"isValid"`
}

// jsonRecord is a record as --json prints it. Key and value are base64, or decoded with a decoder.
type jsonRecord struct {
	Kind      string            `json:"kind"`
	Offset    int64             `json:"offset"`
	Timestamp int64             `json:"timestamp"`
	Sequence  int32             `json:"sequence"`
	Headers   []jsonHeader      `json:"headers,omitempty"`
	Key       []byte            `json:"key"`
	Value     []byte            `json:"value"`
	Decoded   map[string]string `json:"decoded,omitempty"`
	Control   string            `json:"control,omitempty"`
}

type jsonHeader struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

func (d *dumper) emit(v any) {
	enc := json.NewEncoder(d.w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the buffer's error shows at the flush; the types always encode
}

func (d *dumper) batchJSON(b record.Batch, at int64) {
	out := jsonBatch{
		Kind: "batch", Position: at, BaseOffset: b.BaseOffset(), LastOffset: b.LastOffset(), Count: b.Count(), SizeBytes: b.SizeBytes(), Magic: b.Magic(),
		LeaderEpoch: b.LeaderEpoch(), Codec: codecName(b.Codec()), TimestampType: timestampName(b), MaxTimestamp: b.MaxTimestamp(),
		ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence(), Transactional: b.IsTransactional(),
		Control: b.IsControl(), CRC: b.CRC(), Valid: b.CRCValid(),
	}
	if b.HasDeleteHorizon() {
		h := b.DeleteHorizonMillis()
		out.DeleteHorizon = &h
	}
	d.emit(out)
}

func (d *dumper) recordJSON(b record.Batch, r record.Record) {
	out := jsonRecord{Kind: "record", Offset: r.Offset, Timestamp: r.Timestamp, Sequence: r.Sequence, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, jsonHeader{Key: h.Key, Value: h.Value})
	}
	switch {
	case b.IsControl():
		out.Control = controlText(r)[1:]
	case d.Decoder != NoDecoder && (d.Decoder != PlainDecoder || d.Key != StringDecoder || d.Value != StringDecoder):
		x := d.decode(r)
		out.Decoded = map[string]string{}
		if x.key != nil {
			out.Decoded["key"] = *x.key
		}
		if x.payload != nil {
			out.Decoded["payload"] = *x.payload
		}
	}
	d.emit(out)
}
