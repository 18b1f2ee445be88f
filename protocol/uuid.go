package protocol

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
)

// UUID is a Kafka uuid: 16 bytes, printed as 22 characters of URL-safe base64.
// It is assignable to and from the plain [16]byte that storage and kmsg use.
type UUID [16]byte

// Reserved identifiers.
var (
	// ZeroUUID means "no id"; it is also DirectoryMigrating.
	ZeroUUID = UUID{}
	// OneUUID is the topic id of __cluster_metadata; it is also
	// DirectoryUnassigned.
	OneUUID = UUID{15: 1}
	// MetadataTopicID is the topic id of __cluster_metadata.
	MetadataTopicID = OneUUID

	// DirectoryMigrating, DirectoryUnassigned and DirectoryLost are the
	// directory ids that name no directory (KIP-858).
	DirectoryMigrating  = UUID{}
	DirectoryUnassigned = UUID{15: 1}
	DirectoryLost       = UUID{15: 2}
)

// String returns the id as Kafka's tools print it: 22 characters, never padded.
func (u UUID) String() string {
	return base64.RawURLEncoding.EncodeToString(u[:])
}

// IsZero reports whether the id is ZeroUUID.
func (u UUID) IsZero() bool { return u == UUID{} }

// IsReservedDirectory reports whether the id is one of the hundred that can
// never be the id of a log directory.
func (u UUID) IsReservedDirectory() bool {
	for _, b := range u[:15] {
		if b != 0 {
			return false
		}
	}
	return u[15] < 100
}

// AppendText appends String to dst.
func (u UUID) AppendText(dst []byte) ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(dst, u[:]), nil
}

// MarshalText encodes the id as String does.
func (u UUID) MarshalText() ([]byte, error) { return u.AppendText(nil) }

// UnmarshalText parses what ParseUUID parses.
func (u *UUID) UnmarshalText(text []byte) error {
	parsed, err := ParseUUID(string(text))
	if err != nil {
		return err
	}
	*u = parsed
	return nil
}

// ParseUUID parses the base64 form of an id. Like Kafka it takes the padded form
// too and ignores the last four bits of the last character.
func ParseUUID(text string) (UUID, error) {
	raw := text
	if len(raw) == 24 && raw[22:] == "==" {
		raw = raw[:22]
	}
	var u UUID
	if len(raw) != 22 {
		return u, fmt.Errorf("uuid %q: want 22 characters of base64, got %d", text, len(text))
	}
	if _, err := base64.RawURLEncoding.Decode(u[:], []byte(raw)); err != nil {
		return UUID{}, fmt.Errorf("uuid %q: %w", text, err)
	}
	return u, nil
}

// RandomUUID returns a random version 4 id. As in Kafka it is never a reserved
// one and its text never starts with "-", which a command line would take for
// an option.
func RandomUUID() UUID {
	for {
		var u UUID
		_, _ = rand.Read(u[:]) // never fails: crypto/rand ends the process instead
		u[6] = u[6]&0x0f | 0x40
		u[8] = u[8]&0x3f | 0x80
		if !u.IsReservedDirectory() && u.String()[0] != '-' {
			return u
		}
	}
}
