package protocol

// Memory that decoding takes beside the struct that holds a field.
const (
	stringPointerBytes   = 16  // a nullable string is a pointer to a string
	allocationRoundBytes = 8   // what the allocator rounds text up to
	tagMapBytes          = 320 // the map of a section that has unknown tags
	unknownTagBytes      = 96  // an entry of it
)

// walker checks a message against its schema and adds up what decoding it takes.
type walker struct {
	reader

	budget budget
}

// walk returns what follows the message in body.
func (m *messageSchema) walk(body []byte) (rest []byte, err error) {
	w := walker{reader: reader{buf: body, flex: m.flex}, budget: newBudget(len(body))}
	if m.hasBytes {
		w.take1(len(body))
	}
	w.take1(m.goBytes)
	w.walkStruct(&m.structSchema)
	return w.buf, w.err
}

func (w *walker) take1(size int) { w.budget.charge(&w.reader, 1, size) }

func (w *walker) walkStruct(s *structSchema) {
	for i := range s.ops {
		w.walkOp(&s.ops[i])
		if w.err != nil {
			return
		}
	}
	if s.flex {
		w.walkTags(s)
	}
}

func (w *walker) walkOp(o *op) {
	switch o.kind {
	case opSkip:
		w.take(o.size)
	case opString:
		w.walkString(o)
	case opBytes:
		if n := w.length(true); n >= 0 {
			w.take(n)
		} else if !o.nullable {
			w.failNull(o.name)
		}
	case opStruct:
		if o.nullable && w.int8() < 0 {
			return
		}
		if o.nullable {
			w.take1(o.elem.goBytes)
		}
		w.walkStruct(o.elem)
	case opWrongTag:
		w.fail("tagged field %s is not valid for this version", o.name)
	default:
		w.walkArray(o)
	}
}

func (w *walker) walkString(o *op) {
	n := w.length(false)
	if n < 0 {
		if !o.nullable {
			w.failNull(o.name)
		}
		return
	}
	w.take(n)
	size := roundUp(n, allocationRoundBytes)
	if o.nullable {
		size += stringPointerBytes
	}
	w.take1(size)
}

func (w *walker) walkArray(o *op) {
	minElement, elementBytes := 1, 16
	switch o.kind {
	case opFixedArray:
		minElement, elementBytes = o.size, o.size
	case opStructArray:
		minElement, elementBytes = max(o.elem.wireBytes, 1), o.elem.goBytes
	default:
	}
	n := w.nullableArrayLength(o.name, minElement)
	if n < 0 {
		if !o.nullable {
			w.failNull(o.name)
		}
		return
	}
	w.budget.charge(&w.reader, n, elementBytes)
	if o.kind == opFixedArray {
		w.take(n * o.size)
		return
	}
	element := op{kind: opString, name: o.name}
	for range n {
		if w.err != nil {
			return
		}
		if o.kind == opStructArray {
			w.walkStruct(o.elem)
		} else {
			w.walkString(&element)
		}
	}
}

// walkTags does what reader.tags does, without a closure.
func (w *walker) walkTags(s *structSchema) {
	count := w.uvarint()
	if count == 0 {
		return
	}
	if count > MaxTagsPerSection {
		w.fail("%d tagged fields, at most %d are taken", count, MaxTagsPerSection)
		return
	}
	unknown := 0
	for range count {
		tag, size := w.uvarint(), w.uvarint()
		payload := w.take(int(size))
		if w.err != nil {
			return
		}
		field := s.tags[tag]
		if field == nil {
			unknown++
			continue
		}
		after := w.buf
		w.buf = payload
		w.walkTagged(field)
		if w.err == nil && len(w.buf) > 0 {
			w.fail("tagged %v has %d bytes too many", field, len(w.buf))
		}
		if w.err != nil {
			return
		}
		w.buf = after
	}
	if unknown > 0 {
		w.take1(tagMapBytes + unknown*unknownTagBytes)
	}
}

// walkTagged walks the payload of a tagged field. A nullable struct has an
// unsigned varint for presence there, not a byte.
func (w *walker) walkTagged(field *op) {
	if field.kind != opStruct || !field.nullable {
		w.walkOp(field)
		return
	}
	if w.uvarint() != 0 {
		w.take1(field.elem.goBytes)
		w.walkStruct(field.elem)
	}
}
