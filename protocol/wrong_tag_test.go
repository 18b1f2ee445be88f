package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"
)

// TestTagOfALaterVersionIsRefused: Kafka's generated code says "Tag 0 is not
// valid for version 16" where an unknown tag would be skipped. Our own decoder,
// the walk, and so what a client sees are the same.
func TestTagOfALaterVersionIsRefused(t *testing.T) {
	for _, c := range []struct {
		version  int16
		tag      byte
		accepted bool
	}{
		{12, 0, false}, {16, 0, false}, {17, 0, true}, {17, 1, false}, {18, 1, true}, {16, 2, true}, {18, 2, true},
	} {
		t.Run(fmt.Sprintf("v%d tag %d", c.version, c.tag), func(t *testing.T) {
			size := 16 // a directory id; nobody knows tag 2
			if c.tag == 1 {
				size = 8
			}
			body := fetchWithPartitionTag(c.version, c.tag, size)
			own := FetchRequest{}
			ownErr := own.Decode(c.version, body)
			_, walkedErr := DecodeRequest(RequestHeader{Key: KeyFetch, Version: c.version}, body)
			for by, err := range map[string]error{"own": ownErr, "walk": walkedErr} {
				if (err == nil) != c.accepted || err != nil && !errors.Is(err, ErrMalformed) {
					t.Errorf("%s: %v", by, err)
				}
			}
		})
	}
}

// fetchWithPartitionTag is a Fetch request of one partition with one tagged field.
func fetchWithPartitionTag(version int16, tag byte, size int) []byte {
	req := FetchRequest{Version: version, Topics: []FetchTopic{{Name: "t", Partitions: []FetchPartition{{
		Index: 7, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1, LogStartOffset: -1, HighWatermark: math.MaxInt64, MaxBytes: 0x77777777,
	}}}}}
	body := req.AppendTo(nil)
	at := bytes.Index(body, []byte{0x77, 0x77, 0x77, 0x77}) + 4 // the partition's empty tag section
	field := append([]byte{1, tag, byte(size)}, make([]byte, size)...)
	return append(append(bytes.Clone(body[:at]), field...), body[at+1:]...)
}
