// Package schemagen turns message schemas into Go types with encoders and decoders.
//
// A schema file is text, one message or struct after the other:
//
//	registry NAME                                        keys and values below belong to the record types of a topic
//	KIND Name [key=N] versions=A-B flexible=C+|none [extra=parts]     KIND is record, key, value or data
//		Field type [in A+|A-B] [tag N] [default V] [ignorable]
//	struct Name                                          a part of the message before it, and of others with the same versions
//		Field type ...
//
// Types are bool, int8, int16, int32, int64, uint16, float64, uuid, string, bytes, a struct's name, any of these after
// [] for an array, and any followed by ? if it may be null. "in" gives the versions that have the field (all without
// it). A field with a tag is a tagged field of flexible versions and is left out when it has its default value. The
// default without "default" is zero, also for a nullable field: "" and not null. A field that is set but missing from
// the version is an error unless ignorable. Unknown tagged fields are kept in messages, with extra=parts
// also in their structs, and written again. Comments begin with #; those right above a message document it.
package schemagen

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Kind says what a message is for.
type Kind string

// The kinds of messages.
const (
	KindRecord Kind = "record" // value of a metadata record
	KindKey    Kind = "key"    // key of a coordinator record
	KindValue  Kind = "value"  // value of a coordinator record
	KindData   Kind = "data"   // anything else
)

// Range is a range of versions; To is math.MaxInt16 if open. An empty range has From > To.
type Range struct{ From, To int16 }

func (r Range) empty() bool { return r.From > r.To }

// Type is a field's type.
type Type struct {
	Base     string // primitive or struct name
	Struct   *Struct
	Array    bool
	Nullable bool
}

// Field is a field of a struct.
type Field struct {
	Name      string // Kafka's
	Type      Type
	In        Range
	Tag       int // -1 if not tagged
	Default   string
	Ignorable bool
	line      int
}

// Struct is the fields of a message or of a part of it.
type Struct struct {
	Name    string
	Doc     []string
	Fields  []Field
	Message *Message
}

// Message is a top level message.
type Message struct {
	Struct
	Kind     Kind
	Key      int16
	Versions Range
	Flexible Range
	Registry string
	// ExtraInParts says that the parts of the message keep unknown tagged fields too, not only the message itself.
	ExtraInParts bool
}

// File is a parsed schema file.
type File struct {
	Name     string // without extension
	Messages []*Message
	Structs  []*Struct // in the order of the file, messages included
}

type parser struct {
	file     *File
	byName   map[string]*Struct
	registry string
	doc      []string
	current  *Struct
	message  *Message
}

