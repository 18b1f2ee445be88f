package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestEveryGoldenRequestPassesTheWalk shows that the embedded schema is Kafka's:
// the walk ends exactly where the message does, and says nothing against it.
func TestEveryGoldenRequestPassesTheWalk(t *testing.T) {
	requests := 0
	for _, m := range goldenMessages(t) {
		if !m.request {
			continue
		}
		requests++
		rest, err := requestSchema(m.key, m.version).walk(append(bytes.Clone(m.body), 1, 2, 3))
		if err != nil || !bytes.Equal(rest, []byte{1, 2, 3}) {
			t.Errorf("%v: left %x, %v", &m, rest, err)
		}
		req, err := DecodeRequest(RequestHeader{Key: m.key, Version: m.version}, append(bytes.Clone(m.body), 9))
		if err != nil {
			t.Errorf("%v: %v", &m, err)
			continue
		}
		differ(t, m.String(), req.AppendTo(nil), m.body)
	}
	if requests < 500 {
		t.Fatalf("only %d requests", requests)
	}
}

// TestTruncatedGoldenRequestsAreMalformed cuts every golden request everywhere.
func TestTruncatedGoldenRequestsAreMalformed(t *testing.T) {
	for _, m := range goldenMessages(t) {
		if !m.request {
			continue
		}
		schema := requestSchema(m.key, m.version)
		for cut := range m.body {
			if _, err := schema.walk(m.body[:cut]); !errors.Is(err, ErrMalformed) {
				t.Fatalf("%v cut to %d of %d bytes: %v", &m, cut, len(m.body), err)
			}
			if _, err := DecodeRequest(RequestHeader{Key: m.key, Version: m.version}, m.body[:cut]); err == nil {
				t.Fatalf("%v cut to %d of %d bytes was decoded", &m, cut, len(m.body))
			}
		}
	}
}

// TestDecodedRequestDoesNotAliasTheFrame overwrites the frame, as the pool does.
func TestDecodedRequestDoesNotAliasTheFrame(t *testing.T) {
	for _, m := range goldenMessages(t) {
		if !m.request || m.variant != "full" {
			continue
		}
		body := bytes.Clone(m.body)
		req, err := DecodeRequest(RequestHeader{Key: m.key, Version: m.version}, body)
		if err != nil {
			t.Fatalf("%v: %v", &m, err)
		}
		for i := range body {
			body[i] = 0xdb
		}
		differ(t, m.String(), req.AppendTo(nil), m.body)
	}
}

func TestDecodeRequestRefusesWhatKafkaRefuses(t *testing.T) {
	nullTopics := []byte{0xff, 0xff, 0xff, 0xff}
	for name, c := range map[string]struct {
		hdr  RequestHeader
		body []byte
		want error
	}{
		"null array in version 0":   {RequestHeader{Key: KeyMetadata, Version: 0}, nullTopics, ErrMalformed},
		"array of minus two":        {RequestHeader{Key: KeyMetadata, Version: 0}, []byte{0xff, 0xff, 0xff, 0xfe}, ErrMalformed},
		"null name":                 {RequestHeader{Key: KeyMetadata, Version: 8}, []byte{0, 0, 0, 1, 0xff, 0xff, 1, 0, 0}, ErrMalformed},
		"array that cannot be":      {RequestHeader{Key: KeyMetadata, Version: 12}, []byte{0x7f, 1, 0, 0}, ErrMalformed},
		"huge tag":                  {RequestHeader{Key: KeyMetadata, Version: 12}, []byte{0, 1, 0, 1, 5, 0x7f, 0xaa}, ErrMalformed},
		"tag count of minus one":    {RequestHeader{Key: KeyMetadata, Version: 12}, []byte{0, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f}, ErrMalformed},
		"varint of six bytes":       {RequestHeader{Key: KeyMetadata, Version: 12}, []byte{0, 1, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0}, ErrMalformed},
		"newer version":             {RequestHeader{Key: KeyMetadata, Version: 14}, nil, ErrUnsupportedVersion},
		"removed version":           {RequestHeader{Key: KeyProduce, Version: 2}, nil, ErrUnsupportedVersion},
		"unknown ApiVersions":       {RequestHeader{Key: KeyApiVersions, Version: 99}, nil, ErrUnsupportedVersion},
		"removed API":               {RequestHeader{Key: 7, Version: 0}, nil, ErrUnknownKey},
		"no API":                    {RequestHeader{Key: 999, Version: 0}, nil, ErrUnknownKey},
		"negative key":              {RequestHeader{Key: -1, Version: 0}, nil, ErrUnknownKey},
		"our own API has no schema": {RequestHeader{Key: RaftMessageKey, Version: 0}, nil, ErrUnknownKey},
	} {
		if req, err := DecodeRequest(c.hdr, c.body); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v; want %v", name, req, err, c.want)
		}
	}
}

