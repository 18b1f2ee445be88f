package protocol

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// requestsText holds the shape of every request of Kafka 4.4.0: a line "KEY NAME"
// for each API and below it a line "NAME TYPE VERSIONS [nullable=VERSIONS]
// [tag=N] [tagged=VERSIONS]" for each field, indented by one more for the fields
// of a struct, which follow its first use or a line "struct NAME".
//
//go:embed requests.txt
var requestsText string

// versionRange is "3", "3-5" or "3+", both ends included.
type versionRange struct{ from, to int16 }

func (r versionRange) has(v int16) bool { return v >= r.from && v <= r.to }

var noVersions = versionRange{0, -1}

func parseRange(text string) versionRange {
	if low, open := strings.CutSuffix(text, "+"); open {
		return versionRange{mustInt(low), 1<<15 - 1}
	}
	low, high, isRange := strings.Cut(text, "-")
	if !isRange {
		high = low
	}
	return versionRange{mustInt(low), mustInt(high)}
}

func mustInt(text string) int16 {
	n, err := strconv.ParseInt(text, 10, 16)
	if err != nil {
		panic("protocol/requests.txt: " + err.Error()) // the text is compiled in
	}
	return int16(n)
}

// fieldText is one parsed line with the lines below it.
type fieldText struct {
	name, kind string // kind without "[]"
	array      bool
	versions   versionRange
	nullable   versionRange
	tagged     versionRange
	tag        uint32
	fields     []*fieldText // of a struct
}

// requestTexts parses requests.txt once, when the first request comes.
var requestTexts = sync.OnceValue(func() map[int16][]*fieldText {
	texts := make(map[int16][]*fieldText, 100)
	var key int16
	var block []string
	flush := func() {
		if len(block) > 0 {
			texts[key] = parseFields(block)
		}
		block = nil
	}
	for line := range strings.Lines(requestsText) {
		line = strings.TrimRight(line, "\n")
		if line[0] == ' ' {
			block = append(block, line)
			continue
		}
		flush()
		number, _, _ := strings.Cut(line, " ")
		key = mustInt(number)
		texts[key] = nil
	}
	flush()
	return texts
})

// parseFields reads the indented lines of one request.
func parseFields(lines []string) []*fieldText {
	root := &fieldText{}
	parents := []*fieldText{root} // by indentation
	structs := map[string]*fieldText{}
	var all []*fieldText
	for _, line := range lines {
		words := strings.Fields(line)
		depth := len(line) - len(strings.TrimLeft(line, " "))
		parents = parents[:depth]
		if words[0] == "struct" {
			shared := &fieldText{kind: words[1]}
			structs[shared.kind] = shared
			parents = append(parents, shared)
			continue
		}
		f := parseField(words)
		parent := parents[depth-1]
		parent.fields = append(parent.fields, f)
		parents = append(parents, f)
		all = append(all, f)
	}
	for _, f := range all {
		if len(f.fields) == 0 && !isPrimitive(f.kind) {
			f.fields = structs[f.kind].fields
		}
	}
	return root.fields
}

func parseField(words []string) *fieldText {
	f := &fieldText{name: words[0], versions: parseRange(words[2]), nullable: noVersions, tagged: noVersions}
	f.kind, f.array = strings.CutPrefix(words[1], "[]")
	for _, word := range words[3:] {
		attribute, value, _ := strings.Cut(word, "=")
		switch attribute {
		case "nullable":
			f.nullable = parseRange(value)
		case "tagged":
			f.tagged = parseRange(value)
		case "tag":
			f.tag = uint32(mustInt(value))
		}
	}
	return f
}

// primitive types: bytes on the wire (0: of variable length) and in a Go struct.
var primitives = map[string]struct{ wireBytes, goBytes int }{
	"bool": {1, 1}, "int8": {1, 1}, "int16": {2, 2}, "uint16": {2, 2}, "int32": {4, 4}, "uint32": {4, 4},
	"int64": {8, 8}, "float64": {8, 8}, "uuid": {16, 16},
	"string": {0, 16}, "bytes": {0, 24}, "records": {0, 24},
}

func isPrimitive(kind string) bool {
	_, ok := primitives[kind]
	return ok
}

// opKind is what a step of the walk does.
type opKind uint8

const (
	opSkip        opKind = iota // size bytes of fixed size
	opString                    // text
	opBytes                     // bytes or records
	opFixedArray                // array whose elements have size bytes
	opStringArray               // array of text
	opStructArray               // array of elem
	opStruct                    // elem in place
	opWrongTag                  // a tagged field of other versions, which Kafka refuses
)

// op is one step: a field, or several of fixed size.
type op struct {
	kind     opKind
	name     string
	nullable bool
	size     int
	elem     *structSchema
}

