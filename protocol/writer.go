package protocol

import "encoding/binary"

// writer appends a message in one version.
type writer struct {
	buf  []byte
	flex bool // compact lengths and tag sections
}

func (w *writer) int16(v int16) { w.buf = binary.BigEndian.AppendUint16(w.buf, uint16(v)) }
func (w *writer) int32(v int32) { w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(v)) }
func (w *writer) int64(v int64) { w.buf = binary.BigEndian.AppendUint64(w.buf, uint64(v)) }

// length writes the length of a string (wide false) or of bytes, records or an
// array (wide true); -1 is null.
func (w *writer) length(n int, wide bool) {
	switch {
	case w.flex:
		w.buf = binary.AppendUvarint(w.buf, uint64(n+1))
	case wide:
		w.int32(int32(n))
	default:
		w.int16(int16(n))
	}
}

func (w *writer) string(s string) {
	w.length(len(s), false)
	w.buf = append(w.buf, s...)
}

func (w *writer) nullableString(s *string) {
	if s == nil {
		w.length(-1, false)
		return
	}
	w.string(*s)
}

// nullableBytes writes nil as null.
func (w *writer) nullableBytes(b []byte) {
	if b == nil {
		w.length(-1, true)
		return
	}
	w.length(len(b), true)
	w.buf = append(w.buf, b...)
}

// tagCount opens a tag section, which must then get that many fields.
func (w *writer) tagCount(n int) {
	if w.flex {
		w.buf = binary.AppendUvarint(w.buf, uint64(n))
	}
}

// tag starts a tagged field of size bytes.
func (w *writer) tag(tag, size int) {
	w.buf = binary.AppendUvarint(w.buf, uint64(tag))
	w.buf = binary.AppendUvarint(w.buf, uint64(size))
}

// nodeEndpointsTag writes a tagged field of node endpoints (KIP-951).
func (w *writer) nodeEndpointsTag(tag int, nodes []NodeEndpoint) {
	body := writer{flex: true}
	body.length(len(nodes), true)
	for i := range nodes {
		n := &nodes[i]
		body.int32(n.NodeID)
		body.string(n.Host)
		body.int32(n.Port)
		body.nullableString(n.Rack)
		body.tagCount(0)
	}
	w.tag(tag, len(body.buf))
	w.buf = append(w.buf, body.buf...)
}

// sizeOfString is what a compact string takes on the wire.
func sizeOfString(s string) int {
	var scratch [binary.MaxVarintLen64]byte
	return binary.PutUvarint(scratch[:], uint64(len(s)+1)) + len(s)
}
