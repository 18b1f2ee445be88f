package wire

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"
)

// JSON appends JSON as Kafka's converters and tools print messages. Make one with NewJSON.
type JSON struct {
	buf   []byte
	comma bool // before the next value
}

// NewJSON returns a writer that appends to dst.
func NewJSON(dst []byte) JSON { return JSON{buf: dst} }

// Result returns what was written, after the dst given to NewJSON.
func (j *JSON) Result() []byte { return j.buf }

// value begins a value in an array, or the value of a name.
func (j *JSON) value() {
	if j.comma {
		j.buf = append(j.buf, ',')
	}
	j.comma = true
}

// Begin begins an object or array with its first character.
func (j *JSON) Begin(open byte) {
	j.value()
	j.buf = append(j.buf, open)
	j.comma = false
}

// End ends an object or array with its last character.
func (j *JSON) End(closing byte) {
	j.buf = append(j.buf, closing)
	j.comma = true
}

// Name begins a member of an object.
func (j *JSON) Name(name string) {
	j.value()
	j.buf = append(j.buf, '"')
	j.buf = append(j.buf, name...)
	j.buf = append(j.buf, '"', ':')
	j.comma = false
}

// Null writes null.
func (j *JSON) Null() {
	j.value()
	j.buf = append(j.buf, "null"...)
}

// Bool writes true or false.
func (j *JSON) Bool(v bool) {
	j.value()
	j.buf = strconv.AppendBool(j.buf, v)
}

// Int writes a number.
func (j *JSON) Int(v int64) {
	j.value()
	j.buf = strconv.AppendInt(j.buf, v, 10)
}

// String writes a string.
func (j *JSON) String(s string) {
	j.value()
	j.quote(s)
}

// Blob writes bytes in base64.
func (j *JSON) Blob(b []byte) {
	j.value()
	j.buf = append(j.buf, '"')
	j.buf = base64.StdEncoding.AppendEncode(j.buf, b)
	j.buf = append(j.buf, '"')
}

// UUID writes an id in URL-safe base64.
func (j *JSON) UUID(id [16]byte) {
	j.value()
	j.buf = append(j.buf, '"')
	j.buf = base64.RawURLEncoding.AppendEncode(j.buf, id[:])
	j.buf = append(j.buf, '"')
}

// Float64 writes a number as Java does: with a decimal point, and with an exponent from 10^7 on and below 10^-3.
func (j *JSON) Float64(v float64) {
	j.value()
	size := math.Abs(v)
	switch {
	case math.IsNaN(v):
		j.buf = append(j.buf, `"NaN"`...)
	case math.IsInf(v, 0):
		j.buf = append(j.buf, map[bool]string{true: `"Infinity"`, false: `"-Infinity"`}[v > 0]...)
	case size == 0 || size >= 1e-3 && size < 1e7:
		s := strconv.FormatFloat(v, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		j.buf = append(j.buf, s...)
	default:
		mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(v, 'e', -1, 64), "e")
		if !strings.Contains(mantissa, ".") {
			mantissa += ".0"
		}
		n, _ := strconv.Atoi(exponent)
		j.buf = append(j.buf, mantissa...)
		j.buf = append(j.buf, 'E')
		j.buf = strconv.AppendInt(j.buf, int64(n), 10)
	}
}

// escapes of control characters that have a letter.
var escapes = map[byte]byte{'\b': 'b', '\t': 't', '\n': 'n', '\f': 'f', '\r': 'r', '"': '"', '\\': '\\'}

func (j *JSON) quote(s string) {
	const hex = "0123456789ABCDEF"
	j.buf = append(j.buf, '"')
	for i := range len(s) {
		c := s[i]
		switch letter, ok := escapes[c]; {
		case ok:
			j.buf = append(j.buf, '\\', letter)
		case c < 0x20:
			j.buf = append(j.buf, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			j.buf = append(j.buf, c)
		}
	}
	j.buf = append(j.buf, '"')
}
