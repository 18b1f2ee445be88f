package kraft

import (
	"bytes"
	"strings"
	"testing"

	"gregor/protocol"
	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

// FuzzEnvelope: no bytes that a broker could forward end the controller, and what is taken is a request that may be
// forwarded.
func FuzzEnvelope(f *testing.F) {
	header := []byte{0, 19, 0, 7, 0, 0, 0, 5, 0, 2, 'm', 'e', 0}
	f.Add(append(header, createRequest("forwarded", 1, 1).AppendTo(nil)...))
	f.Add([]byte{0, 3, 0, 12, 0, 0, 0, 5, 0, 0, 0})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		hdr, req, err := openEnvelope(data)
		if err != nil {
			return
		}
		if api, ok := protocol.APIByKey(hdr.Key); !ok || !api.Forwardable || req.Key() != hdr.Key {
			t.Fatalf("key %d taken", hdr.Key)
		}
	})
}

func FuzzPrincipal(f *testing.F) {
	f.Add([]byte{0, 0, 5, 'U', 's', 'e', 'r', 6, 'a', 'l', 'i', 'c', 'e', 0, 0})
	f.Add([]byte{0, 1, 0})
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := parsePrincipal(data)
		if err == nil && !strings.Contains(got, ":") {
			t.Fatalf("principal %q", got)
		}
	})
}

// FuzzParseVoters: a list that is taken names each node once, with an address.
func FuzzParseVoters(f *testing.F) {
	f.Add("1@localhost:9093:4DtrC0tnTkSqHbsE8PlMKw,2@[::1]:9093:5DtrC0tnTkSqHbsE8PlMKw")
	f.Add("1@localhost")
	f.Add("@,:")
	f.Fuzz(func(t *testing.T, text string) {
		voters, err := ParseVoters(text, "CONTROLLER")
		if err != nil {
			return
		}
		seen := make(map[int32]bool)
		for _, v := range voters {
			if seen[v.Key.ID] || v.Key.ID < 0 || len(v.Endpoints) != 1 {
				t.Fatalf("%q gives %+v", text, voters)
			}
			seen[v.Key.ID] = true
		}
	})
}

// FuzzScramArgument: a credential that is taken has a name and an allowed number of iterations.
func FuzzScramArgument(f *testing.F) {
	f.Add(`SCRAM-SHA-256=[name=alice,salt="MWx2NHBkbnc0ZndxN25vdGN4bTB5Y2Y=",saltedpassword="mT0yyUUxnlJaC99HXgRTSYlbuqa4FSGtJCJfTMvjYCE="]`)
	f.Add(`SCRAM-SHA-512=[iterations=4096,name=`)
	f.Add(`SCRAM-SHA-256=[a`)
	f.Fuzz(func(t *testing.T, arg string) {
		if strings.Contains(arg, "iterations") || strings.Contains(arg, ",password") {
			return // deriving a key is slow
		}
		rec, err := parseScram(arg)
		if err == nil && (rec.Iterations < 4096 || len(rec.StoredKey) == 0) {
			t.Fatalf("%q gives %+v", arg, rec)
		}
	})
}

// FuzzRelease: whatever is asked for as a release, the tools answer with a text or a refusal.
func FuzzRelease(f *testing.F) {
	f.Add("4.4-IV2")
	f.Add("3.9")
	f.Add("99")
	f.Fuzz(func(t *testing.T, release string) {
		var out bytes.Buffer
		if err := VersionMapping(release, &out); err == nil && out.Len() == 0 {
			t.Fatalf("%q gives nothing", release)
		}
	})
}

// FuzzStorageInfo: no meta.properties ends the tool.
func FuzzStorageInfo(f *testing.F) {
	f.Add([]byte("version=1\nnode.id=1\ncluster.id=B4CbMKSRTNSA3xNRIaMrFA\n"))
	f.Add([]byte("version=0\nbroker.id=1\n"))
	f.Add([]byte("=\\u"))
	f.Fuzz(func(t *testing.T, props []byte) {
		fs := vfs.NewMem()
		if err := fs.MkdirAll("/d"); err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteFile(fs, "/d/"+checkpoint.MetaPropertiesFile, props); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if _, err := StorageInfo(fs, []string{"/d"}, &out); err != nil || !strings.Contains(out.String(), "/d") {
			t.Fatalf("%v: %s", err, out.String())
		}
	})
}
