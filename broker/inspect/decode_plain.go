package inspect

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Plain says what the bytes of a key or a value are.
type Plain int8

// The plain decoders, named as the classes of org.apache.kafka.tools.api.
const (
	StringDecoder  Plain = iota // UTF-8
	IntegerDecoder              // four bytes
	LongDecoder                 // eight bytes
	DefaultDecoder              // any bytes, printed in hexadecimal digits
)

// ParsePlain returns the decoder that a class of Kafka's is, by its name with or without the package.
func ParsePlain(class string) (Plain, error) {
	switch strings.TrimPrefix(class, "org.apache.kafka.tools.api.") {
	case "StringDecoder":
		return StringDecoder, nil
	case "IntegerDecoder":
		return IntegerDecoder, nil
	case "LongDecoder":
		return LongDecoder, nil
	case "DefaultDecoder":
		return DefaultDecoder, nil
	}
	return 0, fmt.Errorf("decoder class %s: Gregor runs no Java; it has StringDecoder, IntegerDecoder, LongDecoder and DefaultDecoder "+
		"of org.apache.kafka.tools.api", class)
}

// text renders a key or a value; nil for none. Bytes behind a number are ignored, as Kafka does.
func (p Plain) text(b []byte) *string {
	var s string
	switch {
	case b == nil:
		return nil
	case p == IntegerDecoder && len(b) >= 4:
		s = strconv.FormatInt(int64(int32(binary.BigEndian.Uint32(b))), 10)
	case p == LongDecoder && len(b) >= 8:
		s = strconv.FormatInt(int64(binary.BigEndian.Uint64(b)), 10)
	case p == StringDecoder:
		s = strings.ToValidUTF8(string(b), "\ufffd")
	case p == DefaultDecoder:
		s = hex.EncodeToString(b)
	default:
		s = fmt.Sprintf("Error: %d bytes are too few (%x)", len(b), b)
	}
	return &s
}
