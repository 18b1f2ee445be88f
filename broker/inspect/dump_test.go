package inspect

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gregor/storage/vfs"
)

// dump runs Dump with the files' paths as they stand in the recordings of Kafka's tool.
func dump(t *testing.T, files string, o DumpOptions) (string, error) {
	t.Helper()
	var out bytes.Buffer
	o.FS, o.Out = vfs.Real(), &out
	var paths []string
	for f := range strings.SplitSeq(files, ",") {
		paths = append(paths, filepath.Join("testdata", f))
	}
	err := Dump(paths, o)
	return strings.ReplaceAll(out.String(), "testdata"+string(filepath.Separator), ""), err
}

func TestOutputIsThatOfKafkasTool(t *testing.T) {
	const txn = "txn-0/00000000000000000003"
	const zstd = "codec-zstd-0/00000000000000000030"
	for name, c := range map[string]struct {
		files string
		o     DumpOptions
	}{
		"txn-deep":    {txn + ".log," + txn + ".index," + txn + ".timeindex," + txn + ".txnindex,txn-0/00000000000000000050.snapshot,idem-0/00000000000000000054.snapshot", DumpOptions{Decoder: PlainDecoder}},
		"txn-shallow": {txn + ".log", DumpOptions{}},
		"zstd":        {zstd + ".log," + zstd + ".index," + zstd + ".timeindex", DumpOptions{Deep: true}},
		"zstd-verify": {zstd + ".index," + zstd + ".timeindex", DumpOptions{VerifyOnly: true}},
		"zstd-sanity": {zstd + ".index," + zstd + ".timeindex", DumpOptions{SanityOnly: true}},
		"offsets":     {"__consumer_offsets-1/00000000000000000000.log", DumpOptions{Decoder: OffsetsDecoder}},
		"txnstate":    {"__transaction_state-0/00000000000000000000.log", DumpOptions{Decoder: TxnDecoder}},
		"share":       {"__share_group_state-0/00000000000000000000.log", DumpOptions{Decoder: ShareDecoder}},
		"metadata":    {"__cluster_metadata-0/00000000000000000122-0000000001.checkpoint,__cluster_metadata-0/00000000000000000000.log", DumpOptions{Decoder: MetadataDecoder}},
		"int":         {"int-0/00000000000000000000.log", DumpOptions{Decoder: PlainDecoder, Key: IntegerDecoder, Value: IntegerDecoder}},
		"long":        {"long-0/00000000000000000000.log", DumpOptions{Decoder: PlainDecoder, Key: LongDecoder, Value: LongDecoder}},
		"mixed":       {"long-0/00000000000000000000.log", DumpOptions{Decoder: PlainDecoder, Key: IntegerDecoder, Value: LongDecoder}},
		"string":      {"string-0/00000000000000000000.log", DumpOptions{Decoder: PlainDecoder}},
		"remote":      {"__remote_log_metadata-0/00000000000000000000.log", DumpOptions{Decoder: RemoteDecoder}},
		"skip":        {txn + ".log", DumpOptions{Decoder: PlainDecoder, SkipMetadata: true}},
	} {
		t.Run(name, func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := dump(t, c.files, c.o)
			if err != nil {
				t.Errorf("Dump: %v", err)
			}
			compareLines(t, got, string(want))
		})
	}
}

func compareLines(t *testing.T, got, want string) {
	t.Helper()
	g, w := strings.Split(strings.TrimRight(got, "\n"), "\n"), strings.Split(strings.TrimRight(want, "\n"), "\n")
	for i := range max(len(g), len(w)) {
		a, b := "(end)", "(end)"
		if i < len(g) {
			a = strings.TrimRight(g[i], " ")
		}
		if i < len(w) {
			b = strings.TrimRight(w[i], " ")
		}
		if a != b {
			t.Errorf("line %d:\n got %s\nwant %s", i+1, a, b)
			return
		}
	}
}

