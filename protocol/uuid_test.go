package protocol

import (
	"strings"
	"testing"
)

func TestUUIDTextIsKafkas(t *testing.T) {
	for text, want := range map[string]UUID{
		"AAAAAAAAAAAAAAAAAAAAAA":   ZeroUUID,
		"AAAAAAAAAAAAAAAAAAAAAQ":   OneUUID,
		"AAAAAAAAAAAAAAAAAAAAAQ==": MetadataTopicID,
		"AAAAAAAAAAAAAAAAAAAAAR":   DirectoryUnassigned, // trailing bits are ignored
		"AAAAAAAAAAAAAAAAAAAAAg":   DirectoryLost,
		"_____________________w":   {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	} {
		got, err := ParseUUID(text)
		if err != nil || got != want {
			t.Errorf("ParseUUID(%q) = %v, %v; want %v", text, got, err, want)
		}
		if s := want.String(); len(s) != 22 || !strings.HasPrefix(text, s[:21]) {
			t.Errorf("%v prints as %q, parsed from %q", want, s, text)
		}
	}
}

func TestParseUUIDRefusesWhatKafkaRefuses(t *testing.T) {
	for _, text := range []string{
		"", "AAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAA+Q", "AAAAAAAAAAAAAAAAAAAA/Q",
		"AAAAAAAAAAAAAAAAAAAAA=", "AAAAAAAAAAAAAAAAAAAA\nQ", "AAAAAAAAAAAAAAAAAAAAA\n",
	} {
		if got, err := ParseUUID(text); err == nil {
			t.Errorf("ParseUUID(%q) = %v, want an error", text, got)
		}
	}
}

func TestRandomUUIDIsUsableEverywhere(t *testing.T) {
	seen := map[UUID]bool{}
	for range 2000 {
		u := RandomUUID()
		if u.IsReservedDirectory() || u.String()[0] == '-' || u[6]>>4 != 4 || u[8]>>6 != 2 || seen[u] {
			t.Fatalf("bad random id %v", u)
		}
		seen[u] = true
		back, err := ParseUUID(u.String())
		if err != nil || back != u {
			t.Fatalf("%v came back as %v, %v", u, back, err)
		}
	}
}

func TestUUIDMarshalsAsText(t *testing.T) {
	u := RandomUUID()
	text, err := u.MarshalText()
	if err != nil || string(text) != u.String() {
		t.Fatalf("MarshalText %q, %v", text, err)
	}
	var back UUID
	if err := back.UnmarshalText(text); err != nil || back != u {
		t.Fatalf("UnmarshalText %v, %v", back, err)
	}
	if err := back.UnmarshalText([]byte("short")); err == nil || back != u {
		t.Fatalf("bad text changed the id to %v, %v", back, err)
	}
}