// structSchema is the steps of a struct in one version.
type structSchema struct {
	ops       []op
	tags      map[uint32]*op
	flex      bool
	wireBytes int // at least so many on the wire
	goBytes   int // in memory, without what it points to
}

// messageSchema is a request in one version.
type messageSchema struct {
	structSchema
	hasBytes bool
}

const maxSchemaVersions = 24

var requestSchemas [len(apiTable)][maxSchemaVersions]atomic.Pointer[messageSchema]

// requestSchema returns the compiled schema of a supported version.
func requestSchema(key, version int16) *messageSchema {
	slot := &requestSchemas[key][version]
	if s := slot.Load(); s != nil {
		return s
	}
	api := apiByKey(key)
	c := schemaCompiler{version: version, flex: api.Flexible(version)}
	s := &messageSchema{structSchema: *c.compile(requestTexts()[key])}
	s.hasBytes = c.hasBytes
	slot.Store(s) // two goroutines may both compile; the results are equal
	return s
}

type schemaCompiler struct {
	version  int16
	flex     bool
	hasBytes bool
}

func (c *schemaCompiler) compile(fields []*fieldText) *structSchema {
	s := &structSchema{flex: c.flex}
	layout := structLayout{}
	for _, f := range fields {
		layout.add(f)
		if c.flex && f.tagged != noVersions {
			s.addTag(f.tag, c.tagged(f))
		}
		if !f.versions.has(c.version) || f.tagged.has(c.version) {
			continue
		}
		o := c.field(f)
		s.wireBytes += c.wireBytes(&o)
		if last := len(s.ops) - 1; o.kind == opSkip && last >= 0 && s.ops[last].kind == opSkip {
			s.ops[last].size += o.size
		} else {
			s.ops = append(s.ops, o)
		}
	}
	if c.flex {
		s.wireBytes++
	}
	s.goBytes = layout.size()
	return s
}

func (s *structSchema) addTag(tag uint32, o *op) {
	if s.tags == nil {
		s.tags = map[uint32]*op{}
	}
	s.tags[tag] = o
}

// tagged returns the step of a tagged field. In a version that does not have
// the field its tag is not an unknown one to be skipped: Kafka's generated code
// refuses it ("Tag 0 is not valid for version 16").
func (c *schemaCompiler) tagged(f *fieldText) *op {
	if !f.versions.has(c.version) || !f.tagged.has(c.version) {
		return &op{kind: opWrongTag, name: f.name}
	}
	o := c.field(f)
	return &o
}

func (c *schemaCompiler) field(f *fieldText) op {
	o := op{name: f.name, nullable: f.nullable.has(c.version)}
	p, primitive := primitives[f.kind]
	switch {
	case !primitive:
		o.elem = c.compile(f.fields)
		o.kind = opStruct
		if f.array {
			o.kind = opStructArray
		}
	case f.kind == "string":
		o.kind = opString
		if f.array {
			o.kind = opStringArray
		}
	case f.kind == "bytes" || f.kind == "records":
		if f.array {
			panic("protocol/requests.txt: array of " + f.kind)
		}
		o.kind, c.hasBytes = opBytes, true
	default:
		o.kind, o.size = opSkip, p.wireBytes
		if f.array {
			o.kind = opFixedArray
		}
	}
	return o
}

// wireBytes is the least that a field takes on the wire.
func (c *schemaCompiler) wireBytes(o *op) int {
	switch {
	case o.kind == opSkip:
		return o.size
	case o.kind == opStruct && o.nullable:
		return 1
	case o.kind == opStruct:
		return o.elem.wireBytes
	case c.flex:
		return 1
	case o.kind == opString:
		return 2
	default:
		return 4
	}
}

// structLayout adds up the size of the Go struct that kmsg decodes into. It has
// the fields of all versions.
type structLayout struct{ offset int }

func (l *structLayout) add(f *fieldText) {
	size, align := 8, 8
	p, primitive := primitives[f.kind]
	switch {
	case f.array:
		size = 24
	case !primitive && f.nullable == noVersions:
		inner := structLayout{}
		for _, field := range f.fields {
			inner.add(field)
		}
		size = inner.size()
	case !primitive, f.kind == "string" && f.nullable != noVersions:
	default:
		size = p.goBytes
		if align = min(size, 8); f.kind == "uuid" {
			align = 1
		}
	}
	l.offset = roundUp(l.offset, align) + size
}

// size is the whole struct, with the map of unknown tags at its end.
func (l *structLayout) size() int { return roundUp(l.offset, 8) + 8 }

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// String names an op in an error.
func (o *op) String() string { return "field " + o.name }
