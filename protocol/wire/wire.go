// Package wire holds the primitives of Kafka's message encoding: a bounds-checked [Reader] and an appending [Writer].
// Generated record types (kraft/metadata, groupcoord/schema, txncoord/schema) are written against it.
//
// Integers are big endian. A message version is either flexible or not (KIP-482); the methods for strings, bytes and
// arrays take that as an argument:
//
//	            not flexible                flexible
//	string      int16 length, -1 null       uvarint length+1, 0 null
//	bytes       int32 length, -1 null       uvarint length+1, 0 null
//	array       int32 count, -1 null        uvarint count+1, 0 null
//	struct end  nothing                     tag section
//
// Both sides keep their first error; later calls do nothing, so that a caller checks once at the end.
package wire

import (
	"errors"
	"fmt"
)

// Errors of this package. Every decoding error wraps ErrMalformed.
var (
	// ErrMalformed says that bytes are not a message of the expected shape.
	ErrMalformed = errors.New("malformed message")
	// ErrVersion says that a message has no such version.
	ErrVersion = errors.New("unsupported message version")
	// ErrField says that a field holds a value which the version cannot express.
	ErrField = errors.New("field cannot be written")
)

// MaxTags is the largest number of tagged fields accepted in one section.
const MaxTags = 10_000

// Tag is a tagged field that the schema does not know: a newer Kafka's, or one of our own (tag 100 and above).
type Tag struct {
	Number uint32
	Data   []byte
}

// Tags are unknown tagged fields in ascending order of their numbers.
type Tags []Tag

// Get returns the data of a tag and whether it is there.
func (t Tags) Get(number uint32) ([]byte, bool) {
	for i := range t {
		if t[i].Number == number {
			return t[i].Data, true
		}
	}
	return nil, false
}

// With returns tags in which number has data, in ascending order; t is unchanged.
func (t Tags) With(number uint32, data []byte) Tags {
	out := make(Tags, 0, len(t)+1)
	placed := false
	for _, e := range t {
		if e.Number == number {
			continue
		}
		if e.Number > number && !placed {
			out = append(out, Tag{Number: number, Data: data})
			placed = true
		}
		out = append(out, e)
	}
	if !placed {
		out = append(out, Tag{Number: number, Data: data})
	}
	return out
}

// CheckVersion returns an error that wraps ErrVersion if version is outside lowest to highest.
func CheckVersion(message string, version, lowest, highest int16) error {
	if version < lowest || version > highest {
		return fmt.Errorf("%w: %s %d, known are %d to %d", ErrVersion, message, version, lowest, highest)
	}
	return nil
}