// TestRecordsThatCannotBeDecodedAreTold has them in the places where Kafka's tool has them, which ends at a record of a
// coordinator without a key, and at a number of too few bytes.
func TestRecordsThatCannotBeDecodedAreTold(t *testing.T) {
	for decoder, want := range map[Decoder][]string{
		OffsetsDecoder:  {"key: Error at offset 0, skipping.", "key: Error at offset 1, skipping.", "key: Error at offset 2, skipping. the record has no key"},
		TxnDecoder:      {"key: Error at offset 0, skipping.", "key: Error at offset 1, skipping.", "key: Error at offset 2, skipping. the record has no key"},
		ShareDecoder:    {"key: Error at offset 0, skipping.", "key: Error at offset 1, skipping.", "key: Error at offset 2, skipping. the record has no key"},
		MetadataDecoder: {"[] payload: Error at 0, skipping.", "[] payload: Error at 1, skipping.", "[] payload: Error at 2, skipping."},
		RemoteDecoder:   {"[] payload: Error at offset 0, skipping.", "[] payload: Error at offset 1, skipping.", "[] payload: Error at offset 2, skipping."},
	} {
		got, err := dump(t, "string-0/00000000000000000000.log", DumpOptions{Decoder: decoder})
		if err != nil {
			t.Errorf("Dump: %v", err)
		}
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("decoder %d: no %q in\n%s", decoder, w, got)
			}
		}
	}
	got, err := dump(t, "int-0/00000000000000000000.log", DumpOptions{Decoder: OffsetsDecoder})
	if err != nil || !strings.Contains(got, "key: Unknown record type 258 at offset 0, skipping.\n") {
		t.Errorf("%v\n%s", err, got)
	}
	got, err = dump(t, "int-0/00000000000000000000.log", DumpOptions{Decoder: PlainDecoder, Key: DefaultDecoder, Value: LongDecoder})
	if err != nil || !strings.Contains(got, "key: 01020304 payload: Error: 4 bytes are too few (00000009)\n") {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestDecoderClassesAreNamedWithOrWithoutThePackage(t *testing.T) {
	for class, want := range map[string]Plain{
		"StringDecoder": StringDecoder, "org.apache.kafka.tools.api.IntegerDecoder": IntegerDecoder, "LongDecoder": LongDecoder, "DefaultDecoder": DefaultDecoder,
	} {
		if got, err := ParsePlain(class); err != nil || got != want {
			t.Errorf("%s: %d, %v", class, got, err)
		}
	}
	if _, err := ParsePlain("com.example.Decoder"); err == nil || !strings.Contains(err.Error(), "IntegerDecoder") {
		t.Error(err)
	}
}

func TestDamagedFilesAreReportedAndTheOthersGoOn(t *testing.T) {
	raw, err := os.ReadFile("testdata/codec-zstd-0/00000000000000000030.log")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	torn := write("00000000000000000030.log", raw[:len(raw)-7])
	flipped := bytes.Clone(raw)
	flipped[100] ^= 1
	bad := write("00000000000000000099.log", flipped)
	missing := filepath.Join(dir, "00000000000000000001.log")
	note := write("leader-epoch-checkpoint", []byte("0\n1\n0 0"))
	var out bytes.Buffer
	err = Dump([]string{torn, missing, bad, note}, DumpOptions{FS: vfs.Real(), Out: &out, Deep: true})
	if !errors.Is(err, ErrProblems) {
		t.Errorf("Dump: %v", err)
	}
	for _, want := range []string{"invalid bytes at the end of 00000000000000000030.log", "Cannot read " + missing, "isvalid: false", "0\n1\n0 0\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
}

func TestJSONHasALinePerBatchAndRecord(t *testing.T) {
	got, err := dump(t, "txn-0/00000000000000000003.log", DumpOptions{JSON: true, Deep: true})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(got, `"kind":"batch"`); n != 27 { // as Kafka counts them in txn-shallow.txt
		t.Errorf("%d batches", n)
	}
	if !strings.Contains(got, `"control":"endTxnMarker: COMMIT coordinatorEpoch: 0"`) || !strings.Contains(got, `"offset":4,`) {
		t.Errorf("output:\n%s", got)
	}
}

func FuzzDump(f *testing.F) {
	raw, err := os.ReadFile("testdata/txn-0/00000000000000000003.log")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw, byte(0))
	f.Add([]byte{0, 1}, byte(3))
	names := []string{"00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex", "00000000000000000000.txnindex", "00000000000000000000.snapshot", "00000000000000000001-0000000001.checkpoint"}
	f.Fuzz(func(t *testing.T, raw []byte, kind byte) {
		fs := vfs.NewMem()
		if err := fs.MkdirAll("/d"); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if err := vfs.WriteFile(fs, "/d/"+name, raw); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		for _, decoder := range []Decoder{NoDecoder, MetadataDecoder, OffsetsDecoder, TxnDecoder, ShareDecoder, RemoteDecoder, PlainDecoder} {
			_ = Dump([]string{"/d/" + names[int(kind)%len(names)]}, DumpOptions{FS: fs, Out: &out, Deep: true, Decoder: decoder})
		}
	})
}