// TestDecodeRequestTakesWhatKafkaTakes: tags in any order and twice, lengths with
// leading zeros, bytes after the end, any negative length for null. All of these
// were tried on Kafka's own classes.
func TestDecodeRequestTakesWhatKafkaTakes(t *testing.T) {
	for name, c := range map[string]struct {
		version int16
		body    []byte
	}{
		"null topics":            {12, []byte{0, 1, 0, 0}},
		"null topics, minus two": {8, []byte{0xff, 0xff, 0xff, 0xfe, 1, 0, 0}},
		"trailing bytes":         {12, []byte{0, 1, 0, 0, 0xff, 0xff}},
		"unknown tag twice":      {12, []byte{0, 1, 0, 2, 5, 1, 0xaa, 5, 1, 0xbb}},
		"descending tags":        {12, []byte{0, 1, 0, 2, 6, 1, 0xaa, 5, 1, 0xbb}},
		"long varints":           {12, []byte{0x80, 0, 1, 0, 0x80, 0x80, 0}},
		"bool of two":            {12, []byte{0, 2, 0, 0}},
	} {
		req, err := DecodeRequest(RequestHeader{Key: KeyMetadata, Version: c.version}, c.body)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		m := req.(*kmsg.MetadataRequest)
		if m.Topics != nil || !m.AllowAutoTopicCreation || m.IncludeTopicAuthorizedOperations {
			t.Errorf("%s: decoded %+v", name, m)
		}
	}
}

func TestLastOfARepeatedTagCounts(t *testing.T) {
	head := append(bytes.Repeat([]byte{0}, 4+4+4+1+4+4), 1, 1, 1) // no topics, no forgotten ones, empty rack
	twice := append(bytes.Clone(head), 2, 0, 2, 2, 'a', 0, 2, 2, 'b')
	var f FetchRequest
	if err := f.Decode(15, twice); err != nil || f.ClusterID == nil || *f.ClusterID != "b" {
		t.Fatalf("cluster id %v, %v", f.ClusterID, err)
	}
	req, err := DecodeRequest(RequestHeader{Key: KeyFetch, Version: 15}, twice)
	if err != nil || *req.(*kmsg.FetchRequest).ClusterID != "b" {
		t.Fatalf("kmsg: %+v, %v", req, err)
	}
	for _, size := range []byte{1, 3} { // smaller and larger than the text
		wrong := append(bytes.Clone(head), 1, 0, size, 2, 'a', 0, 0)
		if err := f.Decode(15, wrong); !errors.Is(err, ErrMalformed) {
			t.Errorf("tag of %d bytes with text of one: %v", size, err)
		}
		if _, err := DecodeRequest(RequestHeader{Key: KeyFetch, Version: 15}, wrong); !errors.Is(err, ErrMalformed) {
			t.Errorf("walk of a tag of %d bytes with text of one: %v", size, err)
		}
	}
}

func TestTagSectionsAreBounded(t *testing.T) {
	section := func(n int) []byte {
		body := binary.AppendUvarint([]byte{0, 1, 0}, uint64(n))
		for i := range n {
			body = append(binary.AppendUvarint(body, uint64(i+50)), 0)
		}
		return body
	}
	hdr := RequestHeader{Key: KeyMetadata, Version: 12}
	if _, err := DecodeRequest(hdr, section(500)); err != nil {
		t.Errorf("500 unknown tags: %v", err)
	}
	// kmsg keeps unknown tags in a map, which is more than such a frame may cost.
	if _, err := DecodeRequest(hdr, section(MaxTagsPerSection)); !errors.Is(err, ErrBudget) {
		t.Errorf("as many tags as are counted: %v", err)
	}
	if _, err := DecodeRequest(hdr, section(MaxTagsPerSection+1)); !errors.Is(err, ErrMalformed) {
		t.Errorf("one tag too many: %v", err)
	}
}

