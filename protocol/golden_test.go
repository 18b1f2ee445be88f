package protocol

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// goldenRows returns the rows of a compressed table below testdata, without its
// heading. Both tables come from Apache Kafka 4.4.0: messages.tsv.gz holds every
// RPC in every version as its own classes write it, wire.tsv.gz frames between
// real clients and real brokers.
func goldenRows(t testing.TB, name string) [][]string {
	t.Helper()
	file, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	zip, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(zip)
	lines.Buffer(nil, 1<<20)
	var rows [][]string
	for lines.Scan() {
		rows = append(rows, strings.Split(lines.Text(), "\t"))
	}
	if err := lines.Err(); err != nil || len(rows) < 100 {
		t.Fatalf("%s: %d rows, %v", name, len(rows), err)
	}
	return rows[1:]
}

type goldenMessage struct {
	key, version  int16
	request       bool
	name, variant string
	body          []byte
}

func (m *goldenMessage) String() string {
	kind := "response"
	if m.request {
		kind = "request"
	}
	return m.name + " v" + strconv.Itoa(int(m.version)) + " " + kind + " " + m.variant
}

// goldenMessages leaves out the unstable version 6 of InitProducerId.
func goldenMessages(t testing.TB) []goldenMessage {
	t.Helper()
	var all []goldenMessage
	for _, row := range goldenRows(t, "messages.tsv.gz") {
		m := goldenMessage{
			key: mustInt16(t, row[0]), name: row[1], version: mustInt16(t, row[2]),
			request: row[3] == "request", variant: row[4], body: mustHex(t, row[5]),
		}
		if api, ok := APIByKey(m.key); !ok || !api.Supports(m.version) {
			if m.key != KeyInitProducerId || m.version != 6 {
				t.Fatalf("%v is not in the table of APIs", m)
			}
			continue
		}
		all = append(all, m)
	}
	return all
}

func mustInt16(t testing.TB, text string) int16 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return int16(n)
}

func mustHex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// differ reports where two encodings part.
func differ(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	t.Errorf("%s: differs from byte %d on:\n got %x\nwant %x", what, at, got, want)
}

// TestHotCodecWritesWhatKafkaWrites decodes and encodes every golden Produce and
// Fetch message, into fresh and into used memory.
func TestHotCodecWritesWhatKafkaWrites(t *testing.T) {
	var produce ProduceRequest
	var produced ProduceResponse
	var fetch FetchRequest
	var fetched FetchResponse
	messages := 0
	for _, m := range goldenMessages(t) {
		var got []byte
		var err error
		switch {
		case m.key == KeyProduce && m.request:
			if err = produce.Decode(m.version, m.body); err == nil {
				got = produce.AppendTo(nil)
			}
		case m.key == KeyProduce:
			if err = produced.Decode(m.version, m.body); err == nil {
				got = produced.AppendTo(nil, m.version)
			}
		case m.key == KeyFetch && m.request:
			if err = fetch.Decode(m.version, m.body); err == nil {
				got = fetch.AppendTo(nil)
			}
		case m.key == KeyFetch:
			if err = fetched.Decode(m.version, m.body); err == nil {
				got, _ = fetched.AppendTo(nil, m.version, nil)
			}
		default:
			continue
		}
		if err != nil {
			t.Errorf("%v: %v", &m, err)
			continue
		}
		messages++
		differ(t, m.String(), got, m.body)
	}
	if messages < 120 {
		t.Fatalf("only %d messages seen", messages)
	}
}

// TestKmsgWritesWhatKafkaWrites shows that franz-go's messages can stand for
// Kafka's: decode and encode of each gives the same bytes.
func TestKmsgWritesWhatKafkaWrites(t *testing.T) {
	for _, m := range goldenMessages(t) {
		req := kmsg.RequestForKey(m.key)
		if req == nil {
			t.Errorf("kmsg lacks %v", &m)
			continue
		}
		var msg interface {
			ReadFrom(body []byte) error
			AppendTo(dst []byte) []byte
			SetVersion(version int16)
		} = req
		if !m.request {
			msg = req.ResponseKind()
		}
		msg.SetVersion(m.version)
		if err := msg.ReadFrom(m.body); err != nil {
			t.Errorf("%v: %v", &m, err)
			continue
		}
		differ(t, m.String(), msg.AppendTo(nil), m.body)
	}
}
