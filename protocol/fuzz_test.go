package protocol

import (
	"bytes"
	"errors"
	"testing"
)

// seeds adds the golden messages of a kind: their key, version and body.
func seeds(f *testing.F, requests bool, keys ...int16) {
	f.Helper()
	for _, m := range goldenMessages(f) {
		wanted := len(keys) == 0
		for _, k := range keys {
			wanted = wanted || k == m.key
		}
		if wanted && m.request == requests && (m.variant == "full" || len(keys) > 0) {
			f.Add(m.key, m.version, m.body)
		}
	}
}

// FuzzDecodeRequest covers every key and version: what is decoded stays in the
// budget, is written in a form that is decoded to the same, and has used up no
// more than the walk has.
func FuzzDecodeRequest(f *testing.F) {
	seeds(f, true)
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		hdr := RequestHeader{Key: key, Version: version}
		req, err := DecodeRequest(hdr, body)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrBudget) && !errors.Is(err, ErrUnknownKey) && !errors.Is(err, ErrUnsupportedVersion) {
				t.Fatalf("unexpected kind of error: %v", err)
			}
			return
		}
		once := req.AppendTo(nil)
		again, err := DecodeRequest(hdr, once)
		if err != nil {
			t.Fatalf("%s v%d: own encoding %x: %v", APIName(key), version, once, err)
		}
		if twice := again.AppendTo(nil); !bytes.Equal(once, twice) {
			t.Fatalf("%s v%d:\n%x\n%x", APIName(key), version, once, twice)
		}
	})
}

// FuzzProduce and FuzzFetch compare our decoders with the walk and kmsg: they
// take and refuse the same.
func FuzzProduce(f *testing.F) {
	seeds(f, true, KeyProduce)
	var reused ProduceRequest
	f.Fuzz(func(t *testing.T, _, version int16, body []byte) {
		version = 3 + (version&0x7fff)%11
		fresh := ProduceRequest{}
		err := fresh.Decode(version, body)
		if reusedErr := reused.Decode(version, body); (err == nil) != (reusedErr == nil) {
			t.Fatalf("fresh: %v, reused: %v", err, reusedErr)
		}
		req, kmsgErr := DecodeRequest(RequestHeader{Key: KeyProduce, Version: version}, body)
		if !agree(err, kmsgErr) {
			t.Fatalf("v%d: ours %v, the walk and kmsg %v", version, err, kmsgErr)
		}
		if err == nil && kmsgErr == nil {
			want := withoutUnknownTags(t, req.AppendTo(nil), fresh.AppendTo(nil), func(b []byte) []byte {
				back := ProduceRequest{}
				if err := back.Decode(version, b); err != nil {
					t.Fatal(err)
				}
				return back.AppendTo(nil)
			})
			differ(t, "reused", reused.AppendTo(nil), want)
		}
	})
}

func FuzzFetch(f *testing.F) {
	seeds(f, true, KeyFetch)
	var reused FetchRequest
	f.Fuzz(func(t *testing.T, _, version int16, body []byte) {
		version = 4 + (version&0x7fff)%15
		fresh := FetchRequest{}
		err := fresh.Decode(version, body)
		if reusedErr := reused.Decode(version, body); (err == nil) != (reusedErr == nil) {
			t.Fatalf("fresh: %v, reused: %v", err, reusedErr)
		}
		req, kmsgErr := DecodeRequest(RequestHeader{Key: KeyFetch, Version: version}, body)
		if !agree(err, kmsgErr) {
			t.Fatalf("v%d: ours %v, the walk and kmsg %v", version, err, kmsgErr)
		}
		if err == nil && kmsgErr == nil {
			want := withoutUnknownTags(t, req.AppendTo(nil), fresh.AppendTo(nil), func(b []byte) []byte {
				back := FetchRequest{}
				if err := back.Decode(version, b); err != nil {
					t.Fatal(err)
				}
				return back.AppendTo(nil)
			})
			differ(t, "reused", reused.AppendTo(nil), want)
		}
	})
}

// agree allows the walk a smaller budget: kmsg's structs are larger than ours.
func agree(own, walked error) bool {
	return (own == nil) == (walked == nil) || own == nil && errors.Is(walked, ErrBudget) || errors.Is(own, ErrBudget)
}

// withoutUnknownTags compares our encoding with kmsg's, which keeps unknown
// tags, by reading that with our decoder, which does not.
func withoutUnknownTags(t *testing.T, theirs, ours []byte, through func([]byte) []byte) []byte {
	t.Helper()
	if !bytes.Equal(theirs, ours) {
		differ(t, "kmsg's encoding without unknown tags", ours, through(theirs))
	}
	return ours
}

// FuzzHotResponses: answers come from other brokers.
func FuzzHotResponses(f *testing.F) {
	seeds(f, false, KeyProduce, KeyFetch)
	var produce ProduceResponse
	var fetch FetchResponse
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		api, ok := APIByKey(key & 1)
		if !ok || !api.Supports(version) {
			return
		}
		if api.Key == KeyProduce {
			if produce.Decode(version, body) != nil {
				return
			}
			once := produce.AppendTo(nil, version)
			if err := produce.Decode(version, once); err != nil {
				t.Fatal(err)
			}
			differ(t, "Produce answer", produce.AppendTo(nil, version), once)
			return
		}
		if fetch.Decode(version, body) != nil {
			return
		}
		once, _ := fetch.AppendTo(nil, version, nil)
		if err := fetch.Decode(version, bytes.Clone(once)); err != nil {
			t.Fatal(err)
		}
		twice, _ := fetch.AppendTo(nil, version, nil)
		differ(t, "Fetch answer", twice, once)
	})
}

func FuzzParseRequest(f *testing.F) {
	for _, row := range goldenRows(f, "wire.tsv.gz")[:50] {
		f.Add(mustHex(f, row[5]))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		hdr, body, err := ParseRequest(frame)
		if err != nil {
			return
		}
		if len(body) > len(frame)-10 || len(hdr.ClientID) > len(frame)-10 {
			t.Fatalf("header %+v and %d bytes of body from %d bytes", hdr, len(body), len(frame))
		}
		back, rest, err := ParseRequest(append(AppendRequestHeader(nil, &hdr), body...))
		if err != nil || back != hdr || !bytes.Equal(rest, body) {
			t.Fatalf("%+v came back as %+v, %v", hdr, back, err)
		}
	})
}
