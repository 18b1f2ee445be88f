package protocol

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestParseRequestDoesWhatKafkaDoes holds headers that were given to Kafka's own
// RequestHeader.parse.
func TestParseRequestDoesWhatKafkaDoes(t *testing.T) {
	for name, c := range map[string]struct {
		frame string
		want  RequestHeader
		body  string
		err   error
	}{
		"version 1":                  {"0003 0001 00000001 0001 61 b0d1", RequestHeader{Key: 3, Version: 1, CorrelationID: 1, ClientID: "a"}, "b0d1", nil},
		"null client":                {"0003 0001 ffffffff ffff", RequestHeader{Key: 3, Version: 1, CorrelationID: -1, ClientIDNull: true}, "", nil},
		"null client, minus two":     {"0003 0001 00000001 fffe", RequestHeader{Key: 3, Version: 1, CorrelationID: 1, ClientIDNull: true}, "", nil},
		"empty client":               {"0003 0001 00000001 0000 b0d1", RequestHeader{Key: 3, Version: 1, CorrelationID: 1}, "b0d1", nil},
		"version 2, null client":     {"0003 0009 00000001 ffff 00 b0d1", RequestHeader{Key: 3, Version: 9, CorrelationID: 1, ClientIDNull: true}, "b0d1", nil},
		"version 2, a tag twice":     {"0003 0009 00000001 ffff 02 00 01 aa 00 01 bb b0d1", RequestHeader{Key: 3, Version: 9, CorrelationID: 1, ClientIDNull: true}, "b0d1", nil},
		"ApiVersions to come":        {"0012 0063 00000001 0001 61 00 b0d1", RequestHeader{Key: 18, Version: 99, CorrelationID: 1, ClientID: "a"}, "b0d1", nil},
		"ApiVersions minus one":      {"0012 ffff 00000001 0001 61 00", RequestHeader{Key: 18, Version: -1, CorrelationID: 1, ClientID: "a"}, "00", nil},
		"our own API":                {"4e84 0000 00000001 ffff 00 b0d1", RequestHeader{Key: RaftMessageKey, CorrelationID: 1, ClientIDNull: true}, "b0d1", nil},
		"ApiVersions 99 without tag": {"0012 0063 00000001 0001 61", RequestHeader{}, "", ErrMalformed},
		"Produce 2":                  {"0000 0002 00000001 0001 61 00", RequestHeader{}, "", ErrUnsupportedVersion},
		"Produce 14":                 {"0000 000e 00000001 0001 61 00", RequestHeader{}, "", ErrUnsupportedVersion},
		"unstable InitProducerId 6":  {"0016 0006 00000001 ffff 00", RequestHeader{}, "", ErrUnsupportedVersion},
		"key 999":                    {"03e7 0002 00000001 0001 61 00", RequestHeader{}, "", ErrUnknownKey},
		"key minus one":              {"ffff 0002 00000001 0001 61 00", RequestHeader{}, "", ErrUnknownKey},
		"ControlledShutdown":         {"0007 0003 00000001 ffff 00", RequestHeader{}, "", ErrUnknownKey},
		"short":                      {"0003 0009 0000", RequestHeader{}, "", ErrMalformed},
		"client id of 2, one left":   {"0003 0001 00000001 0002 61", RequestHeader{}, "", ErrMalformed},
		"empty":                      {"", RequestHeader{}, "", ErrMalformed},
	} {
		frame := mustHex(t, strings.ReplaceAll(c.frame, " ", ""))
		hdr, body, err := ParseRequest(frame)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", name, err, c.err)
			continue
		}
		if err == nil && (hdr != c.want || !bytes.Equal(body, mustHex(t, c.body))) {
			t.Errorf("%s: %+v, body %x", name, hdr, body)
		}
		if err == nil && !strings.Contains(name, "minus two") && !strings.Contains(name, "twice") && hdr.Version != -1 {
			if again := append(AppendRequestHeader(nil, &hdr), body...); !bytes.Equal(again, frame) {
				t.Errorf("%s: written as %x", name, again)
			}
		}
	}
}

func TestUnsupportedApiVersions(t *testing.T) {
	for version := int16(-2); version < 9; version++ {
		hdr := RequestHeader{Key: KeyApiVersions, Version: version}
		if got, want := hdr.UnsupportedApiVersions(), version < 0 || version > 5; got != want {
			t.Errorf("ApiVersions %d is unsupported: %v", version, got)
		}
	}
	if hdr := (RequestHeader{Key: KeyMetadata, Version: 99}); hdr.UnsupportedApiVersions() {
		t.Error("Metadata taken for ApiVersions")
	}
}

