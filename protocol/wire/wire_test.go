package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// everything writes one of each primitive.
func everything(flexible bool) ([]byte, error) {
	s := "é"
	w := NewWriter(nil)
	w.Bool(true)
	w.Int8(-1)
	w.Int16(-2)
	w.Uint16(65535)
	w.Int32(-3)
	w.Uint32(math.MaxUint32)
	w.Int64(-4)
	w.Float64(0.5)
	w.UUID([16]byte{15: 9})
	w.Uvarint(300)
	w.String("a", flexible)
	w.NullableString(&s, flexible)
	w.NullableString(nil, flexible)
	w.Blob([]byte{1}, flexible)
	w.NullableBlob([]byte{}, flexible)
	w.NullableBlob(nil, flexible)
	w.ArrayLen(2, flexible)
	w.Int16(7)
	w.Int16(8)
	w.ArrayLen(-1, flexible)
	w.Present(true)
	w.Present(false)
	w.PresentTagged(true)
	w.PresentTagged(false)
	return w.Result()
}

const fixed = "01" + "ff" + "fffe" + "ffff" + "fffffffd" + "ffffffff" + "fffffffffffffffc" + "3fe0000000000000" +
	"00000000000000000000000000000009" + "ac02"

func TestPrimitivesAreEncodedAsTheProtocolSays(t *testing.T) {
	for flexible, rest := range map[bool]string{
		true:  "0261" + "03c3a9" + "00" + "0201" + "01" + "00" + "03" + "00070008" + "00" + "01ff" + "0100",
		false: "000161" + "0002c3a9" + "ffff" + "0000000101" + "00000000" + "ffffffff" + "00000002" + "00070008" + "ffffffff" + "01ff" + "0100",
	} {
		got, err := everything(flexible)
		if want := fixed + rest; err != nil || hex.EncodeToString(got) != want {
			t.Errorf("flexible %t: %v\n got %x\nwant %s", flexible, err, got, want)
		}
	}
}

func TestPrimitivesAreReadBack(t *testing.T) {
	for _, flexible := range []bool{true, false} {
		b, err := everything(flexible)
		if err != nil {
			t.Fatal(err)
		}
		r := NewReader(b)
		ok := r.Bool() && r.Int8() == -1 && r.Int16() == -2 && r.Uint16() == 65535 && r.Int32() == -3 &&
			r.Uint32() == math.MaxUint32 && r.Int64() == -4 && r.Float64() == 0.5 && r.UUID() == [16]byte{15: 9} &&
			r.Uvarint() == 300 && r.String(flexible) == "a" && *r.NullableString(flexible) == "é" &&
			r.NullableString(flexible) == nil && bytes.Equal(r.Bytes(flexible), []byte{1})
		empty, null := r.NullableBytes(flexible), r.NullableBytes(flexible)
		ok = ok && empty != nil && len(empty) == 0 && null == nil && r.ArrayLen(flexible, 2) == 2 && r.Int16() == 7 &&
			r.Int16() == 8 && r.NullableArrayLen(flexible, 1) == -1 && r.Present() && !r.Present() && r.PresentTagged() &&
			!r.PresentTagged() && r.Remaining() == 0
		r.End()
		if !ok || r.Err() != nil {
			t.Errorf("flexible %t: %v", flexible, r.Err())
		}
	}
}

func TestLengthsThatTheBytesCannotHoldAreErrors(t *testing.T) {
	huge, _ := hex.DecodeString("7fffffff0000")
	hugeFlexible, _ := hex.DecodeString("ffffffff0f0000")
	for name, read := range map[string]func(r *Reader, flexible bool){
		"string":         func(r *Reader, f bool) { _ = r.String(f) },
		"nullableString": func(r *Reader, f bool) { r.NullableString(f) },
		"bytes":          func(r *Reader, f bool) { r.Bytes(f) },
		"nullableBytes":  func(r *Reader, f bool) { r.NullableBytes(f) },
		"array":          func(r *Reader, f bool) { r.ArrayLen(f, 1) },
		"nullableArray":  func(r *Reader, f bool) { r.NullableArrayLen(f, 1) },
		"tags":           func(r *Reader, _ bool) { r.TagCount() },
		"skipTags":       func(r *Reader, _ bool) { r.SkipTags() },
	} {
		for flexible, b := range map[bool][]byte{true: hugeFlexible, false: huge} {
			r := NewReader(b)
			if read(&r, flexible); !errors.Is(r.Err(), ErrMalformed) {
				t.Errorf("%s flexible %t: %v", name, flexible, r.Err())
			}
		}
	}
}