// Parse reads a schema; name is the file's name without extension.
func Parse(name string, text []byte) (*File, error) {
	p := &parser{file: &File{Name: name}, byName: map[string]*Struct{}}
	sc := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; sc.Scan(); n++ {
		if err := p.line(sc.Text(), n); err != nil {
			return nil, fmt.Errorf("%s line %d: %w", name, n, err)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p.file, p.resolve()
}

func (p *parser) line(line string, n int) error {
	words := strings.Fields(line)
	switch {
	case len(words) == 0:
		p.doc = nil
		return nil
	case strings.HasPrefix(line, "#"):
		p.doc = append(p.doc, strings.TrimSpace(line[1:]))
		return nil
	case strings.HasPrefix(line, "\t"):
		f, err := parseField(words)
		if err != nil {
			return err
		}
		if p.current == nil {
			return fmt.Errorf("field %s outside a message", f.Name)
		}
		f.line = n
		p.current.Fields = append(p.current.Fields, f)
		return nil
	case words[0] == "registry" && len(words) == 2:
		p.registry = words[1]
		return nil
	}
	return p.begin(words)
}

// begin handles the first line of a message or struct.
func (p *parser) begin(words []string) error {
	if len(words) < 2 {
		return fmt.Errorf("not understood: %q", strings.Join(words, " "))
	}
	name := words[1]
	if p.byName[name] != nil {
		return fmt.Errorf("%s twice", name)
	}
	if words[0] == "struct" {
		if p.message == nil {
			return fmt.Errorf("struct %s before any message", name)
		}
		p.current = &Struct{Name: name, Doc: p.doc, Message: p.message}
	} else {
		m, err := parseMessage(words)
		if err != nil {
			return err
		}
		m.Doc, m.Registry = p.doc, p.registry
		m.Message = m
		p.message, p.current = m, &m.Struct
		p.file.Messages = append(p.file.Messages, m)
	}
	p.doc = nil
	p.byName[name] = p.current
	p.file.Structs = append(p.file.Structs, p.current)
	return nil
}

func parseMessage(words []string) (*Message, error) {
	m := &Message{Kind: Kind(words[0]), Key: -1, Flexible: Range{From: 1, To: 0}}
	m.Name = words[1]
	switch m.Kind {
	case KindRecord, KindKey, KindValue, KindData:
	default:
		return nil, fmt.Errorf("unknown kind %q", words[0])
	}
	for _, w := range words[2:] {
		name, value, _ := strings.Cut(w, "=")
		var err error
		switch name {
		case "extra":
			m.ExtraInParts = value == "parts"
		case "key":
			m.Key, err = parseInt16(value)
		case "versions":
			m.Versions, err = parseRange(value)
		case "flexible":
			if value != "none" {
				m.Flexible, err = parseRange(value)
			}
		default:
			err = fmt.Errorf("unknown attribute %q", w)
		}
		if err != nil {
			return nil, err
		}
	}
	if m.Kind != KindData && m.Key < 0 {
		return nil, fmt.Errorf("%s %s has no key", m.Kind, m.Name)
	}
	return m, nil
}

func parseField(words []string) (Field, error) {
	if len(words) < 2 {
		return Field{}, fmt.Errorf("field %q has no type", words[0])
	}
	f := Field{Name: words[0], Tag: -1, In: Range{To: math.MaxInt16}}
	base, nullable := strings.CutSuffix(words[1], "?")
	base, array := strings.CutPrefix(base, "[]")
	f.Type = Type{Base: base, Array: array, Nullable: nullable}
	for i := 2; i < len(words); i++ {
		if words[i] == "ignorable" {
			f.Ignorable = true
			continue
		}
		if i+1 == len(words) {
			return f, fmt.Errorf("field %s: %q without value or unknown", f.Name, words[i])
		}
		value := words[i+1]
		var err error
		switch words[i] {
		case "in":
			f.In, err = parseRange(value)
		case "tag":
			f.Tag, err = strconv.Atoi(value)
		case "default":
			f.Default = value
		default:
			err = fmt.Errorf("unknown attribute %q", words[i])
		}
		if err != nil {
			return f, fmt.Errorf("field %s: %w", f.Name, err)
		}
		i++
	}
	return f, nil
}

func parseInt16(s string) (int16, error) {
	v, err := strconv.ParseInt(s, 10, 16)
	return int16(v), err
}

func parseRange(s string) (Range, error) {
	if from, ok := strings.CutSuffix(s, "+"); ok {
		v, err := parseInt16(from)
		return Range{From: v, To: math.MaxInt16}, err
	}
	from, to, ok := strings.Cut(s, "-")
	if !ok {
		to = from
	}
	a, err := parseInt16(from)
	if err != nil {
		return Range{}, err
	}
	b, err := parseInt16(to)
	return Range{From: a, To: b}, err
}

// primitives and their smallest encoding in bytes, flexible and not.
var primitives = map[string][2]int{
	"bool": {1, 1}, "int8": {1, 1}, "int16": {2, 2}, "uint16": {2, 2}, "int32": {4, 4}, "int64": {8, 8},
	"float64": {8, 8}, "uuid": {16, 16}, "string": {1, 2}, "bytes": {1, 4},
}

// resolve connects struct names and checks what the generator relies on.
func (p *parser) resolve() error {
	for _, s := range p.file.Structs {
		for i := range s.Fields {
			f := &s.Fields[i]
			if err := p.resolveField(s, f); err != nil {
				return fmt.Errorf("%s line %d: %s.%s: %w", p.file.Name, f.line, s.Name, f.Name, err)
			}
		}
	}
	return nil
}

// sameVersions tells whether what is a part of one message is encoded alike in another.
func (m *Message) sameVersions(o *Message) bool {
	return m.Versions == o.Versions && m.Flexible == o.Flexible && m.ExtraInParts == o.ExtraInParts
}

func (p *parser) resolveField(s *Struct, f *Field) error {
	if _, ok := primitives[f.Type.Base]; !ok {
		if f.Type.Struct = p.byName[f.Type.Base]; f.Type.Struct == nil {
			return fmt.Errorf("unknown type %q", f.Type.Base)
		}
		if !f.Type.Struct.Message.sameVersions(s.Message) {
			return fmt.Errorf("%s belongs to %s", f.Type.Base, f.Type.Struct.Message.Name)
		}
	}
	return f.check(s)
}

// check finds what cannot be together in a field.
func (f *Field) check(s *Struct) error {
	if f.Tag >= 0 && s.Message.Flexible.empty() {
		return errors.New("tagged field in a message without flexible versions")
	}
	if f.Default == "null" && !f.Type.Nullable {
		return errors.New("null default of a field that cannot be null")
	}
	if f.Default != "" && f.Default != "null" && (f.Type.Array || f.Type.Struct != nil) {
		return fmt.Errorf("default %q of an array or struct", f.Default)
	}
	if f.Type.Nullable && !f.Type.Array && f.Type.Struct == nil && f.Type.Base != "string" && f.Type.Base != "bytes" {
		return fmt.Errorf("a %s cannot be null", f.Type.Base)
	}
	return nil
}