func TestHeaderOfTheSameClientIsParsedWithoutAllocating(t *testing.T) {
	frame := mustHex(t, "00030009000000010006636c69656e7400")
	var hdr RequestHeader
	if _, err := hdr.Parse(frame); err != nil || hdr.ClientID != "client" {
		t.Fatalf("%+v, %v", hdr, err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = hdr.Parse(frame) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestWireFramesAreReadAndWrittenAlike parses every recorded frame between real
// clients and brokers, and writes it again.
func TestWireFramesAreReadAndWrittenAlike(t *testing.T) {
	frames := 0
	for _, row := range goldenRows(t, "wire.tsv.gz") {
		key, version := mustInt16(t, row[0]), mustInt16(t, row[2])
		name := strings.Join(row[1:5], " ")
		request, response := mustHex(t, row[5]), mustHex(t, row[6])
		hdr, body, err := ParseRequest(request)
		if err != nil || hdr.Key != key || hdr.Version != version {
			t.Errorf("%s request: %+v, %v", name, hdr, err)
			continue
		}
		req, err := DecodeRequest(hdr, body)
		if err != nil {
			t.Errorf("%s request: %v", name, err)
			continue
		}
		differ(t, name+" request", AppendRequest(nil, &hdr, req)[4:], request)
		correlationID, body, err := ParseResponse(key, version, response)
		if err != nil || correlationID != hdr.CorrelationID {
			t.Errorf("%s response: correlation %d for %d, %v", name, correlationID, hdr.CorrelationID, err)
			continue
		}
		resp := req.ResponseKind()
		resp.SetVersion(version)
		if err := resp.ReadFrom(body); err != nil {
			t.Errorf("%s response: %v", name, err)
			continue
		}
		differ(t, name+" response", AppendResponse(nil, hdr, resp)[4:], response)
		hotFramesAlike(t, name, hdr, request, response)
		frames++
	}
	if frames != 300 {
		t.Errorf("%d frames seen", frames)
	}
}

// hotFramesAlike does the same with our own codec.
func hotFramesAlike(t *testing.T, name string, hdr RequestHeader, request, response []byte) {
	t.Helper()
	_, reqBody, err := ParseRequest(request)
	if err != nil {
		t.Fatal(err)
	}
	_, respBody, err := ParseResponse(hdr.Key, hdr.Version, response)
	if err != nil {
		t.Fatal(err)
	}
	switch hdr.Key {
	case KeyProduce:
		var req ProduceRequest
		var resp ProduceResponse
		if err := errors.Join(req.Decode(hdr.Version, reqBody), resp.Decode(hdr.Version, respBody)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		differ(t, name+" request", AppendRequest(nil, &hdr, &req)[4:], request)
		differ(t, name+" response", AppendProduceResponse(nil, &hdr, &resp)[4:], response)
	case KeyFetch:
		var req FetchRequest
		var resp FetchResponse
		if err := errors.Join(req.Decode(hdr.Version, reqBody), resp.Decode(hdr.Version, respBody)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		differ(t, name+" request", AppendRequest(nil, &hdr, &req)[4:], request)
		whole, _ := AppendFetchResponse(nil, &hdr, &resp, nil)
		differ(t, name+" response", whole[4:], response)
	}
}

func TestOpaqueAnswer(t *testing.T) {
	hdr := RequestHeader{Key: RaftMessageKey, CorrelationID: 7}
	got := AppendOpaqueResponse([]byte("before"), &hdr, []byte("body"))
	if want := append([]byte("before"), 0, 0, 0, 9, 0, 0, 0, 7, 0, 'b', 'o', 'd', 'y'); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

func TestApiVersionsAnswerHasTheOldHeader(t *testing.T) {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.SetVersion(0)
	resp.ErrorCode = 35
	got := AppendResponse(nil, RequestHeader{Key: KeyApiVersions, Version: 99, CorrelationID: 5}, resp)
	if want := []byte{0, 0, 0, 10, 0, 0, 0, 5, 0, 35, 0, 0, 0, 0}; !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
	if v := ResponseHeaderVersion(KeyApiVersions, 5); v != 0 {
		t.Errorf("response header version %d", v)
	}
	if _, _, err := ParseResponse(KeyMetadata, 9, []byte{0, 0, 0, 1}); !errors.Is(err, ErrMalformed) {
		t.Errorf("response without tag section: %v", err)
	}
	if _, _, err := ParseResponse(KeyMetadata, 9, []byte{0, 0, 0}); !errors.Is(err, ErrMalformed) {
		t.Errorf("response of three bytes: %v", err)
	}
}