func TestLengthsBelowNullAndNullsWhereNoneMayBeAreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		hex  string
		read func(r *Reader)
	}{
		"null string":         {"ffff", func(r *Reader) { _ = r.String(false) }},
		"null flexible":       {"00", func(r *Reader) { _ = r.String(true) }},
		"string of -2":        {"fffe", func(r *Reader) { r.NullableString(false) }},
		"null bytes":          {"ffffffff", func(r *Reader) { r.Bytes(false) }},
		"bytes of -2":         {"fffffffe", func(r *Reader) { r.NullableBytes(false) }},
		"null array":          {"00", func(r *Reader) { r.ArrayLen(true, 1) }},
		"array of -2":         {"fffffffe", func(r *Reader) { r.NullableArrayLen(false, 1) }},
		"three of two":        {"0400000000", func(r *Reader) { r.ArrayLen(true, 2) }},
		"presence 2":          {"02", func(r *Reader) { r.Present() }},
		"tagged presence 2":   {"02", func(r *Reader) { r.PresentTagged() }},
		"endless varint":      {"ffffffffffff01", func(r *Reader) { r.Uvarint() }},
		"33 bit varint":       {"ffffffff1f", func(r *Reader) { r.Uvarint() }},
		"tag beyond the end":  {"010005aa", func(r *Reader) { r.TagCount(); r.Tag() }},
		"many tags":           {"914e" + strings.Repeat("0000", 10001), func(r *Reader) { r.TagCount() }},
		"bytes left":          {"00", func(r *Reader) { r.End() }},
		"payload not used up": {"01050102", func(r *Reader) { r.TagCount(); n, p := r.Tag(); r.EndTag(n, &p) }},
		"unknown tag twice": {"0205000500", func(r *Reader) {
			var tags Tags
			for range r.TagCount() {
				n, p := r.Tag()
				tags = p.Unknown(tags, n)
				r.EndTag(n, &p)
			}
		}},
	} {
		b, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		r := NewReader(b)
		if c.read(&r); !errors.Is(r.Err(), ErrMalformed) {
			t.Errorf("%s: %v", name, r.Err())
		}
		if r.Int64() != 0 || r.String(true) != "" || r.NullableArrayLen(true, 1) != -1 || r.TagCount() != 0 {
			t.Errorf("%s: a reader goes on after its error", name)
		}
	}
}

func TestFirstErrorNamesItsPosition(t *testing.T) {
	r := NewReader([]byte{0, 1, 2})
	r.Int16()
	r.Int32()
	first := r.Err()
	r.String(true)
	if !errors.Is(r.Err(), first) || !strings.Contains(first.Error(), "at byte 2") {
		t.Errorf("%v, then %v", first, r.Err())
	}
}

func TestWriterRefusesLengthsThatTheVersionCannotExpress(t *testing.T) {
	w := NewWriter(nil)
	w.String(strings.Repeat("x", math.MaxInt16), false)
	if _, err := w.Result(); err != nil {
		t.Error(err)
	}
	w.String(strings.Repeat("x", math.MaxInt16+1), true)
	if _, err := w.Result(); err != nil {
		t.Error(err)
	}
	w.String(strings.Repeat("x", math.MaxInt16+1), false)
	if _, err := w.Result(); !errors.Is(err, ErrField) {
		t.Error(err)
	}
}

func TestTagSectionPutsUnknownFieldsWhereTheirNumbersBelong(t *testing.T) {
	w := NewWriter([]byte("x"))
	s := w.BeginTags(Tags{{1, []byte("a")}, {3, bytes.Repeat([]byte("b"), 200)}, {9, nil}})
	s.Tag(0)
	w.Int8(1)
	s.EndTag()
	s.Tag(2)
	w.UUID([16]byte{1})
	s.EndTag()
	s.EndTags()
	got, err := w.Result()
	want := "78" + "05" + "000101" + "010161" + "0210" + "01000000000000000000000000000000" + "03c801" + strings.Repeat("62", 200) + "0900"
	if err != nil || hex.EncodeToString(got) != want {
		t.Errorf("%v\n got %x\nwant %s", err, got, want)
	}
	s = w.BeginTags(Tags{{2, nil}})
	s.Tag(2)
	s.EndTag()
	s.EndTags()
	if _, err := w.Result(); !errors.Is(err, ErrField) {
		t.Errorf("a tag twice: %v", err)
	}
}

func TestTagsWithKeepsOrderAndTheOriginal(t *testing.T) {
	tags := Tags{}
	for _, n := range []uint32{5, 1, 9, 5} {
		before := slices.Clone(tags)
		next := tags.With(n, []byte{byte(n)})
		if !slices.EqualFunc(tags, before, func(a, b Tag) bool { return a.Number == b.Number }) {
			t.Errorf("With(%d) changed its receiver", n)
		}
		tags = next
	}
	var numbers []uint32
	for _, e := range tags {
		numbers = append(numbers, e.Number)
	}
	if !slices.Equal(numbers, []uint32{1, 5, 9}) {
		t.Errorf("%v", numbers)
	}
	if d, ok := tags.Get(9); !ok || d[0] != 9 {
		t.Errorf("Get: %v %v", d, ok)
	}
	if _, ok := tags.Get(2); ok {
		t.Error("Get of a tag that is not there")
	}
}

func TestFloatsArePrintedAsJavaDoes(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.0", 1: "1.0", -2.5: "-2.5", 1e6: "1000000.0", 1e7: "1.0E7", 1.5e10: "1.5E10", 0.001: "0.001", 0.0001: "1.0E-4",
		math.Inf(1): `"Infinity"`, math.Inf(-1): `"-Infinity"`, 1048576: "1048576.0", 123456789.25: "1.2345678925E8",
	} {
		j := NewJSON(nil)
		if j.Float64(v); string(j.Result()) != want {
			t.Errorf("%v: %s, want %s", v, j.Result(), want)
		}
	}
	j := NewJSON(nil)
	if j.Float64(math.NaN()); string(j.Result()) != `"NaN"` {
		t.Errorf("NaN: %s", j.Result())
	}
}

func FuzzJSONStringsAreValid(f *testing.F) {
	f.Add("a\"b\\c\n\x01é")
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return
		}
		j := NewJSON(nil)
		j.String(s)
		var back string
		if err := json.Unmarshal(j.Result(), &back); err != nil || back != s {
			t.Errorf("%q printed as %s: %q %v", s, j.Result(), back, err)
		}
	})
}

func TestVersionsOutsideTheRangeAreNamed(t *testing.T) {
	if err := CheckVersion("M", 2, 0, 2); err != nil {
		t.Error(err)
	}
	for _, v := range []int16{-1, 3} {
		if err := CheckVersion("M", v, 0, 2); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "M") {
			t.Errorf("%d: %v", v, err)
		}
	}
}
