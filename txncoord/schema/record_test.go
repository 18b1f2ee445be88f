package schema

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"gregor/protocol/wire"
)

// statusNames are how Kafka's tools print TransactionStatus.
var statusNames = []string{
	"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
}

func TestRecordsOfKafkaAreReadAsKafkaPrintsThemAndWrittenBack(t *testing.T) {
	text, err := os.ReadFile("testdata/transaction_state.tsv")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		n++
		col := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		key, err := hex.DecodeString(col[0])
		if err != nil {
			t.Fatal(err)
		}
		k, err := DecodeKey(key)
		if err != nil {
			t.Fatal(err)
		}
		printed := `{"type":"0","data":` + string(k.AppendJSON(nil, 0)) + "}"
		if again, err := AppendKey(nil, k); err != nil || !bytes.Equal(again, key) || printed != col[2] {
			t.Errorf("%v\n got %x %s\nwant %x %s", err, again, printed, key, col[2])
		}
		if col[1] == "-" {
			continue
		}
		value, err := hex.DecodeString(col[1])
		if err != nil {
			t.Fatal(err)
		}
		v, err := DecodeValue(k.RecordType(), value)
		if err != nil {
			t.Fatal(err)
		}
		version := int16(value[1])
		if again, err := AppendValue(nil, v, version); err != nil || !bytes.Equal(again, value) {
			t.Errorf("%v\n got %x\nwant %x", err, again, value)
		}
		status := int(v.(*TransactionLogValue).TransactionStatus)
		printed = `{"version":"` + strconv.Itoa(int(version)) + `","data":` + string(v.AppendJSON(nil, version)) + "}"
		printed = strings.Replace(printed, `"transactionStatus":`+strconv.Itoa(status), `"transactionStatus":"`+statusNames[status]+`"`, 1)
		if printed != col[3] {
			t.Errorf("\n got %s\nwant %s", printed, col[3])
		}
	}
	if n < 50 {
		t.Errorf("only %d records", n)
	}
}

func TestUnknownTypesAndVersionsAreToldApart(t *testing.T) {
	for in, want := range map[string]error{"": wire.ErrMalformed, "0000": wire.ErrMalformed, "0001": wire.ErrUnknownType} {
		b, _ := hex.DecodeString(in)
		if k, err := DecodeKey(b); !errors.Is(err, want) || k != nil {
			t.Errorf("key %s: %v %v, want %v", in, k, err, want)
		}
	}
	for in, want := range map[string]error{"00": wire.ErrMalformed, "0002": wire.ErrVersion, "0000": wire.ErrMalformed} {
		b, _ := hex.DecodeString(in)
		if v, err := DecodeValue(0, b); !errors.Is(err, want) || v != nil {
			t.Errorf("value %s: %v %v, want %v", in, v, err, want)
		}
	}
	if _, err := DecodeValue(1, []byte{0, 0}); !errors.Is(err, wire.ErrUnknownType) {
		t.Error(err)
	}
	if v, err := DecodeValue(0, nil); v != nil || err != nil {
		t.Errorf("a tombstone: %v %v", v, err)
	}
}

func TestFieldsOfVersionOneAreRefusedInVersionZero(t *testing.T) {
	v := NewTransactionLogValue()
	if _, err := AppendValue(nil, v, 0); err != nil {
		t.Error(err)
	}
	v.NextProducerID = 5
	if _, err := AppendValue(nil, v, 0); !errors.Is(err, wire.ErrField) {
		t.Error(err)
	}
	if _, err := AppendValue(nil, v, 1); err != nil {
		t.Error(err)
	}
}