func TestArraysAreBounded(t *testing.T) {
	body := binary.BigEndian.AppendUint32(nil, MaxArrayLength+1)
	body = append(body, make([]byte, 4*(MaxArrayLength+1))...)
	body = append(body, 0)
	if _, err := DecodeRequest(RequestHeader{Key: KeyMetadata, Version: 4}, body); !errors.Is(err, ErrMalformed) {
		t.Fatalf("a million and one topics: %v", err)
	}
}

// TestManyShortNamesAreNotRefused: a client that knows 50,000 topics of short
// names asks for all of them, or creates 10,000.
func TestManyShortNamesAreNotRefused(t *testing.T) {
	metadata := kmsg.NewMetadataRequest()
	metadata.Version = 4
	for range 50_000 {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = new("t-123")
		metadata.Topics = append(metadata.Topics, topic)
	}
	if _, err := DecodeRequest(RequestHeader{Key: KeyMetadata, Version: 4}, metadata.AppendTo(nil)); err != nil {
		t.Error(err)
	}
	create := kmsg.NewCreateTopicsRequest()
	create.Version = 7
	for range 10_000 {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic = "t"
		create.Topics = append(create.Topics, topic)
	}
	if _, err := DecodeRequest(RequestHeader{Key: KeyCreateTopics, Version: 7}, create.AppendTo(nil)); err != nil {
		t.Error(err)
	}
}

// allocatedBy returns the bytes that f allocates.
func allocatedBy(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// TestDecodingStaysInTheBudget fills each array of each request with as many of
// the smallest elements as a frame of 2 MiB holds. Either decoding is refused or
// it allocates no more than the budget.
func TestDecodingStaysInTheBudget(t *testing.T) {
	if raceBuild {
		t.Skip("allocations are counted in builds without the race detector")
	}
	refused, decoded := 0, 0
	for _, api := range APIs() {
		version := api.MaxVersion
		hdr := RequestHeader{Key: api.Key, Version: version}
		schema := requestSchema(api.Key, version)
		for target := range schema.ops {
			if k := schema.ops[target].kind; k != opStructArray && k != opStringArray {
				continue
			}
			body := smallestElements(schema, target, 2<<20)
			var err error
			var req kmsg.Request
			got := allocatedBy(func() { req, err = DecodeRequest(hdr, body) })
			if got > DecodeBudgetBytes(len(body))+64<<10 {
				t.Errorf("%s v%d, field %s: %d bytes for a body of %d", api.Name, version, schema.ops[target].name, got, len(body))
			}
			switch {
			case err == nil:
				decoded++
			case errors.Is(err, ErrBudget):
				refused++
			default:
				t.Errorf("%s v%d, field %s: %v (%v)", api.Name, version, schema.ops[target].name, err, req)
			}
		}
	}
	if refused == 0 || decoded == 0 {
		t.Fatalf("%d refused, %d decoded: the test shows nothing", refused, decoded)
	}
}

// smallestElements encodes a request that is empty but for one array.
func smallestElements(s *messageSchema, target, size int) []byte {
	var body []byte
	for i := range s.ops {
		if i != target {
			body = appendEmpty(body, s.flex, &s.ops[i])
			continue
		}
		element := appendEmpty(nil, s.flex, &op{kind: opString})
		if s.ops[i].kind == opStructArray {
			element = appendEmptyStruct(nil, s.ops[i].elem)
		}
		n := min(size/len(element), MaxArrayLength)
		w := writer{buf: body, flex: s.flex}
		w.length(n, true)
		body = slices.Concat(w.buf, bytes.Repeat(element, n))
	}
	if s.flex {
		body = append(body, 0)
	}
	return body
}

func appendEmptyStruct(body []byte, s *structSchema) []byte {
	for i := range s.ops {
		body = appendEmpty(body, s.flex, &s.ops[i])
	}
	if s.flex {
		body = append(body, 0)
	}
	return body
}

func appendEmpty(body []byte, flex bool, o *op) []byte {
	w := writer{buf: body, flex: flex}
	switch o.kind {
	case opSkip:
		return append(body, make([]byte, o.size)...)
	case opStruct:
		if o.nullable {
			body = append(body, 1)
		}
		return appendEmptyStruct(body, o.elem)
	case opString:
		w.length(0, false)
	default:
		w.length(0, true)
	}
	return w.buf
}
